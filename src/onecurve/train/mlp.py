"""Residual MLPs, several at once: every tensor has a leading axis of independent models.

Models of one shape that differ in seed, learning rate or parameterisation are one batched program: at the widths
of a small ladder the matrices are too small to keep a core busy one by one.

Shapes: R models, B samples, D width, F inputs, K blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from onecurve.train.parameterisation import Role


class MLPShape(BaseModel):
    """A residual MLP: blocks of RMSNorm, matrix, GELU, matrix; no biases, no gains (arXiv 2507.02119, appendix)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal["mlp"] = "mlp"
    blocks: int = Field(default=5, ge=1)
    inputs: int = Field(default=8, ge=1)

    def n_params(self, width: int) -> int:
        """Parameters of one model: input and readout matrices and two square matrices a block."""
        return self.inputs * width + 2 * self.blocks * width**2 + width


ROLES: dict[str, Role] = {"input": "input", "block_in": "hidden", "block_out": "hidden", "readout": "readout"}
"""The role of each tensor of `initial`, by name."""


def initial(shape: MLPShape, width: int, seeds: Sequence[int]) -> dict[str, Tensor]:
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


class _RMSNorm(torch.autograd.Function):
    """``y = x / sqrt(mean(x^2) + eps)`` without a gain: torch's own is some fifteen small kernels on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        scale = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(torch.finfo(x.dtype).eps).rsqrt_().unsqueeze(-1)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        y, scale = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, y).div_(y.shape[-1]).unsqueeze(-1)
        return torch.addcmul(gradient, y, along, value=-1.0).mul_(scale)


def rms_norm(x: Tensor) -> Tensor:
    """RMSNorm over the last axis, without a gain."""
    return _RMSNorm.apply(x)  # pyright: ignore[reportReturnType]


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
