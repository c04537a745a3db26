"""The curve of the small run whose controls are nearest: a small run stands in for a large one (arXiv 2509.25087).

Nothing is fitted but a table: one normalised curve for each distinct setting of the small runs, the mean of the logs
over seeds, taken from the largest size that has it. A run is given the mean of the two nearest settings' curves,
weighted by the inverse of their distance, so that a setting of the table gives its own curve and one between two of
them a curve between theirs. Settings are the timescale, the tokens per parameter and the learning rate before its
scaling with width; distances are those of their logs. The error of such a curve is taken as the difference of the two,
times the distance of the nearer over that between them: none for a setting of the table, and growing away from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from onecurve.controls import controls_of, tokens_per_param
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import Ladder
from onecurve.laws.law import Array, Intervals, Law, Report, Scope, bootstrap_only, equally_long
from onecurve.run import Run, human

GRID = np.linspace(0.02, 1.0, 99)
SAME = 0.02
"""Settings within this of each other, in logs, are one."""
FORGETS = 10.0
"""Longer timescales than this, in runs, bend a curve no more than none at all; a run without decay has such a one."""
FAR = 1.1 * float(np.log(2.0))
"""Values of a sweep are a factor 2 apart as a rule; farther from the nearest one, a curve is an extrapolation."""


@dataclass(frozen=True)
class SmallRuns(Law):
    """Normalised curves of small runs by their controls."""

    log_timescale: Array
    """(K,) of the distinct settings."""
    log_tokens_per_param: Array
    """(K,)"""
    log_rate: Array
    """(K,) log of the peak rate before its scaling with width; nan where a run does not record it."""
    log_final: Array
    """(K,) log of the final loss."""
    log_shape: Array
    """(K * 99,) log of the loss over the final loss at `fractions`, setting by setting; nan before the first point."""

    name: ClassVar[str] = "small-runs"
    about: ClassVar[str] = "the shape of a curve, from the small run whose controls are nearest"
    needs: ClassVar[str] = "finished runs, best of the settings that are asked about"
    reach: ClassVar[str] = "settings between those of the small runs, at other sizes; extrapolates nothing"
    normalised: ClassVar[bool] = True
    one_schedule: ClassVar[bool] = True
    fractions: ClassVar[FloatArray] = GRID
    over: ClassVar[str] = "size"

    def __post_init__(self) -> None:
        equally_long(log_timescale=self.log_timescale, log_tokens_per_param=self.log_tokens_per_param)
        equally_long(log_timescale=self.log_timescale, log_rate=self.log_rate, log_final=self.log_final)
        if self.log_shape.size != GRID.size * self.log_timescale.size:
            raise ValueError(f"log_shape must hold {GRID.size} numbers a setting")

    @classmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """The table of some finished runs. Raises OnecurveError for runs whose controls are not recorded."""
        bootstrap_only(cls.name, intervals)
        scope = Scope.of(runs, cls.name)
        at = np.array([_setting(run) for run in runs])
        curves = np.array([_log_curve(run, loss) for run in runs])
        sizes = np.array([run.config.n_params for run in runs])
        groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for k, row in enumerate(np.round(np.nan_to_num(at) / SAME).astype(int)):
            groups[tuple(row)].append(k)
        rows = [[k for k in group if sizes[k] == sizes[group].max()] for group in groups.values()]
        table = np.array([at[group].mean(axis=0) for group in rows])
        mean = np.array([curves[group].mean(axis=0) for group in rows])
        shape = (mean - mean[:, -1:]).ravel()
        report = Report(runs=len(runs), points=int(np.isfinite(curves).sum()))
        return cls(report, table[:, 0], table[:, 1], table[:, 2], mean[:, -1], shape, scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss over the final loss at each x; nan where the small run has no point so early."""
        shape, _, _ = self._near(run)
        return np.exp(np.interp(x / run.end, GRID, shape, left=np.nan))

    def error(self, run: Run, x: ArrayLike) -> FloatArray:
        """Standard deviation of the log prediction at each x, from the distance of the nearest settings."""
        return np.interp(np.asarray(x, dtype=np.float64) / run.end, GRID, self._near(run)[1])

    def formula(self) -> str:
        """What is in the table, in one line."""
        at = np.exp(self.log_timescale)
        where = "" if self.scope is None else f" of runs up to {human(self.scope.sizes[-1])} parameters"
        return f"{self.name}: {at.size} settings{where}, timescales {at.min():.3g} to {at.max():.3g}"

    def remarks(self, run: Run) -> list[str]:
        """What to know before believing a prediction; here also how far the nearest setting is."""
        out = super().remarks(run)
        try:
            mine = _setting(run)
        except OnecurveError:  # `predict` says so
            return out
        theirs = self._settings()[self._near(run)[2]]
        words = [
            f"{what} {np.exp(b):.3g} (this one {np.exp(a):.3g})"
            for what, a, b in zip(("timescale", "tokens per parameter", "base rate"), mine, theirs, strict=True)
            if abs(a - b) > FAR
        ]
        return [*out, f"the nearest small run has {', '.join(words)}: its curve may be another"] if words else out

    def left_out(self) -> tuple[FloatArray, FloatArray]:
        """(K, 99) twice: the log shape of each setting from the others, and its error."""
        settings, shape = self._settings(), self.log_shape.reshape(-1, GRID.size)
        each = [_between(s, np.delete(settings, k, 0), np.delete(shape, k, 0)) for k, s in enumerate(settings)]
        return np.array([e[0] for e in each]), np.array([e[1] for e in each])

    def _settings(self) -> FloatArray:
        return np.stack([self.log_timescale, self.log_tokens_per_param, self.log_rate], axis=1)

    def _near(self, run: Run) -> tuple[FloatArray, FloatArray, int]:
        return _between(np.array(_setting(run)), self._settings(), self.log_shape.reshape(-1, GRID.size))


def _between(setting: FloatArray, settings: FloatArray, shape: FloatArray) -> tuple[FloatArray, FloatArray, int]:
    """The log shape (99,) of a setting from those of others (K, 99), its error (99,), and which is nearest."""
    apart = np.abs(np.nan_to_num(settings - setting))
    distance = np.sqrt((np.where(apart < SAME, 0.0, apart) ** 2).sum(axis=1))
    nearest = np.argsort(distance, kind="stable")[:2]
    first, near = int(nearest[0]), distance[nearest]
    if near[0] == 0.0 or near.size < 2:
        return shape[first], np.zeros(GRID.size), first
    weight = (1.0 / near) / (1.0 / near).sum()
    between = np.sqrt((np.nan_to_num(settings[nearest[0]] - settings[nearest[1]]) ** 2).sum())
    error = np.abs(shape[nearest[0]] - shape[nearest[1]]) * near[0] / max(float(between), SAME)
    return weight @ shape[nearest], error, first


def _log_curve(run: Run, loss: str | None) -> FloatArray:
    """(99,) log loss of a finished run; nan before its first point."""
    sampled = Ladder([run]).sample(GRID, loss)
    out = np.full(GRID.size, np.nan)
    out[-sampled.fraction.size :] = np.log(sampled.loss[0])
    return out


def _setting(run: Run) -> tuple[float, float, float]:
    """Logs of timescale, tokens per parameter and base rate."""
    own = controls_of(run)
    if own.timescale is None:
        needed = ("batch_tokens", "learning_rate", "weight_decay")
        missing = [name for name in needed if getattr(run.config, name) is None]
        counts = f"has x in {run.x_name!r}, which counts neither tokens nor steps"
        what = f"lacks {', '.join(missing)}" if missing else counts
        raise OnecurveError(
            f"{run.where}: {what}, so its timescale B / (eta lambda D) is not known; add the columns to the run table "
            "(--runs), or record them as settings of the run"
        )
    rate = run.config.base_learning_rate
    return (
        float(np.log(min(own.timescale, FORGETS))),
        float(np.log(own.tokens_per_param or tokens_per_param(run))),
        float(np.log(rate)) if rate else np.nan,
    )
