import json
import subprocess
import sys
from pathlib import Path

import pytest

from onecurve import read
from onecurve.controls import timescale, tokens_per_param
from onecurve.ladder import ends_early

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_recorded_demo_gives_the_verdict_that_the_docs_state(tmp_path):
    out = tmp_path / "demo.json"
    tables = [EXAMPLES / "demo" / "curves.parquet", "--runs", EXAMPLES / "demo" / "runs.csv"]
    subprocess.run([sys.executable, "-m", "onecurve", "collapse", *tables, "--json", out], check=True)
    mup, standard = json.loads(out.read_text())["families"]
    assert mup["name"] == "parameterisation mup" and standard["name"] == "parameterisation standard"
    assert mup["verdict"]["practical"] and not standard["verdict"]["practical"]
    assert mup["crossings"][0]["corrected"] == pytest.approx(0.573, abs=1e-3)
    assert standard["crossings"][0]["corrected"] == pytest.approx(0.870, abs=1e-3)
    assert any("the hidden learning rate" in check for check in standard["verdict"]["checks"])


@pytest.mark.parametrize(
    ("ladder", "practical", "first"),
    [("fixed", True, None), ("drifting", False, "timescale"), ("standard", False, "parameterisation")],
)
def test_the_recorded_language_models_give_the_verdicts_that_the_docs_state(tmp_path, ladder, practical, first):
    out, corpus = tmp_path / "out.json", EXAMPLES / "corpus"
    tables = [corpus / f"{ladder}.parquet", "--runs", corpus / f"{ladder}-runs.csv"]
    subprocess.run([sys.executable, "-m", "onecurve", "collapse", *tables, "--json", out], check=True)
    told = json.loads(out.read_text())["verdict"]
    assert told["practical"] is practical
    assert (told["checks"][0].split(":")[0] if first else None) == first


def test_the_recorded_scores_say_what_the_docs_state(tmp_path):
    out, table = tmp_path / "out.json", EXAMPLES / "scores" / "scores.csv"
    tell = ["--score", "bits_per_byte", "--no-published", "--json", out]
    subprocess.run([sys.executable, "-m", "onecurve", "frontier", table, *tell], check=True)
    told = json.loads(out.read_text())
    assert len(told["models"]) == 10 and len({m["family"] for m in told["models"]}) == 2
    (long,) = (f for f in told["fits"] if f["family"] == "completep, 20 TPP" and f["against"] == "C")
    assert long["exponent"] == pytest.approx(0.142, abs=5e-4) and long["interval"][1] == pytest.approx(0.152, abs=1e-3)
    at = told["ratios"]["models"].index("completep-161K-5-tpp-seed-0")
    assert told["ratios"]["between"][at] == pytest.approx(0.402, abs=1e-3)
    assert told["ratios"]["interval"][at] == pytest.approx([0.319, 0.482], abs=1e-3)
    assert sum(m["pareto"] for m in told["models"] if m["family"] == "completep, 5 TPP") == 2


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_example_runs(script):
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_recorded_sweeps_hold_every_control_and_end():
    folder = EXAMPLES / "sweeps"
    runs = read([folder / "mlp.parquet"], folder / "mlp-runs.csv").runs
    sweeps = {run.config.settings["sweep"] for run in runs}
    assert {"mlp-32-300-decay", "mlp-64-300-decay"} <= sweeps
    for run in runs:
        assert timescale(run) > 0 and tokens_per_param(run) > 0 and run.config.schedule is not None
        assert not ends_early(run.curve(), run.end) and len(run.curve()) > 100
    decay = [run for run in runs if run.config.settings["sweep"] == "mlp-64-300-decay"]
    assert sorted({round(timescale(run), 4) for run in decay}) == [0.02 * 2**k for k in range(8)]
