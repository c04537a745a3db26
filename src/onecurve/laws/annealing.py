"""The scaling law with learning-rate annealing (arXiv 2408.11029).

``L = L0 + A S1^-alpha - C S2``: S1 is the rate summed so far, S2 the annealing area ``sum_i m_i`` with the momentum
``m_i = delta m_{i-1} + (s_{i-1} - s_i)`` over optimiser steps. Rates are shares of their peak; the warmup is no drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray, project
from onecurve.laws.estimate import Fitted, refuse_several_sizes, solve, usable
from onecurve.laws.law import Intervals, Law, Scope
from onecurve.laws.path import STEPS, path_of, refuse_no_decay
from onecurve.run import Run

NAMES = ("floor", "amplitude", "exponent", "anneal")
MOMENTA = (0.99, 0.995, 0.998, 0.999, 0.9995)
"""Values of delta that are tried; the fit's own objective chooses. Published use keeps to .99 to .999."""


@dataclass(frozen=True)
class Annealing(Law):
    """``floor + amplitude S1^-exponent - anneal * S2``, S1 in units of x, S2 in optimiser steps."""

    floor: float
    amplitude: float
    exponent: float
    anneal: float
    momentum: float

    name: ClassVar[str] = "annealing"
    about: ClassVar[str] = "summed rate and annealing area: any schedule, one size, four parameters"
    needs: ClassVar[str] = "runs of one size, one of which at least lowers its rate; batch_tokens"
    reach: ClassVar[str] = "other schedules of similar length; not other sizes"
    one_size: ClassVar[bool] = True
    over: ClassVar[str] = "schedule"

    @classmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """Fit to runs of one size from the end of their warmup on, every point counting the same."""
        scope = Scope.of(runs, cls.name)
        refuse_several_sizes(scope, cls.name)
        refuse_no_decay(runs, cls.name)
        points = usable(runs, loss)
        log_s = np.log(points.per_run(lambda run, x: np.maximum(path_of(run).at(x, path_of(run).tau), 1e-300)))
        centre = float(log_s.mean())
        log_s = log_s - centre
        alpha = np.geomspace(0.1, 1.5, 12)
        power = np.exp(-alpha[:, None] * log_s)
        best: tuple[Fitted, float] | None = None
        for momentum in MOMENTA:
            area = points.per_run(lambda run, x, momentum=momentum: annealed(run, x, momentum))

            def model(p: FloatArray, area: FloatArray = area) -> tuple[FloatArray, FloatArray]:
                floor, a, exponent, c = p.T[:, :, None]
                fall = np.exp(-exponent * log_s)
                columns = [np.ones_like(fall), fall, -a * log_s * fall, np.broadcast_to(-area, fall.shape)]
                return floor + a * fall - c * area, np.stack(columns, axis=-1)

            basis = np.stack([np.ones_like(power), power, np.broadcast_to(-area, power.shape)], axis=-1)
            linear = project(basis, points.loss, np.zeros(3))
            starts = np.column_stack([linear[:, 0], linear[:, 1], alpha, linear[:, 2]])
            upper = np.array([points.loss.min(), np.inf, 5.0, np.inf])
            got = solve(NAMES, model, points, starts, np.zeros(4), upper, intervals=intervals)
            if best is None or got.report.objective < best[0].report.objective:
                best = got, momentum
        assert best is not None
        got, momentum = best

        def raw(p: FloatArray) -> FloatArray:
            floor, a, exponent, c = np.moveaxis(p, -1, 0)
            return np.stack([floor, a * np.exp(centre * exponent), exponent, c], axis=-1)

        got = got.mapped(raw)
        floor, a, exponent, c = map(float, got.values)
        return cls(got.report, floor, a, exponent, c, momentum, scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss at each x."""
        path = path_of(run)
        total = np.maximum(path.at(x, path.tau), 1e-300)
        return self.floor + self.amplitude * total**-self.exponent - self.anneal * annealed(run, x, self.momentum)


def steps_per_x(run: Run) -> float:
    """Optimiser steps in one unit of the run's x axis."""
    if run.unit == "steps":
        return 1.0
    if run.config.batch_tokens is None:
        raise OnecurveError(
            f"{run.where}: annealing counts optimiser steps, and with x in {run.x_name} that needs the tokens of a "
            "step: give batch_tokens in the run table"
        )
    return 1.0 / run.config.batch_tokens


def annealed(run: Run, x: FloatArray, momentum: float) -> FloatArray:
    """S2 at each x, by the recursion in closed form over evenly spaced stretches of the path."""
    from scipy.signal import lfilter

    path = path_of(run)
    s = path.after_warmup
    spacing = np.diff(path.x)
    if np.ptp(spacing) <= 1e-9 * path.x[-1]:
        at = np.concatenate([[path.x[0] - spacing[0]], path.x])
        s = np.concatenate([s[:1], s])
    else:
        at = np.linspace(path.x[0], path.x[-1], STEPS + 1)
        s = path.at(at, s)
    steps = float(at[1] - at[0]) * steps_per_x(run)
    each = -np.diff(s) / steps
    keep = momentum**steps
    gain = (1.0 - keep) / (1.0 - momentum)
    m = lfilter([gain], [1.0, -keep], each)
    before = np.concatenate([[0.0], m[:-1]])
    area = np.cumsum(before * momentum * gain + each / (1.0 - momentum) * (steps - momentum * gain))
    return np.interp(x, at, np.concatenate([[0.0], area]))
