"""The stopping rule as a pruner for Optuna."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onecurve.errors import optional
from onecurve.laws.law import Law
from onecurve.run import Run
from onecurve.tune.engine import Rule, Settings, Trial
from onecurve.tune.stop import RISK, TOLERANCE

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial
else:
    BasePruner = optional("optuna.pruners", "Optuna pruners", "tune").BasePruner


class CurvePruner(BasePruner):
    """Prunes trials that cannot win, by where their curves will end (`onecurve.tune.stop`).

    Every decision comes from the losses in the study's storage, so it is the same in every process and after a resume.
    A failed trial is left out. Report the loss against tokens (or what ``x_name`` says), the last one at the horizon.

    Examples:
        >>> def settings(parameters):  # what the trial trains with, whatever it varies
        ...     return {"n_params": 1e6, "horizon": 2e7, "batch_tokens": 1e4, "learning_rate": 0.01,
        ...             "weight_decay": parameters["weight_decay"]}
        >>> study = optuna.create_study(pruner=CurvePruner(small_runs, settings))  # doctest: +SKIP
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
        self.rule = Rule(reference, settings, x_name=x_name, held_out=held_out, tolerance=tolerance, risk=risk)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to stop the trial now."""
        from optuna.trial import TrialState

        if not trial.intermediate_values:
            return False
        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        others = study.get_trials(deepcopy=False, states=(TrialState.RUNNING, *ended))
        # The trial that asks may know more of itself than what was stored when the list was made.
        trials = [trial, *(other for other in others if other.number != trial.number)]
        row = self.rule.ask(_name(trial), [_as_trial(t, t.state in ended) for t in trials])
        return row.verdict in ("stop", "failed")


def _name(trial: FrozenTrial) -> str:
    return f"trial {trial.number}"


def _as_trial(trial: FrozenTrial, over: bool) -> Trial:
    points: dict[float, Any] = {float(step): value for step, value in trial.intermediate_values.items()}
    return Trial(_name(trial), trial.params, points, over)
