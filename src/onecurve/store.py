"""The run directory: what a training run leaves on disk, and how to read it back.

::

    run.json        schema version, configuration, what the columns of metrics.jsonl are; written once, atomically
    metrics.jsonl   one line a logged point: x and losses, nothing that depends on the machine; append only
    events.jsonl    start, resume, checkpoint, stop: what happened, with wall time
    timing.jsonl    wall time a point

Appending survives a cut at any byte: a torn last line is ignored by the reader and cut off by the next writer.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pydantic import ValidationError

from onecurve.errors import OnecurveError
from onecurve.run import SIGNAL_NAMES, Curve, LossKind, Run, RunConfig, Signal

SCHEMA = 1
RUN, METRICS, EVENTS, TIMING = "run.json", "metrics.jsonl", "events.jsonl", "timing.jsonl"


def write_atomic(path: Path, data: str | bytes) -> None:
    """Replace a file in one step: readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def dumps(value: Any) -> str:
    """Strict JSON with full-precision floats; non-finite numbers become the strings NaN, Infinity, -Infinity."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case np.ndarray():
            return _plain(value.tolist())
        case np.generic():
            return _plain(value.item())
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            return value


@contextmanager
def new_folder(out: Path) -> Generator[Path, None, None]:
    """A folder to be filled, which becomes ``out`` once the block ends well: ``out`` appears whole or not at all.

    Raises OnecurveError where ``out`` holds something already.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OnecurveError(f"{out}: is not empty; give a new folder, or delete this one")
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        if out.exists():
            out.rmdir()
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


class RunWriter:
    """Writes one run directory; a run that was cut short goes on where its checkpoint says."""

    def __init__(self, path: Path, config: RunConfig, x_name: str, curves: Mapping[str, LossKind]) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        content = {"schema": SCHEMA, "config": config.model_dump(), "x": x_name, "curves": dict(curves)}
        write_atomic(path / RUN, dumps(content) + "\n")
        self._whole: set[str] = set()

    def append(self, record: Mapping[str, Any], seconds: float) -> None:
        """Add one point to metrics.jsonl, and the wall time at which it was measured to timing.jsonl."""
        self._append(METRICS, record)
        self._append(TIMING, {"step": record["step"], "seconds": round(seconds, 3)})

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """All points of a run that was read from elsewhere, in one step."""
        write_atomic(self.path / METRICS, "".join(dumps(record) + "\n" for record in records))

    def flush(self) -> None:
        """Bring the points to the disk, so that they outlive the machine as well as the process."""
        for name in (METRICS, TIMING):
            if (self.path / name).exists():
                with (self.path / name).open("ab") as file:
                    os.fsync(file.fileno())

    def event(self, kind: str, **details: Any) -> None:
        """Add one event, with the time of day."""
        self._append(EVENTS, {"event": kind, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **details})

    def cut_back(self, step: int) -> int:
        """Drop points after ``step`` (the checkpoint's) and a torn last line; the number of lines dropped."""
        dropped = 0
        for name in (METRICS, TIMING):
            file = self.path / name
            if not file.exists():
                continue
            lines = file.read_bytes().split(b"\n")
            steps = [_step(file, number, record) for number, record in enumerate(_records(file), start=1)]
            kept = [line for line, at in zip(lines, steps, strict=False) if at <= step]
            if len(kept) != len(lines) - 1 or lines[-1]:
                write_atomic(file, b"".join(line + b"\n" for line in kept))
                if name == METRICS:
                    dropped = len(lines) - 1 - len(kept) + bool(lines[-1])
        return dropped

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        if name not in self._whole:
            _cut_torn_line(self.path / name)
            self._whole.add(name)
        with (self.path / name).open("ab") as file:
            file.write(dumps(record).encode() + b"\n")


def _cut_torn_line(file: Path) -> None:
    """Cut off what follows the last newline: the rest of a line that was never finished."""
    if file.exists():
        data = file.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(file, whole)


def _step(file: Path, number: int, record: Mapping[str, Any]) -> float:
    step = record.get("step")
    if not isinstance(step, (int, float)):
        raise OnecurveError(f"{file}: line {number} has no step; the file is damaged before its end")
    return step


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory."""
    return (path / RUN).is_file()


def read_config(path: Path) -> tuple[RunConfig, str, dict[str, LossKind]]:
    """What was set of the run in a directory, the name of its x, and the kinds of its curves by name.

    Raises OnecurveError naming the file and what is wrong with it.
    """
    file = path / RUN
    try:
        content = json.loads(file.read_text())
        schema = content["schema"]
        if schema > SCHEMA:
            raise OnecurveError(
                f"{file}: schema {schema} is newer than this program reads ({SCHEMA}); upgrade onecurve"
            )
        config = RunConfig.model_validate(content["config"])
        x_name, kinds = content["x"], dict(content["curves"])
        strange = [kind for kind in kinds.values() if kind not in get_args(LossKind)]
        if strange:
            raise ValueError(f"{strange[0]!r} is no kind of curve; accepted are {', '.join(get_args(LossKind))}")
    except OnecurveError:
        raise
    except OSError as error:
        raise OnecurveError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise OnecurveError(f"{file}: not a run.json of onecurve ({_short(error)}); convert the run again") from None
    return config, x_name, kinds


def read_run(path: Path) -> Run:
    """Read one run directory. Raises OnecurveError naming the file and what is wrong with it."""
    config, x_name, kinds = read_config(path)
    metrics = path / METRICS
    if not metrics.is_file() or metrics.stat().st_size == 0:
        raise OnecurveError(f"{metrics}: no points; the run has not logged anything yet")
    records = list(_records(metrics))
    curves: dict[str, Curve] = {}
    for name, kind in kinds.items():
        try:
            points = [(float(r[x_name]), float(r[name])) for r in records if name in r]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise OnecurveError(f"{metrics}: a point without a number for {x_name!r} or {name!r} ({error})") from None
        if points:
            x, loss = np.array(points).T
            try:
                curves[name] = Curve(x.copy(), loss.copy(), kind)
            except OnecurveError as error:
                raise OnecurveError(f"{metrics}: {error}") from None
    if not curves:
        raise OnecurveError(f"{metrics}: none of the curves that run.json names ({', '.join(kinds)}) has a point")
    signals: dict[str, Signal] = {}
    for name in SIGNAL_NAMES:
        points = [(r[x_name], r[name]) for r in records if isinstance(r.get(name), float)]
        if points:
            signals[name] = Signal(*np.array(points, dtype=np.float64).T)
    return Run(config, curves, x_name, signals, str(path))


def _records(file: Path) -> list[dict[str, Any]]:
    lines = file.read_bytes().split(b"\n")
    out = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is torn, or empty
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise OnecurveError(f"{file}: line {number} is no JSON object; the file is damaged before its end")
        out.append(record)
    return out


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
    return f"{type(error).__name__}: {error}"
