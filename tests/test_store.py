from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecurve.errors import OnecurveError
from onecurve.logs import read
from onecurve.run import RunConfig
from onecurve.schedule import Schedule
from onecurve.store import RunWriter, dumps, is_run, read_run, write_atomic

CONFIG = RunConfig(
    name="a",
    n_params=1e6,
    horizon=2e7,
    seed_init=1,
    seed_data="two",
    learning_rate=0.1 + 0.2,
    schedule=Schedule(shape="sqrt", warmup=0.01, decay_frac=1 / 3, final=0.1),
    settings={"team": 'ü, "x"', "layers": 3, "bias": True, "eps": 1e-8},
)
CURVES = {"val": "held-out", "loss": "training"}


def write(path, points) -> RunWriter:
    writer = RunWriter(path, CONFIG, "tokens", CURVES)
    for step, (val, loss) in enumerate(points, start=1):
        record = {"step": step, "tokens": 0.1 * step, "val": val, "loss": loss}
        writer.append({k: v for k, v in record.items() if v is not None}, seconds=step)
    return writer


@given(st.lists(st.tuples(st.floats(width=64), st.floats(width=64)), min_size=1, max_size=20))
def test_a_run_comes_back_bit_for_bit(tmp_path_factory, points):
    folder = tmp_path_factory.mktemp("run")
    write(folder, points)
    run = read_run(folder)
    assert run.config == CONFIG
    assert {name: curve.kind for name, curve in run.curves.items()} == CURVES
    for i, name in enumerate(("val", "loss")):
        expected = np.array([p[i] for p in points])
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(run.curves[name].loss), nan)
        assert run.curves[name].loss[~nan].tobytes() == expected[~nan].tobytes()
    assert run.curves["val"].x.tobytes() == (0.1 * np.arange(1, len(points) + 1)).tobytes()


def test_a_curve_may_miss_points(tmp_path):
    write(tmp_path, [(None, 3.0), (2.5, 2.0), (None, 1.0)])
    run = read_run(tmp_path)
    assert run.curves["val"].x.tolist() == [0.2]
    assert len(run.curves["loss"]) == 3
    assert is_run(tmp_path)


@pytest.mark.parametrize(
    "torn", [b"{", b'{"step": 4, "tokens": 0.4, "loss": 0.5', b'{"step": 4, "tokens": 0.4, "loss": 0.5}']
)
def test_a_torn_last_line_is_ignored_and_then_cut(tmp_path, torn):
    write(tmp_path, [(3.0, 3.0), (2.0, 2.0), (1.0, 1.0)])
    file = tmp_path / "metrics.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + torn)
    assert len(read_run(tmp_path).curves["loss"]) == 3
    RunWriter(tmp_path, CONFIG, "tokens", CURVES).append({"step": 4, "tokens": 0.5, "loss": 0.9}, 4.0)
    assert file.read_bytes() == whole + b'{"step": 4, "tokens": 0.5, "loss": 0.9}\n'


def test_a_cut_at_any_byte_loses_the_last_point_at_most(tmp_path):
    write(tmp_path, [(3.0, 3.0), (2.0, 2.0)])
    file = tmp_path / "metrics.jsonl"
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        file.write_bytes(whole[:cut])
        assert len(read_run(tmp_path).curves["loss"]) == 1


@pytest.mark.parametrize("damage", [b"{torn\n", b"[1, 2]\n", b"\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"])
def test_a_damaged_line_before_the_end_is_named(tmp_path, damage):
    writer = write(tmp_path, [(3.0, 3.0), (2.0, 2.0)])
    file = tmp_path / "metrics.jsonl"
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + damage + second)
    with pytest.raises(OnecurveError, match=r"metrics\.jsonl: line 2 is no JSON object"):
        read_run(tmp_path)
    with pytest.raises(OnecurveError, match="line 2"):
        writer.cut_back(1)
    assert file.read_bytes() == first + damage + second


def test_cutting_back_drops_what_follows_the_checkpoint(tmp_path):
    writer = write(tmp_path, [(3.0, 3.0), (2.0, 2.0), (1.0, 1.0)])
    file = tmp_path / "metrics.jsonl"
    with file.open("ab") as f:
        f.write(b'{"step": 4, "tok')
    assert writer.cut_back(2) == 2
    assert read_run(tmp_path).curves["loss"].loss.tolist() == [3.0, 2.0]
    assert len((tmp_path / "timing.jsonl").read_text().splitlines()) == 2
    assert writer.cut_back(2) == 0
    assert writer.cut_back(0) == 2
    with pytest.raises(OnecurveError, match="has not logged anything yet"):
        read_run(tmp_path)


def test_a_line_without_a_step_cannot_be_cut_back(tmp_path):
    writer = write(tmp_path, [(3.0, 3.0)])
    (tmp_path / "metrics.jsonl").write_text('{"tokens": 1}\n')
    with pytest.raises(OnecurveError, match="line 1 has no step"):
        writer.cut_back(1)


def test_events_carry_the_time_of_day_and_metrics_do_not(tmp_path):
    writer = write(tmp_path, [(3.0, 3.0)])
    writer.event("start", step=0)
    event = json.loads((tmp_path / "events.jsonl").read_text())
    assert (event["event"], event["step"]) == ("start", 0)
    assert "time" in event
    assert "seconds" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not a run.json"),
        ("{", "not a run.json"),
        ("[1]", "not a run.json"),
        ("null", "not a run.json"),
        ('{"schema": 1}', "KeyError: 'config'"),
        ('{"schema": 99}', r"schema 99 is newer than this program reads \(1\); upgrade"),
        ('{"schema": "1"}', "not a run.json"),
        ('{"schema": 1, "config": {"name": "a"}, "x": "t", "curves": {}}', "n_params: field required"),
        ('{"schema": 1, "config": {"name": "a", "n_params": 1, "colour": 1}, "x": "t", "curves": {}}', "colour: extra"),
        ('{"schema": 1, "config": {"name": "a", "n_params": 1}, "x": "t", "curves": ["loss"]}', "not a run.json"),
        ('{"schema": 1, "config": {"name": "a", "n_params": 1}, "x": "t", "curves": {"loss": "mine"}}', "'mine' is no"),
        ("[" * 100_000, "not a run.json"),
        (b"\xff\xfe\x00", "not a run.json"),
    ],
)
def test_a_run_json_that_is_none_is_named(tmp_path, content, words):
    write(tmp_path, [(3.0, 3.0)])
    (tmp_path / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(OnecurveError, match=words) as error:
        read_run(tmp_path)
    assert str(tmp_path / "run.json") in str(error.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"step": 1, "loss": 2.0}', "without a number for 'tokens' or 'loss'"),
        ('{"tokens": 1, "loss": null}', "without a number"),
        ('{"tokens": 1, "loss": "high"}', "without a number"),
        ('{"tokens": 1, "loss": 1' + "0" * 400 + "}", "without a number"),
        ('{"tokens": "NaN", "loss": 1}', "x must be finite"),
        ('{"tokens": 1, "colour": 1}', "none of the curves that run.json names"),
    ],
)
def test_a_point_that_is_none_is_named(tmp_path, line, words):
    write(tmp_path, [(3.0, 3.0)])
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(OnecurveError, match=words) as error:
        read_run(tmp_path)
    assert str(tmp_path / "metrics.jsonl") in str(error.value)


def test_x_that_goes_back_is_named(tmp_path):
    write(tmp_path, [(3.0, 3.0), (2.0, 2.0)])
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    with pytest.raises(OnecurveError, match=r"metrics\.jsonl: x must rise strictly; got 0\.1 after 0\.2 at row 1"):
        read_run(tmp_path)


def test_numbers_that_json_lacks_are_written_as_words():
    text = dumps({"a": [math.nan, math.inf, -math.inf], "b": np.array([[1.5]]), 3: np.int64(2), "c": (None, True)})
    assert text == '{"a": ["NaN", "Infinity", "-Infinity"], "b": [[1.5]], "3": 2, "c": [null, true]}'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_every_bit(value):
    assert json.loads(dumps({"v": value}))["v"] == value


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "out.json"
    write_atomic(file, "old")
    monkeypatch.setattr("onecurve.store.os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(file, "new")
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_a_write_makes_its_folder_and_is_readable_by_others(tmp_path):
    write_atomic(tmp_path / "a" / "b" / "c.bin", b"\x00\xff")
    assert (tmp_path / "a" / "b" / "c.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "a" / "b" / "c.bin").stat().st_mode & 0o777 == 0o644


def test_a_folder_of_runs_is_read_in_order_and_flags_are_said_to_be_ignored(tmp_path):
    from onecurve.frame import Columns

    for name in ("b", "a"):
        write(tmp_path / "runs" / name, [(3.0, 3.0), (2.0, 2.0)])
    table = read([tmp_path])
    assert [run.source for run in table.runs] == [str(tmp_path / "runs" / name) for name in "ab"]
    assert table.warnings == []
    (warning,) = read([tmp_path / "runs"], columns=Columns(x="step", size="n")).warnings
    assert warning.startswith("--x, --size ignored for")
