"""onecurve fit LAW: a law fitted to runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecurve.cli import arguments as a

app = typer.Typer(no_args_is_help=True, help="Fit a law to runs.")


@app.callback()
def _laws() -> None:
    """Fit a law to runs."""


@app.command("horizon", no_args_is_help=True)
def horizon(
    data: a.Data,
    runs: a.Runs = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE.json", help="Write the law.")] = None,
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    size: a.SizeColumn = None,
    seed: a.SeedColumn = None,
    held_out: a.HeldOut = False,
) -> None:
    """The compute-optimal horizon C*(N) from constant-rate runs of several sizes.

    [bold]Example[/bold]

      onecurve train constant.toml -o constant && onecurve fit horizon constant/runs -o horizon.json
    """
    from onecurve.frame import Columns
    from onecurve.laws.horizon import fit_horizon
    from onecurve.logs import read
    from onecurve.store import dumps, write_atomic

    table = read(data, runs, Columns(run, x, loss, size, seed, held_out=held_out))
    law = fit_horizon(table.runs, loss)
    print(law)
    if out is not None:
        with a.writing(out):
            write_atomic(out, dumps(law.to_dict()) + "\n")
