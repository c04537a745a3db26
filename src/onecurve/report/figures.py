"""The figure of a collapse, for papers: four panels, and a column for every collapse where there are several."""

from __future__ import annotations

import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.measure.result import TOLERANCE_AT, Collapse
from onecurve.report.colours import ROLES, size_colours
from onecurve.report.panels import (
    Axis,
    Panels,
    View,
    crossing_words,
    evenly,
    floor_words,
    optional,
    own_noise,
    spread_curves,
    spread_words,
    view,
)
from onecurve.run import human
from onecurve.store import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
MOST_NAMES = 12
"""Sizes named in the legend."""
ROOM = 0.27
"""Share of the third panel's height that is kept free of curves."""
COLOURS = ROLES["light"]
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "onecurve",
    "figure.dpi": 100,
    "savefig.dpi": 300,
}
TITLES = ("loss", "normalised loss", "deviation and noise floor", "final loss")


def draw(*collapses: Collapse) -> Figure:
    """A figure of one collapse in four panels, or of several in columns that share their axes.

    (a) the losses as logged; (b) the normalised curves, and how far each size's mean lies from the mean of all;
    (c) the deviation against the noise floor with their 90 % intervals, and where they cross - or, without repeated
    seeds, the spread of the sizes against the tolerance; (d) the final losses, with the fit of the floor if there is
    one. Raises OnecurveError without a collapse to draw, or without matplotlib.
    """
    shown = view(collapses)
    figure_module, canvas = optional("matplotlib.figure"), optional("matplotlib.backends.backend_agg")
    with style():
        single = len(shown.panels) == 1
        size = (7.2, 6.3) if single else (0.5 + 3.35 * len(shown.panels), 10.4)
        figure = figure_module.Figure(figsize=size, layout="constrained")
        canvas.FigureCanvasAgg(figure)
        figure.get_layout_engine().set(h_pad=0.05, w_pad=0.05, hspace=0.02, wspace=0.03)
        for column, (panels, places) in enumerate(zip(shown.panels, _places(figure, len(shown.panels)), strict=True)):
            for k, panel in enumerate((_raw, _normalised, _spread, _ends)):
                axes = [figure.add_subplot(place) for place in places[k]]
                panel(axes, panels, shown)
                _letter(axes[0], k, panels, shown, column)
                if column:
                    for ax in axes:
                        ax.tick_params(labelleft=False)
                        ax.set_ylabel("")
        if single and shown.panels[0].name:
            figure.suptitle(_wrapped(shown.panels[0].name, 90), fontsize=9, parse_math=False)
        _legend(figure, shown)
    return figure


def save_figure(path: str | Path, *collapses: Collapse) -> None:
    """Draw collapses and write a PNG, SVG or PDF, as the suffix says; the same input gives the same bytes.

    Raises OnecurveError for any other suffix.
    """
    path = Path(path)
    check_suffix(path)
    write_figure(path, draw(*collapses))


def check_suffix(path: Path) -> None:
    """Raise OnecurveError for a file that is not one of a figure."""
    if path.suffix.lower() not in SUFFIXES:
        raise OnecurveError(f"{path}: a figure is written as {', '.join(SUFFIXES)}; got suffix {path.suffix!r}")


def write_figure(path: Path, figure: Any) -> None:
    """Write a figure in one step."""
    suffix = path.suffix.lower()
    # Dates and program versions would make equal figures differ.
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[suffix]
    with style():
        out = BytesIO()
        figure.savefig(out, format=suffix[1:], metadata=metadata)
    write_atomic(path, out.getvalue())


@contextmanager
def style() -> Generator[None]:
    """Our settings on top of matplotlib's own, whatever the user's are; these come back afterwards."""
    matplotlib = optional("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def _places(figure: Any, columns: int) -> list[list[list[Any]]]:
    """The places of the panels, for each collapse; the normalised curves have a strip of residuals below them.

    All are cells of one grid, so that the edges of the panels stay in line.
    """
    if columns == 1:
        grid = figure.add_gridspec(3, 2, height_ratios=(3, 1.25, 4.25))
        return [[[grid[:2, 0]], [grid[0, 1], grid[1, 1]], [grid[2, 0]], [grid[2, 1]]]]
    grid = figure.add_gridspec(5, columns, height_ratios=(3.5, 3, 1.25, 3.5, 3.5))
    return [[[grid[0, k]], [grid[1, k], grid[2, k]], [grid[3, k]], [grid[4, k]]] for k in range(columns)]


def _letter(ax: Any, k: int, panels: Panels, shown: View, column: int) -> None:
    """The panel's letter; above the columns of several collapses their names."""
    if len(shown.panels) == 1:
        title = "relative spread" if k == 2 and not shown.repeated else TITLES[k]
        ax.set_title(f"({'abcd'[k]})  {title}", loc="left", fontweight="bold")
        return
    ax.set_title(f"({'abcd'[k]})" if column == 0 else " ", loc="left", fontweight="bold")
    if k == 0:
        ax.set_title(_wrapped(panels.name, 40), fontweight="bold", parse_math=False)


def _raw(axes: list[Any], panels: Panels, shown: View) -> None:
    ax = axes[0]
    colours = _colours(shown)
    for line in panels.raw:
        width, alpha, dash = {"run": (0.6, 0.6, "-"), "mean": (1.4, 1.0, "-"), "unfinished": (0.8, 0.9, ":")}[line.kind]
        ax.plot(line.x, line.y, dash, color=colours[line.size], lw=width, alpha=alpha)
    _scale(ax, "x", shown.raw_x, counts="compute" not in shown.raw_x.label)
    _scale(ax, "y", shown.raw_y)
    if any(line.kind == "unfinished" for line in panels.raw):
        _text(ax, "dotted: unfinished runs", "upper right")


def _normalised(axes: list[Any], panels: Panels, shown: View) -> None:
    top, bottom = axes
    c, colours = panels.collapse, _colours(shown)
    for line in panels.normalised:
        mean = line.kind == "mean"
        top.plot(line.x, line.y, color=colours[line.size], lw=1.2 if mean else 0.6, alpha=1.0 if mean else 0.6)
    (mean_line,) = top.plot(c.fraction, c.mean_curve, color=COLOURS["ink"], lw=1.1, dashes=(4, 2))
    top.legend([mean_line], ["mean of the sizes"], loc="upper right")
    bottom.axhline(0.0, color=COLOURS["ink"], lw=0.8)
    for size, row in zip(c.sizes, panels.residual, strict=True):
        bottom.plot(c.fraction, 100.0 * row, color=colours[float(size)], lw=0.9)
    _scale(top, "y", shown.normalised)
    low, high = shown.residual.range(False)
    bottom.set_ylim(100.0 * low, 100.0 * high)
    bottom.set_ylabel("from\nmean (%)")
    top.tick_params(labelbottom=False)
    _fraction(top, shown, label=False)
    _fraction(bottom, shown)


def _spread(axes: list[Any], panels: Panels, shown: View) -> None:
    ax, c = axes[0], panels.collapse
    curves = spread_curves(c, shown.repeated)
    # Above the curves is room for the legend and the words.
    room = (shown.spread.high / shown.spread.low) ** (ROOM / (1.0 - ROOM))
    _scale(ax, "y", Axis(shown.spread.label, shown.spread.low, shown.spread.high * room, True), percent=True)
    _fraction(ax, shown)
    if not shown.repeated:
        ax.plot(c.fraction, curves[0], color=COLOURS["spread"], lw=1.4, label="spread of the sizes")
        ax.axhline(c.tolerance, color=COLOURS["muted"], lw=1.0, ls="--", label=f"tolerance {c.tolerance:.0%}")
        ax.plot(TOLERANCE_AT, [c.at(c.relative_spread, x) for x in TOLERANCE_AT], "o", color=COLOURS["ink"], ms=3.5)
        ax.legend(loc="upper left", ncols=2)
        _text(ax, spread_words(c), "upper right", below=0.14)
        return
    delta, sigma, delta_band, sigma_band = curves
    for band, role in ((sigma_band, "noise"), (delta_band, "deviation")):
        ax.fill_between(c.fraction, band[0], band[1], color=COLOURS[role], alpha=0.18, lw=0)
    ax.plot(c.fraction, delta, color=COLOURS["deviation"], lw=1.4, label="deviation Δ")
    ax.plot(c.fraction, sigma, color=COLOURS["noise"], lw=1.4, label="noise floor σ")
    own = own_noise(c)
    ax.plot(c.fraction, own, color=COLOURS["noise"], lw=0.8, alpha=0.7, ls=(0, (3, 2)), label="own-normalised σ")
    ax.legend(loc="upper right", ncols=3, columnspacing=0.8, handlelength=1.4, handletextpad=0.5, borderaxespad=0.2)
    crossing = c.crossings[0]
    if crossing.corrected is not None and crossing.corrected > c.fraction[0]:
        x = crossing.corrected
        if crossing.interval is not None:
            ax.axvspan(*crossing.interval, ymax=1.0 - ROOM, color=COLOURS["ink"], alpha=0.08, lw=0)
        ax.axvline(x, ymax=1.0 - ROOM, color=COLOURS["ink"], lw=0.7, ls=":")
        ax.plot([x], [np.interp(x, c.fraction, sigma)], "o", mfc="white", mec=COLOURS["ink"], ms=4.5, zorder=5)
    _text(ax, crossing_words(c), "upper right", below=0.14)


def _ends(axes: list[Any], panels: Panels, shown: View) -> None:
    ax, ends = axes[0], panels.ends
    colours = _colours(shown)
    sizes = [float(s) for s in panels.collapse.sizes]
    _scale(ax, "x", shown.end_x, margin=0.1, counts=not shown.fitted)
    _scale(ax, "y", shown.end_y, margin=0.1)
    if ends.x_fit.size:
        ax.fill_between(
            ends.x_fit, np.nan_to_num(ends.band[0], nan=1e-300), ends.band[1], color=COLOURS["muted"], alpha=0.2, lw=0
        )
        ax.plot(ends.x_fit, ends.y_fit, color=COLOURS["ink"], lw=1.0)
    rows = np.repeat(sizes, panels.collapse.counts)
    for size in sizes:
        mine = rows == size
        ax.plot(ends.x_runs[mine], ends.y_runs[mine], "o", color=colours[size], ms=2.2, mew=0, alpha=0.7)
    edges = [colours[s] for s in sizes]
    ax.scatter(ends.x, ends.y, s=30, facecolors="none", edgecolors=edges, linewidths=1.2, zorder=4)
    _text(ax, floor_words(panels.collapse), "lower left")


def _colours(shown: View) -> dict[float, str]:
    return dict(zip(shown.sizes, size_colours(len(shown.sizes)), strict=True))


def _fraction(ax: Any, shown: View, label: bool = True) -> None:
    ax.set_xlim(min(shown.fraction.low, 0.0), 1.0)
    ax.set_xticks(np.linspace(0.0, 1.0, 6))
    if label:
        ax.set_xlabel(shown.fraction.label)


def _text(ax: Any, words: str, where: str, below: float = 0.03) -> None:
    """Words in a corner, ``below`` the upper edge or above the lower one, on a plate that keeps them legible."""
    vertical, horizontal = where.split()
    ax.text(
        0.98 if horizontal == "right" else 0.03,
        1.0 - below if vertical == "upper" else below,
        words,
        transform=ax.transAxes,
        ha=horizontal,
        va="top" if vertical == "upper" else "bottom",
        fontsize=7,
        linespacing=1.35,
        color=COLOURS["ink"],
        parse_math=False,
        bbox={"boxstyle": "square,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.8},
        zorder=6,
    )


def _legend(figure: Any, shown: View) -> None:
    """One legend of the sizes for all panels."""
    from matplotlib.lines import Line2D

    colours = _colours(shown)
    named = [shown.sizes[i] for i in evenly(len(shown.sizes), MOST_NAMES)]
    title = f"size (parameters{', some of ' + str(len(shown.sizes)) if len(named) < len(shown.sizes) else ''})"
    handles = [Line2D([], [], color=colours[s], lw=2) for s in named]
    room = 10 if len(shown.panels) <= 2 else 5 * len(shown.panels)
    figure.legend(
        handles,
        [human(s) for s in named],
        loc="outside lower center",
        ncols=min(len(named), room),
        title=title,
        title_fontsize=7.5,
        handlelength=1.4,
        columnspacing=1.3,
    )


def _wrapped(name: str, width: int) -> str:
    return "\n".join(textwrap.wrap(name, width, max_lines=2, placeholder=" …")) or name


def _scale(
    ax: Any, which: str, axis: Axis, *, margin: float = 0.04, percent: bool = False, counts: bool = False
) -> None:
    """Scale, range, label and ticks of one axis."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    target = ax.xaxis if which == "x" else ax.yaxis
    (ax.set_xscale if which == "x" else ax.set_yscale)("log" if axis.log else "linear")
    low, high = axis.range(axis.log, margin)
    (ax.set_xlim if which == "x" else ax.set_ylim)(low, high)
    target.set_label_text(axis.label, parse_math=False)
    words = _percent if percent else human if counts else _power

    def text(value: float, _: int | None) -> str:
        return words(value)

    if axis.log:
        target.set_major_locator(FixedLocator(log_ticks(low, high)))
        target.set_minor_locator(NullLocator())
        target.set_minor_formatter(NullFormatter())
        target.set_major_formatter(FuncFormatter(text))
    elif counts:
        target.set_major_locator(MaxNLocator(5))
        target.set_major_formatter(FuncFormatter(text))


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round values for a log axis: powers of ten, else 1-2-5, else even steps.

    Examples:
        >>> log_ticks(0.9, 1200.0), log_ticks(0.03, 0.3)
        ([1.0, 10.0, 100.0, 1000.0], [0.05, 0.1, 0.2])
    """
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    powers = [10.0**k for k in decades if low <= 10.0**k <= high]
    if len(powers) >= 3:
        return powers[:: -(-len(powers) // most)]
    for steps in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [float(f"{m * 10.0**k:.6g}") for k in decades for m in steps if low <= m * 10.0**k <= high]
        if 3 <= len(ticks) <= most:
            return ticks
    from matplotlib.ticker import MaxNLocator

    even = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [float(f"{v:.6g}") for v in even if low <= v <= high]


def _percent(value: float) -> str:
    return f"{100 * value:g}%"


def _power(value: float) -> str:
    if 1e-3 <= abs(value) < 1e4 or value == 0:
        return f"{value:g}"
    exponent = int(np.floor(np.log10(abs(value)) + 1e-9))
    mantissa = value / 10.0**exponent
    return rf"$10^{{{exponent}}}$" if abs(mantissa - 1) < 1e-6 else rf"${mantissa:g}\!\times\!10^{{{exponent}}}$"
