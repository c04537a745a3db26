"""The end of a larger run, and the way there: the final loss against compute, times the curve that all sizes share.

``L(x) = L_inf + a C^-b * l(x)``: the final reducible loss falls as a power of the training compute C
(arXiv 2507.02119, section 3), and the normalised curve l, with l(1) = 1, is the mean over the ladder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import GRID, Ladder
from onecurve.laws.estimate import records_compute, training_compute
from onecurve.laws.law import Array, Intervals, Law, Report, Scope, bootstrap_only, equally_long
from onecurve.measure.floor import MIN_SIZES, fit_floor
from onecurve.run import Run, human


@dataclass(frozen=True)
class FinalLoss(Law):
    """``floor + amplitude * C^-exponent * curve(x)``; C = 6 N D, or the runs' own compute where they record it."""

    floor: float
    amplitude: float
    exponent: float
    fraction: Array
    """(K,) fractions at which the shared curve is known; the last is 1."""
    curve: Array
    """(K,) the normalised curve: the mean over sizes of the mean over seeds."""
    log_compute: Array
    """(S,) log compute of the sizes, for the width of the band beyond them."""
    ends: Array
    """(S,) mean final loss of the sizes."""
    recorded: bool
    """Whether compute is what the runs record; else it is 6 N D."""

    name: ClassVar[str] = "final"
    about: ClassVar[str] = "the final loss against compute, and the shared curve that leads to it"
    needs: ClassVar[str] = "finished runs of one recipe at 2 sizes or more (4 for a floor)"
    reach: ClassVar[str] = "larger sizes of the same recipe, schedule and horizon rule; no other schedule"

    one_schedule: ClassVar[bool] = True

    def __post_init__(self) -> None:
        equally_long(fraction=self.fraction, curve=self.curve)
        equally_long(log_compute=self.log_compute, ends=self.ends)

    @classmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """Fit to the finished runs of one ladder: seeds averaged, each size counting the same.

        With four sizes or more the floor is fitted, else it is 0 and said so.
        """
        bootstrap_only(cls.name, intervals)
        scope = Scope.of(runs, cls.name)
        recorded = records_compute(runs, cls.name)
        ladder = Ladder(runs)
        sampled = ladder.sample(loss=loss)
        first = np.cumsum(sampled.counts) - sampled.counts
        if sampled.sizes.size < 2:
            raise OnecurveError(
                f"final needs runs of at least 2 sizes, because one end point has no slope; got 1 "
                f"({human(sampled.sizes[0])} parameters)"
            )
        ends = sampled.loss[:, -1]
        compute = np.array([training_compute(run, recorded) for run in sampled.runs])[first]
        seeds = np.split(ends, first[1:])
        mean = np.array([s.mean() for s in seeds])
        if not np.all(mean > 0):
            raise OnecurveError(f"a final loss of {mean.min():g} has no logarithm; final is fitted to losses above 0")
        if not np.ptp(np.log(compute)) > 0.1:
            raise OnecurveError(
                f"all {mean.size} sizes have nearly the same compute ({human(compute[0])}), so no slope follows; final "
                "needs sizes that were trained for different computes"
            )
        warnings = list(sampled.warnings)
        if mean.size >= MIN_SIZES:
            got = fit_floor(compute, mean, seeds)
            floor, amplitude, exponent = got.floor, got.amplitude, got.exponent
            objective, gradient, spread = got.objective, got.gradient_norm, {"floor": got.interval}
            if not got.pinned:
                warnings.append(f"the ladder does not pin the floor: {got.reason}")
        else:
            slope, offset = np.polyfit(np.log(compute), np.log(mean), 1)
            floor, amplitude, exponent = 0.0, float(np.exp(offset)), float(-slope)
            objective, gradient, spread = np.nan, np.nan, {}
            warnings.append(f"{mean.size} sizes cannot tell a floor: it is taken as 0")
        if exponent <= 0:
            warnings.append(
                "the final loss does not fall as compute grows: the larger sizes were trained no better, so nothing "
                "follows for still larger ones"
            )
        # Noise of single steps is averaged over one step of the grid: a longer trailing mean would lag behind.
        fine = ladder.sample(loss=loss, window=1.0 / GRID) if sampled.window else sampled
        reducible = (fine.loss - floor) / (ends - floor)[:, None]
        curve = (np.add.reduceat(reducible, first, axis=0) / sampled.counts[:, None]).mean(axis=0)
        dropped = {**sampled.dropped, "runs that end before their horizon": len(sampled.unfinished)}
        report = Report(
            objective,
            gradient,
            at_bound=("floor",) if floor == 0.0 else (),
            runs=len(sampled.runs),
            points=mean.size,
            dropped=dropped,
            intervals=spread,
            resampled="resampling seeds, and leaving sizes out" if spread else "",
            warnings=tuple(warnings),
        )
        return cls(
            report, floor, amplitude, exponent, fine.fraction, curve, np.log(compute), mean, recorded, scope=scope
        )

    def compute(self, run: Run) -> float:
        """C of a run, counted as in the fit."""
        return training_compute(run, self.recorded)

    def final(self, compute: ArrayLike) -> FloatArray:
        """Final loss at a training compute."""
        return self.floor + self.amplitude * np.asarray(compute, dtype=np.float64) ** -self.exponent

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss at each x; nan before the first fraction at which every run of the ladder had a point."""
        shape = np.interp(x / run.end, self.fraction, self.curve, left=np.nan)
        return self.floor + (self.final(self.compute(run)) - self.floor) * shape

    def stretch(self, run: Run) -> float:
        """The width of a regression line's prediction in log compute, relative to that at its centre."""
        z, at = self.log_compute, np.log(self.compute(run))
        return float(np.sqrt(1.0 + 1.0 / z.size + (at - z.mean()) ** 2 / max(((z - z.mean()) ** 2).sum(), 1e-12)))

    def interval(self, run: Run, x: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Ends of the band, for a run far beyond the ladder moved outwards by what the floor's interval does there.

        Floors that the ladder cannot tell apart agree within it and part ways beyond. The band was tried one step
        beyond (the ratio of the two largest computes, when the largest size was left out); from there on the range of
        final losses, the power law fitted again with each end of the floor's interval, is added to it.
        """
        low, high = super().interval(run, x)
        z = np.sort(self.log_compute)
        tried = 2.0 * z[-1] - z[-2]
        at = np.log(self.compute(run))
        apart = [0.0]
        for floor in self.report.intervals.get("floor", ()) if at > tried else ():
            reducible = np.log(self.ends - min(floor, 0.999 * float(self.ends.min())))
            slope, offset = np.polyfit(self.log_compute, reducible, 1)
            other = np.log(np.exp(offset + slope * np.array([at, tried])) + floor)
            apart.append(float(np.diff(np.log(self.final(np.exp([at, tried]))) - other)[0]))
        return low * np.exp(min(apart)), high * np.exp(max(apart))

    def formula(self) -> str:
        """The law with its numbers."""
        return f"final: L(1) = {self.floor:.6g} + {self.amplitude:.6g} C^{-self.exponent:.5f}"
