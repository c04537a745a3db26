"""onecurve read: what there is in logs, what was mended, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.cli import arguments as a

if TYPE_CHECKING:
    from onecurve.frame import Columns
    from onecurve.logs.log import Log
    from onecurve.run import Run


def command(
    data: a.Data,
    runs: a.Runs = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write run directories here.")] = None,
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    size: a.SizeColumn = None,
    seed: a.SeedColumn = None,
    horizon: a.HorizonColumn = None,
    compute: a.ComputeColumn = None,
    held_out: a.HeldOut = False,
    no_mend: Annotated[
        list[str] | None,
        typer.Option(
            "--no-mend", metavar="STEP", help="Leave undone: rewinds, repeats, torn, summaries, means, or all. Repeats."
        ),
    ] = None,
) -> None:
    """What is in these logs, run by run: points, axes, settings; what was mended, and what is missing.

    Reads TensorBoard folders, W&B offline runs, MLflow (SQLite and file store), Trackio, Hugging Face
    trainer_state.json, Lightning's metrics.csv, JSON lines of trainers, console output of Megatron-LM, torchtitan and
    nanoGPT, run directories, and plain tables.

    [bold]Examples[/bold]

      onecurve read runs/ wandb/

      onecurve read tb/ --runs runs.csv -o converted && onecurve collapse converted
    """
    from onecurve.errors import OnecurveError
    from onecurve.frame import Columns
    from onecurve.logs import find, read_found

    columns = Columns(run, x, loss, size, seed, horizon, compute, held_out)
    found = [(path, find(path)) for path in data]
    logs = [log for _, held in found for log in held.logs]
    if logs:
        _show_logs(logs, columns)
    table = None
    try:
        table = read_found(found, runs, columns, no_mend or ())
    except OnecurveError as error:
        if not logs or out is not None:
            raise
        print(f"Not usable yet: {error}")
    if table is not None:
        _show_runs(table.runs)
        for what, count in table.dropped.items():
            print(f"left out: {count} {what}")
        for warning in table.warnings:
            print(f"note: {warning}")
        if out is not None:
            with a.writing(out):
                for one in table.runs:
                    _write(one, out)
            print(f"wrote {len(table.runs)} run directories to {out}")


def _show_logs(logs: list[Log], columns: Columns) -> None:
    from rich.console import Console
    from rich.table import Table

    from onecurve.logs.assemble import configured
    from onecurve.logs.axis import axis_of

    table = Table(title="Logs", title_justify="left", title_style="bold", box=None, pad_edge=False)
    numbers = ("series", "points", "last step")
    for name in ("run", "format", *numbers, "tokens a step from"):
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for log in logs:
        points = sum(len(s) for s in log.series.values())
        last = max((float(s.step.max()) for s in log.series.values() if len(s)), default=0.0)
        words = axis_of(log, configured(log.settings), columns.x).words
        table.add_row(log.name, log.format, str(len(log.series)), f"{points:,}", f"{last:,.0f} {log.step_name}", words)
    console = Console(highlight=False)
    console.print(table)
    console.print()


def _show_runs(runs: list[Run]) -> None:
    from rich.console import Console
    from rich.table import Table

    from onecurve.run import human

    table = Table(title="Runs", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("run", "N", "D", "batch", "rate", "decay", "schedule", "seed", "loss"):
        table.add_column(name, justify="left" if name in ("run", "schedule", "loss") else "right", overflow="fold")
    missing: dict[str, int] = {}
    for run in runs:
        c = run.config
        cells = {
            "D": None if c.horizon is None else human(c.horizon),
            "batch": None if c.batch_tokens is None else human(c.batch_tokens),
            "rate": None if c.learning_rate is None else f"{c.learning_rate:.3g}",
            "decay": None if c.weight_decay is None else f"{c.weight_decay:.3g}",
            "schedule": None if c.schedule is None else str(c.schedule),
            "seed": c.seed_label or None,
        }
        for name, value in cells.items():
            missing[name] = missing.get(name, 0) + (value is None)
        losses = ", ".join(f"{name} ({curve.kind}, {len(curve)})" for name, curve in run.curves.items())
        table.add_row(c.name, human(c.n_params), *(v or "-" for v in cells.values()), losses)
    console = Console(highlight=False)
    console.print(table)
    columns = {"D": "horizon", "batch": "batch_tokens", "rate": "learning_rate", "decay": "weight_decay"}
    lacking = [f"{columns.get(name, name)} ({count} of {len(runs)})" for name, count in missing.items() if count]
    if lacking:
        console.print(
            f"missing: {', '.join(lacking)}; columns of a table of runs (--runs FILE, keyed by run) supply them"
        )


def _write(run: Run, out: Path) -> None:
    """One run as a run directory, its curves and signals on the union of their x."""
    import numpy as np

    from onecurve.store import RunWriter

    folder = out / "".join(ch if ch.isalnum() or ch in "-_." else "-" for ch in run.config.name)
    writer = RunWriter(folder, run.config, run.x_name, {name: c.kind for name, c in run.curves.items()})
    columns = {name: (c.x, c.loss) for name, c in run.curves.items()}
    columns |= {name: (s.x, s.value) for name, s in run.signals.items()}
    every = np.unique(np.concatenate([x for x, _ in columns.values()]))
    rows: list[dict[str, float]] = [{"step": k, run.x_name: float(x)} for k, x in enumerate(every)]
    for name, (x, values) in columns.items():
        for at, value in zip(np.searchsorted(every, x), values, strict=True):
            rows[at][name] = float(value)
    writer.write(rows)
