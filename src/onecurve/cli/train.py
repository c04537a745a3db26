"""onecurve train: a recipe in, run directories out."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.plan.recipe import Job, Recipe
    from onecurve.train.program import Make


def command(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the run directories.")] = Path("ladder"),
    job: Annotated[str | None, typer.Option(help="Train this job alone, by name.")] = None,
    parallel: Annotated[str | None, typer.Option(help="Under torchrun: ddp or fsdp.")] = None,
    on: Annotated[str | None, typer.Option(help="ray: every job a task of a Ray cluster.")] = None,
    micro_batch: Annotated[int | None, typer.Option(help="Tokens that go through the model at once.")] = None,
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile; by default where it pays.")
    ] = None,
    print_commands: Annotated[
        int | None, typer.Option(help="Train nothing; print one torchrun line a job for so many processes each.")
    ] = None,
) -> None:
    """Train every size and seed of a recipe; what is finished is skipped, what was stopped goes on.

    [bold]Examples[/bold]

      onecurve train recipe.toml -o ladder && onecurve collapse ladder/runs

      onecurve train recipe.toml -o ladder --print-commands 8

      torchrun --nproc-per-node 8 -m onecurve train recipe.toml -o ladder --job completep-610M-seed-0 --parallel fsdp
    """
    from onecurve.plan.recipe import jobs, load_recipe

    for name, value, accepted in (("--parallel", parallel, ("ddp", "fsdp")), ("--on", on, ("ray",))):
        if value is not None and value not in accepted:
            raise OnecurveError(f"{name} is {value!r}; accepted: {', '.join(accepted)}")
    chosen = load_recipe(needs_torch(recipe))
    names = [j.name for j in jobs(chosen)]
    if job is not None and job not in names:
        raise OnecurveError(f"--job is {job!r}; the recipe's jobs are {', '.join(names)}")
    if print_commands is not None:
        for name in names if job is None else [job]:
            print(
                f"torchrun --standalone --nproc-per-node {print_commands} -m onecurve train {recipe} -o {out} "
                f"--job {name} --parallel {parallel or 'ddp'}"
            )
        return
    from functools import partial

    from onecurve.train.program import Machine, make_program

    make = partial(make_program, machine=Machine(micro_batch=micro_batch, compile=compile))
    train(chosen, out, make, job=job, parallel=parallel, on=on)
    if _first():
        if chosen.task.kind == "tokens":
            _summary([j for j in jobs(chosen) if job in (None, j.name)], out)
        print(f"Done. Next:  onecurve collapse {out / 'runs'}")


def _first() -> bool:
    """Whether this process is the one that speaks, where torchrun started several."""
    return os.environ.get("RANK", "0") == "0"


def _summary(done: list[Job], out: Path) -> None:
    """One line a run: where it ended, and how fast it went."""
    import json

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("run", "tokens", "train_loss", "test_loss", "tokens/s", "utilisation"):
        table.add_column(name, justify="left" if name == "run" else "right")
    for job in done:
        for member in job.members:
            folder = out / member.folder / member.config.name
            last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
            end = json.loads((folder / "events.jsonl").read_text().splitlines()[-1])
            losses = (f"{last[name]:.4f}" for name in ("train_loss", "test_loss"))
            speed = (f"{end.get('tokens_per_second', 0):,}", f"{end.get('utilisation', 0):.0%}")
            table.add_row(member.config.name, f"{last['tokens']:,.0f}", *losses, *speed)
    Console(highlight=False).print(table)


def needs_torch(recipe: Path) -> Path:
    """The same path; an error that says how to get torch where it is missing."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise OnecurveError("training needs torch, which is not installed: pip install 'onecurve[train]'")
    return recipe


STOPPED_BY_SCHEDULER = 75
"""Exit code after SIGTERM or SIGUSR1 (EX_TEMPFAIL): run the same command again."""


def train(
    recipe: Recipe,
    out: Path,
    make: Make | None = None,
    job: str | None = None,
    parallel: str | None = None,
    on: str | None = None,
) -> None:
    """Train with a progress display. Where it was stopped, exits with 130 (Ctrl-C) or 75 (SIGTERM), after saving."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from onecurve.train.ladder import Stopped, share_done, train_ladder, train_together, warnings_of, with_data
    from onecurve.train.program import make_program

    make = make or make_program
    console = Console(stderr=True)
    together = parallel is not None or job is not None
    if _first():
        recipe = with_data(recipe, out)
        for words in warnings_of(recipe):
            console.print(f"Warning: {words}.", soft_wrap=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, speed_estimate_period=60) as bar:
        task = bar.add_task("training", total=1.0)

        def tell(state: list[tuple[Job, int]]) -> None:
            busy = [j.name for j, step in state if 0 < step < j.steps]
            words = f"training {', '.join(busy)}" if busy else "training"
            bar.update(task, completed=share_done(state), description=words)

        try:
            if together:
                train_together(recipe, out, tell, job, parallel, make)  # pyright: ignore[reportArgumentType]
            else:
                train_ladder(recipe, out, tell, make=make, on=on)
        except Stopped as stopped:
            bar.stop()
            console.print("Stopped; everything so far is saved. The same command goes on from here.")
            sys.stderr.flush()
            raise typer.Exit(130 if stopped.signal == signal.SIGINT else STOPPED_BY_SCHEDULER) from None
