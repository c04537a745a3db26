"""From two tables to a verdict, in Python; and what is left of it with one seed a size."""

from pathlib import Path

import polars as pl

import onecurve

here = Path(__file__).parent / "demo"
points = pl.read_parquet(here / "curves.parquet")
runs = pl.read_csv(here / "runs.csv").filter(pl.col("parameterisation") == "mup")
points = points.filter(pl.col("run_id").is_in(runs["run_id"].implode()))

ladder = onecurve.Ladder.from_frame(points, runs)
result = onecurve.collapse(ladder)
print(result)

# Arrays, to go on with: Delta and sigma on one grid of fractions.
below = result.fraction[result.deviation < result.noise_floor]
print(f"\nDelta is below sigma on {below.size / result.fraction.size:.0%} of the grid.\n")

one_seed = runs.filter(pl.col("seed") == 0)
lone = onecurve.Ladder.from_frame(points.filter(pl.col("run_id").is_in(one_seed["run_id"].implode())), one_seed)
print(onecurve.collapse(lone, floor="zero"))
