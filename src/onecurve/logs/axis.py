"""From the steps of a log to tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.frame import TOKENS
from onecurve.logs.clean import mend
from onecurve.logs.log import STEPS, Log, Series, positive
from onecurve.run import Setting, human

CONSTANT = 1e-3
"""Tokens a step count as constant within this."""


@dataclass(frozen=True)
class Axis:
    """What a step is in tokens: one number, or a count that was logged, or not known."""

    words: str
    """Where that is known from."""
    per_step: float | None = None
    counted: Series | None = None

    @property
    def known(self) -> bool:
        """Whether steps can be put on tokens."""
        return self.per_step is not None or self.counted is not None

    def tokens(self, step: FloatArray) -> FloatArray:
        """Tokens at steps: between logged counts on a straight line, beyond them as between the nearest two."""
        if self.counted is None:
            return step * (self.per_step or np.nan)
        x, y = self.counted.step, self.counted.value
        k = np.clip(np.searchsorted(x, step), 1, x.size - 1)
        return y[k - 1] + (step - x[k - 1]) * (y[k] - y[k - 1]) / (x[k] - x[k - 1])


def axis_of(log: Log, known: dict[str, Setting], told: str | None = None) -> Axis:
    """What a step of a log is in tokens.

    From the series ``told``, or one with a usual name: one number where it grows evenly, else count by count (a batch
    that is ramped up). Without one, batch x length of the settings. Raises OnecurveError where ``told`` is no series.
    """
    if told in (*STEPS, log.step_name):
        return Axis(f"not asked for: x is {told}")
    if told is not None and told not in log.series:
        raise OnecurveError(f"{log.source}: no series {told!r} for --x; it has {', '.join(sorted(log.series)[:20])}")
    name = told or next((n for n in TOKENS if n in log.series and len(log.series[n]) > 1), None)
    batch = positive(known.get("batch_tokens"))
    if name is None:
        if batch:
            return Axis("batch x length of its settings", batch)
        return Axis("no tokens logged, and no batch in its settings")
    s, _ = mend(log.series[name])
    use = (s.step > 0) & np.isfinite(s.value) & (s.value > 0)
    s = Series(s.step[use], s.value[use])
    if len(s) < 2 or np.any(np.diff(s.value) <= 0):
        return Axis(f"{name} does not grow with the steps")
    slope = float(np.polyfit(s.step, s.value, 1)[0])
    if np.ptp(s.value - slope * s.step) > CONSTANT * float(s.value.max()):
        return Axis(f"{name}, count by count: its growth a step changes", counted=s)
    if abs(slope - round(slope)) < 1e-6 * slope:
        slope = float(round(slope))
    words = f"{name}, {human(slope)} a step"
    if batch and abs(slope / batch - 1.0) > 0.01:
        words += f"; step x batch x length would be {human(batch)} a step, a factor {slope / batch:.4g}"
    return Axis(words, slope)


def micro_batches(log: Log, known: dict[str, Setting], axis: Axis) -> str | None:
    """A sentence where a log's steps look like micro-batches, of which several make one step of the optimiser.

    They do where they run up to that many times beyond the planned steps, or where a step's tokens are that share of
    the batch.
    """
    count, planned = positive(known.get("accumulation")), positive(known.get("planned_steps"))
    batch = positive(known.get("batch_tokens"))
    if count is None or count < 2:
        return None
    last = max((float(s.step.max()) for s in log.series.values() if len(s)), default=0.0)
    if planned and planned + 1 < last <= planned * count + 1:
        why = f"they run to {last:g} where {planned:g} are planned"
    elif axis.per_step and batch and abs(axis.per_step * count / batch - 1.0) < 0.01:
        why = "a step's tokens are that share of the batch"
    else:
        return None
    return (
        f"its steps look like micro-batches, {count:g} to a step of the optimiser ({why}); log the optimiser's steps, "
        "or choose a series of tokens with --x"
    )
