"""Real torchrun processes on gloo, and a real local Ray cluster: the same curves as one process."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from onecurve.plan.recipe import dump_recipe, jobs
from onecurve.train.ladder import train_ladder

from .conftest import language_recipe

pytestmark = pytest.mark.slow
STEPS = 200


@pytest.fixture
def recipe_file(corpus, tmp_path):
    sizes = [{"name": "small", "width": 16, "layers": 2, "steps": STEPS}]
    path = tmp_path / "recipe.toml"
    path.write_text(dump_recipe(language_recipe(corpus, **{"ladder.sizes": sizes, "optimiser.clip": 0.05})))
    return path


def command(recipe_file, out, processes, parallel):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    start = torchrun if processes > 1 else [sys.executable]
    flags = ["--parallel", parallel] if processes > 1 else []
    return [*start, "-m", "onecurve", "train", str(recipe_file), "-o", str(out), "--job", JOB, *flags]


JOB = "completep-small-seed-0"
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


def trained(recipe_file, out, processes, parallel="ddp"):
    done = subprocess.run(
        command(recipe_file, out, processes, parallel), env=ONE_THREAD, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def curve(out, name="train_loss"):
    lines = (out / "runs" / JOB / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["step"] for r in records] == list(range(1, STEPS + 1))
    return np.array([r[name] for r in records if name in r])


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_give_the_curve_of_one(recipe_file, tmp_path, parallel):
    one = trained(recipe_file, tmp_path / "one", 1)
    two = trained(recipe_file, tmp_path / "two", 2, parallel)
    for name in ("train_loss", "test_loss"):
        np.testing.assert_allclose(curve(two, name), curve(one, name), rtol=1e-5)
    np.testing.assert_allclose(curve(two, "update_norm"), curve(one, "update_norm"), rtol=5e-3)


def stopped_after(recipe_file, out, processes, parallel, step):
    process = subprocess.Popen(command(recipe_file, out, processes, parallel), env=ONE_THREAD)
    file = out / "runs" / JOB / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < step:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    return process.returncode


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_goes_from_two_processes_to_one_and_back(recipe_file, tmp_path, parallel):
    out = tmp_path / "changing"
    stopped_after(recipe_file, out, 2, parallel, 40)
    assert stopped_after(recipe_file, out, 1, parallel, 90) == 75
    trained(recipe_file, out, 2, parallel)
    events = [json.loads(line) for line in (out / "runs" / JOB / "events.jsonl").read_text().splitlines()]
    assert [(e["event"], e.get("processes")) for e in events] == [
        ("start", 2),
        ("stop", None),
        ("resume", 1),
        ("stop", None),
        ("resume", 2),
        ("finish", None),
    ]
    one = trained(recipe_file, tmp_path / "one", 1)
    np.testing.assert_allclose(curve(out), curve(one), rtol=1e-5)


def test_a_mistake_is_one_message_however_many_processes(recipe_file, tmp_path):
    recipe_file.write_text(recipe_file.read_text().replace("batch = 128", "batch = 144"))
    done = subprocess.run(
        command(recipe_file, tmp_path / "out", 2, "ddp"), env=ONE_THREAD, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stderr.count("9 sequences of 16, which 2 processes do not divide") == 1


def test_a_ladder_on_ray_writes_the_bytes_of_one_trained_here(corpus, tmp_path):
    pytest.importorskip("ray")
    recipe = language_recipe(corpus, **{"ladder.seeds": 2})
    file = tmp_path / "recipe.toml"
    file.write_text(dump_recipe(recipe))
    train_ladder(recipe, tmp_path / "here", lambda state: None, workers=1)
    command = [sys.executable, "-m", "onecurve", "train", str(file), "-o", str(tmp_path / "ray"), "--on", "ray"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    for job in jobs(recipe):
        a, b = ((tmp_path / d / "runs" / job.name / "metrics.jsonl").read_bytes() for d in ("here", "ray"))
        assert a == b
