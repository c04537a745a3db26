"""The verbs around training a language model, as whole processes or through the app."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from onecurve.cli import app

pytest.importorskip("torch")

RECIPE = """
task = {{ kind = "tokens"{data} }}
model = {{ kind = "transformer", context = 16, head_size = 8 }}
optimiser = {{ learning_rate = 0.01, batch = 128, timescale = 0.2, clip = 1.0 }}
schedule = {{ warmup = 0.1 }}
horizon = {{ tokens_per_param = 0.5 }}
evaluation = {{ points = 4, samples = 256 }}

[ladder]
base_width = 16
base_layers = 1
parameterisations = ["completep"]
sizes = [{{ name = "small", width = 16, layers = 1 }}, {{ name = "large", width = 32, layers = 2 }}]
"""


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for k in range(200):
        (folder / f"{k}.txt").write_bytes(rng.choice(np.frombuffer(b"abcd ", np.uint8), 300).tobytes())
    return folder


@pytest.fixture
def recipe(tmp_path, text):
    invoke("data", "prepare", "text", text, "-o", tmp_path / "shards")
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(data=', data = "shards"'))
    return path


def invoke(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_text_becomes_shards_and_shards_a_ladder(recipe, tmp_path):
    invoke("train", recipe, "-o", tmp_path / "ladder")
    assert sorted(p.name for p in (tmp_path / "ladder" / "runs").iterdir()) == [
        "completep-large-seed-0",
        "completep-small-seed-0",
    ]
    assert "the sizes" in invoke("collapse", tmp_path / "ladder" / "runs")
    # The resolved recipe is a recipe.
    invoke("train", tmp_path / "ladder" / "ladder.toml", "-o", tmp_path / "ladder")


def test_preparing_says_what_it_wrote(text, tmp_path):
    output = invoke("data", "prepare", "text", text, "-o", tmp_path / "shards")
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    assert manifest["sha256"] in output and f"{manifest['training']['tokens']:,} training tokens" in output
    assert 'kind = "tokens"' in output


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["parquet", "x"], "no kind of corpus"),
        (["text"], "at least one source"),
        (["stdlib", "x"], "no sources"),
        (["cifar5m", "x.npz", "--tokenizer", "t.json"], "no tokenizer"),
        (["text", "nowhere"], "no such file or folder"),
    ],
)
def test_a_mistake_in_preparing_is_one_message(arguments, words, tmp_path):
    command = [sys.executable, "-m", "onecurve", "data", "prepare", *arguments, "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_family_prints_every_group_and_flags_what_differs(recipe, tmp_path):
    output = invoke("check", "family", recipe)
    assert "they ought to collapse" in output
    for words in ("embedding", "hidden", "readout", "small", "large"):
        assert words in output
    drifting = tmp_path / "drifting.toml"
    drifting.write_text(recipe.read_text().replace("timescale = 0.2", "weight_decay = 0.1"))
    assert "fails: timescale" in invoke("check", "family", drifting, code=1)


def test_commands_name_one_job_each_and_are_the_processes_to_start(recipe, tmp_path):
    lines = invoke("train", recipe, "-o", tmp_path / "out", "--print-commands", 4, "--parallel", "fsdp").splitlines()
    assert [line.split("--job ")[1] for line in lines] == [
        "completep-small-seed-0 --parallel fsdp",
        "completep-large-seed-0 --parallel fsdp",
    ]
    assert all(line.startswith("torchrun --standalone --nproc-per-node 4 -m onecurve train ") for line in lines)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--job", "medium"], "the recipe's jobs are completep-small-seed-0"),
        (["--parallel", "zero"], "accepted: ddp, fsdp"),
        (["--on", "slurm"], "accepted: ray"),
    ],
)
def test_a_mistake_in_the_flags_is_one_message(recipe, flags, words):
    done = CliRunner().invoke(app, ["train", str(recipe), *flags])
    assert words in str(done.exception)


def test_repeated_data_are_warned_of_before_training(recipe, tmp_path):
    recipe.write_text(recipe.read_text().replace("tokens_per_param = 0.5", "tokens_per_param = 12.0"))
    command = [sys.executable, "-m", "onecurve", "train", str(recipe), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Warning: completep-large-seed-0: trains on" in done.stderr and "of its corpus" in done.stderr


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)])
def test_a_scheduler_that_stops_the_ladder_gets_its_exit_code(recipe, tmp_path, number, code):
    recipe.write_text(recipe.read_text().replace("tokens_per_param = 0.5", "tokens_per_param = 60.0"))
    command = [sys.executable, "-m", "onecurve", "train", str(recipe), "-o", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    file = tmp_path / "out" / "runs" / "completep-large-seed-0" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, number)
    assert process.wait(timeout=60) == code
    assert list((tmp_path / "out" / "checkpoints").glob("*/step-*"))


@pytest.mark.slow
def test_coordinates_pass_with_the_parameterisation_and_fail_without(tmp_path, text):
    recipe = tmp_path / "recipe.toml"
    invoke("data", "prepare", "text", text, "-o", tmp_path / "shards")
    recipe.write_text(RECIPE.format(data=', data = "shards"').replace("learning_rate = 0.01", "learning_rate = 0.02"))
    output = invoke("check", "coordinates", recipe, "--seeds", 2, "--figure", tmp_path / "c.png")
    assert "Passes" in output and (tmp_path / "c.png").stat().st_size > 10_000
    recipe.write_text(recipe.read_text().replace('"completep"', '"standard"'))
    output = invoke("check", "coordinates", recipe, "--seeds", 2, code=1)
    assert "Fails" in output and "against width" in output and "residual stream against depth" in output


def test_transfer_sweeps_a_recipe_and_reads_the_sweep_again(recipe, tmp_path):
    flags = ("--rates", 4, "-o", tmp_path / "sweep", "--figure", tmp_path / "t.png")
    output = invoke("check", "transfer", recipe, *flags)
    assert "best rate" in output and (tmp_path / "t.png").stat().st_size > 10_000
    assert len(list((tmp_path / "sweep" / "runs").iterdir())) == 8
    again = invoke("check", "transfer", tmp_path / "sweep" / "runs")
    assert again.strip().splitlines()[-1] == output.strip().splitlines()[-1]
