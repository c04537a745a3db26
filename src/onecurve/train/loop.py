"""The training loop, and the batched program of one rung of a ladder that runs in it.

The loop knows nothing of models: it asks for an update, an evaluation, a state to keep. What the loss is, where
batches come from and what happens to gradients are arguments of the program.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from onecurve.errors import OnecurveError
from onecurve.schedule import Schedule
from onecurve.store import RunWriter, write_atomic
from onecurve.train import mlp
from onecurve.train.fourier import FourierStream
from onecurve.train.optimiser import BatchedAdamW
from onecurve.train.parameterisation import factors
from onecurve.train.recipe import Rung

SAVE_EVERY = 20.0
"""Seconds between checkpoints."""
TELL_EVERY = 0.25
"""Seconds between reports of progress, which is also how often a wish to stop is looked at."""
_EVALUATION_ROWS = 512  # keeps the activations of all models in the cache

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs (R, B), targets (R, B)) -> one loss a model and sample, (R, B)."""


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the squared error."""
    return 0.5 * (outputs - targets).square()


class Program(Protocol):
    """What the loop trains."""

    def update(self, step: int, multiplier: float) -> Tensor:
        """One optimiser step (from 0) at ``multiplier`` times the peak rates; the training loss of each model."""
        ...

    def evaluate(self) -> Tensor:
        """The held-out loss of each model."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that later steps depend on."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state again."""
        ...


class BatchedMLPs:
    """The models of one rung, trained as one batched program on streams of their own seeds."""

    def __init__(self, rung: Rung, stream: FourierStream, loss: Loss = half_square) -> None:
        recipe, members = rung.recipe, rung.members
        o, ratio = recipe.optimiser, rung.width / recipe.ladder.base_width
        self._loss = loss
        self._stream = stream
        self._batch = o.batch
        self._data_seeds = sorted({m.seed_data for m in members})
        self._of_seed = torch.tensor([self._data_seeds.index(m.seed_data) for m in members])
        self._test = stream.test_set(recipe.evaluation.samples)
        self.weights = mlp.initial(recipe.model, rung.width, [m.seed_init for m in members])
        for weight in self.weights.values():
            weight.requires_grad_(True)
        tables = {name: [factors(role, m.parameterisation, ratio) for m in members] for name, role in mlp.ROLES.items()}
        self.optimiser = BatchedAdamW(
            self.weights,
            {name: [o.learning_rate * f.learning_rate for f in table] for name, table in tables.items()},
            {name: [o.weight_decay * f.weight_decay for f in table] for name, table in tables.items()},
            o.betas,
            o.eps,
        )

    def update(self, step: int, multiplier: float) -> Tensor:  # noqa: D102  (as `Program` says)
        batches = [self._stream.batch(seed, step, self._batch) for seed in self._data_seeds]
        x = torch.stack([x for x, _ in batches])[self._of_seed]
        y = torch.stack([y for _, y in batches])[self._of_seed]
        losses = self._loss(mlp.forward(self.weights, x), y).mean(dim=1)
        gradients = torch.autograd.grad(losses.sum(), list(self.weights.values()))
        self.optimiser.step(dict(zip(self.weights, gradients, strict=True)), step + 1, multiplier)
        return losses.detach()

    @torch.no_grad()
    def evaluate(self) -> Tensor:  # noqa: D102
        models = len(self._of_seed)
        total = torch.zeros(models, dtype=torch.float64)
        for x, y in zip(*(part.split(_EVALUATION_ROWS) for part in self._test), strict=True):
            outputs = mlp.forward(self.weights, x.expand(models, -1, -1))
            total += self._loss(outputs, y).sum(dim=1, dtype=torch.float64)
        return total / len(self._test[1])

    def state(self) -> dict[str, Any]:  # noqa: D102
        return {"weights": self.weights, "first": self.optimiser.first, "second": self.optimiser.second}

    def load(self, state: dict[str, Any]) -> None:  # noqa: D102
        for mine, saved in zip(self.state().values(), state.values(), strict=True):
            for name, tensor in mine.items():
                tensor.data.copy_(saved[name])


def evaluation_steps(steps: int, points: int) -> list[int]:
    """Steps after which to evaluate: half evenly spaced, half log-spaced from a hundredth of the run; ends at the last.

    Examples:
        >>> evaluation_steps(1000, 8)
        [10, 46, 215, 250, 500, 750, 1000]
    """
    half = points // 2
    even = np.maximum(np.linspace(0, steps, half + 1)[1:], 1.0)
    geometric = np.geomspace(max(1.0, steps / 100.0), steps, points - half)
    return np.unique(np.concatenate([even, geometric]).round().astype(int)).tolist()


def train(
    program: Program,
    *,
    start: int,
    steps: int,
    schedule: Schedule,
    evaluate_after: Sequence[int],
    on_evaluation: Callable[[int, Tensor, Tensor], None],
    after_step: Callable[[int], bool],
) -> int:
    """Run steps ``start`` to ``steps``; the number of steps done.

    ``on_evaluation(step, held_out, training)`` gets the losses (R,) after each step in ``evaluate_after``.
    ``after_step(step)`` is called after every step and ends the loop by returning False.
    """
    due = set(evaluate_after)
    multipliers = schedule(np.arange(start, steps) / steps)
    for step, multiplier in enumerate(multipliers.tolist(), start=start + 1):
        losses = program.update(step - 1, multiplier)
        if step in due:
            on_evaluation(step, program.evaluate(), losses)
        if not after_step(step):
            return step
    return steps


HELD_OUT, TRAINING = "test_loss", "train_loss"


def train_rung(rung: Rung, out: Path, progress: Callable[[int], None], stopped: Callable[[], bool]) -> bool:
    """Train one rung into run directories under ``out``, from its checkpoint if there is one; whether it is finished.

    ``progress`` is told the steps done, a few times a second; ``stopped`` is asked as often, and when it answers True
    the state is saved and the rung is left for a later call. A checkpoint of another recipe is refused.
    """
    checkpoint = out / "checkpoints" / f"{rung.name}.pt"
    identity = rung.recipe.model_dump_json()
    saved = _read_checkpoint(checkpoint, identity)
    start = 0 if saved is None else int(saved["step"])
    curves = {HELD_OUT: "held-out", TRAINING: "training"}
    if start == rung.steps:
        progress(start)
        return True
    writers = [
        RunWriter(out / m.folder / m.config.name, m.config, "samples", curves)  # pyright: ignore[reportArgumentType]
        for m in rung.members
    ]
    program = BatchedMLPs(rung, FourierStream(rung.recipe.task))
    if saved is not None:
        program.load(saved["program"])
    for writer in writers:
        cut = writer.cut_back(start)
        writer.event("start" if start == 0 else "resume", step=start, points_cut=cut)
    batch = rung.recipe.optimiser.batch
    began = time.monotonic()
    last_told = last_saved = began

    def save(step: int) -> None:
        buffer = io.BytesIO()
        torch.save({"identity": identity, "step": step, "program": program.state()}, buffer)
        write_atomic(checkpoint, buffer.getvalue())

    def on_evaluation(step: int, held_out: Tensor, training: Tensor) -> None:
        for writer, test, train_loss in zip(writers, held_out.tolist(), training.tolist(), strict=True):
            point = {"step": step, "samples": float(step * batch), HELD_OUT: test, TRAINING: train_loss}
            writer.append(point, time.monotonic() - began)

    def after_step(step: int) -> bool:
        nonlocal last_told, last_saved
        now = time.monotonic()
        if now - last_told < TELL_EVERY:
            return True
        last_told = now
        progress(step)
        if now - last_saved > SAVE_EVERY:
            save(step)
            last_saved = now
        return not stopped()

    done = train(
        program,
        start=start,
        steps=rung.steps,
        schedule=rung.recipe.schedule,
        evaluate_after=evaluation_steps(rung.steps, rung.recipe.evaluation.points),
        on_evaluation=on_evaluation,
        after_step=after_step,
    )
    save(done)
    finished = done == rung.steps
    for writer in writers:
        writer.event("finish" if finished else "stop", step=done)
    progress(done)
    return finished


def _read_checkpoint(path: Path, identity: str) -> dict[str, Any] | None:
    if not path.exists():
        return None
    saved = torch.load(path, weights_only=True)
    if saved["identity"] != identity:
        raise OnecurveError(
            f"{path}: this checkpoint belongs to another recipe; train into another folder, or delete this one"
        )
    return saved
