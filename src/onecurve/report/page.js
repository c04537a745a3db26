// Draws the charts of the page and keeps them in step: theme, scales, sizes shown, and zoom between collapses.
const { rows, palettes } = JSON.parse(document.getElementById("data").textContent);
const system = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
const hidden = new Set();
const config = {
  displaylogo: false,
  // The page talks to nobody: no button that would send a chart to a server.
  showSendToCloud: false,
  plotlyServerURL: "",
  responsive: true,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  toImageButtonOptions: { format: "png", scale: 2 },
};
const axes = ["xaxis", "yaxis", "yaxis2"];
let busy = false;

const element = (row, column) => document.getElementById(`plot-${row}-${column}`);
const theme = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
const faded = (colour, share) => colour + Math.round(255 * share).toString(16).padStart(2, "0");

// A copy of the chart in the colours of the theme; plotly is free to keep notes in it.
function painted(chart) {
  const palette = palettes[theme()];
  const { data, layout, roles } = structuredClone(chart);
  data.forEach((trace, i) => {
    const colour = palette[roles[i]];
    if (trace.line) trace.line.color = colour;
    if (trace.marker) trace.marker.color = colour;
    if (trace.fill) trace.fillcolor = faded(colour, 0.2);
    if (hidden.has(roles[i])) trace.visible = false;
  });
  for (const shape of layout.shapes ?? []) {
    shape.line.color = palette.ink;
    if (shape.type === "rect") shape.fillcolor = faded(palette.ink, 0.1);
  }
  for (const key of axes) {
    if (!layout[key]) continue;
    Object.assign(layout[key], {
      gridcolor: palette.grid, linecolor: palette.muted, zerolinecolor: palette.muted, automargin: true,
      ticks: "outside", ticklen: 4, tickcolor: palette.muted, showline: true, zeroline: layout[key].zeroline ?? false,
    });
  }
  Object.assign(layout, {
    paper_bgcolor: palette.paper, plot_bgcolor: palette.paper,
    font: { color: palette.ink, size: 12, family: getComputedStyle(document.body).fontFamily },
    hoverlabel: { bgcolor: palette.paper, font: { color: palette.ink }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: palette.muted, activecolor: palette.ink },
  });
  return [data, layout];
}

async function draw(row, column) {
  const plot = element(row, column);
  await Plotly.newPlot(plot, ...painted(rows[row][column]), config);
  plot.removeAllListeners("plotly_relayout");
  plot.on("plotly_relayout", (change) => follow(row, column, change));
}

// A zoom into one collapse is a zoom into those beside it: they are there to be compared.
async function follow(row, column, change) {
  const ranges = Object.entries(change).filter(([key]) => /^[xy]axis2?\.(range|autorange)/.test(key));
  if (busy || !ranges.length) return;
  busy = true;
  const others = rows[row].map((_, i) => i).filter((i) => i !== column);
  await Promise.all(others.map((i) => Plotly.relayout(element(row, i), Object.fromEntries(ranges))));
  busy = false;
}

function repaint() {
  rows.forEach((row, k) => row.forEach((chart, i) => {
    const plot = element(k, i);
    const [data, layout] = painted(chart);
    for (const key of axes) {
      // What was zoomed into stays in sight.
      if (layout[key]) layout[key].range = [...plot.layout[key].range];
    }
    Plotly.react(plot, data, layout, config);
  }));
  button.setAttribute("aria-pressed", String(theme() === "dark"));
}

const pressed = (target) => {
  const now = target.getAttribute("aria-pressed") !== "true";
  target.setAttribute("aria-pressed", String(now));
  return now;
};

const button = document.getElementById("theme");
button.hidden = false;
button.setAttribute("aria-pressed", String(theme() === "dark"));
button.addEventListener("click", () => {
  root.dataset.theme = theme() === "dark" ? "light" : "dark";
  repaint();
});
system.addEventListener("change", repaint);

for (const target of document.querySelectorAll("button[data-axis]")) {
  target.addEventListener("click", () => {
    const { row, axis } = target.dataset;
    const scale = pressed(target) ? "log" : "linear";
    rows[row].forEach((chart, i) => {
      Object.assign(chart.layout[axis], { type: scale, range: chart.ranges[axis][scale] });
      draw(row, i);
    });
  });
}

for (const target of document.querySelectorAll("button[data-size]")) {
  target.addEventListener("click", () => {
    hidden[pressed(target) ? "delete" : "add"](`size${target.dataset.size}`);
    repaint();
  });
}

await Promise.all(rows.flatMap((row, k) => row.map((_, i) => draw(k, i))));
root.dataset.drawn = "yes";
