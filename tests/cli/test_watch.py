"""``onecurve watch`` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from .test_collapse import onecurve

CORPUS = Path(__file__).parent.parent.parent / "examples" / "corpus"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The recorded language models: a reference of the three smaller sizes, the largest as it was, and with a fault."""
    folder = tmp_path_factory.mktemp("watch")
    points, runs = pl.read_parquet(CORPUS / "fixed.parquet"), pl.read_csv(CORPUS / "fixed-runs.csv")
    largest = pl.col("n_params") == runs["n_params"].max()
    for name, which in (("small", ~largest), ("large", largest)):
        mine = runs.filter(which)
        mine.write_csv(folder / f"{name}-runs.csv")
        points.filter(pl.col("run_id").is_in(mine["run_id"].implode())).write_csv(folder / f"{name}.csv")
    horizon = runs.filter(largest)["horizon"][0]
    bad = pl.when(pl.col("tokens") > 0.6 * horizon).then(1.3 * pl.col("train_loss")).otherwise(pl.col("train_loss"))
    pl.read_csv(folder / "large.csv").with_columns(bad.alias("train_loss")).write_csv(folder / "bad.csv")
    said = onecurve("collapse", folder / "small.csv", "--runs", folder / "small-runs.csv", "-o", folder / "ref.json")
    assert said.code == 0
    return folder


def watch(logs, name, *more):
    arguments = (logs / f"{name}.csv", "--runs", logs / "large-runs.csv", "--reference", logs / "ref.json", *more)
    return onecurve("watch", *arguments)


def test_a_healthy_run(logs):
    said = watch(logs, "large", "--once")
    assert said.code == 0 and "aligned on 25% to 50%" in said.out and "departure" not in said.out


def test_a_departure_is_an_alarm_and_an_exit_code(logs, tmp_path):
    file = tmp_path / "deep" / "events.jsonl"
    said = watch(logs, "bad", "--once", "--json", "--to", file)
    assert said.code == 4
    events = json.loads(f"[{said.out.replace('} {', '}, {')}]")  # the helper joins lines
    alarm = next(event for event in events if event["severity"] == "alarm")
    assert alarm["kind"] == "departure" and abs(alarm["onset"] - 0.6) < 0.03 and alarm["size"] > 0.2
    assert [json.loads(line) for line in file.read_text().splitlines()] == events


def test_the_state_is_remembered(logs, tmp_path):
    first = watch(logs, "bad", "--once", "--json", "--state", tmp_path)
    again = watch(logs, "bad", "--once", "--json", "--state", tmp_path)
    assert first.code == 4 and again.code == 0 and again.out == ""


def test_finished_runs_end_the_watch_without_once(logs):
    assert watch(logs, "large").code == 0


def test_a_growing_file_is_followed_to_the_alarm(logs, tmp_path):
    lines = (logs / "bad.csv").read_text().splitlines(keepends=True)
    file = tmp_path / "log.csv"
    file.write_text("".join(lines[: len(lines) // 2]))
    command = ["watch", file, "--runs", logs / "large-runs.csv", "--reference", logs / "ref.json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "onecurve", *map(str, command), "--every", ".3", "--leave", "--json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        time.sleep(4)
        assert process.poll() is None
        with file.open("a") as out:
            out.write("".join(lines[len(lines) // 2 :]))
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 4 and json.loads(said.splitlines()[-1])["kind"] == "departure"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--every", "0"), "--every is 0"),
        (("--limit", "-1"), "--limit is -1"),
        (("--webhook", "nothing"), "--webhook is no http or https address"),
        (("--webhook", "http://a/b", "--form", "irc"), "--form is 'irc'"),
        (("--loss", "nothing"), "nothing"),
    ],
)
def test_what_is_refused(logs, more, words):
    said = watch(logs, "large", "--once", *more)
    assert said.code == 2 and words in said.err and "Traceback" not in said.err


def test_references_that_are_none(logs, tmp_path):
    file = tmp_path / "a.json"
    file.write_text("{}")
    said = onecurve("watch", logs / "large.csv", "--runs", logs / "large-runs.csv", "--reference", file, "--once")
    assert said.code == 2 and "no reference; make one with onecurve collapse" in said.err
    two = onecurve(
        "collapse", CORPUS / "fixed.parquet", "--runs", CORPUS / "fixed-runs.csv", "--by", "seed", "-o", file
    )
    assert two.code == 2 and "-o writes the curve of one family" in two.err


def test_a_run_without_a_horizon_needs_until(logs, tmp_path):
    table = tmp_path / "runs.csv"
    pl.read_csv(logs / "large-runs.csv").drop("horizon").write_csv(table)
    arguments = ("watch", logs / "large.csv", "--runs", table, "--reference", logs / "ref.json", "--once")
    said = onecurve(*arguments)
    assert said.code == 2 and "--until VALUE" in said.err
    assert onecurve(*arguments, "--until", "2.635776e7").code == 0
