"""A run that watches itself: three lines in a plain loop, a callback for the Hugging Face Trainer, one for Lightning.

Rank 0 judges and tells the others, so that all of them stop after the same step. An alarm is logged; what else happens
is ``on_alarm``: nothing, a checkpoint, or a checkpoint and the end of training.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch.distributed as dist

from onecurve.errors import OnecurveError, optional
from onecurve.logs import read
from onecurve.run import Run
from onecurve.watch.monitor import LIMIT, Event, Plan, start, step
from onecurve.watch.reference import Reference
from onecurve.watch.watcher import reference_from

LOG = logging.getLogger("onecurve.watch")
OnAlarm = Literal["log", "checkpoint", "stop"]
LEVELS = {"notice": logging.INFO, "warning": logging.WARNING, "alarm": logging.ERROR}


class Watch:
    """A run held against a reference as it trains.

    Call it with x (in the reference's unit, tokens as a rule) and the loss, on every rank; it answers whether to stop.
    ``reference`` is what ``onecurve collapse -o`` wrote, a folder of finished smaller runs, or a `Reference`.
    ``horizon`` is the planned end. ``tell`` is called with every event, on rank 0. Where Weights & Biases has a run
    going, its alert is raised too.

    Examples:
        >>> watch = Watch("reference.json", n_params=3e8, horizon=6e9, on_alarm="stop")  # doctest: +SKIP
        >>> for batch in data:                                                           # doctest: +SKIP
        ...     loss = train_step(batch)
        ...     if watch(tokens, loss.item()):
        ...         break
    """

    def __init__(
        self,
        reference: Reference | str | Path,
        n_params: float,
        horizon: float,
        *,
        on_alarm: OnAlarm = "log",
        limit: float = LIMIT,
        tell: Callable[[Event], None] | None = None,
    ) -> None:
        if on_alarm not in get_args(OnAlarm):
            raise OnecurveError(f"on_alarm is {on_alarm!r}; accepted are {', '.join(get_args(OnAlarm))}")
        if not isinstance(reference, Reference):
            reference = reference_from([str(reference)], _runs, None)
        self.plan = Plan.of(reference, n_params, horizon, limit)
        self.state = start(self.plan)
        self.events: list[Event] = []
        self.on_alarm, self.tell = on_alarm, tell
        self.checkpoint = False
        """Whether the last point asks for a checkpoint."""

    def __call__(self, x: float, loss: float) -> bool:
        """Judge one point; whether to stop training after it."""
        alarm = False
        if _rank() == 0:
            self.state, new = step(self.plan, self.state, float(x), float(loss))
            for event in new:
                LOG.log(LEVELS[event.severity], "%s", event.text)
                _wandb(event)
                if self.tell is not None:
                    self.tell(event)
            self.events += new
            alarm = any(event.severity == "alarm" for event in new)
        alarm = _agreed(alarm)
        self.checkpoint = alarm and self.on_alarm != "log"
        return alarm and self.on_alarm == "stop"


def hugging_face_watch(watch: Watch, tokens_per_step: float | None = None) -> Any:
    """`Watch` as a callback for the Hugging Face Trainer: judges the training loss whenever it is logged.

    x is what the trainer counts as input tokens (``include_num_input_tokens_seen``), or steps times
    ``tokens_per_step``.
    """
    base: Any = optional("transformers", "callbacks for the Trainer", "huggingface").TrainerCallback

    class HuggingFaceWatch(base):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
            if logs is None or "loss" not in logs:
                return
            x = state.global_step * tokens_per_step if tokens_per_step else state.num_input_tokens_seen
            if not x:
                raise OnecurveError(
                    "the trainer counts no tokens; set include_num_input_tokens_seen, or give tokens_per_step"
                )
            stop = watch(float(x), logs["loss"])
            control.should_save = control.should_save or watch.checkpoint
            control.should_training_stop = control.should_training_stop or stop

    return HuggingFaceWatch()


def lightning_watch(
    watch: Watch, tokens_per_step: float, metric: str = "train_loss", checkpoint: str | None = None
) -> Any:
    """`Watch` as a callback for Lightning: judges a logged metric after every batch.

    ``checkpoint`` is the file that is written where the alarm asks for one.
    """
    try:
        base: Any = optional("lightning.pytorch", "callbacks for Lightning", "loggers").Callback
    except OnecurveError:
        base = optional("pytorch_lightning", "callbacks for Lightning", "loggers").Callback

    class LightningWatch(base):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            value = trainer.callback_metrics.get(metric)
            if value is None:
                known = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
                raise OnecurveError(f"no metric {metric!r} is logged; logged is {known}: name one with metric=")
            stop = watch(trainer.global_step * tokens_per_step, float(value))
            if watch.checkpoint and checkpoint is not None:
                trainer.save_checkpoint(checkpoint)
            trainer.should_stop = trainer.should_stop or stop

    return LightningWatch()


def _runs(paths: Sequence[str]) -> list[Run]:
    return read(paths).runs


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _agreed(alarm: bool) -> bool:
    """What rank 0 says."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return alarm
    box = [alarm]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _wandb(event: Event) -> None:
    """An alert in the run that Weights & Biases has going, if it is in use at all."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None and event.severity != "notice":
        run.alert(
            title=f"onecurve: {event.kind}", text=event.text, level="ERROR" if event.severity == "alarm" else "WARN"
        )
