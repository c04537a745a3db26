"""A+B, parts of the same runs: matched by name, the later part wins where it goes back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from onecurve import OnecurveError, RunConfig, read
from onecurve.cli import app
from onecurve.logs import find
from onecurve.logs.clean import REWRITTEN
from onecurve.logs.log import TORN
from onecurve.store import RunWriter

from .made import SIZES, loss


def part(file, steps, value, settings=None, torn=""):
    """One run's JSON lines: a constant loss at some steps."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"tracker": "json_logger", "event": "hparams", "hparams": settings}] if settings else []
    rows += [{"step": k, "loss": value} for k in steps]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    return file


def events(folder, steps, value):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder) as writer:
        for k in steps:
            writer.add_scalar("loss", value, k)


def points(run):
    curve = run.curves["loss"]
    return dict(zip(curve.x.tolist(), curve.loss.tolist(), strict=True))


@pytest.fixture
def sizes(tmp_path):
    """The table of the runs' sizes."""
    (tmp_path / "runs.csv").write_text("run,n_params\nsmall,1e6\nmiddle,4e6\nlarge,16e6\nnew,64e6\n")
    return tmp_path / "runs.csv"


def test_runs_of_two_folders_are_joined_by_their_names(tmp_path, sizes):
    for name, n in SIZES.items():
        for folder, rows in (("a", slice(0, 120)), ("b", slice(120, 200))):
            lines = [f'{{"step": {k + 1}, "loss": {float(v)!r}}}\n' for k, v in list(enumerate(loss(n)))[rows]]
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{name}.jsonl").write_text("".join(lines))
    part(tmp_path / "b" / "new.jsonl", range(1, 4), 7.0)
    found = read([f"{tmp_path}/a+{tmp_path}/b"], sizes)
    runs = {run.config.name: run for run in found.runs}
    assert sorted(runs) == ["large", "middle", "new", "small"]
    for name, n in SIZES.items():
        assert np.array_equal(runs[name].curves["loss"].x, np.arange(1.0, 201.0))
        assert np.array_equal(runs[name].curves["loss"].loss, loss(n))
    assert points(runs["new"]) == {1.0: 7.0, 2.0: 7.0, 3.0: 7.0}  # in one part only
    assert found.dropped == {}


def test_formats_may_differ_between_parts(tmp_path, sizes):
    events(tmp_path / "a" / "small", range(1, 6), 1.0)
    events(tmp_path / "a" / "large", range(1, 6), 1.0)
    part(tmp_path / "b" / "small.jsonl", range(4, 9), 2.0)
    part(tmp_path / "b" / "large.jsonl", range(6, 9), 2.0)
    found = read([f"{tmp_path}/a+{tmp_path}/b"], sizes)
    small, large = sorted(found.runs, key=lambda run: run.config.n_params)
    assert points(small) == {k: 1.0 if k < 4 else 2.0 for k in range(1, 9)}
    assert points(large) == {k: 1.0 if k < 6 else 2.0 for k in range(1, 9)}
    assert found.dropped == {REWRITTEN: 2}


def test_of_a_later_part_that_goes_back_the_branch_counts(tmp_path, sizes):
    for k, (steps, value) in enumerate(((range(1, 101), 1.0), (range(60, 81), 2.0), (range(70, 91), 3.0))):
        part(tmp_path / f"part{k}" / "small.jsonl", steps, value)
    found = read(["+".join(f"{tmp_path}/part{k}" for k in range(3))], sizes)
    expected = {k: 1.0 if k < 60 else 2.0 if k < 70 else 3.0 for k in range(1, 91)}
    assert points(found.runs[0]) == expected
    assert found.dropped == {REWRITTEN: 41 + 11}
    assert any("goes back" in warning for warning in found.warnings)


def test_single_logs_are_joined_whatever_they_are_called(tmp_path):
    a = part(tmp_path / "before.jsonl", range(1, 4), 1.0)
    b = part(tmp_path / "after.jsonl", range(4, 7), 2.0)
    (log,) = find(f"{a}+{b}").logs
    assert (log.name, log.source) == ("before", f"{a} + {b}")
    assert log.series["loss"].step.tolist() == [1, 2, 3, 4, 5, 6]


def test_what_the_parts_say_is_put_together(tmp_path):
    for folder, step, steps in (("a", 10, range(1, 11)), ("b", 20, range(11, 21))):
        history = [{"step": k, "loss": 1.0} for k in steps] + [{"step": step, "train_loss": 2.0, "train_runtime": 1.0}]
        state = {"global_step": step, "max_steps": step, "log_history": history}
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "trainer_state.json").write_text(json.dumps(state))
    (log,) = find(f"{tmp_path}/a+{tmp_path}/b").logs
    parts = [find(f"{tmp_path}/{folder}").logs[0] for folder in "ab"]
    assert log.settings["max_steps"] == 20  # the later one's
    assert log.means == ("loss",)
    assert log.notes == parts[0].notes == parts[1].notes  # each once
    assert {name: len(s) for name, s in log.summaries.items()} == {"train_loss": 2, "train_runtime": 2}
    a = part(tmp_path / "x.jsonl", [1], 1.0, {"lr": 0.1, "seed": 3}, torn='{"step": ')
    b = part(tmp_path / "y.jsonl", [2], 1.0, {"lr": 0.2}, torn='{"step": ')
    (log,) = find(f"{a}+{b}").logs
    assert log.settings == {"lr": 0.2, "seed": 3}
    assert log.dropped == {TORN: 2}


def test_what_cannot_be_read_beside_a_part_is_told(tmp_path, sizes):
    part(tmp_path / "a" / "small.jsonl", [1, 2], 1.0)
    part(tmp_path / "b" / "small.jsonl", [3, 4], 1.0)
    (tmp_path / "b" / "bad.db").write_bytes(b"SQLite format 3\0" + bytes(50))
    found = read([f"{tmp_path}/a+{tmp_path}/b"], sizes)
    assert len(found.runs[0].curves["loss"]) == 4
    assert any("bad.db" in warning for warning in found.warnings)


def refused(told) -> str:
    with pytest.raises(OnecurveError) as error:
        read([str(told)])
    return str(error.value)


def test_what_cannot_be_joined_is_refused(tmp_path):
    log = part(tmp_path / "log.jsonl", [1], 1.0)
    RunWriter(tmp_path / "run", RunConfig(name="run", n_params=1e6), "tokens", {"loss": "training"}).write([])
    assert refused(f"{log}+{tmp_path}/run") == (
        f"{tmp_path}/run: a run directory, which is whole; only logs are joined with +"
    )
    table = tmp_path / "table.csv"
    table.write_text("run,step,loss\na,1,2.0\n")
    assert refused(f"{log}+{table}") == f"{table}: no log of a trainer; only logs are joined with +"
    assert refused(f"{log}+{tmp_path}/gone").startswith(f"{tmp_path}/gone: no such file or folder; {tmp_path} holds ")
    assert refused(f"{log}+") == f"{log}+: nothing to join; parts of a run are named A+B"


def test_parts_without_a_run_in_common_are_refused(tmp_path):
    for folder, names in (("a", "uv"), ("b", "wx")):
        for name in names:
            part(tmp_path / folder / f"{name}.jsonl", [1], 1.0)
    assert refused(f"{tmp_path}/a+{tmp_path}/b") == (
        f"{tmp_path}/a and {tmp_path}/b: no run is in two of them, so nothing can be joined; they hold u, v, w, x"
    )


def test_two_runs_of_a_name_in_one_part_are_refused(tmp_path):
    for seed in ("s0", "s1"):
        part(tmp_path / "a" / seed / "run.jsonl", [1], 1.0)
    part(tmp_path / "b" / "run.jsonl", [2], 1.0)
    assert refused(f"{tmp_path}/a+{tmp_path}/b") == (
        f"{tmp_path}/a: 2 runs are called 'run', and parts are matched by name: join run by run"
    )


def test_a_path_with_a_plus_in_its_name_is_that_path(tmp_path):
    file = part(tmp_path / "lr+wd" / "small+1.jsonl", [1, 2], 1.0)
    for path in (file, file.parent):
        (log,) = find(str(path)).logs
        assert (log.name, log.source) == ("small+1", str(file))


def test_the_command_line_joins(tmp_path, sizes):
    for folder, steps, value in (("a", range(1, 11), 1.0), ("b", range(6, 21), 2.0)):
        part(tmp_path / folder / "small.jsonl", steps, value)
    out = tmp_path / "out"
    said = CliRunner().invoke(app, ["read", f"{tmp_path}/a+{tmp_path}/b", "--runs", str(sizes), "-o", str(out)])
    assert said.exit_code == 0, said.output
    assert f"left out: 5 {REWRITTEN}" in said.output
    (run,) = read([out]).runs
    assert points(run) == {k: 1.0 if k < 6 else 2.0 for k in range(1, 21)}
