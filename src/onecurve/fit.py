"""The one fitting engine: many bounded non-linear least-squares problems at once.

Laws are small (a few parameters, tens of points) but are fitted often: from many starts, for every resample of the
data, with every size left out in turn. So the engine carries a leading batch axis: S problems run side by side as
numpy arrays, and a bootstrap of a thousand fits costs little more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Residuals = Callable[[FloatArray, NDArray[np.intp]], tuple[FloatArray, FloatArray]]
"""``f(parameters (S, P), rows (S,)) -> residuals (S, n), Jacobian (S, n, P)``; ``rows`` are the problems asked for."""

LEAST_DAMPING = 1e-12
"""Keeps the normal equations solvable where the data tie two parameters together; far above rounding."""


@dataclass(frozen=True)
class Solutions:
    """The end of S minimisations: one row a problem."""

    parameters: FloatArray
    """(S, P)"""
    objective: FloatArray
    """(S,) mean Huber loss, or half the mean square, of the residuals."""
    gradient_norm: FloatArray
    """(S,) largest absolute gradient of the objective over parameters that are not held at a bound."""
    at_bound: NDArray[np.bool_]
    """(S, P)"""

    def best(self) -> int:
        """Index of the lowest objective; one that is not finite is never the lowest."""
        return int(np.argmin(np.where(np.isfinite(self.objective), self.objective, np.inf)))


def minimise(
    residuals: Residuals,
    start: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    huber: float | None = None,
    iterations: int = 200,
) -> Solutions:
    """Minimise ``mean_i rho(r_i)`` for S problems at once by projected Levenberg-Marquardt.

    ``rho`` is ``r^2 / 2``, or with ``huber = d`` Huber's loss: ``r^2 / 2`` up to ``d``, ``d (|r| - d / 2)`` beyond.
    Parameters stay within ``lower`` and ``upper`` (each (P,) or (S, P)). The result is deterministic. A problem stops
    when no step lowers its objective by a relative 1e-15 any more, or after ``iterations`` steps.
    """
    p = np.clip(np.array(start, dtype=np.float64), lower, upper)
    problems = p.shape[0]
    lower = np.broadcast_to(lower, p.shape)
    upper = np.broadcast_to(upper, p.shape)
    damping = np.full(problems, 1e-3)
    everything = np.arange(problems)
    r, jac = residuals(p, everything)
    cost = _cost(r, huber)
    active = np.isfinite(cost)
    gradient = np.zeros_like(p)
    held = np.zeros(p.shape, dtype=bool)
    stalled = np.zeros(problems, dtype=np.intp)
    fresh = everything  # problems whose r and jac changed since the normal equations were formed
    normal = np.zeros((problems, p.shape[1], p.shape[1]))
    for _ in range(iterations):
        if fresh.size:
            weight = _weights(r[fresh], huber)
            weighted = weight[:, :, None] * jac[fresh]
            normal[fresh] = np.swapaxes(jac[fresh], 1, 2) @ weighted
            gradient[fresh] = (np.swapaxes(weighted, 1, 2) @ r[fresh][:, :, None])[:, :, 0]
            held[fresh] = ((p <= lower) & (gradient > 0) | (p >= upper) & (gradient < 0))[fresh]
        rows = np.flatnonzero(active)
        if not rows.size:
            break
        free = ~held[rows]
        a = normal[rows] * (free[:, :, None] & free[:, None, :])
        scale = np.einsum("spp->sp", normal[rows])
        diagonal = np.where(free, a.diagonal(axis1=1, axis2=2) + damping[rows, None] * np.maximum(scale, 1e-300), 1.0)
        np.einsum("spp->sp", a)[...] = diagonal
        step = np.linalg.solve(a, -np.where(free, gradient[rows], 0.0)[:, :, None])[:, :, 0]
        trial = np.clip(p[rows] + step, lower[rows], upper[rows])
        r_new, jac_new = residuals(trial, rows)
        cost_new = _cost(r_new, huber)
        better = cost_new < cost[rows]
        small = ~(cost[rows] - cost_new > 1e-15 * cost[rows])
        stalled[rows] = np.where(small, stalled[rows] + 1, 0)
        damping[rows] = np.where(better, np.maximum(damping[rows] / 5.0, LEAST_DAMPING), damping[rows] * 4.0)
        fresh = rows[better]
        p[fresh], r[fresh], jac[fresh], cost[fresh] = trial[better], r_new[better], jac_new[better], cost_new[better]
        active[rows] = (stalled[rows] < 12) & (damping[rows] < 1e16)
    points = r.shape[1]
    return Solutions(p, cost, np.abs(np.where(held, 0.0, gradient)).max(axis=1) / points, held)


def _cost(r: FloatArray, huber: float | None) -> FloatArray:
    if huber is None:
        return 0.5 * np.mean(r * r, axis=1)
    size = np.abs(r)
    return np.mean(np.where(size <= huber, 0.5 * size * size, huber * (size - 0.5 * huber)), axis=1)


def _weights(r: FloatArray, huber: float | None) -> FloatArray:
    if huber is None:
        return np.ones_like(r)
    return huber / np.maximum(np.abs(r), huber)
