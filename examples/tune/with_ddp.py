"""The sweep of with_optuna.py, each trial on several processes: rank 0 asks and decides, the others are told.

torchrun --nproc-per-node 2 with_ddp.py [WIDTH [SMALL_WIDTH]]
"""

import sys

import optuna
import torch.distributed as dist
from task import TIMESCALES, settings, small_runs, train

from onecurve.tune.optuna import CurvePruner

width = int(sys.argv[1]) if len(sys.argv) > 1 else 64
small = int(sys.argv[2]) if len(sys.argv) > 2 else 32
dist.init_process_group("gloo")
rank = dist.get_rank()


def told(value):
    """What rank 0 says, on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


study = None
if rank == 0:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = CurvePruner(small_runs(small), lambda p: settings(width, p["timescale"]), x_name="samples")
    study = optuna.create_study(pruner=pruner)
    for timescale in TIMESCALES:
        study.enqueue_trial({"timescale": timescale})
for _ in TIMESCALES:
    trial = study.ask() if study else None
    timescale = told(trial.suggest_categorical("timescale", TIMESCALES) if trial else None)
    stopped, loss = False, float("nan")
    for samples, loss in train(width, timescale, average=dist.all_reduce, rank=rank):
        if trial:
            trial.report(loss, samples)
        stopped = told(trial.should_prune() if trial else None)
        if stopped:
            break
    if study:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED) if stopped else study.tell(trial, loss)
    print(f"rank {rank}: timescale {timescale:g} {'stopped' if stopped else 'ended'} at {samples} samples")
if study:
    print(f"best: timescale {study.best_params['timescale']:g}, loss {study.best_value:.4g}")
dist.destroy_process_group()
