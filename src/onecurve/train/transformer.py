"""The decoder-only transformer of a recipe, its initial weights, and the optimiser groups of its parameters.

Shapes: B sequences, S tokens, d width, H heads, V vocabulary.
"""

from __future__ import annotations

import hashlib
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from onecurve.plan.parameterisation import Role, attention_scale, branch_multiplier, factors
from onecurve.plan.recipe import Job, groups, width_and_depth_ratio
from onecurve.plan.shape import TransformerModel, TransformerShape, transformer_shape
from onecurve.train.functions import rms_norm, squared_relu


class Norm(nn.Module):
    """RMSNorm or LayerNorm over the last axis, without a bias, with or without a gain."""

    def __init__(self, model: TransformerModel, width: int) -> None:
        super().__init__()
        self.kind, self.eps, self.width = model.norm, model.norm_eps, width
        self.gain = nn.Parameter(torch.empty(width)) if model.norm_gain else None

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.kind == "layer":
            return F.layer_norm(x, (self.width,), self.gain, None, self.eps)
        if x.is_cuda or torch.compiler.is_compiling():
            return F.rms_norm(x, (self.width,), self.gain, self.eps)
        y = rms_norm(x, self.eps)
        return y if self.gain is None else y * self.gain


class Block(nn.Module):
    """Attention and feed-forward, each a branch of the residual stream: x + multiplier * F(norm(x))."""

    def __init__(self, shape: TransformerShape, multiplier: float, scale: float) -> None:
        super().__init__()
        self.heads, self.head_size = shape.heads, shape.head_size
        self.activation, self.qk_norm, self.eps = shape.model.activation, shape.model.qk_norm, shape.model.norm_eps
        self.multiplier, self.scale = multiplier, scale
        inner = shape.heads * shape.head_size
        self.attention_norm = Norm(shape.model, shape.width)
        self.qkv = nn.Linear(shape.width, 3 * inner, bias=False)
        self.attention_out = nn.Linear(inner, shape.width, bias=False)
        self.ffn_norm = Norm(shape.model, shape.width)
        self.ffn_in = nn.Linear(shape.width, shape.ffn * (2 if self.activation == "swiglu" else 1), bias=False)
        self.ffn_out = nn.Linear(shape.ffn, shape.width, bias=False)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """(B, S, d) to (B, S, d); ``bias`` is added to the attention logits, None means causal attention alone."""
        b, s, _ = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(b, s, 3, self.heads, self.head_size).permute(2, 0, 3, 1, 4)
        if self.qk_norm:
            q, k = F.rms_norm(q, (self.head_size,), eps=self.eps), F.rms_norm(k, (self.head_size,), eps=self.eps)
        if bias is not None:
            bias = bias.to(q.dtype)
        attended = F.scaled_dot_product_attention(q, k, v, bias, is_causal=bias is None, scale=self.scale)
        x = torch.add(x, self.attention_out(attended.transpose(1, 2).reshape(b, s, -1)), alpha=self.multiplier)
        inner = self.ffn_in(self.ffn_norm(x))
        match self.activation:
            case "squared-relu":
                inner = squared_relu(inner)
            case "gelu":
                inner = F.gelu(inner)
            case _:
                gate, value = inner.chunk(2, dim=-1)
                inner = F.silu(gate) * value
        return torch.add(x, self.ffn_out(inner), alpha=self.multiplier)


class Transformer(nn.Module):
    """Token ids (B, S) to logits (B, S, V), with the forward multipliers of a parameterisation."""

    def __init__(self, shape: TransformerShape, readout: float = 1.0, branch: float = 1.0, scale: float = 1.0) -> None:
        super().__init__()
        model = shape.model
        self.shape = shape
        self.input_multiplier, self.output_multiplier = model.input_multiplier, model.output_multiplier * readout
        self.embedding = nn.Parameter(torch.empty(model.vocabulary, shape.width))
        learned = model.positions == "learned"
        self.positions = nn.Parameter(torch.empty(model.context, shape.width)) if learned else None
        self.blocks = nn.ModuleList(Block(shape, branch, scale) for _ in range(shape.layers))
        self.final_norm = Norm(model, shape.width)
        self.readout = None if model.tied else nn.Parameter(torch.empty(model.vocabulary, shape.width))
        self._bias: Tensor | None = None

    def forward(self, ids: Tensor) -> Tensor:  # noqa: D102
        x = F.embedding(ids, self.embedding)
        if self.positions is not None:
            x = x + self.positions[: ids.shape[1]]
        if self.input_multiplier != 1.0:
            x = x * self.input_multiplier
        bias = self._attention_bias(ids) if self.positions is None else None
        for block in self.blocks:
            x = block(x, bias)
        # The multiplier goes onto the (B, S, d) stream, not the (B, S, V) logits.
        x = self.final_norm(x)
        if self.output_multiplier != 1.0:
            x = x * self.output_multiplier
        return F.linear(x, self.embedding if self.readout is None else self.readout)

    def _attention_bias(self, ids: Tensor) -> Tensor:
        """ALiBi (arXiv 2108.12409) with the causal mask, (H, S, S): slope 2^(-8 h / H) times minus the distance."""
        length = ids.shape[1]
        if self._bias is None or self._bias.shape[-1] != length or self._bias.device != ids.device:
            at = torch.arange(length, device=ids.device)
            distance = (at[:, None] - at[None, :]).float()
            heads = self.shape.heads
            slopes = torch.exp2(-8.0 / heads * torch.arange(1, heads + 1, device=ids.device))
            bias = -slopes[:, None, None] * distance
            self._bias = bias.masked_fill_(distance < 0, -math.inf)
        return self._bias


def build(job: Job) -> Transformer:
    """The transformer of a job, with its forward multipliers; weights are not yet set."""
    recipe, member = job.recipe, job.members[0]
    model, ladder = recipe.model, recipe.ladder
    assert isinstance(model, TransformerModel)
    shape = transformer_shape(model, job.size)
    p, (m, depth) = member.parameterisation, width_and_depth_ratio(recipe, job.size)
    return Transformer(
        shape,
        readout=factors("readout", p, m, depth).forward,
        branch=branch_multiplier(p, depth),
        scale=attention_scale(p, shape.head_size, ladder.base_head_size or shape.head_size),
    )


def role(name: str) -> Role:
    """The role of a parameter of `Transformer`, by its name.

    Examples:
        >>> role("blocks.3.ffn_in.weight"), role("blocks.3.ffn_norm.gain"), role("positions")
        ('hidden', 'block norm', 'embedding')
    """
    if name in ("embedding", "positions"):
        return "embedding"
    if name == "readout":
        return "readout"
    if name.startswith("final_norm"):
        return "final norm"
    return "block norm" if "_norm." in name else "hidden"


@torch.no_grad()
def initialise(model: Transformer, job: Job) -> None:
    """Set the initial weights: each tensor a function of the seed and its name alone, on any number of devices.

    Embeddings have the model's ``embedding_std``; hidden matrices 1 / sqrt(fan in), or ``init_std`` at the base shape
    scaled by the parameterisation; the readout the same at the base width; gains are one; outputs are zero on request.
    """
    member, m, ladder = job.members[0], model.shape.model, job.recipe.ladder
    variance = factors("hidden", member.parameterisation, *width_and_depth_ratio(job.recipe, job.size)).init_variance
    for name, parameter in model.named_parameters():
        match role(name):
            case "embedding":
                std = m.embedding_std
            case "hidden":
                std = parameter.shape[1] ** -0.5 if m.init_std is None else m.init_std * variance**0.5
                if m.zero_outputs and name.endswith("_out.weight"):
                    std = 0.0
            case "readout":
                std = 0.0 if m.zero_outputs else m.init_std or ladder.base_width**-0.5
            case _:
                std = None
        if std is None:
            full = torch.ones(parameter.shape)
        else:
            digest = hashlib.sha256(f"{member.seed_init}/{name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            full = torch.randn(parameter.shape, generator=generator).mul_(std)
        full = full.to(parameter.device)
        if isinstance(parameter, DTensor):
            full = distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.copy_(full)


def optimiser(model: Transformer, job: Job) -> torch.optim.AdamW:
    """AdamW with one group a role; each group keeps its peak rate under ``peak_lr``."""
    by_role: dict[Role, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        by_role.setdefault(role(name), []).append(parameter)
    parameters = [
        {
            "params": by_role[g.role],
            "lr": g.learning_rate,
            "peak_lr": g.learning_rate,
            "weight_decay": g.weight_decay,
            "eps": g.eps,
        }
        for g in groups(job, job.members[0])
    ]
    adamw = torch.optim.AdamW(parameters, betas=job.recipe.optimiser.betas, fused=True)
    # The moments exist from the start, so that a checkpoint has the same tensors at every step.
    for group in adamw.param_groups:
        for p in group["params"]:
            adamw.state[p] = {
                "step": torch.zeros((), device=p.device if p.is_cuda else "cpu"),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }
    return adamw
