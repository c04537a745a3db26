"""`Run`: what was set and what was logged of one training run. Immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field

from onecurve.errors import OnecurveError
from onecurve.schedule import Schedule

FloatArray = NDArray[np.float64]
LARGEST = 1e70
"""A loss beyond counts as infinite: the squares of ratios of such numbers overflow."""
LossKind = Literal["held-out", "training"]
Setting = str | int | float | bool


class RunConfig(BaseModel):
    """What was set: the size, the planned horizon and the controls that shape a loss curve.

    Everything but ``name`` and ``n_params`` may be unknown (`None`); what is unknown is never guessed. Token counts
    are in the unit of the run's x axis, which is tokens unless `Run.x_name` says otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    n_params: float = Field(gt=0)
    """N: parameters, embeddings included."""
    horizon: float | None = Field(default=None, gt=0)
    """D: planned training tokens."""
    seed: str | int | None = None
    """Label of the repetition, where initialisation and data order are not told apart."""
    seed_init: str | int | None = None
    seed_data: str | int | None = None
    batch_tokens: float | None = Field(default=None, gt=0)
    """B: tokens per optimiser step."""
    learning_rate: float | None = Field(default=None, ge=0)
    """Peak learning rate as applied to the hidden matrices."""
    base_learning_rate: float | None = Field(default=None, ge=0)
    """Peak learning rate before any scaling with width or depth."""
    weight_decay: float | None = Field(default=None, ge=0)
    """As PyTorch's AdamW defines it (multiplied by the learning rate), as applied to the hidden matrices."""
    schedule: Schedule | None = None
    optimiser: str | None = None
    parameterisation: str | None = None
    width: int | None = None
    parent: str | None = None
    """The run from which this one branched off, sharing all before ``branch_step``: a decay off a stable trunk."""
    branch_step: float | None = Field(default=None, ge=0)
    compute: float | None = Field(default=None, gt=0)
    """Training compute at the horizon, in any unit that the whole ladder shares."""
    settings: dict[str, Setting] = Field(default_factory=dict)
    """Anything else that was recorded of the run."""

    @property
    def seed_label(self) -> str:
        """One label for the repetition: the seed, or the pair (initialisation, data)."""
        if self.seed is not None:
            return str(self.seed)
        if self.seed_init is None and self.seed_data is None:
            return ""
        return f"{self.seed_init}/{self.seed_data}"


@dataclass(frozen=True, eq=False)
class Curve:
    """A loss against x, in the order it was logged.

    x and loss are equally long, x rises strictly; loss may hold non-finite values, which are data.
    ``kind`` says whether the loss was measured on held-out data or is the training loss of the step.
    """

    x: FloatArray
    loss: FloatArray
    kind: LossKind = "training"

    def __post_init__(self) -> None:
        x, loss = _frozen(self.x), _frozen(self.loss)
        if x.ndim != 1 or x.shape != loss.shape:
            raise OnecurveError(f"x and loss must be two equally long vectors; got shapes {x.shape} and {loss.shape}")
        if not np.all(np.isfinite(x)):
            raise OnecurveError(
                f"x must be finite; got {x[~np.isfinite(x)][0]} at row {int(np.argmin(np.isfinite(x)))}"
            )
        if np.any(np.diff(x) <= 0):
            row = int(np.argmax(np.diff(x) <= 0)) + 1
            raise OnecurveError(f"x must rise strictly; got {x[row]:g} after {x[row - 1]:g} at row {row}")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "loss", loss)

    def __len__(self) -> int:
        return self.x.size

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Curve)
            and self.kind == other.kind
            and np.array_equal(self.x, other.x)
            and np.array_equal(self.loss, other.loss, equal_nan=True)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]  (equal by value, and arrays have no hash)

    def finite(self) -> Curve:
        """The same curve without its non-finite losses, or those beyond `LARGEST`."""
        ok = np.abs(self.loss) <= LARGEST
        return self if ok.all() else Curve(self.x[ok], self.loss[ok], self.kind)


_UNITS = {
    "token": "tokens",
    "sample": "samples",
    "step": "steps",
    "iter": "steps",
    "compute": "compute",
    "flop": "compute",
}
SIGNAL_NAMES = ("learning_rate", "gradient_noise", "gradient_flow_time")


@dataclass(frozen=True, eq=False)
class Signal:
    """Something logged beside the loss, against x: equally long vectors, x rising strictly."""

    x: FloatArray
    value: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", _frozen(self.x))
        object.__setattr__(self, "value", _frozen(self.value))

    def __len__(self) -> int:
        return self.x.size


def _frozen(values: ArrayLike) -> FloatArray:
    """A read-only vector; an array that its owner may still write to is copied."""
    array = np.asarray(values, dtype=np.float64)
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Run:
    """One training run: its configuration and its curves, by name.

    Examples:
        >>> run = Run.of("a", n_params=1e6, x=[1e6, 2e7], loss=[3.0, 2.5], horizon=2e7, seed=0)
        >>> run
        Run('a', N 1M, horizon 20M tokens, seed 0, 2 points of 'loss' (training))
    """

    config: RunConfig
    curves: dict[str, Curve]
    x_name: str = "tokens"
    signals: dict[str, Signal] = field(default_factory=dict, compare=False)
    """What else was logged and is known to laws: learning_rate, gradient_noise, gradient_flow_time."""
    source: str = field(default="", compare=False)
    """Where the run was read from, for messages."""

    @classmethod
    def of(
        cls,
        name: str,
        *,
        n_params: float,
        x: ArrayLike,
        loss: ArrayLike,
        kind: LossKind = "training",
        loss_name: str = "loss",
        x_name: str = "tokens",
        horizon: float | None = None,
        seed: str | int | None = None,
        **settings: Setting,
    ) -> Self:
        """A run from arrays; further keywords are recorded as settings."""
        config = RunConfig(name=name, n_params=float(n_params), horizon=horizon, seed=seed, settings=settings)
        curve = Curve(np.asarray(x, dtype=np.float64), np.asarray(loss, dtype=np.float64), kind)
        return cls(config, {loss_name: curve}, x_name)

    @property
    def end(self) -> float:
        """The planned end of training, else the last point of any curve."""
        last = max((float(curve.x[-1]) for curve in self.curves.values()), default=0.0)
        end = self.config.horizon or last
        if not end > 0:
            raise OnecurveError(f"{self.where}: has neither a horizon nor a point after {self.x_name} = 0")
        return end

    @property
    def unit(self) -> str:
        """What x counts, whatever its column is called: tokens, samples, steps or compute; else the column's name.

        Examples:
            >>> Run.of("a", n_params=1.0, x=[1.0], loss=[1.0], x_name="num_input_tokens_seen").unit
            'tokens'
        """
        name = self.x_name.lower()
        return next((unit for word, unit in _UNITS.items() if word in name), self.x_name)

    @property
    def six_n_d(self) -> float | None:
        """Training compute by the rule C = 6 N D; x itself where that is compute, None where x tells no tokens."""
        match self.unit:
            case "tokens" | "samples":
                return 6.0 * self.config.n_params * self.end
            case "steps" if self.config.batch_tokens is not None:
                return 6.0 * self.config.n_params * self.end * self.config.batch_tokens
            case "compute":
                return self.end
            case _:
                return None

    def curve(self, name: str | None = None) -> Curve:
        """The curve of that name, by default the held-out loss where there is one."""
        if name is None and self.curves:
            return min(self.curves.values(), key=lambda c: c.kind != "held-out")
        if name not in self.curves:
            raise OnecurveError(
                f"{self.where}: no curve {name!r}; it has {', '.join(map(repr, self.curves)) or 'none'}"
            )
        return self.curves[name]

    @property
    def where(self) -> str:
        """The run and the file it came from, as messages name it."""
        return (f"{self.source}: " if self.source else "") + f"run {self.config.name!r}"

    def __repr__(self) -> str:
        c = self.config
        parts = [f"{c.name!r}", f"N {human(c.n_params)}"]
        if c.horizon is not None:
            parts.append(f"horizon {human(c.horizon)} {self.x_name}")
        if c.seed_label:
            parts.append(f"seed {c.seed_label}")
        parts += [f"{len(curve)} points of {name!r} ({curve.kind})" for name, curve in self.curves.items()]
        return f"Run({', '.join(parts)})"


def human(value: float) -> str:
    """A count in three digits with K, M, B or T.

    Examples:
        >>> human(1_478_016), human(20e12), human(950)
        ('1.48M', '20T', '950')
    """
    for limit, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"
