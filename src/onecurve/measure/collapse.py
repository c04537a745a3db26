"""Do the loss curves of all sizes fall onto one curve, how tightly against seed noise, and if not, who leaves where?

Every run is divided by its own final reducible loss, ``l(x) = [L(x) - L_inf] / [L(1) - L_inf]`` (arXiv 2507.02119,
eq. 1), and the spread of these curves over sizes is held against seed noise and against the curve's own height.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onecurve.controls import Finding, differences
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray, IntArray
from onecurve.ladder import Ladder, Sampled
from onecurve.measure.floor import MIN_SIZES, FloorFit, fit_floor
from onecurve.measure.moments import (
    Moments,
    between,
    centre,
    deviation,
    moments,
    noise_floor,
    noise_floor_by_size,
    relative_spread,
    within,
)
from onecurve.measure.uncertainty import Experiments, SizeTest, experiments, noise_interval, size_test, window_ratio
from onecurve.run import LARGEST, LossKind, Run, human

TOLERANCE = 0.10
"""Largest spread over sizes, relative to the curve's height, that counts as collapsed in practice."""
TOLERANCE_AT = (0.25, 0.5)
SPREAD_AT = (0.25, 0.5, 0.75)
WINDOWS = ((0.1, 0.5), (0.5, 0.9), (0.9, 0.98))
ALPHA = 0.05 / len(WINDOWS)
"""Level of the test of each window, so that all together cry difference at a perfect family in at most 5 % of cases."""
LAST = 0.98
"""Nothing is judged beyond: all curves are 1 at x = 1, by construction."""
DEPARTURES = (0.1, 0.9)
"""Where a size can leave the others: before, curves are still settling; after, their height is too small a measure."""
LASTING = 0.02
"""A departure lasts at least this share of training."""
SUPERCOLLAPSE = 2.5
"""The factor below sigma that arXiv 2507.02119 reports."""


@dataclass(frozen=True)
class Floor:
    """The irreducible loss that was subtracted, and where it came from."""

    value: float
    how: Literal["fit", "zero", "given"]
    note: str
    fit: FloorFit | None = None


@dataclass(frozen=True)
class Window:
    """Delta against sigma over a stretch of training; a bare minimum would only say how near to x = 1 one looked."""

    low: float
    high: float
    ratio: float
    """Root mean square of Delta over that of sigma, with population variances as in the literature."""
    corrected: float
    """The same with sample variances (ddof 1)."""
    interval: tuple[float, float]
    """90 % interval of ``corrected``."""
    test: SizeTest | None
    """Whether the sizes' mean curves differ, against own-normalised seed noise."""

    @property
    def finding(self) -> str:
        """``sizes differ``, ``no difference seen`` or ``too few seeds``."""
        if self.test is None:
            return "too few seeds"
        return "sizes differ" if self.test.p_value < ALPHA else "no difference seen"


@dataclass(frozen=True)
class Crossing:
    """The fraction beyond which Delta stays below ``sigma / factor``; None where it never does."""

    factor: float
    fraction: float | None
    corrected: float | None
    interval: tuple[float, float] | None
    """90 % interval of ``corrected``, where at least 95 % of the simulated experiments cross."""


@dataclass(frozen=True)
class Departure:
    """Where the mean curve of one size leaves the mean of the other sizes, read back from the end of training."""

    size: float
    fraction: float | None
    """The largest fraction at which it is out; None where it never is."""
    offset: FloatArray
    """(G,) its height above the others' mean curve, relative to the height of that curve."""
    direction: Literal["above", "below", ""]


@dataclass(frozen=True)
class Sensitivity:
    """The same measurement after another choice."""

    choice: str
    spread: tuple[float, ...]
    """Relative spread at .25 and .5."""
    ratio: float
    """Delta / sigma on the middle window, corrected; nan without repeated seeds."""
    practical: bool


@dataclass(frozen=True)
class Collapse:
    """The result of `collapse`: arrays on one grid of fractions, and what they mean.

    ``print`` shows the verdict; ``to_dict`` gives everything as plain values; `onecurve.report.draw` draws it.
    """

    name: str
    fraction: FloatArray
    normalised: FloatArray
    """(n, G) every run divided by its own final reducible loss."""
    loss: FloatArray
    """(n, G) the losses on the grid."""
    sampled: Sampled
    mean_curve: FloatArray
    size_curves: FloatArray
    """(S, G) mean over seeds."""
    deviation: FloatArray
    noise_floor: FloatArray
    noise_floor_by_size: FloatArray
    """(S, G); nan for a size with one run."""
    noise_floor_normalized: FloatArray
    between_sizes: FloatArray
    relative_spread: FloatArray
    ratio: FloatArray
    corrected_deviation: FloatArray
    corrected_noise_floor: FloatArray
    deviation_interval: FloatArray
    """(2, G) 90 % interval of the corrected Delta; nan without repeated seeds."""
    noise_interval: FloatArray
    """(2, G) 90 % interval of the corrected sigma."""
    ratio_interval: FloatArray
    windows: tuple[Window, ...]
    crossings: tuple[Crossing, ...]
    departures: tuple[Departure, ...]
    floor: Floor
    sensitivity: tuple[Sensitivity, ...]
    findings: tuple[Finding, ...]
    tolerance: float
    dropped: dict[str, int]
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> FloatArray:
        """(S,) parameters."""
        return self.sampled.sizes

    @property
    def counts(self) -> IntArray:
        """(S,) runs of each size."""
        return self.sampled.counts

    def at(self, values: FloatArray, x: float) -> float:
        """Any of the curves (G,) at one fraction."""
        return float(np.interp(x, self.fraction, values))

    @property
    def practical(self) -> bool:
        """Whether the sizes agree within the tolerance at x = .25 and .5."""
        return _practical(self.fraction, self.relative_spread, self.tolerance)

    @property
    def collapsed_from(self) -> float | None:
        """The fraction from which the relative spread stays within the tolerance, up to .98."""
        return _last_above(self.fraction, self.relative_spread - self.tolerance)

    @property
    def leaves_first(self) -> Departure | None:
        """The size that leaves the others' mean first, read back from the end."""
        left = [d for d in self.departures if d.fraction is not None]
        # Two sizes are each other's mean: neither leaves before the other.
        if not left or len(self.departures) < 3:
            return None
        middle = (self.fraction >= DEPARTURES[0]) & (self.fraction <= DEPARTURES[1])
        return max(left, key=lambda d: (d.fraction or 0.0, float(np.abs(d.offset[middle]).max())))

    @property
    def end_loss(self) -> FloatArray:
        """(S,) mean final loss of each size."""
        return moments(self.loss[:, -1:], self.counts).mean[:, 0]

    def __str__(self) -> str:
        from onecurve.measure.verdict import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        from onecurve.measure.verdict import verdict

        sizes = [_size_key(s) for s in self.sizes]
        with np.errstate(divide="ignore", invalid="ignore"):
            corrected_ratio = self.corrected_deviation / self.corrected_noise_floor
        return {
            "name": self.name,
            "fraction": self.fraction,
            "deviation": self.deviation,
            "relative_spread": self.relative_spread,
            "noise_floor": self.noise_floor,
            "noise_floor_by_size": dict(zip(sizes, self.noise_floor_by_size, strict=True)),
            "noise_floor_normalized": self.noise_floor_normalized,
            "between_sizes": self.between_sizes,
            "mean_curve": self.mean_curve,
            "ratio": self.ratio,
            "corrected": {
                "ddof": 1,
                "level": 0.9,
                "deviation": self.corrected_deviation,
                "noise_floor": self.corrected_noise_floor,
                "ratio": corrected_ratio,
                "deviation_interval": self.deviation_interval,
                "noise_floor_interval": self.noise_interval,
                "ratio_interval": self.ratio_interval,
            },
            "windows": [
                {
                    "from": w.low,
                    "to": w.high,
                    "ratio": w.ratio,
                    "corrected_ratio": w.corrected,
                    "interval": w.interval,
                    "finding": w.finding,
                    "p_value": None if w.test is None else w.test.p_value,
                    "smallest_difference_seen": None if w.test is None else w.test.smallest_seen,
                }
                for w in self.windows
            ],
            "crossings": [
                {"factor": c.factor, "fraction": c.fraction, "corrected": c.corrected, "interval": c.interval}
                for c in self.crossings
            ],
            "departures": [
                {"size": d.size, "fraction": d.fraction, "direction": d.direction, "offset": d.offset}
                for d in self.departures
            ],
            "floor": _floor_dict(self.floor),
            "sensitivity": [
                {"choice": s.choice, "relative_spread": s.spread, "ratio": s.ratio, "practical": s.practical}
                for s in self.sensitivity
            ],
            "verdict": verdict(self).to_dict(),
            "sizes": [
                {"n_params": float(n), "runs": int(k), "final_loss": float(e)}
                for n, k, e in zip(self.sizes, self.counts, self.end_loss, strict=True)
            ],
            "loss": {
                "name": self.sampled.loss_name,
                "kind": self.sampled.kind,
                "smoothing_window": self.sampled.window,
            },
            "tolerance": self.tolerance,
            "dropped": self.dropped,
            "warnings": list(self.warnings),
            "runs": {
                name: {"n_params": run.config.n_params, "normalised": row}
                for name, run, row in zip(_run_keys(self.sampled.runs), self.sampled.runs, self.normalised, strict=True)
            },
        }


def collapse(
    ladder: Ladder,
    *,
    floor: Literal["auto", "fit", "zero"] | float = "auto",
    grid: FloatArray | None = None,
    loss: str | None = None,
    kind: LossKind | None = None,
    window: float | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Collapse:
    """Measure how well the curves of a ladder fall onto one.

    ``floor`` is the irreducible loss: a number, ``zero``, ``fit`` (to the ends of the ladder), or ``auto``: the fit
    if the ladder pins it, else zero. ``grid`` (rising fractions that end at 1), ``loss``, ``kind`` and ``window`` are
    those of `Ladder.sample`. ``tolerance`` is the largest relative spread at x = .25 and .5 that counts as collapsed
    in practice. ``seed`` feeds the intervals' random weights; the same input gives the same result.

    Raises OnecurveError for a single size, and for a floor at or above a loss.

    Examples:
        >>> x = [2.0, 4.0, 6.0, 8.0, 10.0]
        >>> runs = [Run.of(f"{n}", n_params=n, x=x, loss=[n * v for v in (2, 1.5, 1.2, 1.1, 1)], horizon=10.0)
        ...         for n in (1.0, 2.0, 3.0)]
        >>> bool(collapse(Ladder(runs), floor="zero").deviation.max() < 1e-15)
        True
    """
    if not tolerance > 0:
        raise OnecurveError(
            f"the tolerance (--tolerance) is a spread relative to the curve's height, above 0; got {tolerance:g}"
        )
    s = ladder.sample(grid, loss, kind, window)
    if s.sizes.size < 2:
        other = f" (and {len(s.unfinished)} unfinished)" if s.unfinished else ""
        raise OnecurveError(
            f"all {len(s.runs)} finished runs{other} have size {human(s.sizes[0])}: a collapse compares sizes, so at "
            "least two are needed; add runs of another size, or check --size"
        )
    chosen = _choose_floor(s, floor)
    core = _measure(s, chosen.value)
    notes = list(s.warnings)
    if s.fraction[0] > TOLERANCE_AT[0]:
        notes.append(
            f"the curves begin at x = {s.fraction[0]:.2f}: what is said of earlier fractions is the value there"
        )
    if s.sizes.size == 2:
        notes.append("two sizes: every spread over sizes rests on a single difference")
    lone = [human(n) for n, k in zip(s.sizes, s.counts, strict=True) if k == 1]
    if len(lone) == s.sizes.size:
        notes.append("one seed a size: there is no noise floor, so nothing is said about seed noise")
    elif lone:
        notes.append(f"one seed only at size {', '.join(lone)}: the noise floor is that of the other sizes")

    exp = experiments(core.normalised, core.reducible, core.ell, core.raw, seed)
    delta, sigma = deviation(core.ell, 1), noise_floor(core.raw, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio0, ratio1 = core.deviation / core.sigma, delta / sigma
    nothing = np.full((2, s.fraction.size), np.nan)
    after = _after_warmup(s)
    configs = [run.config for run in s.runs]
    return Collapse(
        name=ladder.name,
        fraction=s.fraction,
        normalised=core.normalised,
        loss=s.loss,
        sampled=s,
        mean_curve=centre(core.ell),
        size_curves=core.ell.mean,
        deviation=core.deviation,
        noise_floor=core.sigma,
        noise_floor_by_size=noise_floor_by_size(core.raw),
        noise_floor_normalized=noise_floor(core.ell),
        between_sizes=between(core.ell),
        relative_spread=core.spread,
        ratio=ratio0,
        corrected_deviation=delta,
        corrected_noise_floor=sigma,
        deviation_interval=nothing if exp is None else exp.interval(delta, exp.deviation),
        noise_interval=noise_interval(core.raw),
        ratio_interval=nothing if exp is None else exp.interval(ratio1, exp.ratio),
        windows=tuple(_windows(s, core, delta, sigma, exp, after)),
        crossings=tuple(_crossing(s.fraction, f, ratio0, ratio1, exp) for f in (1.0, SUPERCOLLAPSE)),
        departures=tuple(_departures(s, core.ell, after, tolerance)),
        floor=chosen,
        sensitivity=tuple(_sensitivity(ladder, s, chosen, core, tolerance, after)),
        findings=tuple(differences(configs, x_is_tokens=_is_tokens(s))),
        tolerance=tolerance,
        dropped=dict(s.dropped),
        warnings=tuple(notes),
    )


@dataclass(frozen=True)
class _Core:
    """What a floor determines, without intervals."""

    reducible: FloatArray
    normalised: FloatArray
    ell: Moments
    raw: Moments
    deviation: FloatArray
    sigma: FloatArray
    spread: FloatArray


def _measure(s: Sampled, floor: float) -> _Core:
    reducible = s.loss - floor
    if not (reducible > 1.0 / LARGEST).all():
        row, column = np.unravel_index(int(np.argmin(reducible)), reducible.shape)
        run = s.runs[row]
        raise OnecurveError(
            f"{run.source + ': ' if run.source else ''}run {run.config.name!r}: loss {s.loss[row, column]:g} at "
            f"x = {s.fraction[column]:.3g} is not above the floor {floor:g}; give a lower --floor (zero, or fit)"
        )
    normalised = reducible / reducible[:, -1:]
    ell, raw = moments(normalised, s.counts), moments(reducible, s.counts)
    return _Core(reducible, normalised, ell, raw, deviation(ell), noise_floor(raw), relative_spread(ell))


def _choose_floor(s: Sampled, floor: str | float) -> Floor:
    if not isinstance(floor, str):
        if not np.isfinite(floor):
            raise OnecurveError(f"floor is {floor}; accepted are auto, fit, zero or a finite number (a loss)")
        return Floor(float(floor), "given", "as given")
    if floor == "zero":
        return Floor(0.0, "zero", "as asked: plain division by the final loss")
    if floor not in ("auto", "fit"):
        raise OnecurveError(f"floor is {floor!r}; accepted are auto, fit, zero or a number (a loss)")
    with np.errstate(over="ignore"):
        compute, why_not = _compute(s)
    if compute is not None and not np.isfinite(compute).all():
        why_not = "the compute of a size is too large for a number; check --x and --size"
    if not (s.loss > 0).all():
        why_not = f"a loss is {s.loss.min():g}, and the fit is one of logarithms"
    elif compute is not None and (compute[1:] == compute[:-1]).all():
        why_not = f"all sizes have the same compute ({compute[0]:g})"
    if s.sizes.size < MIN_SIZES:
        why_not = f"{s.sizes.size} sizes, and a fit of it needs at least {MIN_SIZES}"
    if compute is None or why_not:
        if floor == "fit":
            raise OnecurveError(f"the irreducible loss cannot be fitted: {why_not}; use --floor zero or a value")
        return Floor(0.0, "zero", f"the irreducible loss was not fitted: {why_not}")
    ends = s.loss[:, -1]
    seeds = np.split(ends, np.cumsum(s.counts)[:-1])
    fit = fit_floor(compute, np.array([e.mean() for e in seeds]), seeds)
    lowest = float(s.loss.min())
    if floor == "auto" and fit.pinned and fit.floor >= lowest:
        return Floor(
            0.0, "zero", f"the fitted irreducible loss ({fit.floor:g}) is above a loss of the ladder ({lowest:g})", fit
        )
    if fit.pinned or floor == "fit":
        weak = "" if fit.pinned else "; the ladder does not pin it"
        return Floor(fit.floor, "fit", f"fitted to the ends of the ladder{weak}: {fit.reason}", fit)
    return Floor(0.0, "zero", f"the ladder does not pin the irreducible loss: {fit.reason}", fit)


def _compute(s: Sampled) -> tuple[FloatArray | None, str]:
    """(S,) training compute at the horizon of each size: recorded, 6 N D, or x itself where x is compute."""
    first = np.concatenate([[0], np.cumsum(s.counts)[:-1]])
    runs = [s.runs[i] for i in first]
    name = runs[0].x_name.lower()
    recorded = [run.config.compute for run in runs]
    if None not in recorded:
        return np.array(recorded, dtype=np.float64), ""
    horizon = np.array([run.config.horizon or next(iter(run.curves.values())).x[-1] for run in runs])
    if any(word in name for word in ("compute", "flop")):
        return horizon, ""
    if _is_tokens(s):
        return 6.0 * s.sizes * horizon, ""
    batch = [run.config.batch_tokens for run in runs]
    if None not in batch:
        return 6.0 * s.sizes * horizon * np.array(batch, dtype=np.float64), ""
    return None, f"training compute is not known where x is {runs[0].x_name!r} (name its column with --compute)"


def _is_tokens(s: Sampled) -> bool:
    name = s.runs[0].x_name.lower()
    return "token" in name or "sample" in name


def _after_warmup(s: Sampled) -> float:
    """The largest warmup share that is known: nothing is judged before."""
    return max((run.config.schedule.warmup for run in s.runs if run.config.schedule is not None), default=0.0)


def within_window(fraction: FloatArray, low: float, high: float) -> NDArray[np.bool_]:
    """(G,) the fractions in [low, high)."""
    return (fraction >= low - 1e-9) & (fraction < high - 1e-9)


def _windows(
    s: Sampled, core: _Core, delta: FloatArray, sigma: FloatArray, exp: Experiments | None, after: float
) -> list[Window]:
    out = []
    for low, high in WINDOWS:
        low = max(low, after, float(s.fraction[0]))
        inside = within_window(s.fraction, low, high)
        if low >= high or not inside.any():
            continue
        corrected = float(window_ratio(delta, sigma, inside))
        interval = (np.nan, np.nan)
        if exp is not None:
            a, b = exp.interval(corrected, exp.window_ratios(delta, sigma, inside))
            interval = (float(a), float(b))
        test = size_test(core.normalised[:, inside], s.counts, ALPHA)
        ratio = float(window_ratio(core.deviation, core.sigma, inside))
        out.append(Window(low, high, ratio, corrected, interval, test))
    return out


def _last_above(fraction: FloatArray, excess: FloatArray) -> float | None:
    """The fraction beyond which ``excess`` stays at or below zero up to `LAST`, between grid points linearly.

    The first fraction where it never exceeds zero; None where it still does at `LAST`.
    """
    judged = np.flatnonzero(fraction <= LAST + 1e-9)
    over = judged[excess[judged] > 0]
    if not over.size:
        return float(fraction[0])
    i = int(over[-1])
    if i == judged[-1]:
        return None
    drop = excess[i] - excess[i + 1]
    share = excess[i] / drop if np.isfinite(drop) else 1.0
    return float(fraction[i] + share * (fraction[i + 1] - fraction[i]))


def _crossing(
    fraction: FloatArray, factor: float, ratio0: FloatArray, ratio1: FloatArray, exp: Experiments | None
) -> Crossing:
    if np.isnan(ratio1[0]):
        return Crossing(factor, None, None, None)
    interval = None
    if exp is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = ratio1 / exp.ratio
        draws = [_last_above(fraction, row * factor - 1.0) for row in ratios]
        crossed = [d for d in draws if d is not None]
        if len(crossed) >= 0.95 * len(draws):
            low, high = np.quantile([1.0 if d is None else d for d in draws], [0.05, 0.95])
            interval = (float(low), float(high))
    return Crossing(
        factor,
        _last_above(fraction, ratio0 * factor - 1.0),
        _last_above(fraction, ratio1 * factor - 1.0),
        interval,
    )


def _departures(sampled: Sampled, ell: Moments, after: float, tolerance: float) -> list[Departure]:
    fraction, sizes = sampled.fraction, ell.counts.size
    judged = (fraction >= max(after, DEPARTURES[0])) & (fraction <= DEPARTURES[1] + 1e-9)
    lasting = max(1, int(np.ceil(LASTING / np.median(np.diff(fraction)))))
    noise = np.nan_to_num(within(ell, ddof=1))
    out = []
    for s in range(sizes):
        others = np.arange(sizes) != s
        mean = ell.mean[others].mean(axis=0)
        gap = ell.mean[s] - mean
        with np.errstate(divide="ignore", invalid="ignore"):
            offset = np.where(mean > 1.0, gap / (mean - 1.0), 0.0)
        error = np.sqrt(noise * (1.0 / ell.counts[s] + (1.0 / ell.counts[others]).sum() / (sizes - 1) ** 2))
        away = judged & (np.abs(offset) > tolerance) & (np.abs(gap) > 2.0 * error)
        # Runs of points away, ended at each point; a lone excursion is no departure.
        streak = np.convolve(away, np.ones(lasting), mode="full")[: away.size] >= lasting
        last = int(np.flatnonzero(streak)[-1]) if streak.any() else None
        out.append(
            Departure(
                size=float(sampled.sizes[s]),
                fraction=None if last is None else float(fraction[last]),
                offset=offset,
                direction="" if last is None else "above" if offset[last] > 0 else "below",
            )
        )
    return out


def _practical(fraction: FloatArray, spread: FloatArray, tolerance: float) -> bool:
    return all(np.interp(x, fraction, spread) <= tolerance for x in TOLERANCE_AT)


def _sensitivity(
    ladder: Ladder, s: Sampled, floor: Floor, core: _Core, tolerance: float, after: float
) -> list[Sensitivity]:
    """The measurement at the other floors that the data allow, and at half and double the smoothing window."""
    choices: list[tuple[str, Sampled, float]] = []
    lowest = float(s.loss.min())
    if floor.value != 0.0 and lowest > 0.0:
        choices.append(("floor 0", s, 0.0))
    if floor.fit is not None:
        # An end of the interval may lie above a loss of the ladder; there nothing can be divided.
        ends = [value for value in floor.fit.interval if value != floor.value and 0.0 < value < lowest]
        choices += [(f"floor {value:.5g} (end of its interval)", s, value) for value in ends]
    if s.window > 0.0:
        for factor, word in ((0.5, "half"), (2.0, "double")):
            again = ladder.sample(s.fraction, s.loss_name, s.kind, min(factor * s.window, 0.99))
            if floor.value < again.loss.min():
                choices.append((f"{word} the smoothing window", again, floor.value))
    out = [_judge("as reported", s.fraction, core, tolerance, after)]
    out += [_judge(words, t.fraction, _measure(t, value), tolerance, after) for words, t, value in choices]
    return out if len(out) > 1 else []


def _judge(choice: str, fraction: FloatArray, core: _Core, tolerance: float, after: float) -> Sensitivity:
    low, high = WINDOWS[1]
    inside = within_window(fraction, max(low, after), high)
    return Sensitivity(
        choice,
        tuple(float(np.interp(x, fraction, core.spread)) for x in TOLERANCE_AT),
        float(window_ratio(deviation(core.ell, 1), noise_floor(core.raw, 1), inside)) if inside.any() else np.nan,
        _practical(fraction, core.spread, tolerance),
    )


def _floor_dict(floor: Floor) -> dict[str, Any]:
    out: dict[str, Any] = {"value": floor.value, "how": floor.how, "note": floor.note}
    if floor.fit is not None:
        f = floor.fit
        out["fit"] = {
            "floor": f.floor,
            "amplitude": f.amplitude,
            "exponent": f.exponent,
            "objective": f.objective,
            "gradient_norm": f.gradient_norm,
            "at_zero": f.at_zero,
            "interval": f.interval,
            "leave_one_size_out": f.leave_one_out,
            "other_recipes": f.recipes,
            "pinned": f.pinned,
            "reason": f.reason,
            "compute": f.compute,
            "loss": f.loss,
        }
    return out


def _run_keys(runs: Sequence[Run]) -> list[str]:
    """A key for each run: its name, with where it was read from or a number where two share it."""
    keys: dict[str, None] = {}
    for run in runs:
        name = run.config.name
        tried = [name, f"{name} ({run.source})", *(f"{name} ({i})" for i in range(2, len(runs) + 2))]
        keys[next(key for key in tried if key not in keys)] = None
    return list(keys)


def _size_key(size: float) -> str:
    return str(int(size)) if float(size).is_integer() else repr(float(size))
