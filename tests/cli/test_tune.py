"""``onecurve tune`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from .test_collapse import onecurve

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "sweeps"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A recorded sweep at width 64 as it stood at .7, its reference at width 32, and the tables of both."""
    folder = tmp_path_factory.mktemp("sweep")
    points, runs = pl.read_parquet(EXAMPLES / "mlp.parquet"), pl.read_csv(EXAMPLES / "mlp-runs.csv")
    for name, kept in (("mlp-32-300-decay", 1.0), ("mlp-64-300-decay", 0.7)):
        mine = runs.filter(pl.col("sweep") == name)
        seen = points.join(mine.select("run_id", "horizon"), on="run_id")
        seen.filter(pl.col("samples") <= kept * pl.col("horizon") * (1 + 1e-9)).drop("horizon").write_csv(
            folder / f"{name}.csv"
        )
    runs.write_csv(folder / "runs.csv")
    law = folder / "small.json"
    arguments = ("--fit-on", "sweep=mlp-32-300-decay", "-o", law)
    assert onecurve("fit", "small-runs", EXAMPLES / "mlp.parquet", "--runs", folder / "runs.csv", *arguments).code == 0
    large = runs.filter(pl.col("sweep") == "mlp-64-300-decay")
    large.write_csv(folder / "large.csv")
    return [folder / "mlp-64-300-decay.csv", "--runs", folder / "large.csv", "--reference", law]


def test_a_sweep_is_ranked_and_what_to_stop_is_said(sweep, tmp_path):
    out, figure = tmp_path / "out.json", tmp_path / "sweep.svg"
    said = onecurve("tune", *sweep, "--json", out, "--figure", figure)
    assert said.code == 0 and "16 runs of 24.8K parameters" in said.out and "Shapes by small-runs" in said.out
    content = json.loads(out.read_text())
    ends = [row["end"] for row in content["rows"]]
    assert ends == sorted(ends) and len(ends) == 16
    assert sum(row["chance_best"] for row in content["rows"]) == pytest.approx(1.0)
    stops = [row for row in content["rows"] if row["verdict"] == "stop"]
    assert f"Stop {len(stops)} of 16 runs now" in said.out if stops else "Stop nothing now." in said.out
    first = figure.read_bytes()
    assert onecurve("tune", *sweep, "--figure", figure).code == 0 and figure.read_bytes() == first
    assert json.loads(onecurve("tune", *sweep, "--json", "-").out) == content


def test_ends_lie_in_their_intervals_nine_times_in_ten(sweep, tmp_path):
    content = json.loads(onecurve("tune", *sweep, "--json", "-").out)
    points = pl.read_parquet(EXAMPLES / "mlp.parquet").sort("samples")
    true = dict(points.group_by("run_id").agg(pl.col("test_loss").last()).iter_rows())
    inside = [row["low"] <= true[row["run"]] <= row["high"] for row in content["rows"]]
    assert np.mean(inside) >= 0.8


def test_the_tolerance_and_the_risk_free_more_runs(sweep):
    careful = json.loads(onecurve("tune", *sweep, "--risk", "0.001", "--json", "-").out)
    bold = json.loads(onecurve("tune", *sweep, "--risk", "0.3", "--tolerance", "0.05", "--json", "-").out)
    assert bold["saved"] > careful["saved"]


def test_ended_runs_of_the_sweep_stand_in_for_a_reference(tmp_path):
    said = onecurve("tune", EXAMPLES / "mlp.parquet", "--runs", EXAMPLES / "mlp-runs.csv", "--where",
                    "sweep=mlp-32-300-decay")  # fmt: skip
    assert said.code == 0 and "ended" in said.out and "Stop nothing now." in said.out


def test_following_ends_once_all_is_told(tmp_path):
    arguments = ("--runs", EXAMPLES / "mlp-runs.csv", "--where", "sweep=mlp-32-300-decay", "--follow", "3600")
    assert onecurve("tune", EXAMPLES / "mlp.parquet", *arguments).code == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--risk", "1.5"), "--risk is 1.5; accepted is 0 or more, below 1"),
        (("--follow", "0"), "--follow is 0"),
        (("--where", "swep=a"), "no run records 'swep' (did you mean 'sweep'?)"),
        (("--stopped", "nobody"), "--stopped 'nobody': no such run"),
        (("--figure", "a.jpg"), "a figure is written as"),
        (("--loss", "loss"), "loss"),
    ],
)
def test_what_is_refused(sweep, change, words):
    said = onecurve("tune", *sweep, *change)
    assert said.code == 2 and words in said.err and "Traceback" not in said.err


def test_references_that_do_not_serve(sweep, tmp_path):
    data = sweep[:3]
    said = onecurve("tune", *data)
    assert said.code == 2 and "give finished runs of a smaller size with --reference" in said.err
    said = onecurve("tune", *data, "--reference", tmp_path / "none.json")
    assert said.code == 2 and "none.json" in said.err
    said = onecurve("tune", EXAMPLES / "mlp.parquet", "--runs", EXAMPLES / "mlp-runs.csv")
    assert said.code == 2 and "a sweep has one model size" in said.err


def test_the_ingredients_of_the_timescale_are_named(sweep, tmp_path):
    table = tmp_path / "runs.csv"
    pl.read_csv(sweep[2]).drop("weight_decay").write_csv(table)
    said = onecurve("tune", sweep[0], "--runs", table, *sweep[3:])
    assert said.code == 2 and "lacks weight_decay, so its timescale B / (eta lambda D) is not known" in said.err
