"""Weights & Biases: offline runs, the `.wandb` file that its client writes.

The container is LevelDB's log: a header of 7 bytes, blocks of 32 KiB, in them fragments of 4 bytes of CRC-32, 2 of
length and 1 of type (whole, first, middle, last). A record is a protobuf `Record`; read are history (field 2), config
(5) and run (17). Values are JSON.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from onecurve.errors import OnecurveError
from onecurve.logs.log import TORN, Log, Points, flat
from onecurve.logs.protobuf import fields, varint
from onecurve.run import Setting

FORMAT = "W&B offline"
BLOCK = 32 * 1024
HEADER = b":W&B"
START = 7
INTERNAL = "_"
"""Keys of the client itself begin so: _step, _runtime, _timestamp."""


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is an offline run."""
    return head.startswith(HEADER)


def place(path: Path) -> Path:
    """Each file is a run of its own."""
    return path


def read(paths: Sequence[Path]) -> list[Log]:
    """The run in one file; a torn end, as a live or killed run has it, is left out and counted."""
    (path,) = paths
    (log,), end = _parse(path, path.read_bytes(), START)
    if not log.series:
        raise OnecurveError(
            f"{path}: no metric in this offline run; it was closed before it logged, or its history was never flushed"
        )
    torn = end < path.stat().st_size
    return [replace(log, dropped={TORN: 1})] if torn else [log]


def tail(path: Path, offset: int) -> tuple[list[Log], int]:
    """What whole records follow an offset."""
    first = offset - offset % BLOCK  # fragments lie within blocks
    with path.open("rb") as file:
        file.seek(first)
        data = file.read()
    logs, end = _parse(path, data, max(offset, START) - first)
    return logs, first + end


def _parse(path: Path, data: bytes, start: int) -> tuple[list[Log], int]:
    """The run in the records from ``start`` on, and where the last whole one ends."""
    points, config = Points(), dict[str, object]()
    name, position, whole = path.stem, 0, start
    for record, end in _records(data, start):
        whole = end
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
    settings: dict[str, Setting] = flat({k: v for k, v in config.items() if k != "_wandb"})
    return [Log(name, FORMAT, str(path), "step", points.series(), settings)], whole


def _records(data: bytes, position: int) -> Iterator[tuple[bytes, int]]:
    """Whole records and where they end, up to where the file is torn or a checksum is wrong."""
    parts: list[bytes] = []
    while position < len(data):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        if position + 7 > len(data):
            return
        checksum, size, kind = struct.unpack_from("<IHB", data, position)
        body = data[position + 7 : position + 7 + size]
        if len(body) < size or kind not in (1, 2, 3, 4) or zlib.crc32(body, zlib.crc32(bytes([kind]))) != checksum:
            return
        position += 7 + size
        if kind in (1, 2):
            parts = []
        parts.append(body)
        if kind in (1, 4):
            yield b"".join(parts), position


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
