"""onecurve demo: train a small ladder twice, with muP and without, and say what it means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.cli.train import needs_torch, train

if TYPE_CHECKING:
    from onecurve.measure.result import Collapse
    from onecurve.run import Run

INTRODUCTION = (
    "Two ladders of the same residual MLPs, on the same data, at the same base learning rate. The first scales the "
    "learning rate with width as muP says; the second keeps it. Every run is divided by its own final loss: where the "
    "recipe scales, all sizes fall onto one curve, more tightly than seeds differ; where it does not, they leave it."
)


def command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs and the report.")] = Path("demo"),
    recipe: Annotated[Path | None, typer.Option(help="Another recipe than the demo's own.")] = None,
) -> None:
    """Train a small ladder with muP and without, on this machine, and write a report that compares the two."""
    from onecurve.ladder import families
    from onecurve.logs import read
    from onecurve.measure.collapse import collapse
    from onecurve.plan.recipe import EXAMPLES, jobs, load_recipe
    from onecurve.report import save_figure, save_page
    from onecurve.run import human

    chosen = load_recipe(needs_torch(recipe or EXAMPLES / "demo.toml"))
    plan = jobs(chosen)
    sizes = ", ".join(human(chosen.n_params(r.size)) for r in plan)
    print(
        f"Training {sum(len(r.members) for r in plan)} runs of {len(plan)} sizes ({sizes} parameters) into {out}.",
        flush=True,
    )
    train(chosen, out)

    results = [collapse(ladder) for ladder in families(read([out / "runs"]).runs)]
    save_page(
        out / "report.html", results, title="Do the curves of all sizes fall onto one?", introduction=INTRODUCTION
    )
    for suffix in ("png", "svg"):
        save_figure(out / f"report.{suffix}", *results)

    from onecurve.cli.collapse import show

    show(results)
    if (out / "shared-data").is_dir():
        _say_shared(read([out / "runs", out / "shared-data"]).runs)
    _say(results)
    print(f"\nThe report: {out / 'report.html'} (figure: {out / 'report.png'}, {out / 'report.svg'})")
    print(f"Look again:  onecurve collapse {out / 'runs'} --report again.html")


def _say(results: list[Collapse]) -> None:
    """One line a ladder: how far its sizes spread, and from where its deviation stays below the noise floor."""
    print("\nWhat it means:")
    for c in results:
        crossing = c.crossings[0].corrected
        where = "never stays below" if crossing is None else f"from x = {crossing:.2f} on stays below"
        spread = c.at(c.relative_spread, 0.5)
        print(f"  {c.name or 'the ladder'}:")
        print(f"    at x = .5 the sizes spread by {spread:.0%} of the curve's height (tolerance {c.tolerance:.0%});")
        print(f"    the deviation {where} the noise floor")


def _say_shared(runs: list[Run]) -> None:
    """The noise floor where seeds share their data order, beside that where they do not."""
    import numpy as np

    from onecurve.ladder import Ladder
    from onecurve.measure.moments import moments, noise_floor

    first = runs[0].config.parameterisation
    same = [r for r in runs if r.config.parameterisation == first]
    widths = {r.config.width for r in same if r.config.seed_data != r.config.seed_init}
    same = [r for r in same if r.config.width in widths]
    noise: list[float] = []
    for group in (
        [r for r in same if r.config.seed_data == r.config.seed_init],
        [r for r in same if r.config.seed_data == 0],
    ):
        s = Ladder(group).sample()
        noise.append(float(np.interp(0.75, s.fraction, noise_floor(moments(s.loss, s.counts), ddof=1))))
    print(
        f"\nSeed noise at x = .75, widths {', '.join(map(str, sorted(filter(None, widths))))}: {noise[0]:.1%} where a "
        f"seed changes initialisation and data, {noise[1]:.1%} where all seeds share their data order."
    )
