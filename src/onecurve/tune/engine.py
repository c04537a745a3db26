"""What the adapters to sweep engines share: trials as runs, the rule asked about one of them, and its answer logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from onecurve.errors import OnecurveError
from onecurve.laws.law import Law
from onecurve.laws.small_runs import SmallRuns
from onecurve.run import Curve, Run, RunConfig
from onecurve.tune.stop import RISK, TOLERANCE, Row, decide, earliest_safe
from onecurve.tune.sweep import sweep_of

LOG = logging.getLogger("onecurve.tune")
LOSS = "loss"
Settings = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a trial's parameters to what `RunConfig` records of a run, but for its name: n_params, horizon, batch_tokens,
learning_rate, weight_decay, schedule, and base_learning_rate where rates are scaled with width."""


@dataclass(frozen=True)
class Trial:
    """One trial as its engine stores it."""

    name: str
    parameters: Mapping[str, Any]
    points: Mapping[float, float]
    """Loss by what was reported as its step."""
    stopped: bool
    """Whether it will not go on, though it has not reached its horizon."""


class Rule:
    """The stopping rule for an engine's trials; every answer comes from the curves it is given, and from nothing else.

    ``reference`` is a law of shapes, or finished small runs. Steps are reported in the unit of ``x_name``, that of the
    reference: tokens, samples or steps. Losses are taken as they are if ``held_out``, else smoothed over 2 % of the
    run.
    """

    def __init__(
        self,
        reference: Law | Sequence[Run],
        settings: Settings,
        *,
        x_name: str = "tokens",
        held_out: bool = True,
        tolerance: float = TOLERANCE,
        risk: float = RISK,
    ) -> None:
        self.law = reference if isinstance(reference, Law) else SmallRuns.fit(reference)
        self.settings, self.x_name, self.held_out = settings, x_name, held_out
        self.tolerance, self.risk = tolerance, risk
        self.told: set[str] = set()
        """What was remarked on already."""
        self.earliest, self.earliest_from = earliest_safe(self.law, tolerance, risk)

    def ask(self, name: str, trials: Iterable[Trial]) -> Row:
        """What the rule says of one trial among all; logged with its reason, whatever it is.

        Raises OnecurveError where ``settings`` lack what the rule needs.
        """
        kept = [trial for trial in trials if trial.points or trial.name == name]  # one that waits says nothing
        sweep = sweep_of([self._run(trial) for trial in kept], LOSS)
        stopped = [trial.name for trial in kept if trial.stopped]
        found = decide(sweep, self.law, self.tolerance, self.risk, self.earliest, stopped)
        row = next(row for row in found.rows if row.run == name)
        LOG.info("%s at x = %.2f: %s (%s)", row.run, row.fraction, row.verdict, row.why)
        for note in found.notes:
            kind = note[:20]
            if kind not in self.told:  # once, not at every report of every trial
                self.told.add(kind)
                LOG.warning("%s", note)
        return row

    def _run(self, trial: Trial) -> Run:
        try:
            config = RunConfig(name=trial.name, **self.settings(trial.parameters))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise OnecurveError(
                f"{trial.name}: its setting {field} is {first['input']!r}: {first['msg'].lower()}"
            ) from None
        x = np.array(sorted(trial.points), dtype=np.float64)
        loss = np.array([trial.points[at] for at in sorted(trial.points)], dtype=np.float64)
        curves = {LOSS: Curve(x, loss, "held-out" if self.held_out else "training")} if x.size else {}
        return Run(config, curves, self.x_name)
