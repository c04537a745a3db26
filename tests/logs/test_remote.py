"""Logs on object stores: the same as on disk, named by their address, and nothing left behind."""

from __future__ import annotations

import gc
import json
import sys
import tempfile

import fsspec
import numpy as np
import polars as pl
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from onecurve import OnecurveError, RunConfig, read
from onecurve.logs import find
from onecurve.logs.remote import is_address
from onecurve.store import RunWriter

from .made import FORMATS, SIZES


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where copies go for a while."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def store():
    """An empty object store; ``put`` copies a file or a folder into it."""
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()


def put(store, local, place):
    for file in [local] if local.is_file() else [f for f in local.rglob("*") if f.is_file()]:
        name = place if local.is_file() else f"{place}/{file.relative_to(local)}"
        store.pipe_file(name, file.read_bytes())


def log_lines(value=1.0, steps=range(1, 4)):
    return "".join(json.dumps({"step": k, "loss": value}) + "\n" for k in steps).encode()


def refused(address) -> str:
    with pytest.raises(OnecurveError) as error:
        read([address])
    return str(error.value)


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_is_the_same_as_on_disk(tmp_path, store, temporary, name):
    make, place = FORMATS[name]
    local = make(tmp_path / place)
    put(store, local, f"/bucket/{place}")
    here, there = find(str(local)), find(f"memory://bucket/{place}")
    assert [log.name for log in there.logs] == [log.name for log in here.logs]
    for ours, theirs in zip(here.logs, there.logs, strict=True):
        assert theirs.source == ours.source.replace(str(local), f"memory://bucket/{place}")
        assert theirs.settings == ours.settings and theirs.series.keys() == ours.series.keys()
        for key, series in ours.series.items():
            assert np.array_equal(series.step, theirs.series[key].step)
            assert np.array_equal(series.value, theirs.series[key].value, equal_nan=True)
    del there, theirs
    gc.collect()
    assert not list(temporary.iterdir())


def test_a_run_is_called_as_its_folder_there(store):
    store.pipe_file("/bucket/csv/version_3/metrics.csv", b"epoch,step,train_loss\n0,1,2.0\n0,2,1.0\n")
    store.pipe_file("/bucket/small/metrics.jsonl", log_lines())
    for address in ("memory://bucket/small", "memory://bucket/small/", "memory://bucket/small/metrics.jsonl"):
        (log,) = find(address).logs
        assert (log.name, log.source) == ("small", "memory://bucket/small/metrics.jsonl")
    (log,) = find("memory://bucket/csv/version_3").logs
    assert log.name == "csv-version_3"
    assert sorted(log.name for log in find("memory://").logs) == ["csv-version_3", "small"]


def test_weights_are_not_fetched(store, monkeypatch):
    for name in ("run/metrics.jsonl", "run/step-9/model.safetensors", "run/step-9/OPTIM.PT", "run/image.png"):
        store.pipe_file(f"/{name}", log_lines())
    fetched = []
    get = MemoryFileSystem.get_file
    monkeypatch.setattr(MemoryFileSystem, "get_file", lambda self, a, b: (fetched.append(a), get(self, a, b)))
    assert len(find("memory://run").logs) == 1
    assert fetched == ["/run/metrics.jsonl"]


def test_names_that_lead_out_are_left(store, temporary, tmp_path):
    store.pipe_file("/run/log.jsonl", log_lines())
    store.store["/run/../../../../out.jsonl"] = store.store["/run/log.jsonl"]
    assert "/run/../../../../out.jsonl" in store.find("/run")
    found = find("memory://run")
    assert [log.source for log in found.logs] == ["memory://run/log.jsonl"]
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == ["log.jsonl"]


def test_tables_are_read_by_their_address(store, tmp_path):
    rows = [{"run": name, "step": k, "loss": 2.0 / k, "n_params": n} for name, n in SIZES.items() for k in (1, 2, 3)]
    for name, write in (("t.csv", pl.DataFrame.write_csv), ("t.parquet", pl.DataFrame.write_parquet)):
        write(pl.DataFrame(rows), tmp_path / name)
        put(store, tmp_path / name, f"/bucket/{name}")
        found = read([f"memory://bucket/{name}"])
        assert [run.config.name for run in found.runs] == list(SIZES)
        assert found.runs[0].curves["loss"].loss.tolist() == [2.0, 1.0, 2.0 / 3.0]
    bare = pl.DataFrame(rows[:3]).drop("run")
    store.pipe_file("/bucket/bare.csv", bare.rename({"step": "tokens"}).write_csv().encode())
    (run,) = read(["memory://bucket/bare.csv"]).runs
    assert run.config.name == "bare"


def test_run_directories_are_read_by_their_address(store, tmp_path):
    RunWriter(tmp_path / "r", RunConfig(name="one", n_params=1e6), "tokens", {"loss": "training"}).write(
        [{"tokens": 1.0, "loss": 2.0}, {"tokens": 2.0, "loss": 1.0}]
    )
    put(store, tmp_path / "r", "/bucket/r")
    (run,) = read(["memory://bucket"]).runs
    assert (run.config.name, run.curves["loss"].loss.tolist()) == ("one", [2.0, 1.0])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("log.db", b"SQLite format 3\0" + bytes(90), "memory://b/log.db: "),
        ("table.csv", b"", "memory://b/table.csv: the file is empty"),
        ("table.parquet", b"run,loss", "memory://b/table.parquet: the name says .parquet, but it is no Parquet file"),
        ("table.csv", b"run,step,x\na,1,2\n", "memory://b/table.csv: "),
        ("notes.txt", b"nothing", "memory://b/notes.txt: a table ends in .csv"),
        ("r/run.json", b"{", "memory://b/r/run.json: not a run.json of onecurve"),
        ("log.jsonl", b'{"step": 1, "x": 1}\n{"step": 2, "x": 1}\n', "memory://b/log.jsonl: "),
    ],
)
def test_errors_name_the_address(store, temporary, name, content, words):
    store.pipe_file(f"/b/{name}", content)
    said = refused("memory://b" if "/" in name else f"memory://b/{name}")
    assert said.startswith(words) and "onecurve-" not in said
    gc.collect()
    assert not list(temporary.iterdir())


def test_warnings_name_the_address(store, tmp_path):
    store.pipe_file("/b/small.jsonl", log_lines())
    store.pipe_file("/b/bad.db", b"SQLite format 3\0" + bytes(90))
    store.pipe_file("/b/bare.jsonl", b'{"step": 1, "x": 1}\n{"step": 2, "x": 1}\n')
    (tmp_path / "runs.csv").write_text("run,n_params\nsmall,1e6\n")
    warnings = read(["memory://b"], tmp_path / "runs.csv").warnings
    for name in ("bad.db", "bare.jsonl"):
        assert any(f"memory://b/{name}: " in warning for warning in warnings), warnings
    assert "onecurve-" not in " ".join(warnings)


def test_a_folder_without_a_log_is_refused(store):
    store.pipe_file("/b/t.csv", b"run,step,loss\na,1,2.0\n")
    store.pipe_file("/b/deep/readme.md", b"words")
    assert refused("memory://b").startswith(
        "memory://b: no run directory (a folder with run.json) in it, and no log of another tool; it holds "
        "deep/readme.md, t.csv. Tables"
    )


def test_nothing_there_is_refused(store, temporary):
    assert refused("memory://b/none") == "memory://b/none: nothing there"
    store.pipe_file("/b/model.pt", b"x")
    assert refused("memory://b") == "memory://b: nothing there"
    assert not list(temporary.iterdir())


def test_a_scheme_that_nobody_knows_is_refused(temporary):
    said = refused("nosuch://b/x")
    assert said.startswith("nosuch://b/x: ") and "nosuch" in said[13:] and "is the address right" in said
    assert not list(temporary.iterdir())


def test_packages_that_are_missing_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    said = refused("s3://b/x")
    assert said.startswith("s3://b/x: Install s3fs") and "the package of its scheme" in said
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert refused("memory://b") == (
        "logs on an object store (memory://b) need fsspec, which is not installed: pip install 'onecurve[remote]'"
    )


def test_a_store_s_own_kind_of_error_is_one_message(temporary, monkeypatch):
    def fail(self, path, **options):
        raise LookupError("no credentials\nmore")

    monkeypatch.setattr(MemoryFileSystem, "isfile", fail)
    assert refused("memory://b/x").startswith("memory://b/x: no credentials; is the address right")
    assert not list(temporary.iterdir())


def test_local_paths_are_no_addresses(tmp_path, monkeypatch):
    for address in ("s3://b/x", "s3://b/lr+wd/x", "mlflow+http://h:1", "wandb://a/b", "simplecache::s3://b", "abfs+x"):
        assert is_address(address) == ("://" in address)
    for path in ("runs/a://b", "./s3://b", "/s3://b", "a b://c", "://x", "tb+s3://b", "s3://b/1+s3://b/2"):
        assert not is_address(path)
    folder = tmp_path / "http:" / "small"
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_bytes(log_lines())
    monkeypatch.chdir(tmp_path)
    for path in (f"{tmp_path}/http://small", "./http://small"):
        assert len(find(path).logs) == 1


def test_parts_may_lie_on_a_store(store, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "small.jsonl").write_bytes(log_lines(1.0, range(1, 6)))
    store.pipe_file("/b/small.jsonl", log_lines(2.0, range(4, 9)))
    store.pipe_file("/c/small.jsonl", log_lines(3.0, range(8, 10)))
    (log,) = find(f"{tmp_path}/a+memory://b+memory://c").logs
    assert log.source == f"{tmp_path}/a/small.jsonl + memory://b/small.jsonl + memory://c/small.jsonl"
    assert log.series["loss"].step.tolist() == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 8, 9]
    (log,) = find("memory://b+memory://c").logs
    assert len(log.series["loss"]) == 7


def test_the_address_of_a_local_file_is_an_address(tmp_path):
    (tmp_path / "small.jsonl").write_bytes(log_lines())
    (log,) = find(f"file://{tmp_path}/small.jsonl").logs
    assert (log.name, log.source) == ("small", f"file://{tmp_path}/small.jsonl")
