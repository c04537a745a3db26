"""A sweep of weight decays with Optuna, stopped by where its curves will end.

python with_optuna.py [STORAGE [WIDTH [SMALL_WIDTH]]]

STORAGE is a database, sqlite:///sweep.db, or a journal file: start it twice at once, and two processes share the sweep.
"""

import logging
import sys

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from task import TIMESCALES, settings, small_runs, train

from onecurve.tune.optuna import CurvePruner

storage = sys.argv[1] if len(sys.argv) > 1 else None
width = int(sys.argv[2]) if len(sys.argv) > 2 else 64
small = int(sys.argv[3]) if len(sys.argv) > 3 else 32
logging.getLogger("onecurve.tune").addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger("onecurve.tune").setLevel(logging.INFO)
optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial: optuna.Trial) -> float:
    """One training."""
    timescale = trial.suggest_categorical("timescale", TIMESCALES)
    loss = float("nan")
    for samples, loss in train(width, timescale):
        trial.report(loss, samples)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


study = optuna.create_study(
    study_name="decay",
    storage=JournalStorage(JournalFileBackend(storage)) if storage and "://" not in storage else storage,
    load_if_exists=True,
    sampler=optuna.samplers.GridSampler({"timescale": TIMESCALES}),
    pruner=CurvePruner(small_runs(small), lambda p: settings(width, p["timescale"]), x_name="samples"),
)
study.optimize(objective)
for trial in study.get_trials(states=(optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)):
    print(f"timescale {trial.params['timescale']:g}: {trial.state.name.lower()} at {trial.value:.4g}")
print(f"best: timescale {study.best_params['timescale']:g}, loss {study.best_value:.4g}")
