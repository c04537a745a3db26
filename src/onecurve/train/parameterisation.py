"""How initial variance, learning rate, weight decay and multipliers follow from a tensor's role and the width.

One table, in the notation of CompleteP (arXiv 2505.01618, table 1) with ``m`` = width / base width. At the base
width (m = 1) every factor is 1, so the base shape *is* the standard model.

===========  =================  ======  ================  =====================
role         initial variance   rate    weight decay      forward multiplier
===========  =================  ======  ================  =====================
input        1 / fan_in         1       1                 1
hidden       1 / fan_in         1 / m   m                 1
readout      0                  1 / m   m                 1
===========  =================  ======  ================  =====================

The readout is zero at the start, for which Adam makes "rate 1 with forward multiplier 1 / m" and "rate 1 / m with
forward multiplier 1" the same; the second is what arXiv 2507.02119 trains. ``standard`` keeps every factor at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["input", "hidden", "readout"]
Parameterisation = Literal["mup", "standard"]


@dataclass(frozen=True)
class Factors:
    """What multiplies the recipe's base values for one group of tensors."""

    learning_rate: float
    weight_decay: float


def factors(role: Role, parameterisation: Parameterisation, width_ratio: float) -> Factors:
    """Factors for a tensor of a given role in a model ``width_ratio`` times as wide as the base model.

    Examples:
        >>> factors("hidden", "mup", 4.0)
        Factors(learning_rate=0.25, weight_decay=4.0)
        >>> factors("hidden", "standard", 4.0)
        Factors(learning_rate=1.0, weight_decay=1.0)
    """
    if parameterisation == "standard" or role == "input":
        return Factors(1.0, 1.0)
    return Factors(1.0 / width_ratio, width_ratio)
