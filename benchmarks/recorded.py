"""What the recorded runs of `examples` keep of a run directory that the trainer wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onecurve.run import RunConfig


def finished(folder: Path) -> bool:
    """Whether a run has been trained to its end."""
    events = folder / "events.jsonl"
    return events.exists() and '"event": "finish"' in events.read_text()


def settings(c: RunConfig) -> dict[str, Any]:
    """A run's row in the table of runs: its name, size, horizon, seed and controls."""
    assert c.schedule is not None  # the trainer wrote it
    return {
        "run_id": c.name,
        "n_params": int(c.n_params),
        "horizon": c.horizon,
        "seed": c.seed_init,
        "batch_tokens": c.batch_tokens,
        "learning_rate": c.learning_rate,
        "base_learning_rate": c.base_learning_rate,
        "weight_decay": c.weight_decay,
        "schedule": c.schedule.shape,
        "warmup": c.schedule.warmup,
        "parameterisation": c.parameterisation,
        "width": c.width,
    }
