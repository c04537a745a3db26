"""The contract of readers as a suite: hold a reader of your own against it, with a sample of its format.

Examples:
    In a test of your package::

        from onecurve.logs.testing import check_reader

        def test_the_contract(tmp_path):
            check_reader(my_reader, Path("sample.mylog"), tmp_path)
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log
from onecurve.logs.reader import HEAD, Reader, Tailed

FOREIGN = (
    b"",
    b"\0" * 64,
    b"hello\n",
    b"{}\n",
    b"[1, 2]\n",
    b"\x89PNG\r\n\x1a\n" + b"\0" * 64,
    b"a,b\n1,2\n",
    b"PK\x03\x04",
)
LONGEST = 5.0
"""Seconds that a small file may take, damaged or not."""


def check_reader(reader: Reader, sample: Path, work: Path, damages: int = 100, seed: int = 0) -> None:
    """Raise AssertionError with the broken promise, if any, of a reader.

    ``sample`` is a file of its format, or the folder of one run or of several, well below a megabyte; ``work`` an empty
    folder for copies, of which ``damages`` are cut short or changed.
    """
    places = _places(reader, sample)
    assert places, f"{reader.FORMAT}: claims no file of the sample {sample}"
    _claims_nothing_foreign(reader, work)
    before = _contents(sample)
    for files in places:
        logs = reader.read(files)
        assert logs and any(len(s) for log in logs for s in log.series.values()), f"{files[0]}: no points"
        for log in logs:
            _is_whole(log)
        assert _same(logs, reader.read(files)), f"{files[0]}: read twice, it gives two things"
    assert _contents(sample) == before, f"{reader.FORMAT}: reading changed its source, or wrote beside it"
    rng = random.Random(seed)
    for k in range(damages):
        copy = work / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        target = _copy(max((f for files in places for f in files), key=lambda f: f.stat().st_size), sample, copy)
        _damage(target, rng)
        _ends_in_logs_or_one_message(reader, copy, f"damage {k} (seed {seed})")
    if isinstance(reader, Tailed):
        for file in (f for files in places for f in files):
            _grows(reader, file, work, rng)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file() and not f.is_symlink())


def _places(reader: Reader, path: Path) -> list[list[Path]]:
    places: dict[Path, list[Path]] = {}
    for file in _files(path):
        with file.open("rb") as opened:
            head = opened.read(HEAD)
        if reader.claims(file, head):
            places.setdefault(reader.place(file), []).append(file)
    return list(places.values())


def _claims_nothing_foreign(reader: Reader, work: Path) -> None:
    file = work / "foreign.bin"
    for head in FOREIGN:
        file.write_bytes(head)
        assert not reader.claims(file, head), f"{reader.FORMAT}: claims {file.name} with {head[:20]!r}"
    file.unlink()


def _contents(path: Path) -> dict[Path, tuple[bytes, int]]:
    """What is in a sample, and the names of what lies beside a file."""
    beside = sorted(path.parent.iterdir()) if path.is_file() else []
    files = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in _files(path)}
    return files | {other: (b"", 0) for other in beside if other != path}


def _is_whole(log: Log) -> None:
    assert log.name and log.source and log.step_name, f"{log.source}: a log needs a name, a source and a step's name"
    for name, series in log.series.items():
        shape = series.step.ndim == 1 and series.step.shape == series.value.shape
        assert shape, f"{log.source}: series {name!r} is not two equally long vectors"
        assert series.step.dtype == series.value.dtype == np.float64, f"{log.source}: series {name!r} is not float64"
    for key, value in log.settings.items():
        assert isinstance(value, (str, int, float, bool)), f"{log.source}: setting {key!r} is {type(value).__name__}"


def _same(one: Sequence[Log], other: Sequence[Log]) -> bool:
    return [(log.name, log.settings, _points(log)) for log in one] == [
        (log.name, log.settings, _points(log)) for log in other
    ]


def _points(log: Log) -> dict[str, tuple[bytes, bytes]]:
    return {name: (s.step.tobytes(), s.value.tobytes()) for name, s in log.series.items() if len(s)}


def _copy(file: Path, sample: Path, copy: Path) -> Path:
    """The sample under ``copy``; where the file lies there."""
    if sample.is_file():
        copy.mkdir()
        shutil.copyfile(sample, copy / sample.name)
        return copy / sample.name
    shutil.copytree(sample, copy / sample.name)
    return copy / sample.name / file.relative_to(sample)


def _damage(file: Path, rng: random.Random) -> None:
    """Cut the file short, change some bytes, or write one stretch over another."""
    data = file.read_bytes()
    out, kind = bytearray(data), rng.random()
    if kind < 0.3:
        out = out[: rng.randrange(len(out))]
    elif kind < 0.8:
        for _ in range(rng.choice([1, 1, 2, 5, 30])):
            out[rng.randrange(len(out))] = rng.randrange(256)
    else:
        low = rng.randrange(len(out))
        out[low : low + rng.randrange(1, 400)] = data[rng.randrange(len(data)) :][: rng.randrange(1, 800)]
    file.write_bytes(bytes(out))


def _ends_in_logs_or_one_message(reader: Reader, folder: Path, what: str) -> None:
    start = time.perf_counter()
    try:
        for files in _places(reader, folder):
            for log in reader.read(files):
                _is_whole(log)
    except OnecurveError as error:
        assert len(str(error)) < 1500, f"{reader.FORMAT}, {what}: a message of {len(str(error))} characters"
        assert str(folder) in str(error), f"{reader.FORMAT}, {what}: the message names no file: {error}"
    except Exception as error:
        raise AssertionError(f"{reader.FORMAT}, {what}: {type(error).__name__}: {error}") from error
    assert time.perf_counter() - start < LONGEST, f"{reader.FORMAT}, {what}: took more than {LONGEST:g} s"


def _grows(reader: Tailed, file: Path, work: Path, rng: random.Random) -> None:
    """A file that grows byte by byte gives, piece by piece, what it gives as a whole."""
    data, target = file.read_bytes(), work / file.name
    whole, end = reader.tail(file, 0)
    pieces: dict[tuple[int, str], list[tuple[bytes, bytes]]] = {}
    offset = 0
    for size in sorted({*(rng.randrange(len(data)) for _ in range(30)), len(data)}):
        target.write_bytes(data[:size])
        logs, offset = reader.tail(target, offset)
        assert offset <= size, f"{file}: the offset {offset} lies beyond the file's {size} bytes"
        for k, log in enumerate(logs):
            for name, points in _points(log).items():
                pieces.setdefault((k, name), []).append(points)
    target.unlink()
    assert offset == end, f"{file}: read in pieces it ends at byte {offset}, as a whole at {end}"
    joined = {key: tuple(map(b"".join, zip(*parts, strict=True))) for key, parts in pieces.items()}
    expected = {(k, name): points for k, log in enumerate(whole) for name, points in _points(log).items()}
    assert joined == expected, f"{file}: read in pieces it gives other points than as a whole"
