"""How the spread of normalised curves dies away towards the end of training (arXiv 2507.02119, eqs. 23-24).

A curve divided by its own end differs from the others only by the noise still to come. To first order in the
gradient-flow time that is left, ``D(x)^2 = const * s(x) * (tau(1) - tau(x))`` with s the rate over its peak: the spread
falls like ``sqrt(1 - x)`` at a constant rate, and like ``(1 - x)^1.5`` under decay to zero. With the training fraction
in place of the flow time, ``s (1 - x)``, as the paper's figure can be read, the last is ``(1 - x)``; both are reported.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.laws.path import path_of
from onecurve.measure.result import Collapse

WINDOW = (0.8, 0.98)
LEAST = 5
"""Fractions in the window below which no slope is fitted."""


@dataclass(frozen=True)
class Fade:
    """One spread against what eq. 24 predicts of it near the end."""

    what: str
    slope: float
    """Of log spread against log (1 - x)."""
    flow_slope: float
    """The slope predicted with what is left of gradient-flow time."""
    fraction_slope: float
    """The slope predicted with what is left of the training fraction."""
    flow_error: float
    """RMS of log(spread / prediction) once the prediction's constant is fitted."""
    fraction_error: float


@dataclass(frozen=True)
class EndOfTraining:
    """Measured and predicted fading of the spreads, fractions .8 to .98."""

    fraction: FloatArray
    deviation: FloatArray
    predicted: FloatArray
    """Delta by the better reading, its constant fitted."""
    fades: tuple[Fade, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return {"law": "variance", **asdict(self)}

    def __str__(self) -> str:
        lines = [f"spread near the end of training, x = {WINDOW[0]:g} to {WINDOW[1]:g}: slope against log (1 - x)"]
        lines += [
            f"  {f.what}: measured {f.slope:.3f}; predicted {f.flow_slope:.3f} (flow time left, off by "
            f"{f.flow_error:.0%}), {f.fraction_slope:.3f} (fraction left, off by {f.fraction_error:.0%})"
            for f in self.fades
        ]
        return "\n".join(lines)


def fade(result: Collapse) -> EndOfTraining:
    """Compare a collapse's spreads near the end with eq. 24.

    The schedule is that of its largest run. Raises OnecurveError where that is not recorded.
    """
    path = path_of(result.sampled.runs[-1])
    x = result.fraction
    s = path.at(x * path.x[-1], path.s)
    tau = path.at(x * path.x[-1], path.tau) / path.x[-1]
    here = (x >= WINDOW[0] - 1e-9) & (x <= WINDOW[1] + 1e-9)
    if here.sum() < LEAST or not np.all(s[here] > 0):
        raise OnecurveError(
            f"{int(here.sum())} fractions between {WINDOW[0]:g} and {WINDOW[1]:g} with a rate above 0: at least "
            f"{LEAST} are needed to follow the spread"
        )
    flow = np.sqrt(s * (tau[-1] - tau))[here]
    fraction = np.sqrt(s * (1.0 - x))[here]
    left = np.log(1.0 - x[here])
    fades = []
    best = fraction
    for what, spread in (
        ("deviation", result.deviation),
        ("noise of normalised curves", result.noise_floor_normalized),
    ):
        y = spread[here]
        if not np.all(np.isfinite(y) & (y > 0)):
            continue
        errors = [float(np.std(np.log(y / p))) for p in (flow, fraction)]
        slopes = [float(np.polyfit(left, np.log(v), 1)[0]) for v in (y, flow, fraction)]
        fades.append(Fade(what, *slopes, *errors))
        if what == "deviation":
            shape = flow if errors[0] < errors[1] else fraction
            best = shape * np.exp(np.mean(np.log(y / shape)))
    return EndOfTraining(x[here], result.deviation[here], best, tuple(fades))
