"""What a collapse measurement gives: arrays on one grid of fractions, and how they are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onecurve.controls import Finding
from onecurve.fit import FloatArray, IntArray
from onecurve.ladder import Sampled
from onecurve.measure.floor import FloorFit
from onecurve.measure.moments import moments
from onecurve.measure.uncertainty import SizeTest
from onecurve.run import Run

TOLERANCE = 0.10
"""Largest spread over sizes, relative to the curve's height, that counts as collapsed in practice."""
TOLERANCE_AT = (0.25, 0.5)
SPREAD_AT = (0.25, 0.5, 0.75)
WINDOWS = ((0.1, 0.5), (0.5, 0.9), (0.9, 0.98))
ALPHA = 0.05 / len(WINDOWS)
"""Level of the test of each window, so that all together cry difference at a perfect family in at most 5 % of cases."""
LAST = 0.98
"""Nothing is judged beyond: all curves are 1 at x = 1, by construction."""
DEPARTURES = (0.1, 0.9)
"""Where a size can leave the others: before, curves are still settling; after, their height is too small a measure."""
LASTING = 0.02
"""A departure lasts at least this share of training."""
SUPERCOLLAPSE = 2.5
"""The factor below sigma that arXiv 2507.02119 reports."""


@dataclass(frozen=True)
class Floor:
    """The irreducible loss that was subtracted, and where it came from."""

    value: float
    how: Literal["fit", "zero", "given"]
    note: str
    fit: FloorFit | None = None


@dataclass(frozen=True)
class Window:
    """Delta against sigma over a stretch of training; a bare minimum would only say how near to x = 1 one looked."""

    low: float
    high: float
    ratio: float
    """Root mean square of Delta over that of sigma, with population variances as in the literature."""
    corrected: float
    """The same with sample variances (ddof 1)."""
    interval: tuple[float, float]
    """90 % interval of ``corrected``."""
    test: SizeTest | None
    """Whether the sizes' mean curves differ, against own-normalised seed noise."""

    @property
    def finding(self) -> str:
        """``sizes differ``, ``no difference seen`` or ``too few seeds``."""
        if self.test is None:
            return "too few seeds"
        return "sizes differ" if self.test.p_value < ALPHA else "no difference seen"


@dataclass(frozen=True)
class Crossing:
    """The fraction beyond which Delta stays below ``sigma / factor``; None where it never does."""

    factor: float
    fraction: float | None
    corrected: float | None
    interval: tuple[float, float] | None
    """90 % interval of ``corrected``, where at least 95 % of the simulated experiments cross."""


@dataclass(frozen=True)
class Departure:
    """Where the mean curve of one size leaves the mean of the other sizes, read back from the end of training."""

    size: float
    fraction: float | None
    """The largest fraction at which it is out; None where it never is."""
    offset: FloatArray
    """(G,) its height above the others' mean curve, relative to the height of that curve."""
    direction: Literal["above", "below", ""]


@dataclass(frozen=True)
class Sensitivity:
    """The same measurement after another choice."""

    choice: str
    spread: tuple[float, ...]
    """Relative spread at .25 and .5."""
    ratio: float
    """Delta / sigma on the middle window, corrected; nan without repeated seeds."""
    practical: bool


@dataclass(frozen=True)
class Collapse:
    """The result of `collapse`: arrays on one grid of fractions, and what they mean.

    ``print`` shows the verdict; ``to_dict`` gives everything as plain values; `onecurve.report.draw` draws it.
    """

    name: str
    fraction: FloatArray
    normalised: FloatArray
    """(n, G) every run divided by its own final reducible loss."""
    loss: FloatArray
    """(n, G) the losses on the grid."""
    sampled: Sampled
    mean_curve: FloatArray
    size_curves: FloatArray
    """(S, G) mean over seeds."""
    deviation: FloatArray
    noise_floor: FloatArray
    noise_floor_by_size: FloatArray
    """(S, G); nan for a size with one run."""
    noise_floor_normalized: FloatArray
    between_sizes: FloatArray
    relative_spread: FloatArray
    ratio: FloatArray
    corrected_deviation: FloatArray
    corrected_noise_floor: FloatArray
    deviation_interval: FloatArray
    """(2, G) 90 % interval of the corrected Delta; nan without repeated seeds."""
    noise_interval: FloatArray
    """(2, G) 90 % interval of the corrected sigma."""
    ratio_interval: FloatArray
    windows: tuple[Window, ...]
    crossings: tuple[Crossing, ...]
    departures: tuple[Departure, ...]
    floor: Floor
    sensitivity: tuple[Sensitivity, ...]
    findings: tuple[Finding, ...]
    tolerance: float
    dropped: dict[str, int]
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> FloatArray:
        """(S,) parameters."""
        return self.sampled.sizes

    @property
    def counts(self) -> IntArray:
        """(S,) runs of each size."""
        return self.sampled.counts

    def at(self, values: FloatArray, x: float) -> float:
        """Any of the curves (G,) at one fraction."""
        return float(np.interp(x, self.fraction, values))

    @property
    def practical(self) -> bool:
        """Whether the sizes agree within the tolerance at x = .25 and .5."""
        return practical(self.fraction, self.relative_spread, self.tolerance)

    @property
    def collapsed_from(self) -> float | None:
        """The fraction from which the relative spread stays within the tolerance, up to .98."""
        return last_above(self.fraction, self.relative_spread - self.tolerance)

    @property
    def leaves_first(self) -> Departure | None:
        """The size that leaves the others' mean first, read back from the end."""
        left = [d for d in self.departures if d.fraction is not None]
        # Two sizes are each other's mean: neither leaves before the other.
        if not left or len(self.departures) < 3:
            return None
        middle = (self.fraction >= DEPARTURES[0]) & (self.fraction <= DEPARTURES[1])
        return max(left, key=lambda d: (d.fraction or 0.0, float(np.abs(d.offset[middle]).max())))

    @property
    def end_loss(self) -> FloatArray:
        """(S,) mean final loss of each size."""
        return moments(self.loss[:, -1:], self.counts).mean[:, 0]

    def __str__(self) -> str:
        from onecurve.measure.verdict import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        from onecurve.measure.verdict import verdict

        sizes = [_size_key(s) for s in self.sizes]
        with np.errstate(divide="ignore", invalid="ignore"):
            corrected_ratio = self.corrected_deviation / self.corrected_noise_floor
        return {
            "name": self.name,
            "fraction": self.fraction,
            "deviation": self.deviation,
            "relative_spread": self.relative_spread,
            "noise_floor": self.noise_floor,
            "noise_floor_by_size": dict(zip(sizes, self.noise_floor_by_size, strict=True)),
            "noise_floor_normalized": self.noise_floor_normalized,
            "between_sizes": self.between_sizes,
            "mean_curve": self.mean_curve,
            "ratio": self.ratio,
            "corrected": {
                "ddof": 1,
                "level": 0.9,
                "deviation": self.corrected_deviation,
                "noise_floor": self.corrected_noise_floor,
                "ratio": corrected_ratio,
                "deviation_interval": self.deviation_interval,
                "noise_floor_interval": self.noise_interval,
                "ratio_interval": self.ratio_interval,
            },
            "windows": [
                {
                    "from": w.low,
                    "to": w.high,
                    "ratio": w.ratio,
                    "corrected_ratio": w.corrected,
                    "interval": w.interval,
                    "finding": w.finding,
                    "p_value": None if w.test is None else w.test.p_value,
                    "smallest_difference_seen": None if w.test is None else w.test.smallest_seen,
                }
                for w in self.windows
            ],
            "crossings": [
                {"factor": c.factor, "fraction": c.fraction, "corrected": c.corrected, "interval": c.interval}
                for c in self.crossings
            ],
            "departures": [
                {"size": d.size, "fraction": d.fraction, "direction": d.direction, "offset": d.offset}
                for d in self.departures
            ],
            "floor": _floor_dict(self.floor),
            "sensitivity": [
                {"choice": s.choice, "relative_spread": s.spread, "ratio": s.ratio, "practical": s.practical}
                for s in self.sensitivity
            ],
            "verdict": verdict(self).to_dict(),
            "sizes": [
                {"n_params": float(n), "runs": int(k), "final_loss": float(e)}
                for n, k, e in zip(self.sizes, self.counts, self.end_loss, strict=True)
            ],
            "loss": {
                "name": self.sampled.loss_name,
                "kind": self.sampled.kind,
                "smoothing_window": self.sampled.window,
            },
            "tolerance": self.tolerance,
            "dropped": self.dropped,
            "warnings": list(self.warnings),
            "runs": {
                name: {"n_params": run.config.n_params, "normalised": row}
                for name, run, row in zip(_run_keys(self.sampled.runs), self.sampled.runs, self.normalised, strict=True)
            },
        }


def within_window(fraction: FloatArray, low: float, high: float) -> NDArray[np.bool_]:
    """(G,) the fractions in [low, high)."""
    return (fraction >= low - 1e-9) & (fraction < high - 1e-9)


def last_above(fraction: FloatArray, excess: FloatArray) -> float | None:
    """The fraction beyond which ``excess`` stays at or below zero up to `LAST`, between grid points linearly.

    The first fraction where it never exceeds zero; None where it still does at `LAST`.
    """
    judged = np.flatnonzero(fraction <= LAST + 1e-9)
    over = judged[excess[judged] > 0]
    if not over.size:
        return float(fraction[0])
    i = int(over[-1])
    if i == judged[-1]:
        return None
    drop = excess[i] - excess[i + 1]
    share = excess[i] / drop if np.isfinite(drop) else 1.0
    return float(fraction[i] + share * (fraction[i + 1] - fraction[i]))


def practical(fraction: FloatArray, spread: FloatArray, tolerance: float) -> bool:
    """Whether a relative spread (G,) is within the tolerance at x = .25 and .5."""
    return all(np.interp(x, fraction, spread) <= tolerance for x in TOLERANCE_AT)


def _floor_dict(floor: Floor) -> dict[str, Any]:
    out: dict[str, Any] = {"value": floor.value, "how": floor.how, "note": floor.note}
    if floor.fit is not None:
        f = floor.fit
        out["fit"] = {
            "floor": f.floor,
            "amplitude": f.amplitude,
            "exponent": f.exponent,
            "objective": f.objective,
            "gradient_norm": f.gradient_norm,
            "at_zero": f.at_zero,
            "interval": f.interval,
            "leave_one_size_out": f.leave_one_out,
            "other_recipes": f.recipes,
            "pinned": f.pinned,
            "reason": f.reason,
            "compute": f.compute,
            "loss": f.loss,
        }
    return out


def _run_keys(runs: Sequence[Run]) -> list[str]:
    """A key for each run: its name, with where it was read from or a number where two share it."""
    keys: dict[str, None] = {}
    for run in runs:
        name = run.config.name
        tried = [name, f"{name} ({run.source})", *(f"{name} ({i})" for i in range(2, len(runs) + 2))]
        keys[next(key for key in tried if key not in keys)] = None
    return list(keys)


def _size_key(size: float) -> str:
    return str(int(size)) if float(size).is_integer() else repr(float(size))
