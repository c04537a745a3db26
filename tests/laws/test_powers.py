from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecurve import OnecurveError, Schedule
from onecurve.laws.law import planned
from onecurve.laws.powers import SumOfPowers, Terms, size_curves

from .conftest import NOTHING, SIZES, constant, named, of_law, trained

TRUE = SumOfPowers(NOTHING, 30.0, 0.3, 60.0, 0.35, 1.0)
DECADES = 10.0 ** np.arange(1, 10)
TWO = Terms(np.ones(2), np.array([0.5, 0.0]), np.array([0.0, 0.5]))
THREE = Terms(np.ones(3), np.array([0.0, 1.0333333, 0.1666667]), np.array([1.2, 0.0, 1.0]))


def runs(noise=0.0, sizes=SIZES):
    return of_law(TRUE, [constant(n, 50 * n) for n in sizes], noise)


def test_a_known_law_gives_its_constants_back():
    law = SumOfPowers.fit(runs())
    for name in ("n_amplitude", "n_exponent", "t_amplitude", "t_exponent", "floor"):
        assert getattr(law, name) == pytest.approx(getattr(TRUE, name), rel=2e-3), name
    assert law.gamma == pytest.approx(0.3 / 0.35, rel=1e-3)


def test_intervals_hold_the_truth_of_a_noisy_ladder():
    law = SumOfPowers.fit(runs(noise=3e-3))
    for name, (low, high) in law.report.intervals.items():
        assert low < high and low - 0.5 * (high - low) <= getattr(TRUE, name) <= high + 0.5 * (high - low), name


# N = 10 ... 1e9 in decades, t* = N^gamma: mean and relative spread over sizes of the normalised curve at x = .1 and .5.
@pytest.mark.parametrize(
    ("gamma", "tenth", "tenth_spread", "half", "half_spread"),
    [
        (0.9, 2.37797152, 6.170e-2, 1.26396910, 2.224e-2),
        (1.0, 2.08113883, 0.0, 1.20710678, 0.0),
        (1.1, 1.78430614, 8.223e-2, 1.15024446, 2.443e-2),
    ],
)
def test_two_power_laws_collapse_at_the_ratio_of_their_exponents_alone(gamma, tenth, tenth_spread, half, half_spread):
    for x, mean, spread in ((0.1, tenth, tenth_spread), (0.5, half, half_spread)):
        curve = TWO.curve(x, DECADES, gamma)
        assert curve.mean() == pytest.approx(mean, rel=1e-8)
        assert curve.std() / curve.mean() == pytest.approx(spread, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize(
    ("gamma", "tenth", "tenth_spread", "half", "half_spread"),
    [
        (1.0384615, 7.29026584, 0.1908, 1.68698343, 8.512e-2),
        (1.1538462, 4.52090109, 1.118e-2, 1.40101814, 4.110e-3),
        (1.2692308, 2.60470820, 0.2764, 1.20029118, 6.281e-2),
    ],
)
def test_a_third_term_leaves_a_spread_that_the_sizes_forget(gamma, tenth, tenth_spread, half, half_spread):
    for x, mean, spread in ((0.1, tenth, tenth_spread), (0.5, half, half_spread)):
        curve = THREE.curve(x, DECADES, gamma)
        assert curve.mean() == pytest.approx(mean, rel=2e-6)
        assert curve.std() / curve.mean() == pytest.approx(spread, rel=2e-3)


@given(st.floats(0.1, 2.0), st.floats(0.1, 2.0), st.floats(0.1, 10.0))
def test_the_universal_curve_is_exact_where_all_terms_are_tied(mu, nu, kappa):
    terms = Terms(np.array([2.0, 0.7]), np.array([mu, 0.0]), np.array([0.0, nu]))
    x = np.array([0.1, 0.3, 1.0])
    curve, gap = terms.universal(x, nu / mu, kappa)
    assert gap == np.inf and curve[-1] == pytest.approx(1.0)
    for n in (1e2, 1e6):
        np.testing.assert_allclose(terms.curve(x, n, nu / mu, kappa), curve, rtol=1e-9)


def test_sizes_tend_to_the_universal_curve_as_the_gap_says():
    terms = Terms(np.ones(3), np.array([0.5, 0.0, 0.2]), np.array([0.0, 0.5, 0.6]))
    curve, gap = terms.universal(0.1, 1.0)
    assert gap == pytest.approx(0.3)
    off = [abs(float(terms.curve(0.1, n, 1.0) - curve)) for n in (1e8, 1e10)]
    assert np.log(off[0] / off[1]) / np.log(100) == pytest.approx(gap, abs=0.02)


def test_the_law_implies_the_horizon_and_the_curve_at_which_its_sizes_collapse():
    n = np.array([1e6, 1e8])
    end = TRUE.optimal_horizon(n)
    # Both terms fall equally fast there: alpha A N^-alpha = beta B t^-beta.
    np.testing.assert_allclose(0.3 * 30 * n**-0.3, 0.35 * 60 * end**-0.35, rtol=1e-12)
    x = np.array([0.1, 0.4, 1.0])
    for size, t in zip(n, end, strict=True):
        run = constant(size, t)
        curve = (TRUE.predict(run, x * t) - 1.0) / (TRUE.predict(run, [t]) - 1.0)
        np.testing.assert_allclose(curve, TRUE.universal(x), rtol=1e-12)


def test_seeds_of_a_size_are_averaged_and_counted():
    seeds = [
        named(trained(constant(n, 50 * n), lambda x, v=v: v + 0 * x), f"{n}{v}") for n in SIZES for v in (1.0, 3.0)
    ]
    points = size_curves(seeds, None, (0.1, 1.0))
    assert points.loss == pytest.approx(2.0)
    assert points.dropped["runs averaged with the first of their size"] == 5
    assert points.x.size == 60 * 5


def test_one_size_cannot_tell_a_floor_from_its_own_term():
    with pytest.raises(OnecurveError, match=r"at least 3 sizes.*got 2 \(1M, 2M\)"):
        SumOfPowers.fit(runs(sizes=SIZES[:2]))


def test_a_size_that_ends_before_the_window_is_left_out_and_named():
    short = named(trained(constant(32e6, 32e10), lambda x: 2.0 + 0 * x), "short")
    cut = short.curves["val_loss"]
    short.curves["val_loss"] = type(cut)(cut.x[:10], cut.loss[:10], cut.kind)
    law = SumOfPowers.fit([*runs(), short])
    assert law.report.dropped["sizes that end before the window"] == 1
    with pytest.raises(OnecurveError, match="32M end before"):
        SumOfPowers.fit([*runs(sizes=SIZES[:2]), short])


def test_decayed_runs_are_no_part_of_it():
    decayed = named(trained(planned(1e6, 5e7, Schedule(shape="cosine")), lambda x: 2.0 + 0 * x), "cos")
    with pytest.raises(OnecurveError, match="run 'cos': its cosine schedule is not constant"):
        SumOfPowers.fit([*runs(), decayed])
    with pytest.raises(OnecurveError, match="choose constant runs"):
        TRUE.predict(decayed, [1e7])


@pytest.mark.parametrize("change", [lambda v: v * np.nan, lambda v: v - 100.0])
def test_curves_without_a_logarithm_are_refused(change):
    made = runs()
    curve = made[0].curves["val_loss"]
    made[0].curves["val_loss"] = type(curve)(curve.x, change(curve.loss), curve.kind)
    with pytest.raises(OnecurveError, match="size 1M"):
        SumOfPowers.fit(made)
