"""Where the runs of one sweep will end, from what they have done so far and the shapes of their curves.

A run i that follows its shape l_i has ``log L_i(x) = log L_i(1) + log l_i(x)``. Curves of another size bend a little
more or less than those that the shapes come from, by much the same for all runs of a sweep, so here::

    log L_i(x) = log L_i(1) + (k + d_i) log l_i(x) + noise

with a *stretch* k that the runs share and d_i their own. The shared one is estimated from all runs together, towards
1, as far as it can be told; the rest is uncertainty: that of k moves all predicted ends together and leaves the order
of like runs as it is, that of d_i and the noise moves each run by itself.

Everything is a pure function of arrays, rows being runs on one grid of fractions. NaN marks what is not known of a run;
no row depends on whether another one is finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onecurve.fit import FloatArray, IntArray
from onecurve.measure.align import FEWEST, Stretches, align

NORMAL = 1.645
"""Standard deviations in half the central 90 %."""
STUDENT = np.array([6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895])
"""The same for Student's distribution with 1 to 7 degrees of freedom, as many as eight stretches leave."""
LATE = (0.5, 0.75, 0.9)
"""Points from this share of a run's reach on give its end, whichever tells it best: noise asks for more points, what is
still to be lost for later ones."""
ENOUGH = 8
"""Points from which a window's own noise can be compared with another's."""
SHARED = 0.3
"""Prior standard deviation of k."""
OWN, PRIOR_ROWS = 0.15, 8.0
"""Prior standard deviation of d_i, and the number of runs that it counts for beside those of the sweep."""
DRIFT = 0.2
"""Standard deviation of what the stretch over some span of log x differs by from that over as long a span after it."""


@dataclass(frozen=True)
class Forecast:
    """Predicted ends, a row a run; nan for a run with fewer than three points that count."""

    log_end: FloatArray
    """(n,) log of the predicted final loss."""
    own: FloatArray
    """(n,) standard deviation of its own error."""
    drop: FloatArray
    """(n,) log of the loss still to be lost, by the shape alone: what an error of the shared stretch multiplies."""
    stretch: float
    """k"""
    stretch_error: float
    """Its standard deviation."""
    own_stretch: float
    """Standard deviation of d_i, the runs' own stretches."""
    misfit: FloatArray
    """(n,) root mean square of what shape and stretch leave of the late points, in logs."""
    points: IntArray
    """(n,) points that count."""
    unexplained: float
    """Root mean square of what shapes and stretch leave of all points, over that of the shapes around their means."""

    @property
    def error(self) -> FloatArray:
        """(n,) standard deviation of each predicted log end."""
        return np.hypot(self.own, self.drop * self.stretch_error)

    def draws(self, count: int, keys: Sequence[int]) -> FloatArray:
        """(count, n) joint draws of the log ends: one shared stretch a draw, and each run's own error.

        A run's own draws come from its key (n,) alone, so they are the same whatever other runs there are.
        """
        shared = np.random.default_rng(0).standard_normal((count, 1)) * self.stretch_error
        own = np.stack([np.random.default_rng((1, key)).standard_normal(count) for key in keys], axis=1)
        return self.log_end + shared * self.drop + own * self.own


def forecast(
    x: FloatArray, log_loss: FloatArray, log_shape: FloatArray, shape_error: FloatArray, warm: FloatArray
) -> Forecast:
    """Predicted ends of rows (n, G) at fractions x (G,).

    ``log_loss`` is nan where a run has no point; ``log_shape`` (n, G) is 0 at the end; ``shape_error`` (n, G) is the
    standard deviation of its error; points up to ``warm`` (n,), a fraction, are left out.
    """
    seen = np.isfinite(log_loss) & np.isfinite(log_shape) & (x > warm[:, None])
    points = seen.sum(axis=1)
    reach = np.where(seen, x, 0.0).max(axis=1, initial=0.0)
    k = _stretch(x, np.where(seen, log_loss, np.nan), log_shape, reach)
    best: tuple[FloatArray, ...] | None = None
    for share in LATE:
        late = seen & (x >= share * reach[:, None])
        few = late.sum(axis=1) < FEWEST
        late[few] = seen[few]
        got = _aligned(x, log_loss, k, log_shape, shape_error, late)
        if best is None:
            best = got
        else:
            with np.errstate(invalid="ignore"):
                better = (got[1] < best[1]) & (late.sum(axis=1) >= ENOUGH)
            best = tuple(np.where(better, new, old) for new, old in zip(got, best, strict=True))
    assert best is not None
    log_end, own, drop, misfit = best
    return Forecast(log_end, own, drop, k.mean, k.error, k.own, misfit, points, k.unexplained)


def _aligned(
    x: FloatArray,
    log_loss: FloatArray,
    stretch: _Stretch,
    log_shape: FloatArray,
    shape_error: FloatArray,
    window: NDArray[np.bool_],
) -> tuple[FloatArray, ...]:
    """Of each row in its window: the log end, its own error, the drop ahead and the misfit."""
    fit = align(x, log_loss, stretch.mean * log_shape, window.astype(np.float64))
    count = np.maximum(window.sum(axis=1), 1)

    def mean(values: FloatArray) -> FloatArray:
        return np.where(window, values, 0.0).sum(axis=1) / count

    drop = mean(log_shape)
    # With few stretches of points their spread tells little: Student's quantile over the normal one allows for it.
    # Where there is one stretch alone, the points themselves stand in.
    noise = np.where(fit.freedom > 0, fit.error, fit.misfit) * STUDENT[np.maximum(fit.freedom, 1) - 1] / NORMAL
    own = np.sqrt(noise**2 + (stretch.own * drop) ** 2 + mean(shape_error) ** 2)
    return fit.log_divisor, np.where(np.isfinite(fit.log_divisor), own, np.nan), drop, fit.misfit


@dataclass(frozen=True)
class _Stretch:
    mean: float
    """k"""
    error: float
    own: float
    """Standard deviation of d_i."""
    unexplained: float


def _stretch(x: FloatArray, log_loss: FloatArray, log_shape: FloatArray, reach: FloatArray) -> _Stretch:
    """The stretch that the rows share, and by how much their own differ from it.

    Each row's is the slope of its log loss against the log shape, on means over stretches of points, whose remainders
    tell its noise. They are averaged by how much of their shape has been seen, and weighed against the priors. The
    shared one is told the worse, the longer the span of log x ahead is beside that seen.
    """
    seen = np.isfinite(log_loss)
    stretches = Stretches(seen)
    rows = stretches.number >= FEWEST
    mass = stretches.sum(seen.astype(np.float64))[rows]

    def centred(values: FloatArray) -> FloatArray:
        mean = stretches.sum(np.where(seen, values, 0.0))[rows] / np.maximum(mass, 1.0)
        middle = (mass * mean).sum(axis=1, keepdims=True) / mass.sum(axis=1, keepdims=True)
        return np.where(mass > 0, mean - middle, 0.0)

    y, s = centred(log_loss), centred(log_shape)
    seen_of_shape = (mass * s * s).sum(axis=1)
    if not seen_of_shape.sum() > 0:
        return _Stretch(1.0, SHARED, OWN, 0.0)
    slope = (mass * y * s).sum(axis=1) / np.where(seen_of_shape > 0, seen_of_shape, np.inf)
    weight = seen_of_shape / seen_of_shape.sum()
    mean = float(weight @ slope)
    free = np.maximum((mass > 0).sum(axis=1) - 2, 1)
    noise = (
        (mass * (y - slope[:, None] * s) ** 2).sum(axis=1) / free / np.where(seen_of_shape > 0, seen_of_shape, np.inf)
    )
    number = 1.0 / float(weight @ weight)  # of rows, where they count unequally
    spread = max(0.0, float(weight @ ((slope - mean) ** 2 - noise)))
    own = (PRIOR_ROWS * OWN**2 + number * spread) / (PRIOR_ROWS + number)
    first = np.where(seen, x, np.inf).min(axis=1)[rows]
    with np.errstate(divide="ignore"):
        ahead = float(weight @ (-np.log(reach[rows]) / np.log(reach[rows] / first)))
    error = (own + float(weight @ noise)) / number + DRIFT**2 * ahead
    share = SHARED**2 / (SHARED**2 + error)
    left = float(np.sqrt((mass * (y - mean * s) ** 2).sum() / seen_of_shape.sum()))
    return _Stretch(1.0 + share * (mean - 1.0), float(np.sqrt(share * error)), float(np.sqrt(own)), left)
