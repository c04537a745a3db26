"""The learning rate along a run: how far it has come, and what its recent and its average rate were.

Everything here is relative to the peak: ``s`` is the rate over its peak, and gradient-flow time ``tau`` is s summed
over x, so at a constant rate tau = x. Sums are cumulative, so the cost is linear in the points of a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onecurve.errors import OnecurveError
from onecurve.run import FloatArray, Run

STEPS = 20_000
"""Points of a path made from a schedule; their spacing is the error of a fraction."""

DECAYED = 0.99
"""A rate below this share of its peak counts as decayed, once the warmup is over."""
EVERY_STEP = 1000
"""A rate logged this often, evenly from its first point on, is taken as that of every step: each holds for its step."""


@dataclass(frozen=True)
class Path:
    """The rate of one run on a fine grid of its x axis."""

    x: FloatArray
    """(T,) rises strictly from 0."""
    s: FloatArray
    """(T,) rate over its peak, in [0, 1]."""
    tau: FloatArray
    """(T,) gradient-flow time: the integral of s over x (trapezoid)."""
    warm: float
    """x at which the warmup ends."""

    @property
    def after_warmup(self) -> FloatArray:
        """(T,) s with the warmup as 1: the rise to the peak is no decay."""
        return np.where(self.x < self.warm, 1.0, self.s)

    def at(self, x: ArrayLike, values: FloatArray) -> FloatArray:
        """Values of the path at other x, linearly between its points."""
        return np.interp(np.asarray(x, dtype=np.float64), self.x, values)

    def mean(self, weight: float) -> FloatArray:
        """The mean of s over tau so far, with weight tau^weight; the warmup counts as 1.

        Weight 0 is the plain mean along the path; with a large weight k it is s about 1 / k of tau ago.
        """
        s = self.after_warmup
        middle = np.concatenate([s[:1], 0.5 * (s[1:] + s[:-1])])
        out = np.ones_like(s)
        power = weight + 1.0
        log_tau = np.log(np.maximum(self.tau, np.finfo(float).tiny))
        # Within a decade of tau the weights differ by no more than 10^power; older parts weigh nothing if that is much.
        top = float(log_tau[-1])
        decade = np.log(10.0) if power > 4.0 else np.inf
        while True:
            here = (log_tau <= top) & (log_tau > top - decade)
            share = np.exp(power * np.minimum(log_tau - top, 0.0))
            weights = np.diff(share, prepend=0.0)
            sums, total = np.cumsum(weights * middle), np.cumsum(weights)
            ok = here & (total > 0)
            out[ok] = sums[ok] / total[ok]
            top -= decade
            if not np.isfinite(top) or not np.any(log_tau[self.tau > 0] <= top):
                return out


def path_of(run: Run) -> Path:
    """The path of a run: from its schedule where that is recorded, else from its logged learning rate.

    Raises OnecurveError for a run that records neither.
    """
    c = run.config
    if c.schedule is not None:
        end = run.end
        x = np.linspace(0.0, end, STEPS + 1)
        return _path(x, c.schedule(x / end), c.schedule.warmup * end)
    if "learning_rate" not in run.signals:
        raise OnecurveError(
            f"{run.where}: records neither its schedule nor its learning rate at each point; a law of schedules needs "
            "one (columns schedule and warmup of the run table, or learning_rate of the curves)"
            if run.curves
            else f"{run.where}: this law needs a schedule, and the runs of its fit share none; give it with --schedule"
        )
    logged = run.signals["learning_rate"]
    peak = float(np.max(logged.value))
    if not peak > 0:
        raise OnecurveError(f"{run.where}: its logged learning rate is never above 0")
    spacing = float(logged.x[0])
    if logged.x.size >= EVERY_STEP and np.allclose(np.diff(logged.x), spacing, rtol=1e-9, atol=0.0):
        return path_from(logged.value, spacing)
    s = logged.value / peak
    warm = float(logged.x[int(np.argmax(s >= 0.999))])
    if logged.x[0] > 0:
        # Before the first logged point: a warmup from 0 if the first rate is at the peak, as logs begin after it.
        x = np.concatenate([[0.0], logged.x])
        s = np.concatenate([[0.0 if s[0] >= 0.999 else s[0]], s])
        return _path(x, s, warm)
    return _path(logged.x, s, warm)


def constant_rate(run: Run) -> bool | None:
    """Whether a run keeps its rate once its warmup is over; None where it records neither schedule nor rate."""
    if run.config.schedule is None and "learning_rate" not in run.signals:
        return None
    path = path_of(run)
    return bool(np.all(path.s[path.x >= path.warm] > DECAYED))


def refuse_decay(run: Run, law: str) -> None:
    """OnecurveError where a law of constant rates is given a run whose rate decays."""
    if constant_rate(run) is False:
        schedule = run.config.schedule
        what = "logged learning rate" if schedule is None else f"{schedule.shape} schedule"
        raise OnecurveError(
            f"{run.where}: its {what} is not constant; {law} describes constant learning rates only: choose constant "
            "runs, or a law of schedules (onecurve laws)"
        )


def refuse_no_decay(runs: Sequence[Run], law: str) -> None:
    """OnecurveError where no run lowers its rate, so that nothing tells what that does."""
    for run in runs:
        path_of(run)  # raises where its rate is not known
    if all(constant_rate(run) for run in runs):
        raise OnecurveError(
            f"all {len(runs)} runs have a constant rate, so the effect of lowering it cannot be told; {law} needs one "
            "run at least whose rate drops"
        )


def path_from(rates: ArrayLike, spacing: float = 1.0) -> Path:
    """The path of learning rates given at every step (T,), ``spacing`` in x apart; step k ends at (k + 1) spacing."""
    rate = np.asarray(rates, dtype=np.float64)
    if rate.ndim != 1 or rate.size == 0 or not np.all(np.isfinite(rate)) or not np.all(rate >= 0) or not rate.any():
        raise OnecurveError("rates must be a vector of numbers of 0 or above, at least one of them above 0")
    s = rate / rate.max()
    x = spacing * np.arange(1, rate.size + 1, dtype=np.float64)
    return Path(x, s, spacing * np.cumsum(s), float(x[int(np.argmax(s >= 0.999))]))


def _path(x: FloatArray, s: FloatArray, warm: float) -> Path:
    tau = np.concatenate([[0.0], np.cumsum(0.5 * (s[1:] + s[:-1]) * np.diff(x))])
    return Path(x, s, tau, warm)
