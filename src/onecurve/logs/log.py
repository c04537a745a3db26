"""What a source holds of one run, as it was written: the value that every reader gives and all mending works on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from onecurve.fit import FloatArray
from onecurve.run import Setting


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
    """What the reader left out, counted: summary rows, torn lines."""
    means: tuple[str, ...] = ()
    """Series whose points are means over the interval since the point before."""


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
