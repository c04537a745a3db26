"""onecurve tune: where the runs of a sweep will end, and which of them can be stopped now."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.frame import Columns
    from onecurve.laws.law import Law
    from onecurve.tune.stop import Decisions
    from onecurve.tune.sweep import Sweep

MOST_REMARKS = 3
VARIED = {
    "learning_rate": "rate",
    "base_learning_rate": "base rate",
    "weight_decay": "decay",
    "batch_tokens": "batch",
}
STYLES = {"stop": "bold red", "stopped": "dim", "failed": "red", "ended": "green", "continue": ""}


def command(
    data: a.Data,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            metavar="SMALL",
            help="Finished runs of a smaller size, or a law that onecurve fit wrote; default: the sweep's ended runs.",
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SETTING=VALUE", help="These runs of DATA only.")
    ] = None,
    tolerance: Annotated[float, typer.Option(metavar="SHARE", help="What may be lost of the best final loss.")] = 0.001,
    risk: Annotated[float, typer.Option(metavar="CHANCE", help="Chance of losing more than that.")] = 0.05,
    earliest: Annotated[
        float | None,
        typer.Option(metavar="FRACTION", help="Stop nothing before; default: what the reference's own runs tell."),
    ] = None,
    stopped: Annotated[
        list[str] | None, typer.Option("--stopped", metavar="RUN", help="A run that will not go on; may be repeated.")
    ] = None,
    follow: Annotated[
        float | None, typer.Option("--follow", metavar="SECONDS", help="Look again every so often, until all is told.")
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON; - for stdout.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Write the figure (png, svg, pdf).")] = None,
    runs: a.Runs = None,
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    size: a.SizeColumn = None,
    seed: a.SeedColumn = None,
    horizon: a.HorizonColumn = None,
    held_out: a.HeldOut = False,
) -> None:
    """Where will the runs of a sweep end, which can be stopped now, and what does that save?

    The runs differ in learning rate, weight decay or batch size, and in nothing else; each needs these settings and its
    horizon recorded. The reference gives the shape of their curves: a sweep of the same settings at a smaller size is
    best.

    [bold]Examples[/bold]

      onecurve tune large/runs --reference small/runs --figure sweep.png

      onecurve tune large/runs --reference small/runs --follow 60

      onecurve fit surrogate small/runs -o shape.json; onecurve tune large/runs --reference shape.json
    """
    from onecurve.frame import Columns

    if follow is not None and not follow > 0:
        raise OnecurveError(f"--follow is {follow:g}; accepted is a number of seconds above 0")
    columns = Columns(run, x, loss, size, seed, horizon, None, held_out)
    fixed = _reference(reference, columns) if reference else None
    while True:
        sweep, law = _sweep(data, runs, columns, where, fixed)
        from onecurve.tune.stop import decide

        found = decide(sweep, law, tolerance, risk, earliest, stopped or ())
        if unknown := set(stopped or ()) - {row.run for row in found.rows}:
            raise OnecurveError(
                f"--stopped {min(unknown)!r}: no such run; there are {', '.join(r.run for r in found.rows)}"
            )
        if json is not None:
            a.write_json(json, found.to_dict())
        if figure is not None:
            from onecurve.report.tune import save_sweep

            with a.writing(figure):
                save_sweep(figure, sweep, law, found)
        if json is None or str(json) != "-":
            _show(sweep, law, found)
        if follow is None or not any(row.verdict == "continue" for row in found.rows):
            return
        time.sleep(follow)


def _sweep(
    data: list[str], table: Path | None, columns: Columns, where: str | None, law: Law | None
) -> tuple[Sweep, Law]:
    from onecurve.ladder import select
    from onecurve.laws.small_runs import SmallRuns
    from onecurve.logs import read
    from onecurve.tune.sweep import sweep_of

    found = read(data, table, columns)
    for warning in found.warnings:
        print(f"onecurve: {warning}", file=sys.stderr)
    sweep = sweep_of(found.runs if where is None else select(found.runs, where), columns.loss)
    if law is None:
        ended = [run for run, over in zip(sweep.runs, sweep.ended, strict=True) if over]
        if len(ended) < 2:
            raise OnecurveError(
                "nothing says what these runs' curves look like: give finished runs of a smaller size with "
                "--reference, or wait until two of the sweep have ended"
            )
        law = SmallRuns.fit(ended, sweep.loss_name)
    return sweep, law


def _reference(paths: list[str], columns: Columns) -> Law:
    """A saved law, or finished runs as a table of shapes."""
    from onecurve.ladder import ends_early
    from onecurve.laws.registry import load
    from onecurve.laws.small_runs import SmallRuns
    from onecurve.logs import read

    if len(paths) == 1 and paths[0].endswith(".json") and Path(paths[0]).is_file():
        return load(Path(paths[0]))
    found = read(paths, None, columns)
    ended = [run for run in found.runs if run.curves and not ends_early(run.curve(columns.loss).finite(), run.end)]
    if not ended:
        raise OnecurveError(
            f"--reference {paths[0]}: none of its {len(found.runs)} runs has ended; wait, or name others"
        )
    if len(ended) < len(found.runs):
        print(
            f"onecurve: {len(found.runs) - len(ended)} runs of the reference have not ended: left out", file=sys.stderr
        )
    return SmallRuns.fit(ended, columns.loss)


def _show(sweep: Sweep, law: Law, found: Decisions) -> None:
    from rich.console import Console
    from rich.table import Table

    from onecurve.run import human

    console = Console(highlight=False)
    first, labels = sweep.runs[0], dict(zip((r.config.name for r in sweep.runs), sweep.labels, strict=True))
    configs = {run.config.name: run.config for run in sweep.runs}
    short = first.config.name.removesuffix(labels[first.config.name])
    table = Table(
        title=f"{len(sweep.runs)} runs of {human(first.config.n_params)} parameters, by predicted {sweep.loss_name}"
        + (f" (names without {short!r})" if short else ""),
        title_justify="left", title_style="bold", box=None, pad_edge=False,
    )  # fmt: skip
    varied = {words: name for name, words in VARIED.items() if len({getattr(c, name) for c in configs.values()}) > 1}
    if "rate" in varied and "base rate" in varied:
        del varied["rate"]
    longest = max(map(len, labels.values()))
    table.add_column("run", overflow="fold", min_width=min(longest, 16))
    for name in (*varied, "x", "so far", "end", "90 %", "best", "close"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in found.rows:
        c, style = configs[row.run], STYLES[row.verdict]
        known = row.low == row.low and row.verdict != "ended"
        table.add_row(
            labels[row.run], *(_number(getattr(c, name), 3) for name in varied.values()), f"{row.fraction:.2f}",
            _number(row.loss), _number(row.end), f"{row.low:.3g}-{row.high:.3g}" if known else "",
            _chance(row.chance_best), _chance(row.chance_close), f"[{style}]{row.verdict}[/]" if style else row.verdict,
        )  # fmt: skip
    console.print(table)
    console.print(
        f"best: chance of the lowest end of all; close: of an end within {found.tolerance:.2%} of it", style="dim"
    )
    print()
    for line in words(found, law):
        print(line)


def _number(value: float | None, digits: int = 4) -> str:
    return "" if value is None or value != value else f"{value:.{digits}g}"


def _chance(value: float) -> str:
    if value != value:
        return ""
    return "<.1%" if 0 < value < 0.0005 else f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"


def words(found: Decisions, law: Law) -> list[str]:
    """What to do, what it saves, and what to know."""
    count = {verdict: sum(row.verdict == verdict for row in found.rows) for verdict in ("stop", "continue", "stopped")}
    lines = [
        f"Stop {count['stop']} of {len(found.rows)} runs now: that saves {found.saved:.0%} of the whole sweep."
        if count["stop"]
        else "Stop nothing now."
    ]
    lines.append(
        f"Nothing is stopped before x = {found.earliest:.2f} ({found.earliest_from}); chance of losing more than "
        f"{found.tolerance:.2%}: {found.risk:.0%} by the end at most, that share of it so far."
    )
    lines.append(f"Shapes by {law.name}; stretch {found.stretch:.2f} ± {1.645 * found.stretch_error:.2f}.")
    lines += [f"note: {note}" for note in found.notes]
    likely = [row for row in found.rows if row.verdict == "stopped" and row.chance_best > found.risk]
    lines += [
        f"note: {row.run}, stopped at x = {row.fraction:.2f}, has by now a {row.chance_best:.0%} chance of being best: "
        "run it on"
        for row in likely
    ]
    remarks: dict[str, list[str]] = {}
    for row in found.rows:
        for remark in row.remarks:
            remarks.setdefault(remark, []).append(row.run)
    shown = list(remarks.items())
    lines += [
        f"note: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {remark}"
        for remark, names in shown[:MOST_REMARKS]
    ]
    if len(shown) > MOST_REMARKS:
        lines.append(f"note: {len(shown) - MOST_REMARKS} more remarks of this kind; --json lists them run by run")
    return lines
