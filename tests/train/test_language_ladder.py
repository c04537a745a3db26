"""Ladders of transformers through the loop: what is logged, exact resume, trouble, other recipes."""

import json
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from onecurve import Ladder, OnecurveError, collapse, read
from onecurve.plan.recipe import dump_recipe, jobs
from onecurve.train import checkpoint
from onecurve.train.devices import World
from onecurve.train.ladder import train_ladder, warnings_of
from onecurve.train.loop import Failed, alone, evaluation_steps, run_job
from onecurve.train.program import LanguageModel
from onecurve.train.tokens import TokenStream

from .conftest import ignore, language_recipe, metrics, never


def records(out, name):
    return [json.loads(line) for line in (out / "runs" / name / "metrics.jsonl").read_text().splitlines()]


def events(out, name):
    return [json.loads(line) for line in (out / "runs" / name / "events.jsonl").read_text().splitlines()]


def weights(job, corpus, out):
    """Every tensor of a job's last checkpoint, as bytes."""
    program = LanguageModel(job, TokenStream(corpus, 16))
    folder = out / "checkpoints" / job.name
    checkpoint.load(folder, checkpoint.latest(folder), program.state(), World())
    state = program.state()
    state["counts"] = {"": state["counts"]}
    return {(part, name): t.numpy().tobytes() for part, tensors in state.items() for name, t in tensors.items()}


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_step_is_logged_and_evaluations_where_they_are_due(corpus, tmp_path):
    recipe = language_recipe(corpus)
    train_ladder(recipe, tmp_path, ignore, workers=1)
    small = records(tmp_path, "completep-small-seed-0")
    assert [r["step"] for r in small] == list(range(1, 25))
    assert [r["tokens"] for r in small] == [128.0 * k for k in range(1, 25)]
    assert [r["step"] for r in small if "test_loss" in r] == evaluation_steps(24, 6)
    assert all({"train_loss", "learning_rate", "grad_norm", "update_norm", "skipped_steps"} <= r.keys() for r in small)
    assert small[0]["train_loss"] == pytest.approx(np.log(128))  # zero outputs: the uniform prediction
    assert small[-1]["test_loss"] < np.log(128) - 0.3
    large = jobs(recipe)[1].members[0].config
    expected = large.learning_rate * large.schedule(np.arange(12) / 12)
    np.testing.assert_allclose([r["learning_rate"] for r in records(tmp_path, large.name)], expected)


def test_a_ladder_reads_back_as_one_family_and_names_its_corpus(corpus, tmp_path):
    train_ladder(language_recipe(corpus, **{"ladder.seeds": 2}), tmp_path, ignore, workers=1)
    runs = read([tmp_path / "runs"]).runs
    ladder = Ladder(runs)
    assert [len(r) for _, r in ladder.rungs()] == [2, 2]
    assert {r.config.settings["data"] for r in runs} == {corpus.identity}
    assert collapse(ladder).name is not None


def test_the_resolved_recipe_beside_the_runs_trains_the_same(corpus, tmp_path):
    from onecurve.plan.recipe import load_recipe

    train_ladder(language_recipe(corpus), tmp_path / "a", ignore, workers=1)
    train_ladder(load_recipe(tmp_path / "a" / "ladder.toml"), tmp_path / "b", ignore, workers=1)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")


def test_one_process_and_two_write_the_same_bytes(corpus, tmp_path):
    recipe = language_recipe(corpus)
    train_ladder(recipe, tmp_path / "one", ignore, workers=1)
    train_ladder(recipe, tmp_path / "two", ignore, workers=2)
    assert metrics(tmp_path / "one") == metrics(tmp_path / "two")


@pytest.mark.parametrize("stop_at", [1, 7, 23])
def test_a_stopped_run_goes_on_to_the_same_bytes(corpus, tmp_path, monkeypatch, one_thread, stop_at):
    monkeypatch.setattr("onecurve.train.loop.TELL_EVERY", 0.0)
    job = jobs(language_recipe(corpus))[0]
    assert run_job(job, tmp_path / "whole", ignore, never)
    calls = iter(range(10_000))
    assert not run_job(job, tmp_path / "cut", ignore, lambda: next(calls) + 1 >= stop_at)
    assert run_job(job, tmp_path / "cut", ignore, never)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert weights(job, corpus, tmp_path / "cut") == weights(job, corpus, tmp_path / "whole")
    assert [e["event"] for e in events(tmp_path / "cut", job.name)] == ["start", "stop", "resume", "finish"]


@pytest.mark.slow
def test_a_compiled_run_goes_on_to_the_same_bytes(corpus, tmp_path):
    file = tmp_path / "recipe.toml"
    recipe = language_recipe(corpus)
    file.write_text(dump_recipe(recipe))
    job = jobs(recipe)[0]
    code = COMMAND.format(save_every=0.0).replace(
        "lambda: False)",
        "lambda: sys.argv[3] == 'stop', make=partial(make_program, machine=Machine(compile=True)))",
    )
    code = "from functools import partial\nfrom onecurve.train.program import Machine, make_program\n" + code
    for out, how in (("whole", "go"), ("cut", "stop"), ("cut", "stop"), ("cut", "go")):
        command = [sys.executable, "-c", code, str(file), str(tmp_path / out), how]
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert weights(job, corpus, tmp_path / "cut") == weights(job, corpus, tmp_path / "whole")
    assert [e["event"] for e in events(tmp_path / "cut", job.name)] == [
        *("start", "stop", "resume", "stop", "resume", "finish")
    ]


def test_skipped_steps_survive_a_resume(corpus, tmp_path, monkeypatch, one_thread):
    monkeypatch.setattr("onecurve.train.loop.TELL_EVERY", 0.0)

    def hook(step, gradients):
        if step in (3, 4, 9):
            gradients[0].fill_(float("nan"))

    def make(job, stream, world):
        return LanguageModel(job, stream, world, hook=hook)

    job = jobs(language_recipe(corpus))[0]
    run_job(job, tmp_path / "whole", ignore, never, make=make)
    calls = iter(range(10_000))
    run_job(job, tmp_path / "cut", ignore, lambda: next(calls) >= 5, make=make)
    run_job(job, tmp_path / "cut", ignore, never, make=make)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert records(tmp_path / "cut", job.name)[-1]["skipped_steps"] == 3


def nan_at(call, value=float("nan")):
    """A loss that is no number from a call on."""
    calls = iter(range(10_000))

    def loss(logits, targets):
        total = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        return total * value if next(calls) >= call else total

    return loss


def test_a_loss_that_is_no_number_stops_the_run_with_its_state_and_not_the_others(corpus, tmp_path):
    recipe = language_recipe(corpus)
    large, small = jobs(recipe)[1], jobs(recipe)[0]

    def make(job, stream, world):
        bad = {"loss": nan_at(5)} if job.name == large.name else {}
        return LanguageModel(job, stream, world, **bad)

    with pytest.raises(Failed, match=r"completep-large-seed-0: the training loss became nan at step \d"):
        train_ladder(recipe, tmp_path, ignore, workers=1, make=make)
    assert events(tmp_path, large.name)[-1]["event"] == "failed"
    assert checkpoint.latest(tmp_path / "checkpoints" / large.name) == records(tmp_path, large.name)[-1]["step"] - 1
    assert events(tmp_path, small.name)[-1]["event"] == "finish"


def test_a_checkpoint_of_another_recipe_is_refused_and_the_difference_named(corpus, tmp_path):
    run_job(jobs(language_recipe(corpus))[0], tmp_path, ignore, never)
    other = jobs(language_recipe(corpus, **{"optimiser.timescale": 0.3}))[0]
    with pytest.raises(OnecurveError, match=r"another recipe \(size.weight_decay was .*now"):
        run_job(other, tmp_path, ignore, never)


def test_another_size_added_to_the_recipe_leaves_the_finished_ones_finished(corpus, tmp_path):
    recipe = language_recipe(corpus)
    train_ladder(recipe, tmp_path, ignore, workers=1)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*.jsonl")}
    sizes = [s.model_dump(exclude_none=True) for s in recipe.ladder.sizes] + [{"width": 24, "layers": 2, "steps": 4}]
    train_ladder(language_recipe(corpus, **{"ladder.sizes": sizes}), tmp_path, ignore, workers=1)
    assert before.items() <= {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*.jsonl")}.items()
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_no_more_than_the_last_checkpoints_are_kept_and_half_written_ones_go(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("onecurve.train.loop.TELL_EVERY", 0.0)
    monkeypatch.setattr("onecurve.train.loop.SAVE_EVERY", 0.0)
    monkeypatch.setattr("onecurve.train.loop.SAVE_SHARE", 1e9)
    job = jobs(language_recipe(corpus))[0]
    folder = tmp_path / "checkpoints" / job.name
    (folder / "step-00000024.part").mkdir(parents=True)
    run_job(job, tmp_path, ignore, never)
    assert sorted(p.name for p in folder.iterdir()) == ["step-00000023", "step-00000024"]


@pytest.mark.parametrize("damage", ["cut", "missing", "noise"])
def test_a_damaged_checkpoint_is_one_message(corpus, tmp_path, damage):
    job = jobs(language_recipe(corpus))[0]
    run_job(job, tmp_path, ignore, never)
    (data,) = (tmp_path / "checkpoints" / job.name).glob("step-*/*.distcp")
    if damage == "missing":
        data.unlink()
    elif damage == "cut":
        data.write_bytes(data.read_bytes()[:1000])
    else:
        (data.parent / ".metadata").write_bytes(b"not a pickle")
    with pytest.raises(OnecurveError, match="cannot be read"):
        weights(job, corpus, tmp_path)


def test_a_checkpoint_that_would_run_code_is_refused(corpus, tmp_path):
    import os
    import pickle

    class Bad:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    job = jobs(language_recipe(corpus))[0]
    run_job(job, tmp_path, ignore, never)
    (index,) = (tmp_path / "checkpoints" / job.name).glob("step-*/.metadata")
    index.write_bytes(pickle.dumps(Bad()))
    with pytest.raises(OnecurveError, match=r"names posix\.system"):
        weights(job, corpus, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_two_processes_never_train_one_job_at_once(corpus, tmp_path):
    job = jobs(language_recipe(corpus))[0]
    with alone(tmp_path, job), pytest.raises(OnecurveError, match="another process is training completep-small-seed-0"):
        run_job(job, tmp_path, ignore, never)
    assert run_job(job, tmp_path, ignore, never)


def test_repeated_data_are_told_beforehand(corpus):
    assert warnings_of(language_recipe(corpus)) == []
    sizes = [{"name": "small", "width": 16, "layers": 2, "steps": 5000}]
    (words,) = warnings_of(language_recipe(corpus, **{"ladder.sizes": sizes}))
    windows = (len(corpus.training) - 1) // 16
    assert f"{5000 * 128 / (windows * 16):.2f} times" in words


COMMAND = """
import sys
from pathlib import Path
import torch
from onecurve.plan.recipe import jobs, load_recipe
from onecurve.train import loop
loop.TELL_EVERY, loop.SAVE_EVERY, loop.SAVE_SHARE = 0.0, {save_every}, 1e9
torch.set_num_threads(1)
job = jobs(load_recipe(Path(sys.argv[1])))[0]
print("ready", flush=True)
loop.run_job(job, Path(sys.argv[2]), lambda step: print(step, flush=True), lambda: False)
"""


def arguments(recipe_file, out, save_every=0.02):
    return [sys.executable, "-c", COMMAND.format(save_every=save_every), str(recipe_file), str(out)]


def to_the_end(recipe_file, out, save_every=0.02):
    subprocess.run(arguments(recipe_file, out, save_every), check=True, capture_output=True, timeout=120)


def test_a_full_disk_stops_cleanly_and_the_run_can_go_on(corpus, tmp_path):
    recipe = language_recipe(corpus)
    file = tmp_path / "recipe.toml"
    file.write_text(dump_recipe(recipe))
    train_ladder(recipe, tmp_path / "whole", ignore, workers=2)

    def small_files():
        # Writes beyond this size fail as they do on a full disk; the signal would kill, the error is what is tested.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))

    command = [sys.executable, "-m", "onecurve", "train", str(file), "-o", str(tmp_path / "cut")]
    process = subprocess.run(command, preexec_fn=small_files, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 2 and "Traceback" not in process.stderr
    assert "free some space and run again" in process.stderr
    assert not list((tmp_path / "cut").rglob("*.part"))
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_fifty_kills_at_random_moments_leave_fifty_identical_runs(corpus, tmp_path):
    """SIGKILL at a time drawn uniformly over the run's wall time, then the same command to the end."""
    sizes = [{"name": "small", "width": 16, "layers": 2, "steps": 60}]
    recipe = language_recipe(corpus, **{"ladder.sizes": sizes})
    file = tmp_path / "recipe.toml"
    file.write_text(dump_recipe(recipe))
    with subprocess.Popen(arguments(file, tmp_path / "whole"), stdout=subprocess.PIPE) as whole:
        assert whole.stdout.readline() == b"ready\n"
        began = time.monotonic()
        whole.communicate()
        length = time.monotonic() - began
    job = jobs(recipe)[0]
    expected = metrics(tmp_path / "whole"), weights(job, corpus, tmp_path / "whole")
    rng = np.random.default_rng(0)
    for k in range(50):
        out = tmp_path / f"cut-{k}"
        with subprocess.Popen(arguments(file, out), stdout=subprocess.PIPE) as process:
            process.stdout.readline()  # ready: from here on the run is under way
            time.sleep(rng.uniform(0, length))
            process.kill()
        to_the_end(file, out)
        assert (metrics(out), weights(job, corpus, out)) == expected, f"kill {k}"


POINTS = {
    "the checkpoint's tensors are half written": ("torch.distributed.checkpoint.FileSystemWriter.write_data", 3),
    "the checkpoint's index is not yet written": ("torch.distributed.checkpoint.FileSystemWriter.finish", 3),
    "the checkpoint is whole but not yet renamed": ("pathlib.Path.rename", 3),
    "an older checkpoint is being removed": ("shutil.rmtree", 9),
    "the identity is being written": ("onecurve.train.checkpoint.write_atomic", 3),
    "metrics are being flushed": ("onecurve.store.RunWriter.flush", 3),
    "a line of metrics is half written": ("onecurve.store.RunWriter._append", 31),
    "timing is behind metrics": ("onecurve.store.RunWriter._append", 32),
    "run.json is being written": ("onecurve.store.write_atomic", 1),
    "the first checkpoint is being written": ("torch.distributed.checkpoint.FileSystemWriter.finish", 1),
}
KILLED = """
import importlib, os, signal
def arm(path, count):
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        break
    for name in parts[cut:-1]:
        owner = getattr(owner, name)
    inner, calls = getattr(owner, parts[-1]), iter(range(1, 10_000))
    def outer(*args, **kwargs):
        if next(calls) == count:
            if parts[-1] == "_append":
                writer, name, record = args
                with (writer.path / name).open("ab") as file:
                    file.write(b'{{"step": 1')
            if parts[-1] == "write_data":
                (args[0].path / "__0_0.distcp").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*args, **kwargs)
    setattr(owner, parts[-1], outer)
import onecurve.train.loop
arm({path!r}, {count})
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", POINTS)
def test_a_kill_inside_a_write_is_as_good_as_none(corpus, tmp_path, where):
    recipe = language_recipe(corpus)
    file = tmp_path / "recipe.toml"
    file.write_text(dump_recipe(recipe))
    to_the_end(file, tmp_path / "whole", save_every=0.0)
    path, count = POINTS[where]
    code = KILLED.format(path=path, count=count) + COMMAND.format(save_every=0.0)
    killed = subprocess.run(
        [sys.executable, "-c", code, str(file), str(tmp_path / "cut")], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    to_the_end(file, tmp_path / "cut", save_every=0.0)
    job = jobs(recipe)[0]
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert weights(job, corpus, tmp_path / "cut") == weights(job, corpus, tmp_path / "whole")
    assert not list((tmp_path / "cut").rglob("*.part"))


@pytest.mark.slow
def test_workers_of_a_ladder_that_was_killed_stop_and_the_same_command_goes_on(corpus, tmp_path):
    sizes = [{"name": n, "width": 16, "layers": 2, "steps": 400} for n in ("one", "two")]
    recipe = language_recipe(corpus, **{"ladder.sizes": sizes})
    file = tmp_path / "recipe.toml"
    file.write_text(dump_recipe(recipe))

    def command(out):
        return [sys.executable, "-m", "onecurve", "train", str(file), "-o", str(tmp_path / out)]

    subprocess.run(command("whole"), check=True, capture_output=True, timeout=240)
    process = subprocess.Popen(command("cut"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    logs = [tmp_path / "cut" / "runs" / f"completep-{n}-seed-0" / "metrics.jsonl" for n in ("one", "two")]
    deadline = time.monotonic() + 120
    while not all(log.exists() for log in logs) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    subprocess.run(command("cut"), check=True, capture_output=True, timeout=240)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
