"""A recipe: what is to be trained, in one TOML file; and the rungs that follow from it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onecurve.errors import OnecurveError
from onecurve.run import RunConfig
from onecurve.schedule import Schedule
from onecurve.train.fourier import FourierTask
from onecurve.train.mlp import MLPShape
from onecurve.train.parameterisation import Parameterisation, factors

EXAMPLES = Path(__file__).parent / "recipes"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LadderSection(_Section):
    """Which sizes, how often, under which parameterisations."""

    widths: list[int] = Field(min_length=1)
    base_width: int = Field(ge=1)
    """The width at which the learning rate was tuned; there all parameterisations are the same model."""
    seeds: int = Field(default=4, ge=1)
    """Runs of each size; seed k draws both the initialisation and the data."""
    parameterisations: list[Parameterisation] = Field(default=["mup"], min_length=1)
    """One ladder each, trained together on the same data."""
    shared_data_widths: list[int] = []
    """Widths at which the first ladder is also trained with every seed on the data of seed 0."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.widths)) < len(self.widths) or min(self.widths) < 1:
            raise ValueError(f"widths must be different and positive; got {self.widths}")
        if stray := sorted(set(self.shared_data_widths) - set(self.widths)):
            raise ValueError(f"shared_data_widths {stray} are not among widths {self.widths}")
        return self


class OptimiserSection(_Section):
    """AdamW; rates and decay are those of the base width."""

    learning_rate: float = Field(gt=0)
    batch: int = Field(ge=1)
    """Samples a step."""
    weight_decay: float = Field(default=0.0, ge=0)
    betas: tuple[float, float] = Field(default=(0.9, 0.95), strict=False)
    eps: float = Field(default=1e-12, gt=0)


class HorizonSection(_Section):
    """How long each size trains: a law ``C*(N) = (N / scale) ** exponent`` (in FLOPs), or samples per parameter."""

    scale: float | None = Field(default=None, gt=0)
    exponent: float | None = Field(default=None, gt=1)
    multiple: float = Field(default=1.0, gt=0)
    """Train for this multiple of the law's horizon: curves collapse at any constant multiple of it."""
    made_by: str = ""
    """The command that made the law."""
    samples_per_param: float | list[float] | None = None
    """One value for all widths, or one a width."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        law = self.scale is not None and self.exponent is not None
        if law == (self.samples_per_param is not None):
            raise ValueError("give either scale and exponent, or samples_per_param")
        return self


class EvaluationSection(_Section):
    """When the held-out loss is measured: half evenly spaced in steps, half in log steps."""

    points: int = Field(default=64, ge=4)
    samples: int = Field(default=65_536, ge=1)
    """Size of the held-out set, which all runs share."""


class Recipe(_Section):
    """The whole recipe of one or more ladders of residual MLPs on the Fourier task."""

    task: FourierTask
    model: MLPShape
    ladder: LadderSection
    optimiser: OptimiserSection
    schedule: Schedule
    horizon: HorizonSection
    evaluation: EvaluationSection = EvaluationSection()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model.inputs != self.task.dimension:
            raise ValueError(f"model.inputs is {self.model.inputs}, but task.dimension is {self.task.dimension}")
        per_param = self.horizon.samples_per_param
        if isinstance(per_param, list) and len(per_param) != len(self.ladder.widths):
            raise ValueError(
                f"horizon.samples_per_param has {len(per_param)} values for {len(self.ladder.widths)} widths"
            )
        return self

    def steps(self, width: int) -> int:
        """Optimiser steps of the runs of one width."""
        n = self.model.n_params(width)
        h = self.horizon
        if h.scale is not None and h.exponent is not None:
            samples = h.multiple * (n / h.scale) ** h.exponent / (6.0 * n)
        elif isinstance(h.samples_per_param, list):
            samples = n * h.samples_per_param[self.ladder.widths.index(width)]
        else:
            samples = n * (h.samples_per_param or 0.0)
        return max(1, round(samples / self.optimiser.batch))


@dataclass(frozen=True)
class Member:
    """One run among those of its width."""

    config: RunConfig
    parameterisation: Parameterisation
    seed_init: int
    seed_data: int
    folder: Literal["runs", "shared-data"]


@dataclass(frozen=True)
class Rung:
    """All runs of one width: one batched program."""

    recipe: Recipe
    width: int
    steps: int
    members: tuple[Member, ...]

    @property
    def name(self) -> str:
        """Name of its checkpoint and in the progress display."""
        return f"width-{self.width}"

    @property
    def work(self) -> float:
        """Rough cost in FLOPs, to share out time."""
        n = self.recipe.model.n_params(self.width)
        batch, e = self.recipe.optimiser.batch, self.recipe.evaluation
        passes = 6.0 * self.steps * batch + 2.0 * e.points * e.samples
        return n * len(self.members) * passes


def load_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises OnecurveError with the file, the field, the value and what is accepted."""
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise OnecurveError(f"{path}: no such file; examples are in {EXAMPLES}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OnecurveError(f"{path}: not a TOML file: {error}") from None
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "recipe"
        raise OnecurveError(f"{path}: {where} is {first['input']!r}: {first['msg']}") from None


def rungs(recipe: Recipe) -> list[Rung]:
    """The rungs of a recipe, smallest first."""
    return [_rung(recipe, width) for width in sorted(recipe.ladder.widths)]


def _rung(recipe: Recipe, width: int) -> Rung:
    ladder = recipe.ladder
    steps = recipe.steps(width)
    members = [
        _member(recipe, width, steps, p, seed, seed, "runs")
        for p in ladder.parameterisations
        for seed in range(ladder.seeds)
    ]
    if width in ladder.shared_data_widths:
        first = ladder.parameterisations[0]
        members += [_member(recipe, width, steps, first, k, 0, "shared-data") for k in range(1, ladder.seeds)]
    return Rung(recipe, width, steps, tuple(members))


def _member(
    recipe: Recipe,
    width: int,
    steps: int,
    parameterisation: Parameterisation,
    seed_init: int,
    seed_data: int,
    folder: Literal["runs", "shared-data"],
) -> Member:
    o = recipe.optimiser
    hidden = factors("hidden", parameterisation, width / recipe.ladder.base_width)
    name = f"{parameterisation}-width-{width}-seed-{seed_init}"
    if seed_init != seed_data:
        name += f"-data-{seed_data}"
    config = RunConfig(
        name=name,
        n_params=float(recipe.model.n_params(width)),
        horizon=float(steps * o.batch),
        seed_init=seed_init,
        seed_data=seed_data,
        batch_tokens=float(o.batch),
        learning_rate=o.learning_rate * hidden.learning_rate,
        base_learning_rate=o.learning_rate,
        weight_decay=o.weight_decay * hidden.weight_decay,
        schedule=recipe.schedule,
        optimiser="adamw",
        parameterisation=parameterisation,
        width=width,
        settings={"base_width": recipe.ladder.base_width, "task": recipe.task.kind, "blocks": recipe.model.blocks},
    )
    return Member(config, parameterisation, seed_init, seed_data, folder)
