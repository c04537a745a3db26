"""The options that say what is read, shared by the verbs that read runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.measure.verdict import Rows

Data = Annotated[
    list[str],
    typer.Argument(
        help="Run directories, logs of other tools, folders of these, tables of points, or addresses.",
        show_default=False,
    ),
]
Runs = Annotated[Path | None, typer.Option("--runs", help="Table with one row a run: sizes, seeds, horizons.")]
RunColumn = Annotated[str | None, typer.Option("--run", metavar="COLUMN", help="Column that names the run.")]
XColumn = Annotated[str | None, typer.Option("--x", metavar="COLUMN", help="Column of the x axis (tokens).")]
LossColumn = Annotated[str | None, typer.Option("--loss", metavar="COLUMN", help="Column of the loss.")]
SizeColumn = Annotated[str | None, typer.Option("--size", metavar="COLUMN", help="Column of the parameter count.")]
SeedColumn = Annotated[str | None, typer.Option("--seed", metavar="COLUMN", help="Column of the seed.")]
HorizonColumn = Annotated[
    str | None,
    typer.Option("--horizon", metavar="COLUMN", help="Column of the planned end, in units of x; default: last point."),
]
ComputeColumn = Annotated[
    str | None,
    typer.Option("--compute", metavar="COLUMN", help="Column of the training compute; default: 6 N D."),
]
HeldOut = Annotated[
    bool, typer.Option("--held-out", help="The loss was measured on held-out data, whatever its name says.")
]


def write_json(path: Path, content: object) -> None:
    """Write JSON in full precision in one step; ``-`` is stdout."""
    from onecurve.store import dumps, write_atomic

    text = dumps(content)
    if str(path) == "-":
        print(text)
        return
    with writing(path):
        write_atomic(path, text + "\n")


def show(rows: Sequence[Rows], lines: Sequence[str] = ()) -> None:
    """Print small tables, names to the left and numbers to the right, and lines below them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for each in rows:
        console.print(Text(each.title, style="bold"))
        table = Table(box=None, pad_edge=False)
        for k, name in enumerate(each.header):
            table.add_column(name, justify="right" if k else "left", no_wrap=k == 0, header_style="dim")
        for row in each.rows:
            table.add_row(*map(Text, row), style="bold" if row[0] == "all" else None)
        console.print(table)
        console.print()
    for line in lines:
        console.print(Text(line, style="yellow" if line.startswith("*") else "dim"))


@contextmanager
def writing(path: Path) -> Generator[None, None, None]:
    """A file that cannot be written is the user's to mend: one message instead of a traceback."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OnecurveError(f"{path}: cannot be written ({error.strerror}); choose another path") from None
