"""MLflow: runs on a tracking server, ``mlflow+http://host:port[/experiment[/run]]`` (or ``mlflow+https``).

Through MLflow's own client, with whatever credentials it knows. Histories are read whole, page by page, not through the
endpoint that samples them for charts.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from onecurve.errors import OnecurveError, optional
from onecurve.logs.databases import HUGE
from onecurve.logs.log import Log, Series, as_setting

FORMAT = "MLflow"
SCHEMES = ("mlflow+http", "mlflow+https")


def read(url: str) -> list[Log]:
    """All runs of a server, of one experiment (by name or id), or one run (by name or id)."""
    mlflow = optional("mlflow", f"runs on an MLflow server ({url})", "remote")
    parts = urlsplit(url.removeprefix("mlflow+"))
    wanted = [unquote(name) for name in parts.path.split("/") if name]
    if len(wanted) > 2 or not parts.netloc:
        raise OnecurveError(f"{url}: write mlflow+http://host:port/experiment/run, or less of it for more runs")
    client = mlflow.MlflowClient(f"{parts.scheme}://{parts.netloc}")
    try:
        experiments = _pages(lambda token: client.search_experiments(page_token=token))
        chosen = [e for e in experiments if not wanted or wanted[0] in (e.name, e.experiment_id)]
        if not chosen:
            there = ", ".join(e.name for e in experiments)
            raise OnecurveError(f"{url}: no experiment {wanted[0] if wanted else ''!r}; there are {there}")
        ids = [e.experiment_id for e in chosen]
        runs = _pages(lambda token: client.search_runs(ids, page_token=token))
        runs = [r for r in runs if len(wanted) < 2 or wanted[1] in (r.info.run_name, r.info.run_id)]
        logs = [_log(url, client, run) for run in runs if run.data.metrics]
    except mlflow.exceptions.MlflowException as error:
        reason = (str(error).splitlines() or ["no answer"])[0][:300]
        raise OnecurveError(
            f"{url}: MLflow's client says: {reason}; is the server up, and the address right?"
        ) from None
    if not logs:
        raise OnecurveError(f"{url}: {len(runs)} runs there, none with a metric")
    return logs


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
