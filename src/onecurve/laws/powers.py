"""Sums of power laws, and the one curve that they imply.

``L(t, N) = L_inf + A N^-alpha + B t^-beta`` at a constant learning rate (arXiv 2507.02119, eq. 5). Along the
compute-optimal horizon ``t* ~ N^(alpha / beta)`` its two terms keep their ratio, so all sizes share one normalised
curve (eqs. 6-7); `Terms` is the general sum (eq. 8), of which this holds up to a power of N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray, project
from onecurve.ladder import by_size
from onecurve.laws.estimate import Points, solve
from onecurve.laws.law import Intervals, Law, Scope
from onecurve.laws.path import refuse_decay
from onecurve.run import Run, human

SAMPLES = 60
"""Log-spaced points a size: long curves count no more than short ones."""
LEAST = 3
"""Sizes that tell a floor from the size's own term."""
NAMES = ("n_amplitude", "n_exponent", "t_amplitude", "t_exponent", "floor")


@dataclass(frozen=True)
class SumOfPowers(Law):
    """``floor + n_amplitude N^-n_exponent + t_amplitude x^-t_exponent``, x in the unit of the runs' axis."""

    n_amplitude: float
    n_exponent: float
    t_amplitude: float
    t_exponent: float
    floor: float

    name: ClassVar[str] = "powers"
    about: ClassVar[str] = "loss at a constant rate as a sum of power laws of size and tokens"
    needs: ClassVar[str] = "constant-rate runs of at least 3 sizes"
    reach: ClassVar[str] = "other sizes and horizons at a constant rate; no schedule"

    @classmethod
    def fit(
        cls,
        runs: Sequence[Run],
        loss: str | None = None,
        *,
        window: tuple[float, float | None] = (0.1, 1.0),
        intervals: Intervals = "bootstrap",
    ) -> Self:
        """Fit to constant-rate runs between two fractions of their horizon (None: to the last point).

        Seeds of a size are averaged, and each size counts with 60 points, log-spaced over its window (log-log
        interpolation).
        """
        scope = Scope.of(runs, cls.name)
        points = size_curves(runs, loss, window)
        n = points.per_run(lambda run, x: np.full(x.size, run.config.n_params))
        n0, t0 = (float(np.exp(np.log(v).mean())) for v in (n, points.x))
        log_n, log_t = np.log(n / n0), np.log(points.x / t0)

        def model(p: FloatArray) -> tuple[FloatArray, FloatArray]:
            by_n, by_t = np.exp(-p[:, 1:2] * log_n), np.exp(-p[:, 3:4] * log_t)
            a, b = p[:, :1], p[:, 2:3]
            slope = [by_n, -a * log_n * by_n, by_t, -b * log_t * by_t, np.ones_like(by_n)]
            return p[:, 4:] + a * by_n + b * by_t, np.stack(slope, axis=-1)

        alpha, beta = (v.ravel() for v in np.meshgrid(np.geomspace(0.05, 1.5, 7), np.geomspace(0.05, 1.5, 7)))
        basis = np.stack([np.exp(-alpha[:, None] * log_n), np.exp(-beta[:, None] * log_t)], axis=-1)
        basis = np.concatenate([basis, np.ones_like(basis[:, :, :1])], axis=-1)
        linear = project(basis, points.loss, np.zeros(3))
        starts = np.column_stack([linear[:, 0], alpha, linear[:, 1], beta, linear[:, 2]])
        starts[:, [0, 2]] = np.maximum(starts[:, [0, 2]], 1e-3 * points.loss.mean())
        upper = np.array([np.inf, 10.0, np.inf, 10.0, points.loss.min()])
        got = solve(NAMES, model, points, starts, np.zeros(5), upper, intervals=intervals)

        def raw(p: FloatArray) -> FloatArray:
            scale = [n0 ** p[..., 1], np.ones_like(p[..., 1]), t0 ** p[..., 3]]
            return p * np.stack([scale[0], scale[1], scale[2], scale[1], scale[1]], axis=-1)

        got = got.mapped(raw)
        return cls(got.report, *map(float, got.values), scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss at each x. Raises OnecurveError for a run whose rate decays: the law knows constant rates only."""
        refuse_decay(run, self.name)
        by_n = self.n_amplitude * run.config.n_params**-self.n_exponent
        return self.floor + by_n + self.t_amplitude * x**-self.t_exponent

    @property
    def gamma(self) -> float:
        """The exponent of the horizon along which all sizes share one curve: ``t* ~ N^gamma``."""
        return self.n_exponent / self.t_exponent

    def optimal_horizon(self, n_params: ArrayLike) -> FloatArray:
        """The x at which a size is compute-optimal: both terms fall equally fast (eq. 6)."""
        n = np.asarray(n_params, dtype=np.float64)
        ratio = self.n_exponent * self.n_amplitude / (self.t_exponent * self.t_amplitude)
        return (ratio * n**-self.n_exponent) ** (-1.0 / self.t_exponent)

    def universal(self, fraction: ArrayLike) -> FloatArray:
        """The normalised curve that all sizes share along `optimal_horizon` (eq. 7).

        ``(r x^-beta + 1) / (r + 1)`` with ``r = alpha / beta``, the ratio of the two terms at the horizon.
        """
        return (self.gamma * np.asarray(fraction, dtype=np.float64) ** -self.t_exponent + 1.0) / (self.gamma + 1.0)


def size_curves(
    runs: Sequence[Run],
    loss: str | None,
    window: tuple[float, float | None],
) -> Points:
    """One curve a size, the mean over its seeds, at 60 log-spaced x within the window (log-log)."""
    for run in runs:
        refuse_decay(run, SumOfPowers.name)
    groups = by_size(runs)
    members, xs, ys, short = [], [], [], []
    for n, group in groups.items():
        curves = [run.curve(loss).finite() for run in group]
        if not all(len(c) for c in curves):
            raise OnecurveError(f"size {human(n)}: a run has no finite loss; leave it out")
        mean = np.mean([np.interp(curves[0].x, c.x, c.loss) for c in curves], axis=0)
        good = (mean > 0) & (curves[0].x > 0)
        if np.sum(good) < 2:
            raise OnecurveError(f"size {human(n)}: fewer than 2 losses above 0; a power law is fitted to logarithms")
        end = group[0].end
        low = max(window[0] * end, curves[0].x[good][0], *(c.x[0] for c in curves))
        high = min(np.inf if window[1] is None else window[1] * end, *(c.x[-1] for c in curves))
        if not low < high:
            short.append(human(n))
            continue
        at = np.geomspace(low, high, SAMPLES)
        xs.append(at)
        ys.append(np.exp(np.interp(np.log(at), np.log(curves[0].x[good]), np.log(mean[good]))))
        members.append(group[0])
    if len(members) < LEAST:
        ends = f"; {', '.join(short)} end before {window[0]:g} of their horizon" if short else ""
        raise OnecurveError(
            f"powers needs constant-rate runs of at least {LEAST} sizes, because the loss at one size cannot tell a "
            f"floor from the size's own term; got {len(members)} ({', '.join(human(n) for n in groups)}){ends}"
        )
    owner = np.repeat(np.arange(len(members)), SAMPLES)
    averaged = len(runs) - len(groups)
    dropped = {"runs averaged with the first of their size": averaged, "sizes that end before the window": len(short)}
    return Points(tuple(members), np.concatenate(xs), np.concatenate(ys), owner, dropped)


@dataclass(frozen=True)
class Terms:
    """A reducible loss ``sum_i a_i t^-mu_i N^-nu_i`` (arXiv 2507.02119, eq. 8)."""

    amplitude: FloatArray
    """(K,)"""
    t_exponent: FloatArray
    """(K,) mu"""
    n_exponent: FloatArray
    """(K,) nu"""

    def loss(self, t: ArrayLike, n_params: ArrayLike) -> FloatArray:
        """Reducible loss; t and n_params broadcast."""
        t, n = np.asarray(t, dtype=np.float64)[..., None], np.asarray(n_params, dtype=np.float64)[..., None]
        return np.sum(self.amplitude * t**-self.t_exponent * n**-self.n_exponent, axis=-1)

    def curve(self, fraction: ArrayLike, n_params: ArrayLike, gamma: float, kappa: float = 1.0) -> FloatArray:
        """Normalised curve of a size whose horizon is ``kappa N^gamma``; n_params broadcasts against fraction."""
        n = np.asarray(n_params, dtype=np.float64)
        end = kappa * n**gamma
        return self.loss(np.asarray(fraction, dtype=np.float64) * end, n) / self.loss(end, n)

    def universal(self, fraction: ArrayLike, gamma: float, kappa: float = 1.0) -> tuple[FloatArray, float]:
        """The curve that sizes tend to, and eps: they differ from it by O(N^-eps).

        With ``beta_i = mu_i gamma + nu_i`` the terms of the smallest beta remain (eqs. 40-43); eps is the gap to the
        next beta, infinite where all are tied (the collapse is exact).
        """
        beta = self.t_exponent * gamma + self.n_exponent
        tied = beta <= beta.min() + 1e-9
        x = np.asarray(fraction, dtype=np.float64)[..., None]
        b = self.amplitude[tied] * kappa ** -self.t_exponent[tied]
        gap = float((beta[~tied] - beta.min()).min()) if (~tied).any() else np.inf
        return np.sum(b * x ** -self.t_exponent[tied], axis=-1) / b.sum(), gap
