"""TensorBoard event files: all event files of one folder are one run.

An event file is a chain of records: length (8 bytes), its checksum, the payload, its checksum (masked CRC-32C). The
payload is an `Event` message: wall time (field 1), step (2), summary (5) of values (1) with a tag (1) and a float (2)
or a tensor of rank 0 (8). Records of the same length and layout are decoded together, as columns of a byte matrix.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onecurve.errors import OnecurveError
from onecurve.logs import hyperparameters
from onecurve.logs.log import DAMAGED, TORN, Log, Series, as_setting, flat, from_the_future
from onecurve.logs.protobuf import fields
from onecurve.run import Setting

FORMAT = "TensorBoard"
TEXT, HPARAMS = "/text_summary", "_hparams_/session_start_info"
LONGEST = 200
"""Characters of a text that may be a setting."""
RUN = 4096
"""Records of one length that are looked for at once."""
BATCH = 1_000_000
"""Bytes of records of one length that are decoded at once."""
LAYOUTS = 200
"""Layouts of records of one length that are decoded as columns; the rest, one by one."""
Bytes = NDArray[np.uint8]


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is an event file: its first record has a valid checksum."""
    if "tfevents" not in path.name or len(head) < 12:
        return False
    return bool(_masked(np.frombuffer(head[:8], np.uint8)[None])[0] == _u4(head, 8))


def place(path: Path) -> Path:
    """The folder: its event files are one run."""
    return path.parent


def read(paths: Sequence[Path]) -> list[Log]:
    """The run of one folder, its event files in the order of their first event's wall time."""
    log = _joined(paths[0].parent, [_parse(path.read_bytes()) for path in paths])
    if not log.series:
        raise OnecurveError(
            f"{log.source}: its {len(paths)} TensorBoard event files hold no scalar; images and histograms are no "
            "curves"
        )
    return [log]


def tail(path: Path, offset: int) -> tuple[list[Log], int]:
    """What whole records follow an offset."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    part = _parse(data)
    end = offset + len(data) - part.torn
    return [_joined(path.parent, [part])], end


def _joined(folder: Path, parts: list[_Part]) -> Log:
    parts = sorted(parts, key=lambda part: part.wall)
    steps: defaultdict[str, list[NDArray[np.float64]]] = defaultdict(list)
    values: defaultdict[str, list[NDArray[np.float64]]] = defaultdict(list)
    dropped: defaultdict[str, int] = defaultdict(int)
    for part in parts:
        dropped[TORN] += part.torn > 0
        dropped[DAMAGED] += part.damaged
        for tag, series in part.series.items():
            steps[tag].append(series.step)
            values[tag].append(series.value)
    series = {tag: Series(np.concatenate(steps[tag]), np.concatenate(values[tag])) for tag in steps}
    settings = hyperparameters.lightning(folder)
    for part in parts:
        settings |= part.settings
    lost = {what: count for what, count in dropped.items() if count}
    notes = from_the_future(max((part.wall for part in parts if part.wall < np.inf), default=0.0), "event files")
    return Log(folder.name, FORMAT, str(folder), "step", series, settings, notes, lost)


@dataclass(frozen=True)
class _Part:
    wall: float
    series: dict[str, Series]
    settings: dict[str, Setting]
    torn: int
    """Bytes after the last whole record."""
    damaged: int


def _parse(data: bytes) -> _Part:
    start, length, torn = _chain(data)
    raw = np.frombuffer(data, np.uint8)
    steps: defaultdict[str, list[NDArray[np.float64]]] = defaultdict(list)
    values: defaultdict[str, list[NDArray[np.float64]]] = defaultdict(list)
    order: defaultdict[str, list[NDArray[np.intp]]] = defaultdict(list)
    damaged = 0
    wall = np.inf
    settings: dict[str, Setting] = {}
    for size, at in _batches(start, length):
        rows = raw[at[:, None] + np.arange(12, 12 + size + 4)]
        ok = _masked(rows[:, :size]) == rows[:, size:].copy().view("<u4")[:, 0]
        damaged += int(np.sum(~ok))
        rows, at = rows[ok][:, :size], at[ok]
        for tag, step, value, first, mine in _decode(rows, at, settings):
            steps[tag].append(step)
            values[tag].append(value)
            order[tag].append(mine)
            wall = min(wall, first)
    series = {}
    for tag in steps:
        written = np.argsort(np.concatenate(order[tag]), kind="stable")
        series[tag] = Series(np.concatenate(steps[tag])[written], np.concatenate(values[tag])[written])
    return _Part(wall, series, settings, torn, damaged)


def _batches(start: NDArray[np.intp], length: NDArray[np.intp]) -> Generator[tuple[int, NDArray[np.intp]], None, None]:
    """Records of one length, some thousand at a time so that they stay in the cache: length and offsets."""
    for size in np.unique(length):
        at = start[length == size]
        many = max(1, BATCH // (int(size) + 16))
        for first in range(0, at.size, many):
            yield int(size), at[first : first + many]


def _chain(data: bytes) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Offsets and payload lengths of all whole records, and how many bytes follow the last of them."""
    start: list[int] = []
    length: list[int] = []
    raw = np.frombuffer(data, np.uint8)
    position, end = 0, len(data)
    unpack = struct.Struct("<Q").unpack_from
    single = 0  # records to take one by one before runs of equal length are looked for again
    while position + 16 <= end:
        (size,) = unpack(data, position)
        stride = size + 16
        if size > end - position - 16:
            break
        if single:
            single -= 1
            start.append(position)
            length.append(size)
            position += stride
            continue
        count = min((end - position) // stride, RUN)
        lengths_here = raw[position : position + count * stride].reshape(count, stride)[:, :8].copy().view("<u8")[:, 0]
        other = np.flatnonzero(lengths_here != size)
        count = int(other[0]) if other.size else count
        start += range(position, position + count * stride, stride)
        length += [size] * count
        position += count * stride
        single = 0 if count > 16 else 256
    starts, lengths = np.array(start, dtype=np.intp), np.array(length, dtype=np.intp)
    if starts.size:
        # A length with a wrong checksum leads nowhere: what follows cannot be told apart.
        heads = raw[starts[:, None] + np.arange(12)]
        good = _masked(heads[:, :8]) == heads[:, 8:].copy().view("<u4")[:, 0]
        if not good.all():
            first = int(np.argmin(good))
            position = int(starts[first])
            starts, lengths = starts[:first], lengths[:first]
    return starts, lengths, end - position


def _decode(
    rows: Bytes, at: NDArray[np.intp], settings: dict[str, Setting]
) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64], float, NDArray[np.intp]]]:
    """Scalars of records of one length: (tag, steps, values, first wall time, offsets); settings are added to."""
    out = []
    left = np.arange(rows.shape[0])
    for _ in range(LAYOUTS):
        if not left.size:
            return out
        layout = _layout(rows[left[0]].tobytes())
        if layout is None:
            settings |= _settings(rows[left[0]].tobytes())
            same = np.all(rows[left] == rows[left[0]], axis=1)  # not a scalar; its twins are not either
            left = left[~same]
            continue
        fixed = np.ones(rows.shape[1], dtype=bool)
        fixed[layout.free] = False
        same = np.all(rows[left][:, fixed] == rows[left[0], fixed], axis=1)
        varint = rows[left][:, layout.step]
        same &= np.all((varint & 0x80) == (rows[left[0], layout.step] & 0x80), axis=1)
        mine = left[same]
        step = (rows[mine][:, layout.step].astype(np.uint64) & np.uint64(0x7F)) << (
            np.uint64(7) * np.arange(layout.step.size, dtype=np.uint64)
        )
        steps = step.sum(axis=1, dtype=np.uint64).astype(np.int64).astype(np.float64)
        wall = rows[mine][:, 1:9].copy().view("<f8")[:, 0]
        for tag, offset, kind in layout.values:
            width = int(kind[-1])
            value = rows[mine][:, offset : offset + width].copy().view(kind)[:, 0].astype(np.float64)
            out.append((tag, steps, value, float(wall.min()), at[mine]))
        left = left[~same]
    for row in left:
        layout = _layout(rows[row].tobytes())
        if layout is not None:
            out += _decode(rows[[row]], at[[row]], settings)
    return out


@dataclass(frozen=True)
class _Layout:
    step: NDArray[np.intp]
    """Columns of the step's bytes."""
    values: list[tuple[str, int, str]]
    """Tag, column and kind of each scalar."""
    free: NDArray[np.intp]
    """Columns that differ from record to record."""


def _layout(payload: bytes) -> _Layout | None:
    """Where a record's step and scalars lie; None for one that holds no scalar, or not in the usual order."""
    try:
        outer = fields(payload, 0, len(payload))
        if [f[0] for f in outer[:2]] != [1, 2] or outer[0][1:3] != (1, 9):
            # Without a step (0 is left out) the rest follows at once.
            if not outer or outer[0][0] != 1:
                return None
            step = np.empty(0, dtype=np.intp)
        else:
            step = np.arange(outer[1][1], outer[1][2], dtype=np.intp)
        values: list[tuple[str, int, str]] = []
        for number, low, high in outer:
            if number == 5:
                for inner, a, b in fields(payload, low, high):
                    if inner == 1:
                        found = _value(payload, a, b)
                        if found is not None:
                            values.append(found)
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    if not values:
        return None
    free = [np.arange(1, 9), step, *(np.arange(o, o + int(kind[-1])) for _, o, kind in values)]
    return _Layout(step, values, np.concatenate(free).astype(np.intp))


def _value(payload: bytes, low: int, high: int) -> tuple[str, int, str] | None:
    tag, at = None, None
    for number, a, b in fields(payload, low, high):
        if number == 1:
            tag = payload[a:b].decode()
        elif number == 2 and b - a == 4:
            at = (a, "<f4")
        elif number == 8:
            at = _tensor(payload, a, b)
    return None if tag is None or at is None else (tag, at[0], at[1])


def _tensor(payload: bytes, low: int, high: int) -> tuple[int, str] | None:
    """The number in a tensor of one element: its content (4), float_val (5) or double_val (6)."""
    kind, at = 0, None
    for number, a, b in fields(payload, low, high):
        if number == 1:
            kind = payload[a]
        elif number in (4, 5, 6) and b - a in (4, 8):
            at = (a, f"<f{b - a}")
        elif number == 2 and any(n == 2 for n, _, _ in fields(payload, a, b)):
            return None  # it has dimensions
    wide = {1: "<f4", 2: "<f8"}.get(kind)
    return at if at is not None and at[1] == wide else None


def _settings(payload: bytes) -> dict[str, Setting]:
    """What a record that is no scalar says of the run's settings: a text (JSON, or one value), or hyperparameters."""
    out: dict[str, Setting] = {}
    try:
        for number, low, high in fields(payload, 0, len(payload)):
            for inner, a, b in fields(payload, low, high) if number == 5 else ():
                parts = {n: (x, y) for n, x, y in fields(payload, a, b)} if inner == 1 else {}
                tag = payload[slice(*parts.get(1, (0, 0)))].decode()
                if tag.endswith(TEXT) and 8 in parts:
                    text = next(payload[x:y] for n, x, y in fields(payload, *parts[8]) if n == 8).decode()
                    out |= _told(tag.removesuffix(TEXT), text)
                elif tag == HPARAMS and 9 in parts:
                    out |= _hparams(payload, *parts[9])
    except (IndexError, struct.error, UnicodeDecodeError, StopIteration):
        pass
    return out


def _told(name: str, text: str) -> dict[str, Setting]:
    """Settings in a text: an object of JSON, as the Hugging Face Trainer writes, or one value, as Megatron-LM does."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return flat(content)
    return {name: as_setting(text)} if len(text) <= LONGEST else {}


def _hparams(payload: bytes, low: int, high: int) -> dict[str, Setting]:
    """The hyperparameters in a value's metadata: plugin data (1) with content (2), its session start (3), a map (1)."""
    for path in (1, 2, 3):
        low, high = next((a, b) for n, a, b in fields(payload, low, high) if n == path)
    out: dict[str, Setting] = {}
    for number, a, b in fields(payload, low, high):
        entry = {n: (x, y) for n, x, y in fields(payload, a, b)} if number == 1 else {}
        for kind, x, y in fields(payload, *entry[2]) if {1, 2} <= set(entry) else ():
            name = payload[slice(*entry[1])].decode()
            if kind == 2:
                out[name] = float(struct.unpack("<d", payload[x:y])[0])
            elif kind == 3:
                out[name] = payload[x:y].decode()
            elif kind == 4:
                out[name] = payload[x] != 0
    return out


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_TABLE = _crc_table()


def _masked(rows: Bytes) -> NDArray[np.uint32]:
    """Masked CRC-32C of each row."""
    crc = np.full(rows.shape[0], 0xFFFFFFFF, dtype=np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    with np.errstate(over="ignore"):
        return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)


def _u4(data: bytes, at: int) -> int:
    return struct.unpack_from("<I", data, at)[0]
