"""The one fitting engine: many bounded non-linear least-squares problems at once.

Laws are small (a few parameters, tens of points) but are fitted often: from many starts, for every resample of the
data, with every size left out in turn. So the engine carries a leading batch axis: S problems run side by side as
numpy arrays, and a bootstrap of a thousand fits costs little more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

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
    condition: FloatArray
    """(S,) condition number of the scaled normal equations' root over free parameters: 1e8 means not identified."""

    def best(self) -> int:
        """Index of the lowest objective; one that is not finite is never the lowest."""
        return int(np.argmin(np.where(np.isfinite(self.objective), self.objective, np.inf)))

    def take(self, rows: IntArray | list[int]) -> Solutions:
        """The solutions of some of the problems."""
        return Solutions(*(getattr(self, f.name)[rows] for f in fields(self)))


def search(
    residuals: Residuals,
    starts: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    huber: float | None = None,
    weights: FloatArray | None = None,
    finalists: int = 3,
    iterations: int = 400,
) -> Solutions:
    """The best of many starts for one problem: all of them roughly, the leading few to the end. One row."""
    rough = minimise(residuals, starts, lower, upper, huber=huber, weights=weights, iterations=25)
    leading = np.argsort(np.where(np.isfinite(rough.objective), rough.objective, np.inf), kind="stable")[:finalists]
    fine = minimise(
        residuals, rough.parameters[leading], lower, upper, huber=huber, weights=weights, iterations=iterations
    )
    return fine.take([fine.best()])


def project(basis: FloatArray, loss: FloatArray, lower: FloatArray) -> FloatArray:
    """The parameters that enter linearly, in closed form, for given others (variable projection).

    For each of S bases (S, n, K) the coefficients (S, K) of least squares of relative residuals, which are log
    residuals to first order, against ``loss`` (n,); those below ``lower`` (K,) are put there.
    """
    scaled = basis / loss[:, None]
    size = np.sqrt(np.einsum("snk,snk->sk", scaled, scaled))
    size = np.where(size > 0, size, 1.0)
    unit = scaled / size[:, None, :]
    normal = np.swapaxes(unit, 1, 2) @ unit + 1e-12 * np.eye(basis.shape[2])
    right = unit.sum(axis=1)
    return np.maximum(np.linalg.solve(normal, right[:, :, None])[:, :, 0] / size, lower)


def minimise(
    residuals: Residuals,
    start: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    huber: float | None = None,
    weights: FloatArray | None = None,
    iterations: int = 200,
) -> Solutions:
    """Minimise ``mean_i w_i rho(r_i)`` for S problems at once by projected Levenberg-Marquardt.

    ``rho`` is ``r^2 / 2``, or with ``huber = d`` Huber's loss: ``r^2 / 2`` up to ``d``, ``d (|r| - d / 2)`` beyond.
    ``weights`` are (S, n), or (1, n) for all alike; 1 by default. Parameters stay within ``lower`` and ``upper`` (each
    (P,) or (S, P)). The result is deterministic. A problem stops when no step lowers its objective by a relative 1e-15
    any more, or after ``iterations`` steps.
    """
    p = np.clip(np.array(start, dtype=np.float64), lower, upper)
    problems = p.shape[0]
    lower = np.broadcast_to(lower, p.shape)
    upper = np.broadcast_to(upper, p.shape)
    damping = np.full(problems, 1e-3)
    everything = np.arange(problems)
    r, jac = residuals(p, everything)
    given = np.ones((1, 1)) if weights is None else np.asarray(weights, dtype=np.float64)
    w = np.broadcast_to(given, (problems, r.shape[1]))
    cost = _cost(r, huber, w)
    active = np.isfinite(cost)
    gradient = np.zeros_like(p)
    held = np.zeros(p.shape, dtype=bool)
    stalled = np.zeros(problems, dtype=np.intp)
    fresh = everything  # problems whose r and jac changed since the normal equations were formed
    normal = np.zeros((problems, p.shape[1], p.shape[1]))
    for _ in range(iterations):
        if fresh.size:
            weight = _curvature(r[fresh], huber) * w[fresh]
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
        cost_new = _cost(r_new, huber, w[rows])
        better = cost_new < cost[rows]
        small = ~(cost[rows] - cost_new > 1e-15 * cost[rows])
        stalled[rows] = np.where(small, stalled[rows] + 1, 0)
        damping[rows] = np.where(better, np.maximum(damping[rows] / 5.0, LEAST_DAMPING), damping[rows] * 4.0)
        fresh = rows[better]
        p[fresh], r[fresh], jac[fresh], cost[fresh] = trial[better], r_new[better], jac_new[better], cost_new[better]
        active[rows] = (stalled[rows] < 12) & (damping[rows] < 1e16)
    points = r.shape[1]
    norm = np.abs(np.where(held, 0.0, gradient)).max(axis=1) / points
    return Solutions(p, cost, norm, held, _condition(normal, held))


def _condition(normal: FloatArray, held: NDArray[np.bool_]) -> FloatArray:
    """Root of the condition number of normal matrices (S, P, P) with unit diagonal, over parameters that are free."""
    diagonal = normal.diagonal(axis1=1, axis2=2)
    free = ~held & (diagonal > 0)
    scale = np.where(free, 1.0 / np.sqrt(np.where(free, diagonal, 1.0)), 0.0)
    unit = normal * scale[:, :, None] * scale[:, None, :]
    np.einsum("spp->sp", unit)[...] = 1.0
    values = np.linalg.eigvalsh(np.where(np.isfinite(unit), unit, 0.0))
    ratio = values[:, -1] / np.maximum(values[:, 0], 1e-300)
    return np.where(np.all(held | free, axis=1), np.sqrt(ratio), np.inf)


def _cost(r: FloatArray, huber: float | None, weights: FloatArray) -> FloatArray:
    if huber is None:
        return 0.5 * np.mean(weights * r * r, axis=1)
    size = np.abs(r)
    return np.mean(weights * np.where(size <= huber, 0.5 * size * size, huber * (size - 0.5 * huber)), axis=1)


def _curvature(r: FloatArray, huber: float | None) -> FloatArray:
    if huber is None:
        return np.ones_like(r)
    return huber / np.maximum(np.abs(r), huber)
