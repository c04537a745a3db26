"""Time and memory of a collapse against the number of runs: 100, 1,000 and 10,000 runs of 1,000 points.

Each size runs in a process of its own. Memory is the peak of the process above what it held before the ladder was
made, over the bytes of the data (x and loss, float64). The 1,000 resampled experiments are included.

    python benchmarks/collapse_scale.py
"""

import resource
import subprocess
import sys
import time

POINTS = 1000
SIZES = 10


def one(runs: int) -> None:
    import numpy as np

    from onecurve import Ladder, Run, RunConfig, collapse
    from onecurve.run import Curve

    rng = np.random.default_rng(0)
    # Warm what every process pays once: imports and the linear-algebra threads.
    small = [Run.of(f"{n}{s}", n_params=n, x=[1, 2, 3], loss=[3, 2, 1 + s / 9], seed=s) for n in (1, 2) for s in (0, 1)]
    collapse(Ladder(small), floor="zero", grid=np.array([0.5, 1.0]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes = np.geomspace(1e6, 1e9, SIZES)
    fraction = np.arange(1, POINTS + 1) / POINTS
    made = []
    for i in range(runs):
        n = float(sizes[i % SIZES])
        x = fraction * 20.0 * n
        loss = 1.7 + 2.0 * n**-0.1 * fraction**-0.2 * (1 + 0.003 * rng.standard_normal(POINTS))
        config = RunConfig(name=f"run-{i}", n_params=n, horizon=20.0 * n, seed=i // SIZES)
        made.append(Run(config, {"val_loss": Curve(x, loss, "held-out")}))
    began = time.perf_counter()
    result = collapse(Ladder(made))
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data = runs * POINTS * 2 * 8
    print(
        f"{runs:7d} runs  {seconds:7.2f} s  {1e6 * seconds / runs:7.0f} us a run  data {data / 2**20:6.0f} MB  "
        f"peak {(peak - before) * 1024 / data:5.2f} x data  (within tolerance: {result.practical})"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
    else:
        for count in (100, 1000, 10_000):
            subprocess.run([sys.executable, __file__, str(count)], check=True)
