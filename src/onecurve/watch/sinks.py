"""Where alarms go: a file, a webhook. A sink takes an event and says whether it has it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from onecurve.errors import OnecurveError
from onecurve.store import dumps

Sink = Callable[[dict[str, Any]], bool]
Form = Literal["json", "slack", "discord"]
PATIENCE = 5.0
"""Seconds that a webhook may take; then it is tried again the next time."""


def to_file(path: Path) -> Sink:
    """Events appended to a file as JSON lines."""

    def take(event: dict[str, Any]) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(dumps({k: v for k, v in event.items() if k != "for"}) + "\n")
        return True

    return take


def to_webhook(url: str, form: Form = "json") -> Sink:
    """Events posted to an address, as JSON or in the form that Slack or Discord takes.

    What is not taken within five seconds counts as not taken. Raises OnecurveError for an address that is not http(s);
    the address, which may be a secret, is in no message.
    """
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise OnecurveError("--webhook is no http or https address")

    def take(event: dict[str, Any]) -> bool:
        plain = {k: v for k, v in event.items() if k != "for"}
        near = f"; near it: {', '.join(event['near'])}" if event.get("near") else ""
        text = f"{event['run']}: {event['severity']}: {event['text']}{near}"
        body = {"json": plain, "slack": {"text": text}, "discord": {"content": text[:1900]}}[form]
        request = urllib.request.Request(
            url, json.dumps(json.loads(dumps(body))).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return 200 <= answer.status < 300
        except (urllib.error.URLError, OSError, ValueError):
            return False

    return take
