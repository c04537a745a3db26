"""What a fit and a prediction cost: against points, against starts, and for a schedule of a million steps.

python benchmarks/law_cost.py                                     # about a minute on one core
ONECURVE_REFERENCE_DATA=... python benchmarks/law_cost.py         # with the Multi-Power Law fits
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from onecurve import Run, RunConfig, Schedule
from onecurve.fit import search
from onecurve.laws.annealing import Annealing
from onecurve.laws.decayed import DecayedPower
from onecurve.laws.law import Law, Report, planned
from onecurve.laws.multipower import MultiPower, drops, effect
from onecurve.laws.path import path_from
from onecurve.laws.powers import SumOfPowers
from onecurve.run import Curve, Signal

NOTHING = Report(0.0)


def best(call: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def listed(counts: tuple[int, ...], times: list[float]) -> str:
    return ", ".join(f"{n:,}: {t:.2f} s" for n, t in zip(counts, times, strict=True))


def of_law(law: Law, runs: list[Run], points: int) -> list[Run]:
    out = []
    for k, run in enumerate(runs):
        x = np.linspace(0.05, 1.0, points) * run.end
        noise = np.exp(1e-3 * np.random.default_rng(k).standard_normal(points))
        curve = Curve(x, law.predict(run, x) * noise, "held-out")
        out.append(Run(run.config.model_copy(update={"name": f"{k}"}), {"loss": curve}, run.x_name, run.signals))
    return out


def against_points() -> None:
    schedules = [
        planned(1e8, 2e4, Schedule(shape=s, warmup=0.05, final=0.0 if s == "constant" else 0.1), "steps")
        for s in ("constant", "cosine", "linear")
    ]
    laws = (
        DecayedPower(NOTHING, 3.0, 20.0, 0.45, 0.5, 0.1, 0.5, 0.3, 4.0, 100.0),
        Annealing(NOTHING, 3.0, 30.0, 0.5, 3e-4, 0.998),
        MultiPower(NOTHING, 3.0, 30.0, 0.5, 0.3, 0.05, 0.4, 0.6),
    )
    counts = (300, 1_200, 4_800)
    print("fit time against points (three runs):")
    for law in laws:
        times = [best(lambda n=n, law=law: type(law).fit(of_law(law, schedules, n // 3)), 2) for n in counts]
        grows = np.polyfit(np.log(counts), np.log(times), 1)[0]
        print(f"  {law.name}: {listed(counts, times)}; n^{grows:.2f}")
    sizes = [planned(n, 50 * n, Schedule(shape="constant")) for n in np.geomspace(1e6, 1e8, 8)]
    runs = of_law(SumOfPowers(NOTHING, 30.0, 0.3, 60.0, 0.35, 1.0), sizes, 500)
    print(f"  powers, 8 sizes: {best(lambda: SumOfPowers.fit(runs)):.2f} s")


def against_starts() -> None:
    x = np.linspace(0.0, 2.0, 400)
    data = 2.0 * np.exp(-x) + 1.0 + 0.01 * np.random.default_rng(0).standard_normal(400)

    def residuals(p: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        curve = np.exp(-p[:, 1:2] * x)
        return p[:, :1] * curve + p[:, 2:] - data, np.stack([curve, -p[:, :1] * x * curve, 1 + 0 * curve], axis=-1)

    counts = (100, 400, 1_600)
    low, high = np.array([0.0, 0.0, -5.0]), np.array([10.0, 10.0, 5.0])
    starts = np.random.default_rng(1).uniform([0.1, 0.1, -2], [5, 5, 2], (max(counts), 3))
    times = [best(lambda n=n: search(residuals, starts[:n], low, high, huber=1e-3)) for n in counts]
    grows = np.polyfit(np.log(counts), np.log(times), 1)[0]
    print(f"fit time against starts: {listed(counts, times)}; n^{grows:.2f}")


def a_million_steps() -> None:
    steps = 1_000_000
    x = np.arange(1, steps + 1) / steps
    rates = np.minimum(1.0, x / 0.02) * (0.1 + 0.9 * (1 + np.cos(np.pi * x)) / 2)
    config = RunConfig(name="a", n_params=1e8, horizon=float(steps))
    run = Run(config, {}, "steps", {"learning_rate": Signal(x * steps, rates)})
    at = np.linspace(0.05, 1.0, 1_000) * steps
    print("a schedule of 1,000,000 steps, 1,000 points of the curve:")
    for law in (
        MultiPower(NOTHING, 3.0, 30.0, 0.5, 0.3, 0.05, 0.4, 0.6),
        DecayedPower(NOTHING, 3.0, 20.0, 0.45, 0.5, 0.1, 0.5, 0.3, 4.0, 100.0),
        Annealing(NOTHING, 3.0, 30.0, 0.5, 3e-4, 0.998),
    ):
        seconds = best(lambda law=law: law.predict(run, at))
        tracemalloc.start()
        law.predict(run, at)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"  {law.name}: {seconds:.2f} s, {peak / 1e6:.0f} MB")


def exact(rates: np.ndarray, at: np.ndarray, c: float, beta: float, gamma: float) -> np.ndarray:
    s, d = rates / rates.max(), -np.diff(rates / rates.max(), prepend=0.0)
    total = np.cumsum(s)
    before = np.concatenate([[0.0], total[:-1]])
    power = np.maximum(s, 1e-12) ** -gamma
    return np.array(
        [np.sum(d[: k + 1] * (1 - (1 + c * power[: k + 1] * (total[k] - before[: k + 1])) ** -beta)) for k in at]
    )


def gathered() -> None:
    steps = 24_000
    x = np.arange(1, steps + 1) / steps
    rates = np.minimum(1.0, x / 0.09) * (0.1 + 0.9 * (1 + np.cos(np.pi * x)) / 2)
    at = np.linspace(0.1, 1.0, 200) * (steps - 1)
    at = at.astype(int)
    path, one = path_from(rates), np.ones(1)
    terms = drops(path, at + 1.0)
    fast = best(lambda: effect(terms, at.size, 0.05 * one, 0.6 * one, 0.6 * one, slopes=False), 10)
    slow = best(lambda: exact(rates, at, 0.05, 0.6, 0.6))
    off = np.abs(
        effect(terms, at.size, 0.05 * one, 0.6 * one, 0.6 * one)[0][0] / exact(rates, at, 0.05, 0.6, 0.6) - 1
    ).max()
    words = "the Multi-Power Law's sum at 200 points of 24,000 steps"
    print(f"{words}: {slow / fast:.0f} times as fast gathered, off by {off:.1e}")


def published() -> None:
    from published import FIT_ON, language_models

    for size, seconds in ((25, 46.2), (100, 48.0)):
        runs = [language_models(size)[name] for name in FIT_ON]
        law = MultiPower.fit(runs)
        took = best(lambda runs=runs: MultiPower.fit(runs))
        total = law.report.objective * law.report.points
        print(
            f"Multi-Power Law, {size}M: {took:.2f} s to a Huber sum of {total:.6g} (the published program: {seconds} s "
            "of one core elsewhere, to 2.9e-4 and 2.8e-4)"
        )


if __name__ == "__main__":
    against_points()
    against_starts()
    a_million_steps()
    gathered()
    if os.environ.get("ONECURVE_REFERENCE_DATA"):
        published()
