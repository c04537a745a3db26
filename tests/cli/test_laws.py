"""``onecurve fit``, ``predict``, ``score`` and ``laws`` as a user meets them."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from onecurve import RunConfig, Schedule
from onecurve.store import RunWriter

from .test_collapse import onecurve


@pytest.fixture
def ladder(make_table, tmp_path):
    """A table of a ladder that collapses, linear decay recorded."""
    file = tmp_path / "curves.csv"
    make_table(seeds=2, points=40).with_columns(pl.lit("linear").alias("schedule")).write_csv(file)
    return file


def refused(*arguments: object) -> str:
    said = onecurve(*arguments)
    assert said.code == 2, said
    assert said.err.splitlines()[-1].startswith("onecurve: ") and "Traceback" not in said.err
    return said.err


def accepted(*arguments: object) -> str:
    said = onecurve(*arguments)
    assert said.code == 0, said
    return said.out


def test_a_law_is_fitted_kept_and_asked(ladder, tmp_path):
    law, curve, figure = tmp_path / "law.json", tmp_path / "curve.json", tmp_path / "curve.png"
    said = accepted("fit", "final", ladder, "-o", law)
    assert "final: L(1) =" in said and "band: 90%" in said
    assert json.loads(law.read_text())["law"] == "final"
    said = accepted("predict", law, "--size", "1e9", "--horizon", "2e10", "--json", curve, "--figure", figure)
    assert "planned, by final" in said and "4 sizes left out" in said
    told = json.loads(curve.read_text())
    x, value, low, high = (np.array(told[k]) for k in ("x", "predicted", "low", "high"))
    assert x[-1] == 2e10 and x.size == 20
    assert np.all((low < value) & (value < high)) and np.all(np.diff(value) < 0)
    assert figure.stat().st_size > 10_000
    assert json.loads(onecurve("predict", law, "--size", "1e9", "--horizon", "2e10", "--json", "-").out) == told


def test_runs_are_predicted_beside_what_they_did(ladder, tmp_path):
    law, out = tmp_path / "law.json", tmp_path / "curves.json"
    accepted("fit", "final", ladder, "-o", law)
    accepted("predict", law, ladder, "--json", out, "--figure", tmp_path / "all.svg")
    curves = json.loads(out.read_text())["curves"]
    assert len(curves) == 10
    for c in curves:
        np.testing.assert_allclose(c["predicted"], c["loss"], rtol=0.05)


def test_a_law_is_judged_on_what_was_left_out(ladder, tmp_path):
    said = accepted("score", "final", ladder, "--json", tmp_path / "score.json")
    assert "the largest size" in said and "in band" in said
    rows = json.loads((tmp_path / "score.json").read_text())["rows"]
    assert len(rows) == 2 and {r["n_params"] for r in rows} == {256e6}
    assert len(json.loads(onecurve("score", "final", ladder, "--leave-out", "size", "--json", "-").out)["rows"]) == 8
    told = ("--fit-on", "n_params=1e6,4e6,16e6", "--test-on", "n_params=64e6", "--json", "-")
    assert len(json.loads(onecurve("score", "final", ladder, *told).out)["rows"]) == 2
    assert len(json.loads(onecurve("score", "final", ladder, *told[:2], "--json", "-").out)["rows"]) == 4


def test_laws_are_listed_with_what_they_need():
    said = accepted("laws")
    for name in ("final", "powers", "noisy-quadratic", "multi-power", "surrogate", "horizon", "exponent", "variance"):
        assert name in said


def test_studies_are_fitted_as_well(tmp_path):
    for n in (1e6, 2e6, 4e6, 8e6, 16e6, 32e6):
        config = RunConfig(name=f"{n:g}", n_params=n, schedule=Schedule(shape="constant"))
        writer = RunWriter(tmp_path / "runs" / config.name, config, "tokens", {"loss": "held-out"})
        for k, x in enumerate(np.geomspace(0.1 * n, 2e3 * n, 60)):
            writer.append({"step": k, "tokens": x, "loss": 300 * n**-0.35 + 800 * x**-0.35}, 0.0)
    out = tmp_path / "found.json"
    assert "compute-optimal horizon" in accepted("fit", "horizon", tmp_path / "runs", "-o", out)
    assert json.loads(out.read_text())["law"] == "horizon"
    assert "data exponent by collapse" in accepted("fit", "exponent", tmp_path / "runs")
    assert "powers: n_amplitude" in accepted("fit", "powers", tmp_path / "runs", "--intervals", "profile")


def test_a_schedule_that_a_law_knows_is_asked_for_by_name(tmp_path, ladder):
    law = tmp_path / "law.json"
    accepted("fit", "final", ladder, "-o", law)
    asked = ("predict", law, "--size", "1e9", "--horizon", "2e10")
    assert "--schedule is 'cosin'" in refused(*asked, "--schedule", "cosin")
    assert "--warmup is 1.5" in refused(*asked, "--warmup", "1.5")
    assert "--schedule exponential: final = 0 cannot be reached" in refused(*asked, "--schedule", "exponential")
    assert "its schedule is cosine" in accepted(*asked, "--schedule", "cosine")
    assert "note:" not in accepted(*asked)


def test_a_planned_run_takes_from_the_fit_what_it_is_not_told(tmp_path):
    runs = tmp_path / "runs"
    for k, shape in enumerate(("constant", "cosine", "linear")):
        for n in (1e6, 8e6):
            config = RunConfig(name=f"{shape}-{n:g}", n_params=n, horizon=1e4, schedule=Schedule(shape=shape))
            writer = RunWriter(runs / config.name, config, "steps", {"loss": "held-out"})
            for x in np.linspace(100.0, 1e4, 100):
                s = float(config.schedule(x / 1e4))
                writer.append({"step": int(x), "steps": x, "loss": 2 + 9 * x**-0.3 - 0.1 * (1 - s) + k * 1e-4}, 0.0)
    law = tmp_path / "law.json"
    accepted("fit", "multi-power", runs, "--fit-on", "n_params=1e6", "-o", law)
    said = accepted("predict", law, "--horizon", "1e4", "--schedule", "cosine")
    assert " steps predicted" in said
    assert "needs a schedule" in refused("predict", law, "--horizon", "1e4")
    assert "--warmup, --decay-frac and --final need a --schedule" in refused(
        "predict", law, "--horizon", "1e4", "--warmup", ".1"
    )
    assert "does not carry over to 8M" in refused("predict", law, runs)
    assert "5 times the largest length" in accepted("predict", law, "--horizon", "5e4", "--schedule", "cosine")
    assert "no size can be left out" in refused("score", "multi-power", runs, "--leave-out", "size")


def test_runs_to_predict_may_have_columns_of_other_names(ladder, tmp_path):
    law, other = tmp_path / "law.json", tmp_path / "other.csv"
    accepted("fit", "final", ladder, "-o", law)
    names = {"run": "id", "tokens": "tokens_so_far", "loss": "y", "n_params": "big_n"}
    pl.read_csv(ladder).rename(names).write_csv(other)
    told = ("--run", "id", "--x", "tokens_so_far", "--loss", "y", "--size", "big_n")
    one = accepted("predict", law, other, *told, "--json", "-")
    two = accepted("predict", law, ladder, "--json", "-")
    assert [c["predicted"] for c in json.loads(one)["curves"]] == [c["predicted"] for c in json.loads(two)["curves"]]
    assert "--warmup is a setting of a planned run" in refused("predict", law, ladder, "--warmup", "0.1")
    assert "--size is 'big_n', which is not a number" in refused("predict", law, "--size", "big_n", "--horizon", "1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "finel", "{data}"), "no law 'finel' (did you mean 'final'?)"),
        (("fit", "final", "{data}", "--fit-on", "n_params"), "is no condition; write SETTING=VALUE"),
        (("fit", "final", "{data}", "--fit-on", "sede=1"), "no run records 'sede' (did you mean 'seed'?)"),
        (("fit", "final", "{data}", "--fit-on", "n_params=5"), "no run meets 'n_params=5'; the values"),
        (("fit", "final", "{data}", "--fit-on", "n_params=1e6"), "at least 2 sizes"),
        (("fit", "variance", "{data}", "--intervals", "profile"), "variance has no profile intervals"),
        (("fit", "final", "{data}", "--intervals", "guess"), "accepted are bootstrap or profile"),
        (("fit", "powers", "{data}"), "linear schedule is not constant"),
        (("fit", "multi-power", "{data}"), "one model size at a time"),
        (("fit", "final", "{data}.gone"), "gone"),
        (("score", "horizon", "{data}"), "predicts no curve"),
        (("score", "final", "{data}", "--leave-out", "seed"), "accepted are size, schedule or run"),
        (("score", "final", "{data}", "--leave-out", "size", "--fit-on", "seed=0"), "not both"),
        (("score", "final", "{data}", "--fit-on", "seed=0", "--test-on", "seed=0"), "must name different runs"),
        (("predict", "{data}", "--size", "1", "--horizon", "1"), "not the JSON of a law"),
        (("predict", "{data}"), "not the JSON of a law"),
    ],
)
def test_mistakes_are_answered_in_one_message(ladder, arguments, words):
    assert words in refused(*(str(a).replace("{data}", str(ladder)) for a in arguments))


def test_a_planned_run_needs_its_size_and_horizon(ladder, tmp_path):
    law = tmp_path / "law.json"
    accepted("fit", "final", ladder, "-o", law)
    assert "needs --size and --horizon" in refused("predict", law, "--size", "1e9")
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused("fit", "final", ladder, "-o", tmp_path / "file" / "law.json")


@pytest.mark.parametrize("verb", ["fit", "predict", "score", "laws"])
def test_help_shows_an_example(verb):
    said = accepted(verb, "--help")
    assert verb == "laws" or "onecurve " + verb in said
