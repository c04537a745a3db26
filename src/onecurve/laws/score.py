"""How well a law predicts runs that it has not seen: errors curve by curve, and the band that they give.

Groups of runs (sizes, schedules or single runs) are left out in turn, the law is fitted to the others and asked about
what was left out. The residuals are errors of prediction, not of fit, so their quantiles are an honest band.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import by_size
from onecurve.laws.estimate import normalised
from onecurve.laws.law import Band, Law, steady_part
from onecurve.laws.path import path_of
from onecurve.run import Run, human

LEVEL = 0.9
FROM = 0.02
"""Earlier fractions are not judged, nor is the warmup: losses there say more of the first steps than of a law."""
KNOTS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0])
"""Fractions between which the band is linear."""
PINNED = np.array([*KNOTS[:-1], 0.95, 0.98, 1.0])
"""The same for normalised curves, whose last value is 1 whatever the run."""
ROUGH = 5
"""Groups below which a band is called rough."""
Group = Literal["size", "schedule", "run"]


@dataclass(frozen=True)
class Errors:
    """How one run, left out of the fit, was predicted."""

    run: str
    n_params: float
    points: int
    mae: float
    rmse: float
    mean_relative: float
    worst_relative: float
    end_bias: float
    """Prediction less loss at the last point."""
    inside: float
    """Share of points within the band; nan without one."""
    whole: bool | None
    """Whether all of them are; None without a band."""
    half_width: float
    """Mean relative half-width of the band."""


@dataclass(frozen=True)
class Score:
    """A law's errors on runs that it has not seen."""

    law: str
    left_out: str
    rows: tuple[Errors, ...]
    warnings: tuple[str, ...]

    def mean(self, what: str) -> float:
        """Mean over runs of one column."""
        return float(np.mean([getattr(row, what) for row in self.rows]))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "law": self.law,
            "left_out": self.left_out,
            "rows": [vars(row) for row in self.rows],
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Residuals:
    """Log of loss over prediction of one run that was left out, over the law's stretch for it."""

    run: Run
    group: str
    fraction: FloatArray
    value: FloatArray


def group_of(run: Run, by: Group) -> str:
    """The group in which a run is left out."""
    if by == "size":
        return f"{run.config.n_params:.12g}"
    if by == "run":
        return run.config.name
    return steady_part(run.config.schedule) or str(run.config.settings.get("schedule", run.config.name))


def natural(law: type[Law]) -> Group:
    """What a law is meant to carry over: sizes, or schedules at one size."""
    return "schedule" if law.over == "schedule" else "size"


def observed(law: type[Law], run: Run, loss: str | None) -> tuple[FloatArray, FloatArray]:
    """x and what the law predicts there: the loss, or the loss over its own end, after warmup and first steps."""
    warm = path_of(run).warm if run.config.schedule or "learning_rate" in run.signals else 0.0
    first = max(FROM * run.end, warm)
    if law.normalised:
        fraction = law.fractions[law.fractions * run.end >= first]
        return fraction * run.end, normalised([run], loss, fraction)[0]
    curve = run.curve(loss).finite()
    use = (curve.x >= first) & (curve.loss > 0)
    return curve.x[use], curve.loss[use]


def left_out_residuals(
    law: type[Law], runs: Sequence[Run], loss: str | None, by: Group, progress: Callable[[float], None] | None = None
) -> tuple[list[Residuals], list[str]]:
    """Residuals of every run, each predicted from the runs of the other groups; and why groups could not be.

    The smallest size is never left out: nobody predicts downwards, and without it a floor hangs in the air.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(group_of(run, by), []).append(run)
    if by == "size":
        del groups[group_of(min(runs, key=lambda run: run.config.n_params), by)]
    out: list[Residuals] = []
    failed: list[str] = []
    for done, (name, group) in enumerate(groups.items()):
        if progress is not None:
            progress(done / len(groups))
        others = [run for run in runs if group_of(run, by) != name]
        try:
            fitted = law.fit(others, loss)
            found: list[Residuals] = []
            for run in group:
                x, value = observed(law, run, loss)
                predicted = fitted.predict(run, x)
                if np.any(predicted <= 0):
                    raise OnecurveError(f"the law predicts losses of 0 and below for {run.config.name}")
                r = np.log(value / predicted) / fitted.stretch(run)
                good = np.isfinite(r)
                if good.any():
                    found.append(Residuals(run, name, x[good] / run.end, r[good]))
            out += found
        except OnecurveError as error:
            label = human(float(name)) if by == "size" else name
            failed.append(f"the band lacks {by} {label}, which the others do not predict: {error}")
    return out, failed


def band(residuals: Sequence[Residuals], by: Group, pinned: bool = False, level: float = LEVEL) -> Band | None:
    """The band that holds ``level`` of left-out points; None with fewer than two groups.

    ``pinned`` for normalised curves: they end at 1, and so does their band.

    Its shape over the fraction is the root mean square of the residuals, its height a quantile of their ratio to that,
    every run counting the same. Which quantile: the lowest at which, for each group in turn, the height from the other
    groups holds ``level`` of its points on average, because a new run is one more than those that were seen.
    """
    groups = sorted({r.group for r in residuals})
    if len(groups) < 2:
        return None
    fraction = np.concatenate([r.fraction for r in residuals])
    size = np.abs(np.concatenate([r.value for r in residuals]))
    weight = np.concatenate([np.full(r.value.size, 1.0 / r.value.size) for r in residuals])
    owner = np.concatenate([np.full(r.value.size, groups.index(r.group)) for r in residuals])
    at = PINNED if pinned else KNOTS
    shape = np.empty(at.size)
    edges = np.concatenate([[-np.inf], 0.5 * (at[1:] + at[:-1]), [np.inf]])
    known = np.zeros(at.size, dtype=bool)
    for k, (low, high) in enumerate(pairwise(edges)):
        here = (fraction > low) & (fraction <= high)
        known[k] = here.any()
        if known[k]:
            shape[k] = np.sqrt(np.sum(weight[here] * size[here] ** 2) / weight[here].sum())
    if pinned:
        shape[-1], known[-1] = 0.0, True
    knots, shape = at[known], np.maximum(shape[known], 1e-12)
    order = np.argsort(size / np.interp(fraction, knots, shape), kind="stable")
    ratio, weight, owner = (size / np.interp(fraction, knots, shape))[order], weight[order], owner[order]
    levels = np.linspace(level, 1.0, 101)
    held = np.zeros(levels.size)
    for g in range(len(groups)):
        mine = owner == g
        heights = _quantile(ratio[~mine], weight[~mine], levels)
        below = np.searchsorted(ratio[mine], heights, side="right")
        held += np.concatenate([[0.0], np.cumsum(weight[mine])])[below] / weight[mine].sum() / len(groups)
    enough = np.flatnonzero(held >= level)
    height = _quantile(ratio, weight, levels[enough[:1]] if enough.size else levels[-1:])[0]
    return Band(knots, shape * height, level, len(groups), by)


def _quantile(rising: FloatArray, weight: FloatArray, levels: FloatArray) -> FloatArray:
    share = np.cumsum(weight) / weight.sum()
    return rising[np.minimum(np.searchsorted(share, levels * (1 - 1e-12)), rising.size - 1)]


def calibrated(
    law: Law, runs: Sequence[Run], loss: str | None = None, progress: Callable[[float], None] | None = None
) -> tuple[Law, list[str]]:
    """A fitted law with its band from the runs it was fitted to, and what to know of the band."""
    by = natural(type(law))
    if len({group_of(run, by) for run in runs}) < 2:
        return law, [f"no band: all runs are of one {by}, so nothing can be left out"]
    residuals, failed = left_out_residuals(type(law), runs, loss, by, progress)
    made = band(residuals, by, law.normalised)
    if made is None:
        return law, [f"no band: fewer than two {by}s can be predicted from the others", *failed]
    notes = [f"the band rests on {made.groups} {by}s left out, so it is rough"] if made.groups < ROUGH else []
    return law.with_band(made), notes + failed


def errors(law: Law, run: Run, loss: str | None) -> Errors:
    """How a fitted law predicts one run."""
    x, value = observed(type(law), run, loss)
    predicted = law.predict(run, x)
    good = np.isfinite(predicted)
    if not good.any():
        raise OnecurveError(
            f"{run.where}: {law.name} predicts none of its {x.size} points after the warmup; {law.reach}"
        )
    x, value, predicted = x[good], value[good], predicted[good]
    low, high = law.interval(run, x)
    inside = (value >= low) & (value <= high)
    off = predicted - value
    known = law.band is not None
    return Errors(
        run=run.config.name,
        n_params=run.config.n_params,
        points=x.size,
        mae=float(np.abs(off).mean()),
        rmse=float(np.sqrt((off**2).mean())),
        mean_relative=float(np.abs(off / value).mean()),
        worst_relative=float(np.abs(off / value).max()),
        end_bias=float(off[-1]),
        inside=float(inside.mean()) if known else float("nan"),
        whole=bool(inside.all()) if known else None,
        half_width=float(np.log(high / predicted).mean()) if known else float("nan"),
    )


def score(
    law: type[Law],
    runs: Sequence[Run],
    loss: str | None = None,
    *,
    leave_out: Group | None = None,
    fit_on: Sequence[Run] | None = None,
    test_on: Sequence[Run] | None = None,
    bands: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Score:
    """Fit a law to some runs and judge it on others, each with a band made from the former alone.

    With ``fit_on`` and ``test_on`` once; with ``leave_out`` every size but the smallest, every schedule or every run in
    turn; by default the largest size is left out, or for laws of schedules each schedule in turn. Laws of one size are
    judged size by size.
    """
    if fit_on is not None and test_on is not None:
        splits, words = [(list(fit_on), list(test_on))], "as told"
    else:
        splits, words = _splits(law, runs, leave_out)
    rows: list[Errors] = []
    notes: list[str] = []
    for done, (train, test) in enumerate(splits):
        if progress is not None:
            progress(done / len(splits))
        try:
            fitted = law.fit(train, loss)
            if bands:
                fitted, remarks = calibrated(fitted, train, loss)
                notes += [r for r in remarks if r not in notes]
            rows += [errors(fitted, run, loss) for run in test]
        except OnecurveError as error:
            if len(splits) == 1:
                raise
            notes.append(f"{', '.join(run.config.name for run in test[:3])}: not predicted: {error}")
    if not rows:
        raise OnecurveError(f"{law.name} predicts no run that was left out: {notes[0] if notes else 'no runs'}")
    return Score(law.name, words, tuple(rows), tuple(notes))


def _splits(
    law: type[Law], runs: Sequence[Run], leave_out: Group | None
) -> tuple[list[tuple[list[Run], list[Run]]], str]:
    by = leave_out or natural(law)
    if not runs:
        raise OnecurveError(f"{law.name} is judged on runs; got none")
    if law.one_size and by == "size":
        raise OnecurveError(
            f"{law.name} serves one size at a time and predicts no other, so no size can be left out; choose "
            "--leave-out schedule or run"
        )
    lots = list(by_size(runs).values()) if law.one_size else [list(runs)]
    out = []
    for lot in lots:
        groups = dict.fromkeys(group_of(run, by) for run in sorted(lot, key=lambda run: run.config.n_params))
        if by == "size":  # never the smallest, as in `left_out_residuals`
            groups = dict.fromkeys(list(groups)[1:] if leave_out else list(groups)[1:][-1:])
        for name in groups:
            test = [run for run in lot if group_of(run, by) == name]
            train = [run for run in lot if group_of(run, by) != name]
            if train:
                out.append((train, test))
    if not out:
        raise OnecurveError(
            f"all {len(runs)} runs are of one {by}, so none can be left out; choose --leave-out run, or name the runs "
            "with --fit-on and --test-on"
        )
    return out, f"the largest {by}" if by == "size" and leave_out is None else f"each {by} in turn"
