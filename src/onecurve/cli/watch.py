"""onecurve watch: live runs held against the curve of their small siblings."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.watch.watcher import Told, Watcher

WARNING, ALARM = 3, 4
"""Exit codes."""
MOST = 20


def command(
    data: a.Data,
    reference: Annotated[
        list[str],
        typer.Option(
            "--reference",
            metavar="SMALL",
            help="Finished runs of smaller sizes, or what onecurve collapse -o wrote of them.",
            show_default=False,
        ),
    ],
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="Look again so often.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", "--replay", help="Judge what there is, and stop.")] = False,
    leave: Annotated[bool, typer.Option("--leave", help="Stop watching at the first alarm.")] = False,
    limit: Annotated[
        float, typer.Option(metavar="SIGMA", help="Alarm beyond so many standard deviations of a healthy run.")
    ] = 7.0,  # onecurve.watch.monitor.LIMIT, which --help must not import
    until: Annotated[
        float | None, typer.Option("--until", metavar="X", help="Planned end of runs that state none, in units of x.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="Remember here what has been told, across restarts.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Append events to a file of JSON lines.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            "--webhook", metavar="URL", help="Post events there.", envvar="ONECURVE_WEBHOOK", show_envvar=True
        ),
    ] = None,
    form: Annotated[str, typer.Option("--form", metavar="json|slack|discord", help="What the webhook takes.")] = "json",
    json: Annotated[bool, typer.Option("--json", help="Events as JSON lines on stdout, and nothing else.")] = False,
    runs: a.Runs = None,
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    size: a.SizeColumn = None,
    seed: a.SeedColumn = None,
    horizon: a.HorizonColumn = None,
    held_out: a.HeldOut = False,
) -> None:
    """Hold live runs against the curve of their small siblings, and say early when one leaves it.

    Exit code 0: nothing to say; 3: warnings; 4: an alarm. Ends when every run has come to its planned end.

    [bold]Examples[/bold]

      onecurve watch large/runs --reference small/runs

      onecurve collapse small/runs -o reference.json; onecurve watch large/runs --reference reference.json --once

      onecurve watch log.jsonl --reference reference.json --until 2e10 --webhook https://... --form slack
    """
    from onecurve.frame import Columns
    from onecurve.logs import read
    from onecurve.watch import watcher as w
    from onecurve.watch.sinks import Form, to_file, to_webhook

    for name, value in (("--every", every), ("--limit", limit)):
        if not value > 0:
            raise OnecurveError(f"{name} is {value:g}; accepted is a number above 0")
    if form not in get_args(Form):
        raise OnecurveError(f"--form is {form!r}; accepted are {', '.join(get_args(Form))}")
    columns = Columns(run, x, loss, size, seed, horizon, None, held_out)
    known = w.reference_from(reference, lambda paths: read(paths, None, columns).runs, loss)
    if not json:
        for note in known.notes:
            print(f"reference: {note}")
    watching = w.Watcher(known, limit, None if state is None else state / "told.json")
    sinks = [to_file(to)] if to is not None else []
    if webhook is not None:
        sinks.append(to_webhook(webhook, cast(Form, form)))
    worst = 0
    while True:
        try:
            table = read(data, runs, columns)
        except OnecurveError:
            if once or not watching.runs:
                raise
            time.sleep(every)  # a log that is being rotated, or was deleted: it may come back
            continue
        found = [w.until(r, until) if r.config.horizon is None and until else r for r in table.runs]
        new = watching.look(found, over=once)
        worst = max([worst, *({"warning": WARNING, "alarm": ALARM}.get(told.event.severity, 0) for told in new)])
        _tell(watching, new, json)
        watching.deliver(sinks)
        over = all(each.fraction >= 1.0 for each in watching.runs.values())
        if once or over or (leave and worst == ALARM):
            break
        time.sleep(every)
    if not json:
        _show(watching)
    raise typer.Exit(worst)


def _tell(watching: Watcher, new: list[Told], json: bool) -> None:
    from onecurve.store import dumps

    for told in new:
        print(dumps(told.to_dict()) if json else str(told), flush=True)
    if not json and sys.stderr.isatty():
        words = [f"{name} {each.fraction:.0%} {each.residual:+.2%}" for name, each in list(watching.runs.items())[:4]]
        print(f"\r{time.strftime('%H:%M:%S')}  {'  '.join(words)}", end="", file=sys.stderr, flush=True)


def _show(watching: Watcher) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Watched", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("run", "x", "residual", "events"):
        table.add_column(name, justify="left" if name in ("run", "events") else "right", overflow="fold")
    for name, each in list(watching.runs.items())[:MOST]:
        kinds: dict[str, Any] = {}
        for event in each.events:
            kinds[event.kind] = kinds.get(event.kind, 0) + 1
        residual = "" if each.residual != each.residual else f"{each.residual:+.2%}"
        words = ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items())
        table.add_row(name, f"{each.fraction:.2f}", residual, words or "none")
    console = Console(highlight=False)
    console.print(table)
    if len(watching.runs) > MOST:
        console.print(f"(the first {MOST} of {len(watching.runs)})", style="dim")
    console.print(
        "residual: the last stretch against 25 to 50 % of training, where the reference's is 0, in logs", style="dim"
    )
