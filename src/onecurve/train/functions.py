"""Small functions with a gradient written out, because torch's own are many kernels each on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _RMSNorm(torch.autograd.Function):
    """``y = x / sqrt(mean(x^2) + eps)`` without a gain: torch's own is some fifteen small kernels on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        scale = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(eps).rsqrt_().unsqueeze(-1)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        y, scale = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, y).div_(y.shape[-1]).unsqueeze(-1)
        return torch.addcmul(gradient, y, along, value=-1.0).mul_(scale), None


def rms_norm(x: Tensor, eps: float | None = None) -> Tensor:
    """RMSNorm over the last axis, without a gain; eps defaults to the type's machine epsilon, as torch's does."""
    return _RMSNorm.apply(x, torch.finfo(x.dtype).eps if eps is None else eps)  # pyright: ignore[reportReturnType]


class _SquaredReLU(torch.autograd.Function):
    """``max(x, 0)^2``, which keeps max(x, 0) alone for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = torch.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return (gradients[0] * positive).mul_(2.0)


def squared_relu(x: Tensor) -> Tensor:
    """The square of the positive part."""
    return _SquaredReLU.apply(x)  # pyright: ignore[reportReturnType]
