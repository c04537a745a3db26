"""Spread of curves over sizes and seeds: deviation, noise floor, and how far to trust them.

Everything here is a pure function of arrays. Rows are runs, sorted so that the runs of one size are together;
columns are training fractions. ``counts`` (S,) says how many runs each size has. Every size weighs equally,
however many seeds it has.

The definitions are those of Qiu et al. (arXiv 2507.02119, eqs. 2-4), with population variances:

- deviation  ``Delta^2 = [Var_sizes(mean over seeds) + mean_sizes(Var over seeds)] / mean^2`` of the normalised
  curves; this is the variance pooled over all runs when the design is balanced;
- noise floor  ``sigma^2 = mean_sizes(Var over seeds / mean over seeds ^2)`` of the *un-normalised* reducible loss.

The variance over seeds is averaged over the sizes that have at least two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onecurve.fit import FloatArray, IntArray


@dataclass(frozen=True)
class Moments:
    """Mean and population variance over seeds, for each size and fraction."""

    counts: IntArray
    mean: FloatArray
    """(S, G)"""
    variance: FloatArray
    """(S, G); zero for a size with one run."""

    @property
    def repeated(self) -> NDArray[np.bool_]:
        """(S,) whether a size has at least two runs."""
        return self.counts > 1


def moments(values: FloatArray, counts: IntArray) -> Moments:
    """Moments of rows (n, G) whose first counts[0] belong to the first size, and so on."""
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    k = counts[:, None]
    # Differences to each size's first run keep the squares small, so nothing is lost to cancellation.
    first = values[starts]
    mean = np.empty_like(first)
    variance = np.empty_like(first)
    for s, (start, count) in enumerate(zip(starts, counts, strict=True)):
        offset = values[start : start + count] - first[s]
        shift = offset.sum(axis=0) / count
        mean[s] = first[s] + shift
        offset -= shift
        variance[s] = np.einsum("kg,kg->g", offset, offset)
    return Moments(counts, mean, variance / k)


def centre(m: Moments) -> FloatArray:
    """(G,) mean over sizes of the mean over seeds."""
    return m.mean.mean(axis=0)


def between(m: Moments) -> FloatArray:
    """(G,) relative standard deviation over sizes of the mean over seeds."""
    return m.mean.std(axis=0) / centre(m)


def within(m: Moments, ddof: int = 0) -> FloatArray:
    """(G,) variance over seeds, averaged over the sizes with at least two; nan if there is none."""
    return _mean_repeated(m, m.variance, ddof)


def deviation(m: Moments, ddof: int = 0) -> FloatArray:
    """Delta (G,) of normalised curves; ddof 1 is the pooled sample variance n / (n - 1)."""
    n = int(m.counts.sum())
    variance = m.mean.var(axis=0) + np.nan_to_num(within(m))
    return np.sqrt(variance * (n / (n - ddof) if n > ddof else np.nan)) / centre(m)


def noise_floor(m: Moments, ddof: int = 0) -> FloatArray:
    """sigma (G,) of un-normalised reducible losses: root mean square over sizes; nan without repeated seeds."""
    return np.sqrt(_mean_repeated(m, m.variance / m.mean**2, ddof))


def noise_floor_by_size(m: Moments, ddof: int = 0) -> FloatArray:
    """sigma (S, G) of each size; nan for a size with one run."""
    k = m.counts[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(k > 1, np.sqrt(m.variance * k / (k - ddof)) / m.mean, np.nan)


def relative_spread(m: Moments) -> FloatArray:
    """(G,) standard deviation over sizes over the height of the mean curve above its end, ``std / (mean - 1)``.

    The deviation alone cannot tell a flat curve from a collapsed family; this can, and it needs no seeds. nan where
    the mean curve is not above 1.
    """
    height = centre(m) - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(height > 0, m.mean.std(axis=0) / height, np.nan)


def _mean_repeated(m: Moments, variance: FloatArray, ddof: int) -> FloatArray:
    if not m.repeated.any():
        return np.full(variance.shape[1], np.nan)
    k = m.counts[m.repeated, None]
    return (variance[m.repeated] * (k / (k - ddof))).mean(axis=0)


def mean_multipliers(rng: np.random.Generator, draws: int, seeds: int) -> NDArray[np.float32]:
    """(draws, seeds) weights that turn centred values of K seeds into errors of their mean.

    Gaussian weights that sum to zero, scaled so that ``weights @ (v - mean(v))`` has variance ``s^2 / K`` with the
    unbiased ``s^2``: a plain bootstrap of K seeds has only ``(K - 1) / K`` of that, half at two seeds.
    """
    g = rng.standard_normal((draws, seeds), np.float32)
    g -= g.mean(axis=1, keepdims=True)
    g /= np.float32(np.sqrt(seeds * (seeds - 1.0)))
    return g


def variance_multipliers(rng: np.random.Generator, draws: int, seeds: int) -> NDArray[np.float32]:
    """(draws, seeds) weights with mean 1 for squared deviations, so that their weighted sum varies as a variance does.

    Gamma weights with variance ``2 K (K + 1) / (3 (K - 1)^2)``: for normal data the weighted sum of squares of K seeds
    then has the relative variance ``2 / (K - 1)`` of a chi-squared, and at two seeds it is that chi-squared.
    """
    spread = 2.0 * seeds * (seeds + 1.0) / (3.0 * (seeds - 1.0) ** 2)
    weights = rng.standard_gamma(1.0 / spread, (draws, seeds), np.float32)
    weights *= np.float32(spread)
    return weights
