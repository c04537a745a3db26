"""Do the loss curves of all sizes fall onto one curve, how tightly against seed noise, and if not, who leaves where?

Every run is divided by its own final reducible loss, ``l(x) = [L(x) - L_inf] / [L(1) - L_inf]`` (arXiv 2507.02119,
eq. 1), and the spread of these curves over sizes is held against seed noise and against the curve's own height.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from onecurve.controls import differences
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import Ladder, Sampled
from onecurve.measure.floor import MIN_SIZES, fit_floor
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
from onecurve.measure.result import (
    ALPHA,
    DEPARTURES,
    LASTING,
    SUPERCOLLAPSE,
    TOLERANCE,
    TOLERANCE_AT,
    WINDOWS,
    Collapse,
    Crossing,
    Departure,
    Floor,
    Sensitivity,
    Window,
    last_above,
    practical,
    within_window,
)
from onecurve.measure.uncertainty import Experiments, experiments, noise_interval, size_test, window_ratio
from onecurve.run import LARGEST, LossKind, human


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
        >>> from onecurve import Ladder, Run
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

    if s.window >= 1.0:
        notes.append(_bias_of_window(s, centre(core.ell)))
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
        findings=tuple(differences(configs, s.runs[0].unit)),
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
            f"{run.where}: loss {s.loss[row, column]:g} at "
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
    for values in ([run.config.compute for run in runs], [run.six_n_d for run in runs]):
        if None not in values:
            return np.array(values, dtype=np.float64), ""
    return None, f"training compute is not known where x is {runs[0].x_name!r} (name its column with --compute)"


def _after_warmup(s: Sampled) -> float:
    """The largest warmup share that is known: nothing is judged before."""
    return max((run.config.schedule.warmup for run in s.runs if run.config.schedule is not None), default=0.0)


def _bias_of_window(s: Sampled, curve: FloatArray) -> str:
    """What a window of one width in x does to a perfect family: the mean curve, blurred as that of each size is.

    About: the mean curve is blurred already, and taken to be flat before its first point.
    """
    x = np.linspace(0.0, 1.0, 2001)
    area = np.concatenate([[0.0], np.cumsum(np.interp(0.5 * (x[1:] + x[:-1]), s.fraction, curve)) * x[1]])
    shares = s.window / np.unique(s.ends)
    at = np.array([*TOLERANCE_AT, 1.0])[:, None]
    low = np.maximum(at - shares, 0.0)
    blurred = (np.interp(at, x, area) - np.interp(low, x, area)) / (at - low)
    ell = blurred[:-1] / blurred[-1]
    spread = ell.std(axis=1) / (ell.mean(axis=1) - 1.0)
    words = " and ".join(f"{v:.2g} at x = {x:g}" for v, x in zip(spread, TOLERANCE_AT, strict=True))
    return (
        f"a window of {human(s.window)} {s.runs[0].x_name} is {shares.min():.2g} to {shares.max():.2g} of the runs: by "
        f"itself it spreads the curves of a family that collapses perfectly by about {words}; a share does not"
    )


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


def _crossing(
    fraction: FloatArray, factor: float, ratio0: FloatArray, ratio1: FloatArray, exp: Experiments | None
) -> Crossing:
    if np.isnan(ratio1[0]):
        return Crossing(factor, None, None, None)
    interval = None
    if exp is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = ratio1 / exp.ratio
        draws = [last_above(fraction, row * factor - 1.0) for row in ratios]
        crossed = [d for d in draws if d is not None]
        if len(crossed) >= 0.95 * len(draws):
            low, high = np.quantile([1.0 if d is None else d for d in draws], [0.05, 0.95])
            interval = (float(low), float(high))
    return Crossing(
        factor,
        last_above(fraction, ratio0 * factor - 1.0),
        last_above(fraction, ratio1 * factor - 1.0),
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
            most = 0.99 * (float(s.ends.min()) if s.window >= 1.0 else 1.0)
            again = ladder.sample(s.fraction, s.loss_name, s.kind, min(factor * s.window, most))
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
        practical(fraction, core.spread, tolerance),
    )
