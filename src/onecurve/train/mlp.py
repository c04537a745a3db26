"""Residual MLPs, several at once: every tensor has a leading axis of independent models.

Models of one shape that differ in seed, learning rate or parameterisation are one batched program: at the widths
of a small ladder the matrices are too small to keep a core busy one by one.

Shapes: R models, B samples, D width, F inputs, K blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from onecurve.plan.parameterisation import Role
from onecurve.plan.shape import MLPModel
from onecurve.train.functions import rms_norm

ROLES: dict[str, Role] = {"input": "embedding", "block_in": "hidden", "block_out": "hidden", "readout": "readout"}
"""The role of each tensor of `initial`, by name."""


def initial(shape: MLPModel, width: int, seeds: Sequence[int]) -> dict[str, Tensor]:
    """Initial tensors of len(seeds) models; each model depends on its own seed only, not on its neighbours.

    ``input`` (R, F, D) and ``block_in`` (R, K, D, D) have variance 1 / fan_in; ``block_out`` (R, K, D, D) and
    ``readout`` (R, D, 1) are zero, so that every model starts as the zero function.
    """

    def one(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        into = torch.randn(shape.inputs, width, generator=generator) / shape.inputs**0.5
        blocks = torch.randn(shape.blocks, width, width, generator=generator) / width**0.5
        return into, blocks

    drawn = [one(seed) for seed in seeds]
    return {
        "input": torch.stack([into for into, _ in drawn]),
        "block_in": torch.stack([blocks for _, blocks in drawn]),
        "block_out": torch.zeros(len(seeds), shape.blocks, width, width),
        "readout": torch.zeros(len(seeds), width, 1),
    }


def forward(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """Outputs (R, B) for inputs (R, B, F)."""
    # Unbound at once: the gradient of each slice would else be a zero-filled tensor of the whole.
    block_in, block_out = weights["block_in"].unbind(1), weights["block_out"].unbind(1)
    h = torch.bmm(x, weights["input"])
    for into, out in zip(block_in, block_out, strict=True):
        a = F.gelu(torch.bmm(rms_norm(h), into))
        # The branch multiplier 6 / blocks is the published 6/5 at five blocks.
        h = torch.baddbmm(h, a, out, alpha=6.0 / len(block_in))
    return torch.bmm(rms_norm(h), weights["readout"]).squeeze(-1)
