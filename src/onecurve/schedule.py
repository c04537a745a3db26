"""Learning-rate schedules: functions of the training fraction, with peak 1.

A schedule here is a shape, not a list of numbers: the same `Schedule` describes a run of a thousand steps and
one of a million. Step `k` of `T` sits at fraction ``x = k / T``, and warmup is part of the fraction.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

Shape = Literal["constant", "linear", "cosine", "quadratic", "multicosine", "sqrt", "exponential"]


class Schedule(BaseModel):
    """The learning rate over its peak, at every training fraction.

    With warmup share ``w``, decay share ``d`` (of what follows the warmup) and final value ``f``::

        x < w:  x / w
        else:   f + (1 - f) * s(u),   u = max(0, ((x - w) / (1 - w) - (1 - d)) / d)

    where ``s`` is 1 (constant), ``1 - u`` (linear), ``(1 + cos(pi u)) / 2`` (cosine), ``1 - u^2`` (quadratic),
    ``(1 + cos(3 pi u)) / 2`` (multicosine) or ``1 - sqrt(u)`` (sqrt); the exponential shape is ``f^u``.
    The shapes are those of arXiv 2507.02119 (appendix) and of the usual warmup-stable-decay family: any shape with
    ``decay_frac < 1`` is warmup-stable-decay.

    Examples:
        >>> Schedule(shape="linear", warmup=0.1)([0.05, 0.1, 0.55, 1.0])
        array([0.5, 1. , 0.5, 0. ])
        >>> Schedule(shape="sqrt", decay_frac=0.2, final=0.1)([0.5, 0.8, 0.85, 1.0])
        array([1.  , 1.  , 0.55, 0.1 ])
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    shape: Shape = "linear"
    warmup: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the whole run spent in linear warmup from 0 to the peak."""
    decay_frac: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of what follows the warmup that is spent decaying, at the end."""
    final: float = Field(default=0.0, ge=0.0, le=1.0)
    """Value at the end of training, as a share of the peak."""

    @model_validator(mode="before")
    @classmethod
    def _accept_share_of_total(cls, data: Any) -> Any:
        # Warmup-stable-decay recipes often give the decay as a share of the whole run; only this name accepts that.
        if isinstance(data, dict) and "decay_frac_of_total" in data:
            if "decay_frac" in data:
                raise ValueError("give decay_frac (of what follows the warmup) or decay_frac_of_total, not both")
            data = dict(data)
            share, warmup = data.pop("decay_frac_of_total"), data.get("warmup", 0.0)
            for name, value in (("decay_frac_of_total", share), ("warmup", warmup)):
                if not isinstance(value, (int, float)):
                    raise ValueError(f"{name} is {value!r}, which is not a number")
            if not 0.0 <= warmup < 1.0 or not 0.0 < share <= 1.0 - warmup + 1e-12:
                raise ValueError(
                    f"decay_frac_of_total must lie in (0, 1 - warmup]; got {share:g} with warmup {warmup:g}"
                )
            data["decay_frac"] = min(1.0, share / (1.0 - warmup))
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.shape == "exponential" and self.final <= 0.0:
            raise ValueError("final = 0 cannot be reached exponentially; give final > 0 (0.1, say) or another shape")
        return self

    def __call__(self, fraction: ArrayLike) -> NDArray[np.float64]:
        """Multiplier in [0, 1] at each training fraction; fractions outside [0, 1] take the value at the nearer end."""
        x = np.clip(np.asarray(fraction, dtype=np.float64), 0.0, 1.0)
        after_warmup = (x - self.warmup) / (1.0 - self.warmup)
        u = np.clip((after_warmup - (1.0 - self.decay_frac)) / self.decay_frac, 0.0, 1.0)
        match self.shape:
            case "constant":
                decayed = np.ones_like(u)
            case "linear":
                decayed = 1.0 - u
            case "cosine":
                decayed = (1.0 + np.cos(np.pi * u)) / 2.0
            case "quadratic":
                decayed = 1.0 - u**2
            case "multicosine":
                decayed = (1.0 + np.cos(3.0 * np.pi * u)) / 2.0
            case "sqrt":
                decayed = 1.0 - np.sqrt(u)
            case "exponential":
                decayed = self.final**u
        if self.shape not in ("constant", "exponential"):
            decayed = self.final + (1.0 - self.final) * decayed
        if self.warmup == 0.0:
            return decayed
        return np.where(x < self.warmup, x / self.warmup, decayed)

    def __str__(self) -> str:
        parts = [self.shape]
        if self.warmup:
            parts.append(f"warmup {self.warmup:.3g}")
        if self.decay_frac < 1.0:
            parts.append(f"last {self.decay_frac:.3g}")
        if self.final:
            parts.append(f"to {self.final:.3g}")
        return ", ".join(parts)
