"""What all laws of loss curves share: fit, predict, interval, to_dict, and how a fit reports on itself.

A law is an immutable value. It is asked about a `Run`: one that was trained, or one that is only planned, which is a
`Run` without curves (`planned`). All it may look at are the run's settings and, where it says so, its signals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.run import Run, RunConfig, human
from onecurve.schedule import Schedule

VERSION = 1
Intervals = Literal["bootstrap", "profile"]
FAR = 3.0
"""Runs this many times longer or larger than those of the fit are beyond what its band was tried on."""
ROUNDED = 0.02
"""A size within this of a fitted one is the same, as written with two digits."""


def _vector(value: Any) -> FloatArray:
    if not isinstance(value, (list, tuple, np.ndarray)) or not all(
        isinstance(v, (int, float)) or v == "NaN" for v in value
    ):
        raise ValueError("must be a list of numbers")
    return np.asarray(value, dtype=np.float64)


if TYPE_CHECKING:
    Array = FloatArray
else:
    Array = Annotated[
        np.ndarray,
        PlainValidator(_vector),
        PlainSerializer(lambda v: v.tolist()),
    ]


def equally_long(**vectors: FloatArray) -> None:
    """ValueError unless vectors that belong together have one length above 0."""
    if len({v.size for v in vectors.values()}) > 1 or not all(v.size for v in vectors.values()):
        raise ValueError(f"{' and '.join(vectors)} must be equally long and not empty")


@dataclass(frozen=True)
class Report:
    """How a fit went."""

    objective: float = np.nan
    """Mean Huber loss (delta 1e-3) of log residuals, unless the law says otherwise; nan where nothing was minimised."""
    gradient_norm: float = np.nan
    """Largest absolute slope of the objective at the solution, over parameters that are free."""
    condition: float = np.nan
    at_bound: tuple[str, ...] = ()
    runs: int = 0
    points: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """90 % interval of each parameter; nan for one at its bound, whose interval resampling does not tell."""
    resampled: str = ""
    """What the intervals come from: resampled runs, resampled blocks of residuals, or profiles."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Band:
    """How far runs that a law had not seen lay from its prediction, by training fraction.

    Half-widths of the central 90 % of log residuals. Made by leaving out each group of runs in turn
    (`onecurve.laws.score.calibrated`).
    """

    fraction: Array
    """(K,) rises."""
    half_width: Array
    """(K,)"""
    level: float
    groups: int
    """How many groups of runs were left out in turn."""
    left_out: str
    """What a group was: size, schedule or run."""

    def __post_init__(self) -> None:
        equally_long(fraction=self.fraction, half_width=self.half_width)

    def at(self, fraction: FloatArray) -> FloatArray:
        """Half-width of the log prediction's band."""
        return np.interp(fraction, self.fraction, self.half_width)


@dataclass(frozen=True)
class Scope:
    """The runs that a law was fitted to, as far as it matters for those it is asked about."""

    unit: str
    """What x counted; see `Run.unit`."""
    sizes: tuple[float, ...]
    """Their parameter counts, rising."""
    lengths: tuple[float, float]
    """The shortest and the longest run, in units of x."""
    schedule: Schedule | None
    """The schedule that all of them had, with the warmup share of the largest; None where they differ."""

    @classmethod
    def of(cls, runs: Sequence[Run], law: str) -> Self:
        """The scope of some runs. Raises OnecurveError for no runs, and for runs on different axes."""
        if not runs:
            raise OnecurveError(f"{law} needs runs to be fitted to; got none")
        units = {run.unit: run for run in runs}
        if len(units) > 1:
            (a, one), (b, other) = list(units.items())[:2]
            raise OnecurveError(
                f"{one.where} has x in {a}, {other.where} in {b}; {law} needs one unit for all: read them apart"
            )
        largest = max(runs, key=lambda run: run.config.n_params).config.schedule
        same = len({steady_part(run.config.schedule) for run in runs}) == 1
        ends = [run.end for run in runs]
        sizes = tuple(sorted({run.config.n_params for run in runs}))
        return cls(next(iter(units)), sizes, (min(ends), max(ends)), largest if same else None)

    def knows(self, n_params: float) -> bool:
        """Whether a size is one of those fitted."""
        return any(abs(n_params / n - 1.0) <= ROUNDED for n in self.sizes)


def steady_part(schedule: Schedule | None) -> str | None:
    """A schedule without its warmup, whose share changes with the length of a run; None where it is not known."""
    return None if schedule is None else str(schedule.model_copy(update={"warmup": 0.0}))


@dataclass(frozen=True)
class Law(ABC):
    """One law, fitted."""

    report: Report
    band: Band | None = field(default=None, kw_only=True)
    scope: Scope | None = field(default=None, kw_only=True)
    """What it was fitted to; None for a law made by hand, which may be asked anything."""

    name: ClassVar[str]
    about: ClassVar[str]
    needs: ClassVar[str]
    reach: ClassVar[str]
    """What it can and cannot extrapolate."""
    normalised: ClassVar[bool] = False
    """Whether it predicts the loss over the run's own final loss, not the loss."""
    one_size: ClassVar[bool] = False
    """Whether one fit serves one model size only."""
    one_schedule: ClassVar[bool] = False
    """Whether its curve is that of the schedule it was fitted to."""
    fractions: ClassVar[FloatArray] = np.empty(0)
    """Fractions at which normalised curves are fitted and judged."""
    over: ClassVar[str] = "size"
    """What it carries over: size, or schedule."""

    @classmethod
    @abstractmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """Fit to runs. Raises OnecurveError with the reason where they cannot identify the law.

        ``intervals`` says where the parameters' intervals come from; a law that has but one way ignores nothing: it
        refuses ``profile``.
        """

    @abstractmethod
    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """`predict` for a run that the law may be asked about."""

    def predict(self, run: Run, x: ArrayLike) -> FloatArray:
        """Loss of a run at each x, from its settings alone.

        Raises OnecurveError where x counts something else than in the fit, for other sizes than that of a law of one
        size, and where the run lacks a setting that the law needs.
        """
        if self.scope is not None:
            if run.unit != self.scope.unit:
                raise OnecurveError(
                    f"{run.where}: x is in {run.unit}, and {self.name} was fitted to x in {self.scope.unit}; choose "
                    "that column with --x, or fit the law again"
                )
            if self.one_size and not self.scope.knows(run.config.n_params):
                raise OnecurveError(
                    f"{run.where}: {self.name} was fitted at {human(self.scope.sizes[0])} parameters and does not "
                    f"carry over to {human(run.config.n_params)}; fit it to runs of that size"
                )
        at = np.asarray(x, dtype=np.float64)
        return self.values(run, np.atleast_1d(at)).reshape(at.shape)

    def remarks(self, run: Run) -> list[str]:
        """What to know before believing a prediction: how far the run lies from those of the fit."""
        if self.scope is None:
            return []
        out: list[str] = []
        n, sizes, (short, long) = run.config.n_params, self.scope.sizes, self.scope.lengths
        beyond = "its band was not tried so far" if self.band else "no fitted run says how it goes on there"
        step = max((large / small for small, large in pairwise(sizes)), default=1.0)  # the band was tried one ahead
        for what, value, low, high, far in (
            ("size", n, sizes[0], sizes[-1], max(FAR, step)),
            ("length", run.end, short, long, FAR),
        ):
            if what == "length" and self.over == "size" and not self.one_size:
                continue  # the length goes with the size
            if value > 1.01 * far * high:
                out.append(f"{value / high:.3g} times the largest {what} of the fit: {beyond}")
            elif value < low / far / 1.01:
                out.append(f"{value / low:.2g} of the smallest {what} of the fit: {beyond}")
        mine = steady_part(run.config.schedule)
        told = steady_part(self.scope.schedule)
        if self.one_schedule and None not in (mine, told) and mine != told:
            out.append(f"its schedule is {mine}, and the curve is that of {told}, to which the law was fitted")
        return out

    def stretch(self, run: Run) -> float:
        """How much wider the band is for this run than for those inside the data; 1 unless the law knows better."""
        return 1.0

    def interval(self, run: Run, x: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper end of the band around `predict`; nan where the law has no band, see `band`."""
        at = np.asarray(x, dtype=np.float64)
        value = self.predict(run, at)
        if self.band is None:
            return np.full_like(value, np.nan), np.full_like(value, np.nan)
        factor = np.exp(self.band.at(at / run.end) * self.stretch(run))
        return value / factor, value * factor

    def with_band(self, band: Band) -> Self:
        """The same law with a band."""
        return replace(self, band=band)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision; `onecurve.laws.registry.load` is the way back."""
        return {"law": self.name, "version": VERSION, **TypeAdapter(type(self)).dump_python(self, mode="python")}

    @classmethod
    def from_dict(cls, content: dict[str, Any], source: str = "the law") -> Self:
        """The law that `to_dict` wrote. Raises OnecurveError for another version or for a damaged file."""
        version = content.get("version")
        if not isinstance(version, int) or version > VERSION:
            raise OnecurveError(
                f"{source}: version {version!r} of a saved law; this program reads up to {VERSION}: upgrade onecurve, "
                "or fit the law again"
            )
        inner = {k: v for k, v in content.items() if k not in ("law", "version")}
        try:
            return TypeAdapter(cls).validate_python(inner)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "its content"
            raise OnecurveError(f"{source}: {where}: {first['msg'].lower()}; fit the law again") from None

    def parameters(self) -> dict[str, float]:
        """The fitted numbers by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), float)}

    def formula(self) -> str:
        """The law with its numbers, in one line."""
        return f"{self.name}: " + ", ".join(f"{k} {v:.6g}" for k, v in self.parameters().items())

    def __str__(self) -> str:
        r = self.report
        told = {
            "objective": (r.objective, ".6g"),
            "gradient": (r.gradient_norm, ".1e"),
            "condition": (r.condition, ".3g"),
        }
        words = ", ".join(f"{what} {value:{how}}" for what, (value, how) in told.items() if np.isfinite(value))
        lines = [self.formula(), f"  fitted to {r.points} points of {r.runs} runs" + (f"; {words}" if words else "")]
        lines += [
            f"  {name}: 90 % interval {low:.6g} to {high:.6g}"
            for name, (low, high) in r.intervals.items()
            if low <= high
        ]
        lines += [f"  {name}: at the bound of what is allowed" for name in r.at_bound]
        if r.resampled:
            lines.append(f"  intervals by {r.resampled}")
        lines += [f"  left out: {count} {what}" for what, count in r.dropped.items() if count]
        if self.band is not None:
            b = self.band
            at, words = (0.5, "half of training") if self.normalised else (1.0, "the end")
            lines.append(
                f"  band: {b.level:.0%} within {100 * np.interp(at, b.fraction, b.half_width):.3g} % at {words}, from "
                f"runs of {b.groups} {b.left_out}s left out in turn"
            )
        return "\n".join([*lines, *(f"note: {w}" for w in r.warnings)])


def bootstrap_only(law: str, intervals: Intervals) -> None:
    """OnecurveError where a law is asked for profiles that it does not have."""
    if intervals != "bootstrap":
        raise OnecurveError(f"{law} has no profile intervals; leave --intervals out")


def planned(
    n_params: float,
    horizon: float,
    schedule: Schedule | None = None,
    x_name: str = "tokens",
    **settings: Any,
) -> Run:
    """A run that has not been trained, for a law to predict; ``settings`` are fields of `RunConfig`."""
    numbers = {"n_params": n_params, "horizon": horizon} | {k: v for k, v in settings.items() if v is not None}
    for name, value in numbers.items():
        if isinstance(value, float) and not np.isfinite(value):
            raise OnecurveError(f"the planned run's {name} is {value}; give a finite number")
    try:
        config = RunConfig(
            name="planned", n_params=float(n_params), horizon=float(horizon), schedule=schedule, **settings
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise OnecurveError(f"the planned run's {where} is {first['input']!r}: {first['msg'].lower()}") from None
    return Run(config, {}, x_name)
