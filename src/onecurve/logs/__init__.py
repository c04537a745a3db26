"""Reading: paths in, runs out.

A path is a run directory, another tool's log (a file or a folder of them), or a long table (CSV, TSV, Parquet, JSONL)
with an optional table of the runs beside it. What a path holds is found by content. Sources are only ever read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onecurve.errors import OnecurveError
from onecurve.frame import Columns, Table, runs_from_frame
from onecurve.logs.assemble import table_of
from onecurve.logs.discover import Found, discover
from onecurve.logs.follow import follow
from onecurve.logs.tables import TABLES, read_table
from onecurve.store import read_run

__all__ = ["follow", "read"]


def read(paths: Sequence[Path | str], runs: Path | str | None = None, columns: Columns | None = None) -> Table:
    """Read all runs found at the given paths; ``runs`` is the table of the runs' settings that goes with them.

    Raises OnecurveError naming the path, what was found there and what would be accepted.
    """
    return read_found([(path, find(path)) for path in map(Path, paths)], runs, columns)


def find(path: Path) -> Found:
    """What a path holds; OnecurveError where there is no such path."""
    if not path.exists():
        near = f"; {path.parent} holds {_listing(path.parent)}" if path.parent.is_dir() else ""
        raise OnecurveError(f"{path}: no such file or folder{near}")
    return discover(path)


def read_found(found: Sequence[tuple[Path, Found]], runs: Path | str | None, columns: Columns | None) -> Table:
    """All runs of what was found, as `read` gives them."""
    settings = None if runs is None else read_table(Path(runs))
    out = Table([], {}, [])
    told = [f"--{name}" for name in ("run", "x", "size", "seed", "horizon", "compute") if getattr(columns, name, None)]
    told += ["--runs"] if runs is not None else []
    for path, held in found:
        for problem in held.problems:
            out.warnings.append(f"left out, because it cannot be read: {problem}")
        for part in _tables(path, held, settings, columns, told):
            out.runs.extend(part.runs)
            out.warnings.extend(part.warnings)
            for what, count in part.dropped.items():
                out.dropped[what] = out.dropped.get(what, 0) + count
    return out


def _tables(path: Path, found: Found, settings: object, columns: Columns | None, told: list[str]) -> list[Table]:
    parts = []
    if found.folders:
        ignored = f"{', '.join(told)} ignored for {path}: a run directory says itself what is what"
        parts.append(Table([read_run(folder) for folder in found.folders], {}, [ignored] if told else []))
    if found.logs:
        parts.append(table_of(found.logs, settings, columns, str(path)))
    if parts:
        return parts
    if path.is_dir():
        raise OnecurveError(
            f"{path}: no run directory (a folder with run.json) in it, and no log of another tool; it holds "
            f"{_listing(path)}. Tables ({', '.join(TABLES)}) are named file by file"
        )
    return [runs_from_frame(read_table(path), settings, columns, source=str(path))]


def _listing(folder: Path) -> str:
    names = sorted(item.name for item in folder.iterdir())
    return (", ".join(names[:6]) + (", ..." if len(names) > 6 else "")) or "nothing"
