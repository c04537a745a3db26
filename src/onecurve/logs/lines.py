"""Logs of one record a line: JSON lines of several trainers, and console output."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log, Series, flat
from onecurve.run import Setting

HYPERPARAMETERS, SUMMARIES = ("hparams", "log_hyperparameters"), ("summary", "log_summary")
WORDS = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity")
"""What loggers write for values that JSON lacks."""
GENERIC = ("metrics", "log", "logs", "train", "trainer_log", "tracker_metrics", "result", "training_log", "history")
"""Names of files that say nothing of their run, which is then called as its folder."""
STEPS = ("step", "global_step", "current_steps", "training_iteration", "iteration", "iter", "_step", "num_steps")
ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
MEGATRON = re.compile(rb"^\s*(?:\[[^\]]*\]\s*)?iteration\s+(\d+)/\s*(\d+)\s*\|(.*)\|", re.IGNORECASE)
VALIDATION = re.compile(rb"validation loss at iteration\s+(\d+)\b.*?\|(.*)\|", re.IGNORECASE)
TITAN = re.compile(rb"step:\s*(\d+)\s+.*?loss:\s*([-+.\deE]+|nan|inf)", re.IGNORECASE)
PAIRS = re.compile(rb"([A-Za-z_][\w ()-]*?):\s*([-+.\d][-+.\deE]*|nan|-?inf)", re.IGNORECASE)
NANO = re.compile(rb"^(?:iter|step)\s+(\d+)(?:/\d+)?\s*[:|]?\s*(?:\(.*?\)\s*)?(?:\|)?\s*(?=.*loss)", re.IGNORECASE)
NANO_LOSS = re.compile(rb"(train loss|val loss|loss)\s*:?\s*([-+.\d][-+.\deE]*|nan|-?inf)", re.IGNORECASE)
DUMP = re.compile(rb"^\s{2,}(\w+) \.{3,}\s*(\S.*?)\s*$")
"""A line of Megatron's dump of its arguments."""


class Points:
    """Points by name, as they come in."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[float]] = defaultdict(list)
        self.values: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, name: str, step: float, value: object) -> None:
        """One point; what is no number is left out."""
        number = as_number(value)
        if number is not None:
            self.steps[name].append(step)
            self.values[name].append(number)

    def series(self) -> dict[str, Series]:
        """All of them."""
        return {name: Series.of(self.steps[name], self.values[name]) for name in self.steps}


def as_number(value: object) -> float | None:
    """A logged value as a float: numbers, and the words for what JSON cannot say."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1e300 or value != value else float("inf") * (1 if value > 0 else -1)
    if isinstance(value, str) and value.strip().lower() in WORDS:
        return float(value)
    return None


def read_json_lines(path: Path) -> Log | None:
    """JSON lines of a trainer; None where no line holds a step and a metric of one, so that the file is a plain table.

    Understood are records with the metrics at the top level or under ``metrics`` (levanter, marin), records of one
    metric (torchtitan's traces: name and value), and flat records whose step has one of its usual names.
    """
    found = _by_columns(path)
    if found is None:
        found = _line_by_line(path)
    series, settings, step_name, torn = found
    if not series:
        return None
    dropped = {"torn last line": torn} if torn else {}
    name = path.parent.name if path.stem in GENERIC and path.parent.name else path.stem
    return Log(name, "JSON lines", str(path), step_name, series, settings, dropped=dropped)


Lines = tuple[dict[str, Series], dict[str, Setting], str, int]
"""Series, settings, the name of the step and the number of torn lines."""


def _by_columns(path: Path) -> Lines | None:
    """All records at once, as columns; None where that cannot be."""
    data = path.read_bytes()
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
    if "event" in table.columns:
        told = table.filter(pl.col("event").is_in(HYPERPARAMETERS))
        for row in told.to_dicts():
            settings |= flat(_without_nulls(row.get("hparams") or row.get("metrics") or {}))
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
        return {k: v for k, v in series.items() if len(v)}, settings, step, torn
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
    return series, settings, step, torn


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


def _line_by_line(path: Path) -> Lines:
    points, settings, torn, step_name = Points(), dict[str, Setting](), 0, "step"
    for number, record, whole in records(path):
        if record is None:
            if whole:
                raise OnecurveError(f"{path}: line {number} is not JSON; mend or drop the line")
            torn += 1
            continue
        event = record.get("event")
        if event in HYPERPARAMETERS or event in SUMMARIES:
            if event in HYPERPARAMETERS:
                settings |= flat(record.get("hparams") or record.get("metrics") or {})
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
    return points.series(), settings, step_name, torn


def flat_numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Metrics by name, one level of nesting joined by a slash."""
    for key, value in metrics.items():
        if isinstance(value, dict):
            for inner, number in value.items():
                yield f"{key}/{inner}", number
        else:
            yield str(key), value


def records(path: Path) -> Iterator[tuple[int, dict[str, Any] | None, bool]]:
    """Each line's number, its JSON object (None for what is none) and whether the line was ended."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            whole = line.endswith(b"\n")
            text = line.strip()
            if not text:
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError):
                record = None
            yield number, record if isinstance(record, dict) else None, whole


def read_console(path: Path) -> Log | None:
    """Console output of Megatron-LM, torchtitan or nanoGPT; None where no line looks like theirs."""
    points, settings, kinds, step_name = Points(), {}, set[str](), "step"
    with path.open("rb") as file:
        for line in file:
            text = ANSI.sub(b"", line).rstrip()
            if len(text) > 20_000:
                continue
            if match := MEGATRON.search(text):
                kinds.add("Megatron-LM")
                step_name = "iteration"
                _pairs(points, float(match[1]), match[3])
                settings.setdefault("train_iters", int(match[2]))
            elif match := VALIDATION.search(text):
                kinds.add("Megatron-LM")
                for name, value in PAIRS.findall(match[2]):
                    label = name.decode().strip()
                    points.add(
                        "lm loss validation" if label in ("lm loss value", "lm loss") else f"validation {label}",
                        float(match[1]),
                        float(value),
                    )
            elif ((match := TITAN.search(text)) and b"grad_norm" in text) or (match and b"tps" in text):
                kinds.add("torchtitan")
                for name, value in PAIRS.findall(text[match.start() :]):
                    points.add(name.decode().strip().lower(), float(match[1]), _float(value))
            elif match := NANO.search(text):
                kinds.add("nanoGPT")
                step_name = "iter"
                for name, value in NANO_LOSS.findall(text):
                    label = name.decode().lower()
                    points.add(
                        "train_loss_step" if label == "loss" else label.replace(" ", "_"),
                        float(match[1]),
                        _float(value),
                    )
            elif match := DUMP.match(text):
                settings[match[1].decode()] = _setting(match[2].decode(errors="replace"))
    series = points.series()
    series.pop("step", None)
    if not series:
        return None
    means = ("lm loss",) if "Megatron-LM" in kinds else ()
    notes = ("the loss of an iter line is that of one step's last micro-batch",) if "nanoGPT" in kinds else ()
    name = " and ".join(sorted(kinds)) + " console"
    return Log(path.stem, name, str(path), step_name, series, settings, notes, means=means)


def _pairs(points: Points, step: float, text: bytes) -> None:
    for part in text.split(b"|"):
        name, colon, value = part.partition(b":")
        if colon:
            points.add(name.decode(errors="replace").strip(), step, _float(value))


def _float(text: bytes) -> float | None:
    try:
        return float(text.replace(b",", b"").strip())
    except ValueError:
        return None


def _setting(text: str) -> Setting:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
