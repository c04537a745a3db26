"""Reading on: what is new is given once, a torn tail is kept back, a file that was cut or replaced is told."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest

from onecurve import OnecurveError, RunConfig
from onecurve.logs import follow
from onecurve.store import RunWriter

from .made import FORMATS, history, item, message, trainer_state, wandb_file


def line(k: int, loss: float) -> bytes:
    return json.dumps({"step": k, "loss": loss}).encode() + b"\n"


def steps(update, name: str = "loss") -> list[float]:
    return [float(s) for log in update.logs for s in log.series[name].step]


def test_new_lines_come_once_and_a_torn_one_when_it_is_whole(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(line(1, 3.0) + line(2, 2.5) + b'{"step": 3, "lo')
    first = follow(tmp_path)
    assert steps(first) == [1, 2] and not first.restarted
    cursor = json.loads(json.dumps(first.cursor))
    assert not follow(tmp_path, cursor).logs
    with file.open("ab") as out:
        out.write(b'ss": 2.25}\n' + line(4, 2.0))
    second = follow(tmp_path, cursor)
    assert steps(second) == [3, 4] and second.logs[0].name == "a"
    assert steps(follow(tmp_path, cursor)) == [3, 4]  # a cursor is a value: it may be used again


@pytest.mark.parametrize("again", [line(1, 9.0), line(1, 9.0) + line(2, 8.0) + line(3, 7.0) + line(4, 6.5)])
def test_a_file_that_was_cut_or_replaced_is_told(tmp_path, again):
    file = tmp_path / "a.jsonl"
    file.write_bytes(line(1, 3.0) + line(2, 2.5) + line(3, 2.25))
    cursor = follow(tmp_path).cursor
    file.write_bytes(again)
    update = follow(tmp_path, cursor)
    assert update.restarted == (str(file),)
    assert steps(update)[0] == 1 and update.logs[0].series["loss"].value[0] == 9.0
    assert not follow(tmp_path, update.cursor).restarted


def test_a_run_directory_is_followed_and_its_cut_after_a_resume_is_told(tmp_path):
    config = RunConfig(name="one", n_params=1e6, horizon=1e4)
    writer = RunWriter(tmp_path / "one", config, "tokens", {"val_loss": "held-out"})
    for k in range(1, 6):
        writer.append({"step": k, "tokens": 100.0 * k, "val_loss": 3.0 - k / 10}, 0.0)
    first = follow(tmp_path)
    assert first.logs[0].name == "one" and first.logs[0].series["tokens"].value.tolist() == [100, 200, 300, 400, 500]
    writer.cut_back(3)
    writer.append({"step": 4, "tokens": 400.0, "val_loss": 2.0}, 0.0)
    second = follow(tmp_path, first.cursor)
    assert second.restarted == (str(tmp_path / "one" / "metrics.jsonl"),)
    assert steps(second, "val_loss") == [1, 2, 3, 4]


def test_a_second_event_file_is_read_on(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    def write(first: int, last: int) -> None:
        with SummaryWriter(tmp_path / "run") as writer:
            for k in range(first, last):
                writer.add_scalar("loss", float(k), k)

    write(0, 5)
    first = follow(tmp_path)
    assert steps(first) == [0, 1, 2, 3, 4]
    write(3, 7)
    second = follow(tmp_path, first.cursor)
    assert steps(second) == [3, 4, 5, 6] and second.logs[0].name == "run"  # as written: mending is another matter


def test_an_offline_run_keeps_its_name(tmp_path):
    file = tmp_path / "run-x.wandb"
    head = message((17, message((1, b"x"), (4, message((1, item("lr", 0.1)))), (8, b"nice-name"))))
    wandb_file(file, [head, history(1, loss=3.0)])
    first = follow(file)
    assert first.logs[0].name == "nice-name" and first.logs[0].settings == {"lr": 0.1}
    wandb_file(file, [head, *(history(k, loss=3.0) for k in (1, 2, 3))])
    second = follow(file, first.cursor)
    assert steps(second) == [2, 3] and second.logs[0].name == "nice-name" and not second.restarted


def test_a_state_that_is_written_anew_gives_what_is_new(tmp_path):
    trainer_state(tmp_path)
    file = tmp_path / "small" / "checkpoint-200" / "trainer_state.json"
    later = file.read_text()
    file.unlink()
    first = follow(tmp_path / "small")
    assert steps(first) == list(range(1, 101))
    file.write_text(later[: len(later) // 2])
    torn = follow(tmp_path / "small", first.cursor)
    assert not torn.logs and not torn.restarted
    file.write_text(later)
    second = follow(tmp_path / "small", torn.cursor)
    assert steps(second) == list(range(101, 201)) and not second.restarted


def test_a_database_is_read_on(tmp_path):
    make, place = FORMATS["MLflow"]
    file = make(tmp_path / place)
    first = follow(file)
    assert {log.name: len(log.series["train_loss"]) for log in first.logs} == dict.fromkeys(
        ("small", "middle", "large"), 200
    )
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO metrics VALUES ('train_loss', 1.0, 999, 'id-small', 201, 0)")
    second = follow(file, first.cursor)
    assert {log.name: steps(second, "train_loss") for log in second.logs} == {"small": [201.0]}
    with sqlite3.connect(file) as db:
        db.execute("DELETE FROM metrics WHERE run_uuid = 'id-small' AND step > 5")
    third = follow(file, second.cursor)
    assert third.restarted == (str(file),)


def test_non_finite_points_are_known_again(tmp_path):
    for last in (3, 5):
        rows = [{"step": k, "loss": float("nan")} for k in range(1, last)]
        state = {"global_step": last, "best_metric": None, "log_history": rows}
        (tmp_path / "trainer_state.json").write_text(json.dumps(state))
        update = follow(tmp_path, None if last == 3 else update.cursor)  # noqa: F821
        assert not update.restarted
    assert steps(update) == [3, 4]


def test_what_cannot_be_followed_is_said(tmp_path):
    with pytest.raises(OnecurveError, match="no such file"):
        follow(tmp_path / "none")
    with pytest.raises(OnecurveError, match="cursor of version 99"):
        follow(tmp_path, {"version": 99})
    assert follow(tmp_path).logs == []


def test_what_was_read_is_not_read_again(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"".join(line(k, 1.0) for k in range(20_000)))
    first = follow(file)
    with file.open("ab") as out:
        out.write(line(20_000, 0.5))
    entry = first.cursor["files"][str(file)]
    assert entry["offset"] == file.stat().st_size - len(line(20_000, 0.5))
    update = follow(file, first.cursor)
    assert steps(update) == [20_000.0] and np.array_equal(update.logs[0].series["loss"].value, [0.5])
