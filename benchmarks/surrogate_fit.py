"""The fit of the surrogate beside the published one: an alternating grid search (arXiv 2509.25087, appendix).

python benchmarks/surrogate_fit.py     # 24 synthetic curves with noise; then the recorded sweeps, where they are

Both are judged by the published objective, the mean over curves of their mean absolute error from a fifth of training
on, which the published search minimises itself, and the other does not: its residuals are of logs.
"""

import time
from pathlib import Path

import numpy as np

from onecurve import read
from onecurve.controls import timescale, tokens_per_param
from onecurve.laws.estimate import normalised
from onecurve.laws.law import Report, planned
from onecurve.laws.path import path_of
from onecurve.laws.surrogate import GRID, NEAR, REST, Surrogate
from onecurve.run import Curve, Run
from onecurve.schedule import Schedule

SWEEPS = Path(__file__).parent.parent / "examples" / "sweeps"
STEPS = 25
"""Values a grid tries for each number."""


def first(m):
    return ((1.0 + NEAR) / (GRID + NEAR)) ** m


def grid(objective, centre, width):
    """The best point of a grid around ``centre``, and its value."""
    axes = [c + w * np.linspace(-1.0, 1.0, STEPS) for c, w in zip(centre, width, strict=True)]
    points = np.stack([v.ravel() for v in np.meshgrid(*axes)], axis=1)
    values = np.concatenate([objective(chunk) for chunk in np.array_split(points, STEPS)])
    best = int(np.argmin(values))
    return points[best], float(values[best])


def alternating(runs, m):
    """The objective that the alternating search ends at: b's two numbers, then q's, on grids that shrink."""
    curves = normalised(runs, None, GRID)
    rates = np.log([path_of(run).at(GRID * run.end, path_of(run).s) + REST for run in runs])
    t, r = (np.log([f(run) for run in runs]) for f in (timescale, tokens_per_param))
    t, r = t - t.mean(), r - r.mean()

    def error(b, q):
        at = np.exp(b)[:, :, None] * np.exp(np.exp(q)[:, :, None] * rates)
        return np.abs((first(m) + at) / (1.0 + at[..., -1:]) - curves).mean(axis=(1, 2))

    b, q = np.array([-1.5, 0.0]), np.array([0.0, 0.0])
    width, best = np.array([4.0, 3.0]), np.inf
    while width.max() > 1e-6:
        b, _ = grid(lambda p, q=q: error(p[:, :1] + p[:, 1:] * t, (q[0] + q[1] * r)[None]), b, width)
        q, now = grid(lambda p, b=b: error((b[0] + b[1] * t)[None], p[:, :1] + p[:, 1:] * r), q, width)
        width = width if now < best * (1 - 1e-3) else width / 2
        best = min(best, now)
    return best


def synthetic():
    rng = np.random.default_rng(0)
    true = Surrogate(Report(), 0.05, 0.08, -0.4, 3.0, -0.25, 0.0, 0.0)
    out = []
    for tau in np.geomspace(0.02, 2.56, 8):
        for ratio in (20.0, 80.0, 320.0):
            horizon, batch, rate = ratio * 1e8, 1e5, 0.01
            decay = batch / (rate * tau * horizon)
            run = planned(
                1e8, horizon, Schedule(warmup=0.1), batch_tokens=batch, learning_rate=rate, weight_decay=decay
            )
            x = np.linspace(0.01, 1.0, 100) * horizon
            loss = 3.0 * true.predict(run, x) * np.exp(3e-3 * rng.standard_normal(x.size))
            out.append(Run(run.config, {"loss": Curve(x, loss, "held-out")}))
    return out


def compare(name, runs, m):
    start = time.perf_counter()
    published = alternating(runs, m)
    middle = time.perf_counter()
    law = Surrogate.fit(runs, power=m)
    end = time.perf_counter()
    print(
        f"{name}: {len(runs)} curves, m {m:g}: alternating {published:.6f}, all at once {law.error:.6f} (oracle "
        f"{law.oracle:.6f}, with intervals), {(middle - start) / (end - middle):.2g} x as fast; m free "
        f"{Surrogate.fit(runs).error:.6f}"
    )


if __name__ == "__main__":
    compare("synthetic", synthetic(), 0.05)
    if (SWEEPS / "mlp.parquet").exists():
        runs = read([SWEEPS / "mlp.parquet"], SWEEPS / "mlp-runs.csv").runs
        smallest = min(run.config.n_params for run in runs)
        compare("MLP sweeps, smallest size", [r for r in runs if r.config.n_params == smallest], 0.05)
