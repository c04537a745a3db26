"""``onecurve collapse`` as a user meets it: good input, and every kind of bad."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecurve.cli import main
from onecurve.store import RunWriter


@dataclass
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str


def onecurve(*arguments: object) -> Said:
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["onecurve", *map(str, arguments)]
    code = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    return Said(code, " ".join(out.getvalue().split()), err.getvalue())


def refused(*arguments: object) -> str:
    """The one message of a command that must end with code 2 and leave stdout empty."""
    said = onecurve("collapse", *arguments)
    assert said.code == 2, said
    assert said.out == ""
    assert said.err.startswith("onecurve: ")
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err
    assert len(said.err) < 1500
    return said.err


def accepted(*arguments: object) -> str:
    said = onecurve("collapse", *arguments)
    assert said.code == 0, said
    assert "Traceback" not in said.err
    return said.out


@pytest.fixture
def table(make_table) -> pl.DataFrame:
    return make_table(seeds=2, points=40)


@pytest.fixture
def csv(tmp_path):
    """Writes a frame, or text, as a CSV file and returns its path."""

    def write(content: pl.DataFrame | str | bytes, name: str = "curves.csv") -> Path:
        file = tmp_path / name
        if isinstance(content, pl.DataFrame):
            content.write_csv(file)
        else:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


def split(table):
    """The points, and the run table."""
    runs = table.select("run", "n_params", "seed").unique(maintain_order=True)
    return table.drop("n_params", "seed"), runs


def with_cell(table: pl.DataFrame, row: int, column: str, text: str) -> str:
    lines = [line.split(",") for line in table.write_csv().splitlines()]
    lines[row][table.columns.index(column)] = text
    return "\n".join(map(",".join, lines)) + "\n"


# What goes well


def test_a_good_table_gives_a_verdict_and_tables(table, csv):
    out = accepted(csv(table))
    assert "5 sizes from 1M to 256M" in out
    assert "Within a practical tolerance? Yes" in out
    assert "Deviation against seed noise" in out


def test_everything_is_written_as_json(table, csv, tmp_path):
    accepted(csv(table), "--json", tmp_path / "deep" / "out.json", "--floor", "zero")
    got = json.loads((tmp_path / "deep" / "out.json").read_text())
    assert got["floor"]["value"] == 0.0
    assert len(got["fraction"]) == len(got["deviation"]) == len(got["ratio"])


def test_json_on_stdout_is_nothing_but_json(table, csv, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["onecurve", "collapse", str(csv(table)), "--json", "-"])
    try:
        main()
    except SystemExit as end:
        assert not end.code
    assert json.loads(capsys.readouterr().out)["tolerance"] == 0.1


def test_columns_are_found_by_flag(table, csv):
    points, runs = split(table)
    points = points.rename({"run": "r", "tokens": "t", "loss": "l"})
    runs = runs.rename({"run": "r", "n_params": "n", "seed": "s"}).with_columns(end=pl.col("n") * 20)
    flags = ["--run", "r", "--x", "t", "--loss", "l", "--size", "n", "--seed", "s", "--horizon", "end", "--held-out"]
    out = accepted(csv(points), "--runs", csv(runs, "runs.csv"), *flags)
    assert "held-out loss 'l'" in out
    assert "10 runs, 2 seeds a size" in out


def test_run_directories_are_read(make_runs, tmp_path):
    for run in make_runs(seeds=2, points=20):
        writer = RunWriter(tmp_path / run.config.name, run.config, "tokens", {"val_loss": "held-out"})
        curve = run.curves["val_loss"]
        for step, (x, loss) in enumerate(zip(curve.x, curve.loss, strict=True), start=1):
            writer.append({"step": step, "tokens": float(x), "val_loss": float(loss)}, seconds=1.0)
    assert "10 runs, 2 seeds a size" in accepted(tmp_path)
    assert "--x ignored for" in accepted(tmp_path, "--x", "step")


def test_two_families_give_two_results(table, csv, tmp_path):
    other = table.with_columns(pl.col("run") + "b", pl.col("loss") * 1.1, optimizer=pl.lit("sgd"))
    both = csv(pl.concat([table.with_columns(optimizer=pl.lit("adam")), other]))
    out = accepted(both, "--json", tmp_path / "out.json")
    assert "optimiser adam: 5 sizes" in out
    assert "optimiser sgd: 5 sizes" in out
    assert len(json.loads((tmp_path / "out.json").read_text())["families"]) == 2


def test_a_family_that_cannot_be_measured_is_left_out_with_a_word(table, csv):
    lone = table.filter(pl.col("n_params") == 1_000_000).with_columns(
        pl.col("run") + "b", pl.col("loss") * 1.1, optimizer=pl.lit("sgd")
    )
    said = onecurve("collapse", csv(pl.concat([table.with_columns(optimizer=pl.lit("adam")), lone])))
    assert said.code == 0
    assert said.err.startswith("onecurve: left out optimiser sgd: all 2 finished runs have size 1M")
    assert "optimiser adam: 5 sizes" in said.out


# Columns


@pytest.mark.parametrize(
    ("column", "flag"),
    [("loss", "--loss COLUMN"), ("tokens", "--x COLUMN"), ("n_params", "--size COLUMN")],
)
def test_a_missing_column_is_named_with_its_flag(table, csv, column, flag):
    message = refused(csv(table.drop(column)))
    assert "curves.csv" in message
    assert flag in message
    assert "its columns are 'run'" in message


@pytest.mark.parametrize(
    ("flag", "told", "near"),
    [
        ("--loss", "los", "loss"),
        ("--x", "token", "tokens"),
        ("--size", "nparams", "n_params"),
        ("--run", "runs", "run"),
        ("--seed", "seeds", "seed"),
    ],
)
def test_an_unknown_column_offers_the_nearest(table, csv, flag, told, near):
    message = refused(csv(table), flag, told)
    assert f"no column {told!r} for {flag} (did you mean {near!r}?)" in message


def test_an_unknown_column_with_nothing_near_lists_them_all(table, csv):
    message = refused(csv(table), "--horizon", "zzz")
    assert "did you mean" not in message
    assert "'run', 'tokens', 'loss', 'n_params', 'seed'" in message


def test_two_candidates_are_asked_about(table, csv):
    losses = table.with_columns(val_loss="loss", test_loss="loss")
    assert "'val_loss' and 'test_loss' could both be the held-out loss; choose with --loss" in refused(csv(losses))
    accepted(csv(losses), "--loss", "val_loss")
    axes = csv(table.with_columns(samples="tokens"))
    assert "could both be the x axis; choose with --x" in refused(axes)
    accepted(axes, "--x", "tokens")
    horizons = csv(table.with_columns(horizon=pl.col("n_params") * 20, D=pl.col("n_params") * 20))
    assert "could both be the horizon; choose with --horizon" in refused(horizons)


@pytest.mark.parametrize("column", ["team", "seed"])
def test_families_by_a_column_of_the_table(table, csv, column):
    mixed = table.with_columns(team=pl.when(pl.col("seed") == 0).then(pl.lit("red")).otherwise(pl.lit("blue")))
    assert f"{column} " in accepted(csv(mixed), "--by", column)


def test_an_unknown_column_to_tell_families_by_lists_what_is_recorded(table, csv):
    assert "no setting 'team' to tell families apart by; recorded are seed" in refused(csv(table), "--by", "team")


# Values


@pytest.mark.parametrize("cell", ["abc", "1e", "3.1.4", "--", "1 000"])
@pytest.mark.parametrize("column", ["loss", "tokens"])
def test_a_cell_that_is_no_number_is_named_with_its_row(table, csv, cell, column):
    message = refused(csv(with_cell(table, 30, column, cell)))
    assert f"curves.csv: column {column!r} has {cell!r} at row 30, which is not a number" in message


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-inf", "Infinity", "1e400"])
def test_losses_that_are_not_finite_are_left_out_and_counted(table, csv, cell):
    out = accepted(csv(with_cell(table, 30, "loss", cell)))
    assert "dropped: 1 losses that are NaN or infinite" in out
    assert "10 runs" in out


def test_an_empty_cell_is_no_point(table, csv):
    assert "dropped" not in accepted(csv(with_cell(table, 30, "loss", "")))


def test_a_run_that_holds_no_number_is_named(table, csv):
    lost = table.with_columns(loss=pl.when(pl.col("run") == "4e+06-1").then(float("nan")).otherwise("loss"))
    assert "run '4e+06-1': all 40 values of 'loss' are NaN or infinite; drop the run" in refused(csv(lost))


def test_x_that_goes_back_is_named_with_its_row(table, csv):
    lines = table.write_csv().splitlines()
    lines[5], lines[6] = lines[6], lines[5]
    message = refused(csv("\n".join(lines)))
    assert "curves.csv: run '1e+06-0': 'tokens' goes back from 3e+06 to 2.5e+06 at row 6" in message
    assert "Keep the branch" in message


def test_a_floor_above_a_loss_is_named(table, csv):
    message = refused(csv(table), "--floor", "2.1")
    assert "loss 1.9" in message
    assert "is not above the floor 2.1; give a lower --floor" in message


@pytest.mark.parametrize("loss", [0.0, -1.0])
def test_a_loss_at_or_below_zero_is_named(table, csv, loss):
    message = refused(csv(with_cell(table, 40, "loss", str(loss))))
    assert "curves.csv: run '1e+06-0': loss" in message or "at x = 1 is not above the floor 0" in message


@pytest.mark.parametrize("floor", ["abc", "1e", "", "published", "1,5"])
def test_a_floor_that_is_none_lists_what_is(table, csv, floor):
    assert f"--floor is {floor!r}; accepted are auto, fit, zero or a number" in refused(csv(table), "--floor", floor)


@pytest.mark.parametrize("floor", ["nan", "inf", "-inf"])
def test_a_floor_is_finite(table, csv, floor):
    assert "a finite number" in refused(csv(table), "--floor", floor)


@pytest.mark.parametrize("option", ["--window -1", "--window nan", "--window inf", "--tolerance 0", "--tolerance nan"])
def test_shares_lie_in_their_range(table, csv, option):
    assert option.split()[0] in refused(csv(table), *option.split())


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("7B", "size is '7B', which is not a number"),
        ("0", "n_params is 0.0"),
        ("-5", "n_params is -5.0"),
        ("", "size is empty"),
    ],
)
def test_a_size_that_is_none_is_named(table, csv, size, words):
    text = table.with_columns(pl.col("n_params").cast(pl.String).replace("4000000", size))
    assert words in refused(csv(text))


# Designs


def test_a_size_with_one_seed_is_measured_with_a_remark(table, csv):
    out = accepted(csv(table.filter(pl.col("run") != "4e+06-1")))
    assert "one seed only at size 4M" in out
    assert "1 to 2 seeds a size" in out


def test_one_seed_everywhere_says_that_there_is_no_noise_floor(table, csv):
    out = accepted(csv(table.filter(pl.col("seed") == 0)))
    assert "one seed a size gives no noise floor" in out
    assert "Within a practical tolerance? Yes" in out


def test_a_run_that_ends_early_is_shown_and_kept_out(table, csv):
    cut = table.filter((pl.col("run") != "4e+06-1") | (pl.col("tokens") < 4e7))
    out = accepted(csv(cut.with_columns(horizon=pl.col("n_params") * 20)))
    assert "1 runs end before their horizon and are left out of every statistic: 4e+06-1 (at x = 0.47)" in out
    assert "9 runs" in out


def test_no_run_at_its_horizon_points_to_the_horizon(table, csv):
    message = refused(csv(table.with_columns(horizon=pl.col("n_params") * 40)))
    assert "none of the 10 runs reaches its horizon" in message
    assert "check --horizon" in message


def test_two_sizes_are_measured_with_a_remark(table, csv):
    out = accepted(csv(table.filter(pl.col("n_params") < 10_000_000)))
    assert "two sizes: every spread over sizes rests on a single difference" in out


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_size_is_refused(table, csv, seeds):
    message = refused(csv(table.filter((pl.col("n_params") == 1_000_000) & (pl.col("seed") < seeds))))
    assert "at least two are needed; add runs of another size, or check --size" in message


def test_a_fit_that_the_ladder_cannot_give_is_refused(table, csv):
    message = refused(csv(table.filter(pl.col("n_params") < 20_000_000)), "--floor", "fit")
    assert "cannot be fitted: 3 sizes, and a fit of it needs at least 4; use --floor zero or a value" in message


# Run tables


def test_a_run_that_the_run_table_lacks_is_named(table, csv):
    points, runs = split(table)
    message = refused(csv(points), "--runs", csv(runs[1:], "runs.csv"))
    assert "no row for run '1e+06-0'; its column 'run' has '1e+06-1', '4e+06-0'" in message


def test_rows_of_one_run_in_the_run_table_agree_or_are_refused(table, csv):
    points, runs = split(table)
    accepted(csv(points), "--runs", csv(pl.concat([runs, runs[:1]]), "runs.csv"))
    other = pl.concat([runs, runs[:1].with_columns(pl.col("n_params") + 5)])
    assert "run '1e+06-0' has two rows that differ; keep one" in refused(csv(points), "--runs", csv(other, "runs.csv"))


def test_a_run_table_without_a_key_is_refused(table, csv):
    points, runs = split(table)
    message = refused(csv(points), "--runs", csv(runs.drop("run"), "runs.csv"))
    assert "no column that names the run; the curves name it in 'run'" in message


@pytest.mark.parametrize("name", ["gone.csv", "."])
def test_a_run_table_that_is_none_is_refused(table, csv, tmp_path, name):
    assert str(tmp_path) in refused(csv(table), "--runs", tmp_path / name)


# Files


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"", "the file is empty"),
        ("t.csv", b"run,tokens,loss,n_params\n", "no rows"),
        ("t.csv", gzip.compress(b"run,tokens,loss\n" * 99), "holds binary data; is it compressed?"),
        ("t.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "holds binary data"),
        ("t.csv", bytes(range(1, 256)) * 30, "cannot be read as CSV"),
        ("t.csv", b"run,tokens,loss,n_params\n" + b"a" * 3_000_000 + b"\n", "no number at row 1"),
        ("t.csv", b'run,tokens,loss,n_params\n"a,1,2,3\n', "cannot be read as CSV"),
        ("t.csv", b"x" * 3_000_000, "no rows"),
        ("t.parquet", b"run,tokens\na,1\n", "the name says .parquet, but it is no Parquet file"),
        ("t.jsonl", bytes(range(1, 256)) * 30, "line 1 is not JSON"),
        ("t.jsonl", b'{"a": 1', "line 1 is not JSON"),
        ("t.png", b"\x89PNG", "a table ends in"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_named(csv, name, content, words):
    file = csv(content, name)
    message = refused(file)
    assert str(file) in message
    assert words in message


def test_a_parquet_file_under_another_name_is_named(table, csv):
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    assert "the name says .csv, but it is a Parquet file; rename it" in refused(csv(buffer.getvalue()))
    whole = csv(buffer.getvalue(), "t.parquet")
    accepted(whole)
    assert "is the file whole" in refused(csv(buffer.getvalue()[:-9], "t.parquet"))


def test_paths_that_hold_no_runs_say_what_they_hold(table, csv, tmp_path):
    csv(table)
    assert (
        "no run directory (a folder with run.json) in it, and no log of another tool; it holds curves.csv"
        in refused(tmp_path)
    )
    assert "no such file or folder" in refused(tmp_path / "gone.csv")


def test_names_in_any_script_and_with_commas_and_quotes_come_through(table, csv, tmp_path):
    odd = table.with_columns(run=pl.lit('Läufe, "die" 训练 [bold]') + pl.col("run"))
    accepted(csv(odd, "Kürven ✓.csv"), "--json", tmp_path / "out.json")
    names = json.loads((tmp_path / "out.json").read_text())["runs"]
    assert 'Läufe, "die" 训练 [bold]1e+06-0' in names


def test_markup_in_a_family_name_is_printed_as_it_is(table, csv):
    both = pl.concat(
        [
            table.with_columns(optimizer=pl.lit("[red]adam[/red]")),
            table.with_columns(pl.col("run") + "b", pl.col("loss") * 1.1, optimizer=pl.lit("[/]")),
        ]
    )
    out = accepted(csv(both))
    assert "[red]adam[/red]" in out


def test_what_cannot_be_written_is_named_and_the_old_file_stays(table, csv, tmp_path):
    good, folder = csv(table), tmp_path / "folder"
    folder.mkdir()
    assert f"{folder}: cannot be written (Is a directory)" in refused(good, "--json", folder)
    assert "cannot be written" in refused(good, "--json", good / "out.json")
    out = tmp_path / "out.json"
    accepted(good, "--json", out)
    before = out.read_bytes()
    refused(good, "--json", out, "--floor", "2.1")
    assert out.read_bytes() == before


# Anything at all


@pytest.fixture(scope="module")
def good_files(tmp_path_factory, make_table) -> list[Path]:
    folder = tmp_path_factory.mktemp("good")
    table = make_table(seeds=2, points=8)
    table.write_csv(folder / "t.csv")
    table.write_parquet(folder / "t.parquet")
    table.write_ndjson(folder / "t.jsonl")
    return sorted(folder.glob("t.*"))


kinds = st.sampled_from(["flip", "cut", "drop", "insert"])
edits = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), kinds, st.binary(max_size=6)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=120)
@given(st.sampled_from([0, 1, 2]), edits)
def test_no_mutation_of_a_good_file_gives_a_traceback(good_files, tmp_path_factory, which, edits):
    file = good_files[which]
    data = bytearray(file.read_bytes())
    for place, kind, extra in edits:
        at = int(place * len(data))
        if kind == "flip" and data:
            data[at] ^= (extra or b"\xff")[0] or 1
        elif kind == "cut":
            del data[max(at, 1) :]
        elif kind == "drop":
            del data[at : at + 9]
        else:
            data[at:at] = extra
    mutated = tmp_path_factory.mktemp("mutated") / file.name
    mutated.write_bytes(data)
    said = onecurve("collapse", mutated)
    assert said.code in (0, 2), said
    assert "Traceback" not in said.err
    if said.code == 2:
        assert said.err.startswith("onecurve: ")
        assert str(mutated) in said.err or "run '" in said.err or "size" in said.err or "runs" in said.err


cells = st.one_of(
    st.sampled_from(["", "nan", "inf", "-inf", "0", "-1", "1e308", "1e-308", "x", '"', "NULL", "1;2", "٣", "1_0"]),
    st.floats().map(repr),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 80), st.integers(0, 4), cells), min_size=1, max_size=5))
def test_no_cell_gives_a_traceback(make_table, tmp_path_factory, changes):
    table = make_table(seeds=2, points=8)
    lines = [line.split(",") for line in table.write_csv().splitlines()]
    for row, column, cell in changes:
        lines[row][column] = cell
    file = tmp_path_factory.mktemp("cells") / "t.csv"
    file.write_text("\n".join(map(",".join, lines)))
    assert onecurve("collapse", file).code in (0, 2)


# As a process


@pytest.mark.parametrize(("floor", "code"), [("zero", 0), ("9", 2)])
def test_the_installed_command_ends_with_the_code(table, csv, floor, code):
    command = [str(Path(sys.executable).with_name("onecurve")), "collapse", str(csv(table)), "--floor", floor]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("Within a practical tolerance?" in done.stdout) == (code == 0)


def test_output_in_a_pipe_that_closes_is_no_error(table, csv):
    command = f"{Path(sys.executable).with_name('onecurve')} collapse {csv(table)} --json - | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert len(done.stdout) == 10


def test_help_names_every_flag_of_the_columns():
    said = onecurve("collapse", "--help")
    assert said.code == 0
    flags = "--run --x --loss --size --seed --horizon --compute --held-out --by --floor --json --report --figure --runs"
    assert all(flag in said.out for flag in flags.split())


def test_numbers_do_not_depend_on_the_order_of_the_rows(table, csv, tmp_path):
    accepted(csv(table), "--json", tmp_path / "a.json")
    shuffled = table.sort("tokens", "run")
    accepted(csv(shuffled), "--json", tmp_path / "b.json")
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert np.array_equal(first["deviation"], second["deviation"])
