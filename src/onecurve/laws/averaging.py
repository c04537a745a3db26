"""AdamW as a moving average: how the timescale shapes a curve (arXiv 2509.25087, eq. 3), under any schedule.

AdamW's weights are an exponential moving average of its updates with rate ``s / tau`` (tau the timescale, s the rate
over its peak, time x the training fraction). For one mode whose updates are white noise of variance 1 around the
optimum and whose start lies ``start`` = E[theta(0)^2] away, the expected loss is proportional to::

    V(x) = start e^(-2 phi(x)) + int_0^x (s / tau)^2 e^(-2 (phi(x) - phi(u))) du,    phi = int_0^x s / tau

at a constant rate ``(1 - e^(-2 x / tau)) / (2 tau) + start e^(-2 x / tau)``, which is eq. 3. A short timescale forgets
the start sooner and averages less: its curve is flat but high in noise at a constant rate, and has the larger late drop
when the rate decays, so that the order of curves turns round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from onecurve.controls import timescale
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.laws.estimate import normalised_points, solve
from onecurve.laws.law import Intervals, Law, Scope
from onecurve.laws.path import Path, path_of
from onecurve.run import Run


def modes(path: Path, timescale: float) -> tuple[FloatArray, FloatArray]:
    """What is left of the start, ``e^(-2 phi)``, and the noise's integral, at the points of a path.

    ``timescale`` is a share of the run. Linear in the points of the path.
    """
    end = float(path.x[-1])
    s = 0.5 * (path.s[1:] + path.s[:-1])
    phi = np.concatenate([[0.0], np.cumsum(s * np.diff(path.x))]) / (end * timescale)
    # Over a step h at rate s the noise gains (s / 2 tau)(1 - e^(-2 s h / tau)): exact where s holds for the step.
    gain = s / (2.0 * timescale) * -np.expm1(-2.0 * np.diff(phi))
    noise = np.zeros_like(phi)
    start, carried = 0, 0.0
    while start < gain.size:
        # e^(2 phi) would overflow over a whole run, so the sum is taken in stretches.
        stop = max(start + 1, int(np.searchsorted(phi, phi[start] + 100.0, side="right")) - 1)
        weight = np.exp(2.0 * (phi[start + 1 : stop + 1] - phi[start]))
        noise[start + 1 : stop + 1] = (carried + np.cumsum(gain[start:stop] * weight)) / weight
        start, carried = stop, float(noise[stop])
    return np.exp(-2.0 * phi), noise


@dataclass(frozen=True)
class MovingAverage(Law):
    """``(start e^(-2 phi) + noise + rest) / (the same at the end)``: one mode, and a rest that does not change."""

    start: float
    rest: float

    name: ClassVar[str] = "moving-average"
    about: ClassVar[str] = "the shape of a curve from its AdamW timescale and schedule: one mode of a moving average"
    needs: ClassVar[str] = "finished runs with batch, learning rate, weight decay and schedule, at 2 timescales or more"
    reach: ClassVar[str] = "the order of timescales under any schedule; not the exact shape, which has many modes"
    normalised: ClassVar[bool] = True
    fractions: ClassVar[FloatArray] = np.linspace(0.2, 1.0, 81)
    """Earlier, many modes besides the slowest one count."""

    @classmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """Fit start and rest to normalised curves from a fifth of the run on."""
        scope = Scope.of(runs, cls.name)
        scales = [timescale(run) for run in runs]
        if np.ptp(np.log(scales)) < np.log(1.1):
            raise OnecurveError(
                "moving-average needs runs of at least 2 timescales B / (eta lambda D), a tenth apart; got "
                f"{scales[0]:.3g} alone: vary weight decay, batch or learning rate"
            )
        points = normalised_points(runs, loss, cls.fractions)
        decay, noise, ends = [], [], []
        for run, tau in zip(runs, scales, strict=True):
            path = path_of(run)
            left, summed = modes(path, tau)
            decay.append(path.at(cls.fractions * run.end, left))
            noise.append(path.at(cls.fractions * run.end, summed))
            ends.append((left[-1], summed[-1]))
        d, v = np.concatenate(decay), np.concatenate(noise)
        d1, v1 = np.repeat(np.array(ends), cls.fractions.size, axis=0).T

        def model(p: FloatArray) -> tuple[FloatArray, FloatArray]:
            start, rest = np.exp(p).T[:, :, None]
            top, bottom = start * d + v + rest, start * d1 + v1 + rest
            value = top / bottom
            slope = [start * (d - value * d1) / bottom, rest * (1.0 - value) / bottom]
            return value, np.stack(slope, axis=-1)

        starts = np.array([[a, b] for a in (-3.0, 0.0, 3.0, 6.0) for b in (-3.0, 0.0, 3.0, 6.0)])
        got = solve(("start", "rest"), model, points, starts, [-20.0, -20.0], [30.0, 30.0], intervals=intervals).mapped(
            np.exp
        )
        return cls(got.report, *map(float, got.values), scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss over the final loss at each x."""
        path = path_of(run)
        left, summed = modes(path, timescale(run))
        value = self.start * left + summed + self.rest
        return path.at(x, value) / value[-1]
