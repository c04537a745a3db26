from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecurve.measure.moments import (
    between,
    centre,
    deviation,
    mean_multipliers,
    moments,
    noise_floor,
    noise_floor_by_size,
    relative_spread,
    variance_multipliers,
    within,
)


@st.composite
def designs(draw, fewest=1, balanced=False):
    """Positive curves (n, 4) that end anywhere, with the number of runs of each size."""
    sizes = draw(st.integers(2, 5))
    one = draw(st.integers(fewest, 4))
    counts = np.array(
        [one] * sizes if balanced else draw(st.lists(st.integers(fewest, 4), min_size=sizes, max_size=sizes))
    )
    values = st.lists(st.floats(0.1, 10.0), min_size=4, max_size=4)
    return np.array([draw(values) for _ in range(counts.sum())]), counts


def split(values, counts):
    return np.split(values, np.cumsum(counts)[:-1])


@given(designs())
def test_moments_are_those_of_each_size(design):
    values, counts = design
    m = moments(values, counts)
    np.testing.assert_allclose(m.mean, [v.mean(axis=0) for v in split(values, counts)], rtol=1e-13)
    np.testing.assert_allclose(m.variance, [v.var(axis=0) for v in split(values, counts)], rtol=1e-9, atol=1e-13)


def test_a_tiny_spread_on_a_large_mean_is_not_lost():
    noise = np.array([[1e-9], [-1e-9], [3e-9]])
    m = moments(np.repeat(3.0 + noise, 2, axis=0), np.array([6]))
    assert m.variance[0, 0] == pytest.approx(((3.0 + noise) - 3.0).var(), rel=1e-9)


@given(designs(fewest=2, balanced=True))
def test_deviation_of_a_balanced_design_is_the_pooled_one(design):
    values, counts = design
    m = moments(values, counts)
    np.testing.assert_allclose(deviation(m), values.std(axis=0) / values.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(deviation(m, 1), values.std(axis=0, ddof=1) / values.mean(axis=0), rtol=1e-9, atol=1e-12)


@given(designs(fewest=2))
def test_variance_is_that_between_sizes_plus_that_within(design):
    values, counts = design
    m = moments(values, counts)
    total = (deviation(m) * centre(m)) ** 2
    np.testing.assert_allclose(total, (between(m) * centre(m)) ** 2 + within(m), rtol=1e-9, atol=1e-13)


@given(designs(fewest=2), st.floats(1e-6, 1e6))
def test_relative_measures_do_not_feel_the_unit(design, unit):
    values, counts = design
    m, scaled = moments(values, counts), moments(unit * values, counts)
    for measure in (deviation, noise_floor, between):
        np.testing.assert_allclose(measure(scaled), measure(m), rtol=1e-7, atol=1e-12)


@given(designs(fewest=2), st.randoms(use_true_random=False))
def test_the_order_of_the_seeds_does_not_matter(design, random):
    values, counts = design
    parts = split(values, counts)
    shuffled = np.concatenate([part[random.sample(range(len(part)), len(part))] for part in parts])
    for measure in (deviation, noise_floor, between, within, relative_spread):
        np.testing.assert_allclose(
            measure(moments(shuffled, counts)), measure(moments(values, counts)), rtol=1e-9, atol=1e-13, equal_nan=True
        )


def test_every_size_weighs_the_same_however_many_seeds_it_has():
    # Means 1 and 3, variances 0 (one run) and 2/3 (of 2, 3, 4).
    m = moments(np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1, 3]))
    assert centre(m)[0] == 2.0
    assert between(m)[0] == 0.5
    assert within(m)[0] == pytest.approx(2 / 3)
    assert within(m, ddof=1)[0] == pytest.approx(1.0)
    assert deviation(m)[0] == pytest.approx(np.sqrt(1.0 + 2 / 3) / 2)
    assert deviation(m, 1)[0] == pytest.approx(np.sqrt((1.0 + 2 / 3) * 4 / 3) / 2)
    assert noise_floor(m)[0] == pytest.approx(np.sqrt((2 / 3) / 9))


def test_noise_is_averaged_over_the_sizes_with_seeds_alone():
    # Relative variances: 1/9 (of 1, 2), none (a single run), 1/25 (of 4, 6).
    m = moments(np.array([[1.0], [2.0], [7.0], [4.0], [6.0]]), np.array([2, 1, 2]))
    assert noise_floor(m)[0] == pytest.approx(np.sqrt((1 / 9 + 1 / 25) / 2))
    assert noise_floor(m, 1)[0] == pytest.approx(np.sqrt((2 / 9 + 2 / 25) / 2))
    by_size = noise_floor_by_size(m)[:, 0]
    assert by_size[[0, 2]] == pytest.approx([1 / 3, 1 / 5])
    assert np.isnan(by_size[1])
    assert noise_floor_by_size(m, 1)[0, 0] == pytest.approx(np.sqrt(2) / 3)


def test_without_repeated_seeds_there_is_no_noise_but_a_deviation():
    m = moments(np.array([[1.0], [3.0]]), np.array([1, 1]))
    assert np.isnan(noise_floor(m)).all()
    assert np.isnan(within(m)).all()
    assert np.isnan(noise_floor_by_size(m)).all()
    assert deviation(m)[0] == 0.5


def test_relative_spread_is_over_the_height_above_the_end():
    m = moments(np.array([[1.4, 1.0, 0.8], [1.6, 1.0, 0.9]]), np.array([1, 1]))
    spread = relative_spread(m)
    assert spread[0] == pytest.approx(0.1 / 0.5)
    assert np.isnan(spread[1:]).all()  # no height to compare with


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_mean_multipliers_have_the_variance_of_a_mean(seeds):
    weights = mean_multipliers(np.random.default_rng(0), 200_000, seeds)
    values = np.random.default_rng(1).standard_normal(seeds)
    errors = weights @ (values - values.mean())
    np.testing.assert_allclose(weights.sum(axis=1), 0.0, atol=1e-5)
    assert errors.mean() == pytest.approx(0.0, abs=0.01 * values.std(ddof=1))
    assert errors.var() == pytest.approx(values.var(ddof=1) / seeds, rel=0.02)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_variance_multipliers_give_normal_seeds_the_variance_of_a_chi_squared(seeds):
    random = np.random.default_rng(0)
    weights = variance_multipliers(random, 400_000, seeds)
    assert weights.mean() == pytest.approx(1.0, rel=0.01)
    assert weights.var() == pytest.approx(2 * seeds * (seeds + 1) / (3 * (seeds - 1) ** 2), rel=0.03)
    normal = random.standard_normal((400_000, seeds))
    squares = (normal - normal.mean(axis=1, keepdims=True)) ** 2
    sums = (weights * squares).sum(axis=1) / squares.sum(axis=1)
    # Given the squares, the weighted sum over the plain one has mean 1 and, on average over samples, 2 / (K - 1).
    assert sums.mean() == pytest.approx(1.0, abs=0.01)
    assert sums.var() == pytest.approx(2 / (seeds - 1), rel=0.03)
