"""A power law of the summed rate, less what a lower rate takes away: schedules at one size without gradient noise.

::

    L = L0 + A S^-alpha - c S^-delta [(1 - a)(1 - s) + a (1 - s_lag)] S_k^-b

S is the rate summed along the run (shares of the peak), s the rate now, s_lag its mean over the last part of S and S_k
its mean over all of it. It is the form of `onecurve.laws.quadratic` with powers of S in place of the reference's loss
and noise: the noise of a constant-rate run falls as a power of S, and grows where the steps on the way were smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Self

import numpy as np

from onecurve.fit import FloatArray, project
from onecurve.laws.estimate import Fitted, refuse_several_sizes, solve, usable
from onecurve.laws.law import Intervals, Law, Scope
from onecurve.laws.path import path_of, refuse_no_decay
from onecurve.run import Run

NAMES = ("floor", "amplitude", "exponent", "noise", "noise_exponent", "lag_share", "path_power")
MEMORIES = tuple(product((1.0, 2.0, 4.0), (30.0, 60.0, 100.0)))
"""Weights of the two means (S_k, s_lag) that are tried; the fit's own objective chooses."""
TRANSIENT = 2.0
"""Warmups at the start of a run in which the loss is not yet a power of S: points before are left out."""


@dataclass(frozen=True)
class DecayedPower(Law):
    """``floor + amplitude S^-exponent - noise S^-noise_exponent * response * S_k^-path_power``; see the module."""

    floor: float
    amplitude: float
    exponent: float
    noise: float
    noise_exponent: float
    lag_share: float
    path_power: float
    mean_weight: float
    lag_weight: float

    name: ClassVar[str] = "decayed-power"
    about: ClassVar[str] = "any schedule at one size, from the summed rate and its means along the path"
    needs: ClassVar[str] = "runs of one size, one of which at least lowers its rate"
    reach: ClassVar[str] = "other schedules, and lengths some three times those fitted; not other sizes"
    one_size: ClassVar[bool] = True
    over: ClassVar[str] = "schedule"

    @classmethod
    def fit(
        cls,
        runs: Sequence[Run],
        loss: str | None = None,
        *,
        after: float = TRANSIENT,
        intervals: Intervals = "bootstrap",
    ) -> Self:
        """Fit to runs of one size from ``after`` warmups on; every run and every stretch of it counts the same."""
        scope = Scope.of(runs, cls.name)
        refuse_several_sizes(scope, cls.name)
        refuse_no_decay(runs, cls.name)
        points = usable(runs, loss, after)
        scale = float(np.exp(points.per_run(lambda run, x: np.log(_along(run, x)[0])).mean()))
        best: tuple[Fitted, tuple[float, float]] | None = None
        for memory in MEMORIES:
            along = [_along(run, points.x[points.run == k], memory) for k, run in enumerate(points.runs)]
            total, drop, lagging, mean = (np.concatenate(v) for v in zip(*along, strict=True))
            log_s, log_mean = np.log(total / scale), np.log(mean)

            def model(
                p: FloatArray,
                log_s: FloatArray = log_s,
                drop: FloatArray = drop,
                lagging: FloatArray = lagging,
                log_mean: FloatArray = log_mean,
            ) -> tuple[FloatArray, FloatArray]:
                floor, a, alpha, c, delta, share, b = p.T[:, :, None]
                power = np.exp(-alpha * log_s)
                response = (1 - share) * drop + share * lagging
                noise = np.exp(-delta * log_s - b * log_mean)
                columns = [np.ones_like(power), power, -a * log_s * power, -response * noise]
                columns += [
                    c * response * noise * log_s,
                    -c * (lagging - drop) * noise,
                    c * response * noise * log_mean,
                ]
                return floor + a * power - c * response * noise, np.stack(columns, axis=-1)

            lower = np.zeros(7)
            upper = np.array([points.loss.min(), np.inf, 5.0, np.inf, 5.0, 1.0, 5.0])
            starts = _starts(model, points.loss)
            got = solve(
                NAMES, model, points, starts, lower, upper, weights=points.by_stretch(),
                allowed_at=("noise_exponent", "lag_share", "path_power"), intervals=intervals,
            )  # fmt: skip
            if best is None or got.report.objective < best[0].report.objective:
                best = got, memory
        assert best is not None
        got, memory = best

        def raw(p: FloatArray) -> FloatArray:
            floor, a, alpha, c, delta, share, b = np.moveaxis(p, -1, 0)
            return np.stack([floor, a * scale**alpha, alpha, c * scale**delta, delta, share, b], axis=-1)

        got = got.mapped(raw)
        return cls(got.report, *map(float, (*got.values, *memory)), scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss at each x."""
        memory = self.mean_weight, self.lag_weight
        total, drop, lagging, mean = _along(run, x, memory)
        response = (1 - self.lag_share) * drop + self.lag_share * lagging
        noise = self.noise * total**-self.noise_exponent * mean**-self.path_power
        return self.floor + self.amplitude * total**-self.exponent - response * noise


def _along(
    run: Run, x: FloatArray, memory: tuple[float, float] = MEMORIES[0]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """At each x: summed rate, 1 - s, 1 - s_lag and the mean of s."""
    path = path_of(run)
    mean, lagging = (path.at(x, path.mean(weight)) for weight in memory)
    return (
        np.maximum(path.at(x, path.tau), 1e-300),
        1.0 - path.at(x, path.after_warmup),
        1.0 - lagging,
        np.maximum(mean, 1e-6),
    )


def _starts(model: Callable[[FloatArray], tuple[FloatArray, FloatArray]], loss: FloatArray) -> FloatArray:
    """The best of a grid over the exponents, the rest in closed form."""
    alpha, delta, b = (v.ravel() for v in np.meshgrid([0.3, 0.5, 0.8], [0.0, 0.3], [0.0, 0.4]))
    unit = np.stack([0 * alpha, 1 + 0 * alpha, alpha, 1 + 0 * alpha, delta, 0.2 + 0 * alpha, b], axis=1)
    columns = model(unit)[1][:, :, [0, 1, 3]]
    linear = project(columns, loss, np.array([0.0, 1e-3, 1e-6]))
    error = np.mean(np.abs(np.einsum("snk,sk->sn", columns, linear) / loss - 1.0), axis=1)
    starts = np.column_stack([linear[:, :2], alpha, linear[:, 2], delta, 0.2 + 0 * alpha, b])
    return starts[np.argsort(error, kind="stable")[:4]]
