"""Hugging Face Trainer: `trainer_state.json`, in the output folder or in its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onecurve.errors import OnecurveError
from onecurve.logs import hyperparameters
from onecurve.logs.log import Log, Points
from onecurve.run import Setting

FORMAT = "Hugging Face Trainer"
NAME = "trainer_state.json"
SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size", "num_input_tokens_seen", "total_flos")


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is the state of a Trainer."""
    told = b'"log_history"' in head and (b'"global_step"' in head or b'"best_metric"' in head)
    return path.suffix == ".json" and (told or path.name == NAME)


def place(path: Path) -> Path:
    """The run's folder, of whose checkpoints each has a state."""
    folder = path.parent
    return folder.parent if folder.name.startswith("checkpoint-") else folder


def read(paths: Sequence[Path]) -> list[Log]:
    """The run of one folder, from the state written last, which holds all before it.

    Its last row, the averages over the whole run, is a summary and no point.
    """
    path = max(paths, key=lambda p: (_steps(p), p.stat().st_mtime))
    state = _load(path)
    points, summary = Points(), Points()
    for row in state["log_history"]:
        if not isinstance(row, dict) or not isinstance(row.get("step"), (int, float)):
            raise OnecurveError(f"{path}: a row of log_history has no step; the file is not as the Trainer writes it")
        for name, value in row.items():
            if name != "step":
                (summary if "train_runtime" in row else points).add(name, row["step"], value)
    if not points.steps:
        raise OnecurveError(f"{path}: log_history holds no point; the run was stopped before its first logging step")
    settings: dict[str, Setting] = {k: state[k] for k in SETTINGS if isinstance(state.get(k), (int, float))}
    settings |= hyperparameters.hugging_face(path.parent) or hyperparameters.hugging_face(place(path))
    notes = ["non-finite losses cannot be seen unless the Trainer ran with logging_nan_inf_filter=False"]
    if all(round(v, 4) == v for v in points.values.get("loss", [])[:200]):
        notes.append("losses are rounded to 4 decimals")
    name, summaries = place(path).name, summary.series()
    log = Log(name, FORMAT, str(path), "step", points.series(), settings, tuple(notes), means=("loss",))
    return [replace(log, summaries=summaries)]


def _load(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_bytes())
        if not isinstance(state, dict) or not isinstance(state["log_history"], list):
            raise ValueError("log_history is no list")
    except (ValueError, KeyError, RecursionError) as error:
        raise OnecurveError(
            f"{path}: cannot be read as a Trainer's state ({str(error)[:200]}); was it cut off while it was written?"
        ) from None
    return state


def _steps(path: Path) -> float:
    try:
        return float(_load(path).get("global_step", 0))
    except (OnecurveError, TypeError, ValueError):
        return -1.0
