"""onecurve frontier: scores and what they cost in, the Pareto set, power laws and compute ratios out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.scores.frontier import Frontier


def command(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Tables with one row a model, evaluated runs, folders of these.", show_default=False, metavar="RESULTS"
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="accuracy (the mean of celerity7), bits_per_byte, or a task; by default found."
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare this family's compute with the others'; default: the largest."),
    ] = None,
    flops: Annotated[
        str, typer.Option("--flops", metavar="given|6nd", help="FLOPs as given (6 N D where not), or 6 N D for all.")
    ] = "given",
    percent: Annotated[bool, typer.Option("--percent", help="Accuracies of tables are in per cent.")] = False,
    published: Annotated[
        bool, typer.Option("--published/--no-published", help="With the published models, or without.")
    ] = True,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON; - for stdout.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the page.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Write the figure (png, svg, pdf).")] = None,
) -> None:
    """Which models are on the frontier of score and compute, what laws their errors follow, and what compute saves.

    A table has a name a row; its family; flops, or n_params and tokens; and accuracies in \\[0, 1] (accuracy, or
    tasks by name) or bits_per_byte. A distilled model may have teacher_flops, or teacher_params.

    [bold]Examples[/bold]

      onecurve frontier models.csv --report frontier.html

      onecurve frontier ladder/runs --score bits_per_byte --figure frontier.png

      onecurve frontier        (the published models alone)
    """
    from onecurve.scores.frontier import frontier
    from onecurve.scores.table import Compute, read_scores

    if flops not in get_args(Compute):
        raise OnecurveError(f"--flops is {flops!r}; accepted are {' or '.join(get_args(Compute))}")
    told = cast(Literal["given", "6nd"], flops)
    found = frontier(read_scores(results or [], score, compute=told, percent=percent, published=published), family)
    if json is not None:
        a.write_json(json, found.to_dict())
    if figure is not None:
        from onecurve.report.scores import save_frontier

        with a.writing(figure):
            save_frontier(figure, found)
    if report is not None:
        from onecurve.report.scores import save_scores_page

        with a.writing(report):
            save_scores_page(report, found)
    if json is None or str(json) != "-":
        _show(found)


def _show(f: Frontier) -> None:
    from rich.console import Console
    from rich.table import Table

    from onecurve.scores.words import summary, tables

    console = Console(highlight=False)
    for line in summary(f):
        print(line)
    print()
    for rows in tables(f):
        table = Table(title=rows.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for k, name in enumerate(rows.header):
            table.add_column(name, justify="left" if k == 0 else "right", overflow="fold")
        for row in rows.rows:
            table.add_row(*row)
        console.print(table)
        console.print()
    for note in f.notes:
        print(f"note: {note}")
