"""Laws of the normalised curve: moving average, tokens per parameter, surrogate."""

from __future__ import annotations

import numpy as np
import pytest

from onecurve import OnecurveError, Schedule
from onecurve.controls import timescale
from onecurve.laws.averaging import MovingAverage, modes
from onecurve.laws.law import planned
from onecurve.laws.path import path_of
from onecurve.laws.shape import TokensPerParameter
from onecurve.laws.surrogate import Surrogate

from .conftest import NOTHING, at_timescale, constant, named, of_law, trained

TAUS = (0.05, 0.1, 0.2, 0.4)


@pytest.mark.parametrize("tau", [1e-3, 0.05, 0.3, 3.0])
def test_at_a_constant_rate_the_mode_is_equation_3(tau):
    path = path_of(at_timescale(tau, "constant"))
    left, noise = modes(path, tau)
    x = path.x / path.x[-1]
    np.testing.assert_allclose(left, np.exp(-2 * x / tau), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(noise, (1 - np.exp(-2 * x / tau)) / (2 * tau), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", ["linear", "cosine", "multicosine"])
def test_under_a_schedule_the_mode_is_the_average_summed_step_by_step(shape):
    tau, steps = 0.1, 20_000
    path = path_of(at_timescale(tau, shape))
    rate = 0.5 * (path.s[1:] + path.s[:-1]) / (tau * steps)  # of the moving average, at each of as many steps
    start, noise = 1.0, 0.0
    for r in rate:
        start *= (1 - r) ** 2
        noise = (1 - r) ** 2 * noise + r * r * steps  # white noise: its variance a unit of time is 1
    left, summed = modes(path, tau)
    assert left[-1] == pytest.approx(start, rel=2e-2)
    assert summed[-1] == pytest.approx(noise, rel=2e-3)


def test_decay_turns_the_order_of_timescales_round():
    law = MovingAverage(NOTHING, 20.0, 0.0)
    half = {s: [law.predict(at_timescale(t, s), [1e9])[0] for t in (0.1, 0.2, 0.4)] for s in ("constant", "linear")}
    assert half["constant"] == sorted(half["constant"])  # the short timescale lies below
    assert half["linear"] == sorted(half["linear"], reverse=True)  # and above, where the rate decays to 0


def test_the_moving_average_gives_its_constants_back():
    true = MovingAverage(NOTHING, 20.0, 2.0)
    runs = of_law(true, [at_timescale(t, s) for t in TAUS for s in ("constant", "linear")])
    law = MovingAverage.fit(runs)
    assert (law.start, law.rest) == (pytest.approx(20.0, rel=1e-3), pytest.approx(2.0, rel=1e-3))


def test_a_timescale_needs_its_settings():
    assert timescale(at_timescale(0.07)) == pytest.approx(0.07)
    with pytest.raises(OnecurveError, match="needs batch_tokens, learning_rate and weight_decay"):
        timescale(planned(1e6, 1e9))
    for rate, decay, name in ((1e-3, 0.0, "weight_decay"), (0.0, 0.1, "learning_rate")):
        with pytest.raises(OnecurveError, match=f"its {name} is 0"):
            timescale(planned(1e6, 1e9, batch_tokens=1e4, learning_rate=rate, weight_decay=decay))


def test_one_timescale_says_nothing_of_others():
    runs = of_law(MovingAverage(NOTHING, 20.0, 2.0), [at_timescale(0.1)])
    with pytest.raises(OnecurveError, match="at least 2 timescales"):
        MovingAverage.fit(runs)


def test_tokens_per_parameter_give_their_constants_back():
    true = TokensPerParameter(NOTHING, 0.35, 20.0)
    runs = of_law(true, [constant(1e6, v * 1e6) for v in (5.0, 20.0, 80.0)], 1e-3)
    law = TokensPerParameter.fit(runs)
    assert law.exponent == pytest.approx(0.35, rel=0.05)
    assert law.optimum == pytest.approx(20.0, rel=0.2)
    low, high = law.report.intervals["optimum"]
    assert 0 < low < law.optimum < high


def test_an_optimum_beyond_the_data_is_said_to_be():
    true = TokensPerParameter(NOTHING, 0.35, 400.0)
    law = TokensPerParameter.fit(of_law(true, [constant(1e6, v * 1e6) for v in (5.0, 20.0, 80.0)]))
    assert law.optimum == pytest.approx(400.0, rel=1e-3)
    assert any("lies outside those that were run (5 to 80)" in w for w in law.report.warnings)


def test_tokens_per_parameter_need_two_and_a_constant_rate():
    true = TokensPerParameter(NOTHING, 0.35, 20.0)
    with pytest.raises(OnecurveError, match="at 2 tokens per parameter or more, a tenth apart; got 1"):
        TokensPerParameter.fit(of_law(true, [constant(1e6, 2e7)]))
    with pytest.raises(OnecurveError, match="linear schedule is not constant"):
        TokensPerParameter.fit([trained(at_timescale(0.1), lambda x: 2 + 0 * x)])


TRUE = Surrogate(NOTHING, 0.05, 0.08, -0.4, 3.0, -0.25, 0.0, 0.0)
SWEEP = [at_timescale(t, tokens_per_param=r, warmup=0.1) for t in TAUS for r in (20.0, 80.0, 320.0)]


@pytest.mark.parametrize("power", [0.05, 0.2])
def test_the_surrogate_gives_its_constants_back(power):
    true = Surrogate(NOTHING, power, 0.08, -0.4, 3.0, -0.25, 0.0, 0.0)
    law = Surrogate.fit(of_law(true, SWEEP))
    for name in ("power", "b_scale", "b_exponent", "q_scale", "q_exponent"):
        assert getattr(law, name) == pytest.approx(getattr(true, name), rel=1e-6), name
    assert law.error < 1e-9
    assert law.oracle < 1e-6


def test_the_oracle_is_below_the_fit_and_above_the_noise():
    law = Surrogate.fit(of_law(TRUE, SWEEP, noise=3e-3))
    assert 0.5e-3 < law.oracle <= law.error < 6e-3
    low, high = law.report.intervals["b_exponent"]
    assert low < -0.4 < high and high - low < 0.3


def test_a_power_that_is_held_stays():
    other = Surrogate(NOTHING, 0.2, 0.08, -0.4, 3.0, -0.25, 0.0, 0.0)
    runs = of_law(other, SWEEP[::2])
    held = Surrogate.fit(runs, power=0.05)
    assert held.power == 0.05
    assert held.error > 1e-3 > 1e3 * Surrogate.fit(runs).error


def test_what_does_not_follow_its_control_is_one_number():
    runs = of_law(TRUE, SWEEP)
    errors = {}
    for following in ((), ("b",), ("q",), ("b", "q")):
        law = Surrogate.fit(runs, following=following)
        assert (law.b_exponent != 0.0, law.q_exponent != 0.0) == ("b" in following, "q" in following)
        errors[following] = law.error
    assert errors["b", "q"] < 1e-9 < min(errors["b",], errors["q",]) and max(errors["b",], errors["q",]) < errors[()]
    one_ratio = of_law(TRUE, SWEEP[::3])  # 20 tokens a parameter throughout
    assert Surrogate.fit(one_ratio, following=["b"]).error < 1e-9


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([at_timescale(0.1, tokens_per_param=r) for r in (20.0, 80.0)], "2 timescales or more.*have 0.1"),
        ([at_timescale(t) for t in (0.1, 0.2)], "2 tokens per parameter or more.*have 20"),
    ],
)
def test_a_surrogate_needs_both_controls_to_vary(runs, words):
    with pytest.raises(OnecurveError, match=words):
        Surrogate.fit(of_law(TRUE, runs))


def test_a_run_that_begins_late_is_named():
    late = named(trained(at_timescale(0.1), lambda x: 2 + 0 * x, first=0.5), "late")
    with pytest.raises(OnecurveError, match=r"run 'late': its first point is at 0\.5"):
        MovingAverage.fit([late, trained(at_timescale(0.2), lambda x: 2 + 0 * x)])


def test_every_shape_ends_at_one():
    run = at_timescale(0.1)
    for law in (MovingAverage(NOTHING, 20.0, 2.0), TRUE):
        assert law.predict(run, [run.end]) == pytest.approx(1.0)
    flat = planned(1e8, 2e9, Schedule(shape="constant"))
    assert TokensPerParameter(NOTHING, 0.35, 20.0).predict(flat, [2e9]) == pytest.approx(1.0)
