"""Which models lie on the frontier of score and compute, what power laws their errors follow, and what compute saves.

``error = (K / x)^b`` against training FLOPs C, tokens D and parameters N is a straight line in logarithms (arXiv
2509.25087, figure 2, with the error in per cent): ordinary least squares, one point a size, with Student's t for the
intervals.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onecurve.errors import OnecurveError, did_you_mean, some
from onecurve.fit import FloatArray, IntArray
from onecurve.scores.table import Scores

LEVEL = 0.9
"""Of every interval."""
LEAST = 3
"""Points of a family that leave one to judge a straight line by."""
AXES = ("C", "D", "N")


def pareto(compute: ArrayLike, error: ArrayLike) -> NDArray[np.bool_]:
    """(R,) whether no other model has less error for as much compute, or as little error for less.

    Examples:
        >>> pareto([1.0, 2.0, 3.0, 3.0], [0.5, 0.6, 0.4, 0.4]).tolist()
        [True, False, True, True]
    """
    c, e = np.asarray(compute, dtype=np.float64), np.asarray(error, dtype=np.float64)
    order = np.lexsort((e, c))
    best = np.minimum.accumulate(e[order])
    before = np.concatenate([[np.inf], best[:-1]])
    # Equal models are both on the frontier: the one before is no better.
    twin = np.concatenate([[False], (np.diff(c[order]) == 0) & (np.diff(e[order]) == 0)])
    on = e[order] < before
    first = np.maximum.accumulate(np.where(twin, 0, np.arange(e.size)))
    out = np.empty(e.size, dtype=bool)
    out[order] = on[first]
    return out


@dataclass(frozen=True)
class PowerFit:
    """``error = (K / x)^b`` of one family, with what its points say of it."""

    family: str
    against: str
    """C, D or N."""
    scale: float
    """K, in the unit of x, for an error that is a share (or bits per byte); infinite for an exponent of 0."""
    exponent: float
    """b"""
    interval: tuple[float, float]
    """90 % interval of the exponent."""
    spread: float
    """Standard deviation of the log errors about the line."""
    x: FloatArray
    """(P,) the points, one a size: seeds are averaged."""
    error: FloatArray
    residual: FloatArray
    """(P,) error less the fit's."""
    without_smallest: FloatArray
    """Exponents with the smallest 0, 1, 2, ... points left out, down to three points."""

    @property
    def freedom(self) -> int:
        """Degrees of freedom of ``spread``."""
        return self.x.size - 2

    def predict(self, x: ArrayLike) -> FloatArray:
        """The error at x."""
        off = np.log(np.asarray(x, dtype=np.float64)) - np.log(self.x).mean()
        return np.exp(np.log(self.error).mean() - self.exponent * off)

    def band(self, x: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Where the error of one more model of the family at x lies, in 90 % of cases."""
        at = np.log(np.asarray(x, dtype=np.float64))
        lx = np.log(self.x)
        leverage = 1.0 + 1.0 / lx.size + (at - lx.mean()) ** 2 / ((lx - lx.mean()) ** 2).sum()
        half = _t(self.freedom) * self.spread * np.sqrt(leverage)
        value = self.predict(x)
        return value * np.exp(-half), value * np.exp(half)

    def inverse(self, error: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The x at which the line has an error, and the ends of its 90 % interval.

        The interval holds every x at which `band` has the error (the calibration of a straight line, by Fieller's
        theorem); an end that is not there, since the slope's own interval reaches zero, is 0 or infinite.
        """
        y = np.log(np.asarray(error, dtype=np.float64))
        lx = np.log(self.x)
        middle, width, count = lx.mean(), ((lx - lx.mean()) ** 2).sum(), lx.size
        slope = -self.exponent
        off = y - np.log(self.error).mean()
        tt = (_t(self.freedom) * self.spread) ** 2
        # (off - slope d)^2 = t^2 s^2 (1 + 1/n + d^2 / width), solved for d = log x - middle.
        a = slope**2 - tt / width
        root = np.sqrt(np.maximum(off**2 * tt / width + a * tt * (1.0 + 1.0 / count), 0.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ends = np.sort(np.stack([(slope * off - root) / a, (slope * off + root) / a]), axis=0)
            low, high = np.exp(middle + ends) if a > 0 else (np.zeros_like(off), np.full_like(off, np.inf))
            return np.exp(middle + off / slope), low, high

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return asdict(self)


def fit_power(family: str, against: str, x: ArrayLike, error: ArrayLike) -> PowerFit:
    """Fit ``log error = b (log K - log x)`` by least squares; models with the same x count as one point.

    Raises OnecurveError for fewer than three different x.
    """
    at, inverse = np.unique(np.asarray(x, dtype=np.float64), return_inverse=True)
    count = np.bincount(inverse)
    y = np.bincount(inverse, np.log(np.asarray(error, dtype=np.float64))) / count
    if at.size < LEAST:
        raise OnecurveError(f"{family}: a power law in {against} needs at least {LEAST} sizes; got {at.size}")
    lx = np.log(at)
    slope, middle = _line(lx, y)
    off = y - (middle + slope * (lx - lx.mean()))
    spread = float(np.sqrt((off**2).sum() / (at.size - 2)))
    half = _t(at.size - 2) * spread / np.sqrt(((lx - lx.mean()) ** 2).sum())
    fitted = np.exp(middle + slope * (lx - lx.mean()))
    with np.errstate(over="ignore"):
        scale = float(np.exp(lx.mean() - middle / slope)) if slope else np.inf
    return PowerFit(
        family=family,
        against=against,
        scale=scale,
        exponent=-slope,
        interval=(float(-slope - half), float(-slope + half)),
        spread=spread,
        x=at,
        error=np.exp(y),
        residual=np.exp(y) - fitted,
        without_smallest=-_slopes_from(lx, y),
    )


def _line(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Slope of y on x, and y at the mean of x."""
    d = x - x.mean()
    return float((d * y).sum() / (d**2).sum()), float(y.mean())


def _slopes_from(x: FloatArray, y: FloatArray) -> FloatArray:
    """Slopes of the last P, P - 1, ... 3 points, by running sums from the end."""
    x, y = x - x.mean(), y - y.mean()
    count, sx, sy, sxx, sxy = np.cumsum(np.stack([np.ones_like(x), x, y, x * x, x * y])[:, ::-1], axis=1)[
        :, LEAST - 1 :
    ]
    return ((count * sxy - sx * sy) / (count * sxx - sx**2))[::-1]


def _t(freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + LEVEL / 2))


@dataclass(frozen=True)
class Ratios:
    """Compute at which one family has the error of each other model, over that model's compute: below 1 saves."""

    family: str
    rows: IntArray
    """(M,) the other models, by their row."""
    between: FloatArray
    """(M,) on the line between the family's two neighbouring models, in logarithms; nan outside of the family."""
    fitted: FloatArray
    """(M,) on the family's power law; nan without one."""
    low: FloatArray
    high: FloatArray
    """(M,) 90 % interval of ``fitted``, for the scatter of one model about the law; nan without one."""
    nearest: IntArray
    """(M,) the family's model nearest in error, by its row."""


@dataclass(frozen=True)
class Frontier:
    """Scores against compute: the Pareto set, the families' power laws, and what compute saves."""

    scores: Scores
    on: NDArray[np.bool_]
    """(R,) the Pareto set."""
    fits: tuple[PowerFit, ...]
    """Of every family with three sizes, against C, D and N."""
    ratios: Ratios | None
    notes: tuple[str, ...]

    @property
    def along(self) -> IntArray:
        """The rows of the Pareto set, compute rising."""
        rows = np.flatnonzero(self.on)
        return rows[np.argsort(self.scores.compute[rows], kind="stable")]

    def fit(self, family: str, against: str = "C") -> PowerFit | None:
        """One family's power law, where it has one."""
        return next((f for f in self.fits if (f.family, f.against) == (family, against)), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        s = self.scores
        rows = [
            {
                "name": s.name[k],
                "family": s.family[k],
                "n_params": s.n_params[k],
                "tokens": s.tokens[k],
                "compute": s.compute[k],
                "teacher_flops": s.teacher[k],
                "distilled": bool(s.distilled[k]),
                s.score: s.value[k],
                "stderr": s.stderr[k],
                "pareto": bool(self.on[k]),
                "source": s.source[k],
            }
            for k in range(len(s))
        ]
        ratios = None
        if self.ratios is not None:
            r = self.ratios
            ratios = {
                "family": r.family,
                "models": [s.name[k] for k in r.rows],
                "between": r.between,
                "fitted": r.fitted,
                "interval": np.stack([r.low, r.high], axis=1),
                "nearest": [s.name[k] for k in r.nearest],
            }
        fits = [f.to_dict() for f in self.fits]
        return {"score": s.score, "models": rows, "fits": fits, "ratios": ratios, "notes": list(self.notes)}


def frontier(scores: Scores, family: str | None = None) -> Frontier:
    """The Pareto set of models, power laws of every family, and compute ratios at equal error.

    The ratios compare ``family`` with every other model; by default the family with the most sizes, the first of
    several. Raises OnecurveError for a family that is not there.
    """
    names = list(dict.fromkeys(scores.family))
    if family is not None and family not in names:
        raise OnecurveError(
            f"--family is {family!r}, which no model is of{did_you_mean(family, names)}; there are {some(names)}"
        )
    notes = list(scores.notes)
    perfect = scores.error <= 0.0
    if perfect.any():
        notes.append(f"no error left, so in no power law: {some([scores.name[k] for k in np.flatnonzero(perfect)])}")
    columns = {"C": scores.compute, "D": scores.tokens, "N": scores.n_params}
    code = np.unique(scores.family, return_inverse=True)
    members = {str(name): np.flatnonzero((code[1] == i) & ~perfect) for i, name in enumerate(code[0])}
    fits: list[PowerFit] = []
    for name in names:
        for against, x in columns.items():
            known = members[name][np.isfinite(x[members[name]])]
            if np.unique(x[known]).size >= LEAST:
                fits.append(fit_power(name, against, x[known], scores.error[known]))
    if family is None:
        family = max(names, key=lambda name: np.unique(scores.compute[members[name]]).size)
    ratios = None
    if len(names) > 1 and members[family].size:
        law = next((f for f in fits if (f.family, f.against) == (family, "C")), None)
        ratios = _ratios(scores, family, members[family], law)
    return Frontier(scores, pareto(scores.compute, scores.error), tuple(fits), ratios, tuple(notes))


def _ratios(s: Scores, family: str, mine: IntArray, law: PowerFit | None) -> Ratios:
    others = np.flatnonzero((np.array(s.family) != family) & (s.error > 0))
    error = s.error[others]
    # One curve of the family: its own frontier, so that less error always takes more compute.
    own = mine[pareto(s.compute[mine], s.error[mine])]
    own = own[np.argsort(s.error[own], kind="stable")]
    _, first = np.unique(s.error[own], return_index=True)
    own = own[first]
    at = np.log(s.error[own])
    between = np.interp(np.log(error), at, np.log(s.compute[own]), left=np.nan, right=np.nan)
    place = np.clip(np.searchsorted(at, np.log(error)), 1, max(own.size - 1, 1))
    left, right = own[place - 1], own[np.minimum(place, own.size - 1)]
    nearest = np.where(np.abs(s.error[left] - error) <= np.abs(s.error[right] - error), left, right)
    missing = np.full(others.size, np.nan)
    reach = (missing, missing, missing) if law is None else law.inverse(error)
    compute = s.compute[others]
    fitted, low, high = (v / compute for v in reach)
    return Ratios(family, others, np.exp(between) / compute, fitted, low, high, nearest)
