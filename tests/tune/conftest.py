"""Sweeps whose ends are known: runs of one size that follow shapes exactly, or bend from them as told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onecurve import Run, RunConfig, Schedule
from onecurve.laws.law import Report
from onecurve.laws.surrogate import Surrogate
from onecurve.run import Curve

TRUE = Surrogate(Report(), 0.3, 0.5, -0.6, 1.5, -0.1, 0.0, 0.0)
TIMESCALES = tuple(0.02 * 2**k for k in range(8))


def run(name: str, timescale: float, end: float, n: float = 1e6, stretch: float = 1.0, noise: float = 0.0) -> Run:
    """A finished run whose curve is ``end`` times the true shape to the power ``stretch``."""
    horizon, batch, rate = 20.0 * n, 20.0 * n / 1000, 0.01
    config = RunConfig(
        name=name, n_params=n, horizon=horizon, batch_tokens=batch, learning_rate=rate, base_learning_rate=rate,
        weight_decay=batch / (rate * timescale * horizon), schedule=Schedule(shape="linear", warmup=0.05),
    )  # fmt: skip
    x = np.arange(1, 201) / 200 * horizon
    shape = TRUE.predict(Run(config, {}), x)
    wobble = np.exp(noise * np.random.default_rng(int(1e6 * timescale)).standard_normal(x.size))
    wobble[-1] = 1.0
    return Run(config, {"test_loss": Curve(x, end * shape**stretch * wobble, "held-out")})


def sweep_runs(n: float = 1e6, stretch: float = 1.0, noise: float = 0.0) -> list[Run]:
    """Eight timescales; the fourth is best, by 5 % and more."""
    return [
        run(f"sweep-{k}", t, 0.02 * (1.0 + 0.05 * abs(k - 3) ** 1.2), n, stretch, noise)
        for k, t in enumerate(TIMESCALES)
    ]


def cut(run: Run, fraction: float) -> Run:
    """The run as it stood at a fraction."""
    curves = {
        name: Curve(c.x[c.x <= fraction * run.end * (1 + 1e-9)], c.loss[c.x <= fraction * run.end * (1 + 1e-9)], c.kind)
        for name, c in run.curves.items()
    }
    return replace(run, curves=curves)


def failing(run: Run) -> Run:
    """The same run, its last loss NaN."""
    curves = {name: Curve(c.x, np.append(c.loss[:-1], np.nan), c.kind) for name, c in run.curves.items()}
    return replace(run, curves=curves)
