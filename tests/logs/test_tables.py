from __future__ import annotations

import gzip
import json

import numpy as np
import polars as pl
import pytest

from onecurve.errors import OnecurveError
from onecurve.logs import read
from onecurve.logs.tables import read_table


@pytest.fixture
def frame(make_table) -> pl.DataFrame:
    return make_table(points=15).with_columns(note=pl.lit('a, "b" ü'))


def write_csv(frame, path):
    frame.write_csv(path)


def write_tsv(frame, path):
    frame.write_csv(path, separator="\t")


def write_parquet(frame, path):
    frame.write_parquet(path)


def write_pandas_parquet(frame, path):
    frame.to_pandas().astype({"run": "category"}).to_parquet(path)


def write_jsonl(frame, path):
    frame.write_ndjson(path)


def write_python_jsonl(frame, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in frame.iter_rows(named=True)))


WRITERS = [
    (write_csv, "t.csv"),
    (write_csv, "T.CSV"),
    (write_tsv, "t.tsv"),
    (write_parquet, "t.parquet"),
    (write_pandas_parquet, "t.parquet"),
    (write_jsonl, "t.jsonl"),
    (write_python_jsonl, "t.ndjson"),
]


@pytest.mark.parametrize(("writer", "name"), WRITERS)
def test_every_format_gives_the_same_curves_bit_for_bit(frame, tmp_path, writer, name):
    writer(frame, tmp_path / name)
    frame.write_parquet(tmp_path / "other.parquet")
    got, expected = read([tmp_path / name]).runs, read([tmp_path / "other.parquet"]).runs
    assert [r.curves for r in got] == [r.curves for r in expected]
    assert [r.config for r in got] == [r.config for r in expected]
    assert got[0].config.settings["note"] == 'a, "b" ü'


@pytest.mark.parametrize(("writer", "name"), [WRITERS[i] for i in (0, 2, 3, 6)])
def test_nan_and_inf_come_through_every_format(frame, tmp_path, writer, name):
    loss = frame["loss"].to_numpy().copy()
    loss[3:6] = [np.nan, np.inf, -np.inf]
    writer(frame.with_columns(loss=pl.Series(loss)), tmp_path / name)
    run = read([tmp_path / name]).runs[0]
    np.testing.assert_array_equal(run.curves["loss"].loss[3:6], [np.nan, np.inf, -np.inf])


def test_an_empty_cell_is_no_point(frame, tmp_path):
    holes = frame.with_columns(loss=pl.when(pl.col("tokens") > 1.5e7).then(pl.col("loss")))
    counts = []
    for writer, name in (WRITERS[0], WRITERS[3], WRITERS[5]):
        writer(holes, tmp_path / name)
        counts.append([len(r.curves["loss"]) for r in read([tmp_path / name]).runs])
    assert counts[0] == counts[1] == counts[2]
    assert counts[0][0] < 15


def test_a_byte_order_mark_is_no_part_of_the_first_name(frame, tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes(b"\xef\xbb\xbf" + frame.write_csv().encode())
    assert read_table(file).columns[0] == "run"


def test_blank_lines_of_a_json_file_are_skipped(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"a": NaN}\n\n{"a": 2, "b": "x"}\n')
    assert read_table(file).to_dicts()[1] == {"a": 2.0, "b": "x"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"", "the file is empty"),
        ("t.csv", b"\n\n", "cannot be read as CSV"),
        ("t.parquet", b"", "the file is empty"),
        ("t.parquet", b"run,loss\n", "the name says .parquet, but it is no Parquet file"),
        ("t.parquet", b"PAR1", "cannot be read as PARQUET"),
        ("t.csv", b"PAR1" + b"\0" * 40, "the name says .csv, but it is a Parquet file"),
        ("t.csv", gzip.compress(b"run,tokens,loss\na,1,2\n" * 50), "holds binary data; is it compressed"),
        ("t.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "holds binary data"),
        ("t.csv", "run,loss\nä,1\n".encode("latin-1"), "cannot be read as CSV: invalid utf-8"),
        ("t.csv", "run,loss\na,1\n".encode("utf-16"), "holds binary data"),
        ("t.csv", b"a,b\n1,2\n1,2,3,4\n", "cannot be read as CSV"),
        ("t.jsonl", b'{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        ("t.jsonl", b'{"a": 1}\n[1, 2]\n', r"line 2 is '\[1, 2\]', not a JSON object"),
        ("t.jsonl", b"\xff\xfe\xfd\n", "line 1 is not JSON"),
        ("t.txt", b"run,loss\na,1\n", r"a table ends in \.csv.*got '\.txt'"),
        ("table", b"run,loss\na,1\n", "got 'no ending'"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_named(tmp_path, name, content, words):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(OnecurveError, match=words) as error:
        read([file])
    assert str(file) in str(error.value)


def test_a_parquet_file_cut_short_is_named(frame, tmp_path):
    file = tmp_path / "t.parquet"
    frame.write_parquet(file)
    whole = file.read_bytes()
    for size in (5, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(OnecurveError, match=r"cannot be read as PARQUET.*is the file whole"):
            read([file])


def test_a_path_that_is_not_there_lists_what_is(tmp_path):
    (tmp_path / "here.csv").write_text("x")
    with pytest.raises(OnecurveError, match=r"gone\.csv: no such file or folder; .* holds here\.csv"):
        read([tmp_path / "gone.csv"])
    with pytest.raises(OnecurveError, match=r"runs\.csv: no such file"):
        read([tmp_path / "here.csv"], tmp_path / "runs.csv")
    with pytest.raises(OnecurveError, match="a folder, not a table"):
        read([tmp_path / "here.csv"], tmp_path)


def test_a_folder_without_runs_lists_what_it_holds(tmp_path):
    with pytest.raises(
        OnecurveError,
        match=r"no run directory \(a folder with run.json\) in it, and no log of another tool; it holds nothing",
    ):
        read([tmp_path])
    (tmp_path / "curves.csv").write_text("x")
    with pytest.raises(OnecurveError, match=r"it holds curves\.csv\. Tables .* are named file by file"):
        read([tmp_path])


def test_several_files_are_one_lot(frame, tmp_path):
    names = frame["run"].unique(maintain_order=True)
    for i, part in enumerate((names[:3], names[3:])):
        frame.filter(pl.col("run").is_in(part.to_list())).write_csv(tmp_path / f"{i}.csv")
    assert [r.config.name for r in read([tmp_path / "0.csv", tmp_path / "1.csv"]).runs] == names.to_list()


def test_what_is_dropped_is_counted_over_all_files(frame, tmp_path):
    for name in ("a.csv", "b.csv"):
        pl.concat([frame[:3], frame[2:]]).write_csv(tmp_path / name)
    assert read([tmp_path / "a.csv", tmp_path / "b.csv"]).dropped == {"rows that repeat the x of the row before": 2}


@pytest.mark.parametrize(
    "cells", [["1"] * 1500 + [late] for late in ("2.5", "nine", str(2**70))] + [[""] * 1500 + ["2.5"], [""] * 1500]
)
def test_what_comes_late_in_a_column_counts(tmp_path, cells):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells)))
    frame = read_table(tmp_path / "a.csv")
    whole = pl.read_csv(tmp_path / "a.csv", infer_schema_length=None)
    assert frame.equals(whole) and frame.schema == whole.schema
