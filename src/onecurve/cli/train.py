"""onecurve train: a recipe in, run directories out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.train.recipe import Recipe


def command(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the run directories.")] = Path("ladder"),
) -> None:
    """Train every size and seed of a recipe; what is finished is skipped, what was stopped goes on.

    [bold]Example[/bold]

      onecurve train recipe.toml -o ladder && onecurve collapse ladder/runs
    """
    from onecurve.train.recipe import load_recipe

    train(load_recipe(needs_torch(recipe)), out)
    print(f"Done. Next:  onecurve collapse {out / 'runs'}")


def needs_torch(recipe: Path) -> Path:
    """The same path; an error that says how to get torch where it is missing."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise OnecurveError("training needs torch, which is not installed: pip install 'onecurve[train]'")
    return recipe


def train(recipe: Recipe, out: Path) -> None:
    """Train with a progress display. Exits with code 130 where it was stopped, after saving."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from onecurve.train.ladder import Stopped, share_done, train_ladder

    console = Console(stderr=True)
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

        def tell(state: list) -> None:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
            busy = [f"{rung.width}" for rung, step in state if 0 < step < rung.steps]
            words = f"training width {', '.join(busy)}" if busy else "training"
            bar.update(task, completed=share_done(state), description=words)

        try:
            train_ladder(recipe, out, tell)
        except Stopped:
            bar.stop()
            console.print("Stopped; everything so far is saved. The same command goes on from here.")
            raise typer.Exit(130) from None
