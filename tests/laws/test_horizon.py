from __future__ import annotations

import numpy as np
import pytest

from onecurve.errors import OnecurveError
from onecurve.laws.horizon import fit_horizon
from onecurve.run import Curve, Run, RunConfig, Signal
from onecurve.schedule import Schedule

SIZES = np.array([1e6, 2e6, 4e6, 8e6, 16e6, 32e6])


def runs(sizes=SIZES, alpha=0.35, beta=0.35, seeds=1, noise=0.0, x_name="tokens", **config) -> list[Run]:
    """``L = A N^-alpha + B D^-beta``: at C = 6 N D the best size is N ~ C^(beta / (alpha + beta))."""
    random = np.random.default_rng(0)
    out = []
    for n in sizes:
        for seed in range(seeds):
            tokens = np.geomspace(0.05 * n, 2e3 * n, 500)
            loss = 300 * n**-alpha + 800 * tokens**-beta
            loss = loss * np.exp(noise * random.standard_normal())
            x = tokens if x_name == "tokens" else 6 * n * tokens
            run = RunConfig(name=f"{n}-{seed}", n_params=n, seed=seed, **config)
            out.append(Run(run, {"loss": Curve(x, loss, "held-out")}, x_name))
    return out


CONSTANT = {"schedule": Schedule(shape="constant")}


@pytest.mark.parametrize(("alpha", "beta"), [(0.35, 0.35), (0.30, 0.36)])
def test_a_known_law_gives_its_exponent_back(alpha, beta):
    law = fit_horizon(runs(alpha=alpha, beta=beta, **CONSTANT))
    # At the best size the slopes agree: alpha A N^-alpha = beta B D^-beta, so D ~ N^(alpha / beta).
    assert law.exponent == pytest.approx(1 + alpha / beta, rel=0.02)
    assert law.robust_exponent == pytest.approx(1 + alpha / beta, rel=0.02)
    assert law.exponent_interval[0] <= law.exponent <= law.exponent_interval[1]
    best = (beta * 800 / (alpha * 300)) ** (1 / beta) * SIZES ** (alpha / beta)
    np.testing.assert_allclose(law.tokens(SIZES[1:-1]), best[1:-1], rtol=0.15)
    assert law.warnings == ()


def test_compute_and_tokens_follow_from_scale_and_exponent():
    law = fit_horizon(runs(**CONSTANT))
    assert law.compute(law.scale) == pytest.approx(1.0)
    assert law.compute(2 * law.scale) == pytest.approx(2**law.exponent)
    assert law.tokens(4e6) == pytest.approx(law.compute(4e6) / 24e6)


def test_an_axis_of_compute_is_taken_as_it_is():
    tokens, flops = fit_horizon(runs(**CONSTANT)), fit_horizon(runs(x_name="flops", **CONSTANT))
    assert flops.exponent == pytest.approx(tokens.exponent, rel=1e-9)
    assert any("compute is x itself" in w for w in flops.warnings)


def test_seeds_of_a_size_are_averaged():
    one, many = fit_horizon(runs(**CONSTANT)), fit_horizon(runs(seeds=5, noise=1e-3, **CONSTANT))
    assert many.exponent == pytest.approx(one.exponent, rel=0.05)
    assert many.sizes.tolist() == one.sizes.tolist()


def test_the_frontier_is_the_lowest_curve_at_each_compute():
    law = fit_horizon(runs(**CONSTANT))
    for c, loss in zip(law.frontier_compute[::100], law.frontier_loss[::100], strict=True):
        tokens = c / (6 * SIZES)
        inside = (tokens >= 0.05 * SIZES) & (tokens <= 2e3 * SIZES)
        every = 300 * SIZES**-0.35 + 800 * tokens**-0.35
        assert loss == pytest.approx(every[inside].min(), rel=1e-4)
    assert np.all(np.diff(law.frontier_loss) < 0)


def test_the_end_sizes_own_no_part_of_the_fit():
    law = fit_horizon(runs(**CONSTANT))
    assert set(law.sizes) <= set(SIZES[1:-1])
    assert {SIZES[0], SIZES[-1]} & set(law.frontier_size)


def test_unrecorded_schedules_are_taken_for_constant_and_said_so():
    assert any("constant learning rates are taken for granted" in w for w in fit_horizon(runs()).warnings)


def test_a_decayed_run_is_refused():
    with pytest.raises(OnecurveError, match=r"run '1000000\.0-0': its cosine schedule is not constant; a horizon"):
        fit_horizon(runs(schedule=Schedule(shape="cosine")))
    x = np.array([1e6, 2e6, 2e9])
    logged = [
        Run(r.config, r.curves, r.x_name, {"learning_rate": Signal(x, np.array([1.0, 1.0, 0.1]))}) for r in runs()
    ]
    with pytest.raises(OnecurveError, match="its logged learning rate is not constant; a horizon"):
        fit_horizon(logged)
    assert fit_horizon(runs(schedule=Schedule(shape="linear", final=1.0))).sizes.size >= 2


@pytest.mark.parametrize("count", [1, 3])
def test_fewer_than_four_sizes_give_no_law(count):
    with pytest.raises(OnecurveError, match=f"at least 4 sizes.*got {count}"):
        fit_horizon(runs(SIZES[:count]))


def test_no_runs_give_no_law():
    with pytest.raises(OnecurveError, match="got none"):
        fit_horizon([])


def test_recorded_compute_is_the_axis_and_gives_no_tokens():
    plain = fit_horizon(runs(**CONSTANT))
    told = [Run(r.config.model_copy(update={"compute": 2 * r.six_n_d}), r.curves, r.x_name) for r in runs(**CONSTANT)]
    law = fit_horizon(told)
    assert law.exponent == pytest.approx(plain.exponent, rel=1e-9)
    assert law.compute(1e7) == pytest.approx(2 * plain.compute(1e7), rel=1e-6)
    assert "D* ~" in str(plain) and "D* ~" not in str(law)
    with pytest.raises(OnecurveError, match="no tokens follow"):
        law.tokens(1e7)


def test_a_frontier_of_the_end_sizes_alone_gives_no_law():
    made = [
        Run.of(f"{n}", n_params=n, x=[1e12 / n, 1e15 / n], loss=[2 + n / 1e6, 1 + n / 1e6])
        for n in (1e6, 2e6, 3e6, 4e6)
    ]
    with pytest.raises(OnecurveError, match="fewer than two inner sizes"):
        fit_horizon(made)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v * np.nan, "all its losses are NaN or infinite"),
        (lambda v: v - 100.0, "size 1M: no point with x and loss above 0"),
    ],
)
def test_curves_without_a_logarithm_are_named(change, words):
    made = [
        Run(r.config, {k: Curve(c.x, change(c.loss)) for k, c in r.curves.items()}, r.x_name) for r in runs(**CONSTANT)
    ]
    with pytest.raises(OnecurveError, match=words):
        fit_horizon(made)


def test_a_curve_that_a_run_lacks_is_named():
    with pytest.raises(OnecurveError, match="no curve 'test'; it has 'loss'"):
        fit_horizon(runs(**CONSTANT), "test")


@pytest.mark.parametrize("options", [{"start": 0.0}, {"start": -1.0}, {"points": 1}])
def test_computes_are_above_zero_and_more_than_one(options):
    with pytest.raises(OnecurveError, match="start must be a compute above 0"):
        fit_horizon(runs(**CONSTANT), **options)


def test_the_law_prints_its_numbers():
    law = fit_horizon(runs(**CONSTANT))
    assert f"^ {law.exponent:.5f}" in str(law)
    assert "interval of the exponent" in str(law)
    assert law.to_dict()["law"] == "horizon"
