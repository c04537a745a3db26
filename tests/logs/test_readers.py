"""Every reader, on one ladder written through every format: the same curves to the bit, and the same verdict."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import polars as pl
import pytest

from onecurve import Ladder, OnecurveError, collapse, read
from onecurve.laws.path import constant_rate
from onecurve.logs import databases, jsonl, tensorboard, wandb
from onecurve.logs.discover import discover

from .made import FORMATS, SETTINGS, SIZES, STEPS, history, item, loss, message, wandb_file

SELF_DESCRIBED = {"W&B offline", "MLflow", "MLflow store", "Trackio", "JSON lines"}
"""Formats that keep the model's size."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("logs")
    return {name: make(root / place) for name, (make, place) in FORMATS.items()}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("table") / "runs.csv"
    rows = [{"run": name, "n_params": n, "horizon": None} for name, n in SIZES.items()]
    pl.DataFrame(rows).write_csv(file)
    return file


every_format = pytest.mark.parametrize("name", list(FORMATS))


@every_format
def test_every_format_gives_the_same_curves_to_the_bit(written, table, name):
    found = read([written[name]], None if name in SELF_DESCRIBED else table)
    assert [r.config.name for r in sorted(found.runs, key=lambda r: r.config.n_params)] == list(SIZES)
    for run in found.runs:
        curve = next(c for c in run.curves.values() if c.kind == "training")
        assert np.array_equal(curve.loss, loss(run.config.n_params))
        per_step = 8192.0 if run.x_name == "tokens" else 1.0
        assert np.array_equal(curve.x, STEPS * per_step)


@every_format
def test_every_format_gives_the_same_verdict(written, table, name):
    found = read([written[name]], None if name in SELF_DESCRIBED else table)
    key = next(k for k, c in found.runs[0].curves.items() if c.kind == "training")
    c = collapse(Ladder(found.runs), floor=2.0, loss=key)
    assert c.practical
    assert c.at(c.deviation, 0.5) < 1e-6


@pytest.mark.parametrize("name", sorted(SELF_DESCRIBED | {"Megatron-LM"}))
def test_settings_come_from_the_source_where_it_keeps_them(written, table, name):
    for run in read([written[name]], table if name == "Megatron-LM" else None).runs:
        c = run.config
        assert (c.batch_tokens, c.learning_rate, c.weight_decay, c.seed) == (8192.0, 1e-3, 0.1, 0)
        assert c.schedule is not None and c.schedule.shape == "linear"
        assert (run.x_name, c.horizon) == ("tokens", 200 * 8192.0)


def test_a_resumed_tensorboard_run_keeps_the_branch_written_last(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    for first, last, value, marked in ((0, 100, 1.0, None), (60, 80, 2.0, 60), (70, 120, 3.0, None)):
        with SummaryWriter(tmp_path / "run", purge_step=marked) as writer:
            for k in range(first, last):
                writer.add_scalar("loss", value, k)
    log = discover(tmp_path).logs[0]
    table = tmp_path / "runs.csv"
    table.write_text("run,n_params\nrun,1e6\n")
    (run,) = read([tmp_path / "run"], table).runs
    curve = run.curves["loss"]
    assert np.array_equal(curve.x, np.arange(120))
    assert np.array_equal(curve.loss, np.repeat([1.0, 2.0, 3.0], [60, 10, 50]))
    assert len(log.series["loss"]) == 170
    warnings = read([tmp_path / "run"], table).warnings
    assert any("goes back from step 99 to 60" in w for w in warnings)


def test_tensorboard_tensors_and_several_tags_are_read(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for k in range(300):
            writer.add_scalar("train/loss", 3.0 - k / 300, k)
            writer.add_scalar("val/loss", 3.1 - k / 300, k, new_style=True)
            writer.add_scalar("train/lr", float("nan") if k == 7 else 1e-3, k)
        writer.add_text("notes", "words")
        writer.add_histogram("weights", np.arange(10.0), 3)
    (log,) = tensorboard.read(sorted(tmp_path.iterdir()))
    assert {name: len(s) for name, s in log.series.items()} == {"train/loss": 300, "val/loss": 300, "train/lr": 300}
    assert np.array_equal(log.series["val/loss"].value, (3.1 - np.arange(300) / 300).astype(np.float32).astype(float))
    assert np.isnan(log.series["train/lr"].value[7]) and np.isfinite(np.delete(log.series["train/lr"].value, 7)).all()


def test_tensorboard_agrees_with_its_own_reader(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    rng = np.random.default_rng(0)
    with SummaryWriter(tmp_path) as writer:
        for k in np.unique(rng.integers(0, 10**7, 500)):
            writer.add_scalar("a/loss", rng.standard_normal(), int(k))
    theirs = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    theirs.Reload()
    events = theirs.Scalars("a/loss")
    ours = tensorboard.read(sorted(tmp_path.iterdir()))[0].series["a/loss"]
    assert ours.step.tolist() == [e.step for e in events]
    assert ours.value.tolist() == [e.value for e in events]


def test_a_damaged_tensorboard_record_is_skipped_and_counted(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for k in range(100):
            writer.add_scalar("loss", 1.0, k)
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[-10] ^= 1  # in the payload of the last record
    file.write_bytes(bytes(data))
    (log,) = tensorboard.read([file])
    assert len(log.series["loss"]) == 99
    assert log.dropped == {"records with a wrong checksum": 1}


def test_a_wandb_record_may_span_blocks(tmp_path):
    long = "x" * 100_000
    records = [
        message((17, message((1, b"id"), (8, b"run"), (4, message((1, item("note", long))))))),
        history(3, loss=1.5),
    ]
    wandb_file(tmp_path / "a.wandb", records)
    (log,) = wandb.read([tmp_path / "a.wandb"])
    assert (log.name, log.settings["note"], log.series["loss"].value.tolist()) == ("run", long, [1.5])


def test_a_live_wandb_file_is_read_to_its_last_whole_record(tmp_path):
    wandb_file(tmp_path / "a.wandb", [history(k, loss=1.0) for k in range(10)])
    data = (tmp_path / "a.wandb").read_bytes()
    (tmp_path / "a.wandb").write_bytes(data[:-5])
    (log,) = wandb.read([tmp_path / "a.wandb"])
    assert len(log.series["loss"]) == 9 and log.dropped == {"torn last records": 1}


def test_non_finite_values_stay_data(tmp_path):
    wandb_file(tmp_path / "a.wandb", [history(1, loss=1.0), history(2, loss=float("nan")), history(3, loss="Infinity")])
    assert str(wandb.read([tmp_path / "a.wandb"])[0].series["loss"].value.tolist()) == "[1.0, nan, inf]"
    with sqlite3.connect(tmp_path / "m.db") as db:
        db.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        rows = [(1.0, 0), (0.0, 1), (1.7976931348623157e308, 0), (-1.7976931348623157e308, 0)]
        db.executemany(
            "INSERT INTO metrics VALUES ('loss', ?, ?, 'r', ?, ?)", [(v, k, k, n) for k, (v, n) in enumerate(rows)]
        )
    (log,) = databases.read([tmp_path / "m.db"])
    assert str(log.series["loss"].value.tolist()) == "[1.0, nan, inf, -inf]"


def test_a_locked_database_says_so(tmp_path):
    file = tmp_path / "m.db"
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
    writer.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(OnecurveError, match="locked by its writer"):
            databases.read([file])
    finally:
        writer.close()


def test_another_program_s_database_is_refused_with_its_tables(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as db:
        db.execute("CREATE TABLE songs (title)")
    with pytest.raises(OnecurveError, match="neither MLflow's nor Trackio's; its tables are songs"):
        read([tmp_path / "x.db"])


def test_the_summary_row_of_a_trainer_is_no_point(written, table):
    log = discover(written["Hugging Face Trainer"]).logs[0]
    assert "train_loss" not in log.series and log.summaries["train_loss"].step.tolist() == [200.0]
    assert len(log.series["loss"]) == 200  # the later checkpoint's


def test_a_mean_over_an_interval_lies_in_its_middle(tmp_path):
    rows = [{"step": k, "loss": 1.0 + k} for k in (100, 200, 300)]
    state = {"global_step": 300, "log_history": rows, "best_metric": None}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "runs.csv").write_text(f"run,n_params\n{tmp_path.name},1e6\n")
    found = read([tmp_path / "trainer_state.json"], tmp_path / "runs.csv")
    assert found.runs[0].curves["loss"].x.tolist() == [50.0, 150.0, 250.0]
    assert any("mean over the steps since the point before" in w for w in found.warnings)


def test_links_that_lead_out_are_not_followed(written, tmp_path):
    outside = written["JSON lines"]
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "file.jsonl").symlink_to(outside / "small" / "metrics.jsonl")
    assert not discover(tmp_path).logs


def test_logs_without_a_loss_beside_others_are_left_out_and_told(tmp_path):
    for name, metric in (("a", "train/loss"), ("b", "gpu")):
        wandb_file(
            tmp_path / f"{name}.wandb", [message((5, message((1, item("n_params", 1e6))))), history(1, **{metric: 1.0})]
        )
    found = read([tmp_path])
    assert len(found.runs) == 1
    assert any("1 of 2 logs have no loss" in w for w in found.warnings)
    (tmp_path / "a.wandb").unlink()
    with pytest.raises(OnecurveError, match="no series with a usual name of a loss; it has gpu; name one with --loss"):
        read([tmp_path])


def test_tokens_that_disagree_with_the_settings_are_told_with_the_factor(tmp_path):
    settings = message((5, message(*((1, item(k, v)) for k, v in (SETTINGS | {"n_params": 1e6}).items()))))
    rows = [history(k, loss=2.0, **{"tokens": k * 8192 * 2}) for k in range(1, 50)]
    wandb_file(tmp_path / "a.wandb", [settings, *rows])
    from onecurve.logs.assemble import configured
    from onecurve.logs.axis import axis_of

    (log,) = wandb.read([tmp_path / "a.wandb"])
    axis = axis_of(log, configured(log.settings))
    assert axis.per_step == pytest.approx(16384.0)
    assert "a factor 2" in axis.words


def test_console_lines_of_nanogpt(tmp_path):
    lines = ["step 0: train loss 4.2, val loss 4.3", "iter 0: loss 4.25, time 9.1ms", "iter 10: loss 3.5, time 9.1ms"]
    lines += ["step 250: train loss 2.2, val loss 2.3", "nothing to see"]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    (log,) = discover(tmp_path).logs
    assert log.series["val_loss"].step.tolist() == [0.0, 250.0]
    assert log.series["train_loss"].value.tolist() == [4.2, 2.2]
    assert log.series["train_loss_step"].value.tolist() == [4.25, 3.5]
    (tmp_path / "train.log").write_text("just words\n")
    assert not discover(tmp_path).logs


def test_a_torn_last_line_is_normal_and_one_in_the_middle_is_not(tmp_path):
    rows = [json.dumps({"step": k, "loss": 1.0}) for k in range(5)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows)[:-4])
    (log,) = discover(tmp_path).logs
    assert len(log.series["loss"]) == 4 and log.dropped == {"torn last records": 1}
    rows[2] = rows[2][:-3]
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    with pytest.raises(OnecurveError, match=r"a\.jsonl: line 3 is not JSON"):
        discover(tmp_path)


def test_json_lines_with_bare_nan_are_read_as_fast_and_as_exactly(tmp_path):
    rows = [{"step": k, "loss": float("nan") if k == 3 else 1 / (k + 3), "note": "7"} for k in range(20)]
    rows[5]["grad_norm"] = float("-inf")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    data = (tmp_path / "a.jsonl").read_bytes()
    fast, slow = jsonl._by_columns(data), jsonl._line_by_line(tmp_path, data)
    assert fast is not None and fast[1:] == slow[1:]
    assert set(fast[0]) == set(slow[0]) == {"loss", "grad_norm"}
    for name, series in fast[0].items():
        assert np.array_equal(series.step, slow[0][name].step)
        assert np.array_equal(series.value, slow[0][name].value, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "series"),
    [
        (
            [{"step": 1, "log_type_name": "loss", "value": 2.0}, {"step": 1, "log_type_name": "tps", "value": 9}],
            ["loss", "tps"],
        ),
        ([{"training_iteration": 1, "loss": 2.0, "config": {"lr": 0.1}}], ["config/lr", "loss"]),
        (
            [{"current_steps": 5, "total_steps": 10, "loss": 2.0, "lr": 1e-3, "percentage": 50.0}],
            ["loss", "lr", "percentage", "total_steps"],
        ),
        ([{"step": 1, "metrics": {"train/loss": 2.0, "eval": {"loss": 3.0}}}], ["eval/loss", "train/loss"]),
        (
            [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "val": [1]}, {"step": 3, "loss": {"a": 1.0}}],
            ["loss", "loss/a"],
        ),
    ],
)
def test_json_lines_of_many_trainers_by_columns_and_by_lines(tmp_path, rows, series):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    data = (tmp_path / "a.jsonl").read_bytes()
    for found in (jsonl._by_columns(data), jsonl._line_by_line(tmp_path, data)):
        if found is not None:
            assert sorted(found[0]) == series
    assert sorted(discover(tmp_path).logs[0].series) == series


def test_keys_that_come_late_are_read(tmp_path):
    rows = [{"step": k, "loss": 1.0} | ({"val_loss": 2.0} if k == 2_500 else {}) for k in range(3_000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (log,) = discover(tmp_path).logs
    assert {k: len(s) for k, s in log.series.items()} == {"loss": 3_000, "val_loss": 1}
    rows[2_900]["loss"] = 1  # an integer among floats
    rows[2_950]["loss"] = float("nan")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (log,) = discover(tmp_path).logs
    assert len(log.series["loss"]) == 3_000 and np.isnan(log.series["loss"].value[2_950])


def test_a_chart_exported_from_wandb_gives_its_runs(tmp_path):
    lines = ['"Step","a b - train/loss","a b - train/loss__MIN","a b - train/loss__MAX","c - d - train/loss"']
    lines += [f'"{k}","{3 - k / 10}","{3 - k / 10}","{3 - k / 10}",""' for k in range(5)] + ['"9","","","","1.5"']
    (tmp_path / "wandb_export.csv").write_text("\n".join(lines))
    first, second = discover(tmp_path / "wandb_export.csv").logs
    assert (first.name, second.name) == ("a b", "c - d")
    assert first.series["train/loss"].value.tolist() == [3 - k / 10 for k in range(5)]
    assert second.series["train/loss"].step.tolist() == [9.0]
    assert first.notes == ()
    lines[3] = lines[3].replace('"2.8","2.8"', '"2.8","2.1"', 1)
    (tmp_path / "wandb_export.csv").write_text("\n".join(lines))
    assert "stands for several steps" in discover(tmp_path / "wandb_export.csv").logs[0].notes[0]


def test_a_table_of_runs_from_wandb_is_refused(tmp_path):
    (tmp_path / "runs.csv").write_text('"Name","State","Created","train/loss"\n"a","finished","2026","2.0"\n')
    with pytest.raises(OnecurveError, match="W&B's table of runs, which holds no curve"):
        read([tmp_path / "runs.csv"])


def test_numbers_of_any_width_are_numbers(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,train_loss\n1,2.0\n123456789012345678901234567890,1.0\n")
    (log,) = discover(tmp_path).logs
    assert log.series["train_loss"].step.tolist() == [1.0, 123456789012345678901234567890.0]


def test_a_rate_that_never_changes_is_a_constant_schedule(tmp_path):
    for name, last in (("steady", 1e-3), ("falling", 1e-4)):
        rows = [{"step": k, "loss": 3 - k / 100, "lr": 1e-3 if k < 9 else last} for k in range(1, 11)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    table = tmp_path / "runs.csv"
    table.write_text("run,n_params\nsteady,1e6\nfalling,2e6\n")
    steady, falling = sorted(read([tmp_path], table).runs, key=lambda r: r.config.n_params)
    assert constant_rate(steady) is True
    assert constant_rate(falling) is False
