import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecurve import OnecurveError, Run, RunConfig, Schedule
from onecurve.laws.path import Path, path_from, path_of
from onecurve.run import Curve, Signal


def run(schedule=None, **signals):
    config = RunConfig(name="a", n_params=1.0, horizon=1000.0, schedule=schedule)
    x = np.linspace(10.0, 1000.0, 100)
    return Run(config, {"loss": Curve(x, np.ones(100))}, signals=signals)


def exact_mean(path: Path, weight: float, at: int) -> float:
    """The definition, summed as it stands."""
    s = np.where(path.x < path.warm, 1.0, path.s)
    middle = np.concatenate([s[:1], 0.5 * (s[1:] + s[:-1])])[: at + 1]
    edges = (path.tau[: at + 1] / path.tau[at]) ** (weight + 1)
    weights = np.diff(edges, prepend=0.0)
    return float((weights * middle).sum() / weights.sum())


def test_at_a_constant_rate_flow_time_is_x_and_every_mean_is_one():
    p = path_of(run(Schedule(shape="constant")))
    np.testing.assert_allclose(p.tau, p.x)
    for weight in (0.0, 1.0, 100.0):
        np.testing.assert_allclose(p.mean(weight), 1.0)


def test_a_linear_decay_has_the_means_of_the_integral():
    p = path_of(run(Schedule(shape="linear")))
    assert p.tau[-1] == pytest.approx(500.0, rel=1e-8)
    # The mean of s over tau is int s^2 / int s = (1/3) / (1/2).
    assert p.mean(0.0)[-1] == pytest.approx(2 / 3, rel=1e-4)


@pytest.mark.parametrize("weight", [0.0, 1.0, 4.0, 30.0, 100.0, 300.0])
@pytest.mark.parametrize("shape", ["linear", "multicosine", "cosine"])
def test_means_equal_their_definition_everywhere(weight, shape):
    p = path_of(run(Schedule(shape=shape, warmup=0.05)))
    got = p.mean(weight)
    for at in (3, 50, 1000, 1100, 5000, 13_000, 20_000):
        assert got[at] == pytest.approx(exact_mean(p, weight, at), rel=1e-9)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=60), st.sampled_from([0.0, 1.0, 10.0, 100.0]))
def test_a_mean_lies_between_the_rates(rates, weight):
    m = path_from(rates).mean(weight)
    assert np.all(m <= 1.0 + 1e-12) and np.all(m >= min(rates) / max(rates) - 1e-12)


def test_a_million_steps_are_one_pass():
    p = path_from(np.linspace(1.0, 0.0, 1_000_000))
    assert p.tau[-1] == pytest.approx(500_000.0, rel=1e-5)
    assert p.mean(1.0)[-1] == pytest.approx(8 / 15, rel=1e-4)


def test_a_logged_rate_serves_where_no_schedule_is_recorded():
    x = np.linspace(0.0, 1000.0, 2001)
    schedule = Schedule(shape="linear", warmup=0.1)
    a = path_of(run(schedule))
    b = path_of(run(None, learning_rate=Signal(x, 3e-4 * schedule(x / 1000.0))))
    np.testing.assert_allclose(b.at(a.x, b.tau), a.tau, rtol=1e-3, atol=0.3)
    np.testing.assert_allclose(b.at(a.x, b.mean(1.0)), a.mean(1.0), atol=2e-3)


def test_a_run_without_a_rate_says_what_is_needed():
    with pytest.raises(OnecurveError, match="neither its schedule nor its learning rate"):
        path_of(run())
    with pytest.raises(OnecurveError, match="at least one of them above 0"):
        path_from([0.0, 0.0])
