"""The plan as a value: what every rung of a recipe trains with, what it costs, and what is an extrapolation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onecurve.errors import OnecurveError
from onecurve.plan.parameterisation import Parameterisation, attention_scale, branch_multiplier, factors
from onecurve.plan.recipe import (
    BatchRule,
    Group,
    Job,
    Member,
    Recipe,
    asked_batch,
    asked_tokens,
    groups,
    jobs,
    label,
    resolve,
    timescale_rule,
    width_and_depth_ratio,
)
from onecurve.plan.shape import TransformerModel, transformer_shape
from onecurve.run import human

LEAST_STEPS = 200
"""Fewer optimiser steps than this leave no curve to speak of: warmup alone would be a few of them."""
FAR = 10.0
"""Beyond so many times its tuned point's tokens, either way, a batch is an extrapolation."""


@dataclass(frozen=True)
class Multipliers:
    """What the parameterisation multiplies activations by in one model."""

    input: float
    """Of the embedding's output."""
    branch: float
    """Of every residual branch."""
    attention: float | None
    """Of the product of queries and keys; None for MLPs."""
    output: float
    """Of the logits."""
    init_std: float | None
    """Standard deviation of the hidden matrices at initialisation; None: 1 / sqrt(fan in), by default."""


@dataclass(frozen=True)
class Rung:
    """One size of one family, planned."""

    name: str
    parameterisation: Parameterisation
    band: float | None
    """Tokens per parameter that the family was asked for, where the recipe plans several."""
    seeds: int
    width: int
    layers: int | None
    heads: int | None
    head_size: int | None
    ffn: int | None
    n_params: int
    """N, embeddings included."""
    n_without_embeddings: int
    tokens: int
    """D = batch times steps."""
    tokens_per_param: float
    batch: int
    """Tokens a step."""
    sequences: int | None
    batch_asked: float
    """Tokens a step before rounding to whole sequences."""
    steps: int
    warmup: float
    """Share of training."""
    warmup_steps: int
    timescale: float
    """tau = B / (eta lambda D) of the hidden matrices."""
    rounding: float
    """What rounding batch and steps to whole numbers would have done to tau, had the decay not been solved afterwards:
    the relative change of B / D from what the rules ask."""
    groups: tuple[Group, ...]
    """Peak rate, decay, eps and timescale as applied, by role."""
    multipliers: Multipliers
    flops: float
    """Training FLOPs of one seed: 6 N D."""
    flops_with_attention: float
    """(6 N + 12 L S d) D; the same as `flops` for MLPs."""
    notes: tuple[str, ...]
    """What is an extrapolation, and what lies apart."""

    def hours(self, peak_flops: float, utilisation: float) -> float:
        """Device-hours of one seed at a share of a device's peak FLOPs a second, attention included."""
        return self.flops_with_attention / (peak_flops * utilisation * 3600.0)

    def group(self, role: str) -> Group:
        """The optimiser's group of a role."""
        return next(g for g in self.groups if g.role == role)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return asdict(self)


def rungs(recipe: Recipe, least_steps: int = LEAST_STEPS) -> list[Rung]:
    """Every rung of a recipe: by parameterisation, then band, then size. The seeds of a rung are one entry.

    Raises OnecurveError for rungs of fewer than ``least_steps`` steps, without weight decay, or with a batch above the
    critical one.

    Examples:
        >>> from onecurve.plan.recipe import Recipe
        >>> recipe = Recipe.model_validate({
        ...     "task": {"kind": "tokens"},
        ...     "model": {"preset": "celerity"},
        ...     "ladder": {"sizes": [{"name": "300M"}], "base_width": 640},
        ...     "optimiser": {"learning_rate": 0.15, "timescale": "celerity"},
        ...     "schedule": {"shape": "linear", "warmup": 0.1},
        ...     "horizon": {"tokens_per_param": 20.0},
        ... })
        >>> [(r.name, r.n_params, r.sequences, r.steps, round(r.timescale, 3)) for r in rungs(recipe)]
        [('300M', 270663680, 176, 3755, 0.175)]
    """
    resolved = resolve(recipe)
    by_name = {(m.parameterisation, label(j.size)): (j, m) for j in jobs(resolved) for m in reversed(j.members)}
    sizes, originals = resolved.ladder.sizes, len(recipe.ladder.sizes)
    out: list[Rung] = []
    for parameterisation in recipe.ladder.parameterisations:
        of = [
            _rung(recipe, k % originals, *by_name[parameterisation, label(size)], least_steps)
            for k, size in enumerate(sizes)
        ]
        out += sorted(of, key=lambda r: (r.band or 0.0, r.n_params))
    return out


def _rung(recipe: Recipe, index: int, job: Job, member: Member, least_steps: int) -> Rung:
    size, model, original = job.size, recipe.model, recipe.ladder.sizes[index]
    name = label(original).removesuffix("" if size.band is None else f"-{size.band:g}-tpp")
    if job.steps < least_steps:
        batch = human(job.batch * job.steps / least_steps)
        raise OnecurveError(
            f"{label(size)} has {job.steps} steps; a rung needs at least {least_steps}: give a smaller batch "
            f"({batch} tokens at most), or more tokens"
        )
    if not size.weight_decay:
        raise OnecurveError(
            f"{label(size)} has no weight decay, so its timescale is infinite and no plan can hold it; give "
            "optimiser.timescale, or a weight_decay above 0"
        )
    n, tokens = recipe.n_params(original), job.batch * job.steps
    layers = heads = head_size = ffn = sequences = None
    embeddings, a_token = n, 6.0 * n
    if isinstance(model, TransformerModel):
        shape = transformer_shape(model, size)
        layers, heads, head_size, ffn = shape.layers, shape.heads, shape.head_size, shape.ffn
        embeddings, a_token, sequences = (
            n - layers * shape.block_params,
            shape.flops_per_token,
            job.batch // model.context,
        )
    else:
        embeddings = n - 2 * model.blocks * size.width**2
    asked = float(tokens) if original.steps else asked_tokens(recipe, index, size.band)
    by_rule = float(job.batch) if original.batch else asked_batch(recipe, asked)
    each = groups(job, member)
    return Rung(
        name=name,
        parameterisation=member.parameterisation,
        band=size.band,
        seeds=size.seeds or 1,
        width=size.width,
        layers=layers,
        heads=heads,
        head_size=head_size,
        ffn=ffn,
        n_params=n,
        n_without_embeddings=n - embeddings,
        tokens=tokens,
        tokens_per_param=tokens / n,
        batch=job.batch,
        sequences=sequences,
        batch_asked=by_rule,
        steps=job.steps,
        warmup=size.warmup or 0.0,
        warmup_steps=round((size.warmup or 0.0) * job.steps),
        timescale=next(g.timescale for g in each if g.role == "hidden"),
        rounding=asked / by_rule / job.steps - 1.0,
        groups=tuple(each),
        multipliers=_multipliers(recipe, job, member),
        flops=6.0 * n * tokens,
        flops_with_attention=a_token * tokens,
        notes=tuple(_notes(recipe, size.band or tokens / n, tokens, bool(original.batch), each)),
    )


def _notes(recipe: Recipe, tpp: float, tokens: float, own_batch: bool, each: list[Group]) -> list[str]:
    """What is an extrapolation, and what lies apart."""
    rule, batch = timescale_rule(recipe), recipe.optimiser.batch
    notes: list[str] = []
    if rule is not None and rule.extrapolates(tpp):
        notes.append(
            f"its timescale is an extrapolation: the rule's data are at {rule.low:g} to {rule.high:g} tokens/N"
        )
    if isinstance(batch, BatchRule) and not own_batch and not 1 / FAR <= tokens / batch.tokens <= FAR:
        notes.append(f"its batch is an extrapolation: it was tuned at {human(batch.tokens)} tokens")
    return notes + [f"its {g.role} has another timescale than its hidden matrices" for g in each if g.odd]


def _multipliers(recipe: Recipe, job: Job, member: Member) -> Multipliers:
    model, ladder, p = recipe.model, recipe.ladder, member.parameterisation
    m, depth = width_and_depth_ratio(recipe, job.size)
    readout = factors("readout", p, m, depth).forward
    if not isinstance(model, TransformerModel):
        return Multipliers(1.0, 1.0, None, readout, None)
    head = job.size.head_size or model.head_size
    variance = factors("hidden", p, m, depth).init_variance
    return Multipliers(
        input=model.input_multiplier,
        branch=branch_multiplier(p, depth),
        attention=attention_scale(p, head, ladder.base_head_size or head),
        output=model.output_multiplier * readout,
        init_std=None if model.init_std is None else model.init_std * variance**0.5,
    )
