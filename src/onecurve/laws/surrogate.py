"""A surrogate for normalised curves from timescale, tokens per parameter and schedule (arXiv 2509.25087, eqs. 4-5).

::

    l(x) = f(x) / f(1),   f(x) = ((1 + e1) / (x + e1))^m + b (s(x) + e2)^q
    b = b_scale tau^b_exponent,   q = q_scale TPP^q_exponent

s is the rate over its peak, tau the AdamW timescale. The published m, e1 and e2 are .05, .001 and .1; the four other
numbers are printed nowhere and have to be fitted. m is fitted too: .05 is that of language models far above their
floor, and a loss without a floor wants another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np

from onecurve.controls import timescale, tokens_per_param
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray, IntArray, minimise
from onecurve.laws.estimate import HUBER, normalised_points, solve
from onecurve.laws.law import Intervals, Law, Scope
from onecurve.laws.path import path_of
from onecurve.run import Run

NEAR, REST = 0.001, 0.1
GRID = np.linspace(0.2, 1.0, 81)
NAMES = ("power", "b_scale", "b_exponent", "q_scale", "q_exponent")
LEAST = np.array([0.005, np.log(1e-3), -3.0, np.log(0.05), -3.0])
MOST = np.array([1.0, np.log(10.0), 3.0, np.log(5.0), 3.0])
"""Bounds of m, log b, the exponent of b, log q and the exponent of q; b and q at the middle of the controls."""
Following = Literal["b", "q"]


@dataclass(frozen=True)
class Surrogate(Law):
    """The shape of a curve from its controls."""

    power: float
    """m"""
    b_scale: float
    b_exponent: float
    q_scale: float
    q_exponent: float
    error: float
    """Mean absolute error of the normalised curves from a fifth of the run on, each curve counting the same."""
    oracle: float
    """That of the best b and q of each curve by itself, with the same m: what this form can do at best."""

    name: ClassVar[str] = "surrogate"
    about: ClassVar[str] = "the shape of a curve from its timescale, tokens per parameter and schedule"
    needs: ClassVar[str] = "finished runs at 2 timescales and 2 tokens per parameter or more, with their schedule"
    reach: ClassVar[str] = "other timescales, tokens per parameter and sizes under the schedules that were fitted"
    normalised: ClassVar[bool] = True
    fractions: ClassVar[FloatArray] = GRID

    @classmethod
    def fit(
        cls,
        runs: Sequence[Run],
        loss: str | None = None,
        *,
        power: float | None = None,
        following: Sequence[Following] = ("b", "q"),
        intervals: Intervals = "bootstrap",
    ) -> Self:
        """Fit to normalised curves from a fifth of the run on.

        The published fit is an alternating grid search of the mean absolute error; this one goes down all numbers at
        once, by the robust loss of log residuals that all laws use, which beyond a tenth of a per cent is that error.
        ``power`` holds m. What does not follow its control, b the timescale and q the tokens per parameter, is one
        number for all curves.
        """
        scope = Scope.of(runs, cls.name)
        tau = np.log([timescale(run) for run in runs])
        ratio = np.log([tokens_per_param(run) for run in runs])
        for what, values, needed in (("timescales", tau, "b"), ("tokens per parameter", ratio, "q")):
            if needed in following and np.ptp(values) < np.log(1.1):
                raise OnecurveError(
                    f"surrogate needs runs at 2 {what} or more, or the exponent of its dependence is anything; all "
                    f"{len(runs)} runs have {np.exp(values[0]):.3g}"
                )
        points = normalised_points(runs, loss, GRID)
        rates = np.array([_log_rate(run, GRID * run.end) for run in runs])
        centre = float(tau.mean()), float(ratio.mean())
        lower, upper = LEAST.copy(), MOST.copy()
        if power is not None:
            lower[0] = upper[0] = power
        for k, name in ((2, "b"), (4, "q")):
            if name not in following:
                lower[k] = upper[k] = 0.0
        held = [name for name, low, high in zip(NAMES, lower, upper, strict=True) if low == high]
        t, r = (tau - centre[0])[points.run], (ratio - centre[1])[points.run]
        last = rates[points.run, -1]

        def model(p: FloatArray) -> tuple[FloatArray, FloatArray]:
            m, b, b_exponent, q, q_exponent = p.T[:, :, None]
            value, slope = _shape(points.x, rates.ravel(), last, m, b + b_exponent * t, q + q_exponent * r)
            by_m, by_b, by_q = slope
            return value, np.stack([by_m, by_b, by_b * t, by_q, by_q * r], axis=-1)

        starts = np.array(
            [
                [m, np.log(b), b_exponent, np.log(q), q_exponent]
                for m in (0.05, 0.3)
                for b in (0.05, 0.5, 3.0)
                for q in (0.5, 1.5)
                for b_exponent in (-0.4, 0.2)
                for q_exponent in (-0.25, 0.2)
            ]
        )
        got = solve(NAMES, model, points, starts, lower, upper, allowed_at=held, intervals=intervals).mapped(
            lambda p: np.stack(
                [
                    p[..., 0],
                    np.exp(p[..., 1] - p[..., 2] * centre[0]),
                    p[..., 2],
                    np.exp(p[..., 3] - p[..., 4] * centre[1]),
                    p[..., 4],
                ],
                axis=-1,
            )
        )
        m, b, b_exponent, q, q_exponent = map(float, got.values)
        law = cls(got.report, m, b, b_exponent, q, q_exponent, np.nan, np.nan, scope=scope)
        curves = points.loss.reshape(len(runs), GRID.size)
        fitted = np.array([law.values(run, GRID * run.end) for run in runs])
        return replace(law, error=float(np.abs(fitted - curves).mean()), oracle=float(_oracle(curves, rates, m).mean()))

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss over the final loss at each x."""
        rate, last = _log_rate(run, x), _log_rate(run, np.array([run.end]))
        log_b = np.log(self.b_scale) + self.b_exponent * np.log(timescale(run))
        log_q = np.log(self.q_scale) + self.q_exponent * np.log(tokens_per_param(run))
        return _shape(x / run.end, rate, last, self.power, log_b, log_q)[0]


def _log_rate(run: Run, x: FloatArray) -> FloatArray:
    """log(s + e2) at each x."""
    if run.config.schedule is not None:  # a path has thousands of points, and its rate would be this
        return np.log(run.config.schedule(x / run.end) + REST)
    path = path_of(run)
    return np.log(path.at(x, path.s) + REST)


def _shape(
    fraction: FloatArray,
    rate: FloatArray,
    last: FloatArray,
    m: FloatArray | float,
    log_b: FloatArray,
    log_q: FloatArray,
) -> tuple[FloatArray, tuple[FloatArray, FloatArray, FloatArray]]:
    """l and its derivatives by m, log b and log q; ``rate`` is log(s + e2) at each point, ``last`` at its run's end."""
    b, q = np.exp(log_b), np.exp(log_q)
    far = np.log((1.0 + NEAR) / (fraction + NEAR))
    first, at, end = np.exp(m * far), b * np.exp(q * rate), b * np.exp(q * last)
    value = (first + at) / (1.0 + end)
    by_b = (at - value * end) / (1.0 + end)
    by_q = q * (at * rate - value * end * last) / (1.0 + end)
    return value, (first * far / (1.0 + end), by_b, by_q)


def _oracle(curves: FloatArray, rates: FloatArray, power: float) -> FloatArray:
    """(C,) mean absolute error of each curve's own best b and q; all curves from all starts at once."""
    starts = np.log([[b, q] for b in (0.01, 0.1, 1.0, 5.0) for q in (0.2, 0.7, 2.0)])
    own = np.repeat(np.arange(curves.shape[0]), len(starts))
    log_curves = np.log(curves)

    def residuals(p: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        rate = rates[own[rows]]
        value, (_, by_b, by_q) = _shape(GRID, rate, rate[:, -1:], power, p[:, :1], p[:, 1:])
        return np.log(value) - log_curves[own[rows]], np.stack([by_b, by_q], axis=-1) / value[:, :, None]

    got = minimise(residuals, np.tile(starts, (curves.shape[0], 1)), LEAST[[1, 3]], MOST[[1, 3]], huber=HUBER)
    r, _ = residuals(got.parameters, np.arange(own.size))
    error = np.abs(np.exp(r + log_curves[own]) - curves[own]).mean(axis=1)
    return error.reshape(-1, len(starts)).min(axis=1)
