"""The data exponent by collapse: for which growth of the horizon with size do constant-rate curves agree best?

At a constant rate every point of a curve is the end of a shorter run, so one can try horizons ``C*(N) ~ N^e`` without
training anything: cut every curve there, divide by its loss there, and measure the deviation. Over e it is a bowl; how
flat its bottom is says how much the curves know (arXiv 2507.02119, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.laws.horizon import SIX_N_D, constant_curves, fit_horizon
from onecurve.run import Run, human

FRACTIONS = np.arange(10, 91) / 100.0
SMOOTH = 0.02
"""Half-width, as a share of x, over which curve and end loss are averaged."""
FACTORS = np.arange(60, 141) / 100.0
BLUNT = 1.1
"""The bottom of the bowl: where the deviation is within a tenth of its least."""


@dataclass(frozen=True)
class DataExponent:
    """The exponent e of ``C* ~ N^e`` along which constant-rate curves collapse best; tokens grow as N^(e - 1)."""

    exponent: float
    interval: tuple[float, float]
    """Envelope of the best exponents with each size left out; nan with fewer than four sizes."""
    bottom: tuple[float, float]
    """Exponents whose deviation is within a tenth of the least: how blunt the bowl is."""
    reference: float
    """The exponent around which was searched."""
    exponents: FloatArray
    deviation: FloatArray
    """RMS over x = .1 to .9 of the deviation at each exponent; nan where fewer than three sizes reach their horizon."""
    sizes_used: FloatArray
    """How many sizes reach their horizon at each exponent."""
    compute_unit: str
    """What C is; see `HorizonLaw`."""
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return {"law": "exponent", **asdict(self)}

    def __str__(self) -> str:
        low, high = self.interval
        interval = "not known, too few sizes" if np.isnan(low) else f"{low:.3f} to {high:.3f} (a size left out)"
        lines = [
            f"data exponent by collapse: C* ~ N^{self.exponent:.3f}"
            + (f", so D* ~ N^{self.exponent - 1:.3f}" if self.compute_unit == SIX_N_D else "")
            + f"; deviation {np.nanmin(self.deviation):.4f}; C is {self.compute_unit}",
            f"  interval: {interval}",
            f"  the bowl is within a tenth of its least from {self.bottom[0]:.3f} to {self.bottom[1]:.3f}",
            f"  searched around {self.reference:.3f}",
        ]
        return "\n".join([*lines, *(f"note: {w}" for w in self.warnings)])


def fit_exponent(
    runs: Sequence[Run],
    loss: str | None = None,
    exponent: float | None = None,
    middle: float | None = None,
    floor: float = 0.0,
    smooth: float = SMOOTH,
) -> DataExponent:
    """Find the exponent of the horizon along which constant-rate runs of several sizes collapse best.

    Horizons are ``C_mid (N / N_mid)^(1 + f (exponent - 1))`` for f = .6 to 1.4, with ``exponent`` and ``middle`` (C at
    the geometric mean of the extreme sizes) those of `fit_horizon` by default. Sizes that end before their horizon are
    left out of that deviation; loss curve and end loss are averaged over x (1 +- ``smooth``). Raises
    OnecurveError for fewer than three sizes.
    """
    curves, compute_unit, notes = constant_curves(runs, loss)
    sizes = np.array(sorted(curves))
    if sizes.size < 3:
        raise OnecurveError(
            f"a data exponent needs at least 3 sizes; got {sizes.size} ({', '.join(human(float(n)) for n in sizes)})"
        )
    if sizes.size < 4 and None in (exponent, middle):
        raise OnecurveError(
            "where to search is read off the horizon law, which needs 4 sizes; got 3: add one, or give exponent and "
            "middle in Python"
        )
    mid = float(np.sqrt(sizes[0] * sizes[-1]))
    if exponent is None or middle is None:
        law = fit_horizon(runs, loss)
        exponent = law.robust_exponent if exponent is None else exponent
        middle = float(law.compute(mid)) if middle is None else middle
    exponents = 1.0 + FACTORS * (exponent - 1.0)
    rows = np.full((exponents.size, sizes.size, FRACTIONS.size), np.nan)
    for j, n in enumerate(sizes):
        c, y = curves[float(n)]
        sums = _Means(c, y - floor)
        for i, e in enumerate(exponents):
            end = middle * (n / mid) ** e
            if end <= c[-1] * (1 + 1e-9):
                rows[i, j] = sums.at(FRACTIONS * end, smooth) / sums.at(np.array([end]), smooth)
    every = np.ones(sizes.size, dtype=bool)
    deviation, used = _rms(rows, every)
    if not np.isfinite(deviation).any():
        raise OnecurveError(
            "at no exponent do three sizes reach their horizon; train for longer, or give a smaller horizon"
        )
    best = _lowest(exponents, deviation)
    left_out = [_lowest(exponents, _rms(rows, np.arange(sizes.size) != j)[0]) for j in range(sizes.size)]
    left_out = [v for v in left_out if np.isfinite(v)]
    low = np.flatnonzero(deviation <= BLUNT * np.nanmin(deviation))
    if best in (exponents[0], exponents[-1]):
        notes.append(f"the least lies at the edge of the search ({best:.3f}): the curves do not pin an exponent")
    return DataExponent(
        exponent=best,
        interval=(min(left_out), max(left_out)) if sizes.size >= 4 and left_out else (np.nan, np.nan),
        bottom=(float(exponents[low[0]]), float(exponents[low[-1]])),
        reference=exponent,
        exponents=exponents,
        deviation=deviation,
        sizes_used=used,
        compute_unit=compute_unit,
        warnings=tuple(notes),
    )


class _Means:
    """Means of a curve over windows of x, from its running integral (trapezoid)."""

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        self.x, self.y = x, y
        self.integral = np.concatenate([[0.0], np.cumsum(0.5 * (y[1:] + y[:-1]) * np.diff(x))])

    def at(self, x: FloatArray, smooth: float) -> FloatArray:
        """Mean over x (1 +- smooth), cut at the curve's ends; its value where smooth is 0."""
        if smooth == 0.0:
            return np.interp(x, self.x, self.y)
        low, high = np.maximum(x * (1 - smooth), self.x[0]), np.minimum(x * (1 + smooth), self.x[-1])
        return (self._to(high) - self._to(low)) / (high - low)

    def _to(self, x: FloatArray) -> FloatArray:
        k = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, self.x.size - 2)
        y = np.interp(x, self.x, self.y)
        return self.integral[k] + 0.5 * (self.y[k] + y) * (x - self.x[k])


def _rms(rows: FloatArray, keep: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """RMS over fractions of the relative std over sizes, at each exponent, and how many sizes it rests on."""
    chosen = rows[:, keep]
    reach = np.all(np.isfinite(chosen), axis=2)
    count = reach.sum(axis=1)
    weight = reach[:, :, np.newaxis] / np.maximum(count, 1)[:, None, None]
    values = np.where(reach[:, :, np.newaxis], chosen, 0.0)
    mean = (weight * values).sum(axis=1)
    variance = (weight * (values - mean[:, None]) ** 2).sum(axis=1)
    out = np.full(count.size, np.nan)
    enough = count >= 3
    out[enough] = np.sqrt((variance[enough] / mean[enough] ** 2).mean(axis=1))
    return out, count.astype(np.float64)


def _lowest(exponents: FloatArray, deviation: FloatArray) -> float:
    return float(exponents[np.nanargmin(deviation)]) if np.isfinite(deviation).any() else np.nan
