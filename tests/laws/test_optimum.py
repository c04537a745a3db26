"""Optima of sweeps, the best timescale and the batch: closed forms, coverage, and what is refused."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from onecurve import OnecurveError, Run, RunConfig, Schedule
from onecurve.laws.batch import fit_batch
from onecurve.laws.optimum import Sweep, final_loss, power_law
from onecurve.laws.timescale import fit_timescale
from onecurve.run import Curve

GRID = 2.0 ** np.arange(-4, 4)


def sweep(at, best, losses=None, values=GRID, seeds=1) -> Sweep:
    """Log loss is an exact parabola about ``best``, one height a seed."""
    v, label = np.tile(values, seeds), np.repeat(np.arange(seeds), len(values))
    y = 3.0 * np.exp(0.01 * np.log(v / best) ** 2 + 0.1 * label) if losses is None else np.asarray(losses)
    return Sweep(at, f"at {at:g}", v, y, tuple(map(str, label)))


@pytest.mark.parametrize("seeds", [1, 3])
def test_exact_parabolas_give_their_vertices_and_the_power_law(seeds):
    law = power_law([sweep(x, 2.0 * x**-0.5, seeds=seeds) for x in (2.0, 4.0, 8.0)], "timescale", "levels")
    assert [o.value for o in law.optima] == pytest.approx([2.0 * x**-0.5 for x in (2.0, 4.0, 8.0)], rel=1e-6)
    assert (law.scale, law.exponent) == (pytest.approx(2.0, rel=1e-6), pytest.approx(-0.5, abs=1e-6))
    assert law.noise < 1e-8 and law.exponent_interval == pytest.approx((-0.5, -0.5), abs=1e-5)
    assert float(law(4.0)) == pytest.approx(1.0)


def test_a_skew_that_all_sweeps_share_moves_no_optimum():
    def skewed(x):
        u = np.log(GRID / (2.0 * x**-0.5))
        return sweep(x, 0.0, 3.0 * np.exp(0.01 * (u**2 - 0.1 * u**3)))

    law = power_law([skewed(x) for x in (2.0, 4.0, 8.0)], "timescale", "levels")
    # A parabola alone would put them 20 % too high.
    assert [o.value for o in law.optima] == pytest.approx([2.0 * x**-0.5 for x in (2.0, 4.0, 8.0)], rel=0.02)
    assert law.exponent == pytest.approx(-0.5, abs=0.01)


def test_optima_off_a_power_law_widen_its_interval_and_say_so():
    rng = np.random.default_rng(0)

    def noisy(x, best):
        s = sweep(x, best)
        return Sweep(s.at, s.label, s.values, s.losses * np.exp(1e-4 * rng.standard_normal(GRID.size)), s.seeds)

    bends = {2.0: 1.0, 4.0: 0.6, 8.0: 1.0, 16.0: 0.6}
    law = power_law([noisy(x, x**-0.5 * bend) for x, bend in bends.items()], "timescale", "levels")
    assert any("scatter" in n for n in law.notes)
    low, high = law.exponent_interval
    assert high - low > 0.5


@pytest.mark.parametrize(
    "bad, words",
    [
        (sweep(4.0, 40.0), "is the highest that was tried"),
        (sweep(4.0, 0.001), "is the lowest that was tried"),
        (sweep(4.0, 1.0, np.full(8, 3.0) + 1e-3 * np.cos(9.0 * np.arange(8))), "left out"),
        (sweep(4.0, 1.0, np.full(8, np.nan)), "no value has a finite loss"),
        (sweep(4.0, 1.0, values=np.array([0.01, 1.0, 100.0])), "fewer than 4 of its values"),
    ],
)
def test_a_sweep_without_an_optimum_inside_is_refused_by_name(bad, words):
    with pytest.raises(OnecurveError, match=rf"three or more levels.*at 4 is left out: .*{words}|at 4 is {words}"):
        power_law([sweep(2.0, 1.0), bad, sweep(8.0, 0.5)], "timescale", "levels")
    # With enough others it is a note.
    law = power_law([sweep(2.0, 2.0**-0.5), bad, sweep(8.0, 8.0**-0.5), sweep(16.0, 0.25)], "timescale", "levels")
    assert law.exponent == pytest.approx(-0.5, abs=0.05) and any(n.startswith("at 4") for n in law.notes)


def coverage():
    path = Path(__file__).parent.parent.parent / "benchmarks" / "timescale_coverage.py"
    spec = importlib.util.spec_from_file_location("timescale_coverage", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.coverage


def test_intervals_hold_the_truth_as_often_as_they_say():
    exponent, at_80, refused, _ = coverage()(300, 1, 0.001)
    assert not refused
    # 90 % of 300, four binomial standard deviations either way.
    assert 249 <= exponent <= 291 and 249 <= at_80 <= 291


@pytest.mark.slow
@pytest.mark.parametrize("seeds, noise", [(1, 0.0005), (1, 0.001), (1, 0.002), (2, 0.001)])
def test_870_to_930_of_1000_intervals_hold_the_truth(seeds, noise):
    exponent, at_80, refused, _ = coverage()(1000, seeds, noise)
    assert not refused and 870 <= exponent <= 930 and 870 <= at_80 <= 930


def run(name, n, tokens, batch, loss, decay=0.1, rate=0.01, seed=0, **settings) -> Run:
    config = RunConfig(
        name=name, n_params=n, horizon=tokens, batch_tokens=batch, learning_rate=rate, weight_decay=decay, seed=seed,
        schedule=Schedule(warmup=0.1), **settings,
    )  # fmt: skip
    return Run(config, {"val_loss": Curve(np.array([tokens / 2, tokens]), np.array([loss + 1.0, loss]), "held-out")})


def decay_sweeps(levels=(20.0, 80.0, 320.0)) -> list[Run]:
    runs = []
    for tpp in levels:
        n, batch, rate = 1e8, 1e6, 0.01
        best = 1.084 * tpp**-0.527
        for k in range(8):
            tau = 0.02 * 2.0**k
            loss = 3.0 * np.exp(0.005 * np.log(tau / best) ** 2)
            decay = batch / (rate * tau * tpp * n)
            runs.append(run(f"{tpp:g}-{k}", n, tpp * n, batch, loss, decay))
    return runs


def test_decay_sweeps_give_the_timescale_rule():
    found = fit_timescale(decay_sweeps())
    assert found.law.scale == pytest.approx(1.084, rel=1e-3)
    assert found.law.exponent == pytest.approx(-0.527, abs=1e-3)
    assert found.fitted == (20.0, 320.0)
    assert "in a recipe: timescale = { scale = 1.084, exponent = -0.527, fitted_from = 20, fitted_to = 320 }" in str(
        found
    )
    assert json.loads(json.dumps(found.to_dict()))["law"] == "timescale"


def test_what_is_no_decay_sweep_is_refused():
    with pytest.raises(OnecurveError, match="no sweep of weight decay was found"):
        fit_timescale([run("a", 1e8, 2e9, 1e6, 3.0), run("b", 2e8, 4e9, 1e6, 2.9)])
    with pytest.raises(OnecurveError, match="three or more tokens per parameter; 2 sweeps were found"):
        fit_timescale(decay_sweeps((20.0, 80.0)))
    cut = decay_sweeps()
    curve = cut[0].curves["val_loss"]
    cut[0] = Run(cut[0].config, {"val_loss": Curve(curve.x / 4, curve.loss, "held-out")})
    with pytest.raises(OnecurveError, match="has not ended"):
        fit_timescale(cut)


def test_a_training_loss_ends_at_its_trailing_mean():
    config = RunConfig(name="a", n_params=1.0, horizon=100.0)
    x = np.arange(1.0, 101.0)
    loss = np.where(x > 98, 2.0 + (x == 100), 3.0)
    assert final_loss(Run(config, {"loss": Curve(x, loss)}), None) == pytest.approx(2.5)
    assert final_loss(Run(config, {"val_loss": Curve(x, loss, "held-out")}), None) == 3.0
    assert np.isnan(final_loss(Run(config, {"loss": Curve(x, np.where(x == 100, np.inf, loss))}), None))


CRITICAL = 2e6


def batch_runs(scale=CRITICAL, exponent=0.0) -> list[Run]:
    """``L = 2 + 20 D_min^-.1`` where ``D = D_min (1 + B / B_crit)``, ``B_crit = scale (D_min / 1e10)^exponent``."""
    runs = []
    for batch in 2.5e5 * 2.0 ** np.arange(6):
        for least in np.geomspace(2e9, 5e10, 6):
            tokens = least * (1.0 + batch / (scale * (least / 1e10) ** exponent))
            runs.append(run(f"{batch:g}-{least:g}", 1e8, float(tokens), float(batch), 2.0 + 20.0 * least**-0.1))
    return runs


def test_the_hyperbola_gives_the_critical_batch():
    c = fit_batch(batch_runs()).critical
    assert c is not None and c.batches.size == 6
    assert c.critical == pytest.approx(np.full(5, CRITICAL), rel=1e-3)
    # At B_crit a loss takes twice the tokens that it takes at the smallest batch.
    assert c.tokens == pytest.approx(c.least_tokens[:, None] * (1.0 + c.batches / CRITICAL), rel=1e-3)
    assert c.least_tokens == pytest.approx((20.0 / (c.targets - 2.0)) ** 10.0, rel=1e-2)
    assert np.all((c.low <= CRITICAL * 1.001) & (c.high * 1.001 >= CRITICAL)) and abs(c.exponent) < 0.01


def test_a_critical_batch_that_grows_shows_its_exponent():
    found = fit_batch(batch_runs(exponent=0.462))
    assert found.critical.exponent == pytest.approx(0.462, abs=0.03)
    assert "in a recipe: critical_batch = {" in str(found) and "B_crit ~ D_min^0.4" in str(found)
    assert json.loads(json.dumps(found.to_dict(), default=list))["law"] == "batch"


def test_the_best_batch_grows_with_tokens():
    runs = [
        run(f"{d:g}-{b:g}", 1e8, d, b, 3.0 * float(np.exp(0.01 * np.log(b / (1e5 * (d / 1e9) ** 0.383)) ** 2)))
        for d in (1e9, 4e9, 16e9)
        for b in 1e5 * 2.0 ** np.arange(-3, 6)
    ]
    found = fit_batch(runs)
    assert found.best.exponent == pytest.approx(0.383, abs=1e-3)
    assert found.best(4e9) == pytest.approx(1e5 * 4**0.383, rel=1e-3)
    assert "in a recipe: batch = { batch = 2" in str(found) and "exponent = 0.383 }" in str(found)


def test_what_says_nothing_of_the_batch_is_refused():
    with pytest.raises(OnecurveError, match="no run records batch_tokens"):
        fit_batch([Run.of("a", n_params=1.0, x=[1.0, 2.0], loss=[1.0, 1.0])])
    with pytest.raises(OnecurveError, match="three or more horizons"):
        fit_batch(batch_runs()[:6])
    same = [
        run(f"{b}-{d}", 1e8, d, b, 2.0 + 20.0 * d**-0.1) for b in (1e5, 2e5, 4e5, 8e5) for d in (1e9, 2e9, 4e9, 8e9)
    ]
    with pytest.raises(OnecurveError, match="do not grow with the batch"):
        fit_batch(same)


def test_the_commands_write_what_a_plan_takes(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from onecurve.cli import app

    rows = [
        {"run": r.config.name, "tokens": x, "val_loss": y, "n_params": 100_000_000, "horizon": r.config.horizon}
        | {"batch_tokens": 1e6, "learning_rate": 0.01, "weight_decay": r.config.weight_decay, "schedule": "linear"}
        for r in decay_sweeps()
        for x, y in zip(r.curves["val_loss"].x, r.curves["val_loss"].loss, strict=True)
    ]
    path, out = tmp_path / "sweeps.csv", tmp_path / "timescale.json"
    pl.DataFrame(rows).write_csv(path)
    done = CliRunner().invoke(app, ["fit", "timescale", str(path), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "best timescale: tau = 1.084 TPP^-0.527" in done.output
    assert json.loads(out.read_text())["exponent"] == pytest.approx(-0.527, abs=1e-3)
