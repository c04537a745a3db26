"""The divisor of a curve that has not ended, and how far its points tell it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from onecurve import OnecurveError
from onecurve.measure.align import align

X = np.linspace(0.05, 0.4, 71)
SHAPE = 0.3 * np.log(1.0 / X) + 0.1 * (1.0 - X)


def test_a_run_on_its_shape_ends_where_every_point_says():
    final = np.array([0.5, 2.0, 7.0])
    got = align(X, np.log(final)[:, None] + SHAPE, SHAPE)
    assert np.allclose(np.exp(got.log_divisor), final, rtol=1e-14)
    assert np.all(got.misfit < 1e-14) and np.all(got.error < 1e-14) and np.all(np.abs(got.slope) < 1e-13)
    assert got.points.tolist() == [71] * 3 and got.freedom.tolist() == [7] * 3


def test_weights_and_slope_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    y, w = rng.standard_normal((2, X.size)), rng.random((2, X.size))
    got = align(X, y, SHAPE, w)
    for row in range(2):
        design = np.stack([np.ones_like(X), np.log(X)], axis=1) * np.sqrt(w[row])[:, None]
        slope = np.linalg.lstsq(design, (y[row] - SHAPE) * np.sqrt(w[row]))[0][1]
        mean = np.average(y[row] - SHAPE, weights=w[row])
        assert got.slope[row] == pytest.approx(slope)
        assert got.log_divisor[row] == pytest.approx(mean)
        assert got.misfit[row] == pytest.approx(np.sqrt(np.average((y[row] - SHAPE - mean) ** 2, weights=w[row])))


@pytest.mark.parametrize(("memory", "weighted", "low"), [(0.0, 0, 0.885), (0.0, 1, 0.875), (0.5, 0, 0.86)])
def test_the_error_holds_for_noise_with_a_memory(memory, weighted, low):
    """Nominal 90 %, 4,000 runs (binomial standard error .5 %); a memory of two points at nine a stretch costs 3 %."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((4000, X.size + 50))
    for k in range(1, noise.shape[1]):
        noise[:, k] += memory * noise[:, k - 1]
    w = np.linspace(0.2, 1.0, X.size)
    scale = 0.01 / np.sqrt(w) if weighted else 0.01  # weights are inverse to variances
    got = align(X, 1.0 + SHAPE + scale * noise[:, 50:], SHAPE, w if weighted else None)
    inside = np.abs(got.log_divisor - 1.0) <= t.ppf(0.95, got.freedom) * got.error
    assert low < inside.mean() < 0.915


def test_a_misfit_that_grows_widens_the_error_and_has_a_slope():
    off = align(X, SHAPE + 0.1 * np.log(X), SHAPE)
    assert off.slope[0] == pytest.approx(0.1)
    assert off.error[0] > 0.01


def test_points_that_do_not_count_change_nothing():
    y = SHAPE.copy()
    y[[0, 9, 30]] = np.nan, np.inf, -np.inf
    rows = np.stack([y, SHAPE])
    w = np.ones_like(rows)
    w[:, 50:] = 0.0
    rows[:, 50:] = 99.0
    got = align(X, rows, SHAPE, w)
    assert got.points.tolist() == [47, 50]
    assert np.allclose(got.log_divisor, 0.0, atol=1e-14)
    alone = align(X[:50], SHAPE[:50] + 0.3, SHAPE[:50])
    beside = align(X, np.stack([SHAPE + 0.3, np.full_like(X, np.nan)]), SHAPE, w)
    assert beside.log_divisor[0] == pytest.approx(alone.log_divisor[0]) and beside.error[0] == alone.error[0]
    assert np.isnan(beside.log_divisor[1]) and np.isnan(beside.error[1]) and beside.points[1] == 0


@pytest.mark.parametrize(
    ("points", "told", "error"), [(0, False, False), (2, False, False), (3, True, False), (4, True, True)]
)
def test_few_points(points, told, error):
    w = np.zeros(X.size)
    w[:points] = 1.0
    got = align(X, SHAPE + 0.1 * X, SHAPE, w)
    assert np.isfinite(got.log_divisor[0]) == told
    assert np.isfinite(got.slope[0]) == told
    assert np.isfinite(got.error[0]) == error


def test_what_does_not_match_is_refused():
    with pytest.raises(OnecurveError, match=r"needs x \(G,\), losses \(n, G\)"):
        align(X[:5], SHAPE, SHAPE)
    with pytest.raises(OnecurveError, match="a weight is negative"):
        align(X, SHAPE, SHAPE, -np.ones_like(X))
