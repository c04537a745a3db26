"""A frontier as a figure and as a page: scores against compute, and the power laws of the error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onecurve import __version__
from onecurve.fit import FloatArray, IntArray
from onecurve.report.charts import Chart, band_of, chart_of, curve_of, points_of, safe
from onecurve.report.colours import ROLES, size_colours
from onecurve.report.figures import check_suffix, log_ticks, style, write_figure
from onecurve.report.markup import check_page, document, items, panel, section, switches, table
from onecurve.report.panels import Axis, optional
from onecurve.scores.frontier import Frontier, PowerFit
from onecurve.scores.words import axis_words, printed, summary, tables, value_words
from onecurve.store import write_atomic

COLOURS = ROLES["light"]
MOST_FAMILIES = 10
"""Families with a colour of their own, those with the most models; the others are grey."""
MOST_NAMES = 25
"""Models that are named in the figure where there are no more."""
MOST_POINTS = 4000
"""Models drawn; beyond, the frontier and an even subset of the rest."""
TITLE = "Which models are on the frontier?"
_COMPUTE = "training compute (FLOPs)"


def save_frontier(path: Path, f: Frontier) -> None:
    """Draw a frontier: score against compute with the Pareto set, and the error's power laws on log axes."""
    check_suffix(path)
    figure_module, canvas = optional("matplotlib.figure"), optional("matplotlib.backends.backend_agg")
    s, drawn = f.scores, _drawn(f)
    colours = _colours(f)
    with style():
        figure = figure_module.Figure(figsize=(7.6, 3.7), layout="constrained")
        canvas.FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        x, y = _staircase(f)
        left.plot(x, y, color=COLOURS["ink"], lw=0.8, ls=":", label="frontier")
        for name, rows in _by_family(f, drawn).items():
            colour = colours.get(name, COLOURS["muted"])
            face = np.where(s.uncounted[rows], "white", colour)
            label = (name or "others") if len(s) > MOST_NAMES else None
            for ax, value in ((left, _shown(f)), (right, _errors(f))):
                style_ = {
                    "s": 16 if len(s) < 200 else 4,
                    "c": face,
                    "edgecolors": colour,
                    "linewidths": 1.0,
                    "zorder": 3,
                }
                ax.scatter(s.compute[rows], value[rows], label=label if ax is left else None, **style_)
            if np.isfinite(s.stderr[rows]).any():
                bars = np.nan_to_num(s.stderr[rows]) * _unit(f)
                left.errorbar(s.compute[rows], _shown(f)[rows], bars, fmt="none", ecolor=colour, lw=0.8)
        if len(s) <= MOST_NAMES:
            names = apart(s.name)
            for k in range(len(s)):
                # The frontier is named on the side where no model can be.
                above = 3 if f.on[k] != s.falling else -7
                place = {"xytext": (-4, above), "ha": "right"} if f.on[k] else {"xytext": (4, above)}
                at = (s.compute[k], _shown(f)[k])
                left.annotate(names[k], at, textcoords="offset points", fontsize=6, parse_math=False, **place)
        for fit in _laws(f):
            colour, at = colours.get(fit.family, COLOURS["muted"]), _along(f, fit)
            low, high = fit.band(at)
            right.fill_between(at, low * _unit(f), high * _unit(f), color=colour, alpha=0.15, lw=0)
            label = f"{fit.family}: exponent {fit.exponent:.3f}"
            right.plot(at, fit.predict(at) * _unit(f), color=colour, lw=1.1, label=label)
            theirs = printed(fit, s, at)
            if theirs is not None:
                label = f"{fit.family}, as published"
                right.plot(at, theirs * _unit(f), color=colour, lw=0.9, ls=(0, (4, 2)), label=label)
        for ax in (left, right):
            ax.set_xscale("log")
            ax.set_xlabel(_COMPUTE)
        left.set_xlim(s.compute.min() / 10.0, s.compute.max() * 6.0)
        left.set_ylabel(axis_words(s))
        right.set_yscale("log")
        right.set_ylabel("error (%)" if not s.falling else axis_words(s))
        right.yaxis.set_major_formatter(optional("matplotlib.ticker").ScalarFormatter())
        right.yaxis.set_minor_formatter(optional("matplotlib.ticker").NullFormatter())
        right.set_yticks(_ticks(_errors(f)[drawn]))
        right.minorticks_off()
        left.set_title("(a)  score against compute", loc="left", fontweight="bold")
        right.set_title("(b)  power laws, 90 % for one more model", loc="left", fontweight="bold")
        left.legend(loc="upper left" if not s.falling else "upper right")
        if _laws(f):
            right.legend(loc="best")
        if s.uncounted.any():
            figure.supxlabel("hollow: distilled, the teacher's compute not counted", fontsize=6.5)
    write_figure(path, figure)


def save_scores_page(path: Path, f: Frontier) -> None:
    """Write the page of a frontier. Raises OnecurveError for a suffix other than .html, or without plotly."""
    check_page(path)
    names = _coloured(f)
    rows = [[_score_chart(f)], [_error_chart(f)]]
    hollow = " Hollow: distilled, teacher not counted." if f.scores.uncounted.any() else ""
    charts = "\n".join(
        [
            '<noscript><p class="note">The charts need JavaScript; the words and tables do not.</p></noscript>',
            switches("Families to show", "Family", names),
            '<div class="panels">',
            panel(0, "Score against compute", f"Line: no better score for less.{hollow}", rows[0], [""]),
            panel(1, "Power laws of the error", "Bands hold one more model in 90 % of cases.", rows[1], [""]),
            "</div>",
        ]
    )
    made = f"onecurve {__version__}; score: {f.scores.score}; {len(f.scores)} models"
    sources = [f"{name}: {source}" for name, source in zip(f.scores.name, f.scores.source, strict=True)]
    body = "\n".join(
        [
            section("summary", "In words", f'<div class="verdict within">{items("ul", summary(f))}</div>'),
            section("charts", "Charts", charts),
            section("tables", "Tables", '<div class="tables">' + "\n".join(map(table, tables(f))) + "</div>"),
            section("notes", "Notes", items("ul", [*f.notes, made])),
            section("sources", "Sources", items("ul", sources[: MOST_FAMILIES * 10])),
        ]
    )
    write_atomic(path, document(TITLE, body, rows, len(names)))


def apart(names: Sequence[str]) -> list[str]:
    """Names without the words that all begin and all end with, words being parted by dashes.

    Examples:
        >>> apart(["mup-26K-seed-0", "mup-41K-seed-0"]), apart(["Gemma-2-2B", "BTLM-3B"]), apart(["alone"])
        (['26K', '41K'], ['Gemma-2-2B', 'BTLM-3B'], ['alone'])
    """
    words = [name.split("-") for name in names]
    shortest = min(map(len, words)) - 1
    first = next((k for k in range(shortest) if len({w[k] for w in words}) > 1), shortest)
    left = shortest - first
    last = next((k for k in range(left) if len({w[-1 - k] for w in words}) > 1), left)
    return ["-".join(w[first : len(w) - last]) for w in words] if len(names) > 1 else list(names)


def _score_chart(f: Frontier) -> Chart:
    s, shown = f.scores, _shown(f)
    x, y = _staircase(f)
    traces = [curve_of("frontier", x, y, "ink", hover="frontier %{y:.4g}", dash="dot")]
    traces += _markers(f, shown, safe(axis_words(s)))
    on = ", ".join(s.name[k] for k in f.along[:MOST_NAMES])
    axes = {"xaxis": _axis(_COMPUTE, s.compute), "yaxis": _axis(axis_words(s), shown, log=False)}
    return chart_of(traces, axes, f"on the frontier: {on}")


def _error_chart(f: Frontier) -> Chart:
    s, names = f.scores, _coloured(f)
    traces: list[tuple[dict[str, Any], str]] = []
    for fit in _laws(f):
        role, at = _role(names, fit.family), _along(f, fit)
        low, high = fit.band(at)
        traces += band_of(at, np.stack([low, high]) * _unit(f), role)
        label = safe(f"{fit.family}: exponent {fit.exponent:.3f}")
        traces.append(curve_of(label, at, fit.predict(at) * _unit(f), role, hover="%{y:.4g}", width=2))
        theirs = printed(fit, s, at)
        if theirs is not None:
            label = safe(f"{fit.family}, as published")
            traces.append(curve_of(label, at, theirs * _unit(f), role, hover="%{y:.4g}", dash="dash"))
    traces += _markers(f, _errors(f), "error")
    label = "error (%)" if not s.falling else axis_words(s)
    words = "; ".join(f"{fit.family}: exponent {fit.exponent:.3f}" for fit in _laws(f)) or "no family has three sizes"
    return chart_of(traces, {"xaxis": _axis(_COMPUTE, s.compute), "yaxis": _axis(label, _errors(f))}, words)


def _markers(f: Frontier, value: FloatArray, label: str) -> list[tuple[dict[str, Any], str]]:
    s, names = f.scores, _coloured(f)
    out: list[tuple[dict[str, Any], str]] = []
    for name, rows in _by_family(f, _drawn(f)).items():
        hover = f"%{{text}}<br>{_COMPUTE} %{{x:.3g}}<br>{label} %{{y:.4g}}"
        trace, role = points_of("", s.compute[rows], value[rows], _role(names, name), hover=hover)
        hollow = s.uncounted[rows]
        symbol = np.where(hollow, "circle-open", "circle").tolist()
        trace["marker"] |= {"symbol": symbol, "line": {"width": np.where(hollow, 2, 0).tolist()}}
        trace |= {"text": [safe(f"{s.name[k]}: {value_words(s, k)}") for k in rows], "showlegend": False}
        out.append((trace, role))
    return out


def _role(names: list[str], family: str) -> str:
    return f"size{names.index(family)}" if family in names else "muted"


def _coloured(f: Frontier) -> list[str]:
    """Families with a colour, in the order in which they are named."""
    count: dict[str, int] = {}
    for name in f.scores.family:
        count[name] = count.get(name, 0) + 1
    kept = sorted(count, key=lambda name: -count[name])[:MOST_FAMILIES]
    return [name for name in count if name in kept]


def _colours(f: Frontier) -> dict[str, str]:
    names = _coloured(f)
    return dict(zip(names, size_colours(len(names)), strict=True))


def _drawn(f: Frontier) -> IntArray:
    """Rows to draw: all, or the frontier and an even subset."""
    every = np.arange(len(f.scores))
    if every.size <= MOST_POINTS:
        return every
    return np.unique(np.concatenate([np.flatnonzero(f.on), every[:: -(-every.size // MOST_POINTS)]]))


def _by_family(f: Frontier, rows: IntArray) -> dict[str, IntArray]:
    """Rows of each family that has a colour, and of the others together."""
    names, family = _coloured(f), np.array(f.scores.family)[rows]
    out = {name: rows[family == name] for name in names}
    rest = rows[~np.isin(family, names)]
    return out | ({"": rest} if rest.size else {})


def _laws(f: Frontier) -> list[PowerFit]:
    """The laws in compute of the families that have a colour."""
    names = _coloured(f)
    return [fit for fit in f.fits if fit.against == "C" and fit.family in names]


def _along(f: Frontier, fit: PowerFit) -> FloatArray:
    """Compute along which a law is drawn: its family's, and as far as any model goes."""
    return np.geomspace(fit.x.min() / 1.3, max(fit.x.max(), f.scores.compute.max()) * 1.3, 100)


def _staircase(f: Frontier) -> tuple[FloatArray, FloatArray]:
    """The frontier as steps, to the largest compute there is."""
    s, rows = f.scores, f.along
    x, y = s.compute[rows], _shown(f)[rows]
    return np.append(np.repeat(x, 2)[1:], s.compute.max()), np.repeat(y, 2)


def _unit(f: Frontier) -> float:
    """Accuracies are shown in per cent."""
    return 1.0 if f.scores.falling else 100.0


def _shown(f: Frontier) -> FloatArray:
    return f.scores.value * _unit(f)


def _errors(f: Frontier) -> FloatArray:
    """Errors as they stand on a log axis: a perfect score has none."""
    return np.where(f.scores.error > 0, f.scores.error, np.nan) * _unit(f)


def _axis(label: str, values: FloatArray, log: bool = True) -> Axis:
    good = values[np.isfinite(values)]
    low, high = (float(good.min()), float(good.max())) if good.size else (1.0, 10.0)
    if high <= low:
        low, high = 0.9 * low, 1.1 * high or 1.0
    margin = (high / low) ** 0.05 if log else 1.0
    return Axis(label, low / margin, high * margin, log)


def _ticks(values: FloatArray) -> list[float]:
    axis = _axis("", values)
    return log_ticks(axis.low, axis.high)
