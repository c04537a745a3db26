from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from onecurve.errors import OnecurveError
from onecurve.frame import Columns, runs_from_frame
from onecurve.schedule import Schedule


def points(**columns) -> pl.DataFrame:
    base = {"run": list("aab"), "tokens": [1, 2, 1], "loss": [3.0, 2.0, 4.0], "n_params": [10, 10, 20]}
    return pl.DataFrame({k: v for k, v in (base | columns).items() if v is not None}, strict=False)


TABLE = pl.DataFrame({"run": ["a", "b"], "n_params": [10, 20], "seed": [0, 1]})


def test_a_long_table_becomes_runs():
    a, b = runs_from_frame(points(), source="file").runs
    assert (a.config.name, a.config.n_params, a.x_name, a.source) == ("a", 10.0, "tokens", "file")
    assert a.curves["loss"].x.tolist() == [1.0, 2.0]
    assert a.curves["loss"].kind == "training"
    assert b.curves["loss"].loss.tolist() == [4.0]


@pytest.mark.parametrize("column", ["val_loss", "test_loss", "eval/loss", "validation_loss"])
def test_held_out_losses_are_known_by_their_names(column):
    (run, _) = runs_from_frame(points(loss=None, **{column: [3.0, 2.0, 4.0]})).runs
    assert run.curves[column].kind == "held-out"


def test_any_loss_is_held_out_when_told():
    assert runs_from_frame(points(), columns=Columns(held_out=True)).runs[0].curves["loss"].kind == "held-out"
    other = points().rename({"loss": "mine"})
    assert runs_from_frame(other, columns=Columns(loss="mine")).runs[0].curves["mine"].kind == "training"
    told = runs_from_frame(other, columns=Columns(loss="mine", held_out=True))
    assert told.runs[0].curves["mine"].kind == "held-out"


def test_training_and_held_out_losses_are_read_together_each_with_its_own_points():
    both = points(val_loss=[None, 2.5, None])
    a, b = runs_from_frame(both).runs
    assert list(a.curves) == ["val_loss", "loss"]
    assert a.curves["val_loss"].x.tolist() == [2.0]
    assert list(b.curves) == ["loss"]


def test_runs_keep_the_order_in_which_they_appear_and_may_be_interleaved():
    mixed = points(run=["b", "a", "b"], tokens=[1, 1, 2], n_params=[20, 10, 20])
    b, a = runs_from_frame(mixed).runs
    assert (b.config.name, a.config.name) == ("b", "a")
    assert b.curves["loss"].loss.tolist() == [3.0, 4.0]


def test_rows_that_repeat_their_x_count_once_and_are_counted():
    table = runs_from_frame(points(run=list("aaa"), tokens=[1, 1, 2], n_params=[1, 1, 1]))
    assert table.runs[0].curves["loss"].loss.tolist() == [3.0, 4.0]
    assert table.dropped == {"rows that repeat the x of the row before": 1}


def test_a_table_without_a_run_column_is_one_run():
    (run,) = runs_from_frame(points(run=None, tokens=[1, 2, 3], n_params=[1, 1, 1]), source="logs/curve.csv").runs
    assert run.config.name == "curve"


def test_settings_stand_in_the_run_table():
    a, b = runs_from_frame(points(n_params=None), TABLE).runs
    assert [(r.config.n_params, r.config.seed) for r in (a, b)] == [(10.0, 0), (20.0, 1)]


def test_settings_stand_along_the_curves():
    a, _ = runs_from_frame(points(seed=[7, 7, 8], weight_decay=[0.1, 0.1, 0.2], team=["x", "x", "y"])).runs
    assert (a.config.seed, a.config.weight_decay, a.config.settings) == (7, 0.1, {"team": "x"})


def test_settings_may_stand_in_either_and_the_run_table_goes_first():
    a, b = runs_from_frame(points(seed=[5, 5, 6], batch_tokens=[3, 3, 4]), TABLE.drop("n_params")).runs
    assert [(r.config.n_params, r.config.seed, r.config.batch_tokens) for r in (a, b)] == [(10, 0, 3), (20, 1, 4)]
    told = runs_from_frame(points(size=[1, 1, 2]), TABLE, Columns(size="size")).runs
    assert [r.config.n_params for r in told] == [1.0, 2.0]


def test_what_changes_along_a_run_is_a_logged_value_and_no_setting():
    a, _ = runs_from_frame(points(lr=[0.1, 0.2, 0.3], grad_norm=[1.0, 2.0, 3.0])).runs
    assert a.config.learning_rate is None
    assert a.config.settings == {}
    steady, _ = runs_from_frame(points(lr=[0.1, 0.1, 0.3])).runs
    assert steady.config.learning_rate == 0.1


@pytest.mark.parametrize("columns", [Columns(), Columns(size="n_params")])
def test_a_size_that_changes_along_a_run_is_refused(columns):
    with pytest.raises(OnecurveError, match=r"column 'n_params' \(size\) changes along a run"):
        runs_from_frame(points(n_params=[10, 11, 20]), columns=columns)


def test_a_told_setting_that_changes_along_a_run_is_refused():
    with pytest.raises(OnecurveError, match=r"column 'budget' \(horizon\) changes along a run"):
        runs_from_frame(points(budget=[1, 2, 3]), TABLE, Columns(horizon="budget"))


def test_the_run_table_may_call_its_key_otherwise():
    renamed = TABLE.rename({"run": "run_id"})
    assert len(runs_from_frame(points(n_params=None), renamed).runs) == 2


def test_a_run_table_with_a_second_name_column_is_read_by_the_key_of_the_curves():
    table = TABLE.with_columns(name=pl.lit("x")).rename({"run": "run_id"})
    read = runs_from_frame(points(n_params=None).rename({"run": "run_id"}), table)
    assert [r.config.settings for r in read.runs] == [{"name": "x"}] * 2


def test_runs_of_the_table_without_a_curve_are_counted():
    table = pl.concat([TABLE, pl.DataFrame({"run": ["c"], "n_params": [1], "seed": [2]})])
    assert runs_from_frame(points(), table, source="f").warnings == ["1 of 3 runs in the run table have no curve in f"]


def test_equal_rows_of_the_run_table_count_once_and_others_are_refused():
    assert len(runs_from_frame(points(n_params=None), pl.concat([TABLE, TABLE])).runs) == 2
    with pytest.raises(OnecurveError, match="run 'a' has two rows that differ; keep one"):
        runs_from_frame(points(n_params=None), pl.concat([TABLE, TABLE.with_columns(pl.col("seed") + 9)]))


def test_a_run_that_the_table_lacks_is_named():
    with pytest.raises(OnecurveError, match=r"no row for run 'a'; its column 'run' has 'b'"):
        runs_from_frame(points(n_params=None), TABLE[1:])
    with pytest.raises(OnecurveError, match="no column that names the run; the curves name it in 'run'"):
        runs_from_frame(points(n_params=None), TABLE.drop("run"))


def test_a_schedule_is_put_together_from_its_columns():
    table = TABLE.with_columns(schedule=pl.lit("Const"), warmup=pl.lit(0.1), decay_frac=pl.lit(None, pl.Float64))
    a, _ = runs_from_frame(points(n_params=None), table).runs
    assert a.config.schedule == Schedule(shape="constant", warmup=0.1)
    odd, _ = runs_from_frame(points(n_params=None), TABLE.with_columns(schedule=pl.lit("staircase"))).runs
    assert odd.config.schedule is None
    assert odd.config.settings == {"schedule": "staircase"}


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_setting_is_unknown(missing):
    table = pd.DataFrame(
        {
            "run": ["a", "b"],
            "n_params": [1, 2],
            "seed": [0, missing],
            "wd": [missing, 0.1],
            "optimizer": [missing, "adam"],
        }
    )
    a, b = runs_from_frame(points(n_params=None), table).runs
    assert (a.config.seed, a.config.weight_decay, a.config.optimiser) == (0, None, None)
    assert (b.config.seed, b.config.weight_decay, b.config.optimiser) == (None, 0.1, "adam")


FRAMES = {
    "polars": lambda frame: frame,
    "lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)),
    "pandas nullable": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)).convert_dtypes(),
    "pandas arrow": lambda frame: frame.to_pandas(use_pyarrow_extension_array=True),
    "pandas categories": lambda frame: frame.to_pandas().astype({"run": "category"}),
    "dictionary": lambda frame: frame.to_dict(as_series=False),
    "polars categories": lambda frame: frame.with_columns(pl.col("run").cast(pl.Categorical)),
    "polars enum": lambda frame: frame.with_columns(pl.col("run").cast(pl.Enum(frame["run"].unique()))),
    "text": lambda frame: frame.select(pl.all().cast(pl.String)),
}


@pytest.mark.parametrize("kind", list(FRAMES))
def test_every_kind_of_frame_gives_the_same_runs(make_table, kind):
    frame = make_table(points=20)
    expected = runs_from_frame(frame).runs
    got = runs_from_frame(FRAMES[kind](frame)).runs
    assert [r.curves for r in got] == [r.curves for r in expected]
    assert [(r.config.name, r.config.n_params) for r in got] == [(r.config.name, r.config.n_params) for r in expected]
    assert [str(r.config.seed) for r in got] == [str(r.config.seed) for r in expected]


@pytest.mark.parametrize("kind", ["pandas", "pandas nullable", "pandas arrow"])
def test_a_nan_in_a_frame_never_becomes_a_number(kind):
    (run, _) = runs_from_frame(FRAMES[kind](points(loss=[float("nan"), 2.0, 4.0]))).runs
    assert run.curves["loss"].finite().loss.tolist() == [2.0]


def test_nan_and_inf_are_data():
    (run, _) = runs_from_frame(points(loss=[float("nan"), float("-inf"), 4.0])).runs
    np.testing.assert_array_equal(run.curves["loss"].loss, [np.nan, -np.inf])
    (text, _) = runs_from_frame(points(loss=["NaN", " -Inf ", "4"])).runs
    np.testing.assert_array_equal(text.curves["loss"].loss, [np.nan, -np.inf])


@pytest.mark.parametrize(
    ("frame", "columns", "words"),
    [
        (points()[:0], Columns(), "the table: no rows"),
        (points(loss=None), Columns(), "no column with a usual name of a loss.*name one with --loss"),
        (points(tokens=None), Columns(), "no column with a usual name of an x axis.*--x"),
        (points(n_params=None), Columns(), "no column with a usual name of the model size.*--size COLUMN.*--runs"),
        (points(), Columns(loss="los"), r"no column 'los' for --loss \(did you mean 'loss'\?\)"),
        (points(), Columns(x="token"), r"no column 'token' for --x \(did you mean 'tokens'\?\)"),
        (points(), Columns(size="n_param"), r"no column 'n_param' for --size \(did you mean 'n_params'\?\)"),
        (points(), Columns(run="runs"), r"no column 'runs' for --run \(did you mean 'run'\?\)"),
        (points(), Columns(seed="seed"), r"no column 'seed' for --seed"),
        (
            points(val_loss=[1, 2, 3], test_loss=[1, 2, 3]),
            Columns(),
            "'val_loss' and 'test_loss' could both be the held",
        ),
        (points(samples=[1, 2, 3]), Columns(), "'tokens' and 'samples' could both be the x axis; choose with --x"),
        (points(name=list("aab")), Columns(), "'run' and 'name' could both be the run; choose with --run"),
        (points(loss=["3", "2", "x"]), Columns(), "column 'loss' has 'x' at row 3, which is not a number"),
        (points(loss=["3", "y" * 999, "4"]), Columns(), r"column 'loss' has 'yyyy[y]+ \.\.\. at row 2"),
        (points(loss=[True, False, True]), Columns(), "column 'loss' holds Boolean, not numbers"),
        (points(tokens=[1, None, 1]), Columns(), "run 'a': column 'tokens' has no number at row 2"),
        (points(tokens=[2, 1, 1]), Columns(), "run 'a': 'tokens' goes back from 2 to 1 at row 2"),
        (points(run=["a", None, "b"]), Columns(), "row 2 has no value in column 'run'"),
        (points(loss=[None, None, 1.0]), Columns(), "run 'a': column 'loss' is empty"),
        (points(n_params=["7B", "7B", "1B"]), Columns(), "run 'a': size is '7B', which is not a number"),
        (points(n_params=[0, 0, 1]), Columns(), "run 'a': n_params is 0.0: input should be greater than 0"),
        (points(n_params=[datetime.date(2020, 1, 1)] * 3), Columns(), "size is datetime.*which is not a number"),
        (points(n_params=[None, None, 1]), Columns(), "run 'a': its size is empty"),
        (points(n_params=[[1], [1], [2]]), Columns(), "it must hold one value"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(frame, columns, words):
    with pytest.raises(OnecurveError, match=words):
        runs_from_frame(frame, columns=columns)


def test_two_pandas_columns_of_one_name_are_refused():
    with pytest.raises(OnecurveError, match="two columns of the table are called 'loss'"):
        runs_from_frame(pd.DataFrame([[1, 2.0, 3.0]], columns=["tokens", "loss", "loss"]))


def test_a_listing_of_many_columns_is_cut_short():
    wide = pl.DataFrame({f"metric_{i}": [1.0] for i in range(500)})
    with pytest.raises(OnecurveError) as error:
        runs_from_frame(wide)
    assert len(str(error.value)) < 2000
    assert "(500 in all)" in str(error.value)


def test_what_laws_need_is_kept_beside_the_losses():
    points = pl.DataFrame(
        {
            "run_id": ["a"] * 3 + ["b"] * 3,
            "n_params": [1.0] * 6,
            "tokens": [1.0, 2.0, 3.0] * 2,
            "loss": [3.0, 2.0, 1.0] * 2,
            "lr": [1.0, 0.5, 0.0, 1.0, 1.0, 1.0],
            "grad_cov_trace": [0.1, None, 0.3, 0.1, 0.2, 0.3],
        }
    )
    a, b = runs_from_frame(points).runs
    assert a.signals["learning_rate"].value.tolist() == [1.0, 0.5, 0.0]
    assert a.signals["gradient_noise"].x.tolist() == [1.0, 3.0]
    assert set(b.signals) == {"learning_rate", "gradient_noise"}
    # A rate that stays the same along every run is a setting.
    (lone,) = runs_from_frame(points.filter(pl.col("run_id") == "b")).runs
    assert lone.config.learning_rate == 1.0 and set(lone.signals) == {"gradient_noise"}


@pytest.mark.parametrize(
    ("axis", "horizon", "share"),
    [("tokens", 2000.0, 0.05), ("tokens", None, 0.1), ("step", 20.0, 0.5), ("flops", 2000.0, 0.0)],
)
def test_a_warmup_in_steps_becomes_a_share_where_steps_can_be_counted(axis, horizon, share):
    end = 20.0 if axis == "step" else 1000.0
    points = pl.DataFrame({"run": "a", axis: [end / 2, end], "loss": [2.0, 1.0]})
    runs = pl.DataFrame(
        {
            "run": "a",
            "n_params": 1e6,
            "schedule": "linear",
            "warmup_steps": 10,
            "batch_tokens": 10.0,
            "horizon": horizon,
        }
    )
    (run,) = runs_from_frame(points, runs, Columns(x=axis)).runs
    assert run.config.schedule.warmup == pytest.approx(share)


def test_an_empty_cell_of_the_run_table_leaves_what_the_curves_say():
    long = points(horizon=[9.0, 9.0, 7.0])
    table = TABLE.with_columns(horizon=pl.Series([None, 5.0]))
    assert [r.config.horizon for r in runs_from_frame(long, table).runs] == [9.0, 5.0]
