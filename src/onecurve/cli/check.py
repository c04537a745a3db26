"""onecurve check: does a recipe do what it promises, before and after it is trained?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecurve.cli import arguments as a
from onecurve.cli.train import needs_torch, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecurve.measure.scaling import Transfer
    from onecurve.plan.family import FamilyCheck

app = typer.Typer(no_args_is_help=True, help="Check a recipe: its family, its activations, its learning rate.")
RecipeFile = Annotated[Path, typer.Argument(help="The recipe, a TOML file.", show_default=False)]
FigureFile = Annotated[Path | None, typer.Option("--figure", help="Write a figure: .png, .svg or .pdf.")]


@app.command("family", no_args_is_help=True)
def family(
    file: Annotated[
        Path, typer.Argument(help="A recipe, or a TOML or CSV file of a family's settings.", show_default=False)
    ],
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON; - for stdout.")] = None,
) -> None:
    """Ought the curves of a family to collapse, and if not, which and why? Trains nothing.

    Of a recipe, also what every size trains with, group by group. Exits with code 1 where a family ought not to.

    [bold]Examples[/bold]

      onecurve check family recipe.toml

      onecurve check family llama-2.toml     (N, D, B, eta, lambda, schedule, warmup of models that there are)
    """
    from onecurve.plan.family import check_family, is_family, read_family

    if is_family(file):
        checks = check_family(read_family(file))
        if json is not None:
            a.write_json(json, {"families": [c.to_dict() for c in checks]})
        if str(json) != "-":
            for c in checks:
                _show_family(c, file)
        if any(c.verdict == "no" for c in checks):
            raise typer.Exit(1)
    else:
        _check_recipe(file, json)


def _show_family(c: FamilyCheck, file: Path) -> None:
    from onecurve.measure.verdict import Rows
    from onecurve.run import human

    def of(value: float | None, show: Callable[[float], str]) -> str:
        return "?" if value is None else show(value)

    rows = [
        (
            r.name, human(r.n_params), human(r.tokens), f"{r.tokens_per_param:.3g}", of(r.batch_tokens, human),
            of(r.timescale, lambda v: f"{v:.3g}"), of(r.warmup, lambda v: f"{100 * v:.2g} %"), r.verdict,
        )
        for r in c.rows
    ]  # fmt: skip
    header = ("model", "N", "D", "D/N", "B", "τ", "warmup", "collapses")
    why = [f"{r.name}: {'; '.join(r.why)}" for r in c.rows if r.why]
    a.show([Rows(c.name or file.stem, header, tuple(rows))], [*why, ""] if why else [])
    for finding in c.findings:
        print(f"{finding.level}: {finding.text}")
    print(
        {
            "yes": "Nothing that shapes a curve differs between the sizes: they ought to collapse.",
            "nearly": "They ought to collapse but for what the warnings name.",
            "no": "They ought not to collapse.",
            "cannot tell": "Cannot tell whether they ought to collapse; what is not recorded may differ.",
        }[c.verdict]
        + "\n"
    )


def _check_recipe(file: Path, json: Path | None) -> None:
    from onecurve.controls import controls, differences
    from onecurve.measure.verdict import Rows
    from onecurve.plan.recipe import groups, jobs, load_recipe
    from onecurve.run import human

    chosen = load_recipe(file)
    all_jobs = jobs(chosen)
    bands = list(dict.fromkeys(j.size.band for j in all_jobs))
    told: list[dict[str, object]] = []
    failed = False
    for parameterisation in chosen.ladder.parameterisations:
        for band in sorted(bands, key=lambda b: b or 0.0):
            members = [
                (j, m)
                for j in all_jobs
                if j.size.band == band
                for m in j.members
                if m.parameterisation == parameterisation
            ]
            sizes: dict[str, list[int]] = {}
            for k, (job, _) in enumerate(members):
                sizes.setdefault(job.size.name or "", []).append(k)
            runs: list[tuple[str, ...]] = []
            applied: list[tuple[str, ...]] = []
            for name, at in sizes.items():
                job, member = members[at[0]]
                c, of = member.config, controls(member.config)
                row = (human(c.n_params), human(c.horizon or 0), f"{of.tokens_per_param:.3g}", f"{job.steps}")
                runs.append((name, *row, f"{job.batch}", f"{of.timescale:.3g}", f"{of.warmup:.3g}", f"{len(at)}"))
                for k, g in enumerate(groups(job, member)):
                    values = (f"{g.learning_rate:.4g}", f"{g.weight_decay:.4g}", f"{g.eps:.3g}", f"{g.timescale:.3g}")
                    applied.append((name if k == 0 else "", g.role, *values, "apart" if g.odd else ""))
            found = differences([m.config for _, m in members])
            failed |= any(f.level == "fails" for f in found)
            title = parameterisation + ("" if band is None else f", {band:g} tokens per parameter")
            told.append({"family": title, "findings": [asdict(f) for f in found]})
            if str(json) == "-":
                continue
            header = ("size", "N", "tokens", "tokens/N", "steps", "batch", "τ", "warmup", "runs")
            each = ("size", "group", "peak rate", "weight decay", "ε", "τ", "")
            a.show([Rows(title, header, tuple(runs)), Rows("Groups, as applied", each, tuple(applied))])
            if any(row[-1] for row in applied):
                print("apart: its timescale τ differs from the hidden matrices'.")
            if not found:
                print("Nothing that shapes a curve differs between the sizes: they ought to collapse.")
            for finding in found:
                print(f"{finding.level}: {finding.text}")
            print()
    if json is not None:
        a.write_json(json, {"families": told})
    if failed:
        raise typer.Exit(1)


@app.command("coordinates", no_args_is_help=True)
def coordinates(
    recipe: RecipeFile,
    figure: FigureFile = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds a shape.")] = 3,
    work: Annotated[Path, typer.Option("--work", help="Folder for the corpus, where it is prepared first.")] = Path(
        "check"
    ),
) -> None:
    """Do activations keep their scale as models grow? Trains a few steps at four widths and four depths.

    [bold]Example[/bold]

      onecurve check coordinates recipe.toml --figure coordinates.png
    """
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from onecurve.data.shards import open_shards
    from onecurve.errors import OnecurveError
    from onecurve.measure.scaling import BAND
    from onecurve.plan.recipe import TokenTask, load_recipe
    from onecurve.plan.shape import TransformerModel

    chosen = load_recipe(needs_torch(recipe))
    model = chosen.model
    if not isinstance(chosen.task, TokenTask) or not isinstance(model, TransformerModel):
        raise OnecurveError(f"{recipe}: check coordinates looks inside transformers; model.kind is {model.kind!r}")
    from onecurve.train.ladder import with_data
    from onecurve.train.probe import STEPS
    from onecurve.train.probe import coordinates as measure
    from onecurve.train.tokens import TokenStream

    chosen = with_data(chosen, work)
    assert isinstance(chosen.task, TokenTask) and chosen.task.data is not None
    stream = TokenStream(open_shards(Path(chosen.task.data), model.vocabulary), model.context)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"{STEPS} steps each", total=1.0)
        results = measure(chosen, stream, seeds, lambda share: bar.update(task, completed=share))
    console = Console(highlight=False)
    for c in results:
        title = f"{chosen.ladder.parameterisations[0]}, against {c.axis} {', '.join(f'{v:g}' for v in c.sizes)}"
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for name in ("activation", "slope", "90 % interval", f"within ±{BAND:g}"):
            table.add_column(name, justify="left" if name == "activation" else "right")
        for kind, slope in c.slopes.items():
            words = "yes" if c.passes[kind] else "NO"
            table.add_row(kind, f"{slope.value:+.2f}", f"{slope.low:+.2f} to {slope.high:+.2f}", words)
        console.print(table)
        console.print()
    if figure is not None:
        from onecurve.report.scaling import save_coordinates

        with a.writing(figure):
            save_coordinates(figure, results)
    failed = [f"{kind} against {c.axis}" for c in results for kind, ok in c.passes.items() if not ok]
    if failed:
        print(f"Fails: {', '.join(failed)}. These grow or shrink with size, so a learning rate will not carry over.")
        raise typer.Exit(1)
    print("Passes: activations keep their scale in width and in depth.")


@app.command("transfer", no_args_is_help=True)
def transfer(
    data: Annotated[
        list[Path], typer.Argument(help="A recipe to sweep, or the runs of a sweep over rates.", show_default=False)
    ],
    figure: FigureFile = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the sweep's runs.")] = Path("sweep"),
    rates: Annotated[int, typer.Option(min=4, help="Rates a size, a factor 2 apart around the recipe's.")] = 5,
    runs: a.Runs = None,
    loss: a.LossColumn = None,
) -> None:
    """Is the best learning rate the same at every size? Trains each size at several rates, or reads runs that did.

    [bold]Examples[/bold]

      onecurve check transfer recipe.toml -o sweep --figure transfer.png

      onecurve check transfer sweep/runs
    """
    from onecurve.logs import read
    from onecurve.measure.scaling import transfer as measure

    paths = data
    if len(data) == 1 and data[0].suffix == ".toml":
        from onecurve.plan.recipe import load_recipe

        recipe = load_recipe(needs_torch(data[0]))
        from onecurve.train.probe import sweep

        train(sweep(recipe, [2.0 ** (k - (rates - 1) / 2) for k in range(rates)]), out)
        paths = [out / "runs"]
    results = measure(read(paths, runs).runs, loss)
    _show(results)
    if figure is not None:
        from onecurve.report.scaling import save_transfer

        with a.writing(figure):
            save_transfer(figure, results)


def _show(results: list[Transfer]) -> None:
    from rich.console import Console
    from rich.table import Table

    from onecurve.run import human

    console = Console(highlight=False)
    for result in results:
        table = Table(title=result.name, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for name in ("N", "best base rate", "90 % interval", "rates", "seeds"):
            table.add_column(name, justify="right")
        for s in result.sizes:
            best = f"beyond the {s.edge} end of the grid" if s.edge else f"{s.value:.3g}"
            interval = "" if s.edge else f"{s.low:.3g} to {s.high:.3g}"
            table.add_row(human(s.n_params), best, interval, str(s.rates.size), str(s.losses.shape[1]))
        console.print(table)
        value, low, high = result.ratio
        over = f"the largest size's best rate over the smallest's is {value:.2f} ({low:.2f} to {high:.2f})"
        words = {
            "same": f"The best rate carries: {over}.",
            "differs": f"The best rate moves with size: {over}.",
            "cannot tell": f"Cannot tell: {over}; more seeds or rates closer together would.",
        }
        print(words[result.verdict].replace("nan (nan to nan)", "not known, a best rate lies beyond the grid") + "\n")
