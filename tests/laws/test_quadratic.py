from __future__ import annotations

import numpy as np
import pytest

from onecurve import OnecurveError, Run, Schedule
from onecurve.laws.law import planned
from onecurve.laws.quadratic import (
    NoisyQuadratic,
    OwnNoise,
    decayed_at,
    smooth,
    transferred,
    transferred_curve,
    trend,
)

from .conftest import named, noisy, trained

CONSTANT = Schedule(shape="constant", warmup=0.02)
SHAPES = [Schedule(shape=s, warmup=0.02, decay_frac=d) for s, d in (("linear", 1.0), ("cosine", 1.0), ("linear", 0.2))]


def test_known_constants_come_back():
    law = NoisyQuadratic.fit([noisy(n, s) for n in (1e6, 4e6) for s in (CONSTANT, *SHAPES)])
    assert law.c == pytest.approx(0.25, rel=0.03)
    assert law.lag_share == pytest.approx(0.2, abs=0.05)
    assert law.path_power == pytest.approx(0.3, abs=0.03)


def test_a_schedule_that_was_never_seen_is_predicted_from_the_reference():
    law = NoisyQuadratic.fit([noisy(1e6, s, noise=2e-4) for s in (CONSTANT, *SHAPES)])
    run = noisy(1e6, Schedule(shape="quadratic", warmup=0.02))
    curve = run.curves["val_loss"]
    x = curve.x[40:]
    assert np.abs(law.predict(run, x) / curve.loss[40:] - 1).max() < 1e-3
    assert np.array_equal(law.predict(Run(run.config, {}), x), law.predict(run, x))  # from its settings alone


def test_beyond_the_references_it_says_nothing():
    law = NoisyQuadratic.fit([noisy(1e6, s) for s in (CONSTANT, SHAPES[0])])
    twice = planned(1e6, 4e9, SHAPES[0])
    value = law.predict(twice, np.array([0.1, 1.0]) * 4e9)
    assert np.isfinite(value[0]) and np.isnan(value[1])


def test_the_published_form_takes_the_runs_own_noise():
    runs = [noisy(1e6, s, a=0.0, b=0.0) for s in (CONSTANT, *SHAPES)]
    law = OwnNoise.fit(runs)
    assert law.c == pytest.approx(0.25, rel=1e-2)
    given = OwnNoise.fit(runs, c=0.21)
    assert given.c == 0.21
    run, curve = runs[1], runs[1].curves["val_loss"]
    base, slope = given.parts(run, curve.x)
    np.testing.assert_allclose(given.predict(run, curve.x), base + 0.21 * slope)
    assert np.all(slope <= 0)


def test_points_count_from_where_the_rate_has_decayed():
    run = planned(1e6, 1000.0, Schedule(shape="linear", warmup=0.1, decay_frac=0.5))
    x = np.array([0.05, 0.3, 0.5, 0.56, 0.9]) * 1000
    assert decayed_at(run, x).tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([noisy(1e6, SHAPES[0])], "none of the 1 runs has a constant rate"),
        (
            [noisy(1e6, CONSTANT), noisy(4e6, SHAPES[0])],
            "no constant-rate run of its size .4M. among the references; .* 1M",
        ),
        ([trained(planned(1e6, 1e9, CONSTANT), lambda x: 2 + 0 * x)], "does not log gradient_noise"),
        (
            [
                named(noisy(1e6, CONSTANT), "a", learning_rate=1e-3),
                named(noisy(1e6, CONSTANT), "b", learning_rate=2e-3),
            ],
            r"different peak learning rates \(0.001, 0.002\)",
        ),
        ([trained(planned(1e6, 1e9), lambda x: 2 + 0 * x)], "neither its schedule nor its learning rate"),
    ],
)
def test_what_cannot_be_a_reference_is_refused(runs, words):
    with pytest.raises(OnecurveError, match=words):
        NoisyQuadratic.fit(runs)


def test_a_reference_without_losses_is_refused():
    run = noisy(1e6, CONSTANT)
    curve = run.curves["val_loss"]
    run.curves["val_loss"] = type(curve)(curve.x, curve.loss * np.nan, curve.kind)
    with pytest.raises(OnecurveError, match="0 finite losses are too few for a reference"):
        OwnNoise.fit([run], c=0.25)


def test_c_cannot_come_from_constant_rates():
    with pytest.raises(OnecurveError, match="c cannot be fitted"):
        OwnNoise.fit([noisy(1e6, CONSTANT)])


def test_equation_18_is_one_line_and_21_its_ratio():
    reference, ratio, drop = np.array([2.0, 1.0]), np.array([0.4, 0.8]), np.array([-0.5, -1.0])
    got = transferred(reference, ratio, drop, c=0.25)
    np.testing.assert_allclose(got, [2 / 1.05, 1 / 1.2])
    np.testing.assert_allclose(transferred_curve(reference, ratio, drop, c=0.25), got / got[-1])


def test_smoothing_leaves_a_parabola_as_it_is_and_halves_noise():
    u = np.linspace(0.0, 1.0, 500)
    y = 1 + 2 * u - u**2
    at = np.linspace(0.05, 0.95, 7)
    np.testing.assert_allclose(smooth(u, y, at, 0.04), 1 + 2 * at - at**2, rtol=1e-6)
    noisy_y = y + 0.01 * np.random.default_rng(0).standard_normal(500)
    assert np.std(smooth(u, noisy_y, at, 0.04) - (1 + 2 * at - at**2)) < 0.004
    assert smooth(u[:3], y[:3], np.array([0.001]), 1e-4) == pytest.approx(np.interp(0.001, u, y))  # too few: a line


def test_a_trend_is_held_flat_where_it_is_not_known():
    u = np.linspace(0.0, 1.0, 100)
    got = trend(u, 3 * u, np.array([-1.0, 0.5, 1.0]))
    assert got[1:] == pytest.approx([1.5, 3.0])
    assert got[0] == pytest.approx(3 * u[5])
