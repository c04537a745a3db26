from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from onecurve.measure.floor import HUBER, fit_floor, point_fit

COMPUTE = np.geomspace(1e18, 1e21, 7)


def huber(residual):
    size = np.abs(residual)
    return np.mean(np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2)))


@given(st.floats(0.0, 3.0), st.floats(0.05, 0.5), st.floats(0.05, 3.0))
def test_an_exact_power_law_gives_its_floor_back(floor, exponent, end):
    amplitude = end * COMPUTE[-1] ** exponent
    loss = floor + amplitude * COMPUTE**-exponent
    fit = fit_floor(COMPUTE, loss)
    assert fit.floor == pytest.approx(floor, abs=1e-8 * max(1.0, loss[0]))
    assert fit.exponent == pytest.approx(exponent, rel=1e-6)
    np.testing.assert_allclose(fit.predict(COMPUTE), loss, rtol=1e-9)
    assert fit.objective < 1e-18


@settings(max_examples=15)
@given(st.integers(0, 200))
def test_no_start_of_scipy_finds_a_lower_objective(seed):
    random = np.random.default_rng(seed)
    floor = random.uniform(0, 2)
    loss = (floor + 30 * COMPUTE**-0.08) * np.exp(0.003 * random.standard_normal(COMPUTE.size))
    got = point_fit(COMPUTE, loss)
    assert huber(np.log(got[0] + got[1] * COMPUTE ** -got[2]) - np.log(loss)) == pytest.approx(got[3], rel=1e-6)
    x = np.log(COMPUTE / COMPUTE[3])

    def residuals(p):
        return np.log(p[0] + np.exp(p[1] - p[2] * x)) - np.log(loss)

    for start in (0.0, 0.5, 0.9):
        p0 = [start * loss.min(), np.log(loss[3] - start * loss.min()), 0.1]
        other = least_squares(residuals, p0, bounds=([0, -50, 0], [loss.min(), 50, 20]), loss="huber", f_scale=HUBER)
        assert got[3] <= other.cost / loss.size * (1 + 1e-6) + 1e-18


@settings(max_examples=10)
@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e6))
def test_units_of_loss_and_compute_scale_out(unit, compute_unit):
    loss = 1.0 + 5e3 * COMPUTE**-0.2 * np.exp([0.01, -0.01, 0.0, 0.005, 0.0, -0.003, 0.002])
    plain, scaled = fit_floor(COMPUTE, loss), fit_floor(compute_unit * COMPUTE, unit * loss)
    assert scaled.floor == pytest.approx(unit * plain.floor, rel=1e-5)
    assert scaled.exponent == pytest.approx(plain.exponent, rel=1e-5)


def test_a_loss_that_falls_faster_than_any_floor_allows_is_held_at_zero():
    loss = 1e3 * COMPUTE**-0.1 * np.exp(-0.02 * np.log(COMPUTE / COMPUTE[0]) ** 2 / 7)
    fit = fit_floor(COMPUTE, loss)
    assert fit.at_zero
    assert fit.floor == 0.0
    assert fit.gradient_norm == pytest.approx(0.0, abs=1e-9)


def test_the_interval_spans_the_fits_that_leave_one_size_out():
    loss = 2.0 + 5e3 * COMPUTE**-0.2 * np.exp([0.01, -0.01, 0.0, 0.005, 0.0, -0.003, 0.002])
    fit = fit_floor(COMPUTE, loss)
    assert fit.interval == (fit.leave_one_out.min(), fit.leave_one_out.max())
    for i in (0, 3, 6):
        keep = np.arange(COMPUTE.size) != i
        assert fit.leave_one_out[i] == pytest.approx(point_fit(COMPUTE[keep], loss[keep])[0], rel=1e-4)


def test_seed_noise_widens_the_interval():
    law = 2.0 + 5e3 * COMPUTE**-0.2
    random = np.random.default_rng(0)
    seeds = [v * (1 + 0.01 * random.standard_normal(3)) for v in law]
    loss = np.array([s.mean() for s in seeds])
    without, with_seeds = fit_floor(COMPUTE, loss), fit_floor(COMPUTE, loss, seeds)
    assert with_seeds.floor == without.floor
    assert with_seeds.interval[0] <= without.interval[0]
    assert with_seeds.interval[1] >= without.interval[1]
    assert with_seeds.interval != without.interval
    assert fit_floor(COMPUTE, loss, seeds).interval == with_seeds.interval


def test_a_short_ladder_or_a_wide_interval_does_not_pin_the_floor():
    law = 2.0 + 5e3 * COMPUTE**-0.2
    assert fit_floor(COMPUTE, law).pinned
    four = fit_floor(COMPUTE[:4], law[:4])
    assert not four.pinned
    assert "4 sizes" in four.reason
    noisy = fit_floor(COMPUTE, law * np.exp(0.05 * np.array([1, -1, 1, -1, 1, -1, 1])))
    assert not noisy.pinned
    assert "more than half" in noisy.reason


def test_fewer_than_four_sizes_cannot_be_fitted():
    with pytest.raises(ValueError, match="at least 4 sizes; got 3"):
        fit_floor(COMPUTE[:3], np.array([3.0, 2.0, 1.5]))


def test_wide_ranges_of_compute_give_no_overflow():
    compute = np.geomspace(1e3, 1e27, 8)
    assert fit_floor(compute, 1.7 + 50 * compute**-0.1).floor == pytest.approx(1.7, rel=1e-7)


def test_a_loss_that_rises_with_compute_is_fitted_flat():
    fit = fit_floor(COMPUTE, np.linspace(1.0, 2.0, 7))
    assert np.isfinite([fit.floor, fit.amplitude, fit.exponent, fit.objective]).all()
    assert fit.exponent == pytest.approx(0.0, abs=1e-6)


def test_the_point_fit_takes_milliseconds():
    loss = 2.0 + 5e3 * COMPUTE**-0.2 * np.exp([0.01, -0.01, 0.0, 0.005, 0.0, -0.003, 0.002])
    took = []
    for _ in range(5):
        began = time.process_time()
        point_fit(COMPUTE, loss)
        took.append(time.process_time() - began)
    assert min(took) < 0.2  # 50 ms on an idle machine
