import json
import signal

import pytest
import torch

from onecurve import Ladder, OnecurveError, read
from onecurve.plan.recipe import jobs
from onecurve.train import checkpoint
from onecurve.train.devices import World
from onecurve.train.ladder import Stopped, share_done, train_ladder
from onecurve.train.loop import evaluation_steps, run_job
from onecurve.train.program import BatchedMLPs

from .conftest import ignore, metrics, never


def weights(job, out):
    """Every tensor of a job's last checkpoint, as bytes."""
    program = BatchedMLPs(job)
    checkpoint.load(out / "checkpoints" / job.name, job.steps, program.state(), World())
    state = program.state()
    return {(part, name): t.numpy().tobytes() for part, tensors in state.items() for name, t in tensors.items()}


def test_a_trained_ladder_reads_back_as_one_family_a_parameterisation(recipe, tmp_path):
    train_ladder(recipe, tmp_path, ignore, workers=1)
    runs = read([tmp_path / "runs"]).runs
    assert len(runs) == 8
    assert {r.config.parameterisation for r in runs} == {"mup", "standard"}
    ladder = Ladder([r for r in runs if r.config.parameterisation == "mup"])
    assert ladder.sizes == [8 * 2 + 4 * 64 + 8, 12 * 2 + 4 * 144 + 12]
    sampled = ladder.sample()
    assert sampled.kind == "held-out" and sampled.loss_name == "test_loss" and not sampled.unfinished
    assert (sampled.loss[:, -1] < sampled.loss[:, 0]).all()


def test_the_largest_model_learns_at_the_scaled_rate(recipe):
    large = jobs(recipe)[1]
    mup = next(m for m in large.members if m.parameterisation == "mup").config
    standard = next(m for m in large.members if m.parameterisation == "standard").config
    assert mup.learning_rate == pytest.approx(0.01 * 8 / 12)
    assert mup.weight_decay == pytest.approx(0.1 * 12 / 8)
    assert standard.learning_rate == 0.01 and standard.weight_decay == 0.1
    assert mup.base_learning_rate == standard.base_learning_rate == 0.01


def test_at_the_base_width_both_parameterisations_are_the_same_model(recipe, tmp_path):
    run_job(jobs(recipe)[0], tmp_path, ignore, never)
    lines = metrics(tmp_path)
    assert lines["mup-width-8-seed-0"] == lines["standard-width-8-seed-0"]
    assert lines["mup-width-8-seed-0"] != lines["mup-width-8-seed-1"]
    assert lines["mup-width-8-seed-1"] != lines["mup-width-8-seed-1-data-0"]


@pytest.mark.parametrize("stop_at", [1, 7, 60])
def test_a_stopped_run_goes_on_to_the_same_bytes(recipe, tmp_path, monkeypatch, stop_at):
    monkeypatch.setattr("onecurve.train.loop.TELL_EVERY", 0.0)
    job = jobs(recipe)[0]
    assert run_job(job, tmp_path / "whole", ignore, never)
    calls = iter(range(10_000))
    assert not run_job(job, tmp_path / "cut", ignore, lambda: next(calls) + 1 >= stop_at)
    assert run_job(job, tmp_path / "cut", ignore, never)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert weights(job, tmp_path / "cut") == weights(job, tmp_path / "whole")


def test_points_beyond_the_checkpoint_are_cut_and_the_cut_is_logged(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("onecurve.train.loop.TELL_EVERY", 0.0)
    job = jobs(recipe)[0]
    run_job(job, tmp_path / "whole", ignore, never)
    calls = iter(range(10_000))
    run_job(job, tmp_path / "cut", ignore, lambda: next(calls) >= 20)
    run = tmp_path / "cut" / "runs" / "mup-width-8-seed-0"
    # A process that was killed had logged more than its checkpoint knows, the last line torn.
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "samples": 1584.0, "test_loss": 0.1, "train_loss": 0.1}\n{"step": 100, "sam')
    run_job(job, tmp_path / "cut", ignore, never)
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events] == ["start", "stop", "resume", "finish"]
    assert events[2]["points_cut"] == 2


def test_a_finished_rung_is_not_trained_again(recipe, tmp_path):
    job = jobs(recipe)[0]
    run_job(job, tmp_path, ignore, never)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.jsonl")}
    assert run_job(job, tmp_path, ignore, never)
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.jsonl")}


def test_a_checkpoint_of_another_recipe_is_refused(recipe, tmp_path):
    run_job(jobs(recipe)[0], tmp_path, ignore, never)
    other = recipe.model_copy(update={"schedule": recipe.schedule.model_copy(update={"warmup": 0.2})})
    with pytest.raises(OnecurveError, match="belongs to another recipe"):
        run_job(jobs(other)[0], tmp_path, ignore, never)


def test_two_processes_write_what_one_writes(recipe, tmp_path):
    train_ladder(recipe, tmp_path / "one", ignore, workers=1)
    train_ladder(recipe, tmp_path / "two", ignore, workers=2)
    # Two processes use one thread each; a thread more or less may change the order of a sum.
    one, two = (Ladder(r for r in read([tmp_path / d / "runs"]).runs if "mup" in r.config.name) for d in ("one", "two"))
    assert abs(one.sample().loss / two.sample().loss - 1).max() < 1e-4


def test_a_wish_to_stop_is_raised_after_saving(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("onecurve.train.loop.TELL_EVERY", 0.0)
    wishes = iter([signal.SIGINT])

    def interrupt(state: object) -> None:
        for wish in wishes:
            signal.raise_signal(wish)

    with pytest.raises(Stopped):
        train_ladder(recipe, tmp_path, interrupt, workers=1)
    assert list((tmp_path / "checkpoints").glob("*/step-*"))
    train_ladder(recipe, tmp_path, ignore, workers=1)


def test_progress_counts_rungs_by_their_cost(recipe):
    small, large = jobs(recipe)
    assert share_done([(small, 0), (large, 0)]) == 0.0
    assert share_done([(small, small.steps), (large, large.steps)]) == 1.0
    assert share_done([(small, small.steps), (large, 0)]) < 0.5


def test_evaluations_are_half_linear_half_geometric_and_end_at_the_end():
    steps = evaluation_steps(10_000, 40)
    assert steps[-1] == 10_000 and steps == sorted(set(steps))
    assert {500 * k for k in range(1, 21)} <= set(steps)
    assert steps[0] == 100
    assert evaluation_steps(3, 64) == [1, 2, 3]


def test_a_model_whose_loss_is_nan_leaves_its_neighbours_alone(recipe, tmp_path):
    job = jobs(recipe)[0]
    sick, well = (BatchedMLPs(job) for _ in range(2))
    with torch.no_grad():
        sick.weights["readout"][0] = float("nan")
    for step in range(3):
        a, b = sick.update(step, 1.0), well.update(step, 1.0)
    assert torch.isnan(a["train_loss"][0])
    torch.testing.assert_close(a["train_loss"][1:], b["train_loss"][1:], rtol=0, atol=0)
    torch.testing.assert_close(sick.evaluate()["test_loss"][1:], well.evaluate()["test_loss"][1:], rtol=0, atol=0)
