"""Reading: paths in, runs out.

A path is a run directory, another tool's log (a file or a folder of them), or a long table (CSV, TSV, Parquet, JSONL)
with an optional table of the runs beside it; or an address (W&B, MLflow, an object store); or ``A+B``, parts of the
same runs in the order in which they were written. What a path holds is found by content. Sources are only ever read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from onecurve.errors import OnecurveError
from onecurve.frame import Columns, Table, runs_from_frame
from onecurve.logs.assemble import table_of
from onecurve.logs.clean import MENDS
from onecurve.logs.discover import Found, discover
from onecurve.logs.follow import follow
from onecurve.logs.join import joined
from onecurve.logs.remote import find as remote
from onecurve.logs.remote import is_address
from onecurve.logs.tables import TABLES, read_table
from onecurve.store import read_run

__all__ = ["follow", "read"]


def read(
    paths: Sequence[Path | str],
    runs: Path | str | None = None,
    columns: Columns | None = None,
    unmended: Collection[str] = (),
) -> Table:
    """Read all runs found at the given paths; ``runs`` is the table of the runs' settings that goes with them.

    ``unmended`` names steps of mending to leave undone (`onecurve.logs.clean.MENDS`), or ``all``. Raises OnecurveError
    naming the path, what was found there and what would be accepted.
    """
    return read_found([(path, find(path)) for path in map(str, paths)], runs, columns, unmended)


def find(told: str) -> Found:
    """What a path, an address or a sum of paths holds; OnecurveError where there is no such thing."""
    path = Path(told)
    if is_address(told):
        return remote(told)
    if not path.exists():
        if "+" in told:
            return joined([(part, find(part)) for part in told.split("+") if part])
        near = f"; {path.parent} holds {_listing(path.parent)}" if path.parent.is_dir() else ""
        raise OnecurveError(f"{path}: no such file or folder{near}")
    return discover(path)


def read_found(
    found: Sequence[tuple[str, Found]],
    runs: Path | str | None,
    columns: Columns | None,
    unmended: Collection[str] = (),
) -> Table:
    """All runs of what was found, as `read` gives them."""
    if stray := sorted({*unmended} - {*MENDS, "all"}):
        raise OnecurveError(f"there is no mending {stray[0]!r} to leave undone; there are {', '.join(MENDS)}, and all")
    unmended = MENDS if "all" in unmended else unmended
    settings = None if runs is None else read_table(Path(runs))
    out = Table([], {}, [])
    options = [
        f"--{name}" for name in ("run", "x", "size", "seed", "horizon", "compute") if getattr(columns, name, None)
    ]
    options += ["--runs"] if runs is not None else []
    options += ["--no-mend"] if unmended else []
    for path, held in found:
        for problem in held.problems:
            out.warnings.append(f"left out, because it cannot be read: {problem}")
        for part in _tables(path, held, settings, columns, unmended, options):
            out.runs.extend(part.runs)
            out.warnings.extend(part.warnings)
            out.dropped.update(Counter(part.dropped) + Counter(out.dropped))
    return out


def _tables(
    told: str, found: Found, settings: object, columns: Columns | None, unmended: Collection[str], options: list[str]
) -> list[Table]:
    parts = []
    if unmended and not found.logs and not found.folders:
        parts.append(Table([], {}, [f"--no-mend ignored for {told}: tables are not mended"]))
    if found.folders:
        ignored = f"{', '.join(options)} ignored for {told}: a run directory says itself what is what"
        parts.append(Table([read_run(folder) for folder in found.folders], {}, [ignored] if options else []))
    if found.logs:
        parts.append(table_of(found.logs, settings, columns, told, unmended))
    if found.logs or found.folders:
        return parts
    if is_address(told):
        return [*parts, *(runs_from_frame(read_table(table), settings, columns, source=told) for table in found.tables)]
    path = Path(told)
    if path.is_dir():
        raise OnecurveError(
            f"{path}: no run directory (a folder with run.json) in it, and no log of another tool; it holds "
            f"{_listing(path)}. Tables ({', '.join(TABLES)}) are named file by file"
        )
    return [*parts, runs_from_frame(read_table(path), settings, columns, source=str(path))]


def _listing(folder: Path) -> str:
    names = sorted(item.name for item in folder.iterdir())
    return (", ".join(names[:6]) + (", ..." if len(names) > 6 else "")) or "nothing"
