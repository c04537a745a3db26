"""Cost of a decision: 1,000 trials of 1,000 points each, and how it grows.

python benchmarks/tune_speed.py
"""

import time

import numpy as np

from onecurve.laws.law import Report
from onecurve.laws.small_runs import SmallRuns
from onecurve.laws.surrogate import Surrogate
from onecurve.run import Curve, Run, RunConfig
from onecurve.schedule import Schedule
from onecurve.tune.stop import decide
from onecurve.tune.sweep import sweep_of

TRUE = Surrogate(Report(), 0.3, 0.5, -0.6, 1.5, -0.1, 0.0, 0.0)
SCHEDULE = Schedule(shape="linear", warmup=0.05)


def run(name: str, n: float, timescale: float, points: int, reach: float, rng) -> Run:
    horizon, batch = 20.0 * n, 20.0 * n / 1000
    config = RunConfig(
        name=name, n_params=n, horizon=horizon, batch_tokens=batch, learning_rate=0.01, base_learning_rate=0.01,
        weight_decay=batch / (0.01 * timescale * horizon), schedule=SCHEDULE,
    )  # fmt: skip
    x = np.arange(1, points + 1) / points * reach * horizon
    loss = TRUE.predict(Run(config, {}), x) * np.exp(0.01 * rng.standard_normal(points)) * rng.uniform(2.0, 2.3)
    return Run(config, {"loss": Curve(x, loss)})


def main() -> None:
    rng = np.random.default_rng(0)
    taus = np.geomspace(0.02, 2.56, 16)
    law = SmallRuns.fit([run(f"s{k}", 1e6, t, 200, 1.0, rng) for k, t in enumerate(taus)])
    print("| trials | points each | reference | seconds (best of 3) | of which sampling |")
    print("|---|---|---|---|---|")
    for trials, points in ((1000, 1000), (2000, 1000), (1000, 4000)):
        runs = [run(f"t{k}", 1e8, rng.choice(taus), points, 0.3, rng) for k in range(trials)]
        for reference in (law, TRUE):
            best, part = np.inf, np.inf
            for _ in range(3):
                start = time.perf_counter()
                sweep = sweep_of(runs)
                middle = time.perf_counter()
                decide(sweep, reference, earliest=0.1)
                end = time.perf_counter()
                best, part = min(best, end - start), min(part, middle - start)
            print(f"| {trials:,} | {points:,} | {reference.name} | {best:.2f} | {part:.2f} |")


if __name__ == "__main__":
    main()
