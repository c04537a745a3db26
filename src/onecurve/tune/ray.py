"""The stopping rule as a scheduler for Ray Tune."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecurve.errors import OnecurveError, optional
from onecurve.laws.law import Law
from onecurve.run import Run
from onecurve.tune.engine import Rule, Settings, Trial
from onecurve.tune.stop import RISK, TOLERANCE

if TYPE_CHECKING:
    from ray.tune.schedulers import FIFOScheduler
else:
    FIFOScheduler = optional("ray.tune.schedulers", "Ray Tune schedulers", "tune").FIFOScheduler


class CurveScheduler(FIFOScheduler):
    """Stops trials that cannot win, by where their curves will end (`onecurve.tune.stop`).

    ``metric`` is the loss that trials report, ``x_name`` the key of the tokens (or samples, or steps) that they have
    seen. What a trial reported before is read from its ``result.json`` when it is first met, so that a restored
    experiment goes on as it was: the scheduler has nothing to lose.
    """

    def __init__(
        self,
        reference: Law | Sequence[Run],
        settings: Settings,
        *,
        metric: str = "loss",
        x_name: str = "tokens",
        held_out: bool = True,
        tolerance: float = TOLERANCE,
        risk: float = RISK,
    ) -> None:
        super().__init__()
        self.rule = Rule(reference, settings, x_name=x_name, held_out=held_out, tolerance=tolerance, risk=risk)
        self.key = metric
        self.points: dict[str, dict[float, float]] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Takes the metric of `TuneConfig`, which must be minimised."""
        if mode == "max":
            raise OnecurveError("mode is 'max'; a loss is minimised: mode='min'")
        self.key = metric or self.key
        return True

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Whether the trial goes on."""
        for name in (self.key, self.rule.x_name):
            if name not in result:
                known = ", ".join(sorted(key for key in result if not key.startswith(("time_", "timestamp"))))
                raise OnecurveError(f"trial {trial.trial_id} reports no {name!r}; it reports {known}")
        self._points(trial)[float(result[self.rule.x_name])] = float(result[self.key])
        trials = [t for t in tune_controller.get_trials() if t.status != "ERROR"]
        if all(t is not trial for t in trials):
            trials.append(trial)
        row = self.rule.ask(
            trial.trial_id, [Trial(t.trial_id, t.config, self._points(t), t.status == "TERMINATED") for t in trials]
        )
        return self.STOP if row.verdict in ("stop", "failed") else self.CONTINUE

    def debug_string(self) -> str:
        """What Ray prints of the scheduler."""
        return f"CurveScheduler: nothing is stopped before x = {self.rule.earliest:.2f}"

    def save(self, checkpoint_path: str) -> None:
        """Nothing: trials keep their own results."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: trials keep their own results."""

    def _points(self, trial: Any) -> dict[float, float]:
        if trial.trial_id not in self.points:
            told: dict[float, float] = {}
            path = Path(trial.local_path or "") / "result.json"
            for line in path.read_text().splitlines() if trial.local_path and path.is_file() else ():
                try:
                    row = json.loads(line)
                    told[float(row[self.rule.x_name])] = float(row[self.key])
                except (ValueError, KeyError, TypeError):  # a torn last line, or a report of something else
                    continue
            self.points[trial.trial_id] = told
        return self.points[trial.trial_id]
