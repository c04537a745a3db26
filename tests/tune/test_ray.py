"""The scheduler: asked as Ray asks it, and in a real sweep on a local Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from onecurve import OnecurveError
from onecurve.tune.ray import CurveScheduler

from .conftest import sweep_runs

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "tune"
RUNS = sweep_runs(noise=0.01)


def settings(config):
    c = RUNS[config["k"]].config
    kept = ("n_params", "horizon", "batch_tokens", "learning_rate", "base_learning_rate", "weight_decay", "schedule")
    return {name: getattr(c, name) for name in kept}


class Controller:
    """What the scheduler asks of Ray: the list of trials, each with a folder in which its results are."""

    def __init__(self, folder: Path) -> None:
        self.trials = []
        for k in range(len(RUNS)):
            path = folder / str(k)
            path.mkdir()
            self.trials.append(
                SimpleNamespace(trial_id=f"t{k}", config={"k": k}, status="RUNNING", local_path=str(path))
            )

    def get_trials(self):
        return self.trials


def told(scheduler, controller, first: int = 10, until: int = 200, every: int = 10) -> dict[int, int]:
    """Trials in step; the step at which each was stopped, or 200."""
    out = {k: 200 for k, trial in enumerate(controller.trials) if trial.status == "RUNNING"}
    for step in range(first, until + 1, every):
        for k, trial in enumerate(controller.trials):
            if trial.status != "RUNNING":
                continue
            curve = RUNS[k].curves["test_loss"]
            result = {"loss": float(curve.loss[step - 1]), "tokens": float(curve.x[step - 1])}
            with (Path(trial.local_path) / "result.json").open("a") as file:
                file.write(json.dumps(result) + "\n")
            if scheduler.on_trial_result(controller, trial, result) == "STOP":
                trial.status, out[k] = "TERMINATED", step
    return out


def test_losers_are_stopped_and_the_winner_ends(tmp_path):
    out = told(CurveScheduler(sweep_runs(1e5, noise=0.01), settings), Controller(tmp_path))
    assert out[3] == 200 and sum(step < 200 for step in out.values()) >= 3


def test_a_restored_experiment_goes_on_as_it_would_have(tmp_path):
    small = sweep_runs(1e5, noise=0.01)
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = told(CurveScheduler(small, settings), Controller(tmp_path / "whole"))
    controller = Controller(tmp_path / "cut")
    before = told(CurveScheduler(small, settings), controller, until=60)
    first = next(iter(controller.trials))
    with (Path(first.local_path) / "result.json").open("a") as file:
        file.write('{"loss": 0.0')  # a torn last line
    after = told(CurveScheduler(small, settings), controller, first=70)
    assert {k: min(before[k], after.get(k, 200)) for k in before} == whole


def test_failed_trials_are_left_out_and_diverged_ones_stopped(tmp_path):
    scheduler, controller = CurveScheduler(sweep_runs(1e5, noise=0.01), settings), Controller(tmp_path)
    told(scheduler, controller, until=50)
    controller.trials[0].status = "ERROR"
    nan = {"loss": float("nan"), "tokens": float(RUNS[1].curves["test_loss"].x[59])}
    assert scheduler.on_trial_result(controller, controller.trials[1], nan) == "STOP"
    good = {"loss": float(RUNS[3].curves["test_loss"].loss[59]), "tokens": nan["tokens"]}
    assert scheduler.on_trial_result(controller, controller.trials[3], good) == "CONTINUE"


def test_what_is_refused(tmp_path):
    scheduler, controller = CurveScheduler(sweep_runs(1e5), settings), Controller(tmp_path)
    with pytest.raises(OnecurveError, match="trial t0 reports no 'tokens'; it reports loss, step"):
        scheduler.on_trial_result(controller, controller.trials[0], {"loss": 1.0, "step": 3})
    with pytest.raises(OnecurveError, match="mode is 'max'"):
        scheduler.set_search_properties("loss", "max")
    assert scheduler.set_search_properties("val", "min") and scheduler.key == "val"
    assert "before x = " in scheduler.debug_string()


@pytest.mark.slow
def test_a_real_sweep_on_a_local_ray(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "with_ray.py", tmp_path / "ray", "24", "16"],
        capture_output=True, text=True, timeout=500, check=True,
    )  # fmt: skip
    assert "best: timescale" in done.stdout and "8 TERMINATED" in done.stdout
