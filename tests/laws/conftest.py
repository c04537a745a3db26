"""Runs of known laws, made so that every law has something to be fitted to."""

from __future__ import annotations

import numpy as np

from onecurve import Run, RunConfig, Schedule
from onecurve.laws.law import Report, planned
from onecurve.laws.path import path_of
from onecurve.run import Curve, Signal

SIZES = (1e6, 2e6, 4e6, 8e6, 16e6)
NOTHING = Report(0.0)


def trained(
    run: Run, loss, noise: float = 0.0, seed: int = 0, points: int = 200, first: float = 0.005, **signals
) -> Run:
    """A planned run with a held-out curve: ``loss(x)`` at even x, times log-normal noise."""
    x = np.linspace(first * run.end, run.end, points)
    jitter = np.exp(noise * np.random.default_rng(seed).standard_normal(points))
    logged = {name: Signal(x, values(x)) for name, values in signals.items()}
    return Run(run.config, {"val_loss": Curve(x, loss(x) * jitter, "held-out")}, run.x_name, logged)


def named(run: Run, name: str, **changes) -> Run:
    """The same run with another name."""
    return Run(run.config.model_copy(update={"name": name, **changes}), run.curves, run.x_name, run.signals)


def of_law(law, runs, noise: float = 0.0, **options) -> list[Run]:
    """Planned runs, trained as a law says."""
    return [
        named(trained(run, lambda x, run=run: law.predict(run, x), noise, seed=k, **options), f"run-{k}")
        for k, run in enumerate(runs)
    ]


def constant(n: float, horizon: float, **settings) -> Run:
    return planned(n, horizon, Schedule(shape="constant"), **settings)


def at_timescale(tau: float, shape: str = "linear", tokens_per_param: float = 20.0, warmup: float = 0.0) -> Run:
    n, batch, rate = 1e8, 1e5, 1e-2
    horizon = n * tokens_per_param
    decay = batch / (rate * tau * horizon)
    return planned(
        n, horizon, Schedule(shape=shape, warmup=warmup), batch_tokens=batch, learning_rate=rate, weight_decay=decay
    )


def schedules(*shapes: str, steps: float = 20_000.0, warmup: float = 0.05, final: float = 0.1) -> list[Run]:
    """Planned runs of one size, x in steps, under several schedules."""
    return [
        planned(1e8, steps, Schedule(shape=s, warmup=warmup, final=0.0 if s == "constant" else final), "steps")
        for s in shapes
    ]


def ladder(seeds: int = 2, noise: float = 1e-3, floor: float = 1.0) -> list[Run]:
    """Runs that collapse exactly but for noise: ``floor + C^-.15 (1 + x^-.4) / 2``, scaled to O(1)."""
    out = []
    for n in SIZES:
        for seed in range(seeds):
            run = planned(n, 20.0 * n, Schedule(shape="linear"))
            end = 100.0 * (6.0 * n * run.end) ** -0.15
            made = trained(
                run, lambda x, run=run, end=end: floor + end * (1 + (x / run.end) ** -0.4) / 2, noise, int(n) + seed
            )
            out.append(named(made, f"{n:g}-{seed}", seed=seed))
    return out


def noisy(n: float, schedule: Schedule, c: float = 0.25, a: float = 0.2, b: float = 0.3, noise: float = 0.0) -> Run:
    """A run of the noisy-quadratic law with known constants; a constant one is its reference."""
    run = planned(n, 1e9, schedule)
    path = path_of(run)
    base = lambda tau: 2.0 + (n / 1e6) ** -0.2 + 3.0 * np.maximum(tau / 1e9, 1e-4) ** -0.2  # noqa: E731
    trace = lambda tau: 0.3 * np.maximum(tau / 1e9, 1e-4) ** -0.25  # noqa: E731

    def loss(x):
        s = np.where(path.x < path.warm, 1.0, path.s)
        tau = path.at(x, path.tau)
        response = (1 - a) * (path.at(x, s) - 1) + a * (path.at(x, path.mean(100.0)) - 1)
        return base(tau) + c * response * trace(tau) * path.at(x, path.mean(4.0)) ** -b

    label = f"{n:g}-{schedule}"
    made = trained(run, loss, noise, len(label), 400, gradient_noise=lambda x: trace(path.at(x, path.tau)))
    return named(made, label)


def config(**settings) -> RunConfig:
    return RunConfig(**({"name": "a", "n_params": 1e6} | settings))
