"""W&B's cloud: its own client, against a server that answers as its public API does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from onecurve import read
from onecurve.logs import find, wandb_cloud

from .made import refused

wandb = pytest.importorskip("wandb")
pytestmark = pytest.mark.slow

CONFIG = {"n_params": 1e6, "learning_rate": 1e-3, "data": {"seed": 3}, "global_batch_size": 64, "seq_length": 128}
STEPS = np.arange(2500)
LOSS = np.random.default_rng(0).standard_normal(2500) * 10.0 ** np.linspace(-290, 290, 2500)


def run(name, rows, last=None, **more):
    """A run as the API has it: its history as JSON, a line a row."""
    return {
        "projectId": "1", "id": name, "tags": [], "name": name, "displayName": f"the {name}", "sweepName": None,
        "state": "finished", "group": None, "jobType": None, "commit": None, "readOnly": False, "notes": None,
        "createdAt": "2026-01-01T00:00:00", "heartbeatAt": "2026-01-01T00:00:00", "description": "",
        "user": {"name": "u", "username": "u"},
        "config": json.dumps({k: {"value": v, "desc": None} for k, v in CONFIG.items()} | {"_wandb": {"value": {}}}),
        "systemMetrics": "{}", "summaryMetrics": "{}", "historyLineCount": len(rows),
        "historyKeys": {"lastStep": (rows[-1]["_step"] if rows else -1) if last is None else last}, "rows": rows,
    } | more  # fmt: skip


def rows(values, steps=STEPS, name="train/loss"):
    return [{"_step": int(k), "_runtime": 0.5, name: v} for k, v in zip(steps, values, strict=False)]


class Handler(BaseHTTPRequestHandler):
    """Answers GraphQL by the name of the query, and anything else with nothing."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            asked = json.loads(body)
            name, told = re.findall(r"query\s+(\w+)", asked["query"])[0], asked.get("variables") or {}
        except (ValueError, LookupError, TypeError):
            name, told = "", {}
        self.server.asked.append((name, told))
        status = self.server.status(name, told)
        answer = json.dumps({"data": self.answer(name, told)}).encode() if status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST  # noqa: N815

    def answer(self, name, told):
        runs = self.server.projects.get(told.get("project"))
        one = (runs or {}).get(told.get("name") or told.get("run") or told.get("runName"))
        match name:
            case "Viewer" | "GetDefaultEntity":
                return {
                    "viewer": {"id": "u", "entity": "team", "username": "u", "name": "u", "email": "", "flags": "{}"}
                }
            case "Run" | "RunHistoryKeys":
                return {"project": runs and {"run": one and {k: v for k, v in one.items() if k != "rows"}}}
            case "Runs":
                light = [{k: v for k, v in one.items() if k not in ("config", "rows")} for one in (runs or {}).values()]
                nodes = [{"node": one, "cursor": one["id"]} for one in light]
                page = {"edges": nodes, "pageInfo": {"endCursor": "", "hasNextPage": False}}
                return {
                    "project": runs and {"internalId": "1", "runCount": len(nodes), "readOnly": False, "runs": page}
                }
            case "RunParquetHistory":
                return {"project": {"run": {"parquetHistory": {"parquetUrls": [], "liveData": []}}}}
            case "HistoryPage":
                within = [r for r in one["rows"] if told["minStep"] <= r["_step"] < told["maxStep"]]
                return {"project": {"run": {"history": [json.dumps(r) for r in within]}}}
        return {}

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.status = [], lambda name, told: 200
    server.projects = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {name: str(tmp_path / "own") for name in ("HOME", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR")}
    environment |= {"WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "0" * 40}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()
    wandb.teardown()  # its settings are read anew from the next test's environment


def test_the_full_history_comes_to_the_last_bit(server):
    server.projects = {"p": {"a": run("a", rows(LOSS.tolist()))}}
    (log,) = find("wandb://team/p/a").logs
    assert (log.name, log.format, log.source) == ("the a", "W&B", "wandb://team/p/a")
    assert list(log.series) == ["train/loss"]
    assert np.array_equal(log.series["train/loss"].step, STEPS)
    assert np.array_equal(log.series["train/loss"].value, LOSS)
    assert log.notes == ()
    assert [told["minStep"] for name, told in server.asked if name == "HistoryPage"] == [0, 1000, 2000]


def test_the_config_is_the_settings(server):
    server.projects = {"p": {"a": run("a", rows([2.0, 1.5, 1.0]))}}
    assert find("wandb://team/p/a").logs[0].settings == {
        "n_params": 1e6, "learning_rate": 1e-3, "data.seed": 3, "global_batch_size": 64, "seq_length": 128,
    }  # fmt: skip
    (got,) = read(["wandb://team/p/a"]).runs
    assert (got.config.n_params, got.config.batch_tokens, got.config.seed) == (1e6, 8192.0, 3)
    assert got.curve().x.tolist() == [0.0, 8192.0, 16384.0]


def test_words_for_values_that_json_lacks_are_values(server):
    server.projects = {"p": {"a": run("a", rows([1.0, "NaN", "Infinity", "-Infinity", None, "text", True, 2.0]))}}
    series = find("wandb://team/p/a").logs[0].series["train/loss"]
    assert series.step.tolist() == [0, 1, 2, 3, 7]
    assert np.array_equal(series.value, [1.0, np.nan, np.inf, -np.inf, 2.0], equal_nan=True)


def test_nested_metrics_are_joined_by_a_slash(server):
    made = [{"_step": k, "train": {"loss": 2.0, "_x": 1}, "image": {"_type": "image-file", "size": 9}} for k in (0, 1)]
    server.projects = {"p": {"a": run("a", made)}}
    assert sorted(find("wandb://team/p/a").logs[0].series) == ["train/_x", "train/loss"]


def test_metrics_logged_apart_all_come(server):
    made = rows(LOSS[:10].tolist()) + rows([3.0], steps=[10], name="val_loss")
    server.projects = {"p": {"a": run("a", made)}}
    assert {k: len(s) for k, s in find("wandb://team/p/a").logs[0].series.items()} == {"train/loss": 10, "val_loss": 1}


def test_steps_that_count_tokens_take_few_pages(server):
    steps = STEPS * 4_000_000
    server.projects = {"p": {"a": run("a", rows(LOSS.tolist(), steps))}}
    series = find("wandb://team/p/a").logs[0].series["train/loss"]
    assert np.array_equal(series.step, steps) and np.array_equal(series.value, LOSS)
    assert 2 <= sum(name == "HistoryPage" for name, _ in server.asked) <= 4


def test_all_runs_of_a_project_are_read(server):
    made = {name: run(name, rows([start, 1.0])) for name, start in (("a", 3.0), ("b", 4.0))}
    server.projects = {"p": made | {"empty": run("empty", [])}}
    found = find("wandb://team/p")
    assert [(log.name, log.source) for log in found.logs] == [
        ("the a", "wandb://team/p/a"), ("the b", "wandb://team/p/b"),
    ]  # fmt: skip
    assert [log.settings["n_params"] for log in found.logs] == [1e6, 1e6]
    table = read(["wandb://team/p"])
    assert [run.curve().loss.tolist() for run in table.runs] == [[3.0, 1.0], [4.0, 1.0]]
    told = [warning for warning in table.warnings if "left out" in warning]
    assert len(told) == 1 and "wandb://team/p/empty: 0 rows and no metric; nothing logged" in told[0]


def test_an_empty_history_of_a_run_that_has_steps_is_named(server):
    server.projects = {"p": {"a": run("a", [], last=900)}}
    said, _ = refused("wandb://team/p/a")
    assert said == (
        "wandb://team/p/a: 0 rows and no metric; the run has steps up to 900, but its history came empty: try again"
    )


def test_a_history_that_ends_early_is_named(server):
    server.projects = {"p": {"a": run("a", rows([2.0, 1.0]), last=900)}}
    (log,) = find("wandb://team/p/a").logs
    assert log.notes == ("the last step is 900, the history that came ends at 1",)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("wandb://team", "write wandb://entity/project/run"),
        ("wandb://team/p/runs/a", "write wandb://entity/project/run"),
        ("wandb://team/p/none", "Could not find run"),
        ("wandb://team/none", "Could not find project none"),
        ("wandb://team/none/a", "Could not find run"),
        ("wandb://team/bare", "this project has no runs"),
    ],
)
def test_what_is_not_there_is_named(server, url, words):
    server.projects = {"p": {"a": run("a", rows([1.0]))}, "bare": {}}
    said, seconds = refused(url)
    assert said.startswith(f"{url}: ") and words in said
    assert seconds < 20


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_one_message(server, status):
    server.status = lambda name, told: status
    said, seconds = refused("wandb://team/p/a")
    assert said.startswith("wandb://team/p/a: W&B's client says: ") and "verify credentials" in said
    assert "wandb login" in said and seconds < 20


def test_a_server_that_fails_is_given_up_in_bounded_time(server, monkeypatch):
    monkeypatch.setattr(wandb_cloud, "RETRIES", 1)
    server.projects = {"p": {"a": run("a", rows(LOSS.tolist()))}}
    server.status = lambda name, told: 503 if told.get("minStep", 0) >= 1000 else 200
    said, seconds = refused("wandb://team/p/a")  # in the middle of a history
    assert "giving up after 2 attempt(s)" in said and seconds < 30
    assert wandb.setup().settings.x_graphql_retry_max is None  # as it was


def test_a_server_that_is_down_is_one_message_in_bounded_time(server):
    server.shutdown()
    server.server_close()
    said, seconds = refused("wandb://team/p/a")
    assert "connection refused" in said and "giving up" in said
    assert seconds < 75


def test_without_a_key_nobody_is_asked(server, monkeypatch, tmp_path):
    pty = pytest.importorskip("pty")
    monkeypatch.delenv("WANDB_API_KEY")
    main, terminal = pty.openpty()
    script = "from onecurve.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "read", "wandb://team/p"], stdin=terminal, stderr=terminal, cwd=tmp_path,
        env=os.environ | {"TERM": "xterm"}, timeout=60, check=False,
    )  # fmt: skip
    os.close(terminal)
    said = os.read(main, 100_000).decode()
    os.close(main)
    assert done.returncode == 2
    assert said.startswith("onecurve: wandb://team/p: ") and "wandb login" in said and len(said.splitlines()) == 1, said
