"""Weights & Biases: runs in the cloud or on a server of one's own, ``wandb://entity/project[/run]``.

Through W&B's own client, with the key and the server that it knows (``wandb login``, WANDB_BASE_URL). Read is the full
history, never the sampled one, and without naming metrics: rows that lack one of several would be left out.
"""

from __future__ import annotations

from typing import Any

from onecurve.errors import OnecurveError, optional
from onecurve.logs.log import Log, Points, flat
from onecurve.logs.wandb import INTERNAL

FORMAT = "W&B"
SCHEME = "wandb"


def read(url: str) -> list[Log]:
    """One run, or all runs of a project. Raises OnecurveError for a history that does not come, or comes empty."""
    wandb = optional("wandb", f"runs in W&B's cloud ({url})", "remote")
    path = url.partition("://")[2].strip("/")
    if path.count("/") not in (1, 2):
        raise OnecurveError(f"{url}: write wandb://entity/project/run, or wandb://entity/project for all its runs")
    try:
        api = wandb.Api(timeout=60)
        runs = [api.run(path)] if path.count("/") == 2 else list(api.runs(path))
        logs = [_log(f"wandb://{path}", run) for run in runs]
    except OnecurveError:
        raise
    except Exception as error:  # the client raises a dozen kinds, those of its transport among them
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise OnecurveError(
            f"{url}: W&B's client says: {reason}; is the name right, and has this machine a key (wandb login)?"
        ) from None
    if not logs:
        raise OnecurveError(f"{url}: this project has no runs")
    return logs


def _log(url: str, run: Any) -> Log:
    points = Points()
    rows = 0
    for row in run.scan_history():
        rows += 1
        step = row.get("_step")
        if isinstance(step, (int, float)):
            for key, value in row.items():
                if not key.startswith(INTERNAL):
                    points.add(key, float(step), value)
    last = run.lastHistoryStep
    source = url if url.count("/") == 4 else f"{url}/{run.id}"
    if not points.steps:
        why = f"the run has steps up to {last}, but its history came empty: try again" if last > 0 else "nothing logged"
        raise OnecurveError(f"{source}: {rows} rows and no metric; {why}")
    end = max(s[-1] for s in points.steps.values())
    notes = (f"the last step is {last}, the history that came ends at {end:g}",) if last > end else ()
    settings = flat({k: v for k, v in dict(run.config).items() if k != "_wandb"})
    return Log(run.name or run.id, FORMAT, source, "step", points.series(), settings, notes)
