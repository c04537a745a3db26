"""A surrogate for normalised curves from timescale, tokens per parameter and schedule (arXiv 2509.25087, eqs. 4-5).

::

    l(x) = f(x) / f(1),   f(x) = ((1 + e1) / (x + e1))^m + b (s(x) + e2)^q
    b = b_scale tau^b_exponent,   q = q_scale TPP^q_exponent

s is the rate over its peak, tau the AdamW timescale. The published m, e1 and e2 are .05, .001 and .1; the four other
numbers are printed nowhere and have to be fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from onecurve.controls import timescale, tokens_per_param
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.laws.estimate import normalised
from onecurve.laws.law import Intervals, Law, Report, Scope, bootstrap_only
from onecurve.laws.path import path_of
from onecurve.run import Run

POWER, NEAR, REST = 0.05, 0.001, 0.1
GRID = np.linspace(0.2, 1.0, 81)
STEPS = 25
SWEEPS = 200


@dataclass(frozen=True)
class Surrogate(Law):
    """The shape of a curve from its controls; its report's objective is the mean over curves of their MAE."""

    power: float
    """m"""
    b_scale: float
    b_exponent: float
    q_scale: float
    q_exponent: float
    oracle: float
    """MAE of the best b and q of each curve by itself: what this form can do at best."""

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
        power: float | None = POWER,
        intervals: Intervals = "bootstrap",
    ) -> Self:
        """Alternating grid search of (b_scale, b_exponent) and (q_scale, q_exponent), as published.

        The objective is the unweighted mean over curves of the mean absolute error at fractions .2 to 1. Each grid
        shrinks around its best point until nothing moves. ``power`` None searches m as well, one for all curves:
        .05 is that of language models, and losses with a small range want another.
        """
        bootstrap_only(cls.name, intervals)
        scope = Scope.of(runs, cls.name)
        tau = np.log([timescale(run) for run in runs])
        ratio = np.log([tokens_per_param(run) for run in runs])
        for what, values in (("timescales", tau), ("tokens per parameter", ratio)):
            if np.ptp(values) < np.log(1.1):
                raise OnecurveError(
                    f"surrogate needs runs at 2 {what} or more, or the exponent of its dependence is anything; all "
                    f"{len(runs)} runs have {np.exp(values[0]):.3g}"
                )
        curves = normalised(runs, loss, GRID)
        rates = np.array([path_of(run).at(GRID * run.end, path_of(run).s) for run in runs])
        powers = np.array([power]) if power is not None else np.geomspace(0.01, 0.6, 9)
        rounds = 1 if power is not None else 3  # each between the neighbours of the best before
        b = q = np.zeros(2)
        error = np.inf
        for _ in range(rounds):
            results = [_alternate(curves, rates, tau, ratio, float(m)) for m in powers]
            best = int(np.argmin([e for _, e in results]))
            (b, q), error = results[best]
            power = float(powers[best])
            powers = np.geomspace(powers[max(best - 1, 0)], powers[min(best + 1, powers.size - 1)], 7)
        assert power is not None
        own = _oracle(curves, rates, power)
        edge = [
            f"{name} of the best point is at {value:.3g}: the data do not pin it"
            for name, value in (("b_exponent", b[1]), ("q_exponent", q[1]))
            if abs(value) > 2.9
        ]
        centre = float(tau.mean()), float(ratio.mean())
        report = Report(error, runs=len(runs), points=curves.size, warnings=tuple(edge))
        return cls(
            report,
            power,
            float(np.exp(b[0] - b[1] * centre[0])),
            float(b[1]),
            float(np.exp(q[0] - q[1] * centre[1])),
            float(q[1]),
            float(own.mean()),
            scope=scope,
        )

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss over the final loss at each x."""
        path = path_of(run)
        b = self.b_scale * timescale(run) ** self.b_exponent
        q = self.q_scale * tokens_per_param(run) ** self.q_exponent
        f = _first(x / run.end, self.power) + b * (path.at(x, path.s) + REST) ** q
        return f / (1.0 + b * (path.s[-1] + REST) ** q)


def _first(fraction: FloatArray, power: float) -> FloatArray:
    return ((1.0 + NEAR) / (fraction + NEAR)) ** power


def _errors(curves: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """(...,) MAE of ``(first + second) / (1 + second at the end)`` against curves (C, G); second is (..., C, G)."""
    return np.abs((first + second) / (1.0 + second[..., -1:]) - curves).mean(axis=-1)


def _alternate(
    curves: FloatArray, rates: FloatArray, tau: FloatArray, ratio: FloatArray, power: float
) -> tuple[tuple[FloatArray, FloatArray], float]:
    """(log scale at the mean control, exponent) of b and of q, and the objective."""
    first, log_rate = _first(GRID, power), np.log(rates + REST)
    t, r = tau - tau.mean(), ratio - ratio.mean()

    def with_b(p: FloatArray, q: FloatArray) -> FloatArray:
        shape = np.exp(np.exp(q[0] + q[1] * r)[:, None] * log_rate)
        b = np.exp(p[:, :1] + p[:, 1:] * t)
        return _errors(curves, first, b[:, :, None] * shape).mean(axis=-1)

    def with_q(p: FloatArray, b: FloatArray) -> FloatArray:
        q = np.exp(p[:, :1] + p[:, 1:] * r)
        return _errors(curves, first, np.exp(b[0] + b[1] * t)[:, None] * np.exp(q[:, :, None] * log_rate)).mean(axis=-1)

    best: tuple[tuple[FloatArray, FloatArray], float] | None = None
    for begin in (-0.7, 0.7):  # the two parts tie each other's hands: from two sides
        b, q = np.array([-1.5, 0.0]), np.array([begin, 0.0])
        width, error = np.array([4.0, 3.0]), np.inf
        for _ in range(SWEEPS):
            b, _ = _grid(lambda p, q=q: with_b(p, q), b, width)
            q, now = _grid(lambda p, b=b: with_q(p, b), q, width)
            if not error - now > 1e-3 * now:
                width = width / 2
            error = min(error, now)
            if width.max() < 1e-6:
                break
        if best is None or error < best[1]:
            best = (b, q), error
    assert best is not None
    return best


def _grid(
    objective: Callable[[FloatArray], FloatArray], centre: FloatArray, width: FloatArray
) -> tuple[FloatArray, float]:
    """The best point of a grid around ``centre``, which is one of its points, and its value."""
    axes = [c + w * np.linspace(-1.0, 1.0, STEPS) for c, w in zip(centre, width, strict=True)]
    points = np.stack([v.ravel() for v in np.meshgrid(*axes)], axis=1)
    values = np.concatenate([objective(chunk) for chunk in np.array_split(points, STEPS)])
    best = int(np.argmin(values))
    return points[best], float(values[best])


def _oracle(curves: FloatArray, rates: FloatArray, power: float) -> FloatArray:
    """(C,) MAE of each curve's own best b and q, by the same shrinking grids."""
    first, log_rate = _first(GRID, power), np.log(rates + REST)
    out = np.empty(curves.shape[0])
    for k, (curve, log_s) in enumerate(zip(curves, log_rate, strict=True)):

        def objective(p: FloatArray, curve: FloatArray = curve, log_s: FloatArray = log_s) -> FloatArray:
            shape = np.exp(p[:, :1] + np.exp(p[:, 1:]) * log_s)
            return _errors(curve, first, shape)

        at, width = np.array([-1.5, 0.0]), np.array([4.0, 3.0])
        while width.max() > 1e-4:
            at, out[k] = _grid(objective, at, width)
            width = width / 2
    return out
