"""Does a parameterisation do what it promises? Slopes of activations, and optimal learning rates, against size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onecurve.errors import OnecurveError
from onecurve.run import FloatArray, Run, human

BAND = 0.25
"""A slope of log activation against log size within +- this passes: a factor 1.7 over 8 times the size."""


@dataclass(frozen=True)
class Slope:
    """Least-squares slope of log y on log x with its 90 % interval (Student t; nan with fewer than three points)."""

    value: float
    low: float
    high: float


def log_slope(x: ArrayLike, y: ArrayLike) -> Slope:
    """The slope of log y on log x; x and y are equally long, positive vectors with at least two different x.

    Examples:
        >>> round(log_slope([1.0, 2.0, 4.0], [3.0, 6.0, 12.0]).value, 9)
        1.0
    """
    from scipy.stats import t as student

    u, v = np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    du = u - u.mean()
    value = float(du @ v / (du @ du))
    if u.size < 3:
        return Slope(value, float("nan"), float("nan"))
    residual = v - v.mean() - value * du
    half = float(student.ppf(0.95, u.size - 2) * np.sqrt(residual @ residual / (u.size - 2) / (du @ du)))
    return Slope(value, value - half, value + half)


@dataclass(frozen=True)
class Coordinates:
    """Root mean square of activations after a few steps, by what is scaled and where they were measured."""

    axis: str
    """``width`` or ``depth``."""
    sizes: FloatArray
    """(S,)"""
    values: Mapping[str, FloatArray]
    """Layer kind -> (S, seeds)."""
    steps: int

    @property
    def slopes(self) -> dict[str, Slope]:
        """Slope of each layer kind in log size, over all seeds; nan where a kind has an activation of zero."""
        out: dict[str, Slope] = {}
        for kind, values in self.values.items():
            ok = bool(np.all(np.isfinite(values) & (values > 0)))
            x = np.repeat(self.sizes, values.shape[1])
            out[kind] = log_slope(x, values.ravel()) if ok else Slope(float("nan"), float("nan"), float("nan"))
        return out

    @property
    def passes(self) -> dict[str, bool]:
        """Whether the slope of each layer kind lies within the band."""
        return {kind: bool(abs(slope.value) <= BAND) for kind, slope in self.slopes.items()}


@dataclass(frozen=True)
class BestRate:
    """The best base learning rate of one size."""

    n_params: float
    rates: FloatArray
    losses: FloatArray
    """(rates, seeds)"""
    value: float
    """Vertex of a parabola in log rate; nan where the best of the grid lies at its edge."""
    low: float
    high: float
    edge: str
    """``lower`` or ``upper`` where the best of the grid lies at its edge, else empty."""


NEAR = 3
"""Grid points on each side of the best one that the parabola is fitted to."""


def best_rate(n_params: float, rates: ArrayLike, losses: ArrayLike) -> BestRate:
    """The rate of least loss with its 90 % interval, from losses (rates, seeds) on a grid of at least four rates.

    A parabola in log rate through the points within `NEAR` grid steps of the best mean; the interval of its vertex is
    Fieller's, which is unbounded where the curvature is not sure. Losses that are not finite count as the worst.
    """
    from scipy.stats import t as student

    rate = np.asarray(rates, dtype=np.float64)
    loss = np.atleast_2d(np.asarray(losses, dtype=np.float64).T).T
    order = np.argsort(rate)
    rate, loss = rate[order], loss[order]
    mean = np.where(np.isfinite(loss), loss, np.inf).mean(axis=1)
    best = int(np.argmin(mean))
    nan = float("nan")
    if best == 0 or best == rate.size - 1:
        return BestRate(n_params, rate, loss, nan, nan, nan, "lower" if best == 0 else "upper")
    near = [k for k in range(max(0, best - NEAR), min(rate.size, best + NEAR + 1)) if np.isfinite(mean[k])]
    u = np.repeat(np.log(rate[near]) - np.log(rate[best]), loss.shape[1])
    v = loss[near].ravel()
    design = np.stack([np.ones_like(u), u, u**2], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    c = inverse @ design.T @ v
    if c[2] <= 0 or u.size < 4:
        return BestRate(n_params, rate, loss, float(rate[best]), nan, nan, "")
    vertex = -c[1] / (2.0 * c[2])
    freedom = u.size - 3
    variance = float(np.sum((v - design @ c) ** 2) / freedom) * inverse
    q = float(student.ppf(0.95, freedom)) ** 2
    # Fieller: the vertices w for which |c1 + 2 w c2| is within its error.
    a = 4.0 * (c[2] ** 2 - q * variance[2, 2])
    b = 4.0 * (c[1] * c[2] - q * variance[1, 2])
    d = c[1] ** 2 - q * variance[1, 1]
    root = b * b - 4.0 * a * d
    low, high = (
        (-np.inf, np.inf) if a <= 0 or root < 0 else sorted(((-b - root**0.5) / (2 * a), (-b + root**0.5) / (2 * a)))
    )
    at = rate[best]
    return BestRate(
        n_params, rate, loss, float(at * np.exp(vertex)), float(at * np.exp(low)), float(at * np.exp(high)), ""
    )


SAME = 1.5
"""Best rates within this factor count as the same: about half a step of a grid of factors 2."""


@dataclass(frozen=True)
class Transfer:
    """Whether the best base learning rate is the same at every size."""

    name: str
    sizes: tuple[BestRate, ...]

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Best rate of the largest size over the smallest's, with an interval (the logs' errors in quadrature)."""
        first, last = self.sizes[0], self.sizes[-1]
        centre = np.log(last.value / first.value)
        below = np.hypot(np.log(last.value / last.low), np.log(first.high / first.value))
        above = np.hypot(np.log(last.high / last.value), np.log(first.value / first.low))
        return float(np.exp(centre)), float(np.exp(centre - below)), float(np.exp(centre + above))

    @property
    def verdict(self) -> str:
        """``same`` within a factor 1.5, ``differs``, or ``cannot tell``."""
        value, low, high = self.ratio
        if not np.isfinite(value):
            return "differs" if {"lower", "upper"} <= {s.edge for s in self.sizes} else "cannot tell"
        if low > 1.0 / SAME and high < SAME:
            return "same"
        return "differs" if low > 1.0 or high < 1.0 else "cannot tell"


def transfer(runs: Sequence[Run], loss: str | None = None) -> list[Transfer]:
    """The best base learning rate of every size, from runs of a sweep over rates; one result a parameterisation.

    Raises OnecurveError where runs do not record a base learning rate, or no size has four of them.
    """
    for run in runs:
        if run.config.base_learning_rate is None:
            raise OnecurveError(f"{run.where}: records no base_learning_rate, so its sweep cannot be read")
    out: list[Transfer] = []
    for name in sorted({run.config.parameterisation or "" for run in runs}):
        of = [run for run in runs if (run.config.parameterisation or "") == name]
        sizes = [_size(n, [run for run in of if run.config.n_params == n], loss) for n in _sizes(of)]
        if len(sizes) < 2:
            raise OnecurveError(f"{name or 'the runs'}: one size only; transfer compares at least two")
        out.append(Transfer(name, tuple(sizes)))
    return out


def _sizes(runs: Sequence[Run]) -> list[float]:
    return sorted({run.config.n_params for run in runs})


def _size(n_params: float, runs: Sequence[Run], loss: str | None) -> BestRate:
    rates = sorted({run.config.base_learning_rate or 0.0 for run in runs})
    if len(rates) < 4:
        raise OnecurveError(
            f"N = {human(n_params)}: {len(rates)} learning rates; a best one needs at least 4, a factor 2 apart, say"
        )
    ends = [[_end(run, loss) for run in runs if run.config.base_learning_rate == rate] for rate in rates]
    seeds = min(map(len, ends))
    return best_rate(n_params, rates, [row[:seeds] for row in ends])


def _end(run: Run, loss: str | None) -> float:
    held_out = [name for name, curve in run.curves.items() if curve.kind == "held-out"]
    name = loss or (held_out or list(run.curves))[0]
    if name not in run.curves:
        raise OnecurveError(f"{run.where}: has no curve {name!r}; it has {', '.join(run.curves)}")
    return float(run.curves[name].loss[-1])
