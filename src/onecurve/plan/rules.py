"""Published rules for what a family trains with, as power laws, each with its source and what it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from onecurve.run import FloatArray


@dataclass(frozen=True)
class PowerRule:
    """``scale * x ** exponent``, with the range of x behind it.

    Examples:
        >>> [round(float(TIMESCALES["celerity"](tpp)), 3) for tpp in (20.0, 80.0, 234.0)]
        [0.175, 0.087, 0.051]
        >>> [round(float(TIMESCALES["power-lines"](tpp)), 3) for tpp in (20.0, 80.0, 234.0)]
        [0.224, 0.108, 0.061]
    """

    scale: float
    exponent: float
    source: str
    low: float = 0.0
    """The smallest and the largest x that the rule was fitted to or used at; beyond, it is an extrapolation."""
    high: float = np.inf
    interval: tuple[float, float] | None = None
    """Of the exponent, where the source gives one."""

    def __call__(self, x: FloatArray | float) -> FloatArray:
        """The rule's value at x."""
        return self.scale * np.asarray(x, dtype=np.float64) ** self.exponent

    def extrapolates(self, x: float) -> bool:
        """Whether x lies outside the rule's range, by more than rounding."""
        return not 0.99 * self.low <= x <= 1.01 * self.high


TIMESCALES: Mapping[str, PowerRule] = MappingProxyType(
    {
        "power-lines": PowerRule(
            1.084,
            -0.527,
            "arXiv 2505.13738, fitted to weight-decay sweeps; the range is that of arXiv 2509.25087's families",
            20.0,
            320.0,
            (-0.529, -0.507),
        ),
        "celerity": PowerRule(
            0.782, -0.5, "read off the three bands of arXiv 2509.25087, section 4 (.175, .087, .051)", 20.0, 234.0
        ),
    }
)
"""The best timescale tau against tokens per parameter, by name; the interval is the bootstrap's central 80 %."""

BATCH_EXPONENTS: Mapping[float, str] = MappingProxyType(
    {
        0.383: "arXiv 2505.13738: the best batch grows as D^.383 (bootstrap .367 to .391), whatever N",
        0.5: "arXiv 2509.25087, section 4: batch as the square root of D",
    }
)
"""Published exponents of the batch against tokens."""
