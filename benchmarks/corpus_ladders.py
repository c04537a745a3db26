"""The byte-level ladders of examples/corpus: train them, record their curves, and say how they collapse.

python benchmarks/corpus_ladders.py train /tmp/corpus      # some three hours on two cores; goes on where it stopped
python benchmarks/corpus_ladders.py record /tmp/corpus     # what is finished, into examples/corpus
python benchmarks/corpus_ladders.py report                 # from the recorded curves
"""

import sys
from pathlib import Path

import numpy as np
import polars as pl

from onecurve import Ladder, collapse, read
from onecurve.measure.result import within_window
from onecurve.measure.verdict import verdict
from onecurve.plan.recipe import load_recipe
from onecurve.train.ladder import train_ladder
from recorded import finished, settings

HERE = Path(__file__).parent.parent / "examples" / "corpus"
LADDERS = ("fixed", "drifting", "standard")
JUDGED = (0.3, 0.9)


def train(out: Path) -> None:
    for name in LADDERS:
        train_ladder(load_recipe(HERE / f"{name}.toml"), out / name, lambda state: None)


def record(out: Path) -> None:
    """Each ladder's finished runs as a table of points (Parquet) and a table of runs (CSV)."""
    for name in LADDERS:
        folder = out / name / "runs"
        paths = [path for path in sorted(folder.glob("*")) if finished(path)]
        if not paths:
            continue
        points, rows = [], []
        for path in paths:
            table = pl.read_ndjson(path / "metrics.jsonl", infer_schema_length=None)
            columns = ["step", "tokens", "train_loss", "test_loss", "grad_norm", "update_norm"]
            points.append(table.select(pl.lit(path.name).alias("run_id"), *columns))
            c = read([path]).runs[0].config
            rows.append(settings(c) | {"layers": c.settings["layers"], "corpus_sha256": c.settings["data"]})
        table = pl.concat(points).with_columns(pl.col("grad_norm", "update_norm").cast(pl.Float32))
        table.write_parquet(HERE / f"{name}.parquet", compression="zstd", compression_level=19)
        pl.DataFrame(rows).sort("n_params", "seed").write_csv(HERE / f"{name}-runs.csv")
        print(f"{name}: {len(paths)} runs, {table.height} points")


def report() -> None:
    """Spread, deviation and verdict of each recorded ladder on held-out loss."""
    deviations = {}
    for name in LADDERS:
        file = HERE / f"{name}.parquet"
        if not file.exists():
            continue
        c = collapse(Ladder(read([file], HERE / f"{name}-runs.csv").runs), loss="test_loss", floor="zero")
        inside = within_window(c.fraction, *JUDGED)
        deviations[name] = float(np.sqrt(np.mean(c.deviation[inside] ** 2)))
        print(f"{name}: N = {', '.join(f'{n:,.0f} ({k} seeds)' for n, k in zip(c.sizes, c.counts, strict=True))}")
        at = np.array([0.3, 0.5, 0.7, 0.9])
        for n, curve in zip(c.sizes, c.size_curves, strict=True):
            print(
                f"  L/L(1) at .3 .5 .7 .9: {' '.join(f'{v:.3f}' for v in np.interp(at, c.fraction, curve))}  N {n:,.0f}"
            )
        print(f"  final losses {' '.join(f'{v:.4f}' for v in c.end_loss)}")
        print(f"  RMS deviation on [.3, .9]: {deviations[name]:.3%};  relative spread at .25 .5: ", end="")
        print(" ".join(f"{c.at(c.relative_spread, x):.1%}" for x in (0.25, 0.5)))
        print("  " + verdict(c).headline)
    for name, value in deviations.items():
        if name != "fixed":
            print(f"fixed / {name}: {deviations['fixed'] / value:.2f}")


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    {"train": train, "record": record, "report": report}[command](*map(Path, rest))
