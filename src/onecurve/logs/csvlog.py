"""CSV files of one run: Lightning's metrics.csv, and nanoGPT-style logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from onecurve.errors import OnecurveError
from onecurve.frame import SIZES
from onecurve.logs import hyperparameters
from onecurve.logs.log import STEPS, Log, Series, csv_header, run_name
from onecurve.logs.tables import read_csv

FORMAT = "CSV log"


def claims(path: Path, head: bytes) -> bool:
    """Whether a CSV file is one run's log: a column of steps, and none that names runs or sizes."""
    names = set(csv_header(head)) if path.suffix.lower() == ".csv" else set[str]()
    return any(step in names for step in STEPS) and not names & {"run", "run_id", "run_name", "name", *SIZES}


def place(path: Path) -> Path:
    """Each file is a run of its own."""
    return path


def read(paths: Sequence[Path]) -> list[Log]:
    """The run in one file: a row a logged step, empty cells where nothing was logged."""
    (path,) = paths
    try:
        table = read_csv(path, ragged=True)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise OnecurveError(f"{path}: cannot be read as CSV: {str(error).splitlines()[0][:200]}") from None
    step = next(name for name in STEPS if name in table.columns)
    if table.is_empty():
        raise OnecurveError(f"{path}: no rows; nothing was logged yet")
    if not table[step].dtype.is_numeric():
        bad = int((table[step].is_not_null() & table[step].cast(pl.Float64, strict=False).is_null()).arg_max() or 0)
        cell = str(table[step][bad])[:40]
        raise OnecurveError(
            f"{path}: column {step} has {cell!r} at row {bad + 1}, which is not a number; mend the cell"
        )
    series = {}
    for name in table.columns:
        if name == step or not table[name].dtype.is_numeric():
            continue
        rows = table.select(pl.col(step, name).cast(pl.Float64)).drop_nulls()  # numbers may be wider than numpy knows
        if rows.height:
            series[name] = Series.of(rows[step].to_numpy(), rows[name].to_numpy())
    return [Log(run_name(path), FORMAT, str(path), step, series, hyperparameters.lightning(path.parent))]
