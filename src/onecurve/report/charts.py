"""The charts of the page: plain dictionaries that plotly's JavaScript draws. Colours are roles, set by the page."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import Any

import numpy as np

from onecurve.measure.result import LAST, TOLERANCE_AT
from onecurve.report.panels import (
    Axis,
    Line,
    Panels,
    View,
    crossing_words,
    floor_words,
    own_noise,
    spread_curves,
    spread_words,
)
from onecurve.run import FloatArray, human

Chart = dict[str, Any]


def charts(shown: View) -> list[list[Chart]]:
    """Four rows of charts, one chart a collapse.

    A chart holds plotly's ``data`` and ``layout``; ``roles``, the colour of each trace; ``ranges``, those of each
    axis that can be shown on either scale; and ``words``, what is to be seen, for a caption and for readers who do
    not see it.
    """
    makers = (_raw, _normalised, _spread, _ends)
    return [[make(p, shown) for p in shown.panels] for make in makers]


def safe(text: str) -> str:
    """Text of the user as plotly shows it unchanged: it knows a few tags of HTML."""
    return escape(text, quote=False).replace("\n", " ")


def _raw(p: Panels, shown: View) -> Chart:
    x_name, y_name = safe(shown.raw_x.label), safe(shown.raw_y.label)
    traces = [_line(line, shown, f"{x_name} %{{x}}<br>{y_name} %{{y:.5g}}") for line in p.raw]
    unfinished = sum(line.kind == "unfinished" for line in p.raw)
    words = f"{shown.raw_y.label} of each run against {shown.raw_x.label}"
    if unfinished:
        words += f"; dotted: {unfinished} unfinished run{'s' * (unfinished > 1)}"
    return chart_of(traces, {"xaxis": shown.raw_x, "yaxis": shown.raw_y}, words)


def _normalised(p: Panels, shown: View) -> Chart:
    c = p.collapse
    hover = "x %{x:.3f}<br>ℓ %{y:.5g}"
    traces = [_line(line, shown, hover) for line in p.normalised]
    traces.append(curve_of("mean of the sizes", c.fraction, c.mean_curve, "ink", hover=hover, width=2, dash="dash"))
    for size, row in zip(c.sizes, p.residual, strict=True):
        line = Line(f"size {human(float(size))}", float(size), c.fraction, 100.0 * row, "mean")
        trace, role = _line(line, shown, "x %{x:.3f}<br>%{y:+.3g} % from the mean")
        traces.append((trace | {"yaxis": "y2"}, role))
    low, high = shown.residual.range(False)
    words = "normalised loss against training fraction; below, each size's distance from the mean of the sizes"
    chart = chart_of(traces, {"xaxis": shown.fraction, "yaxis": shown.normalised}, words)
    chart["layout"]["xaxis"]["anchor"] = "y2"
    chart["layout"]["yaxis"]["domain"] = [0.38, 1.0]
    chart["layout"]["yaxis2"] = {
        "domain": [0.0, 0.29],
        "range": [100.0 * low, 100.0 * high],
        "title": {"text": "from mean (%)"},
        "zeroline": True,
        "nticks": 5,
    }
    return chart


def _spread(p: Panels, shown: View) -> Chart:
    c = p.collapse
    curves = spread_curves(c, shown.repeated)
    axes = {"xaxis": shown.fraction, "yaxis": shown.spread}
    hover = "%{y:.3~%}"
    if not shown.repeated:
        points = np.array([c.at(c.relative_spread, x) for x in TOLERANCE_AT])
        traces = [
            curve_of("spread of the sizes", c.fraction, curves[0], "spread", hover=hover, width=2),
            curve_of(f"tolerance {c.tolerance:.0%}", c.fraction, curves[1], "muted", hover=hover, dash="dash"),
            points_of("judged here", np.array(TOLERANCE_AT), points, "ink", hover=hover),
        ]
        chart = chart_of(traces, axes, spread_words(c))
    else:
        delta, sigma, delta_band, sigma_band = curves
        traces = [*band_of(c.fraction, sigma_band, "noise"), *band_of(c.fraction, delta_band, "deviation")]
        traces += [
            curve_of("deviation Δ", c.fraction, delta, "deviation", hover=hover, width=2),
            curve_of("noise floor σ", c.fraction, sigma, "noise", hover=hover, width=2),
            curve_of("own-normalised σ", c.fraction, own_noise(c), "noise", hover=hover, width=1, dash="dash"),
        ]
        chart = chart_of(traces, axes, f"{crossing_words(c)}; bands are 90 % intervals")
        _mark_crossing(p, chart)
    chart["layout"]["yaxis"]["tickformat"] = ".3~%"
    chart["layout"]["hovermode"] = "x unified"
    chart["layout"]["xaxis"]["hoverformat"] = ".3f"
    return chart


def _mark_crossing(p: Panels, chart: Chart) -> None:
    c = p.collapse
    crossing = c.crossings[0]
    if crossing.corrected is None or crossing.corrected <= c.fraction[0]:
        return
    x = crossing.corrected
    whole = {"yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    shapes = [{"type": "line", "x0": x, "x1": x, "line": {"width": 1, "dash": "dot"}, **whole}]
    if crossing.interval is not None:
        low, high = crossing.interval
        shapes.append({"type": "rect", "x0": low, "x1": high, "line": {"width": 0}, **whole})
    chart["layout"]["shapes"] = shapes


def _ends(p: Panels, shown: View) -> Chart:
    c, ends = p.collapse, p.ends
    traces: list[tuple[dict[str, Any], str]] = []
    if ends.x_fit.size:
        # Where the floor's interval reaches above the fit, its band goes down without end.
        band = np.stack([np.nan_to_num(ends.band[0], nan=shown.end_y.low * 1e-3), ends.band[1]])
        traces += band_of(ends.x_fit, band, "muted")
        traces.append(curve_of("fit", ends.x_fit, ends.y_fit, "ink", hover="fit %{y:.5g}", width=1.5))
    hover = f"{safe(shown.end_x.label)} %{{x:.4s}}<br>{safe(shown.end_y.label)} %{{y:.5g}}"
    rows = np.repeat(c.sizes, c.counts)
    for size, x, y in zip(c.sizes, ends.x, ends.y, strict=True):
        mine = rows == size
        role = f"size{shown.sizes.index(float(size))}"
        label = f"size {human(float(size))}"
        names = [safe(run.config.name) for run in c.sampled.runs]
        runs, _ = points_of("", ends.x_runs[mine], ends.y_runs[mine], role, hover=f"%{{text}}<br>{hover}", size=5)
        runs |= {"text": [n for n, m in zip(names, mine, strict=True) if m], "showlegend": False, "opacity": 0.7}
        mean, _ = points_of("", np.array([x]), np.array([y]), role, hover=f"{label}, mean<br>{hover}", size=12)
        mean["marker"] |= {"symbol": "circle-open", "line": {"width": 2}}
        traces += [(runs, role), (mean | {"showlegend": False}, role)]
    words = "; ".join(floor_words(c).split("\n")).replace("(grey)", "(grey band)")
    return chart_of(traces, {"xaxis": shown.end_x, "yaxis": shown.end_y}, words)


def _line(line: Line, shown: View, hover: str) -> tuple[dict[str, Any], str]:
    size = human(line.size)
    label = safe(line.name) if line.name == f"size {size}" else f"{safe(line.name)} · size {size}"
    unfinished = " · unfinished" if line.kind == "unfinished" else ""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _array(line.x),
        "y": _array(line.y),
        # Names go through meta, never into the template: there, a percent sign and a brace would be instructions.
        "meta": [label + unfinished],
        "hovertemplate": "<b>%{meta[0]}</b><br>" + hover + "<extra></extra>",
        "line": {"width": 2 if line.kind == "mean" else 1, "dash": "dot" if line.kind == "unfinished" else "solid"},
        "opacity": 1.0 if line.kind == "mean" else 0.75,
        "showlegend": False,
    }, f"size{shown.sizes.index(line.size)}"


def curve_of(
    name: str, x: FloatArray, y: FloatArray, role: str, *, hover: str, width: float = 1.5, dash: str = "solid"
) -> tuple[dict[str, Any], str]:
    """A line of one role: (trace, role)."""
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": _array(x),
        "y": _array(y),
        "hovertemplate": hover,
        "line": {"width": width, "dash": dash},
    }
    return trace, role


def points_of(
    name: str, x: FloatArray, y: FloatArray, role: str, *, hover: str, size: float = 8
) -> tuple[dict[str, Any], str]:
    """Markers of one role; without a name they are not in the legend."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": _array(x),
        "y": _array(y),
        "hovertemplate": hover if name else hover + "<extra></extra>",
        "marker": {"size": size},
    }, role


def band_of(x: FloatArray, ends: FloatArray, role: str) -> list[tuple[dict[str, Any], str]]:
    """Two invisible edges (2, n) with the space between them filled."""
    known = np.isfinite(ends).all(axis=0)
    if not known.any():
        return []
    edge = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False, "line": {"width": 0}}
    low = edge | {"x": _array(x[known]), "y": _array(ends[0, known])}
    high = edge | {"x": _array(x[known]), "y": _array(ends[1, known]), "fill": "tonexty"}
    return [(low, role), (high, role)]


def chart_of(traces: list[tuple[dict[str, Any], str]], axes: dict[str, Axis], words: str) -> Chart:
    """Traces and axes as one chart; ``words`` say what is to be seen."""
    ranges = {key: _ranges(axis) for key, axis in axes.items() if axis.low > 0}
    legend = any(trace.get("showlegend", True) for trace, _ in traces)
    layout: dict[str, Any] = {
        "hovermode": "closest",
        "dragmode": "zoom",
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "margin": {"l": 62, "r": 14, "t": 54 if legend else 34, "b": 48},
    }
    for key, axis in axes.items():
        scale = "log" if axis.log else "linear"
        layout[key] = {
            "title": {"text": safe(axis.label)},
            "type": scale,
            "range": ranges[key][scale] if key in ranges else list(axis.range(False)),
            "exponentformat": "B" if any(w in axis.label for w in ("tokens", "samples", "steps", "param")) else "power",
            "nticks": (5 if key == "xaxis" else 4) if axis.log and axis.high > 5 * axis.low else 7,
        }
    return {
        "data": [trace for trace, _ in traces],
        "roles": [role for _, role in traces],
        "layout": layout,
        "ranges": ranges,
        "words": words.replace("\n", "; "),
    }


def _ranges(axis: Axis) -> dict[str, list[float]]:
    """The range on either scale, as plotly wants it: on a log axis, the logarithms."""
    is_fraction = axis.high == 1.0 and axis.low <= LAST and not axis.log
    margin = 0.0 if is_fraction else 0.04
    low, high = axis.range(False, margin)
    logs = [float(np.log10(v)) for v in axis.range(True, margin)]
    return {"linear": [0.0 if is_fraction else low, high], "log": logs}


def _array(values: FloatArray) -> dict[str, str]:
    """Single precision is more than a screen shows, in a quarter of the space of decimal text."""
    return {"dtype": "f4", "bdata": b64encode(np.asarray(values, dtype="<f4").tobytes()).decode()}
