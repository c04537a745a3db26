"""Every reader against the contract, and a reader of another package beside them."""

from __future__ import annotations

import json
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from onecurve import OnecurveError, read
from onecurve.logs import reader
from onecurve.logs.log import Log, Series
from onecurve.logs.reader import claimant, readers
from onecurve.logs.testing import check_reader

from .made import FORMATS


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_reader_keeps_the_contract(tmp_path, name):
    make, place = FORMATS[name]
    source = make(tmp_path / "made" / place)
    files = [source] if source.is_file() else sorted(f for f in source.rglob("*") if f.is_file())
    (mine,) = {id(r): r for r in map(claimant, files) if r is not None}.values()
    work = tmp_path / "work"
    work.mkdir()
    check_reader(mine, source, work, damages=40)


def test_no_reader_is_left_out_here(tmp_path):
    seen = set()
    for make, place in FORMATS.values():
        source = make(tmp_path / place)
        files = [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file()]
        seen |= {r.FORMAT for r in map(claimant, files) if r is not None}
    assert seen == {r.FORMAT for r in readers()}


class Theirs:
    """A reader of someone else's format: a magic line, then a loss a line."""

    FORMAT = "theirs"

    def claims(self, path, head):
        return head.startswith(b"THEIRS\n")

    def place(self, path):
        return path

    def read(self, paths):
        (path,) = paths
        try:
            values = [float(line) for line in path.read_bytes().splitlines()[1:]]
        except ValueError:
            raise OnecurveError(f"{path}: a line that is no number; mend it") from None
        step = np.arange(1.0, 1 + len(values))
        return [Log(path.stem, self.FORMAT, str(path), "step", {"loss": Series.of(step, values)})]


@pytest.fixture
def sample(tmp_path):
    file = tmp_path / "sample.log"
    file.write_bytes(b"THEIRS\n3.0\n2.5\n2.25\n")
    return file


def test_a_reader_of_another_package_is_found_and_goes_first(sample, tmp_path, monkeypatch):
    class Entry:
        name, group = "theirs", reader.GROUP

        def load(self):
            return Theirs()

    monkeypatch.setattr(reader, "entry_points", lambda group: [Entry()])
    readers.cache_clear()
    try:
        table = tmp_path / "runs.csv"
        table.write_text("run,n_params\nsample,1e6\n")
        (run,) = read([sample], table).runs
        assert run.curve().loss.tolist() == [3.0, 2.5, 2.25]
    finally:
        readers.cache_clear()


def test_a_reader_that_does_not_load_is_named(monkeypatch):
    broken = EntryPoint("broken", "no_such_module:reader", reader.GROUP)
    monkeypatch.setattr(reader, "entry_points", lambda group: [broken])
    readers.cache_clear()
    try:
        with pytest.raises(OnecurveError, match="the reader 'broken' of another package cannot be loaded"):
            readers()
    finally:
        monkeypatch.undo()
        readers.cache_clear()


def broken(name, value):
    return type("Broken", (Theirs,), {name: value})()


def writes(self, paths):
    (paths[0].parent / "index").write_text("")
    return Theirs.read(self, paths)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("claims", lambda self, path, head: False), "claims no file"),
        (("claims", lambda self, path, head: True), "claims foreign.bin"),
        (("read", lambda self, paths: []), "no points"),
        (("read", writes), "wrote beside it"),
        (
            ("read", lambda self, paths: [Log("a", "theirs", "a", "step", {"loss": Series(np.ones(2), np.ones(3))})]),
            "equal",
        ),
        (
            ("read", lambda self, paths: [Log("a", "t", "a", "step", {"l": Series.of([1], [time.perf_counter()])})]),
            "gives two things",
        ),
        (
            (
                "read",
                lambda self, paths: [
                    Log("a", "t", "a", "step", {"l": Series.of([1], [float(paths[0].read_bytes().split()[1])])})
                ],
            ),
            "damage .*Error",
        ),
    ],
)
def test_the_suite_sees_what_is_broken(sample, tmp_path, change, words):
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(AssertionError, match=words):
        check_reader(broken(*change), sample, work)


def test_the_suite_accepts_a_reader_that_keeps_it(sample, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    check_reader(Theirs(), sample, work)


def test_a_tail_that_gives_torn_points_is_seen(sample, tmp_path):
    def tail(self, path: Path, offset: int):
        lines = path.read_bytes()[offset:].splitlines()
        values = [float(v) for v in lines if v.replace(b".", b"").isdigit()]
        log = Log("a", "t", "a", "step", {"loss": Series.of(np.arange(len(values)), values)})
        return [log], path.stat().st_size

    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(AssertionError, match="read in pieces"):
        check_reader(broken("tail", tail), sample, work)


def test_one_bad_log_does_not_hide_the_others(tmp_path):
    for name in ("good", "bad"):
        rows = [{"step": k, "loss": 3 - k / 100} for k in range(1, 11)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    bad = tmp_path / "bad.jsonl"
    bad.write_text(bad.read_text() + "{no json\n" + bad.read_text())
    table = tmp_path.parent / "runs.csv"
    table.write_text("run,n_params\ngood,1e6\n")
    found = read([tmp_path], table)
    assert [run.config.name for run in found.runs] == ["good"]
    assert any("left out, because it cannot be read" in w and "bad.jsonl: line 11" in w for w in found.warnings)
    with pytest.raises(OnecurveError, match=r"bad\.jsonl: line 11 is not JSON"):
        read([bad], table)
