"""What a source holds of one run, as it was written: the value that every reader gives and all mending works on."""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from onecurve.fit import FloatArray
from onecurve.run import Setting

WORDS = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity")
"""What loggers write for values that JSON lacks."""
STEPS = ("step", "global_step", "current_steps", "training_iteration", "iteration", "iter", "_step", "num_steps")
"""What loggers call the step of a record."""
TORN, DAMAGED = "torn last records", "records with a wrong checksum"
"""What readers drop."""
GENERIC = ("metrics", "log", "logs", "train", "trainer_log", "tracker_metrics", "result", "training_log", "history")
"""Names of files that say nothing of their run, which is then called as its folder."""


@dataclass(frozen=True, eq=False)
class Series:
    """One metric in the order in which it was written: equally long vectors of steps and values.

    Steps need not rise: a resumed run writes some of them twice. Values may be non-finite.
    """

    step: FloatArray
    value: FloatArray

    @classmethod
    def of(cls, step: ArrayLike, value: ArrayLike) -> Series:
        """A series from anything that numpy turns into floats."""
        return cls(np.asarray(step, dtype=np.float64), np.asarray(value, dtype=np.float64))

    def __len__(self) -> int:
        return self.step.size


@dataclass(frozen=True)
class Log:
    """One run as its source has it."""

    name: str
    format: str
    """The reader that made it."""
    source: str
    """The file or folder that it was read from."""
    step_name: str
    """What its steps count in that source: step, iter, consumed samples, ..."""
    series: dict[str, Series]
    settings: dict[str, Setting] = field(default_factory=dict[str, Setting])
    """What the source records of the run's configuration, nested keys joined by dots."""
    notes: tuple[str, ...] = ()
    """What to know of this source: sampled, rounded, losses averaged over an interval, and the like."""
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """What the reader left out, counted: `TORN`, `DAMAGED`."""
    means: tuple[str, ...] = ()
    """Series whose points are means over the interval since the point before."""
    summaries: dict[str, Series] = field(default_factory=dict[str, Series])
    """What the source says of the whole run in a row among its points; at step nan where the row has none."""


def from_the_future(seconds: float, what: str) -> tuple[str, ...]:
    """A note where something is dated (in seconds since 1970) more than a day after now."""
    if not time.time() + 86_400 < seconds < np.inf:
        return ()
    day = np.datetime64(int(min(seconds, 1e11)), "s").astype("datetime64[D]")
    return (f"{what} are dated {day}, in the future: if a clock was wrong, so may be which branch was written last",)


def flat(tree: object, prefix: str = "") -> dict[str, Setting]:
    """The scalar leaves of nested dictionaries, keys joined by dots; lists and nulls are left out.

    Examples:
        >>> flat({"optim": {"lr": 0.1, "betas": [0.9, 0.95]}, "name": "a"})
        {'optim.lr': 0.1, 'name': 'a'}
    """
    out: dict[str, Setting] = {}
    pending: list[tuple[str, object]] = [(prefix, tree)]
    while pending:  # not by recursion: a hostile file may nest as deep as it likes
        name, value = pending.pop(0)
        if isinstance(value, dict):
            pending[:0] = [(f"{name}.{k}" if name else str(k), v) for k, v in value.items()]
        elif isinstance(value, (str, int, float, bool)) and name:
            out[name] = value
    return out


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
    if isinstance(value, str) and value.strip().lower() in WORDS:
        return float(value)
    return None


def positive(value: object) -> float | None:
    """A setting as a float, if it is a number above 0."""
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def as_setting(text: object) -> Setting:
    """A parameter that was stored as text, as the number that it is."""
    for kind in (int, float):
        try:
            return kind(str(text))
        except ValueError:
            continue
    return str(text)


def csv_header(head: bytes) -> list[str]:
    """The names in the first line of a CSV file; none where it is no CSV."""
    try:
        return next(csv.reader([head.split(b"\n", 1)[0].decode(errors="replace").strip()]), [])
    except csv.Error:
        return []


def lines_from(path: Path, offset: int) -> tuple[bytes, int]:
    """The whole lines after a byte offset, and the offset after them."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    whole = data.rfind(b"\n") + 1
    return data[:whole], offset + whole


def run_name(path: Path) -> str:
    """What a run is called that is a file: as the file, or as its folder where the file's name is everybody's."""
    folder = path.parent
    if path.stem not in GENERIC or not folder.name:
        return path.stem
    return f"{folder.parent.name}-{folder.name}" if folder.name.startswith("version_") else folder.name
