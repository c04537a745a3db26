"""OLMo-core's model ladder: a file ``metrics_step<N>.json`` at each checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log, Points, flat

FORMAT = "OLMo-core"
NAME = re.compile(r"metrics_step(\d+)\.json")


def claims(path: Path, head: bytes) -> bool:
    """Whether a file holds the metrics of one step."""
    return NAME.fullmatch(path.name) is not None and head.lstrip().startswith(b"{")


def place(path: Path) -> Path:
    """The run's folder."""
    return path.parent


def read(paths: Sequence[Path]) -> list[Log]:
    """The run of one folder, a point a file."""
    points = Points()
    for step, path in sorted((int(NAME.fullmatch(p.name)[1]), p) for p in paths):  # pyright: ignore
        try:
            metrics = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise OnecurveError(
                f"{path}: not JSON ({str(error)[:200]}); was it cut off while it was written?"
            ) from None
        for name, value in flat(metrics).items():
            points.add(name, float(step), value)
    folder = paths[0].parent
    note = "metrics were kept at checkpoints only: far fewer points than steps"
    return [Log(folder.name, FORMAT, str(folder), "step", points.series(), notes=(note,))] if points.steps else []
