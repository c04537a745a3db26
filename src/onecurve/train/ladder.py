"""Train all jobs of a recipe on the cores at hand, with one progress display; go on where a stopped call left off."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from onecurve.data.shards import open_shards, write_shards
from onecurve.data.sources import as_bytes, standard_library
from onecurve.errors import OnecurveError
from onecurve.plan.recipe import Job, Recipe, TokenTask, dump_recipe, jobs, resolve
from onecurve.store import write_atomic
from onecurve.train.devices import Parallel, World, device, world
from onecurve.train.loop import Failed, cores, repeats, run_job, threads
from onecurve.train.program import Make, make_program
from onecurve.train.tokens import TokenStream

Progress = Callable[[list[tuple[Job, int]]], None]
"""Told each job with its steps done, a few times a second."""


class Stopped(Exception):  # noqa: N818  (not an error: what was asked for)
    """Training was interrupted; what was done is saved, and the same call goes on from there."""

    def __init__(self, number: int) -> None:
        self.signal = number
        super().__init__(f"stopped by {signal.Signals(number).name}")


def train_ladder(
    recipe: Recipe,
    out: Path,
    progress: Progress,
    workers: int | None = None,
    make: Make = make_program,
    on: str | None = None,
) -> None:
    """Train every job of a recipe into run directories under ``out``.

    Jobs run side by side (the longest first) on ``workers`` processes: by default as many as there are cores or jobs;
    with 1, or for transformers on a GPU, one after the other in this process. ``on="ray"`` makes every job a task of a
    Ray cluster that sees ``out``. ``out/ladder.toml`` is the resolved recipe. Ctrl-C, SIGTERM and SIGUSR1 save the
    state and raise `Stopped`. A job that cannot go on does not stop the others; `Failed` names it at the end.
    """
    recipe = with_data(recipe, out)
    write_atomic(out / "ladder.toml", dump_recipe(resolve(recipe)))
    todo = sorted(jobs(recipe), key=lambda job: -job.work)
    if workers is None:
        on_gpu = isinstance(recipe.task, TokenTask) and torch.cuda.is_available()
        workers = 1 if on_gpu else min(cores(), len(todo))
    with stop_on_signals() as wish:
        if on == "ray":
            from onecurve.train.cluster import train_on_ray

            done = train_on_ray(todo, out, progress, wish, make)
        elif workers == 1:
            done = _train_here(todo, out, progress, wish, make, World(device=device()))
        else:
            done = _train_apart(todo, out, progress, workers, wish, make)
    done.check(wish)


def train_together(
    recipe: Recipe, out: Path, progress: Progress, name: str | None, parallel: Parallel | None, make: Make
) -> None:
    """Train all jobs of a recipe, or one by name, each on all processes that torchrun started, or on this one."""
    with world(parallel) as here:
        try:
            if here.first:
                recipe = with_data(recipe, out)
                write_atomic(out / "ladder.toml", dump_recipe(resolve(recipe)))
            here.barrier()
            recipe = with_data(recipe, out)
            todo = [job for job in jobs(recipe) if name in (None, job.name)]
            with stop_on_signals() as wish:
                done = _train_here(todo, out, progress if here.first else lambda state: None, wish, make, here)
            done.check(wish)
        except OnecurveError:
            if here.first:
                raise
            raise SystemExit(2) from None  # the first process says it for all


def with_data(recipe: Recipe, out: Path) -> Recipe:
    """The recipe with its corpus: the standard library's sources, prepared under ``out``, where it names none."""
    if not isinstance(recipe.task, TokenTask) or recipe.task.data is not None:
        return recipe
    folder = out / "data"
    if not folder.exists():
        source, documents = standard_library()
        write_shards(folder, as_bytes(documents), source, vocabulary=256)
    return recipe.model_copy(update={"task": recipe.task.model_copy(update={"data": str(folder.resolve())})})


def warnings_of(recipe: Recipe) -> list[str]:
    """What the user should know before training: jobs that see their corpus more than once."""
    if not isinstance(recipe.task, TokenTask) or recipe.task.data is None or recipe.model.kind != "transformer":
        return []
    stream = TokenStream(open_shards(Path(recipe.task.data)), recipe.model.context)
    return [words for job in jobs(recipe) if (words := repeats(job, stream)) is not None]


@dataclass
class Done:
    """How the jobs of a ladder ended."""

    unfinished: int = 0
    failures: list[str] = field(default_factory=list)

    def check(self, wish: Wish) -> None:
        """Raise `Failed` or `Stopped` where not all is done."""
        if self.failures:
            raise Failed("\n".join(self.failures))
        if self.unfinished:
            raise Stopped(wish.number)


class Wish:
    """A wish to stop, and the signal that brought it."""

    def __init__(self) -> None:
        self.number = int(signal.SIGINT)
        self._event = threading.Event()

    def is_set(self) -> bool:
        """Whether there is one."""
        return self._event.is_set()

    def set(self, number: int) -> None:
        """Wish to stop."""
        self.number = number
        self._event.set()


def _train_here(todo: list[Job], out: Path, progress: Progress, wish: Wish, make: Make, here: World) -> Done:
    steps = {job.name: 0 for job in todo}
    done = Done()

    def tell(job: Job, step: int) -> None:
        steps[job.name] = step
        progress([(j, steps[j.name]) for j in todo])

    before = torch.get_num_threads()
    if here.size == 1:
        torch.set_num_threads(threads(len(todo)))
    try:
        for job in todo:
            try:
                if not run_job(job, out, lambda step, job=job: tell(job, step), wish.is_set, here, make):
                    done.unfinished += 1
            except Failed as error:
                done.failures.append(str(error))
    finally:
        torch.set_num_threads(before)
    return done


def _train_apart(todo: list[Job], out: Path, progress: Progress, workers: int, wish: Wish, make: Make) -> Done:
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    halt = context.Event()
    waiting = list(todo)
    running: dict[str, Any] = {}
    steps = {job.name: 0 for job in todo}
    ended: dict[str, bool] = {}
    done = Done()
    fault: OnecurveError | None = None
    while waiting or running:
        if wish.is_set() or fault is not None:
            halt.set()
            waiting.clear()
        while waiting and len(running) < workers:
            job = waiting.pop(0)
            arguments = (job, out, messages, halt, threads(len(todo)), make)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            running[job.name] = process
        try:
            name, what, value = messages.get(timeout=0.2)
            if what == "step":
                steps[name] = value
            elif what == "end":
                ended[name] = value
            elif what == "failed":
                ended[name] = True
                done.failures.append(value)
            else:
                fault = OnecurveError(value)
        except queue.Empty:
            pass
        for name, process in list(running.items()):
            if not process.is_alive() and messages.empty():
                process.join()
                del running[name]
                if name not in ended and fault is None:
                    fault = OnecurveError(
                        f"the process that trained {name} ended with code {process.exitcode}; nothing is lost but the "
                        "steps since its last checkpoint: run the same command again (out of memory?)"
                    )
        progress([(job, steps[job.name]) for job in todo])
    if fault is not None:
        raise fault
    done.unfinished = len(todo) - sum(ended.values())
    return done


def _work(job: Job, out: Path, messages: Any, halt: Any, cpu_threads: int, make: Make) -> None:
    """Train one job in a process of its own."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop
    torch.set_num_threads(cpu_threads)
    parent = os.getppid()

    def stopped() -> bool:
        # A parent that was killed can no longer ask; another may be started in its place.
        return os.getppid() != parent or halt.is_set()

    try:
        tell = lambda step: messages.put((job.name, "step", step))  # noqa: E731
        finished = run_job(job, out, tell, stopped, make=make)
        messages.put((job.name, "end", finished))
    except Failed as error:
        messages.put((job.name, "failed", str(error)))
    except OnecurveError as error:
        messages.put((job.name, "error", str(error)))
    except OSError as error:
        messages.put((job.name, "error", f"{out}: {error.strerror or error}; free some space and run again"))


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def stop_on_signals() -> Generator[Wish]:
    """Turn Ctrl-C, SIGTERM and SIGUSR1 into a wish to stop, while inside."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if wish.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait
        wish.set(number)

    before = {s: signal.signal(s, ask) for s in _SIGNALS}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def share_done(state: list[tuple[Job, int]]) -> float:
    """Share of all work that is done, in [0, 1], each job counted by its cost."""
    return sum(job.work * step / job.steps for job, step in state) / sum(job.work for job, _ in state)
