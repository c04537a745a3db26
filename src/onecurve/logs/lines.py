"""Logs of one record a line: JSON lines of several trainers, and console output."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log, Series, flat
from onecurve.run import Setting

STEPS = ("step", "global_step", "current_steps", "training_iteration", "iteration", "iter", "_step", "num_steps")
ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
MEGATRON = re.compile(rb"^\s*(?:\[[^\]]*\]\s*)?iteration\s+(\d+)/\s*(\d+)\s*\|(.*)\|", re.IGNORECASE)
VALIDATION = re.compile(rb"validation loss at iteration\s+(\d+)\b.*?\|(.*)\|", re.IGNORECASE)
TITAN = re.compile(rb"step:\s*(\d+)\s+.*?loss:\s*([-+.\deE]+|nan|inf)", re.IGNORECASE)
PAIRS = re.compile(rb"([A-Za-z_][\w ()-]*?):\s*([-+.\d][-+.\deE]*|nan|-?inf)", re.IGNORECASE)
NANO = re.compile(rb"^(?:iter|step)\s+(\d+)(?:/\d+)?\s*[:|]?\s*(?:\(.*?\)\s*)?(?:\|)?\s*(?=.*loss)", re.IGNORECASE)
NANO_LOSS = re.compile(rb"(train loss|val loss|loss)\s*:?\s*([-+.\d][-+.\deE]*|nan|-?inf)", re.IGNORECASE)
DUMP = re.compile(rb"^\s{2,}(\w+) \.{3,}\s*(\S.*?)\s*$")
"""A line of Megatron's dump of its arguments."""


class Points:
    """Points by name, as they come in."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[float]] = defaultdict(list)
        self.values: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, name: str, step: float, value: object) -> None:
        """One point; what is no number is left out."""
        number = as_number(value)
        if number is not None:
            self.steps[name].append(step)
            self.values[name].append(number)

    def series(self) -> dict[str, Series]:
        """All of them."""
        return {name: Series.of(self.steps[name], self.values[name]) for name in self.steps}


def as_number(value: object) -> float | None:
    """A logged value as a float: numbers, and the words for what JSON cannot say."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1e300 or value != value else float("inf") * (1 if value > 0 else -1)
    if isinstance(value, str) and value.strip().lower() in ("nan", "inf", "-inf", "infinity", "-infinity", "+inf"):
        return float(value)
    return None


def read_json_lines(path: Path) -> Log | None:
    """JSON lines of a trainer; None where no line holds a step and a metric of one, so that the file is a plain table.

    Understood are records with the metrics at the top level or under ``metrics`` (levanter, marin), records of one
    metric (torchtitan's traces: name and value), and flat records whose step has one of its usual names.
    """
    points, settings, torn, step_name = Points(), {}, 0, "step"
    for number, record, whole in records(path):
        if record is None:
            if whole:
                raise OnecurveError(f"{path}: line {number} is not JSON; mend or drop the line")
            torn += 1
            continue
        if record.get("event") in ("hparams", "summary", "log_hyperparameters", "log_summary"):
            inside = record.get("hparams", record.get("summary", record.get("metrics", {})))
            if record["event"] in ("hparams", "log_hyperparameters"):
                settings |= flat(inside)
            continue
        name = next((n for n in STEPS if isinstance(record.get(n), (int, float))), None)
        if name is None:
            continue
        step_name, step = name, float(record[name])
        if "log_type_name" in record and "value" in record:
            points.add(str(record["log_type_name"]), step, record["value"])
            continue
        metrics = record["metrics"] if isinstance(record.get("metrics"), dict) else record
        for key, value in flat_numbers(metrics):
            if key not in STEPS:
                points.add(key, step, value)
    series = points.series()
    if not series:
        return None
    dropped = {"torn last line": torn} if torn else {}
    return Log(path.parent.name or path.stem, "JSON lines", str(path), step_name, series, settings, dropped=dropped)


def flat_numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Metrics by name, one level of nesting joined by a slash."""
    for key, value in metrics.items():
        if isinstance(value, dict):
            for inner, number in value.items():
                yield f"{key}/{inner}", number
        else:
            yield str(key), value


def records(path: Path) -> Iterator[tuple[int, dict[str, Any] | None, bool]]:
    """Each line's number, its JSON object (None for what is none) and whether the line was ended."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            whole = line.endswith(b"\n")
            text = line.strip()
            if not text:
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError):
                record = None
            yield number, record if isinstance(record, dict) else None, whole


def read_console(path: Path) -> Log | None:
    """Console output of Megatron-LM, torchtitan or nanoGPT; None where no line looks like theirs."""
    points, settings, kinds, step_name = Points(), {}, set[str](), "step"
    with path.open("rb") as file:
        for line in file:
            text = ANSI.sub(b"", line).rstrip()
            if len(text) > 20_000:
                continue
            if match := MEGATRON.search(text):
                kinds.add("Megatron-LM")
                step_name = "iteration"
                _pairs(points, float(match[1]), match[3])
                settings.setdefault("train_iters", int(match[2]))
            elif match := VALIDATION.search(text):
                kinds.add("Megatron-LM")
                for name, value in PAIRS.findall(match[2]):
                    label = name.decode().strip()
                    points.add(
                        "lm loss validation" if label in ("lm loss value", "lm loss") else f"validation {label}",
                        float(match[1]),
                        float(value),
                    )
            elif ((match := TITAN.search(text)) and b"grad_norm" in text) or (match and b"tps" in text):
                kinds.add("torchtitan")
                for name, value in PAIRS.findall(text[match.start() :]):
                    points.add(name.decode().strip().lower(), float(match[1]), _float(value))
            elif match := NANO.search(text):
                kinds.add("nanoGPT")
                step_name = "iter"
                for name, value in NANO_LOSS.findall(text):
                    label = name.decode().lower()
                    points.add(
                        "train_loss_step" if label == "loss" else label.replace(" ", "_"),
                        float(match[1]),
                        _float(value),
                    )
            elif match := DUMP.match(text):
                settings[match[1].decode()] = _setting(match[2].decode(errors="replace"))
    series = points.series()
    series.pop("step", None)
    if not series:
        return None
    means = ("lm loss",) if "Megatron-LM" in kinds else ()
    notes = ("the loss of an iter line is that of one step's last micro-batch",) if "nanoGPT" in kinds else ()
    name = " and ".join(sorted(kinds)) + " console"
    return Log(path.stem, name, str(path), step_name, series, settings, notes, means=means)


def _pairs(points: Points, step: float, text: bytes) -> None:
    for part in text.split(b"|"):
        name, colon, value = part.partition(b":")
        if colon:
            points.add(name.decode(errors="replace").strip(), step, _float(value))


def _float(text: bytes) -> float | None:
    try:
        return float(text.replace(b",", b"").strip())
    except ValueError:
        return None


def _setting(text: str) -> Setting:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
