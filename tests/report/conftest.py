"""Synthetic ladders for the tests of the report."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from onecurve import Ladder, Run
from onecurve.measure.collapse import collapse
from onecurve.measure.result import Collapse


def ladder(
    *,
    sizes: int = 5,
    seeds: int = 3,
    points: int = 120,
    drift: float = 0.0,
    name: str = "",
    run_name: str = "run",
    loss_name: str = "val_loss",
    x_name: str = "tokens",
    broken: bool = False,
    unfinished: bool = False,
) -> Ladder:
    """Curves 2 + a(N) s(x) with a seed's noise in a; ``drift`` makes the shape s depend on the size."""
    rng = np.random.default_rng(0)
    x = np.arange(1, points + 1) / points
    runs = []
    for i, n in enumerate(np.geomspace(1e6, 3e7, sizes).round()):
        for seed in range(seeds):
            amplitude = 40 * n**-0.22 * (1 + 0.02 * rng.standard_normal())
            loss = 2.0 + amplitude * (1 + (1.2 + drift * i / sizes) * (1 - x) * x**-0.15)
            loss += 0.002 * rng.standard_normal(points) * (1 - x)
            first = i == 0 and seed == 0
            if broken and first:
                loss[10:14], loss[20] = np.nan, np.inf
            last = points // 2 if unfinished and i == sizes - 1 and seed == seeds - 1 else points
            runs.append(
                Run.of(
                    f"{run_name}-{i}-{seed}",
                    n_params=n,
                    x=20 * n * x[:last],
                    loss=loss[:last],
                    kind="held-out",
                    loss_name=loss_name,
                    x_name=x_name,
                    horizon=20 * n,
                    seed=seed,
                )
            )
    return Ladder(runs, name=name)


@pytest.fixture
def measured() -> Callable[..., Collapse]:
    """The collapse of a synthetic ladder: keywords are those of the ladder, and the floor."""
    return _measured


@cache
def _measured(floor: str | float = "auto", **shape: object) -> Collapse:
    return collapse(ladder(**shape), floor=floor)  # type: ignore[arg-type]
