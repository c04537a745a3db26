"""JSON lines of trainers: levanter, marin, torchtitan, LlamaFactory, Ray and whoever writes a record a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from onecurve.errors import OnecurveError
from onecurve.logs.log import STEPS, TORN, WORDS, Log, Points, Series, flat, lines_from, run_name
from onecurve.run import Setting

FORMAT = "JSON lines"
SUFFIXES = (".jsonl", ".ndjson")
RAY = "result.json"
HYPERPARAMETERS, SUMMARIES = ("hparams", "log_hyperparameters"), ("summary", "log_summary")


def claims(path: Path, head: bytes) -> bool:
    """Whether JSON lines are one trainer's log and not a long table with a column that names the run."""
    if path.suffix.lower() not in SUFFIXES and path.name != RAY:
        return False
    for number, line in enumerate(head.splitlines()[:20]):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            # A first record longer than the head is one of settings, as no table has it.
            return number == 0 and line.lstrip().startswith(b"{") and b"\n" not in head
        if not isinstance(record, dict) or "run" in record or "run_id" in record:
            return False
        if isinstance(record.get("metrics"), dict) or "log_type_name" in record or "event" in record:
            return True
        return any(isinstance(record.get(name), (int, float)) for name in STEPS)
    return False


def place(path: Path) -> Path:
    """Each file is a run of its own."""
    return path


def read(paths: Sequence[Path]) -> list[Log]:
    """The run in one file; none where no line holds a step and a metric of one, so that the file is a plain table.

    Understood are records with the metrics at the top level or under ``metrics`` (levanter, marin), records of one
    metric (torchtitan's traces: name and value), and flat records whose step has one of its usual names.
    """
    (path,) = paths
    return _parse(path, path.read_bytes())


def tail(path: Path, offset: int) -> tuple[list[Log], int]:
    """What whole lines follow an offset."""
    data, end = lines_from(path, offset)
    return _parse(path, data), end


def _parse(path: Path, data: bytes) -> list[Log]:
    series, settings, summaries, step_name, torn = _by_columns(data) or _line_by_line(path, data)
    if not series:
        return []
    dropped = {TORN: torn} if torn else {}
    log = Log(run_name(path), FORMAT, str(path), step_name, series, settings, dropped=dropped)
    return [replace(log, summaries=summaries)]


Lines = tuple[dict[str, Series], dict[str, Setting], dict[str, Series], str, int]
"""Series, settings, summaries, the name of the step and the number of torn lines."""


def _by_columns(data: bytes) -> Lines | None:
    """All records at once, as columns; None where that cannot be."""
    end = data.rfind(b"\n") + 1
    rest, torn = data[end:].strip(), 0
    if rest:
        try:
            json.loads(rest)
            end = len(data)
        except (ValueError, RecursionError):
            torn = 1
    try:
        table = _parsed(data[:end])
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    settings: dict[str, Setting] = {}
    summary = Points()
    if "event" in table.columns:
        told = table.filter(pl.col("event").is_in(HYPERPARAMETERS))
        for row in told.to_dicts():
            settings |= flat(_without_nulls(row.get("hparams") or row.get("metrics") or {}))
        for row in table.filter(pl.col("event").is_in(SUMMARIES)).to_dicts():
            _summarise(summary, _without_nulls(row))
        table = table.filter(~pl.col("event").is_in((*HYPERPARAMETERS, *SUMMARIES)).fill_null(False))
    step = next((n for n in STEPS if n in table.columns and table[n].dtype.is_numeric()), None)
    if step is None:
        return None
    table = table.filter(pl.col(step).is_not_null())
    steps = table[step].cast(pl.Float64)
    series: dict[str, Series] = {}
    if {"log_type_name", "value"} <= set(table.columns):
        for (name,), part in table.group_by("log_type_name", maintain_order=True):
            values = part["value"].cast(pl.Float64, strict=False)
            good = values.is_not_null()
            series[str(name)] = Series.of(part[step].filter(good).to_numpy(), values.filter(good).to_numpy())
        return {k: v for k, v in series.items() if len(v)}, settings, summary.series(), step, torn
    if "metrics" in table.columns and isinstance(table["metrics"].dtype, pl.Struct):
        table = table.select("metrics").unnest("metrics")
    for name, column in _columns(table):
        if name in STEPS:
            continue
        if column.dtype == pl.String:  # numbers among words for what JSON lacks, or text
            if not column.str.strip_chars().str.to_lowercase().is_in(WORDS).any():
                continue
            column = column.cast(pl.Float64, strict=False)
        elif not column.dtype.is_numeric():
            continue
        good = column.is_not_null()
        if good.any():
            series[name] = Series.of(steps.filter(good).to_numpy(), column.filter(good).cast(pl.Float64).to_numpy())
    return series, settings, summary.series(), step, torn


def _parsed(data: bytes) -> pl.DataFrame:
    try:
        return _table(data)
    except pl.exceptions.PolarsError:
        # Python's own writer puts NaN and Infinity bare, which JSON does not know: as words they are read.
        for word in (b"NaN", b"Infinity", b"-Infinity"):
            for colon in (b'": ', b'":'):
                data = data.replace(colon + word, colon + b'"' + word + b'"')
        return _table(data)


def _table(data: bytes) -> pl.DataFrame:
    """Records as columns, typed by their first thousand where these have every key; keys that come late need all."""
    try:
        table = pl.read_ndjson(data, infer_schema_length=1000)
        if sum(_cells(column) for column in table) == data.count(b'":'):
            return table
    except pl.exceptions.PolarsError:
        pass
    return pl.read_ndjson(data, infer_schema_length=None)


def _cells(column: pl.Series) -> int:
    """Cells of a column and of what is nested in it that hold something."""
    inner = sum(_cells(c) for c in column.struct.unnest()) if isinstance(column.dtype, pl.Struct) else 0
    return column.len() - column.null_count() + inner


def _columns(table: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """Columns by name, those of one level of nesting joined by a slash."""
    for column in table:
        if isinstance(column.dtype, pl.Struct):
            for inner in column.struct.unnest():
                yield f"{column.name}/{inner.name}", inner
        else:
            yield column.name, column


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


def _line_by_line(path: Path, data: bytes) -> Lines:
    points, summary, settings, torn, step_name = Points(), Points(), dict[str, Setting](), 0, "step"
    for number, record, whole in _records(data):
        if record is None:
            if whole:
                raise OnecurveError(f"{path}: line {number} is not JSON; mend or drop the line")
            torn += 1
            continue
        event = record.get("event")
        if event in HYPERPARAMETERS:
            settings |= flat(record.get("hparams") or record.get("metrics") or {})
            continue
        if event in SUMMARIES:
            _summarise(summary, record)
            continue
        name = next((n for n in STEPS if isinstance(record.get(n), (int, float))), None)
        if name is None:
            continue
        step_name, step = name, float(record[name])
        if "log_type_name" in record and "value" in record:
            points.add(str(record["log_type_name"]), step, record["value"])
            continue
        metrics = record["metrics"] if isinstance(record.get("metrics"), dict) else record
        for key, value in flat_numbers(metrics):
            if key not in STEPS:
                points.add(key, step, value)
    return points.series(), settings, summary.series(), step_name, torn


def _summarise(summary: Points, record: dict[str, Any]) -> None:
    """What a record says of the whole run: its metrics, under one of the names that levanter and marin use."""
    told = next((record[k] for k in ("summary", "metrics") if isinstance(record.get(k), dict)), {})
    for name, value in flat_numbers(told):
        summary.add(name, float("nan"), value)


def flat_numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Metrics by name, one level of nesting joined by a slash."""
    for key, value in metrics.items():
        if isinstance(value, dict):
            for inner, number in value.items():
                yield f"{key}/{inner}", number
        else:
            yield str(key), value


def _records(data: bytes) -> Iterator[tuple[int, dict[str, Any] | None, bool]]:
    """Each line's number, its JSON object (None for what is none) and whether the line was ended."""
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        text = line.strip()
        if not text:
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        yield number, record if isinstance(record, dict) else None, line.endswith(b"\n")
