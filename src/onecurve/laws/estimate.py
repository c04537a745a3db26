"""How a law's parameters are found: which points count, the fit from many starts, and its intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray, IntArray, Residuals, Solutions, minimise, search
from onecurve.ladder import Ladder, ends_early
from onecurve.laws.law import Intervals, Law, Report, Scope
from onecurve.laws.path import path_of
from onecurve.run import Curve, Run, human

HUBER = 1e-3
"""Log residuals beyond a tenth of a per cent count linearly, as in the published fits."""
CHI_SQUARED = 2.7055
"""The 90 % quantile of chi-squared with one degree of freedom."""
DRAWS = 200
FEW_RUNS = 5
"""With fewer runs than this, intervals come from blocks of residuals instead of from whole runs."""
ILL = 1e7
"""Condition number from which the data do not tell the parameters apart."""


@dataclass(frozen=True)
class Points:
    """What of some runs a fit uses: the points of all runs one after the other."""

    runs: tuple[Run, ...]
    x: FloatArray
    loss: FloatArray
    run: IntArray
    """(n,) which of the runs each point belongs to."""
    dropped: dict[str, int]

    def per_run(self, values: Callable[[Run, FloatArray], FloatArray]) -> FloatArray:
        """``values(run, x of its points)`` for all points."""
        return np.concatenate([values(r, self.x[self.run == k]) for k, r in enumerate(self.runs)])

    def by_stretch(self) -> FloatArray:
        """(n,) weights, mean 1, with which every run counts the same, and within it every stretch of x.

        Logs are often denser at the start; a point stands for the stretch up to halfway to its neighbours.
        """
        out = np.empty(self.x.size)
        for k in range(len(self.runs)):
            at = self.run == k
            width = np.gradient(self.x[at]) if at.sum() > 1 else np.ones(1)
            out[at] = width / width.sum()
        return out * (self.x.size / len(self.runs))


def usable(runs: Sequence[Run], loss: str | None, warmups: float = 1.0) -> Points:
    """The points from which a law is fitted: finite, above 0, and after ``warmups`` times the warmup.

    Raises OnecurveError where a run has no such point.
    """
    early_words = "the warmup" if warmups == 1.0 else f"{warmups:g} times the warmup"
    xs, losses, owner = [], [], []
    early = bad = 0
    for k, run in enumerate(runs):
        whole = run.curve(loss)
        good = np.isfinite(whole.loss) & (whole.loss > 0) & (whole.x > 0)
        first = warmups * path_of(run).warm
        late = whole.x >= first
        if not np.any(good & late):
            raise OnecurveError(
                f"{run.where}: none of its {len(whole)} points is finite, above 0 and after {early_words} "
                f"({run.x_name} {first:g}); leave the run out"
            )
        early += int(np.sum(~late))
        bad += int(np.sum(late & ~good))
        xs.append(whole.x[good & late])
        losses.append(whole.loss[good & late])
        owner.append(np.full(xs[-1].size, k, dtype=np.intp))
    dropped = {f"points in {early_words}": early, "losses that are not finite and above 0": bad}
    return Points(tuple(runs), np.concatenate(xs), np.concatenate(losses), np.concatenate(owner), dropped)


def normalised(runs: Sequence[Run], loss: str | None, fraction: FloatArray) -> FloatArray:
    """(n, G) each run's loss over its own final loss at the given fractions, training losses smoothed."""
    rows = []
    for run in runs:
        sampled = Ladder([run]).sample(np.append(fraction[fraction < 1], 1.0), loss)
        if sampled.fraction.size < fraction.size:
            raise OnecurveError(
                f"{run.where}: its first point is at {sampled.fraction[0]:.3g} of the run, and this law is fitted from "
                f"{fraction[0]:.3g} on; leave the run out"
            )
        rows.append(sampled.loss[0] / sampled.loss[0, -1])
    return np.array(rows)


def normalised_points(runs: Sequence[Run], loss: str | None, fraction: FloatArray) -> Points:
    """The points of normalised curves at the given fractions, run by run."""
    curves = normalised(runs, loss, fraction)
    owner = np.repeat(np.arange(len(runs)), fraction.size)
    return Points(tuple(runs), np.tile(fraction, len(runs)), curves.ravel(), owner, {})


def measured(law: type[Law], run: Run, loss: str | None) -> Curve:
    """What a law predicts of a run as the run did it: its loss, or its loss over its final loss.

    For normalised laws training losses are smoothed as in the fit; without points where the run has not ended, because
    its final loss is not known.
    """
    curve = run.curve(loss).finite()
    if not len(curve):
        raise OnecurveError(f"{run.where}: all its losses are NaN or infinite; leave the run out")
    if not law.normalised:
        return curve
    if ends_early(curve, run.end):
        return Curve(np.empty(0), np.empty(0), curve.kind)
    sampled = Ladder([run]).sample(loss=loss)
    return Curve(sampled.fraction * run.end, sampled.loss[0] / sampled.loss[0, -1], curve.kind)


def records_compute(runs: Sequence[Run], law: str) -> bool:
    """Whether the runs record their training compute. Raises OnecurveError where some do and some do not."""
    recorded = [run.config.compute is not None for run in runs]
    if any(recorded) != all(recorded):
        raise OnecurveError(
            f"{sum(recorded)} of {len(recorded)} runs record their compute; {law} needs it of all, or of none (then it "
            "is 6 N D)"
        )
    return recorded[0]


def training_compute(run: Run, recorded: bool) -> float:
    """C of a run: as recorded, or 6 N D. Raises OnecurveError where that is not known."""
    value = run.config.compute if recorded else run.six_n_d
    if value is None:
        raise OnecurveError(
            f"{run.where}: the law is of the compute that its runs record, and this one records none; give it "
            "with --compute"
            if recorded
            else f"{run.where}: its compute is not known where x is {run.x_name!r}; give it with --compute, or choose "
            "a column of tokens with --x"
        )
    return value


def refuse_several_sizes(scope: Scope, law: str) -> None:
    """OnecurveError unless all runs are of one size."""
    sizes = scope.sizes
    if len(sizes) > 1:
        raise OnecurveError(
            f"{law} is fitted to one model size at a time; got {len(sizes)} ({human(sizes[0])} to {human(sizes[-1])} "
            f"parameters): choose one with --fit-on n_params={sizes[-1]:.6g}"
        )


@dataclass(frozen=True)
class Fitted:
    """Parameters of one law in the order of its names, and how they were found."""

    names: tuple[str, ...]
    values: FloatArray
    report: Report
    ends: FloatArray
    """(2, P) ends of the parameters' intervals."""
    draws: FloatArray
    """(B, P) parameters from resampled data; none where the intervals are profiles."""

    def mapped(self, change: Callable[[FloatArray], FloatArray]) -> Fitted:
        """The same fit in other units: ``change`` maps parameters (..., P), the draws and so the intervals with them.

        Profiles are mapped one parameter at a time, the others as fitted.
        """
        if self.draws.size:
            draws = change(self.draws)
            ends = np.where(np.isnan(self.ends), np.nan, np.quantile(draws, [0.05, 0.95], axis=0))
        else:
            draws = self.draws
            each = np.tile(self.values, (2, self.values.size, 1))
            k = np.arange(self.values.size)
            each[:, k, k] = self.ends
            ends = np.sort(change(each)[:, k, k], axis=0)
        report = replace(self.report, intervals=_intervals(self.names, ends))
        return Fitted(self.names, change(self.values), report, ends, draws)


def solve(
    names: Sequence[str],
    model: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    points: Points,
    starts: FloatArray,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    weights: FloatArray | None = None,
    allowed_at: Sequence[str] = (),
    intervals: Intervals = "bootstrap",
) -> Fitted:
    """Fit ``model(parameters (S, P)) -> loss (S, n), derivatives (S, n, P)`` to points by Huber loss of log residuals.

    From many starts, to the end; with the parameters' 90 % intervals by the Bayesian bootstrap (each unit of the data
    gets a random weight) over whole runs, or over blocks of autocorrelated residuals where there are fewer than
    five; or by their profiles (the others refitted at each value), which are slower and follow curved valleys.
    ``allowed_at`` names the parameters for which lying at a bound is no cause for a warning.
    """
    if points.x.size <= len(names):
        raise OnecurveError(
            f"{points.x.size} points cannot tell {len(names)} parameters ({', '.join(names)}); log more often, or "
            "choose a law with fewer"
        )
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    log_loss = np.log(points.loss)

    def residuals(p: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        value, slope = model(p)
        with np.errstate(invalid="ignore", divide="ignore"):
            r = np.log(value) - log_loss
        r = np.where(value > 0, r, 1e3)  # a loss of 0 or below is no loss: as far away as can be
        return r, slope / np.where(value > 0, value, 1.0)[:, :, None]

    given = None if weights is None else weights[None]
    best = search(residuals, starts, lower, upper, huber=HUBER, weights=given)
    draws, words = _bootstrap(residuals, points, best, lower, upper, given)
    ends = np.quantile(draws, [0.05, 0.95], axis=0)
    if intervals == "profile":
        ends, words = _profiles(residuals, points, best, lower, upper, given, np.ptp(ends, axis=0)), "profiles"
        draws = draws[:0]
    else:
        ends = np.where(best.at_bound[0], np.nan, ends)  # held there while resampled: no width
    return Fitted(tuple(names), best.parameters[0], report(names, best, points, ends, words, allowed_at), ends, draws)


def _intervals(names: Sequence[str], ends: FloatArray) -> dict[str, tuple[float, float]]:
    return {name: (float(low), float(high)) for name, low, high in zip(names, *ends, strict=True)}


def report(
    names: Sequence[str],
    best: Solutions,
    points: Points,
    ends: FloatArray,
    resampled: str,
    allowed_at: Sequence[str] = (),
) -> Report:
    """What there is to say of a solution; ``ends`` (2, P) are the intervals' ends."""
    at_bound = tuple(name for name, held in zip(names, best.at_bound[0], strict=True) if held)
    notes = [
        f"{name} lies at the edge of what is allowed ({best.parameters[0, list(names).index(name)]:.4g}): the data "
        "do not pin it, so do not read it as a number"
        for name in at_bound
        if name not in allowed_at
    ]
    condition = float(best.condition[0])
    if condition > ILL:
        notes.append(
            f"the data do not tell the parameters apart (condition number {condition:.1e}): predictions inside the "
            "data hold, single parameters and extrapolations do not; add runs of other sizes, lengths or schedules"
        )
    return Report(
        objective=float(best.objective[0]),
        gradient_norm=float(best.gradient_norm[0]),
        condition=condition,
        at_bound=at_bound,
        runs=len(points.runs),
        points=points.x.size,
        dropped=points.dropped,
        intervals=_intervals(names, ends),
        resampled=resampled,
        warnings=tuple(notes),
    )


def _bootstrap(
    residuals: Residuals,
    points: Points,
    best: Solutions,
    lower: FloatArray,
    upper: FloatArray,
    weights: FloatArray | None,
) -> tuple[FloatArray, str]:
    """Parameters (DRAWS, P) for other weights of the data's units, and what the units are.

    Each is one Gauss-Newton step from the optimum with its own gradient and normal matrix, which are sums over units:
    the cost does not grow with draws times points.
    """
    r, jac = residuals(best.parameters, np.zeros(1, dtype=np.intp))
    r, jac = r[0], np.where(best.at_bound, 0.0, jac[0])
    if len(points.runs) >= FEW_RUNS:
        unit, words = points.run, "resampling runs"
    else:
        unit, length = blocks(r, points.run)
        words = f"resampling blocks of {length} autocorrelated residuals"
    w = np.ones_like(r) if weights is None else weights[0]
    influence, bend = _influence(r)
    order = np.argsort(unit, kind="stable")
    first = np.flatnonzero(np.diff(unit[order], prepend=-1))
    gradient = np.add.reduceat((w * influence)[order, None] * jac[order], first)
    normal = np.add.reduceat((w * bend)[order, None, None] * jac[order, :, None] * jac[order, None, :], first)
    share = np.random.default_rng(0).dirichlet(np.ones(first.size), size=DRAWS)
    curvature = np.tensordot(share, normal, axes=1)
    diagonal = np.einsum("spp->sp", curvature)
    diagonal[...] = np.where(diagonal > 0, diagonal * (1.0 + 1e-10), 1.0)
    step = np.linalg.solve(curvature, -np.tensordot(share, gradient, axes=1)[:, :, None])[:, :, 0]
    return np.clip(best.parameters + step, lower, upper), words


def _influence(r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The derivative of Huber's loss and its slope, the latter averaged over a window that shrinks with the points.

    By itself the slope is 0 or 1, and where most residuals are far beyond the bend hardly any point would carry it.
    """
    h = max(float(np.median(np.abs(r))) * 1.5 * r.size**-0.2, 1e-300)
    bend = (np.clip(r + h, -HUBER, HUBER) - np.clip(r - h, -HUBER, HUBER)) / (2.0 * h)
    return np.clip(r, -HUBER, HUBER), bend


def _profiles(
    residuals: Residuals,
    points: Points,
    best: Solutions,
    lower: FloatArray,
    upper: FloatArray,
    weights: FloatArray | None,
    width: FloatArray,
) -> FloatArray:
    """(2, P) ends of 90 % profile intervals: where the objective, the other parameters refitted, has risen by enough.

    Twice the rise times ``n E[psi'] / E[psi^2]`` is chi-squared with one degree of freedom (psi the derivative of
    Huber's loss), n the number of residuals over their integrated autocorrelation. All ends are sought side by side:
    doubling steps outwards, then bisection. An end that is not found before a bound is the bound.
    """
    r = residuals(best.parameters, np.zeros(1, dtype=np.intp))[0][0]
    influence, bend = _influence(r)
    independent = r.size / max(1.0, blocks(r, points.run)[1] / 2.0)
    scale = 2.0 * independent * float(bend.mean()) / max(float((influence**2).mean()), 1e-300)
    count = best.parameters.shape[1]
    which, sign = np.tile(np.arange(count), 2), np.repeat([-1.0, 1.0], count)
    rows = np.arange(2 * count)
    middle = best.parameters[0, which]
    edge = np.where(sign < 0, np.broadcast_to(lower, count)[which], np.broadcast_to(upper, count)[which])
    inside, outside = middle.copy(), np.full(2 * count, np.nan)
    step = np.maximum(np.broadcast_to(width, count)[which] / 2.0, 1e-6 * np.maximum(np.abs(middle), 1e-3))
    begin = np.repeat(best.parameters, 2 * count, axis=0)
    for _ in range(40):
        found = np.isfinite(outside)
        ahead = sign * np.minimum(sign * (inside + sign * step), sign * edge)
        at = np.where(found, 0.5 * (inside + outside), ahead)
        low, high = (np.broadcast_to(v, begin.shape).copy() for v in (lower, upper))
        begin[rows, which] = low[rows, which] = high[rows, which] = at
        got = minimise(residuals, begin, low, high, huber=HUBER, weights=weights, iterations=60)
        beyond = scale * (got.objective - best.objective[0]) > CHI_SQUARED
        begin = np.where(beyond[:, None], begin, got.parameters)
        outside = np.where(beyond | (~found & (at == edge)), at, outside)
        inside = np.where(beyond, inside, at)
        step = np.where(found, step, 2.0 * step)
        if np.all(np.isfinite(outside) & (np.abs(outside - inside) < 1e-3 * np.abs(outside - middle) + 1e-15)):
            break
    return np.where(np.isfinite(outside), 0.5 * (inside + outside), edge).reshape(2, count)


def blocks(residual: FloatArray, run: IntArray) -> tuple[IntArray, int]:
    """Blocks of consecutive points within each run, long enough that residuals of different ones hardly correlate.

    Their length is twice the integrated autocorrelation of the residuals (summed to the first lag below 0), at most
    a fifth of the shortest run.
    """
    longest = 1.0
    for k in range(int(run.max()) + 1):
        r = residual[run == k] - residual[run == k].mean()
        power = float(r @ r)
        if r.size < 8 or power <= 0:
            continue
        transform = np.fft.rfft(r, 2 * r.size)
        correlation = np.fft.irfft(transform * transform.conj())[: r.size] / power
        below = np.flatnonzero(correlation <= 0)
        longest = max(longest, 1.0 + 2.0 * float(correlation[1 : below[0] if below.size else r.size].sum()))
    shortest = int(np.bincount(run).min())
    length = int(np.clip(np.ceil(2 * longest), 1, max(1, shortest // 5)))
    unit = np.empty(run.size, dtype=np.intp)
    count = 0
    for k in range(int(run.max()) + 1):
        at = np.flatnonzero(run == k)
        own = np.arange(at.size) // length
        unit[at] = count + own
        count += int(own[-1]) + 1 if at.size else 0
    return unit, length
