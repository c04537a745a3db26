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
        self._rates = {name: per_model(rates[name], w) for name, w in weights.items()}
        self._decays = {name: per_model(decays[name], w) if any(decays[name]) else None for name, w in weights.items()}
        self.first = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.second = {name: torch.zeros_like(w) for name, w in weights.items()}

    def preconditioner(self, name: str, count: int) -> Tensor:
        """Peak rate / (sqrt(v) + eps) of each coordinate after update number ``count``, v corrected for its start."""
        corrected = self.second[name] / (1.0 - self.betas[1] ** count)
        return self._rates[name].float() / (corrected.sqrt() + self.eps)

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], count: int, multiplier: float) -> None:
        """Apply update number ``count`` (from 1) at ``multiplier`` times the peak rates."""
        beta1, beta2 = self.betas
        # weight -= rate * (first / (1 - beta1^t)) / (sqrt(second / (1 - beta2^t)) + eps), with both corrections moved
        # into the rate and eps: one pass over the tensors less for each.
        correction = (1.0 - beta2**count) ** 0.5
        scale = multiplier * correction / (1.0 - beta1**count)
        for name, weight in self.weights.items():
            gradient, first, second = gradients[name], self.first[name], self.second[name]
            first.lerp_(gradient, 1.0 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
            direction = second.sqrt().add_(self.eps * correction)
            torch.div(first, direction, out=direction)
            if (decay := self._decays[name]) is not None:
                weight.mul_((1.0 - multiplier * self._rates[name] * decay).float())
            weight.addcmul_(direction, (-scale * self._rates[name]).float())
