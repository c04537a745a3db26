"""Families that collapse but for noise and a trend with size, and runs of theirs with faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onecurve import Run, Schedule
from onecurve.run import Curve, RunConfig

SIZES = (1e5, 2e5, 4e5, 8e5)
POINTS = 1000


def healthy(n: float, seed: int, noise: float = 0.01, trend: float = 0.05, points: int = POINTS, name: str = "") -> Run:
    """Final loss N^-.1, shape x^-(.3 + trend log(N / 4e5) / 10), white noise in logs."""
    rng = np.random.default_rng((seed, int(n)))
    horizon = 20.0 * n
    config = RunConfig(
        name=name or f"{n:g}-{seed}", n_params=n, horizon=horizon, seed=seed, batch_tokens=horizon / points,
        learning_rate=0.01, weight_decay=0.1, schedule=Schedule(shape="linear", warmup=0.05),
    )  # fmt: skip
    x = np.arange(1, points + 1) / points
    log = -0.1 * np.log(n) - (0.3 + trend * np.log(n / 4e5) / 10) * np.log(x) + noise * rng.standard_normal(points)
    return Run(config, {"loss": Curve(x * horizon, np.exp(log))})


def family(seeds: int = 3, **options) -> list[Run]:
    return [healthy(n, seed, **options) for n in SIZES for seed in range(seeds)]


def with_fault(run: Run, off) -> Run:
    """The run with its loss multiplied by ``off(fraction)``."""
    curves = {k: replace(c, loss=c.loss * off(c.x / run.end)) for k, c in run.curves.items()}
    return replace(run, curves=curves)


def until(run: Run, fraction: float) -> Run:
    c = run.curves["loss"]
    keep = c.x <= fraction * run.end * (1 + 1e-9)
    return replace(run, curves={"loss": Curve(c.x[keep], c.loss[keep])})
