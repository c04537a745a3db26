from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecurve.errors import OnecurveError
from onecurve.ladder import Ladder, families, select
from onecurve.run import Curve, Run, RunConfig
from onecurve.schedule import Schedule


def run(name, n=1.0, loss=(3.0, 2.0, 1.0), x=(1.0, 2.0, 3.0), kind="held-out", loss_name="loss", **config) -> Run:
    curve = Curve(np.array(x, dtype=float), np.array(loss, dtype=float), kind)
    return Run(RunConfig(name=name, n_params=n, **config), {loss_name: curve})


def test_runs_are_sorted_by_size_then_name():
    ladder = Ladder([run("b", 2.0), run("c"), run("a", 2.0, (4, 3, 2))])
    assert [r.config.name for r in ladder.runs] == ["c", "a", "b"]
    assert ladder.sizes == [1.0, 2.0]
    assert [(n, len(runs)) for n, runs in ladder.rungs()] == [(1.0, 1), (2.0, 2)]


def test_no_runs_are_no_ladder():
    with pytest.raises(OnecurveError, match="at least one run"):
        Ladder([])
    with pytest.raises(OnecurveError, match="no runs were given"):
        families([])


@pytest.mark.parametrize("last", [1.0, np.nan])
def test_copies_count_once(last):
    twice = [run(name, seed=0, loss=(3.0, 2.0, last)) for name in "ab"]
    ladder = Ladder(twice)
    assert len(ladder.runs) == 1
    assert ladder.dropped == {"copies of a run": 1}
    assert ladder.warnings == ()


def test_runs_without_a_seed_are_copies_when_they_are_equal():
    ladder = Ladder([run("a"), run("b"), run("c", loss=(3, 2, 1.5))])
    assert len(ladder.runs) == 2
    assert ladder.dropped == {"copies of a run": 1}


def test_equal_losses_under_two_seeds_are_kept_and_warned_of_once():
    ladder = Ladder([run("a", seed=0), run("b", seed=1)])
    assert len(ladder.runs) == 2
    (warning,) = ladder.warnings
    assert "'a' and 'b' have different seeds (0 and 1) but the same losses" in warning
    assert ladder.noting({}, []).warnings == ladder.warnings


def test_a_copy_of_a_twin_is_a_copy():
    ladder = Ladder([run("a", seed=0), run("b", seed=1), run("c", seed=1)])
    assert [r.config.name for r in ladder.runs] == ["a", "b"]
    assert ladder.dropped == {"copies of a run": 1}


def test_one_seed_with_two_curves_is_refused():
    with pytest.raises(OnecurveError, match=r"2 runs have size 1 and seed 0 but different losses: a, b.*--by"):
        Ladder([run("a", seed=0), run("b", seed=0, loss=(3, 2, 1.5))])


@pytest.mark.parametrize(
    ("what", "pair"),
    [
        ("schedule", ({"schedule": Schedule(shape="linear")}, {"schedule": Schedule(shape="cosine")})),
        ("learning rate", ({"learning_rate": 0.1}, {"learning_rate": 0.2})),
        ("base rate", ({"base_learning_rate": 0.1}, {"base_learning_rate": 0.2})),
        ("weight decay", ({"weight_decay": 0.1}, {})),
        ("tokens per parameter", ({"horizon": 3.0}, {"horizon": 6.0})),
        ("parameterisation", ({"parameterisation": "mup"}, {"parameterisation": "standard"})),
        ("optimiser", ({"optimiser": "adam"}, {"optimiser": "sgd"})),
        ("batch", ({"batch_tokens": 1.0}, {"batch_tokens": 2.0})),
    ],
)
def test_runs_of_one_size_that_differ_in_more_than_the_seed_are_no_repetitions(what, pair):
    with pytest.raises(OnecurveError, match=rf"2 runs of size 1 differ in more than the seed, in .*{what}"):
        Ladder([run("a", seed=0, **pair[0]), run("b", seed=1, loss=(3, 2, 1.5), **pair[1])])


def test_horizons_rounded_to_whole_steps_stay_repetitions():
    Ladder([run("a", seed=0, horizon=3.0), run("b", seed=1, horizon=3.1, loss=(3, 2, 1.5))])


def two_recipes() -> list[Run]:
    return [
        run(f"{shape}-{n}", n, (3, 2, 1 + n / 10), schedule=Schedule(shape=shape), settings={"team": f"{n}"})
        for n in (1.0, 2.0)
        for shape in ("linear", "cosine")
    ]


def test_schedules_tell_families_apart():
    linear, cosine = families(two_recipes())
    assert (linear.name, cosine.name) == ("schedule linear", "schedule cosine")
    assert [r.config.name for r in cosine.runs] == ["cosine-1.0", "cosine-2.0"]


def test_one_recipe_is_one_family_even_where_settings_follow_from_size():
    runs = [run(f"{n}", n, (3, 2, 1 + n / 10), learning_rate=0.1 / n, batch_tokens=n) for n in (1.0, 2.0, 3.0)]
    assert len(families(runs)) == 1


def test_families_can_be_told_apart_by_a_recorded_setting():
    assert [f.name for f in families(two_recipes(), by="schedule")] == ["schedule linear", "schedule cosine"]
    with pytest.raises(OnecurveError, match="no two sizes share a value"):
        families(two_recipes(), by="team")


@pytest.mark.parametrize("by", ["weight_decay", "width", "parameterisation", "optimiser"])
def test_families_can_be_told_apart_by_a_field(by):
    values = (1, 2) if by == "width" else (0.1, 0.2) if by == "weight_decay" else ("x", "y")
    runs = [run(f"{v}-{n}", n, (3, 2, 1 + n / 10), **{by: v}) for n in (1.0, 2.0) for v in values]
    assert [len(f.runs) for f in families(runs, by=by)] == [2, 2]


def test_an_unknown_setting_lists_the_known_ones():
    with pytest.raises(
        OnecurveError, match=r"no setting 'teem' to tell families apart by; recorded are schedule, team"
    ):
        families(two_recipes(), by="teem")


def test_recipes_that_no_two_sizes_share_cannot_be_told():
    runs = [run("a", 1.0, learning_rate=0.1), run("b", 1.0, (3, 2, 1.5), learning_rate=0.2)]
    runs += [run("c", 2.0, learning_rate=0.3), run("d", 2.0, (3, 2, 1.5), learning_rate=0.4)]
    with pytest.raises(OnecurveError, match="runs of one size differ in learning rate, but no two sizes share a value"):
        families(runs)


def test_sampling_is_linear_interpolation_in_the_share_of_the_horizon():
    ladder = Ladder([run("a", horizon=4.0, x=(1, 2, 4), loss=(8.0, 4.0, 2.0)), run("b", 2.0, horizon=3.0)])
    s = ladder.sample(np.array([0.5, 0.75, 1.0]))
    assert s.loss[0].tolist() == [4.0, 3.0, 2.0]
    assert s.loss[1].tolist() == [2.5, 1.75, 1.0]
    assert s.window == 0.0
    assert s.kind == "held-out"


def test_the_grid_begins_where_all_runs_have_begun():
    ladder = Ladder([run("a", x=(1, 2, 10)), run("b", 2.0, x=(3, 4, 10))])
    s = ladder.sample()
    assert s.fraction[0] == pytest.approx(0.3)
    assert s.fraction[-1] == 1.0
    assert "2 of 2 runs state no horizon" in s.warnings[0]


def test_held_out_losses_go_first_and_the_choice_can_be_overridden():
    both = Run(
        RunConfig(name="a", n_params=1.0),
        {"loss": run("", kind="training").curves["loss"], "val": run("").curves["loss"]},
    )
    ladder = Ladder([both, Run(RunConfig(name="b", n_params=2.0), both.curves)])
    assert ladder.sample().loss_name == "val"
    assert ladder.sample(loss="loss").window == 0.02
    assert ladder.sample(loss="loss", kind="held-out").window == 0.0
    with pytest.raises(OnecurveError, match=r"run 'a': no curve 'test'; it has 'loss', 'val'"):
        ladder.sample(loss="test")


def test_runs_that_share_no_curve_are_refused():
    ladder = Ladder([run("a", loss_name="train"), run("b", 2.0, loss_name="test")])
    with pytest.raises(OnecurveError, match=r"share no curve: run 'a' has \['train'\], run 'b' has \['test'\]"):
        ladder.sample()


def test_runs_that_end_early_are_shown_and_kept_out():
    x = np.arange(1.0, 11.0)
    early = run("early", x=x[:6], loss=1 / x[:6], horizon=10.0, seed=1)
    almost = run("almost", 2.0, x=x[:9], loss=1 / x[:9], horizon=10.0)
    short = run("short", x=x[:8], loss=1 / x[:8], horizon=10.0, seed=2)
    s = Ladder([run("full", x=x, loss=1 / x, horizon=10.0, seed=0), early, short, almost]).sample()
    assert [r.config.name for r in s.runs] == ["full", "almost"]  # one evaluation early is finished, two are not
    assert [r.config.name for r in s.unfinished] == ["early", "short"]
    assert any("early (at x = 0.60)" in w for w in s.warnings)
    assert s.counts.tolist() == [1, 1]


def test_a_run_that_diverged_is_unfinished():
    x = np.arange(1.0, 11.0)
    loss = np.where(x > 5, np.nan, 1 / x)
    s = Ladder([run("a", x=x, loss=loss, seed=0), run("b", x=x, loss=1 / x, seed=1)]).sample()
    assert [r.config.name for r in s.unfinished] == ["a"]
    assert s.dropped == {"losses that are NaN or infinite": 5}


def test_a_sparse_loss_with_gaps_written_as_nan_is_finished():
    x = np.arange(1.0, 101.0)
    loss = np.where(x % 10 == 5, 1 / x, np.nan)  # evaluated every tenth step, last at 95
    s = Ladder([run("a", x=x, loss=loss, horizon=100.0)]).sample(np.array([0.5, 1.0]))
    assert s.unfinished == ()
    assert s.loss[0, 1] == pytest.approx(1 / 95)


def test_nan_and_inf_are_stepped_over_and_counted():
    s = Ladder([run("a", x=(1, 2, 3, 4), loss=(4.0, np.inf, np.nan, 1.0))]).sample(np.array([0.5, 0.75, 1.0]))
    assert s.loss[0].tolist() == [3.0, 2.0, 1.0]
    assert s.dropped == {"losses that are NaN or infinite": 2}
    assert "2 losses are NaN or infinite: left out of every statistic" in s.warnings


def test_a_run_without_a_single_number_is_named():
    with pytest.raises(OnecurveError, match=r"run 'a': all 3 values of 'loss' are NaN or infinite"):
        Ladder([run("a", loss=(np.nan, np.inf, -np.inf))]).sample()


def test_no_finished_run_is_an_error():
    with pytest.raises(OnecurveError, match=r"none of the 1 runs reaches its horizon.*--horizon"):
        Ladder([run("a", horizon=100.0)]).sample()


@pytest.mark.parametrize("x", [(-3, -2, -1), (-2, -1, 0)])
def test_an_axis_that_ends_at_or_below_zero_is_refused(x):
    with pytest.raises(OnecurveError, match=r"ends at -?\d, so no share"):
        Ladder([run("a", x=x)]).sample()


def test_curves_with_no_common_stretch_are_refused():
    with pytest.raises(OnecurveError, match=r"run 'b': the first point is at x = 1 of the horizon"):
        Ladder([run("a"), run("b", 2.0, x=(5,), loss=(1,), horizon=5.0)]).sample()


@pytest.mark.parametrize("window", [-0.1, np.inf, np.nan, 1e9])
def test_a_smoothing_window_is_a_share_of_the_run(window):
    with pytest.raises(OnecurveError, match="--window"):
        Ladder([run("a")]).sample(window=window)


def test_a_training_loss_is_smoothed_by_a_trailing_mean():
    x = np.arange(1.0, 101.0)
    loss = np.random.default_rng(0).uniform(1, 2, 100)
    s = Ladder([run("a", x=x, loss=loss, kind="training")]).sample(window=0.05)
    for fraction, value in zip(s.fraction, s.loss[0], strict=True):
        end = round(100 * fraction, 9)
        inside = (x > end - 5) & (x <= end)
        assert value == pytest.approx(loss[inside].mean())
    assert s.loss[0, -1] == pytest.approx(loss[-5:].mean())


def test_the_default_window_is_two_hundredths_of_the_run():
    x = np.arange(1.0, 1001.0)
    loss = np.random.default_rng(0).uniform(1, 2, 1000)
    s = Ladder([run("a", x=x, loss=loss, kind="training")]).sample()
    assert s.window == 0.02
    assert s.loss[0, -1] == pytest.approx(loss[-20:].mean(), rel=1e-12)


def test_a_window_that_holds_no_point_gives_the_interpolated_loss():
    s = Ladder([run("a", x=(10, 20, 100), loss=(3.0, 2.0, 1.0), kind="training")]).sample(np.array([0.6, 1.0]))
    assert s.loss[0].tolist() == [1.5, 1.0]


def test_a_spike_is_gone_once_the_window_has_passed_it():
    x = np.arange(1.0, 1001.0)
    loss = np.where(x == 100, 1e30, 2.0)
    s = Ladder([run("a", x=x, loss=loss, kind="training")]).sample()
    assert s.loss[0, -1] == 2.0
    assert (s.loss[0, s.fraction > 0.121] == 2.0).all()


@settings(max_examples=20)
@given(st.floats(0.0, 0.3), st.integers(20, 300), st.lists(st.floats(0.1, 1e9), min_size=2, max_size=4, unique=True))
def test_smoothing_over_one_share_keeps_a_perfect_family_perfect(window, points, horizons):
    x = np.arange(1, points + 1) / points
    runs = [
        run(f"{i}", i + 1.0, x=x * d, loss=(i + 1) * x**-0.4, horizon=d, kind="training")
        for i, d in enumerate(horizons)
    ]
    s = Ladder(runs).sample(window=window)
    curves = s.loss / s.loss[:, -1:]
    np.testing.assert_allclose(curves, np.broadcast_to(curves[0], curves.shape), rtol=1e-9)


def test_a_ladder_says_what_it_is():
    assert repr(Ladder([run("a")])) == "Ladder(1 size 1, 1 run, 1 seed a size)"
    ladder = Ladder([run("a", 1e6, seed=0), run("b", 1e6, (3, 2, 1.5), seed=1), run("c", 2e9)], name="mup")
    assert repr(ladder) == "Ladder(mup: 2 sizes from 1M to 2B, 3 runs, 1 to 2 seeds a size)"


def test_a_ladder_can_be_made_of_a_frame():
    frame = pl.DataFrame(
        {"run": list("aabb"), "step": [1, 2, 1, 2], "loss": [2.0, 1.0, 4.0, 2.0], "n_params": [1, 1, 2, 2]}
    )
    assert repr(Ladder.from_frame(frame)) == "Ladder(2 sizes from 1 to 2, 2 runs, 1 seed a size)"
    mixed = pl.concat(
        [
            frame.with_columns(optimizer=pl.lit("adam")),
            frame.with_columns(pl.col("run") + "2", pl.col("loss") * 1.1, optimizer=pl.lit("sgd")),
        ]
    )
    with pytest.raises(OnecurveError, match=r"2 families \(optimiser adam; optimiser sgd\)"):
        Ladder.from_frame(mixed)


def test_noting_adds_to_what_is_known():
    ladder = Ladder([run("a")], dropped={"rows": 1}).noting({"rows": 2, "runs": 1}, ["look"])
    assert ladder.dropped == {"rows": 3, "runs": 1}
    assert ladder.warnings == ("look",)


def branch(name: str, size: float, parent: str | None, loss: float) -> Run:
    config = RunConfig(name=name, n_params=size, horizon=2.0, parent=parent, branch_step=None if parent is None else 1)
    return Run(config, {"loss": Curve(np.array([1.0, 2.0]), np.array([2.0, loss]))})


def test_a_trunk_and_its_branches_are_different_families():
    runs = [branch("a", 1.0, None, 1.2), branch("a-decay", 1.0, "a", 1.1)]
    runs += [branch("b", 2.0, None, 1.1), branch("b-decay", 2.0, "b", 1.0)]
    trunk, branches = families(runs)
    assert [r.config.name for r in trunk.runs] == ["a", "b"]
    assert [r.config.name for r in branches.runs] == ["a-decay", "b-decay"]


def test_two_branches_of_one_run_are_never_seeds_of_each_other():
    with pytest.raises(OnecurveError, match="x, y branched off the same run 'a'"):
        Ladder([branch("x", 1.0, "a", 1.1), branch("y", 1.0, "a", 1.0)])


LOT = [
    run("small-0", 1e6, seed=0, schedule=Schedule(shape="linear"), settings={"log": "a"}),
    run("small-1", 1e6, seed=1, schedule=Schedule(shape="cosine", warmup=0.1)),
    run("large-0", 4.2e7, seed=0, settings={"log": "b"}),
]


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("n_params=1e6", ["small-0", "small-1"]),
        ("n_params=1000000", ["small-0", "small-1"]),
        ("n_params=4.19e7", ["large-0"]),
        ("n_params!=1e6", ["large-0"]),
        ("seed=0", ["small-0", "large-0"]),
        ("name=small-*", ["small-0", "small-1"]),
        ("name=small-1,large-0", ["small-1", "large-0"]),
        ("schedule=linear", ["small-0"]),
        ("schedule=cosine*", ["small-1"]),
        ("log=a", ["small-0"]),
        ("log!=a", ["small-1", "large-0"]),
    ],
)
def test_runs_are_chosen_by_what_was_recorded(condition, names):
    assert [r.config.name for r in select(LOT, condition)] == names


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("seed", "is no condition; write SETTING=VALUE"),
        ("=1", "is no condition"),
        ("seed=", "is no condition"),
        ("seeed=1", r"no run records 'seeed' \(did you mean 'seed'\?\); recorded are log, n_params, name"),
        ("seed=7", "no run meets 'seed=7'; the values of 'seed' are 0, 1"),
    ],
)
def test_a_choice_that_cannot_be_made_is_explained(condition, words):
    with pytest.raises(OnecurveError, match=words):
        select(LOT, condition)
