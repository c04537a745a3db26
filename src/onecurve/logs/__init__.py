"""Reading: paths in, runs out.

A path is a run directory, a folder of run directories, or a long table (CSV, TSV, Parquet, JSONL) with an optional
table of the runs beside it. Sources are only ever read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onecurve.errors import OnecurveError
from onecurve.frame import Columns, Table, runs_from_frame
from onecurve.logs.tables import TABLES, read_table
from onecurve.store import is_run, read_run

__all__ = ["read"]


def read(paths: Sequence[Path | str], runs: Path | str | None = None, columns: Columns | None = None) -> Table:
    """Read all runs found at the given paths; ``runs`` is the table of the runs' settings that goes with tables.

    Raises OnecurveError naming the path, what was found there and what would be accepted.
    """
    settings = None if runs is None else read_table(Path(runs))
    out = Table([], {}, [])
    folders = [path for path in map(Path, paths) if path.is_dir()]
    ignored = [
        f"--{name}" for name in ("run", "x", "size", "seed", "horizon", "compute") if getattr(columns, name, None)
    ]
    if runs is not None:
        ignored.append("--runs")
    if folders and ignored:
        out.warnings.append(f"{', '.join(ignored)} ignored for {folders[0]}: a run directory says itself what is what")
    for path in map(Path, paths):
        part = _read_one(path, settings, columns)
        out.runs.extend(part.runs)
        out.warnings.extend(part.warnings)
        for what, count in part.dropped.items():
            out.dropped[what] = out.dropped.get(what, 0) + count
    return out


def _read_one(path: Path, settings: object, columns: Columns | None) -> Table:
    if not path.exists():
        near = f"; {path.parent} holds {_listing(path.parent)}" if path.parent.is_dir() else ""
        raise OnecurveError(f"{path}: no such file or folder{near}")
    if path.is_dir():
        found = [path] if is_run(path) else sorted(file.parent for file in path.rglob("run.json"))
        if not found:
            raise OnecurveError(
                f"{path}: no run directory (a folder with run.json) in it; it holds {_listing(path)}. "
                f"Tables ({', '.join(TABLES)}) are named file by file"
            )
        return Table([read_run(folder) for folder in found])
    return runs_from_frame(read_table(path), settings, columns, source=str(path))


def _listing(folder: Path) -> str:
    names = sorted(item.name for item in folder.iterdir())
    return (", ".join(names[:6]) + (", ..." if len(names) > 6 else "")) or "nothing"
