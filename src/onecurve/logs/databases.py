"""Runs kept in SQLite by MLflow and Trackio, read-only while writers are alive."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log, Points, Series, as_setting, flat, from_the_future
from onecurve.run import Setting

FORMAT = "SQLite"
HUGE = 1.7976931348623157e308
"""What MLflow writes for infinity."""


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is an SQLite database."""
    return head.startswith(b"SQLite format 3\0")


def place(path: Path) -> Path:
    """Each database stands for itself."""
    return path


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection, None, None]:
    """The database, read-only; OnecurveError for one that is locked, damaged or none."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, timeout=5.0)
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.text_factory = lambda text: text.decode(errors="replace")
            yield connection
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise OnecurveError(f"{path}: locked by its writer for more than 5 seconds; try again") from None
        raise OnecurveError(f"{path}: cannot be read ({error}); is it whole?") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter from a message of the former
        raise OnecurveError(f"{path}: damaged, or no database ({error})") from None


def read(paths: Sequence[Path]) -> list[Log]:
    """All runs of a database of MLflow or Trackio."""
    (path,) = paths
    with opened(path) as db:
        tables = {
            row[0]: {column[1] for column in db.execute(f'PRAGMA table_info("{row[0]}")')}
            for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            if '"' not in row[0]
        }
        columns = tables.get("metrics", set())
        if {"key", "value", "step", "run_uuid"} <= columns:
            return _mlflow(path, db, tables)
        if {"metrics", "step", "run_name"} <= columns:
            return _trackio(path, db, tables)
    raise OnecurveError(
        f"{path}: an SQLite database, but neither MLflow's nor Trackio's; its tables are "
        f"{', '.join(sorted(tables)[:12]) or 'none'}"
    )


def _mlflow(path: Path, db: sqlite3.Connection, tables: dict[str, set[str]]) -> list[Log]:
    """Table metrics: one row a point; NaN is 0 with is_nan, infinities are the largest float."""
    names: dict[str, str] = {}
    if {"run_uuid", "name"} <= tables.get("runs", set()):
        names = {str(run): str(name or run) for run, name in db.execute("SELECT run_uuid, name FROM runs")}
    settings: defaultdict[str, dict[str, Setting]] = defaultdict(dict)
    if {"key", "value", "run_uuid"} <= tables.get("params", set()):
        for run, key, value in db.execute("SELECT run_uuid, key, value FROM params"):
            settings[str(run)][str(key)] = as_setting(value)
    is_nan = "is_nan" if "is_nan" in tables["metrics"] else "0"
    order = "timestamp, step" if "timestamp" in tables["metrics"] else "step"
    points: defaultdict[str, defaultdict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    query = f"SELECT run_uuid, key, step, value, {is_nan} FROM metrics ORDER BY {order}"
    for run, key, step, value, nan in db.execute(query):
        if isinstance(step, (int, float)) and isinstance(value, (int, float)):
            number = np.nan if nan else np.copysign(np.inf, value) if abs(value) >= HUGE else float(value)
            points[str(run)][str(key)].append((float(step), number))
    out, notes = [], ()
    if "timestamp" in tables["metrics"]:
        (newest,) = db.execute("SELECT MAX(timestamp) FROM metrics").fetchone()
        notes = from_the_future(newest / 1000, "points") if isinstance(newest, (int, float)) else ()
    for run, metrics in points.items():
        series = {key: Series.of(*zip(*rows, strict=True)) for key, rows in metrics.items()}
        out.append(Log(names.get(run, run), "MLflow", f"{path}:{run}", "step", series, settings[run], notes))
    if not out:
        raise OnecurveError(f"{path}: an MLflow database without a metric; nothing was logged yet")
    return out


def _trackio(path: Path, db: sqlite3.Connection, tables: dict[str, set[str]]) -> list[Log]:
    """Table metrics: one row a step, its metrics as JSON with NaN and Infinity as words."""
    settings: dict[str, dict[str, Setting]] = {}
    if {"run_name", "config"} <= tables.get("configs", set()):
        for run, config in db.execute("SELECT run_name, config FROM configs"):
            settings[str(run)] = flat(_json(path, config))
    points: defaultdict[str, Points] = defaultdict(Points)
    for run, step, metrics in db.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id"):
        if isinstance(step, (int, float)):
            for key, value in _json(path, metrics).items():
                points[str(run)].add(str(key), float(step), value)
    out = [
        Log(run, "Trackio", f"{path}:{run}", "step", found.series(), settings.get(run, {}))
        for run, found in points.items()
        if found.steps
    ]
    if not out:
        raise OnecurveError(f"{path}: a Trackio database without a metric; nothing was logged yet")
    return out


def _json(path: Path, text: object) -> dict[str, object]:
    try:
        value = json.loads(text) if isinstance(text, (str, bytes)) else {}
    except (ValueError, RecursionError):
        raise OnecurveError(f"{path}: a row that is not JSON; the database is damaged") from None
    return value if isinstance(value, dict) else {}
