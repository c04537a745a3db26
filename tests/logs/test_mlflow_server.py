"""A real MLflow server, logged to by its own client."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.request import urlopen

import numpy as np
import pytest

from onecurve import read
from onecurve.logs import find, mlflow_server

from .made import refused

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.slow

LONG = 30_000
CONFIG = {"n_params": 1_000_000, "learning_rate": 1e-3, "global_batch_size": 64, "seq_length": 128, "seed": 3}
LOSS = 2.0 + (np.arange(1, LONG + 1) / LONG) ** -0.3


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Where a server listens, and the ids of its runs by name: two in one experiment, others in a second."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--backend-store-uri"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options, f"sqlite:///{folder}/mlflow.db"],
            cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        for _ in range(240):
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"127.0.0.1:{port}", _log(f"http://127.0.0.1:{port}")
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def _log(address: str) -> dict[str, str]:
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient(address)
    ids = {}

    def run(experiment, name, *series, config=CONFIG):
        ids[name] = run_id = client.create_run(experiment, run_name=name).info.run_id
        client.log_batch(run_id, params=[Param(key, str(value)) for key, value in config.items()])
        for metric, steps, values, when in series:
            points = [Metric(metric, float(v), when, int(k)) for k, v in zip(steps, values, strict=True)]
            for first in range(0, len(points), 1000):
                client.log_batch(run_id, metrics=points[first : first + 1000])

    ladder, other = client.create_experiment("ladder of 2"), client.create_experiment("other/ones #1")
    run(ladder, "long", ("train_loss", range(1, LONG + 1), LOSS, 1000))
    run(ladder, "odd", ("train_loss", range(5), [3.0, np.nan, np.inf, -np.inf, 1.0], 1000), ("val_loss", [4], [2.0], 9))
    back = ("train_loss", range(1, 101), LOSS[:100] + 1.0, 1000), ("train_loss", range(60, 121), LOSS[59:120], 2000)
    run(other, "resumed", *back)
    run(other, "empty", config={})
    return ids


def test_all_runs_of_a_server_are_read(server):
    logs = find(f"mlflow+http://{server[0]}").logs
    assert sorted(log.name for log in logs) == ["long", "odd", "resumed"]
    assert len(find(f"mlflow+http://{server[0]}/").logs) == 3


def test_one_experiment_is_read(server):
    for name in ("ladder of 2", "ladder%20of%202", "1"):
        logs = find(f"mlflow+http://{server[0]}/{name}").logs
        assert sorted(log.name for log in logs) == ["long", "odd"]
    (log,) = find(f"mlflow+http://{server[0]}/other%2Fones #1").logs
    assert log.name == "resumed"


def test_one_run_is_read_whole_by_name_and_by_id(server):
    host, ids = server
    for name in ("long", ids["long"]):
        (log,) = find(f"mlflow+http://{host}/ladder of 2/{name}").logs
        assert (log.name, log.format) == ("long", "MLflow")
        assert log.source == f"mlflow+http://{host}/ladder of 2/{name}:{ids['long']}"
        assert np.array_equal(log.series["train_loss"].step, np.arange(1, LONG + 1))
        assert np.array_equal(log.series["train_loss"].value, LOSS)
    (got,) = read([f"mlflow+http://{host}/ladder of 2/long"]).runs
    assert (got.config.n_params, got.config.batch_tokens, got.config.seed) == (1e6, 8192.0, 3)
    assert np.array_equal(got.curve().loss, LOSS)


def test_values_that_are_no_numbers_come_as_they_were(server):
    (log,) = find(f"mlflow+http://{server[0]}/ladder of 2/odd").logs
    assert log.series["train_loss"].step.tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(log.series["train_loss"].value, [3.0, np.nan, np.inf, -np.inf, 1.0], equal_nan=True)
    assert log.series["val_loss"].value.tolist() == [2.0]


def test_of_a_resumed_run_the_branch_written_last_counts(server):
    found = read([f"mlflow+http://{server[0]}/other%2Fones #1/resumed"])
    expected = np.concatenate([LOSS[:59] + 1.0, LOSS[59:120]])
    assert np.array_equal(found.runs[0].curve().loss, expected)
    assert found.dropped == {"points rewritten after a resume": 41}


def test_what_is_not_there_is_named(server):
    start = f"mlflow+http://{server[0]}"
    said, _ = refused(f"{start}/none")
    assert said.startswith(f"{start}/none: no experiment 'none'; there are ") and "ladder of 2" in said
    said, _ = refused(f"{start}/ladder of 2/none")
    assert said.startswith(f"{start}/ladder of 2/none: no run 'none'; there are ") and "long" in said
    assert refused(f"{start}/other%2Fones #1/empty")[0] == (
        f"{start}/other%2Fones #1/empty: 1 runs there, none with a metric"
    )
    assert refused(f"{start}/Default")[0] == f"{start}/Default: 0 runs there, none with a metric"
    assert "write mlflow+http://host:port/experiment/run" in refused(f"{start}/a/b/c")[0]
    assert "write mlflow+http://host:port/experiment/run" in refused("mlflow+http://")[0]


def test_a_server_that_is_down_is_one_message_in_bounded_time(monkeypatch):
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    before = dict(os.environ)
    url = f"mlflow+http://127.0.0.1:{free_port()}"
    said, seconds = refused(url)
    assert said.startswith(f"{url}: MLflow's client says: ") and "is the server up" in said
    assert seconds < 30
    assert dict(os.environ) == before


class Failing(BaseHTTPRequestHandler):
    """Something else that speaks HTTP, or a server whose database is gone."""

    def do_GET(self):
        self.server.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"<html>")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("status", [200, 404, 503])
def test_what_is_no_mlflow_server_is_one_message_in_bounded_time(status):
    with HTTPServer(("127.0.0.1", 0), Failing) as other:
        other.asked, other.status = 0, status
        Thread(target=other.serve_forever, daemon=True).start()
        url = f"mlflow+http://127.0.0.1:{other.server_port}"
        said, seconds = refused(url)
        other.shutdown()
    assert said.startswith(f"{url}: MLflow's client says: ")
    assert seconds < 30 and other.asked <= 2


def test_limits_that_the_user_set_are_left(monkeypatch):
    name = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
    monkeypatch.setenv(name, "6")
    with mlflow_server._limits(mlflow_server.FIRST):
        assert (os.environ[name], os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]) == ("6", "30")
    assert os.environ[name] == "6" and "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ
