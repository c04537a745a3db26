"""The compute-optimal horizon: for how many tokens each size should train, from constant-rate curves.

At a constant learning rate every point of a curve is the end of some shorter run, so the lower envelope of the
curves of all sizes against compute says which size is best at each compute. Qiu et al. (arXiv 2507.02119, appendix)
fit ``C*(N) = (N / scale) ** exponent`` to it; the horizon in tokens is ``D*(N) = C*(N) / (6 N)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import by_size
from onecurve.laws.estimate import records_compute, training_compute
from onecurve.laws.law import Scope
from onecurve.laws.path import constant_rate, refuse_decay
from onecurve.run import Run, human

POINTS = 1000
SIX_N_D = "6 N D"
MIN_INTERIOR = 3
"""Sizes that must own a stretch of the frontier, the end sizes apart, for an exponent with an interval."""


@dataclass(frozen=True)
class HorizonLaw:
    """``C*(N) = (N / scale) ** exponent`` by the published recipe, beside a robust fit of one point a size."""

    scale: float
    exponent: float
    r_squared: float
    robust_scale: float
    robust_exponent: float
    """From one point a size: the geometric mean of the computes at which it is best."""
    exponent_interval: tuple[float, float]
    """Envelope of both recipes' fits, to all and with each inner size left out; nan with fewer than three of these."""
    sizes: FloatArray
    """(S,) the inner sizes that own a stretch of the frontier."""
    best_at: FloatArray
    """(S,) geometric mean of the computes at which each is best."""
    frontier_compute: FloatArray
    frontier_loss: FloatArray
    frontier_size: FloatArray
    compute_unit: str
    """What C is: ``6 N D``, ``recorded`` by the runs, or ``x itself``."""
    warnings: tuple[str, ...]

    def compute(self, n_params: FloatArray | float) -> FloatArray:
        """C* of a size."""
        return (np.asarray(n_params, dtype=np.float64) / self.scale) ** self.exponent

    def tokens(self, n_params: FloatArray | float) -> FloatArray:
        """D* of a size: ``C* / (6 N)``. Raises OnecurveError where compute is not 6 N D."""
        if self.compute_unit != SIX_N_D:
            raise OnecurveError(
                f"compute is {self.compute_unit}, not 6 N D, so no tokens follow from it; fit the horizon to curves "
                "against tokens"
            )
        return self.compute(n_params) / (6.0 * np.asarray(n_params, dtype=np.float64))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return {"law": "horizon", **asdict(self)}

    def __str__(self) -> str:
        low, high = self.exponent_interval
        lines = [
            f"compute-optimal horizon: C* = (N / {self.scale:.6g}) ^ {self.exponent:.5f}"
            + (f", so D* ~ N^{self.exponent - 1:.3f}" if self.compute_unit == SIX_N_D else "")
            + f" (R^2 {self.r_squared:.4f}); C is {self.compute_unit}",
            f"  one point a size: C* = (N / {self.robust_scale:.6g}) ^ {self.robust_exponent:.5f}",
            "  interval of the exponent: "
            + (
                "not known, too few sizes"
                if np.isnan(low)
                else f"{low:.3f} to {high:.3f} (a size left out, both recipes)"
            ),
            f"  sizes that own a stretch of the frontier: {', '.join(human(float(n)) for n in self.sizes)}",
        ]
        return "\n".join([*lines, *(f"note: {w}" for w in self.warnings)])


def fit_horizon(
    runs: Sequence[Run], loss: str | None = None, points: int = POINTS, start: float | None = None
) -> HorizonLaw:
    """Fit the compute-optimal horizon to constant-rate runs of several sizes.

    Seeds of one size are averaged. At ``points`` log-spaced computes from ``start`` (the first logged compute) to the
    last the lowest curve wins (log-log linear
    interpolation, no extrapolation); computes won by the smallest or the largest size are dropped, because those
    sizes have no competitor on one side; a straight line of log C on log N through the rest is the published recipe.
    Raises OnecurveError for fewer than four sizes, a decayed schedule, or a frontier owned by the end sizes alone.
    """
    curves, compute_unit, notes = constant_curves(runs, loss)
    sizes = np.array(sorted(curves))
    if sizes.size < 4:
        raise OnecurveError(
            f"a horizon law needs at least 4 sizes, because the end ones only bound the frontier; got {sizes.size} "
            f"({', '.join(human(float(n)) for n in sizes)})"
        )
    low = min(c[0] for c, _ in curves.values()) if start is None else start
    if not low > 0 or points < 2:
        raise OnecurveError(f"start must be a compute above 0 and points at least 2; got {low:g} and {points}")
    high = max(c[-1] for c, _ in curves.values())
    compute = np.geomspace(low, high, points)
    log_loss = np.full((sizes.size, points), np.inf)
    for row, n in enumerate(sizes):
        c, y = curves[float(n)]
        inside = (compute >= c[0]) & (compute <= c[-1])
        log_loss[row, inside] = np.interp(np.log(compute[inside]), np.log(c), np.log(y))
    winner = np.argmin(log_loss, axis=0)
    won = np.isfinite(log_loss.min(axis=0))
    inner = won & (winner > 0) & (winner < sizes.size - 1)
    owners = np.unique(winner[inner])
    if owners.size < 2:
        raise OnecurveError(
            "fewer than two inner sizes are ever the best at their compute, so no horizon follows; train the smaller "
            "sizes for longer, or choose sizes further apart"
        )
    x, y = np.log10(sizes[winner[inner]]), np.log10(compute[inner])
    exponent, scale, r2 = _line(x, y)
    best_at = np.array([10 ** y[winner[inner] == o].mean() for o in owners])
    robust_exponent, robust_scale, _ = _line(np.log10(sizes[owners]), np.log10(best_at))
    fits: list[float] = []
    if owners.size >= MIN_INTERIOR:
        fits += [exponent, robust_exponent]
        for o in owners:
            keep = winner[inner] != o
            fits.append(_line(x[keep], y[keep])[0])
            others = owners != o
            fits.append(_line(np.log10(sizes[owners[others]]), np.log10(best_at[others]))[0])
    if compute_unit != SIX_N_D:
        notes.append(f"compute is {compute_unit}; horizons in tokens do not follow")
    last_owner = sizes[owners[-1]]
    short = [human(float(n)) for n in sizes[1:-1] if n > last_owner]
    if short:
        notes.append(f"sizes {', '.join(short)} are never the best: they were trained too briefly to say anything")
    return HorizonLaw(
        scale=scale,
        exponent=exponent,
        r_squared=r2,
        robust_scale=robust_scale,
        robust_exponent=robust_exponent,
        exponent_interval=(min(fits), max(fits)) if fits else (np.nan, np.nan),
        sizes=sizes[owners],
        best_at=best_at,
        frontier_compute=compute[won],
        frontier_loss=np.exp(log_loss.min(axis=0)[won]),
        frontier_size=sizes[winner[won]],
        compute_unit=compute_unit,
        warnings=tuple(notes),
    )


def constant_curves(
    runs: Sequence[Run], loss: str | None
) -> tuple[dict[float, tuple[FloatArray, FloatArray]], str, list[str]]:
    """For each size, compute and seed-mean loss on the grid of its first run; and what compute is.

    Compute grows evenly with x, to what the runs record of it, or to 6 N D.
    """
    scope = Scope.of(runs, "a horizon")
    for run in runs:
        refuse_decay(run, "a horizon, which is read off runs of which every point is the end of a shorter run,")
    notes = []
    if all(constant_rate(run) is None for run in runs):
        notes.append("no run records its schedule: constant learning rates are taken for granted")
    recorded = records_compute(runs, "a horizon")
    compute_unit = "recorded" if recorded else "x itself" if scope.unit == "compute" else SIX_N_D
    out = {}
    for n, members in by_size(runs).items():
        picked = [run.curve(loss).finite() for run in members]
        if not all(len(c) for c in picked):
            empty = next(run for run, c in zip(members, picked, strict=True) if not len(c))
            raise OnecurveError(f"run {empty.config.name!r}: all its losses are NaN or infinite; leave the run out")
        x = picked[0].x
        x = x[(x > 0) & (x >= max(c.x[0] for c in picked)) & (x <= min(c.x[-1] for c in picked))]
        mean = np.mean([np.interp(x, c.x, c.loss) for c in picked], axis=0)
        positive = mean > 0
        if not positive.any():
            raise OnecurveError(
                f"size {human(n)}: no point with x and loss above 0 that all its {len(picked)} runs cover; a horizon "
                "is fitted to logarithms: check --x and --loss, or leave the size out"
            )
        out[n] = (training_compute(members[0], recorded) / members[0].end * x[positive], mean[positive])
    return out, compute_unit, notes


def _line(x: FloatArray, y: FloatArray) -> tuple[float, float, float]:
    """Slope, scale and R^2 of ``y = slope * (x - log10(scale))``."""
    centred = x - x.mean()
    slope = float((centred * (y - y.mean())).sum() / (centred**2).sum())
    residual = y - y.mean() - slope * centred
    r2 = 1.0 - float((residual**2).sum() / ((y - y.mean()) ** 2).sum())
    return slope, float(10 ** (x.mean() - y.mean() / slope)), r2
