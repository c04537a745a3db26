"""A recipe: what is to be trained, in one TOML file; and the jobs that follow from it.

A recipe may say what is meant (tokens per parameter, a timescale, a horizon law); `resolve` turns that into a recipe
in which every size gives its own steps, batch, learning rate and weight decay. Both are the same kind of file.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import tomli_w
from pydantic import BaseModel, Discriminator, Field, Tag, ValidationError, model_validator

from onecurve.controls import RATIO_WARNS
from onecurve.errors import OnecurveError
from onecurve.plan.parameterisation import Parameterisation, Role, factors
from onecurve.plan.rules import TIMESCALES, PowerRule
from onecurve.plan.shape import PRESETS, MLPModel, Section, Size, TransformerModel, size_near, transformer_shape
from onecurve.run import RunConfig, Setting, human
from onecurve.schedule import Schedule

EXAMPLES = Path(__file__).parent / "recipes"


class FourierTask(Section):
    """Power-law Fourier regression (arXiv 2507.02119, section 2): its target, fixed for all runs by its own seed.

    One sample counts as one token.
    """

    kind: Literal["fourier"] = "fourier"
    dimension: int = Field(default=8, ge=1)
    modes: int = Field(default=10_000, ge=1)
    exponent: float = Field(default=2.0, gt=0.0)
    """Exponent of the Pareto distribution of wave lengths |k|: the tail P(|k| > s) = s^-exponent."""
    seed: int = 0


class TokenTask(Section):
    """Next-token prediction on token shards."""

    kind: Literal["tokens"] = "tokens"
    data: str | None = None
    """A folder that `onecurve data prepare` wrote; by default the sources of the running Python's standard library."""


class ParamRange(Section):
    """Parameter counts a constant factor apart."""

    smallest: float = Field(gt=0)
    largest: float = Field(gt=0)
    count: int = Field(ge=2)


A_NUMBER, A_NAME, A_LIST, A_RULE = TAGS = ("a number", "a name", "a list", "a rule")
"""Ways of giving a value. They stand in the address of a mistake, where no field can be called so."""


def _form(value: Any) -> str:
    """Which way of giving a value this is, so that a mistake is told of that one alone."""
    return A_RULE if isinstance(value, (dict, Section)) else A_NAME if isinstance(value, str) else A_NUMBER


def _list_or_rule(value: Any) -> str:
    return A_RULE if isinstance(value, (dict, Section)) else A_LIST


class LadderSection(Section):
    """Which sizes, how often, under which parameterisations, and the base shape at which the rates were tuned."""

    sizes: list[Size] = Field(default=[])
    """``widths = [...]`` is short for sizes that differ in width alone."""
    params: (
        Annotated[
            Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1), Tag(A_LIST)]
            | Annotated[ParamRange, Tag(A_RULE)],
            Discriminator(_list_or_rule),
        ]
        | None
    ) = None
    """Instead of sizes: parameter counts, or a range of them; each becomes the nearest shape, within 5 %."""
    aspect: float | None = Field(default=None, gt=0)
    """With params: the width of a transformer over its layers."""
    base_width: int = Field(ge=1)
    base_layers: int | None = Field(default=None, ge=1)
    base_head_size: int | None = Field(default=None, ge=1)
    seeds: int = Field(default=1, ge=1)
    """Runs of each size; seed k draws both the initialisation and the data."""
    parameterisations: list[Parameterisation] = Field(default=["mup"], min_length=1)
    """One ladder each, trained together on the same data."""
    shared_data_widths: list[int] = Field(default=[])
    """Widths at which the first ladder is also trained with every seed on the data of seed 0."""

    @model_validator(mode="before")
    @classmethod
    def _accept_widths(cls, data: Any) -> Any:
        if isinstance(data, dict) and "widths" in data:
            if "sizes" in data:
                raise ValueError("give widths or sizes, not both")
            data = dict(data)
            widths = data.pop("widths")
            if not isinstance(widths, list):
                raise ValueError(f"widths must be a list of whole numbers; got {widths!r}")
            data["sizes"] = [{"width": width} for width in widths]
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.sizes) == (self.params is not None):
            raise ValueError("give one of sizes, widths or params")
        if self.aspect is not None and self.params is None:
            raise ValueError("aspect goes with params; sizes say their own width and layers")
        labels = [label(size) for size in self.sizes] or [human(n) for n in self.asked_params]
        if len(set(labels)) < len(labels):
            raise ValueError(f"sizes must be different; got {', '.join(labels)}")
        if stray := sorted(set(self.shared_data_widths) - {s.width for s in self.sizes}):
            raise ValueError(f"shared_data_widths {stray} are not among the widths of the sizes")
        return self

    @property
    def asked_params(self) -> list[float]:
        """The parameter counts of ``params``, one by one."""
        match self.params:
            case None:
                return []
            case ParamRange() as r:
                return [r.smallest * (r.largest / r.smallest) ** (k / (r.count - 1)) for k in range(r.count)]
            case listed:
                return listed


class TimescaleRule(Section):
    """The best timescale against tokens per parameter, as fitted to sweeps: ``scale * TPP ** exponent``."""

    scale: float = Field(gt=0)
    exponent: float
    fitted_from: float = Field(default=0.0, ge=0)
    """Tokens per parameter of the shortest and the longest sweep behind it; beyond, the plan says so."""
    fitted_to: float = Field(default=float("inf"), gt=0)


class BatchRule(Section):
    """A batch that grows with the tokens of the run, ``batch * (D / tokens) ** exponent``, from one tuned point."""

    batch: int = Field(ge=1)
    """Tokens a step at the tuned point."""
    tokens: float = Field(gt=0)
    """D of the tuned point."""
    exponent: float = Field(gt=0, lt=1)
    """.383 (arXiv 2505.13738) or .5 (arXiv 2509.25087), say; for a critical batch .462."""

    def at(self, tokens: float) -> float:
        """The batch of a run of so many tokens, before rounding."""
        return self.batch * (tokens / self.tokens) ** self.exponent


def _number_or_rule(value: Any) -> str:
    return A_RULE if isinstance(value, (dict, Section)) else A_NUMBER


class OptimiserSection(Section):
    """AdamW, with decay multiplied by the learning rate; rates and decay are those of the base shape.

    The learning rate is never rescaled with batch or tokens: weight decay is what moves the timescale.
    """

    learning_rate: float = Field(gt=0)
    batch: (
        Annotated[
            Annotated[int, Field(ge=1), Tag(A_NUMBER)] | Annotated[BatchRule, Tag(A_RULE)],
            Discriminator(_number_or_rule),
        ]
        | None
    ) = None
    """Tokens a step (samples, where the task has no tokens), or a rule; may be left out where every size has one."""
    critical_batch: BatchRule | None = None
    """The batch beyond which more of it saves few steps, against tokens; a run with a larger one is refused."""
    weight_decay: float | None = Field(default=None, ge=0)
    timescale: (
        Annotated[
            Annotated[float, Field(gt=0), Tag(A_NUMBER)]
            | Annotated[Literal["power-lines", "celerity"], Tag(A_NAME)]
            | Annotated[TimescaleRule, Tag(A_RULE)],
            Discriminator(_form),
        ]
        | None
    ) = None
    """tau = B / (eta lambda D): instead of weight_decay, which then follows for each size (arXiv 2509.25087, eq. 2).

    A number for all sizes, or its optimum against tokens per parameter: a published rule by name, or your own.
    """
    scale_weight_decay: bool = True
    """Whether the hidden matrices' decay grows with width as their rate falls, which keeps tau."""
    betas: tuple[float, float] = Field(default=(0.9, 0.95), strict=False)
    eps: float = Field(default=1e-12, gt=0)
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of the gradient of a step; larger ones are scaled down to it."""
    warmup_tokens: float | None = Field(default=None, gt=0)
    """Warm up over so many tokens; with a schedule that has a warmup share, over the shorter of the two."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weight_decay is not None and self.timescale is not None:
            raise ValueError("give weight_decay or timescale, not both")
        return self


class HorizonSection(Section):
    """How long each size trains: a law ``C*(N) = (N / scale) ** exponent`` (in FLOPs), or tokens per parameter."""

    scale: float | None = Field(default=None, gt=0)
    exponent: float | None = Field(default=None, gt=1)
    multiple: float = Field(default=1.0, gt=0)
    """Train for this multiple of the law's horizon: curves collapse at any constant multiple of it."""
    made_by: str = ""
    """The command that made the law."""
    tokens_per_param: float | list[float] | None = None
    """One value for all sizes, or one a size."""
    bands: list[Annotated[float, Field(gt=0)]] | None = Field(default=None, min_length=1)
    """Several tokens per parameter, at each of which every size is trained: one family each."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        law = self.scale is not None and self.exponent is not None
        if (self.scale is None) != (self.exponent is None):
            raise ValueError("a horizon law needs both scale and exponent")
        if law + (self.tokens_per_param is not None) + (self.bands is not None) != 1:
            raise ValueError("give one of scale and exponent, tokens_per_param, or bands")
        if self.bands is not None and len(set(self.bands)) < len(self.bands):
            raise ValueError(f"bands must be different; got {', '.join(f'{b:g}' for b in self.bands)}")
        tpp = self.tokens_per_param
        if tpp is not None and not all(0 < t < float("inf") for t in (tpp if isinstance(tpp, list) else [tpp])):
            raise ValueError(f"tokens_per_param must be above 0 and finite; got {tpp}")
        return self


class EvaluationSection(Section):
    """When the held-out loss is measured: half evenly spaced in steps, half in log steps."""

    points: int = Field(default=64, ge=4)
    samples: int = Field(default=65_536, ge=1)
    """Tokens (or samples) of the held-out set, which all runs share."""
    gradient_batches: int = Field(default=0, ge=0)
    """Batches, of the training's size, from which the gradient noise is measured with the held-out loss; 0: not at all.

    The trace of the preconditioned gradient covariance (arXiv 2507.02119, section 4): the variance of each coordinate
    of the gradient over the batches, times peak rate / (sqrt(v) + eps), summed.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.gradient_batches == 1:
            raise ValueError("gradient_batches is 1; a variance needs at least 2, and 0 measures none")
        return self


class Recipe(Section):
    """The whole recipe of one or more ladders."""

    task: Annotated[FourierTask | TokenTask, Field(discriminator="kind")]
    model: Annotated[MLPModel | TransformerModel, Field(discriminator="kind")]
    ladder: LadderSection
    optimiser: OptimiserSection
    schedule: Schedule
    horizon: HorizonSection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: matrix products under autocast; weights and moments stay float32."""

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = _with_preset(dict(data))
        for section, kind in (("task", "fourier"), ("model", "mlp")):
            if isinstance(data.get(section), dict):
                data[section] = {"kind": kind, **data[section]}
        return data

    @model_validator(mode="after")
    def _shape(self) -> Self:
        ladder = self.ladder
        if ladder.params is None:
            return self
        sizes = [size_near(self.model, n, ladder.aspect) for n in ladder.asked_params]
        if len({(s.width, s.layers) for s in sizes}) < len(sizes):
            raise ValueError("ladder.params: two of them have the same nearest shape; give counts further apart")
        shaped = ladder.model_copy(update={"sizes": sizes, "params": None, "aspect": None})
        return self.model_copy(update={"ladder": shaped})

    @model_validator(mode="after")
    def _check(self) -> Self:
        ladder, tpp = self.ladder, self.horizon.tokens_per_param if self.horizon else None
        if isinstance(tpp, list) and len(tpp) != len(ladder.sizes):
            raise ValueError(f"horizon.tokens_per_param has {len(tpp)} values for {len(ladder.sizes)} sizes")
        if self.horizon is None and any(s.steps is None for s in ladder.sizes):
            raise ValueError("horizon is missing: give [horizon] tokens_per_param, or steps for every size")
        if self.optimiser.batch is None and any(s.batch is None for s in ladder.sizes):
            raise ValueError("optimiser.batch is required and missing: give it, or a batch for every size")
        if self.horizon is not None and self.horizon.bands is not None and any(s.steps for s in ladder.sizes):
            raise ValueError("horizon.bands gives every size several lengths; leave the sizes' steps out")
        if isinstance(self.model, MLPModel):
            self._check_mlp(self.model)
        else:
            self._check_transformer(self.model)
        return self

    def _check_mlp(self, model: MLPModel) -> None:
        if not isinstance(self.task, FourierTask):
            raise ValueError("model.kind is 'mlp', which learns task.kind 'fourier'; for tokens give a transformer")
        if model.inputs != self.task.dimension:
            raise ValueError(f"model.inputs is {model.inputs}, but task.dimension is {self.task.dimension}")
        if (
            self.precision != "float32"
            or self.optimiser.clip is not None
            or "completep" in self.ladder.parameterisations
        ):
            raise ValueError("MLPs train in float32, without clip, under mup or standard")
        if any(s.layers or s.head_size or s.ffn for s in self.ladder.sizes):
            raise ValueError("sizes of MLPs have a width only; their depth is model.blocks")

    def _check_transformer(self, model: TransformerModel) -> None:
        ladder = self.ladder
        if not isinstance(self.task, TokenTask):
            raise ValueError("model.kind is 'transformer', which needs task.kind 'tokens'")
        if ladder.shared_data_widths:
            raise ValueError("shared_data_widths is for MLPs")
        if "completep" in ladder.parameterisations and ladder.base_layers is None:
            raise ValueError("ladder.base_layers is missing: completep scales with depth")
        for size in ladder.sizes:
            transformer_shape(model, size)
            if size.width < ladder.base_width:
                raise ValueError(
                    f"ladder.base_width {ladder.base_width} is larger than width {size.width} of {label(size)}; "
                    "the base is the shape at which the rates were tuned, the smallest of the family"
                )
            if "completep" in ladder.parameterisations and (size.layers or 0) < (ladder.base_layers or 0):
                raise ValueError(
                    f"ladder.base_layers {ladder.base_layers} is larger than the {size.layers} layers of {label(size)}"
                )
            batch = size.batch or self.optimiser.batch
            if isinstance(batch, int) and batch % model.context:
                raise ValueError(
                    f"a batch of {batch} tokens is no whole number of sequences of model.context {model.context}; "
                    f"{max(1, round(batch / model.context)) * model.context} would be"
                )
        if self.evaluation.samples < model.context:
            raise ValueError(
                f"evaluation.samples {self.evaluation.samples} is less than one sequence ({model.context})"
            )

    def n_params(self, size: Size) -> int:
        """N of one size."""
        if isinstance(self.model, MLPModel):
            return self.model.n_params(size.width)
        return transformer_shape(self.model, size).n_params


def _with_preset(data: dict[str, Any]) -> dict[str, Any]:
    """Put a published family's values under those that the recipe gives."""
    model, ladder = data.get("model"), data.get("ladder")
    if not isinstance(model, dict) or "preset" not in model:
        return data
    name = model["preset"]
    if name not in PRESETS:
        raise ValueError(f"model.preset is {name!r}; accepted are {', '.join(PRESETS)}")
    family = PRESETS[name]
    data["model"] = {"kind": "transformer", **family.model, **{k: v for k, v in model.items() if k != "preset"}}
    if isinstance(data.get("optimiser"), dict):
        data["optimiser"] = {**family.optimiser, **data["optimiser"]}
    if isinstance(ladder, dict):
        sizes = [dict(s) if isinstance(s, dict) else s for s in ladder.get("sizes", [])]
        ladder = {**ladder, "sizes": sizes} if "sizes" in ladder else ladder
        for size in sizes:
            if isinstance(size, dict) and "width" not in size:
                known = str(size.get("name"))
                if known not in family.sizes:
                    raise ValueError(f"ladder.sizes: {name} has no size {known!r}; it has {', '.join(family.sizes)}")
                own = isinstance(data.get("optimiser"), dict) and "batch" in data["optimiser"]
                values = {k: v for k, v in family.sizes[known].items() if not (own and k == "batch")}
                size.update({k: v for k, v in values.items() if k not in size})
        data["ladder"] = {**family.ladder, **ladder}
    return data


def label(size: Size) -> str:
    """The name of a size, or one made of its width and layers."""
    return size.name or f"width-{size.width}" + (f"-layers-{size.layers}" if size.layers else "")


def load_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises OnecurveError with the file, the field, the value and what is accepted."""
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise OnecurveError(f"{path}: no such file; examples are in {EXAMPLES}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OnecurveError(f"{path}: not a TOML file: {error}") from None
    try:
        recipe = Recipe.model_validate(content)
    except ValidationError as error:
        raise OnecurveError(f"{path}: {_in_words(error)}") from None
    if isinstance(recipe.task, TokenTask) and recipe.task.data is not None:
        # A path in a recipe is relative to the recipe.
        task = recipe.task.model_copy(update={"data": str((path.parent / recipe.task.data).resolve())})
        recipe = recipe.model_copy(update={"task": task})
    return recipe


def _in_words(error: ValidationError) -> str:
    # A key that is not known explains another that is missing, so it comes first.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    # The kind of a task or model follows its section.
    address = [part for k, part in enumerate(first["loc"]) if k != 1 or first["loc"][0] not in ("task", "model")]
    loc = [str(part) for part in address if part not in TAGS]
    where = ".".join(loc) or "recipe"
    if first["type"] == "extra_forbidden":
        known = sorted(_known_keys(first["loc"][:-1]))
        near = difflib.get_close_matches(loc[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        return f"{where} is not a known key; {hint}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and not isinstance(first["input"], (int, float, str)):
        return message if where == "recipe" else f"{where}: {message}"
    if first["type"] == "missing":
        return f"{where} is required and missing"
    return f"{where} is {first['input']!r}: {message}"


def _known_keys(loc: tuple[int | str, ...]) -> set[str]:
    """The keys of the section at a place in the recipe, of all its kinds."""

    def models(annotation: Any) -> list[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return [annotation]
        return [m for part in get_args(annotation) for m in models(part)]

    classes: list[type[BaseModel]] = [Recipe]
    for part in loc:
        inner = [m for c in classes if part in c.model_fields for m in models(c.model_fields[str(part)].annotation)]
        classes = inner or classes
    keys = {key for c in classes for key in c.model_fields}
    if LadderSection in classes:
        keys.add("widths")
    if TransformerModel in classes:
        keys.add("preset")
    return keys


def resolve(recipe: Recipe) -> Recipe:
    """The same recipe with every size's steps, batch, learning rate, weight decay, warmup and seeds written out.

    Weight decay under a timescale: lambda = B / (eta tau D) with D = B steps (arXiv 2509.25087, eq. 2), so that the
    hidden matrices have it once the parameterisation has scaled both. A resolved recipe resolves to itself.
    """
    bands = recipe.horizon.bands if recipe.horizon else None
    indices = range(len(recipe.ladder.sizes))
    sizes = [_resolved(recipe, index, band) for band in bands or [None] for index in indices]
    return recipe.model_copy(
        update={
            "ladder": recipe.ladder.model_copy(update={"sizes": sizes}),
            "optimiser": recipe.optimiser.model_copy(update={"timescale": None, "warmup_tokens": None}),
            "horizon": None,
        }
    )


def _resolved(recipe: Recipe, index: int, band: float | None) -> Size:
    size, o = recipe.ladder.sizes[index], recipe.optimiser
    if size.steps is None:
        tokens = asked_tokens(recipe, index, band)
        batch = size.batch or whole_batch(recipe, tokens)
        steps = max(1, round(tokens / batch))
    else:
        batch, steps = size.batch, size.steps
        if batch is None and isinstance(o.batch, BatchRule):
            raise OnecurveError(
                f"ladder.sizes: {label(size)} has steps, so its tokens, which optimiser.batch asks for, are not known; "
                "leave its steps out, or give its batch"
            )
        batch = batch or whole_batch(recipe, 0.0)
    if o.critical_batch is not None and batch > o.critical_batch.at(steps * batch):
        critical = o.critical_batch.at(steps * batch)
        raise OnecurveError(
            f"the batch of {label(size)}, {batch} tokens, is above the critical one of its {human(steps * batch)} "
            f"tokens (optimiser.critical_batch: {critical:.4g}); give a smaller batch or a longer run"
        )
    rate = size.learning_rate or o.learning_rate
    decay = size.weight_decay
    if decay is None:
        n = recipe.n_params(size)
        rule = timescale_rule(recipe)
        if rule is not None:
            asked = size.band or band
            decay = 1.0 / (rate * _hidden_product(recipe, size) * float(rule(asked or steps * batch / n)) * steps)
        else:
            decay = o.weight_decay or 0.0
    warmup = size.warmup
    if warmup is None:
        warmup = recipe.schedule.warmup
        if o.warmup_tokens is not None:
            share = o.warmup_tokens / (batch * steps)
            warmup = min(warmup, share) if warmup > 0 else share
            if warmup >= 1.0:
                raise OnecurveError(
                    f"optimiser.warmup_tokens {o.warmup_tokens:g} is longer than the run of {label(size)}, which has "
                    f"{batch * steps} tokens; give fewer, or a schedule with a warmup share"
                )
    return size.model_copy(
        update={
            "name": label(size) + ("" if band is None else f"-{band:g}-tpp"),
            "seeds": size.seeds or recipe.ladder.seeds,
            "band": size.band or band,
            "steps": steps,
            "batch": batch,
            "learning_rate": rate,
            "weight_decay": decay,
            "warmup": warmup,
        }
    )


def _hidden_product(recipe: Recipe, size: Size) -> float:
    """What the parameterisation makes of rate times decay in the hidden matrices: 1 unless decay stays unscaled."""
    ladder, scaled = recipe.ladder, recipe.optimiser.scale_weight_decay
    each = [factors("hidden", p, *width_and_depth_ratio(recipe, size), scaled) for p in ladder.parameterisations]
    products = [f.learning_rate * f.weight_decay for f in each]
    if max(products) > (1.0 + 1e-9) * min(products):
        raise OnecurveError(
            f"optimiser.timescale cannot hold for {' and '.join(ladder.parameterisations)} together while "
            "optimiser.scale_weight_decay is false; plan them apart, or scale the decay"
        )
    return products[0]


def timescale_rule(recipe: Recipe) -> PowerRule | None:
    """The recipe's timescale against tokens per parameter (a number has exponent 0); None where decay is set."""
    match recipe.optimiser.timescale:
        case None:
            return None
        case str() as name:
            return TIMESCALES[name]
        case TimescaleRule() as r:
            return PowerRule(r.scale, r.exponent, "the recipe's own", r.fitted_from, r.fitted_to)
        case number:
            return PowerRule(number, 0.0, "the recipe's own")


def asked_batch(recipe: Recipe, tokens: float) -> float:
    """Tokens a step of a run of so many tokens by the recipe's rule, before rounding to whole sequences."""
    batch = recipe.optimiser.batch
    assert batch is not None  # `Recipe` asked for it
    return batch.at(tokens) if isinstance(batch, BatchRule) else float(batch)


def whole_batch(recipe: Recipe, tokens: float) -> int:
    """`asked_batch` rounded to whole sequences, at least one; to whole samples where the task has no sequences."""
    batch = recipe.optimiser.batch
    if isinstance(batch, int):
        return batch
    unit = recipe.model.context if isinstance(recipe.model, TransformerModel) else 1
    return max(1, round(asked_batch(recipe, tokens) / unit)) * unit


def asked_tokens(recipe: Recipe, index: int, band: float | None = None) -> float:
    """D of one size without steps of its own, in tokens, before rounding to whole steps."""
    h = recipe.horizon
    assert h is not None  # `Recipe` asked for it
    n = recipe.n_params(recipe.ladder.sizes[index])
    if band is not None:
        return band * n
    if h.scale is not None and h.exponent is not None:
        return h.multiple * (n / h.scale) ** h.exponent / (6.0 * n)
    tpp = h.tokens_per_param
    return n * (tpp[index] if isinstance(tpp, list) else tpp or 0.0)


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as TOML, which `load_recipe` reads back to the same recipe."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True))


@dataclass(frozen=True)
class Member:
    """One run of a job."""

    config: RunConfig
    parameterisation: Parameterisation
    seed_init: int
    seed_data: int
    folder: Literal["runs", "shared-data"]


@dataclass(frozen=True)
class Job:
    """Runs that are trained as one program: all MLPs of one width, or one transformer."""

    name: str
    recipe: Recipe
    """Resolved."""
    size: Size
    members: tuple[Member, ...]

    @property
    def steps(self) -> int:
        """Optimiser steps of every member."""
        return _given(self.size.steps)

    @property
    def batch(self) -> int:
        """Tokens a step."""
        return _given(self.size.batch)

    @property
    def schedule(self) -> Schedule:
        """The schedule with this size's warmup."""
        return self.recipe.schedule.model_copy(update={"warmup": self.size.warmup or 0.0})

    @property
    def work(self) -> float:
        """Rough cost in FLOPs, to share out time."""
        model, e = self.recipe.model, self.recipe.evaluation
        if isinstance(model, MLPModel):
            a_token = 6.0 * model.n_params(self.size.width)
        else:
            a_token = transformer_shape(model, self.size).flops_per_token
        return len(self.members) * a_token * (self.steps * self.batch + e.points * e.samples / 3.0)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be this job's: everything that its steps depend on."""
        r = self.recipe
        return {
            "model": r.model.model_dump(),
            "size": self.size.model_dump(exclude={"name", "seeds", "band"}),
            "base": [r.ladder.base_width, r.ladder.base_layers, r.ladder.base_head_size],
            "optimiser": r.optimiser.model_dump(exclude={"learning_rate", "batch", "weight_decay", "critical_batch"}),
            "schedule": self.schedule.model_dump(),
            "task": r.task.model_dump(exclude={"data"}),
            "evaluation": r.evaluation.model_dump(),
            "precision": r.precision,
            "members": [[m.parameterisation, m.seed_init, m.seed_data] for m in self.members],
        }


def _given(value: int | None) -> int:
    assert value is not None  # `resolve` wrote it
    return value


def jobs(recipe: Recipe) -> list[Job]:
    """The jobs of a recipe, smallest size first."""
    r = resolve(recipe)
    out: list[Job] = []
    for size in sorted(r.ladder.sizes, key=r.n_params):
        seeds = range(_given(size.seeds))
        members = [_member(r, size, p, k, k, "runs") for p in r.ladder.parameterisations for k in seeds]
        if isinstance(r.model, MLPModel):
            if size.width in r.ladder.shared_data_widths:
                first = r.ladder.parameterisations[0]
                members += [_member(r, size, first, k, 0, "shared-data") for k in seeds if k > 0]
            out.append(Job(label(size), r, size, tuple(members)))
        else:
            out += [Job(member.config.name, r, size, (member,)) for member in members]
    return out


def width_and_depth_ratio(recipe: Recipe, size: Size) -> tuple[float, float]:
    """m = width / base width and l = layers / base layers of one size."""
    base = recipe.ladder.base_layers
    return size.width / recipe.ladder.base_width, 1.0 if base is None else (size.layers or base) / base


def _member(
    recipe: Recipe,
    size: Size,
    parameterisation: Parameterisation,
    seed_init: int,
    seed_data: int,
    folder: Literal["runs", "shared-data"],
) -> Member:
    o, ladder = recipe.optimiser, recipe.ladder
    hidden = factors("hidden", parameterisation, *width_and_depth_ratio(recipe, size), o.scale_weight_decay)
    name = f"{parameterisation}-{label(size)}-seed-{seed_init}"
    if seed_init != seed_data:
        name += f"-data-{seed_data}"
    rate, decay, batch = size.learning_rate or 0.0, size.weight_decay or 0.0, _given(size.batch)
    settings: dict[str, Setting] = {"base_width": ladder.base_width, "task": recipe.task.kind}
    if isinstance(recipe.model, MLPModel):
        settings["blocks"] = recipe.model.blocks
    else:
        settings |= {"layers": size.layers or 0, "context": recipe.model.context, "precision": recipe.precision}
        settings |= {"base_layers": ladder.base_layers} if ladder.base_layers else {}
    config = RunConfig(
        name=name,
        n_params=float(recipe.n_params(size)),
        horizon=float(_given(size.steps) * batch),
        seed_init=seed_init,
        seed_data=seed_data,
        batch_tokens=float(batch),
        learning_rate=rate * hidden.learning_rate,
        base_learning_rate=rate,
        weight_decay=decay * hidden.weight_decay,
        schedule=recipe.schedule.model_copy(update={"warmup": size.warmup or 0.0}),
        optimiser="adamw",
        parameterisation=parameterisation,
        width=size.width,
        settings=settings,
    )
    return Member(config, parameterisation, seed_init, seed_data, folder)


@dataclass(frozen=True)
class Group:
    """What the optimiser does to the tensors of one role in one run, as applied."""

    role: Role
    learning_rate: float
    """At the peak of the schedule."""
    weight_decay: float
    eps: float
    timescale: float
    """tau = B / (eta lambda D); inf without decay."""
    odd: bool
    """Whether its timescale differs from the hidden matrices', though it has decay."""


def groups(job: Job, member: Member) -> list[Group]:
    """The optimiser's groups of one run, by role: peak rate, decay, eps and timescale as applied.

    A group is odd where its timescale differs from that of the hidden matrices by more than a factor 1.15, the ratio at
    which `differences` warns.
    """
    recipe, size, o = job.recipe, job.size, job.recipe.optimiser
    ratios = width_and_depth_ratio(recipe, size)
    out: list[Group] = []
    for role in _roles(recipe):
        f = factors(role, member.parameterisation, *ratios, o.scale_weight_decay)
        rate = (size.learning_rate or 0.0) * f.learning_rate
        if role == "embedding" and isinstance(recipe.model, TransformerModel):
            rate *= recipe.model.embedding_rate
        decay = (size.weight_decay or 0.0) * f.weight_decay
        timescale = 1.0 / (rate * decay * job.steps) if decay > 0 else float("inf")
        out.append(Group(role, rate, decay, o.eps * f.eps, timescale, odd=False))
    hidden = next(g.timescale for g in out if g.role == "hidden")
    return [
        replace(g, odd=g.weight_decay > 0 and max(g.timescale / hidden, hidden / g.timescale) > RATIO_WARNS)
        for g in out
    ]


def _roles(recipe: Recipe) -> list[Role]:
    """The roles of the tensors that the model has."""
    m = recipe.model
    if isinstance(m, MLPModel):
        return ["embedding", "hidden", "readout"]
    gains: list[Role] = ["block norm", "final norm"] if m.norm_gain else []
    return ["embedding", "hidden", *gains, *([] if m.tied else ["readout"])]
