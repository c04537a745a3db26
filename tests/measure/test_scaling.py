import numpy as np
import pytest

from onecurve import OnecurveError, Run, RunConfig
from onecurve.measure.scaling import Coordinates, Transfer, best_rate, log_slope, transfer
from onecurve.run import Curve

RATES = 0.01 * 2.0 ** np.arange(-3, 4)


def test_a_power_law_has_its_exponent_as_slope():
    x = np.array([64.0, 128, 256, 512])
    s = log_slope(x, 3 * x**-0.7)
    assert s.value == pytest.approx(-0.7) and s.low == pytest.approx(-0.7) and s.high == pytest.approx(-0.7)
    assert np.isnan(log_slope([1.0, 2.0], [1.0, 2.0]).low)


def test_the_slopes_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    x = np.repeat([1.0, 2, 4, 8], 3)
    hits = 0
    for _ in range(1000):
        s = log_slope(x, np.exp(0.3 * np.log(x) + 0.1 * rng.standard_normal(12)))
        hits += s.low <= 0.3 <= s.high
    assert 870 <= hits <= 930


def test_activations_that_grow_with_size_fail_and_dead_ones_do_too():
    sizes = np.array([1.0, 2, 4, 8])
    values = {"flat": np.ones((4, 2)), "grows": np.stack([sizes, sizes], 1), "dead": np.zeros((4, 2))}
    assert Coordinates("width", sizes, values, 10).passes == {"flat": True, "grows": False, "dead": False}


def parabola(best, rates=RATES, noise=0.0, seeds=3, rng=None):
    loss = 2 + 0.05 * np.log(rates / best) ** 2
    rng = rng or np.random.default_rng(0)
    return loss[:, None] + noise * rng.standard_normal((rates.size, seeds))


def test_the_vertex_of_a_parabola_is_found_exactly():
    b = best_rate(1.0, RATES, parabola(0.013))
    assert b.value == pytest.approx(0.013, rel=1e-9)
    assert b.low == pytest.approx(0.013, rel=1e-3) and b.high == pytest.approx(0.013, rel=1e-3)


def test_the_best_rates_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = [
        b.low <= 0.011 <= b.high
        for b in (best_rate(1.0, RATES, parabola(0.011, noise=0.01, rng=rng)) for _ in range(1000))
        if not b.edge
    ]
    assert len(hits) > 950 and 0.86 <= np.mean(hits) <= 0.94


def test_an_optimum_at_the_edge_of_the_grid_is_said_not_guessed():
    for best, edge in ((1e-4, "lower"), (1.0, "upper")):
        b = best_rate(1.0, RATES, parabola(best))
        assert b.edge == edge and np.isnan(b.value)


def test_a_rate_that_diverges_is_the_worst_not_an_error():
    losses = parabola(0.01)
    losses[-1] = np.nan
    assert best_rate(1.0, RATES, losses).value == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize("second, verdict", [(0.0105, "same"), (0.04, "differs"), (0.0025, "differs")])
def test_best_rates_are_compared_across_sizes(second, verdict):
    sizes = (best_rate(1.0, RATES, parabola(0.01, noise=0.001)), best_rate(2.0, RATES, parabola(second, noise=0.001)))
    assert Transfer("x", sizes).verdict == verdict


def test_noise_that_hides_the_optimum_is_no_verdict():
    sizes = (
        best_rate(1.0, RATES, parabola(0.01, noise=0.1, seeds=1)),
        best_rate(2.0, RATES, parabola(0.012, noise=0.1, seeds=1)),
    )
    assert Transfer("x", sizes).verdict == "cannot tell"


def run(rate, n, loss, **config):
    c = RunConfig(name=f"{n}-{rate}", n_params=n, base_learning_rate=rate, parameterisation="mup", **config)
    return Run(c, {"test_loss": Curve(np.array([1.0, 2.0]), np.array([3.0, loss]), "held-out")})


def test_a_sweep_of_runs_is_read_by_size_and_rate():
    runs = [
        run(rate, n, float(loss))
        for n in (1e5, 1e6)
        for rate, loss in zip(RATES, parabola(0.01, seeds=1)[:, 0], strict=True)
    ]
    (result,) = transfer(runs)
    assert result.name == "mup" and [s.n_params for s in result.sizes] == [1e5, 1e6]
    assert result.verdict == "same"


def test_runs_that_are_no_sweep_are_refused():
    with pytest.raises(OnecurveError, match="records no base_learning_rate"):
        transfer([Run.of("a", n_params=1.0, x=[1.0], loss=[1.0])])
    with pytest.raises(OnecurveError, match="3 learning rates"):
        transfer([run(rate, 1e5, 2.0) for rate in RATES[:3]])
    with pytest.raises(OnecurveError, match="one size only"):
        transfer([run(rate, 1e5, 2.0) for rate in RATES])
