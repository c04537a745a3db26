"""How tokens per parameter shape a constant-rate curve (arXiv 2509.25087, appendix B.2, eqs. 6-9).

With equal exponents a of size and tokens, and v = TPP / optimum::

    l(x, v) = (1 + v^-a x^-a) / (1 + v^-a)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from onecurve.controls import tokens_per_param
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.laws.estimate import normalised_points, solve
from onecurve.laws.law import Intervals, Law, Scope
from onecurve.laws.path import refuse_decay
from onecurve.run import Run


@dataclass(frozen=True)
class TokensPerParameter(Law):
    """``(1 + (v x)^-exponent) / (1 + v^-exponent)`` with v = TPP / optimum, at a constant rate."""

    exponent: float
    optimum: float
    """Tokens per parameter at which size and tokens lower the loss equally fast."""

    name: ClassVar[str] = "tokens-per-param"
    about: ClassVar[str] = "the shape of a constant-rate curve from its tokens per parameter"
    needs: ClassVar[str] = "finished constant-rate runs at 2 tokens per parameter or more"
    reach: ClassVar[str] = "other tokens per parameter at a constant rate; assumes no floor and equal exponents"
    normalised: ClassVar[bool] = True
    fractions: ClassVar[FloatArray] = np.linspace(0.1, 1.0, 91)

    @classmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """Fit to normalised curves from a tenth of the run on."""
        scope = Scope.of(runs, cls.name)
        for run in runs:
            refuse_decay(run, cls.name)
        ratio = np.array([tokens_per_param(run) for run in runs])
        if np.ptp(np.log(ratio)) < np.log(1.1):
            raise OnecurveError(
                f"{cls.name} needs runs at 2 tokens per parameter or more, a tenth apart; got 1: a run cut at "
                "half its length is one, at a constant rate"
            )
        points = normalised_points(runs, loss, cls.fractions)
        log_v, log_x = np.log(ratio)[points.run], np.log(points.x)

        def model(p: FloatArray) -> tuple[FloatArray, FloatArray]:
            a, log_optimum = p.T[:, :, None]
            at, end = np.exp(-a * (log_v - log_optimum + log_x)), np.exp(-a * (log_v - log_optimum))
            value = (1.0 + at) / (1.0 + end)
            by_a = (-at * (log_v - log_optimum + log_x) + value * end * (log_v - log_optimum)) / (1.0 + end)
            return value, np.stack([by_a, a * (at - value * end) / (1.0 + end)], axis=-1)

        starts = np.array([[a, np.log(v)] for a in (0.1, 0.3, 0.6) for v in (0.1, 1.0, 10.0, 100.0, 1e3)])
        got = solve(
            ("exponent", "optimum"), model, points, starts, [0.0, -50.0], [5.0, 50.0], intervals=intervals
        ).mapped(lambda p: np.stack([p[..., 0], np.exp(p[..., 1])], axis=-1))
        exponent, optimum = map(float, got.values)
        report = got.report
        if not ratio.min() <= optimum <= ratio.max():
            note = (
                f"the optimum, {optimum:.3g} tokens per parameter, lies outside those that were run "
                f"({ratio.min():.3g} to {ratio.max():.3g}): it is an extrapolation; add runs on its other side"
            )
            report = replace(report, warnings=(*report.warnings, note))
        return cls(report, exponent, optimum, scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss over the final loss at each x."""
        refuse_decay(run, self.name)
        v = tokens_per_param(run) / self.optimum
        return (1.0 + (v * x / run.end) ** -self.exponent) / (1.0 + v**-self.exponent)
