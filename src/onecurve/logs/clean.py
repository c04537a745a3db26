"""Mending what loggers do to curves: rewinds, repeats and the order of writing. Pure functions of series.

Nothing is invented: a gap stays a gap, a non-finite value stays where it was, and what is dropped is counted.
"""

from __future__ import annotations

import numpy as np

from onecurve.fit import FloatArray
from onecurve.logs.log import DAMAGED, TORN, Series

REWRITTEN, REPEATED, STEPLESS = (
    "points rewritten after a resume",
    "points that the next one repeats",
    "points without a step",
)
SUMMARY = "summary rows"
MENDS: dict[str, tuple[str, ...]] = {
    "rewinds": (REWRITTEN,),
    "repeats": (REPEATED,),
    "torn": (TORN, DAMAGED, STEPLESS),
    "summaries": (SUMMARY,),
    "means": (),
}
"""The steps of mending, and what each drops. Left undone, the first three refuse a log that needs them (a curve's x
must rise), summaries stay points, and means stay where they were logged."""


def mend(series: Series) -> tuple[Series, dict[str, int]]:
    """A series whose steps rise strictly, and what was dropped.

    Where steps go back (a run resumed from a checkpoint, or two event files of one run) the branch that was written
    last wins: points of the older branch at or beyond the step of the restart are dropped. Of one step written twice
    in a row the later value wins. Steps that are not finite are dropped.
    """
    known = np.isfinite(series.step)
    step, value = series.step[known], series.value[known]
    # A point survives if no later point has its step or a smaller one.
    later = np.minimum.accumulate(step[::-1])[::-1]
    kept = np.ones(step.size, dtype=bool)
    kept[:-1] = step[:-1] < later[1:]
    repeat = np.zeros(step.size, dtype=bool)
    repeat[:-1] = step[:-1] == step[1:]
    dropped = {
        REWRITTEN: int(np.sum(~kept & ~repeat)),
        REPEATED: int(np.sum(~kept & repeat)),
        STEPLESS: int(np.sum(~known)),
    }
    return Series(step[kept], value[kept]), {what: count for what, count in dropped.items() if count}


def rewinds(step: FloatArray) -> list[tuple[float, float]]:
    """Where steps go back: (the last step of the old branch, the first of the new)."""
    at = np.flatnonzero(np.diff(step) < 0)
    return [(float(step[i]), float(step[i + 1])) for i in at]


def gaps(step: FloatArray, factor: float = 5.0) -> list[tuple[float, float]]:
    """Stretches without a point, longer than ``factor`` times the usual spacing around them.

    The usual spacing is the median of up to ten on each side, so that a log that thins out by design has none.
    """
    spacing = np.diff(step)
    if spacing.size < 4:
        return []
    out = []
    for i in np.flatnonzero(spacing > factor * np.median(spacing)):
        near = np.concatenate([spacing[max(0, i - 10) : i], spacing[i + 1 : i + 11]])
        if spacing[i] > factor * np.median(near):
            out.append((float(step[i]), float(step[i + 1])))
    return out


def sampled(step: FloatArray, asked: int = 500) -> bool:
    """Whether a series looks like a random sample of a longer one: of nearly the usual size, its spacings irregular.

    A logger writes at even steps, or at every step; a sample of it has spacings that are multiples of one step and
    follow no pattern.
    """
    if not 0.9 * asked <= step.size <= asked:
        return False
    spacing = np.diff(step)
    if not spacing.min() > 0:
        return False
    multiples = spacing / spacing.min()
    even = np.allclose(multiples, np.round(multiples), atol=1e-6)
    wild = np.unique(np.round(multiples)).size >= 5 and np.std(multiples) > 0.3 * np.mean(multiples)
    return bool(even and wild and abs(np.corrcoef(spacing[1:], spacing[:-1])[0, 1]) < 0.3)


def interval_means(series: Series, first_step: float = 0.0) -> Series:
    """Points that are means over the interval since the one before, moved to the middle of that interval."""
    before = np.concatenate([[first_step], series.step[:-1]])
    return Series(0.5 * (before + series.step), series.value)
