"""A frontier in words: sentences and small tables, which the command line and the page both show."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from onecurve.fit import FloatArray
from onecurve.measure.verdict import Rows
from onecurve.run import human
from onecurve.scores.frontier import Frontier, PowerFit
from onecurve.scores.suites import ACCURACY
from onecurve.scores.table import Scores

PRINTED: Mapping[tuple[str, str], tuple[float, float]] = MappingProxyType(
    {("Celerity", "C"): (2.154e38, 0.097), ("Celerity", "D"): (1.188e20, 0.189), ("Celerity", "N"): (5.081e17, 0.189)}
)
"""Laws as published: accuracy = 100 - (K / x)^b in per cent, K and b by family and axis (arXiv 2509.25087)."""
CLAIMED: Mapping[tuple[str, str], float] = MappingProxyType({("Celerity", "BTLM-3B"): 0.25})
"""Compute of a family at a model's score, over the model's, as published (arXiv 2509.25087, section 4: 75 % less)."""
MOST = 40
"""Rows shown of a table; all of them are in the JSON."""
STEPS = (2.0, 10.0)
"""How much more compute than a family's largest is asked about."""


def summary(f: Frontier) -> list[str]:
    """What there is to say, in sentences."""
    s = f.scores
    on = [int(k) for k in f.along]
    names = [s.name[k] + (" (its teacher's compute not counted)" if s.uncounted[k] else "") for k in on[:MOST]]
    more = f" and {len(on) - MOST} others" if len(on) > MOST else ""
    lines = [f"On the frontier of {_score(s)} and compute: {', '.join(names)}{more}."]
    for fit in f.fits[: 3 * MOST]:
        if fit.against == "C":
            lines.append(f"{fit.family}: {_law(s, fit)}; exponent {_exponent(fit)}.{_printed_words(fit)}")
            lines += _buys(s, fit)
    return lines


def tables(f: Frontier) -> list[Rows]:
    """The models, the power laws, what each model is off them, and compute at equal score."""
    out = [_models(f)]
    if f.fits:
        out += [_laws(f), _residuals(f)]
    if f.ratios is not None and f.ratios.rows.size:
        out.append(_ratios(f))
    return [_shortened(r) for r in out]


def value_words(s: Scores, k: int) -> str:
    """One model's score with its standard error."""
    value, error = float(s.value[k]), float(s.stderr[k])
    if s.falling:
        return f"{value:.4f}" + ("" if np.isnan(error) else f" ± {error:.4f}")
    return f"{100 * value:.2f}" + ("" if np.isnan(error) else f" ± {100 * error:.2f}")


def axis_words(s: Scores) -> str:
    """What is on the axis of the score."""
    return s.score.replace("_", " ") + ("" if s.falling else " (%)")


def printed(fit: PowerFit, s: Scores, x: FloatArray) -> FloatArray | None:
    """The published law of this family and axis at x, as an error, where there is one for this score."""
    told = PRINTED.get((fit.family, fit.against))
    if told is None or s.score != ACCURACY:
        return None
    scale, exponent = told
    return (scale / x) ** exponent / 100.0


def _shortened(rows: Rows) -> Rows:
    """The first rows, without a column of what was published where nothing was."""
    title = rows.title + (f" (the first {MOST} of {len(rows.rows)})" if len(rows.rows) > MOST else "")
    kept = [k for k, name in enumerate(rows.header) if "published" not in name or any(r[k] != "-" for r in rows.rows)]
    cut = tuple(tuple(row[k] for k in kept) for row in rows.rows[:MOST])
    return Rows(title, tuple(rows.header[k] for k in kept), cut)


def _score(s: Scores) -> str:
    return {"accuracy": "mean accuracy on seven tasks"}.get(s.score, s.score.replace("_", " "))


def _by_compute(s: Scores, rows: np.ndarray) -> list[int]:
    return [int(k) for k in rows[np.argsort(s.compute[rows], kind="stable")]]


def _models(f: Frontier) -> Rows:
    s = f.scores
    # The frontier first where not all can be shown.
    order = [k for on in (True, False) for k in _by_compute(s, np.flatnonzero(f.on == on))]
    if len(s) <= MOST:
        order = _by_compute(s, np.arange(len(s)))
    rows = [
        (
            s.name[k],
            s.family[k],
            _human(s.n_params[k]),
            _human(s.tokens[k]),
            f"{s.compute[k]:.3g}" + (" +" if s.uncounted[k] else ""),
            value_words(s, k),
            "yes" if f.on[k] else "",
        )
        for k in order
    ]
    header = ("model", "family", "N", "D", "FLOPs", axis_words(s), "on the frontier")
    return Rows("Models", header, tuple(rows))


def _laws(f: Frontier) -> Rows:
    s = f.scores
    rows: list[tuple[str, ...]] = []
    for fit in f.fits:
        told = PRINTED.get((fit.family, fit.against)) if s.score == ACCURACY else None
        rows.append(
            (
                f"{fit.family}, {fit.against}",
                str(fit.x.size),
                f"{_scale(s, fit):.3e}",
                f"{fit.exponent:.4f}",
                f"{fit.interval[0]:.4f} to {fit.interval[1]:.4f}",
                ", ".join(f"{b:.3f}" for b in fit.without_smallest[1:4]) or "-",
                "-" if told is None else f"{told[1]:g}, {told[0]:.4g}",
            )
        )
    header = (
        "error = (K / x)^b",
        "sizes",
        "K",
        "b",
        "90 % interval",
        "without the smallest 1, 2, ...",
        "published b, K",
    )
    return Rows("Power laws of the error", header, tuple(rows))


def _residuals(f: Frontier) -> Rows:
    s = f.scores
    unit = "" if s.falling else ", points"
    factor = 1.0 if s.falling else 100.0
    rows: list[tuple[str, ...]] = []
    for fit in f.fits:
        theirs = printed(fit, s, fit.x)
        for i, x in enumerate(fit.x):
            off = "-" if theirs is None else f"{factor * (fit.error[i] - theirs[i]):+.2f}"
            rows.append(
                (
                    f"{fit.family}, {fit.against} = {x:.3g}",
                    f"{factor * fit.error[i]:.{4 if s.falling else 2}f}",
                    f"{factor * fit.residual[i]:+.{4 if s.falling else 2}f}",
                    off,
                )
            )
    header = ("", "error" + (" (%)" if not s.falling else ""), f"off the fit{unit}", f"off the published law{unit}")
    return Rows("What each size is off the laws", header, tuple(rows))


def _ratios(f: Frontier) -> Rows:
    s, r = f.scores, f.ratios
    assert r is not None
    rows: list[tuple[str, ...]] = []
    claimed = CLAIMED if s.score == ACCURACY else {}
    for i in np.argsort(s.compute[r.rows], kind="stable"):
        k, near = int(r.rows[i]), int(r.nearest[i])
        between, fitted, low, high = (float(v[i]) for v in (r.between, r.fitted, r.low, r.high))
        gap = s.error[near] - s.error[k]
        size = f"{abs(gap):.4f}" if s.falling else f"{100 * abs(gap):.2f} points"
        what = ("higher" if gap > 0 else "lower") if s.falling else ("less" if gap > 0 else "more")
        rows.append(
            (
                s.name[k],
                value_words(s, k),
                _ratio(between),
                _ratio(fitted),
                "-" if np.isnan(low) else f"{_ratio(low)} to {_ratio(high)}",
                f"{told:g}" if (told := claimed.get((r.family, s.name[k]))) else "-",
                f"{s.name[near]}: {size} {what} at {_saved(s.compute[near] / s.compute[k])}",
            )
        )
    ratios = ("between sizes", "on its law", "90 % interval", "published")
    header = ("model", axis_words(s), *ratios, f"nearest {r.family}")
    title = f"Compute of {r.family} at the score of each other model, over that model's"
    return Rows(title, header, tuple(rows))


def _saved(ratio: float) -> str:
    return f"{1 - ratio:.0%} fewer FLOPs" if ratio <= 1 else f"{ratio:.2f} times the FLOPs"


def _ratio(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3g}"


def _human(value: float) -> str:
    return "-" if np.isnan(value) else human(float(value))


def _scale(s: Scores, fit: PowerFit) -> float:
    """K for an error in per cent, where the score is an accuracy."""
    with np.errstate(over="ignore", divide="ignore"):
        return fit.scale if s.falling else float(np.exp(np.log(fit.scale) + np.divide(np.log(100.0), fit.exponent)))


def _law(s: Scores, fit: PowerFit) -> str:
    law = f"({_scale(s, fit):.3g} / {fit.against})^{fit.exponent:.3g}"
    return f"{s.score.replace('_', ' ')} = {law}" if s.falling else f"{_score(s)} = 100 - {law} per cent"


def _exponent(fit: PowerFit) -> str:
    half = (fit.interval[1] - fit.interval[0]) / 2
    return f"{fit.exponent:.3f} ± {half:.3f} (90 %, {fit.x.size} sizes)"


def _printed_words(fit: PowerFit) -> str:
    told = PRINTED.get((fit.family, fit.against))
    if told is None:
        return ""
    inside = fit.interval[0] <= told[1] <= fit.interval[1]
    largest = (
        f"; the {fit.x.size - fit.without_smallest.size + 1} largest sizes alone give {fit.without_smallest[-1]:.3f}"
    )
    return f" Published: {told[1]:g}, {'inside' if inside else 'outside'} that interval{largest}."


def _buys(s: Scores, fit: PowerFit) -> list[str]:
    largest = float(fit.x.max())
    parts: list[str] = []
    for step in STEPS:
        at = np.array([step * largest])
        low, high = fit.band(at)
        ends = [float(v[0]) for v in (fit.predict(at), low, high)]
        if s.falling:
            parts.append(f"{step:g} times the compute: {ends[0]:.4f} ({ends[1]:.4f} to {ends[2]:.4f})")
        else:
            value, best, worst = (100.0 * (1.0 - e) for e in ends)
            parts.append(f"{step:g} times the compute: {value:.1f} ({worst:.1f} to {best:.1f})")
    return [f"{fit.family}, beyond its largest, if the law goes on: {'; '.join(parts)}."]
