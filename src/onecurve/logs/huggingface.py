"""Hugging Face Trainer: `trainer_state.json`, in the output folder or in its checkpoints."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log, Series
from onecurve.run import Setting

FORMAT = "Hugging Face Trainer"
NAME = "trainer_state.json"
SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size", "num_input_tokens_seen", "total_flos")


def claims(path: Path) -> bool:
    """Whether a file is the state of a Trainer."""
    if path.suffix != ".json":
        return False
    with path.open("rb") as file:
        head = file.read(1 << 20)
    return b'"log_history"' in head and (b'"global_step"' in head or b'"best_metric"' in head)


def latest(files: list[Path]) -> list[Path]:
    """Of the states of one run (in its folder and its checkpoints, each with all before it) the one written last."""
    by_run: dict[Path, list[Path]] = defaultdict(list)
    for path in files:
        folder = path.parent
        by_run[folder.parent if folder.name.startswith("checkpoint-") else folder].append(path)
    return [max(group, key=lambda p: (_steps(p), p.stat().st_mtime)) for group in by_run.values()]


def read(path: Path) -> Log:
    """Read one state. Its last row, the averages over the whole run, is no point and is dropped."""
    state = _load(path)
    steps: defaultdict[str, list[float]] = defaultdict(list)
    values: defaultdict[str, list[float]] = defaultdict(list)
    summaries = 0
    for row in state["log_history"]:
        if not isinstance(row, dict) or not isinstance(row.get("step"), (int, float)):
            raise OnecurveError(f"{path}: a row of log_history has no step; the file is not as the Trainer writes it")
        if "train_runtime" in row:
            summaries += 1
            continue
        for name, value in row.items():
            if name != "step" and isinstance(value, (int, float)) and not isinstance(value, bool):
                steps[name].append(row["step"])
                values[name].append(value)
    if not steps:
        raise OnecurveError(f"{path}: log_history holds no point; the run was stopped before its first logging step")
    settings: dict[str, Setting] = {k: state[k] for k in SETTINGS if isinstance(state.get(k), (int, float))}
    folder = path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
    notes = ["non-finite losses cannot be seen unless the Trainer ran with logging_nan_inf_filter=False"]
    if all(round(v, 4) == v for v in values.get("loss", [])[:200]):
        notes.append("losses are rounded to 4 decimals")
    return Log(
        folder.name,
        FORMAT,
        str(path),
        "step",
        {name: Series.of(steps[name], values[name]) for name in steps},
        settings,
        tuple(notes),
        {"summary rows": summaries} if summaries else {},
        means=("loss",),
    )


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
