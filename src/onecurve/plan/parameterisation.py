"""How initial variance, multipliers, learning rate, weight decay and eps follow from a tensor's role and the shape.

One table, in the notation of CompleteP (arXiv 2505.01618, table 1, alpha = 1): ``m`` = width / base width,
``l`` = layers / base layers. At the base shape every factor is 1, so the base shape *is* the standard model.

===========  ================  ==================  ======  ============  ===========
role         initial variance  forward multiplier  rate    weight decay  eps
===========  ================  ==================  ======  ============  ===========
embedding    1                 1                   1       1             1
hidden       1 / m             1                   1 / m   m             1 / (m l)
block norm   1                 1                   1       (none)        1 / (m l)
final norm   1                 1                   1       (none)        1
readout      1                 1 / m               1       1             1
===========  ================  ==================  ======  ============  ===========

``mup`` is the same without ``l``. Under CompleteP every residual branch is also multiplied by 1 / l
(`branch_multiplier`); under both, attention logits are multiplied by sqrt(base head size) / head size
(`attention_scale`). ``standard`` keeps every factor at 1. Norms carry no weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["embedding", "hidden", "block norm", "final norm", "readout"]
ROLES: tuple[Role, ...] = ("embedding", "hidden", "block norm", "final norm", "readout")
Parameterisation = Literal["mup", "completep", "standard"]


@dataclass(frozen=True)
class Factors:
    """What multiplies the recipe's base values for one group of tensors."""

    init_variance: float = 1.0
    forward: float = 1.0
    learning_rate: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


def factors(
    role: Role,
    parameterisation: Parameterisation,
    width_ratio: float,
    depth_ratio: float = 1.0,
    scale_weight_decay: bool = True,
) -> Factors:
    """Factors of a tensor's role in a model ``width_ratio`` times as wide and ``depth_ratio`` as deep as the base.

    ``scale_weight_decay=False`` leaves hidden weight decay unscaled, as the family of arXiv 2509.25087 section 3 does.

    Examples:
        >>> factors("hidden", "completep", 4.0, 2.0)
        Factors(init_variance=0.25, forward=1.0, learning_rate=0.25, weight_decay=4.0, eps=0.125)
        >>> factors("hidden", "standard", 4.0, 2.0)
        Factors(init_variance=1.0, forward=1.0, learning_rate=1.0, weight_decay=1.0, eps=1.0)
    """
    decay = 0.0 if role in ("block norm", "final norm") else 1.0
    if parameterisation == "standard":
        return Factors(weight_decay=decay)
    m, depth = width_ratio, depth_ratio if parameterisation == "completep" else 1.0
    match role:
        case "embedding" | "final norm":
            return Factors(weight_decay=decay)
        case "hidden":
            return Factors(1.0 / m, 1.0, 1.0 / m, m if scale_weight_decay else 1.0, 1.0 / (m * depth))
        case "block norm":
            return Factors(weight_decay=decay, eps=1.0 / (m * depth))
        case "readout":
            return Factors(forward=1.0 / m)


def branch_multiplier(parameterisation: Parameterisation, depth_ratio: float) -> float:
    """What each residual branch is multiplied by: 1 / l under CompleteP, else 1."""
    return 1.0 / depth_ratio if parameterisation == "completep" else 1.0


def attention_scale(parameterisation: Parameterisation, head_size: int, base_head_size: int) -> float:
    """What the product of queries and keys is multiplied by.

    1 / sqrt(head_size) in the standard model; sqrt(base_head_size) / head_size under muP and CompleteP, which is the
    same at the base shape and falls as 1 / head_size from there.
    """
    if parameterisation == "standard":
        return head_size**-0.5
    return base_head_size**0.5 / head_size
