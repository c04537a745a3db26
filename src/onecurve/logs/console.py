"""Console output of Megatron-LM, torchtitan and nanoGPT."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from onecurve.logs.log import Log, Points, lines_from
from onecurve.run import Setting

FORMAT = "console output"
SUFFIXES = (".log", ".txt", ".out", ".err")
ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
MEGATRON = re.compile(rb"^\s*(?:\[[^\]]*\]\s*)?iteration\s+(\d+)/\s*(\d+)\s*\|(.*)\|", re.IGNORECASE)
VALIDATION = re.compile(rb"validation loss at iteration\s+(\d+)\b.*?\|(.*)\|", re.IGNORECASE)
TITAN = re.compile(rb"step:\s*(\d+)\s+.*?loss:\s*([-+.\deE]+|nan|inf)", re.IGNORECASE)
PAIRS = re.compile(rb"([A-Za-z_][\w ()-]*?):\s*([-+.\d][-+.\deE]*|nan|-?inf)", re.IGNORECASE)
NANO = re.compile(rb"^(?:iter|step)\s+(\d+)(?:/\d+)?\s*[:|]?\s*(?:\(.*?\)\s*)?(?:\|)?\s*(?=.*loss)", re.IGNORECASE)
NANO_LOSS = re.compile(rb"(train loss|val loss|loss)\s*:?\s*([-+.\d][-+.\deE]*|nan|-?inf)", re.IGNORECASE)
DUMP = re.compile(rb"^\s{2,}(\w+) \.{3,}\s*(\S.*?)\s*$")
"""A line of Megatron's dump of its arguments."""
TOLD = {
    "n_params": re.compile(rb"(?:size: |number of parameters: )([\d,.]+[KMB]?)(?: total parameters)?"),
    "tokens_per_step": re.compile(rb"tokens per iteration will be: ([\d,]+)"),
    "global_batch_size": re.compile(rb"Training starts at step.*global batch size (\d+)"),
    "seq_len": re.compile(rb"Training starts at step.*sequence length (\d+)"),
    "total_steps": re.compile(rb"Training starts at step.*total steps (\d+)"),
    "warmup_steps": re.compile(rb"Training starts at step.*\(warmup (\d+)"),
}
"""What torchtitan and nanoGPT say of their settings before they start."""
UNITS = {b"K": 1e3, b"M": 1e6, b"B": 1e9}


def claims(path: Path, head: bytes) -> bool:
    """Whether a file may hold console output: what it holds is seen by reading it."""
    return path.suffix.lower() in SUFFIXES and b"\0" not in head


def place(path: Path) -> Path:
    """Each file is a run of its own."""
    return path


def read(paths: Sequence[Path]) -> list[Log]:
    """The run in one file; none where no line looks like one of a trainer that is known."""
    (path,) = paths
    with path.open("rb") as file:
        return _parse(path, file)


def tail(path: Path, offset: int) -> tuple[list[Log], int]:
    """What whole lines follow an offset."""
    data, end = lines_from(path, offset)
    return _parse(path, data.splitlines(keepends=True)), end


def _parse(path: Path, lines: Iterable[bytes]) -> list[Log]:
    points, settings, kinds, step_name = Points(), dict[str, Setting](), set[str](), "step"
    for line in lines:
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
        else:
            for name, pattern in TOLD.items():
                if (match := pattern.search(text)) and (number := _float(match[1].rstrip(b"KMB."))) is not None:
                    settings[name] = number * UNITS.get(match[1][-1:], 1.0)
    series = points.series()
    series.pop("step", None)
    if not series:
        return []
    means = ("lm loss",) if "Megatron-LM" in kinds else ()
    notes = ("the loss of an iter line is that of one step's last micro-batch",) if "nanoGPT" in kinds else ()
    name = " and ".join(sorted(kinds)) + " console"
    return [Log(path.stem, name, str(path), step_name, series, settings, notes, means=means)]


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
