"""Train all rungs of a recipe on the cores at hand, with one progress display; go on where a stopped call left off."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from onecurve.errors import OnecurveError
from onecurve.train.loop import train_rung
from onecurve.train.recipe import Recipe, Rung, rungs

Progress = Callable[[list[tuple[Rung, int]]], None]
"""Told each rung with its steps done, a few times a second."""


class Stopped(Exception):  # noqa: N818  (not an error: what was asked for)
    """Training was interrupted; what was done is saved, and the same call goes on from there."""


def train_ladder(recipe: Recipe, out: Path, progress: Progress, workers: int | None = None) -> None:
    """Train every rung of a recipe into run directories under ``out``.

    Rungs run side by side, one core each (the longest first), on ``workers`` processes: by default as many as there
    are cores or rungs; with 1, in this process. Ctrl-C and SIGTERM save the state and raise `Stopped`.
    """
    todo = sorted(rungs(recipe), key=lambda r: -r.work)
    if workers is None:
        workers = min(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, len(todo)
        )
    stop = threading.Event()
    with _stop_on_signals(stop):
        if workers == 1:
            finished = _train_here(todo, out, progress, stop)
        else:
            finished = _train_apart(todo, out, progress, workers, stop)
    if not finished:
        raise Stopped


def _train_here(todo: list[Rung], out: Path, progress: Progress, stop: threading.Event) -> bool:
    done = {rung.name: 0 for rung in todo}

    def tell(rung: Rung, step: int) -> None:
        done[rung.name] = step
        progress([(r, done[r.name]) for r in todo])

    return all(train_rung(rung, out, lambda step, r=rung: tell(r, step), stop.is_set) for rung in todo)


def _train_apart(todo: list[Rung], out: Path, progress: Progress, workers: int, stop: threading.Event) -> bool:
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    halt = context.Event()
    waiting = list(todo)
    running: dict[str, Any] = {}
    done = {rung.name: 0 for rung in todo}
    ended: dict[str, bool] = {}
    failure: OnecurveError | None = None
    while waiting or running:
        if stop.is_set() or failure is not None:
            halt.set()
            waiting.clear()
        while waiting and len(running) < workers:
            rung = waiting.pop(0)
            process = context.Process(target=_work, args=(rung, out, messages, halt), daemon=True)
            process.start()
            running[rung.name] = process
        try:
            name, what, value = messages.get(timeout=0.2)
            if what == "step":
                done[name] = value
            elif what == "end":
                ended[name] = value
            else:
                failure = OnecurveError(value)
        except queue.Empty:
            pass
        for name, process in list(running.items()):
            if not process.is_alive() and messages.empty():
                process.join()
                del running[name]
                if name not in ended and failure is None:
                    failure = OnecurveError(
                        f"the process that trained {name} ended with code {process.exitcode}; nothing is lost but the "
                        "steps since its last checkpoint: run the same command again (out of memory?)"
                    )
        progress([(rung, done[rung.name]) for rung in todo])
    if failure is not None:
        raise failure
    return len(ended) == len(todo) and all(ended.values())


def _work(rung: Rung, out: Path, messages: Any, halt: Any) -> None:
    """Train one rung in a process of its own."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.set_num_threads(1)
    try:
        finished = train_rung(rung, out, lambda step: messages.put((rung.name, "step", step)), halt.is_set)
        messages.put((rung.name, "end", finished))
    except OnecurveError as error:
        messages.put((rung.name, "error", str(error)))
    except OSError as error:
        messages.put((rung.name, "error", f"{out}: {error.strerror or error}; free some space and run again"))


@contextmanager
def _stop_on_signals(stop: threading.Event):
    """Turn Ctrl-C and SIGTERM into a wish to stop, while inside."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def wish(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt  # a second Ctrl-C does not wait
        stop.set()

    before = {s: signal.signal(s, wish) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def share_done(state: list[tuple[Rung, int]]) -> float:
    """Share of all work that is done, in [0, 1], each rung counted by its cost."""
    return sum(r.work * step / r.steps for r, step in state) / sum(r.work for r, _ in state)
