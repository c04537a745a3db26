"""Runs followed on disk: each event once, whatever happens to the log, the watcher or the webhook."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from onecurve import OnecurveError, Schedule
from onecurve.run import Signal
from onecurve.watch.reference import Reference
from onecurve.watch.sinks import to_file, to_webhook
from onecurve.watch.watcher import Told, Watcher, mismatch, near

from .conftest import family, healthy, until, with_fault

REF = Reference.of(family(seeds=4))
RUN = with_fault(healthy(3.2e6, 5, name="big"), lambda f: np.where(f > 0.6, 1.06, 1.0))


def kinds(told: list[Told]) -> list[str]:
    return [t.event.kind for t in told]


def test_a_growing_log_is_told_of_once():
    watcher, out = Watcher(REF, 7.0), []
    for k in range(1, 101):
        out += watcher.look([until(RUN, k / 100)])
        assert watcher.look([until(RUN, k / 100)]) == []
    assert kinds(out) == ["aligned", "departure"]
    alone = Watcher(REF, 7.0).look([RUN], over=True)
    assert [t.event for t in alone] == [t.event for t in out]


def test_a_watcher_that_starts_again_repeats_nothing_and_loses_nothing(tmp_path):
    memory = tmp_path / "state" / "told.json"
    first = Watcher(REF, 7.0, memory).look([until(RUN, 0.55)])
    again = Watcher(REF, 7.0, memory)
    assert kinds(first) == ["aligned"] and again.look([until(RUN, 0.55)]) == []
    assert kinds(again.look([RUN])) == ["departure"]
    assert Watcher(REF, 7.0, memory).look([RUN]) == []
    memory.write_text("{")
    with pytest.raises(OnecurveError, match="not what a watcher wrote"):
        Watcher(REF, 7.0, memory)


def test_a_log_that_was_cut_back_and_goes_on_is_folded_anew():
    watcher = Watcher(REF, 7.0)
    assert kinds(watcher.look([until(RUN, 0.8)])) == ["aligned", "departure"]
    mended = with_fault(healthy(3.2e6, 6, name="big"), lambda f: 1.0 + 0 * f)  # resumed from before the fault
    assert watcher.look([until(mended, 0.58)]) == []
    assert watcher.look([mended]) == [] and "departure" not in [e.kind for e in watcher.runs["big"].events]


def test_what_happened_near_is_named(tmp_path):
    c = RUN.config
    step = round(0.6 * 1000)
    lines = [
        {"event": "start", "step": 0, "micro_batch": 8, "world_size": 4},
        {"event": "checkpoint", "step": step - 2, "micro_batch": 8},
        {"event": "resume", "step": step, "micro_batch": 2, "world_size": 4, "points_cut": 3},
        {"event": "resume", "step": 100, "micro_batch": 2},
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"torn')
    x = np.arange(1, 101) / 100 * RUN.end
    rate = 0.01 * c.schedule(x / RUN.end) * np.where(x / RUN.end > 0.6, 1.4, 1.0)
    run = replace(RUN, source=str(tmp_path), signals={"learning_rate": Signal(x, rate)})
    (told,) = (t for t in Watcher(REF, 7.0).look([run]) if t.event.kind == "departure")
    assert told.near[0] == "resume at 60.0% (micro_batch 8 to 2)"
    assert told.near[-1].startswith("learning rate") and "planned" in told.near[-1]
    assert not any("10.0%" in text or "checkpoint" in text for text in told.near)
    assert "near it: resume at 60.0%" in str(told) and told.to_dict()["near"] == list(told.near)


def test_other_controls_are_named():
    assert mismatch(healthy(3.2e6, 0), REF) == []
    odd = healthy(3.2e6, 0)
    odd = replace(odd, config=odd.config.model_copy(update={"weight_decay": 1.0, "schedule": Schedule(shape="cosine")}))
    (event,) = mismatch(odd, REF)
    assert "timescale is 0.000781" in event.text or "timescale" in event.text
    assert "cosine" in event.text and event.severity == "warning"
    assert near(odd, event) == ()


def test_a_run_without_a_horizon_is_refused():
    lacking = replace(RUN, config=RUN.config.model_copy(update={"horizon": None}))
    with pytest.raises(OnecurveError, match="states no horizon"):
        Watcher(REF, 7.0).look([lacking])


class Answering:
    """A webhook on loopback that answers as it is told."""

    def __init__(self) -> None:
        self.status, self.bodies = 200, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *args) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def webhook():
    server = Answering()
    yield server
    server.close()


def test_a_webhook_that_is_down_gets_everything_once_it_is_up(tmp_path, webhook):
    memory, file = tmp_path / "told.json", tmp_path / "events.jsonl"
    sinks = [to_file(file), to_webhook(webhook.url)]
    webhook.status = 500
    watcher = Watcher(REF, 7.0, memory)
    watcher.look([RUN])
    watcher.deliver(sinks)
    assert len(watcher.pending) == 2 and len(webhook.bodies) == 2
    webhook.status, webhook.bodies = 200, []
    again = Watcher(REF, 7.0, memory)  # started anew in between
    again.deliver(sinks)
    again.deliver(sinks)
    assert [body["kind"] for body in webhook.bodies] == ["aligned", "departure"] and again.pending == []
    assert [json.loads(line)["kind"] for line in file.read_text().splitlines()] == ["aligned", "departure"]


@pytest.mark.parametrize(("form", "field"), [("slack", "text"), ("discord", "content")])
def test_forms_of_chat_services(webhook, form, field):
    event = {"run": "a", "severity": "alarm", "text": "t", "kind": "departure", "near": ["resume at 1%"]}
    assert to_webhook(webhook.url, form)(event)
    assert webhook.bodies == [{field: "a: alarm: t; near it: resume at 1%"}]


def test_addresses_that_are_none():
    assert not to_webhook("http://127.0.0.1:9/")({"run": "a", "severity": "alarm", "text": "t"})
    for address in ("file:///etc/passwd", "ftp://a/b", "nonsense", "http://"):
        with pytest.raises(OnecurveError, match="--webhook is no http or https address") as caught:
            to_webhook(address)
        assert address not in str(caught.value)
