"""The page in a real browser: it draws, its controls work, and nothing is refused or fails."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from onecurve.report import page

BROWSER = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome on the PATH"),
]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=20000",
    "--enable-logging=stderr",
)
WATCH = """<script>
window.faults = [];
addEventListener("error", (e) => faults.push(String(e.message)));
addEventListener("unhandledrejection", (e) => faults.push(String(e.reason)));
addEventListener("securitypolicyviolation", (e) => faults.push(`${e.violatedDirective} ${e.blockedURI}`));
</script>"""
PROBE = """<script type="module">
const wait = async (done) => { while (!done()) await new Promise((r) => setTimeout(r, 50)); };
const plot = (k, i) => document.getElementById(`plot-${k}-${i}`);
const press = async (selector) => {
  document.querySelector(selector).click();
  await new Promise((r) => setTimeout(r, 300));
};
const look = () => ({
  paper: getComputedStyle(document.body).backgroundColor,
  chart: plot(0, 0)._fullLayout.paper_bgcolor,
  line: plot(0, 0)._fullData[0].line.color,
});
const out = {};
await wait(() => document.documentElement.dataset.drawn);
out.paths = [...document.querySelectorAll(".plot")].map((p) => p.querySelectorAll("path.js-line").length);
out.wide = document.documentElement.scrollWidth <= innerWidth;
out.alerts = document.querySelectorAll("svg script, a[href]").length;
out.before = look();
await press("#theme");
out.after = look();
out.pressed = document.getElementById("theme").getAttribute("aria-pressed");
out.scale = plot(0, 0)._fullLayout.xaxis.type;
await press("button[data-row='0'][data-axis='xaxis']");
out.scaled = [0, 1].map((i) => plot(0, i)._fullLayout.xaxis.type);
await press("button[data-size='0']");
out.hidden = plot(0, 0)._fullData.filter((t) => t.visible === false).length;
await Plotly.relayout(plot(1, 0), { "yaxis.range[0]": 0.01, "yaxis.range[1]": 0.02 });
await new Promise((r) => setTimeout(r, 300));
out.zoomed = [0, 1].map((i) => plot(1, i)._fullLayout.yaxis.range);
await press("#theme");
out.kept = plot(1, 0)._fullLayout.yaxis.range;
out.faults = faults;
const say = document.createElement("pre");
say.id = "said";
say.textContent = JSON.stringify(out);
document.body.append(say);
</script>"""


def visit(text, folder, width):
    """What the probe saw, and what the browser's console said."""
    file = folder / "page.html"
    file.write_text(text.replace("<head>", f"<head>{WATCH}", 1).replace("</body>", f"{PROBE}</body>"), "utf-8")
    profile, size = f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"
    done = subprocess.run(
        [str(BROWSER), *FLAGS, profile, size, "--dump-dom", file.as_uri()],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    return json.loads(unescape(found.group(1))), [x for x in done.stderr.splitlines() if "CONSOLE" in x]


@pytest.mark.parametrize("width", [1300, 500])
def test_the_page_draws_and_its_controls_work(measured, tmp_path, width):
    nasty = "<script>alert(1)</script><b>"
    text = page(
        [
            measured(name=nasty, run_name=nasty, broken=True, unfinished=True),
            measured(name="without", drift=1.0, seeds=4),
        ]
    )
    saw, console = visit(text, tmp_path, width)
    assert saw["faults"] == []
    assert console == []
    assert len(saw["paths"]) == 8
    assert saw["paths"][0] == 15 + 2  # two stretches without finite losses part one curve into three
    assert saw["paths"][1] == 20
    assert all(saw["paths"])
    assert saw["wide"], "the page scrolls sideways"
    assert saw["alerts"] == 0
    assert saw["before"]["paper"] != saw["after"]["paper"]
    assert saw["before"]["chart"] != saw["after"]["chart"]
    assert saw["before"]["line"] != saw["after"]["line"]
    assert saw["pressed"] == "true"
    assert (saw["scale"], saw["scaled"]) == ("log", ["linear", "linear"])
    assert saw["hidden"] == 3
    assert saw["zoomed"] == [[0.01, 0.02], [0.01, 0.02]]
    assert saw["kept"] == [0.01, 0.02]
