"""A ladder on a Ray cluster: every job a task with its resources, the progress and the wish to stop on one actor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onecurve.errors import OnecurveError, optional
from onecurve.plan.recipe import Job
from onecurve.train.ladder import Done, Progress, Wish
from onecurve.train.loop import Failed, run_job, threads
from onecurve.train.program import Make


class _Board:
    """Where the tasks of a ladder say how far they are, and read whether to stop."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.halted = False

    def tell(self, name: str, step: int) -> bool:
        self.steps[name] = step
        return self.halted

    def read(self) -> dict[str, int]:
        return self.steps

    def halt(self) -> None:
        self.halted = True


def train_on_ray(todo: list[Job], out: Path, progress: Progress, wish: Wish, make: Make) -> Done:
    """Train jobs as tasks of the cluster at RAY_ADDRESS, of one that runs here, or of one that is started for it.

    Every node must see ``out`` and the corpus under the same path. A task takes one GPU where the cluster has any, else
    as many CPUs as the job would have threads here.
    """
    ray = optional("ray", "ladders on a cluster (--on ray)", "ray")
    mine = not ray.is_initialized()
    if mine:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        return _run(ray, todo, out.resolve(), progress, wish, make)
    finally:
        if mine:
            ray.shutdown()


def _run(ray: Any, todo: list[Job], out: Path, progress: Progress, wish: Wish, make: Make) -> Done:
    board = ray.remote(num_cpus=0)(_Board).remote()
    gpus = ray.cluster_resources().get("GPU", 0) > 0
    cpus = threads(len(todo))
    task = ray.remote(num_cpus=cpus, num_gpus=1 if gpus else 0, max_retries=2)(_work)
    waiting = {task.remote(job, out, board, cpus, make): job for job in todo}
    done = Done()
    while waiting:
        ready, _ = ray.wait(list(waiting), timeout=0.5)
        if wish.is_set():
            ray.get(board.halt.remote())
        for reference in ready:
            job = waiting.pop(reference)
            try:
                finished, failure = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, OnecurveError):
                    raise OnecurveError(str(error.cause)) from None
                raise
            except ray.exceptions.RayError as error:
                raise OnecurveError(
                    f"the task that trained {job.name} was lost ({type(error).__name__}); run the same command again"
                ) from None
            done.unfinished += not finished
            if failure is not None:
                done.failures.append(failure)
        steps = ray.get(board.read.remote())
        progress([(job, steps.get(job.name, 0)) for job in todo])
    return done


def _work(job: Job, out: Path, board: Any, cpus: int, make: Make) -> tuple[bool, str | None]:
    """Train one job in a task; whether it is finished, and why it cannot go on."""
    import ray
    import torch

    from onecurve.train.devices import World, device

    torch.set_num_threads(cpus)
    halted = False

    def tell(step: int) -> None:
        nonlocal halted
        halted = bool(ray.get(board.tell.remote(job.name, step)))

    try:
        return run_job(job, out, tell, lambda: halted, World(device=device()), make), None
    except Failed as error:
        return True, str(error)
    except OSError as error:
        raise OnecurveError(f"{out}: {error.strerror or error}; free some space and run again") from None
