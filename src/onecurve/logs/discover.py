"""What a path holds: runs of every format that is known, found by content. Links that lead out are not followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log
from onecurve.logs.reader import Reader, claimant
from onecurve.logs.tables import TABLES
from onecurve.store import is_run

PACKED = (".gz", ".zip", ".zst", ".bz2", ".xz", ".tar", ".tgz", ".7z")


@dataclass
class Found:
    """What lies under one path."""

    folders: list[Path] = field(default_factory=list[Path])
    """Run directories of this program."""
    logs: list[Log] = field(default_factory=list[Log])
    tables: list[Path] = field(default_factory=list[Path])
    """Plain tables, which are read by naming them."""
    problems: list[OnecurveError] = field(default_factory=list[OnecurveError])
    """What could not be read among other things that could."""


def discover(path: Path) -> Found:
    """Everything that can be read under a file or folder. Raises OnecurveError where nothing can, and why is known."""
    found = Found()
    for reader, files in claimed(path, found):
        try:
            logs = reader.read(files)
        except OnecurveError as error:
            found.problems.append(error)
            continue
        found.logs += logs
        if not logs:
            found.tables += [file for file in files if file.suffix.lower() in TABLES]
    if found.problems and not (found.logs or found.folders):
        raise found.problems[0]
    return found


def claimed(path: Path, found: Found) -> list[tuple[Reader, list[Path]]]:
    """Each place under a path with its reader and files; run directories and tables go to ``found``."""
    places: dict[tuple[str, Path], tuple[Reader, list[Path]]] = {}
    for file in [path] if path.is_file() else _walk(path, found):
        try:
            reader = claimant(file)
        except OSError as error:
            found.problems.append(OnecurveError(f"{file}: cannot be read: {error.strerror}"))
            continue
        if reader is not None:
            places.setdefault((reader.FORMAT, reader.place(file)), (reader, []))[1].append(file)
        elif file.suffix.lower() in TABLES:
            found.tables.append(file)
        elif file.suffix.lower() in PACKED:
            found.problems.append(OnecurveError(f"{file}: packed; unpack it and name what was in it"))
    return list(places.values())


def _walk(path: Path, found: Found) -> Iterator[Path]:
    for root, inside, names in os.walk(path, followlinks=False):
        folder = Path(root)
        inside.sort()
        if is_run(folder):
            found.folders.append(folder)
            inside.clear()
            continue
        for name in sorted(names):
            file = folder / name
            if not file.is_symlink() and file.is_file():
                yield file
