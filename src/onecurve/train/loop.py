"""The training loop, and one job run in it: from its checkpoint into its run directories.

The loop knows nothing of models: it asks a program for an update, an evaluation, a state to keep.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onecurve.data.shards import open_shards
from onecurve.errors import OnecurveError
from onecurve.plan.recipe import Job, TokenTask
from onecurve.plan.shape import transformer_shape
from onecurve.run import LossKind, human
from onecurve.schedule import Schedule
from onecurve.store import RunWriter
from onecurve.train import checkpoint
from onecurve.train.devices import World, peak_flops
from onecurve.train.program import HELD_OUT, TRAINING, LanguageModel, Make, Program, make_program
from onecurve.train.tokens import TokenStream

SAVE_EVERY = 20.0
"""Least seconds between checkpoints."""
SAVE_SHARE = 0.01
"""Largest share of the time that goes into checkpoints, where one takes long."""
TELL_EVERY = 0.25
"""Seconds between reports of progress, which is also how often a wish to stop is looked at."""

CURVES: Mapping[str, LossKind] = {HELD_OUT: "held-out", TRAINING: "training"}


class Failed(OnecurveError):  # noqa: N818  (an outcome that a ladder collects)
    """One job cannot go on, and says why; the others of its ladder can."""


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
    on_point: Callable[[int, list[dict[str, float]]], None],
    after_step: Callable[[int], bool],
) -> int:
    """Run steps ``start`` to ``steps``; the number of steps done.

    ``on_point(step, values)`` gets what is logged, one dict a model, after each step that is logged.
    ``after_step(step)`` is called after every step and ends the loop by returning False. A program in trouble ends it
    before the step counts.
    """
    due = set(evaluate_after)
    multipliers = schedule(np.arange(start, steps) / steps)
    for step, multiplier in enumerate(multipliers.tolist(), start=start + 1):
        record = program.update(step - 1, multiplier)
        stuck = program.trouble() is not None
        if step in due and not stuck:
            record = program.evaluate() | record
        if step in due or program.each_step:
            columns = {name: value.tolist() for name, value in record.items()}
            on_point(step, [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
        if stuck:
            return step - 1
        if not after_step(step):
            return step
    return steps


def run_job(
    job: Job,
    out: Path,
    progress: Callable[[int], None],
    stopped: Callable[[], bool],
    world: World | None = None,
    make: Make = make_program,
) -> bool:
    """Train one job into run directories under ``out``, from its checkpoint if there is one; whether it is finished.

    ``progress`` is told the steps done, a few times a second; ``stopped`` is asked as often, and when it answers True
    the state is saved and the job is left for a later call. ``make`` builds what is trained. A checkpoint of another
    recipe is refused. Raises `Failed` where the job cannot go on, with its state saved.
    """
    world = world or World()
    with alone(out, job) if world.first else nullcontext():
        return _run_alone(job, out, progress, stopped, world, make)


@contextmanager
def alone(out: Path, job: Job) -> Generator[None]:
    """Hold the lock of a job, which the system gives back when the process ends, however it ends."""
    file = out / "checkpoints" / f".{job.name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OnecurveError(
                f"{out}: another process is training {job.name} there; wait for it, stop it, or choose another folder"
            ) from None
        yield


def _run_alone(
    job: Job, out: Path, progress: Callable[[int], None], stopped: Callable[[], bool], world: World, make: Make
) -> bool:
    folder = out / "checkpoints" / job.name
    stream, identity = _data(job)
    start = checkpoint.latest(folder) or 0
    if start:
        checkpoint.check_identity(folder, start, identity)
    if start == job.steps:
        progress(start)
        return True
    program = make(job, stream, world)
    if start:
        checkpoint.load(folder, start, program.state(), world)
        program.restored(start)
    log = _Log(job, out, program, identity["data"]) if world.first else None
    if log is not None:
        log.begin(start, world, program)
    clock = _Clock()

    def save(step: int) -> None:
        began = time.monotonic()
        if log is not None:
            log.flush()
        checkpoint.save(folder, step, program.state(), identity, world)
        clock.saved(time.monotonic() - began)

    def on_point(step: int, values: list[dict[str, float]]) -> None:
        if log is not None:
            log.point(step, values)

    def after_step(step: int) -> bool:
        said = 0
        if world.first and clock.time_to_tell():
            progress(step)
            said = 2 if stopped() else 1 if clock.time_to_save() else 0
        said = world.agree(said)
        if said == 1:
            save(step)
        return said < 2

    done = train(
        program,
        start=start,
        steps=job.steps,
        schedule=job.schedule,
        evaluate_after=evaluation_steps(job.steps, job.recipe.evaluation.points),
        on_point=on_point,
        after_step=after_step,
    )
    if done:
        save(done)
    trouble = program.trouble()
    finished = done == job.steps
    if log is not None:
        log.end("failed" if trouble else "finish" if finished else "stop", done, trouble, world)
    progress(done)
    if trouble:
        raise Failed(
            f"{job.name}: {trouble}; stopped with the state after step {done} saved in {folder}. Lower the learning "
            "rate or clip the gradient in the recipe, and train into another folder"
        )
    return finished


def _data(job: Job) -> tuple[TokenStream | None, dict[str, Any]]:
    """The job's token stream, if it has one, and what a checkpoint must agree on."""
    task, model = job.recipe.task, job.recipe.model
    if not isinstance(task, TokenTask):
        return None, job.identity() | {"data": "fourier"}
    assert model.kind == "transformer" and task.data is not None
    stream = TokenStream(open_shards(Path(task.data), model.vocabulary), model.context)
    return stream, job.identity() | {"data": stream.shards.identity}


class _Clock:
    """When to tell and when to save."""

    def __init__(self) -> None:
        self._told = self._saved = time.monotonic()
        self._pause = SAVE_EVERY

    def time_to_tell(self) -> bool:
        now = time.monotonic()
        if now - self._told < TELL_EVERY:
            return False
        self._told = now
        return True

    def time_to_save(self) -> bool:
        return time.monotonic() - self._saved > self._pause

    def saved(self, seconds: float) -> None:
        self._saved = time.monotonic()
        self._pause = max(SAVE_EVERY, seconds / SAVE_SHARE)


class _Log:
    """The run directories of a job's members."""

    def __init__(self, job: Job, out: Path, program: Program, data: str) -> None:
        self._job, self._x = job, program.x_name
        self._began = time.monotonic()
        self._start = 0
        self._writers = [
            RunWriter(
                out / m.folder / m.config.name,
                m.config.model_copy(update={"settings": m.config.settings | {"data": data}}),
                self._x,
                CURVES,
            )
            for m in job.members
        ]

    def begin(self, start: int, world: World, program: Program) -> None:
        self._start = start
        details: dict[str, Any] = {"processes": world.size, "device": str(world.device), "torch": torch.__version__}
        if world.device.type == "cpu":
            details["threads"] = torch.get_num_threads()
        if isinstance(program, LanguageModel):
            details |= {"micro_batch": program.micro_batch, "compile": program.compiled}
        for writer in self._writers:
            cut = writer.cut_back(start)
            writer.event("start" if start == 0 else "resume", step=start, points_cut=cut, **details)

    def point(self, step: int, values: list[dict[str, float]]) -> None:
        seconds = time.monotonic() - self._began
        for writer, value in zip(self._writers, values, strict=True):
            writer.append({"step": step, self._x: float(step * self._job.batch), **value}, seconds)

    def flush(self) -> None:
        """Make sure that no checkpoint is newer than the points on disk."""
        for writer in self._writers:
            writer.flush()

    def end(self, kind: str, step: int, trouble: str | None, world: World) -> None:
        seconds = time.monotonic() - self._began
        details: dict[str, Any] = {} if trouble is None else {"reason": trouble}
        if self._x == "tokens" and step > self._start:
            speed = (step - self._start) * self._job.batch / seconds
            peak = world.size * peak_flops(world.device, self._job.recipe.precision)
            details |= {"tokens_per_second": round(speed), "utilisation": round(utilisation(self._job, speed, peak), 4)}
        for writer in self._writers:
            writer.event(kind, step=step, **details)


def repeats(job: Job, stream: TokenStream) -> str | None:
    """A warning where a job sees its corpus more than once, or None."""
    epochs = stream.epochs(job.steps * job.batch)
    if epochs <= 1.0:
        return None
    corpus = human(stream.windows * stream.context)
    return (
        f"{job.name}: trains on {human(job.steps * job.batch)} tokens, {epochs:.2f} times the {corpus} of its corpus; "
        "repeated data bend a curve down while held-out loss stays behind"
    )


def threads(jobs: int) -> int:
    """CPU threads of each job of a ladder: a share of the cores that does not depend on what is already finished.

    Another number of threads sums in another order, so a resumed run must use as many as before.
    """
    return max(1, cores() // max(1, min(cores(), jobs)))


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def utilisation(job: Job, tokens_per_second: float, peak: float) -> float:
    """Model FLOP utilisation: 6 N + 12 L S d a token, over a peak in FLOP/s (arXiv 2204.02311, appendix B)."""
    assert job.recipe.model.kind == "transformer"
    return transformer_shape(job.recipe.model, job.size).flops_per_token * tokens_per_second / peak
