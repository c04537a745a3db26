"""The irreducible loss: the part of the loss that no amount of compute removes.

It is fitted to the ends of the ladder, ``L = L_inf + a C^-b`` (arXiv 2507.02119, section 3), one point a size, by
Huber loss (delta 1e-3) on log residuals, driven to the global optimum; the published fits stopped early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onecurve.fit import FloatArray, IntArray, Residuals, Solutions, minimise, search
from onecurve.measure.moments import mean_multipliers

HUBER = 1e-3
MIN_SIZES = 4
"""Sizes needed for a fit of three parameters to say anything."""
PIN_SIZES = 5
DRAWS = 400


@dataclass(frozen=True)
class FloorFit:
    """The fit of ``loss = floor + amplitude * compute ** -exponent`` to the ends of a ladder."""

    floor: float
    amplitude: float
    exponent: float
    objective: float
    """Mean Huber loss (delta 1e-3) of the log residuals."""
    gradient_norm: float
    at_zero: bool
    """Whether the floor is held at its lower bound, zero."""
    interval: tuple[float, float]
    """Envelope of the 5-95 % range over resampled seeds and of the fits that leave one size out."""
    leave_one_out: FloatArray
    """The floor with each size left out in turn, in order of size."""
    recipes: dict[str, float]
    """The floor by other common recipes, whose spread is part of what is not known."""
    compute: FloatArray
    loss: FloatArray
    pinned: bool
    """Whether the ladder pins the floor: at least 5 sizes, and an interval narrower than half the smallest R."""
    reason: str
    """Why it is or is not pinned, in words."""

    def predict(self, compute: FloatArray) -> FloatArray:
        """Final loss at a training compute."""
        return self.floor + self.amplitude * np.asarray(compute, dtype=np.float64) ** -self.exponent


def fit_floor(compute: FloatArray, loss: FloatArray, seeds: list[FloatArray] | None = None, seed: int = 0) -> FloorFit:
    """Fit the irreducible loss to S ends of a ladder.

    ``compute`` and ``loss`` are (S,), one entry a size with the mean end loss over its seeds; ``seeds`` holds each
    size's end losses, from which the means are resampled for the interval (left out where no size has two seeds).
    Raises ValueError for fewer than 4 sizes.
    """
    compute = np.asarray(compute, dtype=np.float64)
    loss = np.asarray(loss, dtype=np.float64)
    sizes = loss.size
    if sizes < MIN_SIZES:
        raise ValueError(f"the irreducible loss needs at least {MIN_SIZES} sizes; got {sizes}")
    centre = float(np.exp(np.mean(np.log(compute))))
    x = np.log(compute / centre)

    best = _global(x, loss)
    floor, log_amplitude, exponent = best.parameters[0]
    left_out = np.empty(sizes)
    for i in range(sizes):
        keep = np.arange(sizes) != i
        left_out[i] = _polish(x[keep], loss[keep][None], best.parameters).parameters[0, 0]
    ends = [left_out]
    if seeds is not None and any(s.size > 1 for s in seeds):
        draws = _resampled_means(loss, seeds, np.random.default_rng(seed))
        ends.append(np.quantile(_polish(x, draws, best.parameters).parameters[:, 0], [0.05, 0.95]))
    interval = (float(min(e.min() for e in ends)), float(max(e.max() for e in ends)))
    log_least_squares = _minimise(x, loss[None], _starts(x, loss), huber=None)
    raw_least_squares = _minimise(x, loss[None], _starts(x, loss), huber=None, raw=True)

    reducible = float(loss.min() - floor)
    width = interval[1] - interval[0]
    if sizes < PIN_SIZES:
        pinned, reason = False, f"{sizes} sizes, and a floor wants at least {PIN_SIZES}"
    elif width >= 0.5 * reducible:
        pinned = False
        reason = f"its interval is {width:.3g} wide, more than half of the smallest reducible loss ({reducible:.3g})"
    else:
        pinned = True
        reason = f"its interval is {width:.3g} wide, {width / reducible:.0%} of the smallest reducible loss"
    return FloorFit(
        floor=float(floor),
        amplitude=float(np.exp(log_amplitude) * centre**exponent),
        exponent=float(exponent),
        objective=float(best.objective[0]),
        gradient_norm=float(best.gradient_norm[0]),
        at_zero=bool(best.at_bound[0, 0]),
        interval=interval,
        leave_one_out=left_out,
        recipes={
            "least squares of log residuals": float(log_least_squares.parameters[log_least_squares.best(), 0]),
            "least squares of residuals": float(raw_least_squares.parameters[raw_least_squares.best(), 0]),
        },
        compute=compute,
        loss=loss,
        pinned=pinned,
        reason=reason,
    )


def point_fit(compute: FloatArray, loss: FloatArray) -> tuple[float, float, float, float]:
    """Floor, amplitude, exponent and objective alone, without the interval."""
    compute = np.asarray(compute, dtype=np.float64)
    centre = float(np.exp(np.mean(np.log(compute))))
    best = _global(np.log(compute / centre), np.asarray(loss, dtype=np.float64))
    floor, log_amplitude, exponent = best.parameters[0]
    return float(floor), float(np.exp(log_amplitude) * centre**exponent), float(exponent), float(best.objective[0])


def _global(x: FloatArray, loss: FloatArray) -> Solutions:
    """The best of many starts."""
    return search(_residuals(x, loss[None]), _starts(x, loss), *_bounds(loss[None]), huber=HUBER)


def _polish(x: FloatArray, loss: FloatArray, start: FloatArray) -> Solutions:
    """Fits of nearby data (B, S) from the optimum (1, 3) of the data at hand."""
    below = np.minimum(start[:, 0], 0.999 * loss.min(axis=1))  # a resample's lowest loss may lie under the floor
    starts = np.column_stack([below, np.broadcast_to(start[:, 1:], (loss.shape[0], 2))])
    return _minimise(x, loss, starts, huber=HUBER)


def _starts(x: FloatArray, loss: FloatArray) -> FloatArray:
    """For each of a few floors between zero and the lowest loss, the line through the log reducible losses."""
    floors = loss.min() * (1.0 - np.concatenate([[1.0], np.geomspace(0.8, 1e-3, 9)]))
    y = np.log(loss - floors[:, None])
    slope = (y * (x - x.mean())).sum(axis=1) / ((x - x.mean()) ** 2).sum()
    return np.column_stack([floors, y.mean(axis=1), -slope])


def _minimise(x: FloatArray, loss: FloatArray, start: FloatArray, huber: float | None, raw: bool = False) -> Solutions:
    """Fit floor, log amplitude and exponent to losses (B, S), or (1, S) shared by all B starts."""
    return minimise(_residuals(x, loss, raw), start, *_bounds(loss), huber=huber)


def _residuals(x: FloatArray, loss: FloatArray, raw: bool = False) -> Residuals:
    shared = loss.shape[0] == 1
    log_loss = np.log(loss)

    def residuals(p: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        reducible = np.exp(p[:, 1:2] - p[:, 2:3] * x)
        predicted = p[:, :1] + reducible
        jac = np.stack([np.ones_like(predicted), reducible, -reducible * x], axis=-1)
        if raw:
            return predicted - (loss if shared else loss[rows]), jac
        return np.log(predicted) - (log_loss if shared else log_loss[rows]), jac / predicted[:, :, None]

    return residuals


def _bounds(loss: FloatArray) -> tuple[FloatArray, FloatArray]:
    highest = loss.min(axis=1, keepdims=True) * (1.0 - 1e-9)
    upper = np.concatenate([highest, np.full_like(highest, 200.0), np.full_like(highest, 20.0)], axis=1)
    return np.array([0.0, -200.0, 0.0]), upper


def _resampled_means(loss: FloatArray, seeds: list[FloatArray], rng: np.random.Generator) -> FloatArray:
    """(draws, S) mean end losses as other seeds of the same sizes would have given."""
    draws = np.repeat(loss[None], DRAWS, axis=0)
    for i, ends in enumerate(seeds):
        if ends.size > 1:
            # As a factor: a mean loss stays above zero however far its seeds lie apart.
            draws[:, i] *= np.exp(mean_multipliers(rng, DRAWS, ends.size) @ (ends / ends.mean() - 1.0))
    return draws
