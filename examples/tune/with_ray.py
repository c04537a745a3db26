"""A sweep of weight decays with Ray Tune, stopped by where its curves will end.

python with_ray.py [FOLDER [WIDTH [SMALL_WIDTH]]]
"""

import sys
from pathlib import Path

from ray import tune

from onecurve.tune.ray import CurveScheduler

HERE = str(Path(__file__).parent.resolve())
sys.path.insert(0, HERE)
from task import TIMESCALES, settings, small_runs, train  # noqa: E402

folder = sys.argv[1] if len(sys.argv) > 1 else None
width = int(sys.argv[2]) if len(sys.argv) > 2 else 64
small = int(sys.argv[3]) if len(sys.argv) > 3 else 32


def trainable(config: dict) -> None:
    """One training."""
    sys.path.insert(0, HERE)  # of the worker
    for samples, loss in train(width, config["timescale"]):
        tune.report({"loss": loss, "samples": samples})


tuner = tune.Tuner(
    trainable,
    param_space={"timescale": tune.grid_search(TIMESCALES)},
    tune_config=tune.TuneConfig(
        metric="loss",
        mode="min",
        scheduler=CurveScheduler(small_runs(small), lambda p: settings(width, p["timescale"]), x_name="samples"),
    ),
    run_config=tune.RunConfig(name="decay", storage_path=folder and str(Path(folder).resolve()), verbose=1),
)
results = tuner.fit()
for result in results:
    print(
        f"timescale {result.config['timescale']:g}: {result.metrics['samples']} samples, {result.metrics['loss']:.4g}"
    )
best = results.get_best_result()
print(f"best: timescale {best.config['timescale']:g}, loss {best.metrics['loss']:.4g}")
