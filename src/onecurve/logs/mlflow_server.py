"""MLflow: runs on a tracking server, ``mlflow+http://host:port[/experiment[/run]]`` (or ``mlflow+https``).

Through MLflow's own client, with whatever credentials it knows. Histories are read whole, page by page, not through the
endpoint that samples them for charts.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import numpy as np

from onecurve.errors import OnecurveError, optional
from onecurve.logs.databases import HUGE
from onecurve.logs.log import Log, Series, as_setting

FORMAT = "MLflow"
SCHEMES = ("mlflow+http", "mlflow+https")
FIRST = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""Limits of the client's first request, which finds out whether there is a server."""
LATER = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4"}
"""Limits of all others: half a minute, where the client by itself retries for four."""


def read(url: str) -> list[Log]:
    """All runs of a server, of one experiment (by name or id), or one run (by name or id)."""
    mlflow = optional("mlflow", f"runs on an MLflow server ({url})", "remote")
    scheme, _, rest = url.removeprefix("mlflow+").partition("://")
    host, *wanted = rest.split("/")
    wanted = [unquote(name) for name in wanted if name]
    if len(wanted) > 2 or not host:
        raise OnecurveError(f"{url}: write mlflow+http://host:port/experiment/run, or less of it for more runs")
    client = mlflow.MlflowClient(f"{scheme}://{host}")
    try:
        with _limits(FIRST):
            experiments = _pages(lambda token: client.search_experiments(page_token=token))
        chosen = [e for e in experiments if not wanted or wanted[0] in (e.name, e.experiment_id)]
        if not chosen:
            names = [e.name for e in experiments]
            raise OnecurveError(f"{url}: no experiment {_one_of(wanted[:1], names) if wanted else 'there'}")
        with _limits(LATER):
            ids = [e.experiment_id for e in chosen]
            runs = _pages(lambda token: client.search_runs(ids, page_token=token))
            named = [r for r in runs if len(wanted) < 2 or wanted[1] in (r.info.run_name, r.info.run_id)]
            if runs and not named:
                raise OnecurveError(f"{url}: no run {_one_of(wanted[1:], [r.info.run_name for r in runs])}")
            logs = [_log(url, client, run) for run in named if run.data.metrics]
    except mlflow.exceptions.MlflowException as error:
        reason = (str(error).splitlines() or ["no answer"])[0][:300]
        raise OnecurveError(
            f"{url}: MLflow's client says: {reason}; is the server up, and the address right?"
        ) from None
    if not logs:
        raise OnecurveError(f"{url}: {len(named)} runs there, none with a metric")
    return logs


def _one_of(wanted: list[str], there: list[str]) -> str:
    """A name that is not there, and those that are."""
    return f"{', '.join(map(repr, wanted))}; there are {', '.join(there[:12])}{', ...' if len(there) > 12 else ''}"


@contextmanager
def _limits(told: dict[str, str]) -> Generator[None, None, None]:
    """Limits that MLflow's client takes from the environment at each request, where the user set none there."""
    added = {name: value for name, value in told.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _pages(call: Any) -> list[Any]:
    """All pages of a listing: a page may be empty and another follow."""
    out, token = [], None
    while True:
        page = call(token)
        out += list(page)
        token = page.token
        if not token:
            return out


def _log(url: str, client: Any, run: Any) -> Log:
    series = {}
    for key in sorted(run.data.metrics):
        points = client.get_metric_history(run.info.run_id, key)  # in no order that is promised
        points = sorted(points, key=lambda p: (p.timestamp, p.step))
        values = np.array([p.value for p in points], dtype=np.float64)
        values = np.where(np.abs(values) >= HUGE, np.copysign(np.inf, values), values)
        series[key] = Series.of([p.step for p in points], values)
    settings = {key: as_setting(value) for key, value in run.data.params.items()}
    return Log(run.info.run_name or run.info.run_id, FORMAT, f"{url}:{run.info.run_id}", "step", series, settings)
