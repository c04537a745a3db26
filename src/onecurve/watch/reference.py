"""What a healthy run looks like: a family's curve in logs, and by how much a healthy run strays from it.

The family's runs are sampled as means over stretches of training (*blocks*): a hundredth each, longer ones where a run
has fewer points. With y_i the log of run i::

    y_i(x) = level_i + shape(x) + trend(x) (log N_i - log N_0) + between_size(x) + within_i(x)

The shape is the mean over sizes (each the mean of its seeds), the trend what the shape does with size, to be carried on
to a larger run. How far a healthy run's *contrasts* - the mean of some blocks less the mean of those before - go is
measured on the family: within sizes for the noise, between them for the drift, the trend's own error added for the
distance to the run's size. Local contrasts see what comes fast, one against the alignment window (25 to 50 %) what
creeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError

from onecurve.controls import controls_of
from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import Ladder, by_size
from onecurve.laws.law import Array
from onecurve.run import LossKind, Run

BLOCKS, FEWEST = 100, 20
"""Blocks of a run at most and at least; a departure is placed to about one of them."""
WIDTHS = (1, 2, 4, 8, 16)
"""Blocks on the near side of a local contrast; the far side has up to twice as many, and no fewer."""
WINDOW, NEAR = (0.25, 0.5), 0.05
"""The alignment window, and the share of training whose mean is held against it."""
KINDS = len(WIDTHS) + 1
EARLY = 0.05
"""Blocks before this share of training, or before the end of the warmup, are not judged: sizes differ there by more
than a trend can carry."""
TREND_FROM = 3
"""Sizes from which a trend with size can be told from their scatter."""
UNKNOWN = 0.01
"""Drift between sizes, as a share of the loss, that is assumed where one size alone is known."""
SMOOTH = 7
"""Blocks over which a scale is averaged: it is known from few runs."""


@dataclass(frozen=True)
class Reference:
    """A family's curve and its healthy spread; made by `Reference.of`, kept as JSON."""

    shape: Array
    """(B,) log of the loss over the final loss, in the middle of each block; nan before the first point."""
    trend: Array
    """(B,) change of the shape per unit of log N; 0 with fewer than three sizes."""
    trend_error: Array
    """(B,) its standard error."""
    noise: Array
    """(6 * B,) standard deviation of a healthy run's contrast from noise alone, width by width."""
    drift: Array
    """(6 * B,) the same from what sizes do differently, their trend taken out."""
    log_n: float
    """log N around which the trend turns: the mean over sizes."""
    spread_log_n: float
    """Standard deviation of log N over sizes."""
    sizes: tuple[float, ...]
    runs: int
    loss_name: str
    kind: LossKind
    judged_from: float
    """Fraction from which blocks are judged: after the largest warmup and the first twentieth."""
    timescale: float | None = None
    tokens_per_param: float | None = None
    schedule: str | None = None
    exponent: float | None = None
    """Of the final loss in N, from three sizes or more: what its extrapolation rests on."""
    log_final: float | None = None
    """log of the final loss at `log_n`."""
    final_error: float = float("nan")
    """Standard deviation of a size around that power law, in logs."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, runs: Sequence[Run], loss: str | None = None) -> Self:
        """The reference that some finished runs of one recipe make; ``loss`` by default the one logged most densely.

        Raises OnecurveError for runs that make no ladder, or of which none has ended.
        """
        ladder = Ladder(runs)
        name = loss or densest(ladder.runs)
        blocks = min(BLOCKS, *(len(run.curves[name].finite()) for run in ladder.runs))
        if blocks < FEWEST:
            raise OnecurveError(f"a reference needs {FEWEST} points of each run; one of these has {blocks}")
        sampled = ladder.sample(np.arange(1, blocks + 1) / blocks, name, window=1.0 / blocks)  # who has ended
        y = np.array([_block_means(run, name, blocks) for run in sampled.runs])
        late = int(np.isnan(y).any(axis=0).sum())
        warm = max((r.config.schedule.warmup for r in sampled.runs if r.config.schedule is not None), default=0.0)
        warm = max(warm, EARLY, late / blocks)
        judged = np.arange(1, blocks + 1) / blocks > warm + 1e-9
        groups = [[sampled.runs.index(run) for run in group] for group in by_size(sampled.runs).values()]
        sizes = np.array([sampled.runs[group[0]].config.n_params for group in groups])
        u = np.log(sizes) - np.log(sizes).mean()
        level = y[:, judged].mean(axis=1, keepdims=True)
        mean = np.array([(y - level)[group].mean(axis=0) for group in groups])
        shape = mean.mean(axis=0)
        trend, trend_error = np.zeros(blocks), np.zeros(blocks)
        notes: list[str] = []
        rest = mean - shape
        if len(groups) >= TREND_FROM:
            trend = (u[:, None] * rest).sum(axis=0) / (u @ u)
            rest = rest - u[:, None] * trend
            trend_error = np.sqrt(_smooth((rest**2).sum(axis=0) / (len(groups) - 2)) / (u @ u))
        elif len(groups) == 2:
            notes.append("two sizes tell no trend: what they differ by is taken as drift")
        else:
            notes.append(
                f"one size alone: how curves of other sizes differ is not known; a drift of {UNKNOWN:.0%} of the loss "
                "is assumed"
            )
        repeated = [group for group in groups if len(group) > 1]
        if not repeated:
            notes.append("one seed a size: noise and what sizes do differently are not told apart")
        within = np.concatenate(
            [(y - y[group].mean(axis=0))[group] / np.sqrt(1 - 1 / len(group)) for group in repeated] or [rest]
        )
        noise, drift = (
            np.array([_scale(c, judged) for c in contrasts(np.where(judged, rows, np.nan))]) for rows in (within, rest)
        )
        free = len(groups) - 2 if len(groups) >= TREND_FROM else len(groups) - 1
        drift *= np.sqrt(len(groups) / max(free, 1))
        if len(groups) == 1:
            drift[:] = UNKNOWN
        seeds = np.array([len(group) for group in groups])
        # The means of sizes carry the noise of their seeds, which is no drift.
        drift = np.sqrt(np.maximum(drift**2 - noise**2 * float(np.mean(1.0 / seeds)), (0.1 * drift) ** 2))
        final = np.array([y[group, -1].mean() for group in groups]) - shape[-1] + _last(shape)
        exponent, log_final, final_error = None, None, float("nan")
        if len(groups) >= TREND_FROM:
            slope, middle = np.polyfit(u, final, 1)
            exponent, log_final = float(slope), float(middle)
            final_error = float(np.sqrt(((final - middle - slope * u) ** 2).sum() / (len(groups) - 2)))
        c = [controls_of(run) for run in sampled.runs]
        return cls(
            shape=shape - _last(shape),
            trend=trend - _last(trend),
            trend_error=trend_error,
            noise=noise.ravel(),
            drift=drift.ravel(),
            log_n=float(np.log(sizes).mean()),
            spread_log_n=float(np.log(sizes).std()),
            sizes=tuple(float(n) for n in sizes),
            runs=len(sampled.runs),
            loss_name=sampled.loss_name,
            kind=sampled.kind,
            judged_from=float(warm),
            timescale=_shared([v.timescale for v in c]),
            tokens_per_param=_shared([v.tokens_per_param for v in c]),
            schedule=next(iter({v.schedule for v in c})) if len({v.schedule for v in c}) == 1 else None,
            exponent=exponent,
            log_final=log_final,
            final_error=final_error,
            notes=tuple(notes),
        )

    @property
    def blocks(self) -> int:
        """B"""
        return self.shape.size

    def at(self, n_params: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """For a run of a size: its shape (B,), and the noise and drift of its contrasts (6, B)."""
        away = np.log(n_params) - self.log_n
        noise, drift = (v.reshape(KINDS, self.blocks) for v in (self.noise, self.drift))
        # An error that goes up and down with x cancels between neighbouring blocks, not between those far apart.
        apart = np.minimum(1.0, 1.5 * np.array([*WIDTHS, self.blocks]) / SMOOTH)
        carried = np.abs(away) * apart[:, None] * np.nan_to_num(self.trend_error)
        return self.shape + away * self.trend, noise, np.hypot(drift, carried)

    def final(self, n_params: float) -> tuple[float, float] | None:
        """Log of the final loss expected of a size, and its standard deviation; None with fewer than three sizes."""
        if self.exponent is None or self.log_final is None:
            return None
        away = np.log(n_params) - self.log_n
        k = len(self.sizes)
        error = self.final_error * np.sqrt(1.0 + 1.0 / k + away**2 / (k * self.spread_log_n**2))
        return self.log_final + self.exponent * away, float(error)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; `from_dict` is the way back."""
        return {"reference": 1, **TypeAdapter(type(self)).dump_python(self)}

    @classmethod
    def from_dict(cls, content: dict[str, Any], source: str) -> Self:
        """The reference that `to_dict` wrote. Raises OnecurveError for another version or a damaged file."""
        if content.get("reference") != 1:
            raise OnecurveError(
                f"{source}: no reference of this version; make it again with onecurve collapse DATA -o FILE"
            )
        try:
            return TypeAdapter(cls).validate_python({k: v for k, v in content.items() if k != "reference"})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "its content"
            raise OnecurveError(f"{source}: {where}: {first['msg'].lower()}; make it again") from None


def _block_means(run: Run, name: str, blocks: int) -> FloatArray:
    """(B,) mean log loss in each block, carried to its middle from where its points lie; nan before the first."""
    curve = run.curves[name].finite()
    if not (curve.loss > 0).all():
        raise OnecurveError(f"{run.where}: a reference needs losses above 0: its curve is one of logs")
    fraction = curve.x / run.end
    cell = np.clip(np.ceil(fraction * blocks - 1e-9).astype(int) - 1, 0, blocks - 1)
    count = np.bincount(cell, minlength=blocks)
    full = np.flatnonzero(count)
    x, log = (np.bincount(cell, v, blocks)[full] / count[full] for v in (fraction, np.log(curve.loss)))
    middle = (np.arange(blocks) + 0.5) / blocks
    out = np.interp(middle, x, log)
    out[: full[0]] = np.nan
    return out


def _last(values: FloatArray) -> float:
    """Values in the middle of blocks, at the end of the last one."""
    return float(1.5 * values[-1] - 0.5 * values[-2])


def densest(runs: Sequence[Run]) -> str:
    """The curve that all runs share and that has most points; of equally dense ones the held-out one."""
    shared = [name for name in runs[0].curves if all(name in run.curves for run in runs)]
    if not shared:
        raise OnecurveError(
            f"the runs share no curve: {runs[0].where} has {sorted(runs[0].curves)}; name one with --loss"
        )
    return max(
        shared, key=lambda name: (min(len(r.curves[name]) for r in runs), runs[0].curves[name].kind == "held-out")
    )


def contrasts(rows: FloatArray) -> FloatArray:
    """(6, n, B) of rows (n, B): what each block, with those before it, differs by from what came earlier.

    For each of `WIDTHS` the mean of that many blocks less the mean of the twice as many before; last the mean over
    `NEAR` less that of the alignment window, once that is over. nan where fewer than half the width stand on a side.
    """
    n, blocks = rows.shape
    known = np.isfinite(rows)
    sums = np.concatenate([np.zeros((n, 1)), np.cumsum(np.where(known, rows, 0.0), axis=1)], axis=1)
    counts = np.concatenate([np.zeros((n, 1)), np.cumsum(known, axis=1)], axis=1)
    end = np.arange(1, blocks + 1)

    def mean(first: np.ndarray, last: np.ndarray, fewest: int) -> FloatArray:
        count = counts[:, last] - counts[:, first]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(count >= fewest, (sums[:, last] - sums[:, first]) / count, np.nan)

    out = []
    for width in WIDTHS:
        middle, start = np.maximum(end - width, 0), np.maximum(end - 3 * width, 0)
        fewest = (width + 1) // 2  # logs may be sparse in places
        out.append(mean(middle, end, fewest) - mean(start, middle, fewest))
    low, high = (round(share * blocks) for share in WINDOW)
    near = max(1, round(NEAR * blocks))
    against = mean(np.full(1, low), np.full(1, high), (high - low) // 2)
    late = mean(np.maximum(end - near, 0), end, (near + 1) // 2) - against
    out.append(np.where(end >= high + near, late, np.nan))
    return np.array(out)


def _scale(rows: FloatArray, judged: np.ndarray) -> FloatArray:
    """(B,) root mean square of rows (n, B) block by block, averaged over neighbouring blocks, without gaps."""
    known = np.isfinite(rows) & judged
    total = np.where(known, rows, 0.0) ** 2
    kernel = np.ones(SMOOTH)
    sums = np.convolve(total.sum(axis=0), kernel, "same")
    counts = np.convolve(known.sum(axis=0).astype(np.float64), kernel, "same")
    at = np.flatnonzero(counts > 0)
    if not at.size:
        return np.zeros(rows.shape[1])
    return np.sqrt(np.interp(np.arange(rows.shape[1]), at, sums[at] / counts[at]))


def _smooth(values: FloatArray) -> FloatArray:
    known = np.isfinite(values).astype(np.float64)
    kernel = np.ones(SMOOTH)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.convolve(np.nan_to_num(values), kernel, "same") / np.convolve(known, kernel, "same")


def _shared(values: Sequence[float | None]) -> float | None:
    """The geometric mean of values that are known and positive for all runs."""
    known = [v for v in values if v is not None and 0 < v < np.inf]
    return float(np.exp(np.mean(np.log(known)))) if known and len(known) == len(values) else None
