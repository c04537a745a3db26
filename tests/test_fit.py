from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import least_squares

from onecurve.fit import Solutions, minimise, project, search

X = np.linspace(0.0, 2.0, 12)


def decay(p, rows):
    """``a exp(-b x) + c`` against data that a test puts into ``decay.data``."""
    curve = np.exp(-p[:, 1:2] * X)
    jac = np.stack([curve, -p[:, :1] * X * curve, np.ones_like(curve)], axis=-1)
    return p[:, :1] * curve + p[:, 2:] - decay.data[rows], jac


def problem(seed: int, outliers: bool = False):
    random = np.random.default_rng(seed)
    truth = random.uniform([0.5, 0.3, -1.0], [3.0, 2.0, 1.0])
    data = truth[0] * np.exp(-truth[1] * X) + truth[2] + 0.01 * random.standard_normal(X.size)
    if outliers:
        data[[5, 9]] += [0.3, -0.2]
    return truth, data


LOWER, UPPER = np.array([0.0, 0.0, -5.0]), np.array([10.0, 10.0, 5.0])


@given(st.integers(0, 500), st.sampled_from([None, 0.02]))
def test_reaches_the_optimum_that_scipy_reaches(seed, huber):
    truth, data = problem(seed, outliers=huber is not None)
    decay.data = data[None]
    got = minimise(decay, truth[None] * 1.1, LOWER, UPPER, huber=huber, iterations=500)

    def residuals(p):
        return p[0] * np.exp(-p[1] * X) + p[2] - data

    loss = {"loss": "linear"} if huber is None else {"loss": "huber", "f_scale": huber}
    other = least_squares(residuals, truth * 1.1, bounds=(LOWER, UPPER), xtol=1e-15, ftol=1e-15, gtol=1e-15, **loss)
    assert got.objective[0] <= other.cost / X.size * (1 + 1e-6)
    if not other.active_mask.any() and not got.at_bound.any():
        np.testing.assert_allclose(got.parameters[0], other.x, rtol=2e-3, atol=2e-3)


def test_objective_is_the_mean_huber_loss():
    def constant(p, rows):
        return np.repeat(p, 3, axis=1), np.ones((p.shape[0], 3, 1))

    two = np.array([2.0])
    got = minimise(constant, two[None], two, two, huber=0.5)
    assert got.objective[0] == pytest.approx(0.5 * (2.0 - 0.25))
    assert minimise(constant, two[None], two, two).objective[0] == pytest.approx(2.0)
    assert got.at_bound[0, 0]
    assert got.gradient_norm[0] == 0.0


def test_problems_run_side_by_side_end_where_they_end_alone():
    data = np.stack([problem(seed)[1] for seed in range(8)])
    start = np.tile([1.0, 1.0, 0.0], (8, 1))
    decay.data = data
    together = minimise(decay, start, LOWER, UPPER)
    for i in range(8):
        decay.data = data[[i]]
        alone = minimise(decay, start[[i]], LOWER, UPPER)
        np.testing.assert_allclose(together.parameters[i], alone.parameters[0], rtol=1e-6, atol=1e-8)


def test_a_parameter_rests_at_its_bound():
    decay.data = (2.0 * np.exp(-X) - 1.0)[None]  # wants an offset below zero
    got = minimise(decay, np.array([[1.0, 1.0, 0.5]]), np.zeros(3), UPPER)
    assert got.at_bound[0].tolist() == [False, False, True]
    assert got.parameters[0, 2] == 0.0
    assert got.gradient_norm[0] < 1e-6
    free = minimise(decay, np.array([[1.0, 1.0, 0.5]]), LOWER, UPPER)
    assert free.parameters[0] == pytest.approx([2.0, 1.0, -1.0], rel=1e-6)


def test_bounds_may_differ_by_problem():
    decay.data = np.stack([problem(5)[1]] * 2)
    upper = np.array([[10.0, 10.0, 5.0], [10.0, 0.1, 5.0]])
    got = minimise(decay, np.ones((2, 3)), LOWER, upper)
    assert got.parameters[1, 1] == pytest.approx(0.1)
    assert got.objective[0] < got.objective[1]


def test_the_same_problem_gives_the_same_bytes():
    decay.data = problem(1)[1][None]
    ends = [minimise(decay, np.ones((1, 3)), LOWER, UPPER, huber=0.01).parameters.tobytes() for _ in range(2)]
    assert ends[0] == ends[1]


def test_a_start_without_a_value_is_never_the_best():
    objective = np.array([np.nan, 2.0, 1.0, np.inf])
    assert Solutions(np.zeros((4, 1)), objective, np.zeros(4), np.zeros((4, 1), dtype=bool), np.ones(4)).best() == 2


def test_parameters_that_the_data_tie_together_are_solved_all_the_same():
    def tied(p, rows):
        sums = p[:, :1] + p[:, 1:]
        return np.repeat(sums, 4, axis=1) - np.array([1.0, 1.0, 1.0, 1.1]), np.ones((p.shape[0], 4, 2))

    got = minimise(tied, np.array([[0.3, 5.0]]), np.full(2, -10.0), np.full(2, 10.0), iterations=500)
    assert got.parameters.sum() == pytest.approx(1.025, rel=1e-9)


def test_search_finds_the_best_of_many_starts():
    decay.data = problem(3)[1][None]
    starts = np.array([[a, b, c] for a in (0.1, 9.0) for b in (0.0, 9.0) for c in (-4.0, 4.0)])

    def one(p, rows):
        return decay(p, np.zeros(p.shape[0], dtype=int))

    got = search(one, starts, LOWER, UPPER)
    assert got.parameters.shape == (1, 3)
    assert got.objective[0] <= minimise(one, starts, LOWER, UPPER).objective.min() * (1 + 1e-9)


def test_linear_parameters_are_found_in_closed_form():
    basis = np.stack([np.stack([np.exp(-b * X), np.ones_like(X)], axis=-1) for b in (0.5, 1.0)])
    got = project(basis, 2.0 * np.exp(-X) + 3.0, np.zeros(2))
    np.testing.assert_allclose(got[1], [2.0, 3.0], rtol=1e-6)
    bounded = project(basis, 2.0 * np.exp(-X) + 3.0, np.array([0.0, 5.0]))
    assert np.all(bounded[:, 1] == 5.0)


def test_weights_count_points_as_often_as_they_say():
    data = problem(4, outliers=True)[1]
    decay.data = data[None]
    twice = np.ones((1, 12))
    twice[0, [2, 7]] = 2.0
    weighted = minimise(decay, np.ones((1, 3)), LOWER, UPPER, weights=twice, huber=0.05)
    order = [*range(12), 2, 7]

    def repeated(p, rows):
        r, jac = decay(p, rows)
        return r[:, order], jac[:, order]

    plain = minimise(repeated, np.ones((1, 3)), LOWER, UPPER, huber=0.05)
    np.testing.assert_allclose(weighted.parameters, plain.parameters, rtol=1e-6)
    assert weighted.objective[0] * 12 == pytest.approx(plain.objective[0] * 14, rel=1e-9)


def test_the_condition_number_tells_what_the_data_tie_together():
    decay.data = problem(5)[1][None]
    well = minimise(decay, np.ones((1, 3)), LOWER, UPPER)
    assert 1.0 < well.condition[0] < 1e3

    def tied(p, rows):
        sums = p[:, :1] + p[:, 1:] * (1.0 + 1e-9)
        return np.repeat(sums, 4, axis=1) - 1.0, np.ones((p.shape[0], 4, 2))

    assert minimise(tied, np.ones((1, 2)), np.full(2, -9.0), np.full(2, 9.0)).condition[0] > 1e7
