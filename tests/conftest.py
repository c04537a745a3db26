"""What several tests share: the published logs, where they are at hand, and synthetic ladders."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import settings

from onecurve.run import Curve, Run, RunConfig

# The same examples every time, and no clock: a slow machine is no fault.
settings.register_profile("onecurve", deadline=None, max_examples=40, derandomize=True, database=None)
settings.load_profile("onecurve")

SIZES = (1e6, 4e6, 16e6, 64e6, 256e6)


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """The folder of published training logs; tests that need it are skipped where it is not at hand."""
    told = os.environ.get("ONECURVE_REFERENCE_DATA")
    if told is None:
        pytest.skip("ONECURVE_REFERENCE_DATA is not set: the published training logs are not at hand")
    folder = Path(told)
    if not (folder / "qiu2025" / "runs.csv").is_file():
        pytest.fail(f"ONECURVE_REFERENCE_DATA is {told}, but there is no qiu2025/runs.csv in it")
    return folder


def _runs(
    sizes: Sequence[float] = SIZES,
    seeds: int | Sequence[int] = 3,
    points: int = 100,
    *,
    floor: float = 0.0,
    exponent: float = 0.3,
    end_noise: float = 0.008,
    noise: float = 0.004,
    bend: Callable[[int, np.ndarray], np.ndarray] | None = None,
    config: Callable[[int], dict] | None = None,
    kind: str = "held-out",
    rng: int = 0,
) -> list[Run]:
    random = np.random.default_rng(rng)
    counts = [seeds] * len(sizes) if isinstance(seeds, int) else list(seeds)
    x = np.arange(1, points + 1) / points
    out = []
    for i, (n, count) in enumerate(zip(sizes, counts, strict=True)):
        for seed in range(count):
            lasting = end_noise * random.standard_normal()
            walk = np.cumsum(random.standard_normal(points)) * noise / np.sqrt(points)
            log = np.log(20.0 * n**-0.12) - exponent * np.log(x) + lasting + walk - walk[-1]
            reducible = np.exp(log + (0.0 if bend is None else bend(i, x)))
            settings = {} if config is None else config(i)
            horizon = settings.pop("horizon", 20.0 * n)
            run = RunConfig(name=f"{n:g}-{seed}", n_params=n, horizon=horizon, seed=seed, **settings)
            name = "val_loss" if kind == "held-out" else "loss"
            out.append(Run(run, {name: Curve(x * horizon, floor + reducible, kind)}))  # pyright: ignore
    return out


@pytest.fixture(scope="session")
def make_runs() -> Callable[..., list[Run]]:
    """Runs whose normalised curves are one power law of x, with seed noise of which a part lasts to the end."""
    return _runs


@pytest.fixture(scope="session")
def make_table() -> Callable[..., pl.DataFrame]:
    """The same runs as one long table: run, tokens, loss, n_params, seed."""

    def table(*args: object, **options: object) -> pl.DataFrame:
        frames = []
        for run in _runs(*args, **options):  # pyright: ignore
            curve = next(iter(run.curves.values()))
            frames.append(
                pl.DataFrame({"tokens": curve.x, "loss": curve.loss}).select(
                    pl.lit(run.config.name).alias("run"),
                    "tokens",
                    "loss",
                    pl.lit(int(run.config.n_params), pl.Int64).alias("n_params"),
                    pl.lit(run.config.seed, pl.Int64).alias("seed"),
                )
            )
        return pl.concat(frames)

    return table
