"""The pruner in real studies: in memory on curves that are known, and trained by two processes on one storage."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest

from onecurve import OnecurveError
from onecurve.tune.optuna import CurvePruner

from .conftest import sweep_runs

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "tune"
RUNS = dict(enumerate(sweep_runs(noise=0.01)))
optuna.logging.set_verbosity(optuna.logging.ERROR)


def settings(parameters):
    c = RUNS[parameters["k"]].config
    kept = ("n_params", "horizon", "batch_tokens", "learning_rate", "base_learning_rate", "weight_decay", "schedule")
    return {name: getattr(c, name) for name in kept}


def study_of(storage=None, settings=settings, **options) -> optuna.Study:
    return optuna.create_study(
        study_name="s", storage=storage, load_if_exists=True,
        pruner=CurvePruner(sweep_runs(1e5, noise=0.01), settings, **options),
    )  # fmt: skip


def started(study: optuna.Study) -> dict[int, optuna.Trial]:
    out = {}
    for k in RUNS:
        study.enqueue_trial({"k": k})
        trial = study.ask()
        out[trial.suggest_categorical("k", list(RUNS))] = trial
    return out


def side_by_side(study: optuna.Study, every: dict[int, int] | None = None, until: int = 200) -> dict[int, int]:
    """All trials of a sweep in step, each reporting at its own spacing; the step at which each was pruned, or 200."""
    trials = started(study)
    out = dict.fromkeys(trials, 200)
    for step in range(10, until + 1, 10):
        for k, trial in trials.items():
            if out[k] < 200 or step % (every or {}).get(k, 10):
                continue
            curve = RUNS[k].curves["test_loss"]
            trial.report(float(curve.loss[step - 1]), int(curve.x[step - 1]))
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                out[k] = step
            elif step == 200:
                study.tell(trial, float(curve.loss[-1]))
    return out


def test_losers_are_pruned_and_the_winner_ends():
    study = study_of()
    ended = side_by_side(study)
    assert ended[3] == 200 and study.best_params["k"] == 3 and sum(step < 200 for step in ended.values()) >= 3


def test_every_decision_is_logged_with_its_reason(caplog):
    caplog.set_level(logging.INFO, logger="onecurve.tune")
    ended = side_by_side(study_of())
    text = [record.message for record in caplog.records if record.levelno == logging.INFO]
    reports = sum(step // 10 for step in ended.values())
    assert len(text) == reports
    assert any("continue (points after the warmup: 0" in line for line in text)
    assert any(": continue (" in line and "chance of being best" in line for line in text)
    assert sum(": stop (" in line for line in text) == sum(step < 200 for step in ended.values())


def test_reporting_grids_may_differ():
    ended = side_by_side(study_of(), every={3: 20, 5: 50, 7: 20})
    assert ended[3] == 200 and ended[7] < 200


def test_the_same_is_said_after_a_resume(tmp_path):
    storage = f"sqlite:///{tmp_path / 'a.db'}"
    study = study_of(storage)
    side_by_side(study, until=80)
    (trial,) = (t for t in study.get_trials() if t.params == {"k": 6})
    before = study.pruner.prune(study, trial)
    again = study_of(storage)
    (same,) = (t for t in again.get_trials() if t.number == trial.number)
    assert again.pruner.prune(again, same) == before


def test_a_diverged_trial_is_pruned_and_touches_no_other():
    def reasons(diverged: bool) -> list[str]:
        study = study_of()
        trials = started(study)
        for k, trial in trials.items():
            curve = RUNS[k].curves["test_loss"]
            for step in range(10, 101, 10):
                bad = diverged and k == 0 and step == 100
                trial.report(math.nan if bad else float(curve.loss[step - 1]), int(curve.x[step - 1]))
        said = study.pruner.rule
        kept = study.get_trials(deepcopy=False)
        if diverged:
            assert trials[0].should_prune()
        else:
            study.tell(trials[0], state=optuna.trial.TrialState.FAIL)
        from onecurve.tune.optuna import _as_trial, _name

        running = [t for t in study.get_trials() if t.state != optuna.trial.TrialState.FAIL]
        assert len(kept) == len(RUNS)
        return [said.ask(_name(t), [_as_trial(o, False) for o in running]).why for t in running if t.params["k"]]

    assert reasons(True) == reasons(False)


def test_step_0_repeated_steps_and_first_trials():
    study = study_of()
    trial = study.ask()
    trial.suggest_categorical("k", list(RUNS))
    assert not trial.should_prune()  # nothing reported yet
    trial.report(1.0, 0)
    assert not trial.should_prune()
    with pytest.warns(UserWarning, match="already reported"):
        trial.report(2.0, 0)
    assert not trial.should_prune()


def test_settings_that_do_not_serve_are_named():
    def without(name):
        study = study_of(settings=lambda p: {k: v for k, v in settings(p).items() if k != name})
        trial = study.ask()
        trial.suggest_categorical("k", list(RUNS))
        trial.report(1.0, 100_000)
        trial.should_prune()

    with pytest.raises(OnecurveError, match="lacks weight_decay, so its timescale"):
        without("weight_decay")
    with pytest.raises(OnecurveError, match="trial 0 state no horizon"):
        without("horizon")
    with pytest.raises(OnecurveError, match="trial 0: its setting n_params"):
        without("n_params")


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite:///sweep.db", "sweep.journal"])
def test_two_processes_share_a_real_sweep(tmp_path, storage):
    command = [sys.executable, EXAMPLES / "with_optuna.py", storage, "24", "16"]
    if storage.startswith("sqlite"):  # two that create a database at once trip over each other, in Optuna itself
        optuna.create_study(study_name="decay", storage=f"sqlite:///{tmp_path / 'sweep.db'}")
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=500)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    final = said[np.argmax([text.count("complete at") + text.count("pruned at") for text in said])]
    assert "complete at" in final and "best: timescale" in final
    assert all("continue (" in text for text in said)


@pytest.mark.slow
def test_ranks_stop_together(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, EXAMPLES / "with_ddp.py", "24", "16"],
        cwd=tmp_path, capture_output=True, text=True, timeout=500, check=True,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("rank ")]
    ranks = [sorted(line.partition(": ")[2] for line in lines if line.startswith(f"rank {r}")) for r in (0, 1)]
    assert ranks[0] == ranks[1] and len(ranks[0]) == 8 and any("ended" in line for line in ranks[0])
