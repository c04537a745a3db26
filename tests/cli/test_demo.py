import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch", reason="the trainer's tests need torch (pip install 'onecurve[train]')")

RECIPE = """
[task]
dimension = 2
modes = 50

[model]
blocks = 1
inputs = 2

[ladder]
widths = [6, 8, 12]
base_width = 6
seeds = 2
parameterisations = ["mup", "standard"]
shared_data_widths = [6]

[optimiser]
learning_rate = 0.01
batch = 16

[schedule]
shape = "linear"

[horizon]
tokens_per_param = {samples}

[evaluation]
points = 12
samples = 64
"""


def onecurve(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "onecurve", *map(str, arguments)]


@pytest.fixture
def recipe(tmp_path):
    def write(samples: float):
        path = tmp_path / "recipe.toml"
        path.write_text(RECIPE.format(samples=samples))
        return path

    return write


def test_demo_trains_reports_and_says_what_it_means(recipe, tmp_path):
    out = tmp_path / "demo"
    done = subprocess.run(
        onecurve("demo", "--recipe", recipe(20.0), "--out", out), capture_output=True, text=True, check=True
    )
    assert {"report.html", "report.png", "report.svg", "runs", "shared-data"} <= {p.name for p in out.iterdir()}
    page = (out / "report.html").read_text()
    assert "parameterisation mup" in page and "parameterisation standard" in page
    for words in ("What it means", "parameterisation standard:", "share their data order", "Look again:"):
        assert words in done.stdout
    again = subprocess.run(onecurve("collapse", out / "runs"), capture_output=True, text=True, check=True)
    assert "3 sizes" in again.stdout


def test_training_stops_on_ctrl_c_and_the_same_command_goes_on(recipe, tmp_path):
    command = onecurve("train", recipe(3000.0), "-o", tmp_path / "ladder")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    metrics = tmp_path / "ladder" / "runs" / "mup-width-12-seed-0" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not metrics.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "everything so far is saved" in message and "Traceback" not in message
    assert list((tmp_path / "ladder" / "checkpoints" / "width-12").glob("step-*"))


def test_a_mistake_in_the_recipe_is_one_message(recipe, tmp_path):
    path = recipe(20.0)
    path.write_text(path.read_text().replace("blocks = 1", "blocks = 0"))
    done = subprocess.run(onecurve("train", path, "-o", tmp_path / "out"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "model.blocks is 0" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_without_torch_the_message_says_what_to_install(monkeypatch, tmp_path):
    from onecurve import OnecurveError
    from onecurve.cli.train import needs_torch

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OnecurveError, match=r"pip install 'onecurve\[train\]'"):
        needs_torch(tmp_path / "recipe.toml")
