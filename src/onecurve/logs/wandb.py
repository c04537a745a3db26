"""Weights & Biases: offline runs (the `.wandb` file that its client writes) and charts exported as CSV.

The container is LevelDB's log: a header of 7 bytes, blocks of 32 KiB, in them fragments of 4 bytes of CRC-32, 2 of
length and 1 of type (whole, first, middle, last). A record is a protobuf `Record`; read are history (field 2), config
(5) and run (17). Values are JSON.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from onecurve.errors import OnecurveError
from onecurve.logs.lines import Points
from onecurve.logs.log import Log, Series, flat
from onecurve.logs.protobuf import fields, varint
from onecurve.run import Setting

FORMAT = "W&B offline"
BLOCK = 32 * 1024
HEADER = b":W&B"
INTERNAL = "_"
"""Keys of the client itself begin so: _step, _runtime, _timestamp."""


def claims(path: Path) -> bool:
    """Whether a file is an offline run."""
    with path.open("rb") as file:
        return file.read(4) == HEADER


def read(path: Path) -> Log:
    """Read one offline run; a torn end, as a live or killed run has it, is left out and counted."""
    points, config = Points(), dict[str, object]()
    name, position, torn = path.stem, 0, False
    for record in _records(path.read_bytes()):
        if record is None:
            torn = True
            break
        try:
            for number, low, high in fields(record, 0, len(record)):
                if number == 2:
                    position = _history(record, low, high, position, points)
                elif number == 5:
                    _config(record, low, high, config)
                elif number == 17:
                    name = _run(record, low, high, config) or name
        except (IndexError, ValueError, RecursionError, UnicodeDecodeError):
            raise OnecurveError(f"{path}: a record that is not as W&B writes it; the file is damaged") from None
    series = points.series()
    if not series:
        raise OnecurveError(
            f"{path}: no metric in this offline run; it was closed before it logged, or its history was never flushed"
        )
    settings: dict[str, Setting] = flat({k: v for k, v in config.items() if k != "_wandb"})
    dropped = {"torn end of the file": 1} if torn else {}
    return Log(name, FORMAT, str(path), "step", series, settings, dropped=dropped)


def _records(data: bytes) -> Iterator[bytes | None]:
    """Whole records; None where the file is torn or a checksum is wrong."""
    position, parts = 7, []
    while position < len(data):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        if position + 7 > len(data):
            yield None
            return
        checksum, size, kind = struct.unpack_from("<IHB", data, position)
        body = data[position + 7 : position + 7 + size]
        if len(body) < size or kind not in (1, 2, 3, 4) or zlib.crc32(body, zlib.crc32(bytes([kind]))) != checksum:
            yield None
            return
        position += 7 + size
        if kind in (1, 2):
            parts = []
        parts.append(body)
        if kind in (1, 4):
            yield b"".join(parts)


def _history(record: bytes, low: int, high: int, last: int, points: Points) -> int:
    """Add one history row; its step."""
    step: float | None = None
    row: dict[str, object] = {}
    for number, a, b in fields(record, low, high):
        if number == 1:
            key, value = _item(record, a, b)
            row[key] = value
        elif number == 2:
            for inner, c, _ in fields(record, a, b):
                if inner == 1:
                    step = float(varint(record, c)[0])
    told = row.get("_step")
    if isinstance(told, (int, float)):
        step = float(told)
    if step is None:
        step = float(last + 1 if last or points.steps else 0)
    for key, value in row.items():
        if not key.startswith(INTERNAL):
            points.add(key, step, value)
    return int(step)


def _item(record: bytes, low: int, high: int) -> tuple[str, object]:
    """Key (nested ones joined by a slash for metrics) and value of a history or config item."""
    keys, value = [], None
    for number, a, b in fields(record, low, high):
        if number in (1, 2):
            keys.append(record[a:b].decode())
        elif number == 16:
            value = json.loads(record[a:b])
    return "/".join(k for k in keys if k), value


def _config(record: bytes, low: int, high: int, config: dict[str, object]) -> None:
    for number, a, b in fields(record, low, high):
        if number == 1:
            key, value = _item(record, a, b)
            # The cloud wraps each value; files of some versions do as well.
            config[key] = value["value"] if isinstance(value, dict) and set(value) == {"desc", "value"} else value


def _run(record: bytes, low: int, high: int, config: dict[str, object]) -> str:
    name = ""
    for number, a, b in fields(record, low, high):
        if number == 4:
            _config(record, a, b, config)
        elif number == 1 and not name:
            name = record[a:b].decode()
        elif number == 8:
            name = record[a:b].decode() or name
    return name


def claims_export(header: list[str]) -> bool:
    """Whether a CSV file's header is that of a chart exported from the workspace."""
    return header[:1] == ["Step"] and any(" - " in name for name in header[1:])


def read_export(path: Path) -> list[Log]:
    """The runs of a chart exported as CSV: columns ``Step`` and ``<run> - <metric>``, empty where a run has no point.

    Columns of minima and maxima beside a metric that differ from it say that each point stands for several: a sample.
    """
    try:
        table = pl.read_csv(path, infer_schema_length=None)
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
        Log(run, "W&B CSV export", str(path), "step", metrics, notes=(note,) if run in binned else ())
        for run, metrics in series.items()
    ]
