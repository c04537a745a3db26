"""onecurve collapse: a family of runs in, one curve and a verdict out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.measure.result import Collapse


def command(
    data: a.Data,
    runs: a.Runs = None,
    floor: Annotated[
        str,
        typer.Option(metavar="auto|fit|zero|VALUE", help="Irreducible loss. auto: the fit if the ladder pins it."),
    ] = "auto",
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON; - for stdout.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the report page.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Write the figure (png, svg, pdf).")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE.json", help="Write the family's curve, a reference for onecurve watch."
        ),
    ] = None,
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    size: a.SizeColumn = None,
    seed: a.SeedColumn = None,
    horizon: a.HorizonColumn = None,
    compute: a.ComputeColumn = None,
    held_out: a.HeldOut = False,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Setting that tells families apart; default: the recipe.")
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Smoothing window: a share of the run (training loss: .02), or x of 1 and more."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(metavar="SHARE", help="Largest spread over sizes, relative to the curve's height.")
    ] = 0.10,
) -> None:
    """Do the loss curves of all sizes fall onto one curve, and how tightly against seed noise?

    Every run is divided by its own final (reducible) loss. The verdict answers two questions apart: within a
    practical tolerance, and within seed noise; and says which size leaves first and what to check.

    [bold]Examples[/bold]

      onecurve collapse runs/ --report report.html

      onecurve collapse curves.parquet --runs runs.csv --x tokens --loss val_loss --size n_params --horizon budget
    """
    from onecurve.frame import Columns
    from onecurve.ladder import families
    from onecurve.logs import read
    from onecurve.measure.collapse import collapse

    columns = Columns(run, x, loss, size, seed, horizon, compute, held_out)
    table = read(data, runs, columns)
    kind = "held-out" if held_out else None
    value = _floor(floor)
    split = families(table.runs, by)
    results: list[Collapse] = []
    for ladder in split:
        ladder = ladder.noting(table.dropped, table.warnings)
        try:
            results.append(collapse(ladder, floor=value, loss=loss, kind=kind, window=window, tolerance=tolerance))
        except OnecurveError as error:
            if len(split) == 1:
                raise
            print(f"onecurve: left out {ladder.name}: {error}", file=sys.stderr)
    if not results:
        raise OnecurveError(
            f"none of the {len(split)} families can be measured; see above, or say with --by what tells them apart"
        )
    write(results, json, report, figure)
    if out is not None:
        from onecurve.watch.reference import Reference

        if len(results) > 1:
            raise OnecurveError(
                f"-o writes the curve of one family, and there are {len(results)}; read one of them alone"
            )
        a.write_json(out, Reference.of(results[0].sampled.runs, loss).to_dict())
    if json is None or str(json) != "-":
        show(results)


def _floor(text: str) -> Any:
    if text in ("auto", "fit", "zero"):
        return text
    try:
        return float(text)
    except ValueError:
        raise OnecurveError(f"--floor is {text!r}; accepted are auto, fit, zero or a number (a loss)") from None


def write(results: list[Collapse], json: Path | None, report: Path | None, figure: Path | None) -> None:
    """Write what was asked for, each file in one step."""
    if json is not None:
        dicts = [c.to_dict() for c in results]
        a.write_json(json, dicts[0] if len(dicts) == 1 else {"families": dicts})
    if figure is not None:
        from onecurve.report import save_figure

        with a.writing(figure):
            save_figure(figure, *results)
    if report is not None:
        from onecurve.report import save_page

        with a.writing(report):
            save_page(report, results)


def show(results: list[Collapse]) -> None:
    """Print each verdict with its tables."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from onecurve.measure.verdict import heading, notes, tables, verdict

    console = Console(highlight=False)
    for c in results:
        v = verdict(c)
        colour = "green" if v.practical else "yellow" if v.noise != "sizes differ" else "red"
        body = Text("\n".join([v.headline, "", *v.sentences]))
        body.stylize("bold", 0, len(v.headline))
        console.print(Panel(body, title=Text(heading(c)), title_align="left", border_style=colour, padding=(1, 2)))
        if v.checks:
            console.print(Text("What to check, in this order:", style="bold"))
            for i, check in enumerate(v.checks, 1):
                console.print(Padding(Text(f"{i}. {check}"), (0, 2)))
            console.print()
        for rows in tables(c):
            table = Table(title=rows.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
            for name in rows.header:
                table.add_column(name, justify="right")
            for row in rows.rows:
                table.add_row(*map(Text, row))
            console.print(table)
            console.print()
        for note in notes(c):
            console.print(Text(note, style="dim"))
