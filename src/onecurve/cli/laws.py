"""onecurve fit, predict, score, laws: laws of loss curves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError

if TYPE_CHECKING:
    from onecurve.laws.law import Law
    from onecurve.laws.score import Score
    from onecurve.run import Run

LawName = Annotated[str, typer.Argument(help="Its name; see onecurve laws.", show_default=False)]
FitOn = Annotated[
    str | None,
    typer.Option("--fit-on", metavar="SETTING=VALUE", help="Fit to these runs only, e.g. schedule=constant."),
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; - for stdout.")]
Figure = Annotated[Path | None, typer.Option("--figure", metavar="FILE.png", help="Write a figure (png, svg, pdf).")]


def fit(
    law: LawName,
    data: a.Data,
    runs: a.Runs = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE.json", help="Write the law.")] = None,
    fit_on: FitOn = None,
    intervals: Annotated[
        str, typer.Option(metavar="bootstrap|profile", help="Where the parameters' intervals come from.")
    ] = "bootstrap",
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    size: a.SizeColumn = None,
    seed: a.SeedColumn = None,
    horizon: a.HorizonColumn = None,
    compute: a.ComputeColumn = None,
    held_out: a.HeldOut = False,
) -> None:
    """Fit a law to runs, and find how far its predictions of runs left out in turn are off.

    [bold]Examples[/bold]

      onecurve fit final runs/ -o law.json        (larger sizes from smaller ones)

      onecurve fit horizon constant/runs -o horizon.json

      onecurve fit timescale sweeps.parquet --runs sweeps.csv     (a rule for a plan, from sweeps of weight decay)

      onecurve fit decayed-power curves.csv --fit-on schedule=constant,cosine -o law.json
    """
    from onecurve.laws.law import Intervals
    from onecurve.laws.registry import LAWS, STUDIES, unknown
    from onecurve.laws.score import calibrated

    if law not in LAWS and law not in STUDIES:
        raise unknown(law, [*LAWS, *STUDIES])
    if intervals not in get_args(Intervals):
        raise OnecurveError(f"--intervals is {intervals!r}; accepted are {' or '.join(get_args(Intervals))}")
    chosen = _read(data, runs, fit_on, run, x, loss, size, seed, horizon, compute, held_out)
    if law in STUDIES:
        if intervals != "bootstrap":
            raise OnecurveError(f"{law} has no profile intervals; leave --intervals out")
        found: Any = STUDIES[law].find(chosen, loss)
        print(found)
    else:
        fitted = LAWS[law].fit(chosen, loss, intervals=cast(Intervals, intervals))
        with _progress("runs left out in turn") as bar:
            found, notes = calibrated(fitted, chosen, loss, bar)
        print(found)
        for note in notes:
            print(f"note: {note}")
    if out is not None:
        a.write_json(out, found.to_dict())


def predict(
    law: Annotated[Path, typer.Argument(help="A law that onecurve fit wrote.", show_default=False)],
    data: Annotated[
        list[str] | None, typer.Argument(help="Runs to predict beside what they did, instead of a planned one.")
    ] = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="N", help="Parameters of the planned run; with DATA their column.")
    ] = None,
    horizon: Annotated[
        str | None, typer.Option("--horizon", metavar="D", help="Its tokens (the law's unit of x); with DATA a column.")
    ] = None,
    compute: Annotated[
        str | None,
        typer.Option("--compute", metavar="C", help="Its compute, if the fitted runs record theirs; or a column."),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Its schedule: constant, linear, cosine, ...; default: that of the fitted runs.")
    ] = None,
    warmup: Annotated[float | None, typer.Option(help="Its share of warmup.")] = None,
    decay_frac: Annotated[float | None, typer.Option(help="Share of the rest spent decaying.")] = None,
    final: Annotated[float | None, typer.Option(help="Last rate, as a share of the peak.")] = None,
    batch_tokens: Annotated[float | None, typer.Option(help="Its tokens a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Its peak rate on the hidden matrices.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Its weight decay, as PyTorch defines it.")] = None,
    points: Annotated[int, typer.Option(min=1, help="Points of the curve.")] = 20,
    runs: a.Runs = None,
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    held_out: a.HeldOut = False,
    json: Json = None,
    figure: Figure = None,
) -> None:
    """The whole loss curve of a run that has not been trained, with its band.

    [bold]Examples[/bold]

      onecurve predict law.json --size 4.2e7 --horizon 1.7e9 --schedule linear --figure curve.png

      onecurve predict law.json larger/runs
    """
    import numpy as np

    from onecurve.laws.estimate import measured
    from onecurve.laws.registry import load

    chosen = load(law)
    shape = {"warmup": warmup, "decay_frac": decay_frac, "final": final}
    settings = {"batch_tokens": batch_tokens, "learning_rate": learning_rate, "weight_decay": weight_decay}
    if data:
        of_planned = {"schedule": schedule} | shape | settings
        told = next((name for name, value in of_planned.items() if value is not None), None)
        if told is not None:
            raise OnecurveError(
                f"--{told.replace('_', '-')} is a setting of a planned run; those of {data[0]} are their own"
            )
        asked = _read(data, runs, None, run, x, loss, size, None, horizon, compute, held_out)
    else:
        n, end, c = (_number(k, v) for k, v in (("--size", size), ("--horizon", horizon), ("--compute", compute)))
        asked = [_planned(chosen, n, end, schedule, shape, settings | {"compute": c})]
    curves: list[dict[str, Any]] = []
    for one in asked:
        at = np.linspace(0.0, 1.0, points + 1)[1:] * one.end
        low, high = chosen.interval(one, at)
        columns = {"x": at, "predicted": chosen.predict(one, at), "low": low, "high": high}
        remarks = chosen.remarks(one)
        if one.curves:
            curve = measured(type(chosen), one, loss)
            if len(curve):
                columns["loss"] = np.interp(at, curve.x, curve.loss, left=np.nan, right=np.nan)
            else:
                remarks.append("it has not ended, so its final loss is not known, nor its losses over that")
        curves.append({"run": one.config.name, "law": chosen.name, "x_name": one.x_name, **columns, "remarks": remarks})
    if figure is not None:
        from onecurve.report.laws import save_predictions

        with a.writing(figure):
            save_predictions(figure, chosen, asked, loss)
    if json is not None:
        a.write_json(json, curves[0] if len(curves) == 1 else {"curves": curves})
    if json is None or str(json) != "-":
        _show_curves(chosen, curves)


def score(
    law: LawName,
    data: a.Data,
    runs: a.Runs = None,
    fit_on: FitOn = None,
    test_on: Annotated[
        str | None, typer.Option("--test-on", metavar="SETTING=VALUE", help="Judge on these; default: all the others.")
    ] = None,
    leave_out: Annotated[
        str | None, typer.Option(metavar="size|schedule|run", help="Leave each one out in turn.")
    ] = None,
    json: Json = None,
    run: a.RunColumn = None,
    x: a.XColumn = None,
    loss: a.LossColumn = None,
    size: a.SizeColumn = None,
    seed: a.SeedColumn = None,
    horizon: a.HorizonColumn = None,
    compute: a.ComputeColumn = None,
    held_out: a.HeldOut = False,
) -> None:
    """How far off is a law on runs that it has not seen? By default the largest size is left out.

    [bold]Examples[/bold]

      onecurve score final runs/

      onecurve score multi-power curves.csv --runs runs.csv --fit-on schedule=cosine,constant
    """
    from onecurve.laws.registry import named
    from onecurve.laws.score import score as judge

    kind = named(law)
    if leave_out not in (None, "size", "schedule", "run"):
        raise OnecurveError(f"--leave-out is {leave_out!r}; accepted are size, schedule or run")
    if leave_out is not None and (fit_on or test_on):
        raise OnecurveError("give --leave-out, or --fit-on and --test-on, not both")
    every = _read(data, runs, None, run, x, loss, size, seed, horizon, compute, held_out)
    told: dict[str, Sequence[Run]] = {}
    if fit_on is not None or test_on is not None:
        from onecurve.ladder import select

        train = None if fit_on is None else select(every, fit_on)
        test = None if test_on is None else select(every, test_on)
        if train is None:
            train = [r for r in every if all(r is not t for t in test or [])]
        if test is None:
            test = [r for r in every if all(r is not t for t in train)]
        both = [r.config.name for r in train if any(r is t for t in test)]
        if both or not train or not test:
            what = f"{both[0]} is in both" if both else "one of them is empty"
            raise OnecurveError(f"--fit-on and --test-on must name different runs; {what}")
        told = {"fit_on": train, "test_on": test}
    with _progress("runs left out in turn") as bar:
        result = judge(kind, every, loss, leave_out=leave_out, progress=bar, **told)  # pyright: ignore
    if json is not None:
        a.write_json(json, result.to_dict())
    if json is None or str(json) != "-":
        _show_score(result)


def laws() -> None:
    """What laws there are, what each needs, and what it can and cannot extrapolate."""
    from rich.console import Console
    from rich.table import Table

    from onecurve.laws.registry import LAWS, STUDIES

    table = Table(box=None, pad_edge=False, title="Laws that predict curves", title_justify="left", title_style="bold")
    for name in ("law", "says", "needs", "carries over to"):
        table.add_column(name, no_wrap=name == "law", overflow="fold")
    for name, law in LAWS.items():
        table.add_row(name, law.about, law.needs, law.reach)
    studies = Table(box=None, pad_edge=False, title="Laws of a family", title_justify="left", title_style="bold")
    for name in ("law", "says", "needs"):
        studies.add_column(name, no_wrap=name == "law", overflow="fold")
    for name, study in STUDIES.items():
        studies.add_row(name, study.about, study.needs)
    console = Console(highlight=False)
    console.print(table)
    console.print()
    console.print(studies)


def _read(
    data: list[str],
    table: Path | None,
    fit_on: str | None = None,
    run: str | None = None,
    x: str | None = None,
    loss: str | None = None,
    size: str | None = None,
    seed: str | None = None,
    horizon: str | None = None,
    compute: str | None = None,
    held_out: bool = False,
) -> list[Run]:
    from onecurve.frame import Columns
    from onecurve.ladder import select
    from onecurve.logs import read

    found = read(data, table, Columns(run, x, loss, size, seed, horizon, compute, held_out))
    for warning in found.warnings:
        print(f"onecurve: {warning}", file=sys.stderr)
    return found.runs if fit_on is None else select(found.runs, fit_on)


def _number(flag: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise OnecurveError(
            f"{flag} is {text!r}, which is not a number (it names a column only where runs are given)"
        ) from None


def _planned(
    law: Law,
    size: float | None,
    horizon: float | None,
    schedule: str | None,
    shape: dict[str, float | None],
    settings: dict[str, float | None],
) -> Run:
    """The run that is asked about; what is not told is as in the runs of the fit, where they agree."""
    from pydantic import ValidationError

    from onecurve.laws.law import planned
    from onecurve.schedule import Schedule

    scope = law.scope
    if size is None and law.one_size and scope is not None:
        size = scope.sizes[0]
    if size is None or horizon is None:
        raise OnecurveError("a planned run needs --size and --horizon (or name runs to predict beside their curves)")
    told: dict[str, Any] = {k: v for k, v in ({"shape": schedule} | shape).items() if v is not None}
    shared = None if scope is None or scope.schedule is None or schedule is not None else scope.schedule.model_dump()
    if told and schedule is None and shared is None:
        raise OnecurveError("--warmup, --decay-frac and --final need a --schedule: the fitted runs share none")
    try:
        chosen = Schedule(**(shared or {}) | told) if shared or told else None
    except ValidationError as error:
        first = error.errors()[0]
        words = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            raise OnecurveError(f"--schedule {told.get('shape', '')}: {words}") from None
        where = "--" + str(first["loc"][0]).replace("_", "-").replace("shape", "schedule")
        raise OnecurveError(f"{where} is {first['input']!r}: {words.lower()}") from None
    return planned(size, horizon, chosen, "tokens" if scope is None else scope.unit, **settings)


def _progress(words: str) -> AbstractContextManager[Any]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return nullcontext()
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def shown() -> Any:
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(words, total=1.0)
            yield lambda share: bar.update(task, completed=share)

    return shown()


def _show_curves(law: Law, curves: list[dict[str, Any]]) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from onecurve.run import human

    console = Console(highlight=False)
    for c in curves:
        names = [k for k in ("predicted", "low", "high", "loss") if k in c and not np.all(np.isnan(c[k]))]
        table = Table(
            box=None, pad_edge=False, title=f"{c['run']}, by {c['law']}", title_justify="left", title_style="bold"
        )
        for name in (c["x_name"], *names):
            table.add_column(name, justify="right")
        for k, x in enumerate(c["x"]):
            table.add_row(human(float(x)), *("" if np.isnan(c[n][k]) else f"{c[n][k]:.5g}" for n in names))
        console.print(table)
        for remark in c["remarks"]:
            console.print(f"note: {c['run']}: {remark}")
        console.print()
    if law.band is None:
        console.print("The law has no band: its predictions were not tried on runs left out.")
    else:
        b = law.band
        console.print(f"low and high hold {b.level:.0%} of the points of {b.groups} {b.left_out}s left out in turn.")
    if law.normalised:
        console.print("Losses are over the run's own final loss.")


def _show_score(result: Score) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{result.law}: runs left out of the fit ({result.left_out})",
        box=None, pad_edge=False, title_justify="left", title_style="bold",
    )  # fmt: skip
    for name in ("run", "MAE", "RMSE", "mean", "worst", "end bias", "in band", "±"):
        table.add_column(name, justify="left" if name == "run" else "right", no_wrap=name != "run", overflow="fold")

    def cells(row: Any) -> list[str]:
        inside = "" if np.isnan(row("inside")) else f"{row('inside'):.0%}"
        width = "" if np.isnan(row("half_width")) else f"{row('half_width'):.2%}"
        values = (f"{row('mae'):.2e}", f"{row('rmse'):.2e}", f"{row('mean_relative'):.2%}")
        return [*values, f"{row('worst_relative'):.2%}", f"{row('end_bias'):+.1e}", inside, width]

    for row in result.rows:
        table.add_row(row.run, *cells(lambda what, row=row: getattr(row, what)))
    if len(result.rows) > 1:
        table.add_row("mean", *cells(result.mean), style="bold")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "mean, worst and ± (half-width of the band) are relative; end bias is prediction less loss.", style="dim"
    )
    for warning in result.warnings:
        console.print(f"note: {warning}", style="dim")
