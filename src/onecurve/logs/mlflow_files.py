"""MLflow's older file store: a folder a run, in it a file a metric."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onecurve.errors import OnecurveError
from onecurve.logs.log import TORN, Log, Points, as_setting

FORMAT = "MLflow"


def claims(path: Path, head: bytes) -> bool:
    """Whether a file describes a run, its metrics beside it."""
    return path.name == "meta.yaml" and (path.parent / "metrics").is_dir()


def place(path: Path) -> Path:
    """The run's folder."""
    return path.parent


def read(paths: Sequence[Path]) -> list[Log]:
    """The run of one folder: a file a metric with lines ``timestamp value step``, a file a parameter."""
    folder = paths[0].parent
    points = Points()
    torn = 0
    root = folder / "metrics"
    for file in sorted(root.rglob("*")):
        if file.is_symlink() or not file.is_file():
            continue
        key = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
            parts = line.split()
            try:
                points.add(key, float(parts[2]), float(parts[1]))
            except (ValueError, IndexError):
                if not parts:
                    continue
                if file.read_bytes().count(b"\n") >= number:
                    raise OnecurveError(
                        f"{file}: line {number} is not 'timestamp value step'; mend or drop it"
                    ) from None
                torn += 1
    settings = {
        f.name: as_setting(f.read_text(errors="replace").strip())
        for f in sorted((folder / "params").glob("*"))
        if f.is_file() and not f.is_symlink()
    }
    if not points.steps:
        raise OnecurveError(f"{folder}: an MLflow run without a metric; nothing was logged yet")
    name = next(
        (t.read_text(errors="replace").strip() for t in [folder / "tags" / "mlflow.runName"] if t.is_file()),
        folder.name,
    )
    dropped = {TORN: torn} if torn else {}
    return [Log(name, FORMAT, str(folder), "step", points.series(), settings, dropped=dropped)]
