"""The runs of one sweep on one grid of fractions, as far as each has come."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onecurve.errors import OnecurveError, some
from onecurve.fit import FloatArray
from onecurve.ladder import TRAINING_WINDOW, ends_early, resample
from onecurve.laws.law import steady_part
from onecurve.run import Run, human

GRID = 200
ROUNDED = 0.05
"""Horizons within this of each other are one: whole steps of another batch."""


@dataclass(frozen=True)
class Sweep:
    """Runs of one size, schedule and horizon, sorted by name: no result depends on the order in which they came."""

    runs: tuple[Run, ...]
    fraction: FloatArray
    """(G,) grid of fractions, ending at 1."""
    loss: FloatArray
    """(n, G), nan where a run has no point between one fraction and the one before."""
    reach: FloatArray
    """(n,) fraction of the last point, whatever its loss."""
    warm: FloatArray
    """(n,) fraction at which the warmup ends."""
    final: FloatArray
    """(n,) loss at the end; nan for a run that has not ended."""
    failed: NDArray[np.bool_]
    """(n,) whether the last loss is not finite."""
    loss_name: str

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(n,) whether a run has reached its horizon."""
        return np.isfinite(self.final)

    @property
    def keys(self) -> list[int]:
        """(n,) a number for each run, from its name."""
        return [zlib.crc32(run.config.name.encode()) for run in self.runs]

    @property
    def labels(self) -> list[str]:
        """(n,) names without what all of them begin with, up to a dash, dot, slash or underscore."""
        names = [run.config.name for run in self.runs]
        first, last = min(names), max(names)  # what these share, all share
        shared = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
        cut = max(first[:shared].rfind(mark) for mark in "-_./") + 1
        return [name[cut:] or name for name in names]

    def until(self, fraction: float) -> Sweep:
        """The same sweep as it stood when every run had come this far; runs that had not are left as they are."""
        cut = self.reach > fraction
        beyond = cut[:, None] & (self.fraction > fraction * (1.0 + 1e-9))
        return Sweep(
            self.runs,
            self.fraction,
            np.where(beyond, np.nan, self.loss),
            np.where(cut, fraction, self.reach),
            self.warm,
            np.where(cut, np.nan, self.final),
            self.failed & ~cut,
            self.loss_name,
        )


def sweep_of(runs: Sequence[Run], loss: str | None = None) -> Sweep:
    """The sweep that some runs make; ``loss`` names their curve, by default the held-out one.

    A held-out loss is taken as it is, a training loss as its trailing mean over 2 % of the run. Raises OnecurveError
    for no runs, for runs that state no horizon, and for several sizes, horizons, schedules or loss names.
    """
    if not runs:
        raise OnecurveError("a sweep needs runs; got none")
    runs = sorted(runs, key=lambda run: run.config.name)
    lacking = [run.config.name for run in runs if run.config.horizon is None]
    if lacking:
        raise OnecurveError(
            f"{some(lacking)} state no horizon, so nobody knows how far they have come; give the planned end (a column "
            "of the run table, in units of x) with --horizon"
        )
    sizes = sorted({run.config.n_params for run in runs})
    if len(sizes) > 1:
        raise OnecurveError(
            f"a sweep has one model size; these runs have {len(sizes)} ({', '.join(human(n) for n in sizes[:6])}): "
            f"choose one with --where n_params={sizes[-1]:.12g}, and give smaller ones as --reference"
        )
    ends = sorted(run.end for run in runs)
    if ends[-1] > ends[0] * (1.0 + ROUNDED):
        raise OnecurveError(
            f"the runs have different horizons, {human(ends[0])} to {human(ends[-1])} {runs[0].x_name}: their final "
            "losses do not compare; choose one with --where horizon=VALUE"
        )
    schedules = sorted({str(steady_part(run.config.schedule)) for run in runs} - {"None"})
    if len(schedules) > 1:
        raise OnecurveError(
            f"the runs have {len(schedules)} schedules ({'; '.join(schedules)}), and a sweep has one; choose it with "
            "--where schedule=VALUE"
        )
    name = _loss_name(runs, loss)
    n, grid = len(runs), np.arange(1, GRID + 1) / GRID
    values = np.full((n, GRID), np.nan)
    reach, final, failed = np.zeros(n), np.full(n, np.nan), np.zeros(n, dtype=bool)
    for k, run in enumerate(runs):
        whole = run.curves.get(name)
        if whole is None or not len(whole):
            continue
        reach[k] = min(1.0, whole.x[-1] / run.end)
        failed[k] = not np.isfinite(whole.loss[-1])
        curve = whole.finite()
        positive = curve.loss > 0
        if not positive.any():
            continue
        window = 0.0 if whole.kind == "held-out" else TRAINING_WINDOW * run.end
        at = resample(curve, grid * run.end, window)
        # A cell counts where the run has a point in it: interpolated ones would pass for further evidence.
        cell = np.ceil(curve.x[positive] / run.end * GRID - 1e-6).astype(int)
        filled = np.unique(cell[(cell > 0) & (cell <= GRID)]) - 1
        values[k, filled] = at[filled]
        if not failed[k] and not ends_early(curve, run.end):
            final[k] = values[k, -1] = at[-1]
    warm = np.array([0.0 if run.config.schedule is None else run.config.schedule.warmup for run in runs])
    values[~(values > 0)] = np.nan
    return Sweep(tuple(runs), grid, values, reach, warm, final, failed, name)


def _loss_name(runs: Sequence[Run], loss: str | None) -> str:
    """The curve that the runs share, held-out ones first; runs without any point yet are not asked."""
    logged = [run for run in runs if run.curves]
    if not logged:
        raise OnecurveError("none of the runs has logged a loss yet; wait for their first points")
    if loss is not None:
        for run in logged:
            run.curve(loss)  # raises with the names that there are
        return loss
    shared = [name for name in logged[0].curves if all(name in run.curves for run in logged)]
    if not shared:
        odd = next(run for run in logged if not set(run.curves) & set(logged[0].curves))
        raise OnecurveError(
            f"the runs share no curve: {logged[0].where} has {sorted(logged[0].curves)}, {odd.where} has "
            f"{sorted(odd.curves)}; name one with --loss"
        )
    return min(shared, key=lambda name: logged[0].curves[name].kind != "held-out")
