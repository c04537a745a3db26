"""Weights & Biases: charts exported as CSV from the workspace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log, Series, csv_header
from onecurve.logs.tables import read_csv

FORMAT = "W&B CSV export"


def claims(path: Path, head: bytes) -> bool:
    """Whether a CSV file's header is that of a chart, or of the table of runs, exported from the workspace."""
    if path.suffix.lower() != ".csv":
        return False
    header = csv_header(head)
    chart = header[:1] == ["Step"] and any(" - " in name for name in header[1:])
    return chart or _is_run_table(header)


def _is_run_table(header: list[str]) -> bool:
    return {"Name", "State"} <= set(header) and "Step" not in header


def place(path: Path) -> Path:
    """Each file stands for itself."""
    return path


def read(paths: Sequence[Path]) -> list[Log]:
    """The runs of a chart exported as CSV: columns ``Step`` and ``<run> - <metric>``, empty where a run has no point.

    Columns of minima and maxima beside a metric that differ from it say that each point stands for several: a sample.
    """
    (path,) = paths
    with path.open("rb") as file:
        if _is_run_table(csv_header(file.readline())):
            raise OnecurveError(
                f"{path}: W&B's table of runs, which holds no curve; export a chart of the loss as CSV, or name the "
                "run's .wandb file"
            )
    try:
        table = read_csv(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise OnecurveError(f"{path}: cannot be read as CSV: {str(error).splitlines()[0][:200]}") from None
    table = table.cast(pl.Float64, strict=False)  # numbers stand in quotes
    if table["Step"].null_count() == table.height:
        raise OnecurveError(f"{path}: a W&B export whose column Step holds no number; export the chart again")
    series: dict[str, dict[str, Series]] = {}
    binned: set[str] = set()
    for column in table.columns[1:]:
        run, dash, metric = column.rpartition(" - ")
        rows = table.select("Step", column).drop_nulls()
        if not dash or not rows.height:
            continue
        if metric.endswith(("__MIN", "__MAX")):
            plain = f"{run} - {metric[:-5]}"
            if plain in table.columns and bool((table[column] != table[plain]).any()):
                binned.add(run)
            continue
        series.setdefault(run, {})[metric] = Series.of(rows["Step"].to_numpy(), rows[column].to_numpy())
    if not series:
        raise OnecurveError(f"{path}: a W&B export without a curve; its columns are {', '.join(table.columns[:10])}")
    note = "each point stands for several steps (minimum and maximum differ): export more points, or the run itself"
    return [
        Log(run, FORMAT, str(path), "step", metrics, notes=(note,) if run in binned else ())
        for run, metrics in series.items()
    ]
