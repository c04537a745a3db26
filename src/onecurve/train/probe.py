"""Short trainings that look inside: activations at several widths and depths; and the sweep of learning rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from onecurve.errors import OnecurveError
from onecurve.measure.scaling import Coordinates
from onecurve.plan.recipe import Recipe, jobs, label
from onecurve.plan.shape import Size, TransformerModel
from onecurve.train.program import LanguageModel
from onecurve.train.tokens import TokenStream

STEPS = 10
SCALES = (1, 2, 4, 8)
"""Widths and depths, as multiples of the base shape."""


def coordinates(
    recipe: Recipe, stream: TokenStream, seeds: int = 3, progress: Callable[[float], None] = lambda share: None
) -> list[Coordinates]:
    """Activations after `STEPS` steps at the peak rate, over widths at the base depth and depths at the base width.

    Measured are the embedded input, what each branch adds before its multiplier (mean over blocks), the residual stream
    before the last norm, and the logits.
    """
    model, ladder = recipe.model, recipe.ladder
    if not isinstance(model, TransformerModel):
        raise OnecurveError("check coordinates looks inside transformers; this recipe's model is 'mlp'")
    depth = ladder.base_layers or min(s.layers or 1 for s in ladder.sizes)
    head = ladder.base_head_size or model.head_size
    shapes = {
        "width": [Size(width=k * ladder.base_width, layers=depth, head_size=head) for k in SCALES],
        "depth": [Size(width=ladder.base_width, layers=k * depth, head_size=head) for k in SCALES],
    }
    total = len(SCALES) * 2 * seeds
    done = 0
    out: list[Coordinates] = []
    for axis, sizes in shapes.items():
        rows: list[list[dict[str, float]]] = []
        for size in sizes:
            rows.append([])
            for seed in range(seeds):
                rows[-1].append(_activations(recipe, stream, size, seed))
                done += 1
                progress(done / total)
        values = {kind: np.array([[one[kind] for one in row] for row in rows]) for kind in rows[0][0]}
        scale = [s.width if axis == "width" else s.layers for s in sizes]
        out.append(Coordinates(axis, np.array(scale, dtype=np.float64), values, STEPS))
    return out


def _activations(recipe: Recipe, stream: TokenStream, size: Size, seed: int) -> dict[str, float]:
    first = recipe.ladder.parameterisations[0]
    one = size.model_copy(update={"steps": STEPS, "seeds": seed + 1, "name": "probe", "weight_decay": 0.0})
    ladder = recipe.ladder.model_copy(update={"sizes": [one], "parameterisations": [first], "shared_data_widths": []})
    job = jobs(recipe.model_copy(update={"ladder": ladder}))[seed]
    program = LanguageModel(job, stream)
    for step in range(STEPS):
        program.update(step, 1.0)
    seen: dict[str, list[float]] = {}

    def keep(kind: str) -> Callable[[nn.Module, Sequence[Tensor], Tensor], None]:
        return lambda module, given, output: seen.setdefault(kind, []).append(_rms(output))

    model = program.model
    hooks = [model.register_forward_hook(keep("logits"))]
    for block in model.blocks:
        hooks.append(block.get_submodule("attention_out").register_forward_hook(keep("attention")))
        hooks.append(block.get_submodule("ffn_out").register_forward_hook(keep("feed-forward")))
    hooks.append(model.blocks[0].register_forward_hook(lambda m, given, o: seen.update(embedding=[_rms(given[0])])))
    hooks.append(model.blocks[-1].register_forward_hook(keep("residual stream")))
    with torch.no_grad():
        model(stream.batch(seed, STEPS, program.micro_batch)[0])
    for hook in hooks:
        hook.remove()
    order = ("embedding", "attention", "feed-forward", "residual stream", "logits")
    return {kind: float(np.mean(seen[kind])) for kind in order}


def _rms(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())


def sweep(recipe: Recipe, factors: Sequence[float]) -> Recipe:
    """The recipe with every size at several base rates, each a multiple of its own; timescales stay as they are.

    With a weight decay instead of a timescale the decay stays, and tau moves with the rate as it does in such a sweep.
    """
    base = recipe.optimiser.learning_rate
    sizes = [
        size.model_copy(
            update={
                "name": f"{label(size)}-rate-{factor * (size.learning_rate or base):.3g}",
                "learning_rate": factor * (size.learning_rate or base),
            }
        )
        for size in recipe.ladder.sizes
        for factor in factors
    ]
    horizon = recipe.horizon
    if horizon is not None and isinstance(horizon.tokens_per_param, list):
        each = [tpp for tpp in horizon.tokens_per_param for _ in factors]
        horizon = horizon.model_copy(update={"tokens_per_param": each})
    ladder = recipe.ladder.model_copy(update={"sizes": sizes})
    return recipe.model_copy(update={"ladder": ladder, "horizon": horizon})
