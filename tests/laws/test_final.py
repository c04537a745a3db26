from __future__ import annotations

import numpy as np
import pytest

from onecurve import OnecurveError, Run, Schedule
from onecurve.laws.estimate import training_compute
from onecurve.laws.final import FinalLoss
from onecurve.laws.law import planned
from onecurve.laws.score import calibrated
from onecurve.run import Curve

from .conftest import SIZES, ladder, named


def test_a_ladder_predicts_the_whole_curve_of_a_larger_run():
    law = FinalLoss.fit(ladder(noise=0.0))
    assert (law.floor, law.exponent) == (pytest.approx(1.0, rel=1e-3), pytest.approx(0.15, rel=2e-3))
    run = planned(256e6, 20 * 256e6, Schedule(shape="linear"))
    x = np.array([0.1, 0.3, 0.7, 1.0])
    end = 100.0 * (6.0 * run.config.n_params * run.end) ** -0.15
    np.testing.assert_allclose(law.predict(run, x * run.end), 1.0 + end * (1 + x**-0.4) / 2, rtol=1e-3)


def test_it_says_nothing_before_the_first_point_that_every_run_has():
    law = FinalLoss.fit(ladder())
    run = planned(1e8, 1e9)
    assert np.isnan(law.predict(run, [1e6])[0]) and np.isfinite(law.predict(run, [1e8])[0])


def test_a_training_loss_is_followed_without_the_lag_of_its_smoothing():
    made = ladder(noise=0.0, seeds=1)
    training = [Run(r.config, {"loss": Curve(c.x, c.loss, "training")}) for r in made for c in r.curves.values()]
    law = FinalLoss.fit(training)
    run, curve = training[2], training[2].curves["loss"]
    off = law.predict(run, curve.x[10:]) / curve.loss[10:] - 1
    assert np.abs(off).max() < 5e-3  # a trailing mean over 2 % would be 4 % off at x = .05


def test_fewer_sizes_give_less_and_say_so():
    three = FinalLoss.fit([r for r in ladder() if r.config.n_params < 5e6])
    assert three.floor == 0.0
    assert any("3 sizes cannot tell a floor" in w for w in three.report.warnings)
    with pytest.raises(OnecurveError, match="at least 2 sizes"):
        FinalLoss.fit([r for r in ladder() if r.config.n_params == SIZES[0]])


def test_a_floor_that_is_not_pinned_is_said_to_be():
    law = FinalLoss.fit([r for r in ladder(noise=5e-2) if r.config.n_params < 9e6])
    assert any("does not pin the floor" in w for w in law.report.warnings)


def test_a_law_counts_compute_as_its_runs_recorded_it():
    run = planned(1e6, 1e8)
    other = named(run, "a", compute=5e14)
    assert training_compute(run, False) == training_compute(other, False) == 6e14
    assert training_compute(other, True) == 5e14
    with pytest.raises(OnecurveError, match="this one records none; give it with --compute"):
        training_compute(run, True)
    with pytest.raises(OnecurveError, match="where x is 'steps'"):
        training_compute(planned(1e6, 1e4, x_name="steps"), False)
    assert training_compute(planned(1e6, 1e4, x_name="steps", batch_tokens=1e4), False) == 6e14


def test_an_own_unit_of_compute_is_kept():
    twice = [named(r, r.config.name, compute=r.six_n_d * 2) for r in ladder()]
    law, plain = FinalLoss.fit(twice), FinalLoss.fit(ladder())
    assert law.recorded and not plain.recorded
    asked = planned(32e6, 20 * 32e6)
    got = law.predict(named(asked, "b", compute=2 * asked.six_n_d), asked.end)
    assert float(got) == pytest.approx(float(plain.predict(asked, asked.end)), rel=1e-6)
    with pytest.raises(OnecurveError, match="give it with --compute"):
        law.predict(asked, asked.end)
    with pytest.raises(OnecurveError, match="1 of 10 runs record their compute"):
        FinalLoss.fit([*twice[:1], *ladder()[1:]])


def test_losses_that_rise_with_compute_are_said_to():
    best = [10.0, 11.0, 12.0]
    made = [
        Run(planned(n, 20 * n).config, {"v": Curve(np.array([n, 20 * n]), np.array([2 * y, y]), "held-out")})
        for n, y in zip(SIZES, best, strict=False)
    ]
    law = FinalLoss.fit(made)
    assert any("does not fall as compute grows" in w for w in law.report.warnings)
    assert "--" not in law.formula()


def test_a_loss_below_zero_has_no_power_law():
    made = [
        Run(r.config, {"v": Curve(c.x, c.loss - 9.0, "held-out")}) for r in ladder(seeds=1) for c in r.curves.values()
    ]
    with pytest.raises(OnecurveError, match="no logarithm"):
        FinalLoss.fit(made)


def test_far_beyond_the_ladder_the_band_knows_that_the_floor_is_not_known():
    runs = [r for r in ladder(noise=2e-3) if r.config.n_params < 9e6]
    law, _ = calibrated(FinalLoss.fit(runs), runs)

    def width(n):
        run = planned(n, 20 * n, Schedule(shape="linear"))
        low, high = law.interval(run, [run.end])
        return float(np.log(high / low)[0]), law.stretch(run)

    (near, near_stretch), (far, far_stretch) = width(16e6), width(16e9)
    assert near == pytest.approx(2 * near_stretch * law.band.half_width[-1])  # one step beyond, as was tried
    assert far > 1.5 * near * far_stretch / near_stretch
    low, high = law.interval(planned(16e9, 32e10), [32e10])
    assert low[0] < 1.0 + 100.0 * (6.0 * 16e9 * 32e10) ** -0.15 < high[0]


def test_sizes_of_one_compute_have_no_slope():
    runs = [
        Run(
            planned(n, 1e14 / n).config, {"v": Curve(np.array([0.5, 1.0]) * 1e14 / n, np.array([2.0, 1.9]), "held-out")}
        )
        for n in SIZES
    ]
    with pytest.raises(OnecurveError, match="5 sizes have nearly the same compute"):
        FinalLoss.fit(runs)
