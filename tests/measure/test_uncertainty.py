from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from onecurve.measure.moments import deviation, moments, noise_floor
from onecurve.measure.uncertainty import experiments, noise_interval, size_test, window_ratio

GRID = np.linspace(0.02, 1.0, 25)
SIZES = 6


def family(random: np.random.Generator, seeds: int, between: float) -> np.ndarray:
    """Reducible losses with noise that partly lasts to the end, and sizes that differ by ``between`` noises."""
    end = 0.008 * random.standard_normal((SIZES * seeds, 1))
    walk = np.cumsum(random.standard_normal((SIZES * seeds, GRID.size)), axis=1)
    walk = 0.006 * (walk - walk[:, -1:]) / np.sqrt(GRID.size)
    effect = np.linspace(-1, 1, SIZES)[:, None] * np.sin(np.pi * GRID) * 0.01 * between
    return np.exp(np.repeat(-0.3 * np.log(GRID) + effect, seeds, axis=0) + end + walk)


@pytest.mark.parametrize("counts", [(2, 2), (5, 5, 5), (2, 1, 4)])
def test_noise_interval_is_the_chi_squared_one(counts):
    counts = np.array(counts)
    raw = moments(np.random.default_rng(0).uniform(1, 2, (counts.sum(), 3)), counts)
    dof = int((counts - 1).sum())
    sigma = noise_floor(raw, ddof=1)
    low, high = stats.chi2.ppf([0.05, 0.95], dof)
    np.testing.assert_allclose(
        noise_interval(raw), [sigma * np.sqrt(dof / high), sigma * np.sqrt(dof / low)], rtol=1e-9
    )


def test_noise_interval_holds_the_truth_nine_times_in_ten():
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        raw = moments(1.0 + 0.01 * random.standard_normal((8, 1)), np.array([2, 2, 2, 2]))
        low, high = noise_interval(raw)[:, 0]
        hits += low <= 0.01 <= high
    assert 0.87 < hits / 600 < 0.93


def test_without_repeated_seeds_there_is_no_interval():
    values = np.random.default_rng(0).uniform(1, 2, (3, 4))
    counts = np.array([1, 1, 1])
    m = moments(values, counts)
    assert np.isnan(noise_interval(m)).all()
    assert experiments(values, values, m, m, seed=0) is None
    assert size_test(values, counts) is None


@pytest.mark.parametrize("counts", [(3, 3, 3), (2, 1, 5), (2, 2), (1, 2), (4, 1, 1, 1)])
def test_size_test_is_the_one_way_analysis_of_variance(counts):
    counts = np.array(counts)
    curves = np.exp(0.1 * np.random.default_rng(0).standard_normal((counts.sum(), 7)))
    got = size_test(curves, counts)
    groups = np.split(np.log(curves).mean(axis=1), np.cumsum(counts)[:-1])
    expected = stats.f_oneway(*groups)
    assert got is not None
    assert got.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert got.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert got.dof == (len(counts) - 1, counts.sum() - len(counts))


@pytest.mark.parametrize("counts", [(1, 2), (2, 2), (5, 5), (2,) * 12, (1,) * 30 + (2,), (20,) * 3])
def test_smallest_difference_is_found_four_times_in_five(counts):
    counts = np.array(counts)
    curves = np.exp(0.1 * np.random.default_rng(1).standard_normal((counts.sum(), 3)))
    got = size_test(curves, counts)
    assert got is not None
    groups = np.split(np.log(curves).mean(axis=1), np.cumsum(counts)[:-1])
    noise = sum(((g - g.mean()) ** 2).sum() for g in groups) / got.dof[1]
    shift = counts.sum() * got.smallest_seen**2 / noise
    power = stats.ncf.sf(stats.f.ppf(0.95, *got.dof), *got.dof, shift)
    assert power == pytest.approx(0.80, abs=2e-3)


def test_curves_without_noise_differ_or_they_do_not():
    counts = np.array([2, 2])
    same = size_test(np.ones((4, 2)), counts)
    other = size_test(np.array([[2.0], [2.0], [1.0], [1.0]]), counts)
    assert same is not None
    assert other is not None
    assert (same.p_value, other.p_value) == (1.0, 0.0)


def test_experiments_are_the_same_for_the_same_seed():
    reducible = family(np.random.default_rng(0), 3, 0.5)
    ell, counts = reducible / reducible[:, -1:], np.full(SIZES, 3)
    m, raw = moments(ell, counts), moments(reducible, counts)
    first, again, other = (experiments(ell, reducible, m, raw, seed, draws=50) for seed in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    assert np.array_equal(first.deviation, again.deviation)
    assert not np.array_equal(first.deviation, other.deviation)


def test_one_size_with_a_single_seed_borrows_its_noise():
    reducible = family(np.random.default_rng(0), 3, 0.0)[2:]
    counts = np.array([1, 3, 3, 3, 3, 3])
    ell = reducible / reducible[:, -1:]
    exp = experiments(ell, reducible, moments(ell, counts), moments(reducible, counts), seed=0, draws=200)
    assert exp is not None
    assert np.isfinite(exp.deviation).all()
    assert np.isfinite(exp.noise_floor).all()
    assert 0.8 < np.median(exp.deviation[:, 10]) < 1.2


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_hold_the_truth_where_a_bootstrap_does_not(seeds):
    families, middle = 150, 12
    large = family(np.random.default_rng(1), 4000, 0.5)
    counts = np.full(SIZES, 4000)
    true_delta = deviation(moments(large / large[:, -1:], counts))[middle]
    true_sigma = noise_floor(moments(large, counts))[middle]
    random = np.random.default_rng(seeds)
    counts = np.full(SIZES, seeds)
    hits, plain = np.zeros(3), 0
    for i in range(families):
        reducible = family(random, seeds, 0.5)
        ell = reducible / reducible[:, -1:]
        m, raw = moments(ell, counts), moments(reducible, counts)
        exp = experiments(ell, reducible, m, raw, seed=i, draws=200)
        assert exp is not None
        delta, sigma = deviation(m, 1), noise_floor(raw, 1)
        intervals = (
            noise_interval(raw)[:, middle],
            exp.interval(delta, exp.deviation)[:, middle],
            exp.interval(delta / sigma, exp.ratio)[:, middle],
        )
        truths = (true_sigma, true_delta, true_delta / true_sigma)
        hits += [low <= truth <= high for (low, high), truth in zip(intervals, truths, strict=True)]
        picks = np.concatenate([s * seeds + random.integers(seeds, size=(50, seeds)) for s in range(SIZES)], axis=1)
        value = reducible[picks, middle].reshape(50, SIZES, seeds)
        boot = np.sqrt((value.var(axis=2) / value.mean(axis=2) ** 2).mean(axis=1))
        low, high = np.quantile(boot, [0.05, 0.95])
        plain += low <= true_sigma <= high
    assert (hits / families > 0.82).all(), hits / families
    assert (hits / families < 0.975).all(), hits / families
    assert plain / families < 0.75


def test_window_ratio_is_a_ratio_of_root_mean_squares():
    delta, sigma = np.array([[3.0, 4.0, 99.0], [0.0, 0.0, 99.0]]), np.array([1.0, 7.0, 99.0])
    assert window_ratio(delta, sigma, np.array([True, True, False])) == pytest.approx([np.sqrt(12.5 / 25.0), 0.0])
