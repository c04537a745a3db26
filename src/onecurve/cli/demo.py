"""onecurve demo: train a small ladder twice, with muP and without, and say what it means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.cli.train import needs_torch, train

if TYPE_CHECKING:
    from onecurve.measure.collapse import Collapse

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
    from onecurve.ladder import Ladder, families
    from onecurve.logs import read
    from onecurve.measure.collapse import collapse
    from onecurve.report import save_figure, save_page
    from onecurve.run import human
    from onecurve.train.recipe import EXAMPLES, load_recipe, rungs

    chosen = load_recipe(needs_torch(recipe or EXAMPLES / "demo.toml"))
    plan = rungs(chosen)
    sizes = ", ".join(human(chosen.model.n_params(r.width)) for r in plan)
    print(f"Training {sum(len(r.members) for r in plan)} runs of {len(plan)} sizes ({sizes} parameters) into {out}.")
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
        _say_shared(read([out / "runs", out / "shared-data"]).runs, Ladder)
    _say(results)
    print(f"\nThe report: {out / 'report.html'} (figure: {out / 'report.png'}, {out / 'report.svg'})")
    print(f"Look again:  onecurve collapse {out / 'runs'} --report again.html")


def _say(results: list[Collapse]) -> None:
    """One line a ladder: where its deviation falls below the noise floor for good."""
    print("\nWhat it means:")
    for c in results:
        crossing = c.crossings[0].corrected
        where = "never falls below" if crossing is None else f"falls below (for good, at x = {crossing:.2f})"
        ends = f"final loss {c.end_loss[-1]:.4g} at the largest size"
        print(f"  {c.name or 'the ladder'}: the deviation {where} the noise floor; {ends}")


def _say_shared(runs: list, ladder: type) -> None:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
    """The noise floor where seeds share their data order, beside that where they do not."""
    from onecurve.measure.moments import moments, noise_floor

    first = runs[0].config.parameterisation
    shared = [r for r in runs if r.config.seed_data == 0 and r.config.parameterisation == first]
    widths = {r.config.width for r in shared if r.config.seed_init != 0}
    own = [
        r
        for r in runs
        if r.config.seed_data == r.config.seed_init and r.config.width in widths and r.config.parameterisation == first
    ]
    noise = []
    for group in (own, [r for r in shared if r.config.width in widths]):
        s = ladder(group).sample()
        noise.append(float(noise_floor(moments(s.loss, s.counts), ddof=1)[int(0.75 * s.fraction.size)]))
    print(
        f"\nSeed noise at x = .75, widths {', '.join(map(str, sorted(widths)))}: {noise[0]:.2%} where a seed changes "
        f"initialisation and data, {noise[1]:.2%} where all seeds share their data order."
    )
