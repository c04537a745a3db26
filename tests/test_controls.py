from __future__ import annotations

import math

import pytest

from onecurve.controls import controls, differences
from onecurve.run import RunConfig
from onecurve.schedule import Schedule


def config(**options) -> RunConfig:
    base = {
        "name": "a",
        "n_params": 1e6,
        "horizon": 20e6,
        "batch_tokens": 1e4,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "parameterisation": "mup",
        "schedule": Schedule(shape="linear", warmup=0.02),
    }
    return RunConfig(**(base | options))


def test_timescale_is_batch_over_rate_decay_and_horizon():
    assert controls(config()).timescale == pytest.approx(1e4 / (1e-2 * 0.1 * 20e6))
    assert controls(config(weight_decay=0.0)).timescale == math.inf
    assert controls(config(batch_tokens=None)).timescale is None


def test_the_schedule_is_compared_apart_from_its_warmup():
    a, b = (controls(config(schedule=Schedule(shape="linear", warmup=w))) for w in (0.0, 0.5))
    assert a.schedule == b.schedule
    assert (a.warmup, b.warmup) == (0.0, 0.5)


def test_equal_controls_differ_in_nothing():
    assert differences([config(), config(name="b", n_params=4e6, horizon=80e6, learning_rate=2.5e-3)]) == []


@pytest.mark.parametrize(
    ("factor", "level"), [(1.0, None), (1.14, None), (1.16, "warns"), (1.49, "warns"), (1.51, "fails")]
)
@pytest.mark.parametrize("what", ["timescale", "tokens per parameter"])
def test_ratios_warn_and_fail_where_stated(what, factor, level):
    if what == "timescale":
        other = config(weight_decay=0.1 * factor)
    else:
        other = config(horizon=20e6 * factor, learning_rate=1e-2 / factor)
    found = differences([config(), other])
    assert [(f.control, f.level) for f in found] == ([] if level is None else [(what, level)])


def test_warmup_shares_warn_beyond_two_hundredths():
    def with_warmup(w):
        return config(schedule=Schedule(shape="linear", warmup=w))

    assert differences([with_warmup(0.0), with_warmup(0.019)]) == []
    (found,) = differences([with_warmup(0.0), with_warmup(0.03)])
    assert (found.control, found.level) == ("warmup", "warns")
    assert "from 0 to 0.03" in found.text


def test_a_run_without_decay_among_others_fails():
    (found,) = differences([config(), config(weight_decay=0.0)])
    assert (found.control, found.level) == ("timescale", "fails")


def test_runs_without_decay_agree():
    assert differences([config(weight_decay=0.0), config(weight_decay=0.0)]) == []


def test_what_some_runs_lack_is_unknown_and_counted():
    (found,) = differences([config(), config(parameterisation=None), config(parameterisation=None)])
    assert (found.control, found.level) == ("parameterisation", "unknown")
    assert "1 of 3 runs records it" in found.text


def test_tokens_per_parameter_mean_nothing_off_a_token_axis():
    pair = [config(), config(horizon=200e6, learning_rate=1e-3)]
    assert [f.control for f in differences(pair)] == ["tokens per parameter"]
    (found,) = [f for f in differences(pair, "epochs") if f.control == "tokens per parameter"]
    assert found.level == "unknown"


def test_steps_are_counted_as_steps():
    steps = config(horizon=2e3)
    assert controls(steps, "steps").timescale == pytest.approx(1 / (1e-2 * 0.1 * 2e3))
    assert controls(steps, "steps").tokens_per_param == pytest.approx(2e3 * 1e4 / 1e6)
    assert controls(config(batch_tokens=None), "steps").tokens_per_param is None


def at_width(width: int, rate: float, base: float | None = 0.01) -> RunConfig:
    n = float(width**2)
    return RunConfig(name=str(width), n_params=n, width=width, learning_rate=rate, base_learning_rate=base)


def test_a_hidden_rate_that_does_not_fall_with_width_is_named():
    found = differences([at_width(64, 0.01), at_width(256, 0.01)])
    (finding,) = [f for f in found if f.level == "fails"]
    assert finding.control == "parameterisation"
    assert "from width 64 to 256 the hidden learning rate" in finding.text and "fall to 0.0025" in finding.text


def test_a_rate_that_may_be_meant_before_scaling_is_a_question():
    (finding,) = [f for f in differences([at_width(64, 0.01, None), at_width(256, 0.01, None)]) if f.level == "warns"]
    assert "is that the rate as applied to the hidden matrices?" in finding.text


def test_a_rate_that_falls_as_one_over_width_is_not():
    assert not [f for f in differences([at_width(64, 0.01), at_width(256, 0.0025)]) if f.level != "unknown"]


def test_a_batch_that_alone_moves_the_timescale_is_named():
    configs = [config(n_params=n, horizon=20 * n, weight_decay=0.1 * 1e6 / n) for n in (1e6, 2e6, 4e6)]
    assert differences(configs) == []
    wrong = [configs[0], configs[1].model_copy(update={"batch_tokens": 4e4}), configs[2]]
    (found,) = differences(wrong)
    assert (found.control, found.level) == ("batch", "fails")
    assert "1e+04 tokens a step, but 4e+04 at N = 2M" in found.text


def test_a_drift_that_follows_size_says_its_exponent():
    def at(exponent):
        return [
            config(n_params=n, horizon=20e6 * (n / 1e6) ** exponent, weight_decay=0.1 * (1e6 / n) ** exponent)
            for n in (1e6, 2e6, 4e6)
        ]

    (found,) = differences(at(1.5))
    assert found.control == "tokens per parameter" and found.text.endswith(", as N^0.5")
    uneven = at(1.0)
    uneven[1] = config(n_params=2e6, horizon=80e6, weight_decay=0.025)
    (found,) = differences(uneven)
    assert found.text.endswith("over the sizes")


def test_without_decay_a_batch_is_not_blamed():
    assert differences([config(weight_decay=0.0), config(weight_decay=0.0, batch_tokens=5e4)]) == []
    (found,) = differences([config(weight_decay=0.0), config(batch_tokens=5e4)])
    assert found.control == "timescale"
