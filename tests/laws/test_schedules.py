"""The three laws of schedules at one size: multi-power, decayed-power and annealing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecurve import OnecurveError, Run, Schedule
from onecurve.laws.annealing import Annealing, annealed, steps_per_x
from onecurve.laws.decayed import DecayedPower
from onecurve.laws.law import planned
from onecurve.laws.multipower import MultiPower, drops, effect
from onecurve.laws.path import path_from, path_of
from onecurve.run import Curve, Signal

from .conftest import NOTHING, config, named, of_law, schedules

LAWS = {
    "multi-power": MultiPower(NOTHING, 3.0, 30.0, 0.5, 0.3, 0.05, 0.4, 0.6),
    "decayed-power": DecayedPower(NOTHING, 3.0, 20.0, 0.45, 0.5, 0.1, 0.5, 0.3, 4.0, 100.0),
    "annealing": Annealing(NOTHING, 3.0, 30.0, 0.5, 3e-4, 0.998),
}
every_law = pytest.mark.parametrize("true", list(LAWS.values()), ids=list(LAWS))


def exact_sum(rates, at: int, c: float, beta: float, gamma: float) -> float:
    """The Multi-Power Law's sum as it stands in the paper, over all steps to ``at``."""
    s = np.asarray(rates) / np.max(rates)
    total = np.cumsum(s)
    d = -np.diff(s, prepend=0.0)[: at + 1]
    since = total[at] - np.concatenate([[0.0], total])[: at + 1]
    return float(np.sum(d * (1 - (1 + c * np.maximum(s[: at + 1], 1e-12) ** -gamma * since) ** -beta)))


def shapes(steps: int) -> dict[str, np.ndarray]:
    x = np.arange(steps) / steps
    warm = np.minimum(1.0, np.arange(1, steps + 1) / (0.09 * steps))
    jumps = np.where(x < 0.3, 1.0, np.where(x < 0.5, 0.4, np.where(x < 0.8, 0.7, 0.1)))
    return {
        "cosine": warm * (0.1 + 0.9 * (1 + np.cos(np.pi * x)) / 2),
        "linear to zero": warm * (1 - x),
        "multicosine": warm * (0.55 + 0.45 * np.cos(3 * np.pi * x)),
        "jumps": warm * jumps,
        "late decay": warm * np.where(x < 0.8, 1.0, 0.1 ** ((x - 0.8) / 0.2)),
    }


@pytest.mark.parametrize("shape", list(shapes(100)))
@pytest.mark.parametrize(("c", "beta", "gamma"), [(1e-3, 0.4, 0.1), (0.05, 0.6, 0.6), (1.0, 2.0, 0.9)])
def test_the_gathered_sum_is_the_exact_one(shape, c, beta, gamma):
    rates = shapes(24_000)[shape]
    path = path_from(rates)
    steps = np.array([2_500, 7_300, 12_001, 19_500, 23_999])
    got, _ = effect(drops(path, steps + 1.0), steps.size, *(np.array([v]) for v in (c, beta, gamma)))
    exact = [exact_sum(rates, k, c, beta, gamma) for k in steps]
    np.testing.assert_allclose(got[0], exact, rtol=1e-6, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.05, 1.0), min_size=3, max_size=200), st.floats(1e-3, 5.0), st.floats(0.1, 2.0))
def test_the_gathered_sum_is_exact_for_rates_without_any_order(rates, c, beta):
    path = path_from(rates)
    got, _ = effect(drops(path, path.x), len(rates), np.array([c]), np.array([beta]), np.array([0.5]))
    exact = [exact_sum(rates, k, c, beta, 0.5) for k in range(len(rates))]
    np.testing.assert_allclose(got[0], exact, rtol=1e-6, atol=1e-9)


def test_its_terms_grow_with_the_logarithm_of_the_steps():
    count = [drops(path_from(shapes(n)["cosine"]), np.array([n * 0.9])).point.size for n in (4_000, 64_000, 1_024_000)]
    assert count[2] - count[1] == pytest.approx(count[1] - count[0], rel=0.4)
    assert count[2] < 500


def test_the_derivatives_of_the_sum_are_its_slopes():
    terms = drops(path_from(shapes(2_000)["cosine"]), np.array([700.0, 1500.0, 1990.0]))
    at = np.array([0.05, 0.6, 0.5])
    _, slope = effect(terms, 3, *at[:, None])
    for k in range(3):
        up, down = at.copy(), at.copy()
        up[k] *= 1 + 1e-6
        down[k] *= 1 - 1e-6
        numeric = (effect(terms, 3, *up[:, None])[0] - effect(terms, 3, *down[:, None])[0]) / (2e-6 * at[k])
        np.testing.assert_allclose(slope[0, :, k], numeric[0], rtol=1e-6)


@every_law
def test_a_schedule_that_was_never_seen_is_predicted(true):
    law = type(true).fit(of_law(true, schedules("constant", "cosine", "linear")))
    run = schedules("quadratic")[0]
    x = np.linspace(0.1, 1.0, 50) * run.end
    np.testing.assert_allclose(law.predict(run, x), true.predict(run, x), rtol=5e-4)


@every_law
def test_a_longer_run_of_an_exact_law_is_predicted(true):
    law = type(true).fit(of_law(true, schedules("constant", "cosine", "linear")))
    run = schedules("cosine", steps=60_000.0)[0]
    x = np.linspace(0.1, 1.0, 50) * run.end
    np.testing.assert_allclose(law.predict(run, x), true.predict(run, x), rtol=3e-3)


@every_law
def test_at_a_constant_rate_it_is_a_power_law(true):
    run = schedules("constant", warmup=0.0)[0]
    x = np.array([100.0, 1000.0, 10_000.0])
    value = true.predict(run, x)
    rise = MultiPower if isinstance(true, MultiPower) else None
    if rise is None:  # the Multi-Power Law counts the first step's rate as a rise, which adds to its power law
        np.testing.assert_allclose(value, true.floor + true.amplitude * x**-true.exponent, rtol=1e-6)
    assert np.all(np.diff(value) < 0)


@every_law
def test_constant_rates_alone_cannot_tell_what_a_schedule_does(true):
    with pytest.raises(OnecurveError, match="all 1 runs have a constant rate"):
        type(true).fit(of_law(true, schedules("constant")))


@every_law
def test_one_size_at_a_time(true):
    runs = of_law(true, schedules("constant", "cosine"))
    with pytest.raises(
        OnecurveError, match=r"one model size at a time; got 2 \(100M to 200M.*--fit-on n_params=2e\+08"
    ):
        type(true).fit([*runs, named(runs[0], "b", n_params=2e8)])


@every_law
def test_a_million_steps_are_predicted_at_once(true):
    steps = 1_000_000
    rates = shapes(steps)["cosine"]
    x = np.arange(1, steps + 1, dtype=np.float64)
    run = Run(config(horizon=float(steps)), {}, "steps", {"learning_rate": Signal(x, rates)})
    value = true.predict(run, np.linspace(0.1, 1.0, 200) * steps)
    assert np.all(np.isfinite(value))


def test_points_in_the_warmup_are_left_out_and_counted():
    runs = of_law(LAWS["decayed-power"], schedules("constant", "cosine", warmup=0.1))
    law = DecayedPower.fit(runs)  # from twice the warmup on
    assert law.report.dropped["points in 2 times the warmup"] == pytest.approx(2 * 0.2 * 200, abs=4)
    assert MultiPower.fit(runs).report.dropped["points in the warmup"] == pytest.approx(2 * 0.1 * 200, abs=4)


def test_the_annealing_area_is_the_recursion():
    rates = shapes(5_000)["cosine"]
    path_run = Run(
        config(horizon=5e3), {}, "steps", {"learning_rate": Signal(np.arange(1, 5_001, dtype=np.float64), rates)}
    )
    path = path_of(path_run)
    s = np.where(path.x < path.warm, 1.0, path.s)
    m = area = 0.0
    exact = []
    for before, now in zip(np.concatenate([[1.0], s[:-1]]), s, strict=True):
        m = 0.995 * m + before - now
        area += m
        exact.append(area)
    np.testing.assert_allclose(annealed(path_run, path.x, 0.995), exact, rtol=1e-9, atol=1e-9)


def test_the_annealing_area_of_a_schedule_is_that_of_its_steps():
    run = schedules("linear", warmup=0.0, final=0.0)[0]
    # In the long run the momentum of a steady drop d is d / (1 - delta).
    assert annealed(run, np.array([run.end]), 0.99)[0] == pytest.approx(1.0 / 0.01, rel=0.01)


def test_steps_need_the_tokens_of_a_step():
    assert steps_per_x(planned(1e6, 1e9, batch_tokens=1e4)) == 1e-4
    assert steps_per_x(planned(1e6, 1e3, x_name="steps")) == 1.0
    with pytest.raises(OnecurveError, match="give batch_tokens"):
        steps_per_x(planned(1e6, 1e9))


def test_a_rate_logged_at_every_step_is_taken_as_it_is():
    rates = np.linspace(1.0, 0.0, 2_000)
    x = np.arange(1, 2_001, dtype=np.float64)
    run = Run(config(horizon=2e3), {"loss": Curve(x, 1 + 0 * x)}, "steps", {"learning_rate": Signal(x, rates)})
    assert np.array_equal(path_of(run).tau, np.cumsum(rates))
    sparse = Run(run.config, {}, "steps", {"learning_rate": Signal(x[9::10], rates[9::10])})
    assert path_of(sparse).tau[-1] == pytest.approx(1000.0, rel=1e-2)


def test_an_exponential_schedule_is_one_as_well():
    run = planned(1e8, 2e4, Schedule(shape="exponential", decay_frac=0.2, final=0.1, warmup=0.05), "steps")
    for true in LAWS.values():
        assert np.all(np.diff(true.predict(run, np.linspace(0.82, 1.0, 20) * run.end)) < 0)
