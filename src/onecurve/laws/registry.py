"""The laws by name: which there are, and how a saved one is read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onecurve.errors import OnecurveError, did_you_mean
from onecurve.ladder import Ladder
from onecurve.laws.annealing import Annealing
from onecurve.laws.averaging import MovingAverage
from onecurve.laws.batch import fit_batch
from onecurve.laws.decayed import DecayedPower
from onecurve.laws.exponent import fit_exponent
from onecurve.laws.final import FinalLoss
from onecurve.laws.horizon import fit_horizon
from onecurve.laws.law import Law
from onecurve.laws.multipower import MultiPower
from onecurve.laws.powers import SumOfPowers
from onecurve.laws.quadratic import NoisyQuadratic, OwnNoise
from onecurve.laws.shape import TokensPerParameter
from onecurve.laws.small_runs import SmallRuns
from onecurve.laws.surrogate import Surrogate
from onecurve.laws.timescale import fit_timescale
from onecurve.laws.variance import fade
from onecurve.measure.collapse import collapse
from onecurve.run import Run

LAWS: dict[str, type[Law]] = {
    law.name: law
    for law in (
        FinalLoss, SumOfPowers, NoisyQuadratic, OwnNoise, DecayedPower, MultiPower, Annealing, Surrogate,
        SmallRuns, MovingAverage, TokensPerParameter,
    )
}  # fmt: skip
"""Laws that predict curves."""


class Finding(Protocol):
    """What is found of a family, without a curve to predict."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        ...


@dataclass(frozen=True)
class Study:
    """A law that says something of a family and predicts no curve."""

    about: str
    needs: str
    find: Callable[[Sequence[Run], str | None], Finding]


STUDIES = {
    "horizon": Study(
        "the compute-optimal horizon of each size",
        "constant-rate runs of at least 4 sizes, longer than their horizon",
        fit_horizon,
    ),
    "exponent": Study(
        "the growth of the horizon along which constant-rate curves collapse best",
        "constant-rate runs of at least 4 sizes, longer than their horizon",
        fit_exponent,
    ),
    "timescale": Study(
        "the best AdamW timescale against tokens per parameter, a power law",
        "sweeps of weight decay at three or more tokens per parameter",
        fit_timescale,
    ),
    "batch": Study(
        "the best batch against tokens, and the critical batch",
        "runs at several batches and horizons",
        fit_batch,
    ),
    "variance": Study(
        "how the spread of curves dies away at the end, against theory",
        "a ladder that collapses, with its schedule",
        lambda runs, loss: fade(collapse(Ladder(runs), loss=loss)),
    ),
}


def named(name: str) -> type[Law]:
    """The law of that name; OnecurveError with the nearest known one."""
    if name in LAWS:
        return LAWS[name]
    if name in STUDIES:
        raise OnecurveError(f"{name} predicts no curve ({STUDIES[name].about}); use it with onecurve fit")
    raise unknown(name, LAWS)


def unknown(name: str, known: Sequence[str] | dict[str, Any]) -> OnecurveError:
    """What to say of a law that there is not."""
    return OnecurveError(f"there is no law {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}")


def load(path: Path) -> Law:
    """Read a law that `Law.to_dict` wrote. Raises OnecurveError naming the file and what is wrong with it."""
    try:
        content = json.loads(path.read_text(), parse_constant=float)
    except OSError as error:
        raise OnecurveError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise OnecurveError(f"{path}: not the JSON of a law ({error}); fit the law again") from None
    if not isinstance(content, dict) or not isinstance(content.get("law"), str):
        raise OnecurveError(f"{path}: does not say which law it holds; write it with onecurve fit LAW DATA -o FILE")
    try:
        return named(content["law"]).from_dict(content, "its law")
    except OnecurveError as error:
        raise OnecurveError(f"{path}: {error}") from None
