"""Weights & Biases: runs in the cloud or on a server of one's own, ``wandb://entity/project[/run]``.

Through W&B's own client, with the key and the server that it knows (``wandb login``, WANDB_BASE_URL). Read is the full
history, never the sampled one, and without naming metrics: rows that lack one of several would be left out.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

from onecurve.errors import OnecurveError, optional
from onecurve.logs.log import Log, Points, flat
from onecurve.logs.wandb import INTERNAL

FORMAT = "W&B"
SCHEME = "wandb"
RETRIES = 4
"""How often a request is repeated before the server counts as out of reach: about half a minute, where the client by
itself goes on for many. WANDB__GRAPHQL_RETRY_MAX says otherwise."""
PAGE = 1000
"""Rows asked for at once. The client pages by steps, of which there may be millions a row."""


def read(url: str) -> tuple[list[Log], list[OnecurveError]]:
    """One run, or all runs of a project and which of them have no metric.

    Raises OnecurveError for a history that does not come, and where no run has a metric.
    """
    wandb = optional("wandb", f"runs in W&B's cloud ({url})", "remote")
    path = url.partition("://")[2].strip("/")
    if path.count("/") not in (1, 2):
        raise OnecurveError(f"{url}: write wandb://entity/project/run, or wandb://entity/project for all its runs")
    logs: list[Log] = []
    problems: list[OnecurveError] = []
    try:
        api = _client(wandb)
        for run in [api.run(path)] if path.count("/") == 2 else api.runs(path):
            try:
                logs.append(_log(f"wandb://{path}", run))
            except OnecurveError as error:
                problems.append(error)
    except Exception as error:  # the client raises a dozen kinds, those of its transport among them
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise OnecurveError(
            f"{url}: W&B's client says: {reason}; is the name right, and has this machine a key (wandb login)?"
        ) from None
    if not logs:
        raise problems[0] if problems else OnecurveError(f"{url}: this project has no runs")
    return logs, problems


def _client(wandb: Any) -> Any:
    """W&B's client, which asks nobody for a key and gives up in bounded time; its settings are left as they were."""
    settings = wandb.setup().settings
    retries, stdin = settings.x_graphql_retry_max, sys.stdin
    settings.x_graphql_retry_max = RETRIES if retries is None else retries
    sys.stdin = io.StringIO()  # no terminal
    try:
        return wandb.Api(timeout=60)
    finally:
        settings.x_graphql_retry_max, sys.stdin = retries, stdin


def _log(url: str, run: Any) -> Log:
    points = Points()
    rows = 0
    last, lines = run.lastHistoryStep, getattr(run, "historyLineCount", None) or 1
    for row in run.scan_history(page_size=PAGE if last < PAGE * PAGE else max(PAGE, PAGE * last // lines)):
        rows += 1
        step = row.get("_step")
        if isinstance(step, (int, float)):
            for key, value in _leaves(row):
                if not key.startswith(INTERNAL):
                    points.add(key, float(step), value)
    source = url if url.count("/") == 4 else f"{url}/{run.id}"
    if not points.steps:
        empty = last >= 0 and not rows
        why = f"the run has steps up to {last}, but its history came empty: try again" if empty else "nothing logged"
        raise OnecurveError(f"{source}: {rows} rows and no metric; {why}")
    end = max(s[-1] for s in points.steps.values())
    notes = (f"the last step is {last}, the history that came ends at {end:g}",) if last > end else ()
    settings = flat({k: v for k, v in dict(run.config).items() if k != "_wandb"})
    return Log(run.name or run.id, FORMAT, source, "step", points.series(), settings, notes)


def _leaves(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What a row holds, nested keys joined by a slash; of pictures, histograms and the like nothing."""
    for key, value in row.items():
        if not isinstance(value, dict):
            yield prefix + key, value
        elif "_type" not in value:
            yield from _leaves(value, f"{prefix}{key}/")
