"""What the four panels show, as plain arrays: one source for the figure and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onecurve import errors
from onecurve.errors import OnecurveError
from onecurve.measure.moments import moments, noise_floor
from onecurve.measure.result import DEPARTURES, LAST, Collapse
from onecurve.run import FloatArray, Run

MOST_RUNS = 120
"""Runs drawn of one ladder; beyond, the mean of every size and an even subset of its runs."""
MOST_POINTS = 1500
"""Points drawn of one curve."""
BUDGET = 60_000
"""Points drawn of all raw curves together, but at least `FEWEST_POINTS` of each."""
FEWEST_POINTS = 300
SETTLED = 0.1
"""Curves are compared from here on; the ranges of the axes are those of what is compared."""


@dataclass(frozen=True)
class Line:
    """One curve of one run, or the mean of a size."""

    name: str
    size: float
    x: FloatArray
    y: FloatArray
    kind: Literal["run", "mean", "unfinished"] = "run"


@dataclass(frozen=True)
class Axis:
    """A quantity, its scale, and the range that all collapses share."""

    label: str
    low: float
    high: float
    log: bool = False

    def range(self, log: bool, margin: float = 0.04) -> tuple[float, float]:
        """The range with a margin on both sides, in data units."""
        if log:
            step = (self.high / self.low) ** margin
            return self.low / step, self.high * step
        step = (self.high - self.low) * margin
        return self.low - step, self.high + step


@dataclass(frozen=True)
class Ends:
    """Final losses: of the runs (n,), of the sizes (S,), and of the floor fit where there is one."""

    x_runs: FloatArray
    y_runs: FloatArray
    x: FloatArray
    y: FloatArray
    x_fit: FloatArray
    y_fit: FloatArray
    band: FloatArray
    """(2, F) the fit above either end of the floor's interval; nan where it lies below."""


@dataclass(frozen=True)
class Panels:
    """One collapse, ready to draw."""

    name: str
    collapse: Collapse
    raw: tuple[Line, ...]
    normalised: tuple[Line, ...]
    residual: FloatArray
    """(S, G) each size's mean curve over the mean curve, less 1."""
    ends: Ends
    thinned: bool
    """Whether only some of the runs are drawn."""


@dataclass(frozen=True)
class View:
    """Several collapses and the axes that they share."""

    panels: tuple[Panels, ...]
    sizes: tuple[float, ...]
    """Of all collapses together: a size has the same colour everywhere."""
    repeated: bool
    """Whether every collapse has a noise floor; if not, the relative spread is shown in place of the deviation."""
    fitted: bool
    """Whether every collapse has a fit of its irreducible loss."""
    raw_x: Axis
    raw_y: Axis
    fraction: Axis
    normalised: Axis
    residual: Axis
    spread: Axis
    end_x: Axis
    end_y: Axis


def optional(module: str) -> Any:
    """A library of the report, or an error that says how to get it."""
    return errors.optional(module, "figures and pages", "report")


def view(collapses: Sequence[Collapse]) -> View:
    """Everything that is drawn of one collapse, or of several side by side. Raises OnecurveError for none."""
    if not collapses:
        raise OnecurveError("nothing to draw: give at least one collapse")
    repeated = all((c.counts > 1).any() for c in collapses)
    fitted = all(c.floor.fit is not None for c in collapses)
    many = len(collapses) > 1
    panels = tuple(
        _panels(c, c.name or (f"family {i}" if many else ""), fitted) for i, c in enumerate(collapses, start=1)
    )
    first = min(float(c.fraction[0]) for c in collapses)
    raw = [line for p in panels for line in p.raw]
    finished = [line for line in raw if line.kind != "unfinished"]
    tops = [p.collapse.mean_curve[p.collapse.fraction >= min(SETTLED / 2, LAST)] for p in panels]
    bottom = min(float(p.collapse.normalised[:, p.collapse.fraction >= SETTLED].min()) for p in panels)
    judged = [(p.collapse.fraction >= SETTLED) & (p.collapse.fraction <= LAST) for p in panels]
    away = _span([p.residual[:, j] for p, j in zip(panels, judged, strict=True)], False, (-0.01, 0.01))
    reach = max(-away[0], away[1], 1e-6)
    spread = [s[..., p.collapse.fraction <= LAST] for p in panels for s in spread_curves(p.collapse, repeated)]
    if repeated:
        spread += [own_noise(p.collapse)[p.collapse.fraction <= DEPARTURES[1]] for p in panels]
    return View(
        panels=panels,
        sizes=tuple(sorted({float(s) for c in collapses for s in c.sizes} | {line.size for line in raw})),
        repeated=repeated,
        fitted=fitted,
        raw_x=_axis(_words(c.sampled.runs[0].x_name for c in collapses), [line.x for line in finished]),
        raw_y=_axis(_words(_loss_words(c) for c in collapses), [line.y for line in finished]),
        fraction=Axis("training fraction x", first, 1.0),
        normalised=_axis("normalised loss ℓ(x)", [np.array([bottom, 1.0]), *tops]),
        residual=Axis("from mean", -reach, reach),
        spread=_spread_axis(spread, repeated),
        end_x=_axis(_words(_end_words(c, fitted) for c in collapses), [p.ends.x_runs for p in panels]),
        end_y=_axis(
            _words(_loss_words(c, "final ") for c in collapses) + (" − fitted floor" if fitted else ""),
            [a for p in panels for a in (p.ends.y_runs, p.ends.y)],
        ),
    )


def spread_curves(c: Collapse, repeated: bool) -> list[FloatArray]:
    """The arrays of the third panel, without what cannot stand on a log axis."""
    if repeated:
        curves = [c.corrected_deviation, c.corrected_noise_floor, c.deviation_interval, c.noise_interval]
    else:
        curves = [c.relative_spread, np.full(c.fraction.size, c.tolerance)]
    return [positive(curve) for curve in curves]


def own_noise(c: Collapse) -> FloatArray:
    """(G,) seed noise of the normalised curves, with sample variances like the corrected sigma beside it."""
    return positive(noise_floor(moments(c.normalised, c.counts), ddof=1))


def crossing_words(c: Collapse) -> str:
    """Where the deviation falls below the noise floor, in one or two short lines."""
    crossing = c.crossings[0]
    if crossing.corrected is None:
        return f"Δ is not below σ by x = {LAST:g}"
    if crossing.corrected <= c.fraction[0]:
        return "Δ is below σ throughout"
    text = f"Δ stays below σ from x = {crossing.corrected:.2f}"
    if crossing.interval is not None:
        text += f"\n90 % interval {crossing.interval[0]:.2f} to {crossing.interval[1]:.2f}"
    return text


def spread_words(c: Collapse) -> str:
    """The same without repeated seeds."""
    lone = "one seed a size: no noise floor"
    where = c.collapsed_from
    if where is None:
        text = f"not within {c.tolerance:.0%} by x = {LAST:g}"
    elif where <= c.fraction[0]:
        text = f"within {c.tolerance:.0%} throughout"
    else:
        text = f"within {c.tolerance:.0%} from x = {where:.2f}"
    return text if (c.counts > 1).any() else f"{lone}\n{text}"


def floor_words(c: Collapse) -> str:
    """The fitted floor with its interval, and what was subtracted if that was another value."""
    fit = c.floor.fit
    if fit is None:
        return f"floor {c.floor.value:.5g} ({c.floor.how})"
    low, high = fit.interval
    text = f"floor {fit.floor:.5g}\ninterval {low:.5g} to {high:.5g} (grey)\nexponent {fit.exponent:.3f}"
    return text if c.floor.how == "fit" else f"{text}\nnot pinned: {c.floor.value:.5g} was subtracted"


def positive(values: FloatArray) -> FloatArray:
    """The same with nan where a value is not positive."""
    with np.errstate(invalid="ignore"):
        return np.where(values > 0, values, np.nan)


def reduced(x: FloatArray, y: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """At most ``most`` points that keep the lowest and highest value of every stretch of log x.

    Points at x <= 0 cannot stand on a log axis and are left out; a stretch of non-finite losses stays a gap.
    """
    keep = np.flatnonzero(np.isfinite(y) & (x > 0))
    chosen = np.arange(keep.size)
    if keep.size > most:
        down = optional("tsdownsample").MinMaxDownsampler()
        places = np.ascontiguousarray(np.log(x[keep]))
        chosen = np.asarray(down.downsample(places, np.ascontiguousarray(y[keep]), n_out=most // 2 * 2), dtype=np.intp)
        # The first and the last point belong to every curve, whatever its extremes.
        chosen = np.unique(np.concatenate([[0], chosen, [keep.size - 1]]))
    rows = keep[chosen]
    gaps = np.flatnonzero((np.diff(chosen) == 1) & (np.diff(rows) > 1)) + 1
    return np.insert(x[rows], gaps, x[rows[gaps] - 1]), np.insert(y[rows], gaps, np.nan)


def _panels(c: Collapse, name: str, fitted: bool) -> Panels:
    s = c.sampled
    keep = _subset(c)
    thinned = len(keep) < len(s.runs)
    rows = np.repeat(c.sizes, c.counts)
    most = max(FEWEST_POINTS, min(MOST_POINTS, BUDGET // max(1, len(keep) + len(s.unfinished))))
    raw = [_raw(s.runs[i], s.loss_name, "run", most) for i in keep]
    raw += [_raw(run, s.loss_name, "unfinished", most) for run in s.unfinished[:MOST_RUNS]]
    normalised = [Line(s.runs[i].config.name, float(rows[i]), c.fraction, np.asarray(c.normalised[i])) for i in keep]
    if thinned:
        means = moments(c.loss, c.counts).mean
        starts = np.cumsum(c.counts) - c.counts
        for i, (size, count) in enumerate(zip(c.sizes, c.counts, strict=True)):
            label = f"mean of {count} runs"
            ends = [s.runs[k] for k in range(starts[i], starts[i] + count)]
            horizon = float(np.median([r.config.horizon or r.curves[s.loss_name].x[-1] for r in ends]))
            raw.append(Line(label, float(size), c.fraction * horizon, means[i], "mean"))
            normalised.append(Line(label, float(size), c.fraction, c.size_curves[i], "mean"))
    residual = c.size_curves / c.mean_curve - 1.0
    return Panels(name, c, tuple(raw), tuple(normalised), residual, _ends(c, fitted), thinned)


def evenly(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` places, evenly spaced, with the first and the last.

    Examples:
        >>> evenly(9, 5), evenly(3, 5)
        ([0, 2, 4, 6, 8], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / max(most - 1, 1)) for i in range(most)]


def _subset(c: Collapse) -> list[int]:
    """Rows to draw: all, or evenly spaced ones of each size."""
    if len(c.sampled.runs) <= MOST_RUNS:
        return list(range(len(c.sampled.runs)))
    each = max(1, MOST_RUNS // len(c.sizes))
    starts = np.cumsum(c.counts) - c.counts
    return [int(start) + i for start, count in zip(starts, c.counts, strict=True) for i in evenly(int(count), each)]


def _raw(run: Run, loss_name: str, kind: Literal["run", "unfinished"], most: int) -> Line:
    curve = run.curves[loss_name]
    x, y = reduced(curve.x, curve.loss, most)
    return Line(run.config.name, run.config.n_params, x, y, kind)


def _ends(c: Collapse, fitted: bool) -> Ends:
    fit = c.floor.fit
    ends, means = c.loss[:, -1], c.end_loss
    if not fitted or fit is None:
        none = np.empty(0)
        return Ends(np.repeat(c.sizes, c.counts), ends, c.sizes, means, none, none, np.empty((2, 0)))
    low, high = float(fit.compute.min()), float(fit.compute.max())
    x: FloatArray = np.geomspace(low / 1.3, high * 1.3, 100)
    predicted = fit.predict(x)
    return Ends(
        x_runs=np.repeat(fit.compute, c.counts),
        y_runs=positive(ends - fit.floor),
        x=fit.compute,
        y=positive(means - fit.floor),
        x_fit=x,
        y_fit=predicted - fit.floor,
        band=positive(np.stack([predicted - fit.interval[1], predicted - fit.interval[0]])),
    )


def _loss_words(c: Collapse, final: str = "") -> str:
    s = c.sampled
    usual = s.loss_name.lower() in ("loss", "test_loss", "val_loss", "train_loss", "eval_loss")
    return f"{final}{s.kind} loss" + ("" if usual else f" ({s.loss_name})")


def _end_words(c: Collapse, fitted: bool) -> str:
    if not fitted:
        return "size N (parameters)"
    runs = c.sampled.runs
    if all(run.config.compute is not None for run in runs):
        return "training compute (as recorded)"
    name = runs[0].x_name
    recorded = "compute" in name.lower() or "flop" in name.lower()
    return f"training compute ({name})" if recorded else "training compute 6ND (FLOPs)"


def _words(each: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(each))


def _axis(label: str, values: Sequence[FloatArray]) -> Axis:
    """A log axis where all values are positive, else a linear one."""
    log = all((v[np.isfinite(v)] > 0).all() for v in values)
    return Axis(label, *_span(values, log, (1.0, 10.0)), log)


def _span(values: Sequence[FloatArray], log: bool, empty: tuple[float, float]) -> tuple[float, float]:
    finite = [v[np.isfinite(v)] for v in values]
    if not any(v.size for v in finite):
        return empty
    low = min(float(v.min()) for v in finite if v.size)
    high = max(float(v.max()) for v in finite if v.size)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    pad = 0.1 * abs(low) or 1.0
    return (low / 1.1, high * 1.1) if log else (low - pad, high + pad)


def _spread_axis(curves: Sequence[FloatArray], repeated: bool) -> Axis:
    low, high = _span(curves, True, (1e-3, 1.0))
    # Curves that agree to rounding would stretch the axis over many empty decades; a flat one would fill it alone.
    low = min(max(low, high * 1e-4), high / 30.0)
    return Axis("relative standard deviation" if repeated else "spread / curve height", low, high, True)
