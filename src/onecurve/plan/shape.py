"""Model shapes and what follows from them: parameter counts, FLOPs, the published families.

Parameter counts are those of the papers: every matrix and embedding, without norm gains. N includes the embedding,
once where input and output embedding are tied (arXiv 2509.25087, tables 1 and 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from onecurve.errors import OnecurveError
from onecurve.run import human


class Section(BaseModel):
    """A section of a recipe: immutable, and strict about what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MLPModel(Section):
    """Residual MLPs: blocks of RMSNorm, matrix, GELU, matrix; no biases, no gains (arXiv 2507.02119, appendix)."""

    kind: Literal["mlp"] = "mlp"
    blocks: int = Field(default=5, ge=1)
    inputs: int = Field(default=8, ge=1)

    def n_params(self, width: int) -> int:
        """Parameters of one model: input and readout matrices and two square matrices a block."""
        return self.inputs * width + 2 * self.blocks * width**2 + width


class TransformerModel(Section):
    """Decoder-only transformers: what all sizes of a family share. Pre-norm, no biases."""

    kind: Literal["transformer"] = "transformer"
    vocabulary: int = Field(default=256, ge=2)
    context: int = Field(default=128, ge=1)
    """Tokens a sequence."""
    positions: Literal["alibi", "learned"] = "alibi"
    activation: Literal["squared-relu", "swiglu", "gelu"] = "squared-relu"
    ffn_multiple: float = Field(default=4.0, gt=0)
    """Inner width of the feed-forward block over the model's width, where a size does not give ``ffn``."""
    head_size: int = Field(default=64, ge=1)
    norm: Literal["rms", "layer"] = "rms"
    norm_gain: bool = False
    norm_eps: float = Field(default=1e-5, gt=0)
    qk_norm: bool = False
    """RMSNorm without a gain on queries and keys."""
    tied: bool = False
    """Whether the output embedding is the input embedding."""
    init_std: float | None = Field(default=None, gt=0)
    """Standard deviation of the hidden matrices at the base shape; by default 1 / sqrt(fan in)."""
    embedding_std: float = Field(default=0.1, gt=0)
    zero_outputs: bool = True
    """Whether the last matrix of each branch, and an untied readout, start at zero."""
    input_multiplier: float = Field(default=1.0, gt=0)
    output_multiplier: float = Field(default=1.0, gt=0)
    embedding_rate: float = Field(default=1.0, gt=0)
    """Learning rate of the embeddings over the base rate."""


class Size(Section):
    """One size of a ladder. What is left out follows from the rest of the recipe; `resolve` fills it in.

    ``learning_rate`` and ``weight_decay`` are the base values, before the parameterisation scales them.
    """

    width: int = Field(ge=1)
    layers: int | None = Field(default=None, ge=1)
    name: str | None = None
    head_size: int | None = Field(default=None, ge=1)
    ffn: int | None = Field(default=None, ge=1)
    seeds: int | None = Field(default=None, ge=1)
    steps: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    learning_rate: float | None = Field(default=None, gt=0)
    weight_decay: float | None = Field(default=None, ge=0)
    warmup: float | None = Field(default=None, ge=0, lt=1)
    band: float | None = Field(default=None, gt=0)
    """Tokens per parameter of the family that it belongs to, where a recipe plans several; exact, before rounding."""


@dataclass(frozen=True)
class TransformerShape:
    """One transformer: a family's model section and a size, put together."""

    model: TransformerModel
    width: int
    layers: int
    heads: int
    head_size: int
    ffn: int

    @property
    def block_params(self) -> int:
        """Parameters of the matrices of one block: attention 4 d heads head_size, feed-forward 2 or 3 d ffn."""
        matrices = 3 if self.model.activation == "swiglu" else 2
        return self.width * (4 * self.heads * self.head_size + matrices * self.ffn)

    @property
    def n_params(self) -> int:
        """N: all matrices and embeddings."""
        m = self.model
        embeddings = m.vocabulary * (1 if m.tied else 2) + (m.context if m.positions == "learned" else 0)
        return self.layers * self.block_params + embeddings * self.width

    @property
    def flops_per_token(self) -> float:
        """Training FLOPs a token, attention included: 6 N + 12 L S d (arXiv 2204.02311, appendix B)."""
        return 6.0 * self.n_params + 12.0 * self.layers * self.model.context * self.heads * self.head_size


def transformer_shape(model: TransformerModel, size: Size) -> TransformerShape:
    """The shape of one size of a family. Raises OnecurveError where the head size does not divide the width.

    Examples:
        >>> celerity = TransformerModel(**PRESETS["celerity"].model)
        >>> transformer_shape(celerity, Size(**PRESETS["celerity"].sizes["300M"])).n_params
        270663680
    """
    name = size.name or f"width {size.width}"
    if size.layers is None:
        raise OnecurveError(f"ladder.sizes: {name} has no layers; a transformer needs both width and layers")
    head = size.head_size or model.head_size
    if size.width % head:
        divisors = [d for d in range(1, size.width + 1) if size.width % d == 0]
        near = min(divisors, key=lambda d: abs(d - head))
        raise OnecurveError(
            f"ladder.sizes: head size {head} does not divide width {size.width} of {name}; {near} would (head_size)"
        )
    return TransformerShape(
        model, size.width, size.layers, size.width // head, head, size.ffn or round(model.ffn_multiple * size.width)
    )


NEAR_ENOUGH = 0.05
"""How far N of a shape may lie from the N that was asked for."""


def size_near(model: MLPModel | TransformerModel, n_params: float, aspect: float | None = None) -> Size:
    """A size whose N is within 5 % of ``n_params``, of whole heads, with width / layers as near ``aspect`` as can be.

    The layers are those of the aspect, rounded, or up to two more or less where that keeps the aspect within 20 %. MLPs
    have their depth in the model, so ``aspect`` is for transformers, and the nearest width is taken. Raises
    OnecurveError where no such shape comes within 5 %, with the nearest there are.

    Examples:
        >>> size = size_near(TransformerModel(**PRESETS["gpt2"].model), 1.1e8, aspect=80.0)
        >>> size.name, size.width, size.layers
        ('110M', 704, 9)
    """
    name = human(n_params)
    if isinstance(model, MLPModel):
        if aspect is not None:
            raise OnecurveError("ladder.aspect is for transformers; the depth of MLPs is model.blocks")
        near = _crossing(model.n_params, n_params)
        found = [(model.n_params(width), Size(width=width, name=name)) for width in near]
        rule = f"{model.blocks} blocks and a whole width"
    else:
        if aspect is None:
            raise OnecurveError("ladder.aspect is missing: ladder.params needs it, the width over the layers")

        def shaped(heads: int, more: int) -> tuple[int, Size]:
            width = heads * model.head_size
            size = Size(width=width, layers=max(1, round(width / aspect) + more), name=name)
            return transformer_shape(model, size).n_params, size

        def bent(size: Size) -> float:
            return abs(math.log(size.width / (size.layers or 1) / aspect))

        pairs = [(shaped(h, k), k) for k in range(-2, 3) for h in _crossing(lambda h, k=k: shaped(h, k)[0], n_params)]
        found = [(n, size) for (n, size), more in pairs if more == 0 or bent(size) <= math.log(1.2)]
        near = [(n, size) for n, size in found if abs(n / n_params - 1.0) <= NEAR_ENOUGH]
        found = sorted(near, key=lambda pair: bent(pair[1]))[:1] or found
        rule = f"heads of {model.head_size} and about {aspect:g} of width a layer"
    off, best = min(((abs(n / n_params - 1.0), size) for n, size in found), key=lambda pair: pair[0])
    if off > NEAR_ENOUGH:
        below, above = ([n for n, _ in found if (n > n_params) == up] for up in (False, True))
        nearest = " and ".join(human(n) for n in [*sorted(below)[-1:], *sorted(above)[:1]])
        raise OnecurveError(
            f"ladder.params: no shape with {rule} comes within 5 % of {name} parameters; the nearest have {nearest}"
        )
    return best


def _crossing(count: Callable[[int], int], target: float) -> tuple[int, int]:
    """The whole numbers on both sides of where a rising count reaches a target, from 1 on."""
    high = 1
    while count(high) < target:
        high *= 2
    low = max(1, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < target else (low, middle)
    return low, high


@dataclass(frozen=True)
class Family:
    """A published family: its model section, its sizes by name, and where they are from."""

    source: str
    model: Mapping[str, Any]
    sizes: Mapping[str, Mapping[str, int]]
    ladder: Mapping[str, Any]
    """The base shape at which it was tuned, where the source gives it."""
    optimiser: Mapping[str, Any]


def _gpt2(width: int, layers: int, ffn: int) -> dict[str, int]:
    return {"width": width, "layers": layers, "ffn": ffn}


def _celerity(width: int, layers: int, head_size: int, sequences: int) -> dict[str, int]:
    return {"width": width, "layers": layers, "head_size": head_size, "batch": 8192 * sequences}


PRESETS: Mapping[str, Family] = MappingProxyType(
    {
        "gpt2": Family(
            "arXiv 2509.25087, sections 3 and 5: GPT-2-style with ALiBi and SwiGLU under muP, tuned at width 256",
            {
                "vocabulary": 50257,
                "context": 2048,
                "positions": "alibi",
                "activation": "swiglu",
                "head_size": 64,
                "norm": "layer",
                "norm_gain": True,
                "tied": True,
                "init_std": 0.0867,
                "embedding_std": 0.0867,
                "zero_outputs": False,
                "input_multiplier": 9.17,
                "output_multiplier": 1.095,
            },
            {
                "111M": _gpt2(768, 10, 2048),
                "266M": _gpt2(768, 32, 2048),
                "610M": _gpt2(2048, 10, 5461),
                "1.7B": _gpt2(2048, 32, 5461),
                "3.3B": _gpt2(2048, 64, 5461),
            },
            {"base_width": 256, "base_head_size": 64},
            # The family's named deviation from the table: weight decay is not scaled with width.
            {"scale_weight_decay": False, "eps": 1e-8},
        ),
        "celerity": Family(
            "arXiv 2509.25087, tables 2 and 6 to 8: squared ReLU, ALiBi, untied embeddings, under CompleteP; the "
            "tables' batches hold where the recipe gives none",
            {
                "vocabulary": 128256,
                "context": 8192,
                "positions": "alibi",
                "activation": "squared-relu",
                "ffn_multiple": 8.0,
                "norm": "layer",
                "norm_gain": True,
                "tied": False,
            },
            {
                "300M": _celerity(640, 13, 64, 176),
                "500M": _celerity(896, 17, 64, 240),
                "900M": _celerity(1152, 23, 128, 336),
                "1.8B": _celerity(1536, 30, 128, 464),
                "3.9B": _celerity(2048, 40, 128, 672),
            },
            {},
            {},
        ),
        "supercollapse": Family(
            "arXiv 2507.02119 and its released code: three blocks, feed-forward as wide as the model, QK norm",
            {
                "vocabulary": 256,
                "context": 1024,
                "positions": "learned",
                "activation": "gelu",
                "ffn_multiple": 1.0,
                "head_size": 64,
                "norm": "rms",
                "norm_gain": False,
                "qk_norm": True,
                "tied": False,
                "embedding_std": 0.1,
                "embedding_rate": 10.0,
            },
            {
                str(width): {"width": width, "layers": 3}
                for width in (768, 896, 1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920, 2048)
            },
            {"base_width": 128, "base_layers": 3},
            {"eps": 1e-20},
        ),
    }
)
"""The published families by name; ``[model] preset = "celerity"`` and sizes by name in a recipe."""
