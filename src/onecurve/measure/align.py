"""The divisor of a curve that has not ended: the one that lays its points best on a known normalised curve.

A normalised curve l ends at 1, so a run that follows it has ``L(x) = L(1) l(x)``, and each of its points is an estimate
of its final loss, ``log L(x) - log l(x)``. The divisor is their weighted mean (early alignment, arXiv 2509.25087,
section 5, which leaves the objective open; a mean of logs is the least-squares one for relative noise).

Everything is an array of rows, one a run, on any columns that the rows share; weight 0 leaves a point out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray, IntArray

BLOCKS = 8
"""Stretches of a window that are compared for the error: many enough to tell it, few enough to be longer than noise."""
FEWEST = 3
"""Points from which a divisor is told."""


@dataclass(frozen=True)
class Alignment:
    """One divisor a row; nan where a row has fewer than three points."""

    log_divisor: FloatArray
    """(n,) log of the final loss that the points point to, if the shape is the run's own."""
    error: FloatArray
    """(n,) its standard error from the points alone, a wandering misfit included; nan with fewer than 4 points."""
    freedom: IntArray
    """(n,) degrees of freedom of the error, for Student's quantiles."""
    misfit: FloatArray
    """(n,) weighted root mean square of what the divisor leaves, in logs."""
    slope: FloatArray
    """(n,) how the remainder goes on, per unit of log x: 0 for a run that follows the shape."""
    points: IntArray
    """(n,) points that count."""


def align(x: FloatArray, log_loss: FloatArray, log_shape: FloatArray, weight: FloatArray | None = None) -> Alignment:
    """The divisors of rows (n, G) against shapes (n, G) or (G,) at fractions x (G,).

    Points that are not finite on either side, or at x = 0, are left out. The error is that of batch means: the points
    that count are cut into (up to) eight stretches of equal number, and the spread of the stretches' means tells the
    error of their mean, for noise of any correlation that is shorter than a stretch. A misfit that grows along the
    window widens it as well. Raises OnecurveError for negative weights and for shapes that do not match.
    """
    y, s = np.atleast_2d(np.asarray(log_loss, np.float64)), np.asarray(log_shape, np.float64)
    if y.shape[1:] != np.shape(x) or s.shape not in (y.shape, y.shape[1:]):
        raise OnecurveError(
            f"align needs x (G,), losses (n, G) and shapes (n, G) or (G,); got {np.shape(x)}, {y.shape}, {s.shape}"
        )
    w = np.broadcast_to(np.float64(1.0) if weight is None else weight, y.shape)
    if not (w >= 0).all():
        raise OnecurveError("a weight is negative or not a number; weights are 0 or more")
    rest = y - s
    counts = np.isfinite(rest) & (w > 0) & (np.asarray(x) > 0)
    w, rest = np.where(counts, w, 0.0), np.where(counts, rest, 0.0)
    points = counts.sum(axis=1)
    told = points >= FEWEST
    total = np.where(told, w.sum(axis=1), np.nan)
    divisor = (w * rest).sum(axis=1) / total
    rest = np.where(counts, rest - divisor[:, None], 0.0)
    u = np.log(np.where(counts, x, 1.0))
    u = np.where(counts, u - ((w * u).sum(axis=1) / total)[:, None], 0.0)
    spread = (w * u * u).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(told, (w * u * rest).sum(axis=1) / spread, np.nan)
    error, freedom = _batch_means(rest, w, counts)
    misfit = np.sqrt((w * rest * rest).sum(axis=1) / total)
    return Alignment(divisor, np.where(told, error, np.nan), freedom, misfit, slope, points)


class Stretches:
    """The points of each row that count, cut into (up to) eight stretches of equal number, two points each at least."""

    def __init__(self, counts: NDArray[np.bool_]) -> None:
        n, points = counts.shape[0], counts.sum(axis=1)
        self.number: IntArray = np.minimum(BLOCKS, points // 2)
        """(n,) stretches of each row."""
        rank = np.cumsum(counts, axis=1) - 1
        block = rank * self.number[:, None] // np.maximum(points, 1)[:, None]
        self._cell = np.where(counts, block, 0) + BLOCKS * np.arange(n)[:, None]

    def sum(self, values: FloatArray) -> FloatArray:
        """(n, 8) sums of values (n, G) that are 0 where a point does not count."""
        n = self._cell.shape[0]
        flat = np.bincount(self._cell.ravel(), values.ravel(), minlength=n * BLOCKS)
        return np.asarray(flat, np.float64).reshape(n, BLOCKS)


def _batch_means(rest: FloatArray, weight: FloatArray, counts: NDArray[np.bool_]) -> tuple[FloatArray, IntArray]:
    """Standard error of each row's weighted mean 0, and its degrees of freedom."""
    stretches = Stretches(counts)
    mass = stretches.sum(weight)
    share = mass / np.maximum(mass.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(mass > 0, stretches.sum(weight * rest) / mass, 0.0)
        # Whatever the variances of the stretches' means are; exact where they are inverse to the weights.
        variance = (share**2 * mean**2).sum(axis=1) / (1.0 - (share**2).sum(axis=1))
    number = stretches.number
    return np.where(number > 1, np.sqrt(variance), np.nan), np.maximum(number - 1, 0).astype(np.intp)
