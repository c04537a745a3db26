"""How far to trust Delta, sigma and their ratio when there are two to five seeds a size.

A plain bootstrap over so few seeds covers far too little. Here the resamples are *experiments*: the same sizes
with as many new seeds each, drawn by multiplying the centred curves with random weights of the right variance
(`mean_multipliers`, `variance_multipliers`). Whole curves are weighted, so errors keep their correlation along the
run and between the normalised and the un-normalised loss. An interval follows from the ratio of the re-estimated to
the true value in those experiments. Coverage at 2, 3 and 5 seeds is measured by ``benchmarks/coverage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onecurve.fit import FloatArray, IntArray
from onecurve.measure.moments import (
    Moments,
    centre,
    mean_multipliers,
    moments,
    noise_floor,
    variance_multipliers,
    within,
)

LEVEL = 0.90
DRAWS = 1000
_DRAWS_AT_ONCE = 100


@dataclass(frozen=True)
class Experiments:
    """Delta and sigma as re-estimated in simulated experiments, over their true values there."""

    deviation: FloatArray
    """(draws, G)"""
    noise_floor: FloatArray
    """(draws, G)"""

    @property
    def ratio(self) -> FloatArray:
        """(draws, G) Delta / sigma as re-estimated over its true value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.deviation / self.noise_floor

    def interval(self, estimate: FloatArray | float, ratios: FloatArray) -> FloatArray:
        """(2, ...) interval at `LEVEL` for an estimate whose re-estimates over truth are ``ratios`` (draws, ...)."""
        tail = (1.0 - LEVEL) / 2.0
        low, high = np.nanquantile(ratios, [tail, 1.0 - tail], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.stack([estimate / high, estimate / low])

    def window_ratios(self, delta: FloatArray, sigma: FloatArray, window: NDArray[np.bool_]) -> FloatArray:
        """(draws,) re-estimates over truth of `window_ratio`."""
        truth = window_ratio(delta, sigma, window)
        if not 0.0 < truth < np.inf:
            return np.ones(self.deviation.shape[0])  # without noise, or without spread, there is nothing to re-estimate
        return window_ratio(delta * self.deviation, sigma * self.noise_floor, window) / truth


def experiments(
    normalised: FloatArray, reducible: FloatArray, ell: Moments, raw: Moments, seed: int, draws: int = DRAWS
) -> Experiments | None:
    """Simulate experiments like the one at hand; None where no size has two seeds.

    ``normalised`` and ``reducible`` are the curves (n, G) before and after division by their own end, ``ell`` and
    ``raw`` their moments.
    """
    counts = ell.counts
    repeated = np.flatnonzero(counts > 1)
    if not repeated.size:
        return None
    rng = np.random.default_rng(seed)
    n, sizes = int(counts.sum()), counts.size
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    grid = normalised.shape[1]

    variance = within(ell, ddof=1)
    # Between-size variance without the part that seeds put into it; means are drawn in towards their centre so that
    # the simulated sizes differ by that much.
    noise_in_means = variance * (1.0 / counts).mean() * (1.0 - 1.0 / sizes)
    observed = ell.mean.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.sqrt(np.where(observed > 0, np.clip(1.0 - noise_in_means / observed, 0.0, 1.0), 0.0))
    middle = centre(ell)
    true_means = middle + shrink * (ell.mean - middle)
    true_deviation = np.sqrt(true_means.var(axis=0) + variance) / middle
    true_noise = noise_floor(raw, ddof=1)

    # Single precision is plenty for simulated errors, and the products below are most of a large collapse's time.
    def centred(curves: FloatArray, mean: FloatArray, s: np.intp) -> NDArray[np.float32]:
        return (curves[starts[s] : starts[s] + counts[s]] / mean[s] - 1.0).astype(np.float32)

    residual_ell = [centred(normalised, ell.mean, s) * ell.mean[s].astype(np.float32) for s in repeated]
    squares = [
        np.hstack([e * e, centred(reducible, raw.mean, s) ** 2]) for e, s in zip(residual_ell, repeated, strict=True)
    ]
    pooled_dof = float((counts[repeated] - 1).sum())

    out_deviation = np.empty((draws, grid))
    out_noise = np.empty((draws, grid))
    for first in range(0, draws, _DRAWS_AT_ONCE):
        some = min(_DRAWS_AT_ONCE, draws - first)
        means = np.repeat(true_means[None], some, axis=0)
        variance_sum = np.zeros((some, grid))
        noise_sum = np.zeros((some, grid))
        for i, s in enumerate(repeated):
            seeds = int(counts[s])
            means[:, s] += mean_multipliers(rng, some, seeds) @ residual_ell[i]
            sums = variance_multipliers(rng, some, seeds) @ squares[i]
            variance_sum += sums[:, :grid] / seeds
            noise_sum += sums[:, grid:] / (seeds - 1)
        for s in np.flatnonzero(counts == 1):
            # One seed: its error is borrowed from the seeds of the other sizes.
            for residual in residual_ell:
                z = rng.standard_normal((some, residual.shape[0]), np.float32)
                means[:, s] += z @ residual / np.sqrt(pooled_dof)
        spread = (means.var(axis=1) + variance_sum / repeated.size) * (n / (n - 1))
        rows = slice(first, first + some)
        with np.errstate(divide="ignore", invalid="ignore"):
            again = np.sqrt(spread) / means.mean(axis=1) / true_deviation
            out_deviation[rows] = np.where(true_deviation > 0, again, 1.0)  # at x = 1 there is no spread at all
            out_noise[rows] = np.where(true_noise > 0, np.sqrt(noise_sum / repeated.size) / true_noise, 1.0)
    return Experiments(out_deviation, out_noise)


def noise_interval(raw: Moments) -> FloatArray:
    """(2, G) chi-squared interval for sigma with the pooled degrees of freedom ``sum(K - 1)``."""
    from scipy.special import chdtri

    dof = float(np.maximum(raw.counts - 1, 0).sum())
    tail = (1.0 - LEVEL) / 2.0
    estimate = noise_floor(raw, ddof=1)
    if dof == 0:
        return np.full((2, estimate.size), np.nan)
    # chdtri(dof, p) is the value that a chi-squared exceeds with probability p.
    return estimate * np.sqrt(dof / np.array([[chdtri(dof, tail)], [chdtri(dof, 1.0 - tail)]]))


def window_ratio(delta: FloatArray, sigma: FloatArray, window: NDArray[np.bool_]) -> FloatArray:
    """Root mean square of Delta over that of sigma, over a window's fractions (last axis)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((delta[..., window] ** 2).mean(axis=-1) / (sigma[..., window] ** 2).mean(axis=-1))


@dataclass(frozen=True)
class SizeTest:
    """F test of differences between sizes against the noise of own-normalised curves, in one window."""

    statistic: float
    p_value: float
    dof: tuple[int, int]
    smallest_seen: float
    """Relative standard deviation over sizes that this ladder would have found with 80 % probability."""


def size_test(normalised: FloatArray, counts: IntArray, alpha: float = 0.05) -> SizeTest | None:
    """Do the sizes' mean normalised curves differ in a window (n, columns of the window)?

    One value a run, the mean log over the window; one-way analysis of variance. None without two seeds somewhere.
    """
    from scipy.optimize import brentq
    from scipy.special import fdtrc, fdtri, ncfdtr

    value = moments(np.log(normalised).mean(axis=1, keepdims=True), counts)
    n, sizes = int(counts.sum()), counts.size
    dof = (sizes - 1, n - sizes)
    if dof[0] < 1 or dof[1] < 1:
        return None
    means, sums = value.mean[:, 0], value.variance[:, 0] * counts
    grand = float((means * counts).sum() / n)
    noise = float(sums.sum() / dof[1])
    signal = float((counts * (means - grand) ** 2).sum() / dof[0])
    if noise == 0.0:
        return SizeTest(np.inf if signal > 0 else 0.0, 0.0 if signal > 0 else 1.0, dof, 0.0)
    threshold = float(fdtri(*dof, 1.0 - alpha))

    def missed(shift: float) -> float:
        """Probability of missing a shift of the means, above the 20 % that are allowed."""
        return float(ncfdtr(*dof, shift, threshold)) - 0.2

    high = 1.0
    while missed(high) > 0:  # a bracket from below: far above the root the distribution function is nan
        high *= 2.0
    shift: float = brentq(missed, high / 2.0 if high > 1.0 else 1e-6, high)  # pyright: ignore[reportAssignmentType]
    statistic = signal / noise
    return SizeTest(statistic, float(fdtrc(*dof, statistic)), dof, float(np.sqrt(shift * noise / n)))
