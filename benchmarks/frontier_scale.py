"""Time of a frontier over 10,000 models: read from a CSV, checked, Pareto set, power laws of 20 families, ratios."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from onecurve.scores.frontier import frontier
from onecurve.scores.table import read_scores

FAMILIES = 20


def made(rows: int, path: Path) -> None:
    rng = np.random.default_rng(0)
    n, d = 10 ** rng.uniform(7, 11, rows), 10 ** rng.uniform(9, 13, rows)
    accuracy = 1 - 0.9 * (6 * n * d / 1e17) ** -0.08 * np.exp(0.05 * rng.standard_normal(rows))
    columns = {
        "name": [f"model-{k}" for k in range(rows)],
        "family": [f"family-{k % FAMILIES}" for k in range(rows)],
        "n_params": n,
        "tokens": d,
        "accuracy": np.clip(accuracy, 0.01, 0.99),
    }
    pl.DataFrame(columns).write_csv(path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for rows in (100, 1_000, 10_000, 100_000):
            path = Path(folder) / "models.csv"
            made(rows, path)
            times: list[float] = []
            for _ in range(5):
                start = time.perf_counter()
                found = frontier(read_scores([path]))
                times.append(time.perf_counter() - start)
            print(
                f"{rows:7,} models: {min(times):.3f} s ({int(found.on.sum())} on the frontier, {len(found.fits)} laws)"
            )


if __name__ == "__main__":
    main()
