"""Reading a log on from where it was left, while its run is still writing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from onecurve.errors import OnecurveError
from onecurve.logs import jsonl
from onecurve.logs.discover import Found, claimed
from onecurve.logs.log import Log, Series
from onecurve.logs.reader import Reader, Tailed
from onecurve.store import METRICS

VERSION = 1
FINGERPRINT = 4096
"""Bytes at the start of a file by which it is known again."""
Cursor = dict[str, Any]


class Update(NamedTuple):
    """What is new in a log."""

    logs: list[Log]
    """Runs with new points, as they were written: nothing is mended, and a resumed run goes back."""
    cursor: Cursor
    """Where to go on: plain values, to be kept as JSON."""
    restarted: tuple[str, ...]
    """Sources that were cut or replaced since: their logs begin anew, and what was read of them before is void."""
    problems: tuple[str, ...]
    """Sources that cannot be read at the moment, half-written perhaps; they are tried again from where they were."""


def follow(path: Path | str, cursor: Cursor | None = None) -> Update:
    """What was written under a path since ``cursor`` (None: from the start).

    A torn tail is kept back until it is whole. Formats to which writers append are read on from a byte offset; others
    (databases, files that are written anew) are read again and the points that are known left out.
    """
    path = Path(path)
    if not path.exists():
        raise OnecurveError(f"{path}: no such file or folder")
    before: Cursor = cursor or {"version": VERSION, "files": {}, "places": {}}
    if before.get("version") != VERSION:
        raise OnecurveError(f"a cursor of version {before.get('version')!r}; this program knows {VERSION}: start anew")
    found = Found()
    sources = claimed(path, found)
    metrics = [folder / METRICS for folder in found.folders]
    sources += [(cast(Reader, jsonl), [file]) for file in metrics if file.is_file()]
    after: Cursor = {"version": VERSION, "files": dict(before["files"]), "places": dict(before["places"])}
    logs: list[Log] = []
    restarted: list[str] = []
    problems = [str(problem) for problem in found.problems]
    for reader, files in sources:
        try:
            if isinstance(reader, Tailed):
                for file in files:
                    new, again = _tail(reader, file, after["files"])
                    logs += new
                    restarted += [str(file)] if again else []
            else:
                new, again = _read_again(reader, files, after["places"])
                logs += new
                restarted += [str(reader.place(files[0]))] if again else []
        except OnecurveError as error:
            problems.append(str(error))
    return Update([log for log in logs if log.series], after, tuple(restarted), tuple(problems))


def _tail(reader: Tailed, file: Path, known: dict[str, Any]) -> tuple[list[Log], bool]:
    """New points of a file that grows; ``known`` is brought up to date."""
    state = known.get(str(file), {"offset": 0, "head": 0, "name": None})
    with file.open("rb") as opened:
        head = opened.read(FINGERPRINT)
    same = file.stat().st_size >= state["offset"] and zlib.crc32(head[: state["offset"]]) == state["head"]
    offset = state["offset"] if same else 0
    logs, end = reader.tail(file, offset)
    names: list[str] = state["name"] if same and state["name"] else [log.name for log in logs]
    known[str(file)] = {"offset": end, "head": zlib.crc32(head[:end]), "name": names}
    if file.name == METRICS:
        names = [file.parent.name] * len(logs)
    # Only the start of a file tells what its run is called.
    return [replace(log, name=name) for log, name in zip(logs, names, strict=False)], not same


def _read_again(reader: Reader, files: Sequence[Path], known: dict[str, Any]) -> tuple[list[Log], bool]:
    """New points of a place that is read as a whole; ``known`` is brought up to date."""
    key = str(reader.place(files[0]))
    state = known.get(key, {})
    logs = reader.read(files)
    whole = {log.name: {name: _known(s) for name, s in log.series.items()} for log in logs}
    same = all(
        name in log.series and _known(_first(log.series[name], count)) == [count, last]
        for log in logs
        for name, (count, last) in state.get(log.name, {}).items()
    ) and set(state) <= set(whole)
    known[key] = whole
    if not same:
        return logs, True
    new = []
    for log in logs:
        counts = {name: count for name, (count, _) in state.get(log.name, {}).items()}
        fresh = {name: _from(s, counts.get(name, 0)) for name, s in log.series.items()}
        new.append(replace(log, series={name: s for name, s in fresh.items() if len(s)}))
    return new, False


def _known(series: Series) -> list[Any]:
    """By what a series is known again: how many points it has, and the last."""
    return [len(series), f"{series.step[-1]!r} {series.value[-1]!r}" if len(series) else ""]


def _first(series: Series, count: int) -> Series:
    return Series(series.step[:count], series.value[:count])


def _from(series: Series, count: int) -> Series:
    return Series(series.step[count:], series.value[count:])
