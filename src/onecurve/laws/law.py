"""What all laws of loss curves share: fit, predict, interval, to_dict, and how a fit reports on itself.

A law is an immutable value. It is asked about a `Run`: one that was trained, or one that is only planned, which is a
`Run` without curves (`planned`). All it may look at are the run's settings and, where it says so, its signals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.run import Run, RunConfig
from onecurve.schedule import Schedule

VERSION = 1
Intervals = Literal["bootstrap", "profile"]
NO_RUNS = "a law needs runs to be fitted to; got none"

if TYPE_CHECKING:
    Array = FloatArray
else:
    Array = Annotated[
        np.ndarray,
        PlainValidator(lambda v: np.asarray(v, dtype=np.float64)),
        PlainSerializer(lambda v: v.tolist()),
    ]


@dataclass(frozen=True)
class Report:
    """How a fit went."""

    objective: float
    """Mean Huber loss (delta 1e-3) of log residuals, unless the law says otherwise."""
    gradient_norm: float = 0.0
    """Largest absolute slope of the objective at the solution, over parameters that are free."""
    condition: float = 1.0
    at_bound: tuple[str, ...] = ()
    runs: int = 0
    points: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """90 % interval of each parameter."""
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

    def at(self, fraction: FloatArray) -> FloatArray:
        """Half-width of the log prediction's band."""
        return np.interp(fraction, self.fraction, self.half_width)


@dataclass(frozen=True)
class Law(ABC):
    """One law, fitted."""

    report: Report
    band: Band | None = field(default=None, kw_only=True)

    name: ClassVar[str]
    about: ClassVar[str]
    needs: ClassVar[str]
    reach: ClassVar[str]
    """What it can and cannot extrapolate."""
    normalised: ClassVar[bool] = False
    """Whether it predicts the loss over the run's own final loss, not the loss."""
    one_size: ClassVar[bool] = False
    """Whether one fit serves one model size only."""
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
    def predict(self, run: Run, x: ArrayLike) -> FloatArray:
        """Loss of a run at each x, from its settings alone."""

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
        lines = [self.formula(), f"  fitted to {r.points} points of {r.runs} runs; objective {r.objective:.6g}"]
        if r.gradient_norm or r.condition != 1.0:
            lines[-1] += f", gradient {r.gradient_norm:.1e}, condition {r.condition:.3g}"
        lines += [f"  {name}: 90 % interval {low:.6g} to {high:.6g}" for name, (low, high) in r.intervals.items()]
        if r.resampled:
            lines.append(f"  intervals by {r.resampled}")
        lines += [f"  left out: {count} {what}" for what, count in r.dropped.items() if count]
        if self.band is not None:
            b = self.band
            lines.append(
                f"  band: {b.level:.0%} within {100 * b.half_width[-1]:.3g} % at the end, from runs of "
                f"{b.groups} {b.left_out}s left out in turn"
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
