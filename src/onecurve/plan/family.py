"""An existing family, from a file of its settings: ought its curves to collapse, model by model, and why not?"""

from __future__ import annotations

import csv
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from onecurve.controls import Finding, controls, differences
from onecurve.errors import OnecurveError, some
from onecurve.plan.shape import Section
from onecurve.run import RunConfig
from onecurve.schedule import Schedule, Shape

ALIASES = {"N": "n_params", "D": "tokens", "B": "batch_tokens", "eta": "learning_rate", "lambda": "weight_decay"}
"""Symbols of the papers for keys and columns."""


class FamilyModel(Section):
    """What one model of a family was trained with; what is not given cannot be checked."""

    name: str
    family: str = ""
    """Models of one family are compared; one file may hold several."""
    n_params: float = Field(gt=0)
    """N."""
    embeddings: Literal["counted", "not counted"] | None = None
    """Whether N counts them."""
    tokens: float | None = Field(default=None, gt=0)
    """D."""
    tokens_per_param: float | None = Field(default=None, gt=0)
    """Instead of tokens."""
    batch_tokens: float | None = Field(default=None, gt=0)
    """B."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Peak, as applied to the hidden matrices."""
    weight_decay: float | None = Field(default=None, ge=0)
    """As applied to the hidden matrices."""
    convention: Literal["multiplied", "independent"] = "multiplied"
    """Whether a step shrinks weights by rate times decay (as torch does), or by the decay alone."""
    timescale: float | None = Field(default=None, gt=0)
    """tau, where it is known and the decay is not."""
    schedule: Shape | None = None
    decay_frac: float = Field(default=1.0, gt=0, le=1)
    final: float = Field(default=0.0, ge=0, le=1)
    warmup: float | None = Field(default=None, ge=0, lt=1)
    """Share of training."""
    warmup_tokens: float | None = Field(default=None, ge=0)
    warmup_steps: float | None = Field(default=None, ge=0)
    parameterisation: str | None = None
    width: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tokens is None) == (self.tokens_per_param is None):
            raise ValueError("give one of tokens and tokens_per_param")
        if self.timescale is not None and self.batch_tokens is None:
            raise ValueError("batch_tokens is missing: timescale is tokens a step over rate, decay and tokens")
        if self.timescale is not None and self.weight_decay is not None:
            raise ValueError("give weight_decay or timescale, not both: one follows from the other")
        if self.weight_decay and self.convention == "multiplied" and self.learning_rate is None:
            raise ValueError(
                "learning_rate is missing: weight_decay is multiplied by it (or convention = 'independent')"
            )
        if sum(w is not None for w in (self.warmup, self.warmup_tokens, self.warmup_steps)) > 1:
            raise ValueError("give one of warmup, warmup_tokens and warmup_steps")
        if self.warmup_steps is not None and self.batch_tokens is None:
            raise ValueError("warmup_steps needs batch_tokens, to become a share of training")
        if self.share is not None and not self.share < 1:
            raise ValueError(f"its warmup is {self.share:.3g} of its training, longer than all of it")
        return self

    @property
    def horizon(self) -> float:
        """D, in tokens."""
        return self.tokens or (self.tokens_per_param or 0.0) * self.n_params

    @property
    def share(self) -> float | None:
        """Warmup as a share of training."""
        if self.warmup_steps is not None:
            return self.warmup_steps * (self.batch_tokens or 0.0) / self.horizon
        return self.warmup if self.warmup_tokens is None else self.warmup_tokens / self.horizon

    @property
    def config(self) -> RunConfig:
        """The same as a run's settings: decay multiplied by the rate, tau = B / (eta lambda D)."""
        rate, decay = self.learning_rate, self.weight_decay
        if self.timescale is not None:
            # Where the rate is not known, only its product with the decay is told, and that is all tau needs.
            product = (self.batch_tokens or 0.0) / (self.timescale * self.horizon)
            rate = rate or 1.0
            decay = product / rate
        elif self.convention == "independent" and decay is not None:
            rate = rate or 1.0
            decay = decay / rate
        known = self.schedule is not None and self.share is not None
        return RunConfig(
            name=self.name,
            n_params=self.n_params,
            horizon=self.horizon,
            batch_tokens=self.batch_tokens,
            learning_rate=rate,
            weight_decay=decay,
            schedule=Schedule(
                shape=self.schedule or "linear",
                decay_frac=self.decay_frac,
                final=self.final,
                warmup=self.share or 0.0,
            )
            if known
            else None,
            parameterisation=self.parameterisation,
            width=self.width if self.learning_rate is not None else None,
        )


@dataclass(frozen=True)
class Row:
    """One model of a family against its reference."""

    name: str
    n_params: float
    tokens: float
    tokens_per_param: float
    batch_tokens: float | None
    timescale: float | None
    warmup: float | None
    verdict: str
    """``reference``, ``yes``, ``nearly``, ``no`` or ``cannot tell``."""
    why: tuple[str, ...]


@dataclass(frozen=True)
class FamilyCheck:
    """Whether the curves of a family ought to collapse, and which do not with the others."""

    name: str
    rows: tuple[Row, ...]
    """In order of size."""
    findings: tuple[Finding, ...]
    """What differs over the whole family, in the order in which to check."""

    @property
    def verdict(self) -> str:
        """``yes``, ``nearly`` (only warnings), ``no``, or ``cannot tell`` where a control is not recorded."""
        return _verdict(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return {**asdict(self), "verdict": self.verdict}


def read_family(path: Path) -> list[FamilyModel]:
    """The models of a TOML or CSV file.

    TOML: ``[[models]]``, one a model; keys above them hold for all. CSV: one row a model; lines from ``#`` are remarks.
    Raises OnecurveError naming the file, the model, the field and what is accepted.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise OnecurveError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise OnecurveError(f"{path}: not text; a family is a TOML or CSV file") from None
    rows = _from_csv(path, text) if path.suffix == ".csv" else _from_toml(path, text)
    if not rows:
        raise OnecurveError(f"{path}: holds no models; give [[models]], or rows in a CSV file")
    models = [_model(path, k, row) for k, row in enumerate(rows)]
    for family in {m.family for m in models}:
        names = [m.name for m in models if m.family == family]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise OnecurveError(f"{path}: two models are called {twice!r}; names must differ within a family")
    return models


def is_family(path: Path) -> bool:
    """Whether a file holds a family's settings rather than a recipe: a CSV file, or TOML with ``models``."""
    if path.suffix == ".csv":
        return True
    try:
        return "models" in tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False  # reading it as a recipe says what is wrong


def check_family(models: Sequence[FamilyModel]) -> list[FamilyCheck]:
    """Each family's verdict, in order of appearance.

    A model's row says how it differs from the reference: the model with which most others agree, the smallest of such.
    Timescales or tokens per parameter that differ by more than a factor 1.5 fail, by more than 1.15 warn; warmup shares
    that differ by more than .02 warn (`onecurve.controls`).
    """
    return [_check([m for m in models if m.family == name]) for name in dict.fromkeys(m.family for m in models)]


def _check(models: Sequence[FamilyModel]) -> FamilyCheck:
    models = sorted(models, key=lambda m: m.n_params)
    configs = [m.config for m in models]
    findings = [*_embeddings(models), *differences(configs)]
    pairs = [[_pair(a, b) for b in models] for a in models]
    agree = [sum(_verdict(f) != "no" for f in row) for row in pairs]
    at = agree.index(max(agree))
    rows: list[Row] = []
    for k, model in enumerate(models):
        found, of = pairs[at][k], controls(configs[k])
        assert of.tokens_per_param is not None
        why = tuple(_against(f, configs[k], configs[at]) for f in found if f.level != "unknown")
        rows.append(
            Row(
                model.name, model.n_params, model.horizon, of.tokens_per_param, model.batch_tokens, of.timescale,
                model.share, "reference" if k == at else _verdict(found), why,
            )
        )  # fmt: skip
    return FamilyCheck(models[0].family, tuple(rows), tuple(findings))


def _pair(a: FamilyModel, b: FamilyModel) -> list[Finding]:
    return [] if a is b else [*_embeddings([a, b]), *differences([a.config, b.config])]


def _verdict(found: Sequence[Finding]) -> str:
    levels = {f.level for f in found}
    needed = {f.control for f in found if f.level == "unknown"} - {"parameterisation"}
    return "no" if "fails" in levels else "cannot tell" if needed else "nearly" if "warns" in levels else "yes"


def _embeddings(models: Sequence[FamilyModel]) -> list[Finding]:
    """Whether N counts the same things everywhere."""
    told = {m.embeddings for m in models} - {None}
    if len(told) < 2:
        return []
    without = [m.name for m in models if m.embeddings == "not counted"]
    text = f"parameters: N leaves the embeddings out in {some(without)}, but not in the others; count them alike"
    return [Finding("parameters", "fails", text)]


def _against(finding: Finding, own: RunConfig, reference: RunConfig) -> str:
    """A finding on two models, in few words."""
    a, b = controls(own), controls(reference)
    values: dict[str, tuple[Any, Any]] = {
        "timescale": (a.timescale, b.timescale),
        "batch": (own.batch_tokens, reference.batch_tokens),
        "tokens per parameter": (a.tokens_per_param, b.tokens_per_param),
        "schedule": (a.schedule, b.schedule),
        "warmup": (a.warmup, b.warmup),
        "parameterisation": (a.parameterisation, b.parameterisation),
    }
    if finding.control not in values or values[finding.control][0] == values[finding.control][1]:
        return finding.text
    first, second = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in values[finding.control])
    words = f"{finding.control} {first}, not {second}"
    if finding.control in ("timescale", "batch") and own.weight_decay and a.timescale and b.timescale:
        words += (
            f" (decay {own.weight_decay * a.timescale / b.timescale:.3g} instead of {own.weight_decay:.3g} holds it)"
        )
    return words


def _from_toml(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OnecurveError(f"{path}: not a TOML file: {error}") from None
    models = content.pop("models", [])
    content.pop("source", None)
    if not isinstance(models, list) or not all(isinstance(m, dict) for m in models):
        raise OnecurveError(f"{path}: models must be tables, [[models]], one a model")
    return [{**content, **m} for m in models]


def _from_csv(path: Path, text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    for k, row in enumerate(rows):
        if None in row or None in row.values():
            raise OnecurveError(f"{path}: row {k + 1} does not have as many cells as there are columns")
    return [{key: _cell(value) for key, value in row.items() if value.strip()} for row in rows]


def _cell(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text.strip()


def _model(path: Path, index: int, row: Mapping[str, Any]) -> FamilyModel:
    named = {ALIASES.get(key, key): value for key, value in row.items()}
    named["name"] = str(named.get("name", f"model {index + 1}"))
    if "family" in named:
        named["family"] = str(named["family"])
    where = f"{path}: {named['name']}"
    try:
        return FamilyModel.model_validate(named)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    field = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        known = [*FamilyModel.model_fields, *ALIASES]
        near = difflib.get_close_matches(field, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise OnecurveError(f"{where}: {field} is not a known key; {hint}") from None
    if first["type"] == "missing":
        raise OnecurveError(f"{where}: {field} is required and missing") from None
    raise OnecurveError(
        f"{where}: {field} is {first['input']!r}: {message}" if field else f"{where}: {message}"
    ) from None
