"""What a path holds: runs of every format that is known, found by content. Links that lead out are not followed."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from onecurve.errors import OnecurveError
from onecurve.logs import databases, huggingface, lines, tensorboard, wandb
from onecurve.logs.log import Log, Series
from onecurve.logs.tables import TABLES
from onecurve.store import is_run

DATABASES = (".db", ".sqlite", ".sqlite3")
CONSOLE = (".log", ".txt", ".out", ".err")


@dataclass
class Found:
    """What lies under one path."""

    folders: list[Path] = field(default_factory=list[Path])
    """Run directories of this program."""
    logs: list[Log] = field(default_factory=list[Log])
    tables: list[Path] = field(default_factory=list[Path])
    """Plain tables, which are read by naming them."""


def discover(path: Path) -> Found:
    """Everything that can be read under a file or folder."""
    found = Found()
    if path.is_file():
        log = _file(path)
        if log:
            found.logs += log
        elif path.suffix.lower() in TABLES:
            found.tables.append(path)
        return found
    states: list[Path] = []
    events: defaultdict[Path, list[Path]] = defaultdict(list)
    for root, inside, names in os.walk(path, followlinks=False):
        folder = Path(root)
        inside.sort()
        if is_run(folder):
            found.folders.append(folder)
            inside.clear()
            continue
        if databases.is_store(folder):
            found.logs.append(databases.read_store(folder))
            inside.clear()
            continue
        for name in sorted(names):
            file = folder / name
            if file.is_symlink() or not file.is_file():
                continue
            if "tfevents" in name:
                if tensorboard.claims(file):
                    events[folder].append(file)
            elif name == huggingface.NAME:
                states.append(file)
            elif name == "metrics.csv" or file.suffix.lower() in (*DATABASES, *CONSOLE, ".jsonl", ".ndjson", ".wandb"):
                found.logs += _file(file)
            elif file.suffix.lower() in TABLES:
                found.tables.append(file)
    found.logs += [tensorboard.read(files) for _, files in sorted(events.items())]
    found.logs += [huggingface.read(state) for state in sorted(huggingface.latest(states))]
    return found


def _file(path: Path) -> list[Log]:
    """The runs in one file, none where it is a plain table or nothing that is known."""
    if path.stat().st_size == 0:
        return []
    if tensorboard.claims(path):
        return [tensorboard.read([path])]
    if databases.claims(path):
        return databases.read(path)
    if wandb.claims(path):
        return [wandb.read(path)]
    if huggingface.claims(path):
        return [huggingface.read(path)]
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        log = lines.read_json_lines(path) if _is_trainers(path) else None
        return [log] if log else []
    if suffix in CONSOLE:
        log = lines.read_console(path)
        return [log] if log else []
    if suffix == ".csv":
        header = _header(path)
        if wandb.claims_export(header):
            return wandb.read_export(path)
        if {"Name", "State"} <= set(header) and "Step" not in header:
            raise OnecurveError(
                f"{path}: W&B's table of runs, which holds no curve; export a chart of the loss as CSV, or name the "
                "run's .wandb file"
            )
    if path.name == "metrics.csv":
        log = _lightning(path)
        return [log] if log else []
    return []


def _header(path: Path) -> list[str]:
    with path.open("rb") as file:
        line = file.readline(100_000).decode(errors="replace")
    try:
        return next(csv.reader([line.strip()]), [])
    except csv.Error:
        return []


def _is_trainers(path: Path) -> bool:
    """Whether JSON lines are one trainer's log and not a long table with a column that names the run."""
    for number, record, _ in lines.records(path):
        if record is not None:
            if "run" in record or "run_id" in record:
                return False
            if isinstance(record.get("metrics"), dict) or "log_type_name" in record or "event" in record:
                return True
            return any(isinstance(record.get(name), (int, float)) for name in lines.STEPS)
        if number > 20:
            break
    return False


def _lightning(path: Path) -> Log | None:
    """Lightning's metrics.csv: a row a logged step, empty cells where nothing was logged; None for a long table."""
    try:
        table = pl.read_csv(path, infer_schema_length=None, truncate_ragged_lines=True)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise OnecurveError(f"{path}: cannot be read as CSV: {str(error).splitlines()[0][:200]}") from None
    step = next((name for name in ("step", "iter", "global_step") if name in table.columns), None)
    if step is None or {"run", "run_id"} & set(table.columns):
        return None
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
    folder = path.parent
    name = f"{folder.parent.name}-{folder.name}" if folder.name.startswith("version_") else folder.name
    return Log(name, "Lightning", str(path), step, series)
