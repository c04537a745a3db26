"""AdamW over tensors with a leading model axis, where every model has its own learning rate and weight decay.

torch's own AdamW gives one rate to a whole tensor; a batched program needs one a model. The arithmetic is
torch's (decay multiplied by the learning rate) and a test holds it against `torch.optim.AdamW`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class BatchedAdamW:
    """Adam moments for each tensor, and per-model peak rates and decays that a schedule multiplies.

    ``rates`` and ``decays`` map each tensor's name to R values, one a model.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        rates: Mapping[str, list[float]],
        decays: Mapping[str, list[float]],
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        def per_model(values: list[float], like: Tensor) -> Tensor:
            return torch.tensor(values, dtype=torch.float64).reshape(-1, *[1] * (like.dim() - 1))

        self.weights = weights
        self.betas = betas
        self.eps = eps
        self.rates = {name: per_model(rates[name], w) for name, w in weights.items()}
        self.decays = {name: per_model(decays[name], w) for name, w in weights.items()}
        self.first = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.second = {name: torch.zeros_like(w) for name, w in weights.items()}

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], count: int, multiplier: float) -> None:
        """Apply update number ``count`` (from 1) at ``multiplier`` times the peak rates."""
        beta1, beta2 = self.betas
        correction = (1.0 - beta2**count) ** 0.5
        for name, weight in self.weights.items():
            gradient, first, second = gradients[name], self.first[name], self.second[name]
            first.lerp_(gradient, 1.0 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
            rate = multiplier * self.rates[name]
            direction = first / second.sqrt().div_(correction).add_(self.eps)
            if self.decays[name].any():
                weight.mul_((1.0 - rate * self.decays[name]).float())
            weight.addcmul_(direction, (-rate / (1.0 - beta1**count)).float())
