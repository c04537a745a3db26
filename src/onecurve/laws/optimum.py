"""Optima of sweeps, each a parabola's vertex in the log of what is swept, and the power law through several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import TRAINING_WINDOW, ends_early, resample
from onecurve.run import Run

REACH = 4.5
"""Values within this factor of the best one are fitted: two steps of a grid of factors 2 on each side."""
LEAST = 4
"""Distinct values that a sweep needs there."""
STEEPEST = 0.2
"""The cubic part over the square one, for a log; beyond, the bend would turn within the fitted range."""
LEVEL = 0.90
STRAY = 0.05
"""Optima scatter about a power law by more than their errors where chance does so less often than this."""


@dataclass(frozen=True)
class Sweep:
    """Final losses of runs that differ in one thing."""

    at: float
    """What the optimum is asked against: tokens per parameter, or tokens."""
    label: str
    values: FloatArray
    """(n,) what is swept, one entry a run, above 0."""
    losses: FloatArray
    """(n,) final losses; not finite where a run diverged."""
    seeds: tuple[str, ...]
    """(n,) labels; runs of one seed share its luck, which the parabola leaves out."""


@dataclass(frozen=True)
class Optimum:
    """Where a sweep's loss is least."""

    at: float
    label: str
    value: float
    low: float
    high: float
    """90 % interval, from the noise of all sweeps together."""
    log_error: float
    """Standard error of log value."""
    count: int
    """Runs that the parabola was fitted to."""


@dataclass(frozen=True)
class PowerLaw:
    """``scale * at ** exponent`` through several optima."""

    optima: tuple[Optimum, ...]
    scale: float
    exponent: float
    exponent_interval: tuple[float, float]
    """90 %."""
    centre: float
    """Mean of log at, weighted as in the fit."""
    covariance: tuple[tuple[float, float], tuple[float, float]]
    """Of the law's log at the centre, and of the exponent."""
    quantile: float
    """Student's t for 90 %."""
    noise: float
    """Standard deviation of a run's log loss about its parabola."""
    notes: tuple[str, ...]

    def __call__(self, at: FloatArray | float) -> FloatArray:
        """The law's value."""
        return self.scale * np.asarray(at, dtype=np.float64) ** self.exponent

    def interval(self, at: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """90 % interval of the law's value."""
        away = np.log(np.asarray(at, dtype=np.float64)) - self.centre
        (height, both), (_, exponent) = self.covariance
        half = self.quantile * np.sqrt(height + 2.0 * both * away + exponent * away**2)
        return self(at) * np.exp(-half), self(at) * np.exp(half)


def final_loss(run: Run, loss: str | None) -> float:
    """The loss at the end of a run: a held-out one as it is, a training loss as its trailing mean over 2 % of the run.

    nan where the last loss is not finite. Raises OnecurveError for a run that has not ended.
    """
    curve = run.curve(loss)
    finite = curve.finite()
    if not len(finite) or not np.isfinite(curve.loss[-1]):
        return float("nan")
    if ends_early(finite, run.end):
        raise OnecurveError(f"{run.where}: has not ended, so its final loss is not known; leave it out, or let it end")
    window = TRAINING_WINDOW if curve.kind == "training" else 0.0
    return float(resample(finite, np.array([min(run.end, finite.x[-1])]), window * run.end)[0])


@dataclass(frozen=True)
class _Window:
    """The runs of a sweep near its best value."""

    sweep: Sweep
    best: float
    u: FloatArray
    """(n,) log value over the best one."""
    y: FloatArray
    """(n,) log loss."""
    heights: FloatArray
    """(n, S) which seed is whose."""

    def design(self, skew: float) -> FloatArray:
        """(n, 2 + S): a slope, a parabola with its cubic part, one height a seed."""
        return np.column_stack([self.u, self.u**2 + skew * self.u**3, self.heights])


def _window(sweep: Sweep) -> _Window | str:
    """The part of a sweep that is fitted; why it has no optimum, in words, where that shows without a fit."""
    finite = np.isfinite(sweep.losses) & (sweep.losses > 0)
    values = np.unique(sweep.values)
    means = np.array([
        np.mean(sweep.losses[sweep.values == v]) if finite[sweep.values == v].all() else np.inf for v in values
    ])  # fmt: skip
    best = int(np.argmin(means))
    if not np.isfinite(means[best]):
        return "no value has a finite loss"
    if best in (0, values.size - 1):
        side = "lowest" if best == 0 else "highest"
        return f"its best value, {values[best]:.3g}, is the {side} that was tried; the optimum may lie beyond"
    near = finite & (np.abs(np.log(sweep.values / values[best])) <= np.log(REACH))
    if np.unique(sweep.values[near]).size < LEAST:
        return f"fewer than {LEAST} of its values lie within a factor {REACH:g} of the best one, {values[best]:.3g}"
    seeds = np.array(sweep.seeds)[near]
    heights = (seeds[:, None] == np.unique(seeds)).astype(np.float64)
    u = np.log(sweep.values[near] / values[best])
    window = _Window(sweep, float(values[best]), u, np.log(sweep.losses[near]), heights)
    design = window.design(0.0)
    return window if np.linalg.matrix_rank(design) == design.shape[1] else "its seeds and values give no parabola"


@dataclass(frozen=True)
class _Fits:
    """All windows fitted together, K of them."""

    vertex: FloatArray
    """(K,) log of the optimum; nan where there is none."""
    covariance: FloatArray
    """(K, K)"""
    curvature: FloatArray
    curvature_error: FloatArray
    variance: float
    freedom: int


def _fitted(windows: Sequence[_Window]) -> _Fits:
    """Least squares of ``height + c1 u + c2 (u^2 + skew u^3)`` with one skew for all, by Gauss-Newton in the skew.

    The skew is what a parabola alone turns into a shift of every optimum; losses rise faster below the best timescale
    than above it.
    """
    points, columns = sum(w.u.size for w in windows), sum(2 + w.heights.shape[1] for w in windows)
    bent = points - columns >= 2
    skew = information = 0.0
    inverses: list[FloatArray] = []
    fits: list[FloatArray] = []
    pulls: list[FloatArray] = []
    squares = 0.0
    for _ in range(30):
        inverses, fits, pulls, squares, gradient, information = [], [], [], 0.0, 0.0, 0.0
        for w in windows:
            design = w.design(skew)
            inverse = np.asarray(np.linalg.inv(design.T @ design), dtype=np.float64)
            c = np.asarray(inverse @ design.T @ w.y, dtype=np.float64)
            residual = w.y - design @ c
            cubic = c[1] * w.u**3
            pull = np.asarray(inverse @ design.T @ cubic, dtype=np.float64)
            own = cubic - design @ pull
            gradient, information = gradient + own @ residual, information + own @ own
            squares += float(residual @ residual)
            inverses.append(inverse)
            fits.append(c)
            pulls.append(pull)
        if not bent or information == 0.0:
            break
        change = float(np.clip(skew + gradient / information, -STEEPEST, STEEPEST)) - skew
        if abs(change) < 1e-9:
            break
        skew += change
    freedom = points - columns - bent
    variance = squares / max(freedom, 1)
    c1, c2 = (np.array([c[k] for c in fits]) for k in (0, 1))
    under = 1.0 - 3.0 * skew * c1 / c2
    with np.errstate(invalid="ignore"):
        u = -c1 / c2 / (1.0 + np.sqrt(under))
    slope = 2.0 * c2 * (1.0 + 3.0 * skew * u)
    gradients = np.stack([-1.0 / slope, -(2.0 * u + 3.0 * skew * u**2) / slope], axis=1)
    each = np.array([g @ inv[:2, :2] @ g for g, inv in zip(gradients, inverses, strict=True)])
    by_skew = -3.0 * c2 * u**2 / slope - np.array([g @ p[:2] for g, p in zip(gradients, pulls, strict=True)])
    spread = variance / information if bent and information > 0 else 0.0
    return _Fits(
        vertex=u + np.log([w.best for w in windows]),
        covariance=np.diag(variance * each) + spread * np.outer(by_skew, by_skew),
        curvature=c2,
        curvature_error=np.sqrt(variance * np.array([inv[1, 1] for inv in inverses])),
        variance=variance,
        freedom=freedom,
    )


def power_law(sweeps: Sequence[Sweep], what: str, against: str) -> PowerLaw:
    """The optimum of each sweep, and the power law through them; ``what`` and ``against`` are words for messages.

    Log loss is fitted by a parabola in log value within a factor 4.5 of the best one, with one height a seed and one
    skew for all sweeps. Its noise, pooled over sweeps, gives the optima their errors (delta method), and these weigh
    the straight line through the logs. Where optima scatter about the line by more than that (chance below .05), the
    line's errors are scaled up to the scatter. Sweeps whose optimum lies at an edge, or that do not curve beyond noise,
    are left out by name. Raises OnecurveError where fewer than three are left, or noise cannot be told.
    """
    from scipy.stats import f as fisher
    from scipy.stats import t as student

    notes: list[str] = []
    windows: list[_Window] = []
    for sweep in sorted(sweeps, key=lambda s: s.at):
        got = _window(sweep)
        if isinstance(got, str):
            notes.append(f"{sweep.label} is left out: {got}")
        else:
            windows.append(got)
    fits = quantile = None
    while windows:
        fits = _fitted(windows)
        if fits.freedom < 1:
            raise OnecurveError(
                f"the sweeps leave nothing to tell noise by; give each at least {LEAST + 1} values, or more seeds"
            )
        quantile = float(student.ppf(0.5 + LEVEL / 2, fits.freedom))
        flat = fits.curvature <= quantile * fits.curvature_error
        logs = [np.log(w.best) for w in windows]
        off = [not w.u.min() < v - log < w.u.max() for w, v, log in zip(windows, fits.vertex, logs, strict=True)]
        if not np.any(flat) and not any(off):
            break
        for w, is_flat, is_off in zip(windows, flat, off, strict=True):
            if is_flat:
                notes.append(f"{w.sweep.label} is left out: it does not curve beyond its noise")
            elif is_off:
                notes.append(f"{w.sweep.label} is left out: its parabola is least beyond what was fitted")
        windows = [w for w, is_flat, is_off in zip(windows, flat, off, strict=True) if not is_flat and not is_off]
    if fits is None or quantile is None or len({round(float(np.log(w.sweep.at)), 2) for w in windows}) < 3:
        told = "; ".join(notes) or f"{len(windows)} sweeps were found"
        raise OnecurveError(f"a power law needs an optimal {what} at three or more {against}; {told}")
    variances = np.maximum(np.diag(fits.covariance), 1e-24)  # of losses without noise
    x, weight = np.log([w.sweep.at for w in windows]), 1.0 / variances
    centre = float(weight @ x / weight.sum())
    away = x - centre
    to_height, to_exponent = weight / weight.sum(), weight * away / (weight @ away**2)
    height, exponent = float(to_height @ fits.vertex), float(to_exponent @ fits.vertex)
    covariance = np.stack([to_height, to_exponent]) @ fits.covariance @ np.stack([to_height, to_exponent]).T
    left = fits.vertex - height - exponent * away
    scatter = float(weight @ left**2 / (x.size - 2))
    line_quantile = quantile
    if fisher.sf(scatter, x.size - 2, fits.freedom) < STRAY:
        notes.append(
            f"the optima scatter about the power law {np.sqrt(scatter):.1f} times as far as their errors say; the "
            "intervals of the law are widened to that"
        )
        covariance, line_quantile = covariance * scatter, float(student.ppf(0.5 + LEVEL / 2, x.size - 2))
    optima = tuple(
        Optimum(
            w.sweep.at, w.sweep.label, float(np.exp(v)), float(np.exp(v - quantile * e)),
            float(np.exp(v + quantile * e)), float(e), w.u.size,
        )
        for w, v, e in zip(windows, fits.vertex, np.sqrt(variances), strict=True)
    )  # fmt: skip
    half = line_quantile * float(np.sqrt(covariance[1, 1]))
    return PowerLaw(
        optima=optima,
        scale=float(np.exp(height - exponent * centre)),
        exponent=exponent,
        exponent_interval=(exponent - half, exponent + half),
        centre=centre,
        covariance=(
            (float(covariance[0, 0]), float(covariance[0, 1])),
            (float(covariance[1, 0]), float(covariance[1, 1])),
        ),
        quantile=line_quantile,
        noise=float(np.sqrt(fits.variance)),
        notes=tuple(notes),
    )
