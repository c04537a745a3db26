"""onecurve plan: a recipe in, every rung's settings and cost out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError


def command(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="LADDER.toml", help="Write the resolved recipe, which onecurve train takes."
        ),
    ] = None,
    utilisation: Annotated[float, typer.Option(help="Share of the peak that training reaches.")] = 0.4,
    peak: Annotated[
        float, typer.Option(metavar="TFLOP/s", help="Peak of one device; the default is an H100's in bfloat16, dense.")
    ] = 989.0,
    trade_off: Annotated[
        bool, typer.Option("--trade-off", help="Also: fewer parameters for more tokens, at equal loss.")
    ] = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Write the trade-off as a figure (png, svg, pdf).")
    ] = None,
    least_steps: Annotated[int, typer.Option(min=1, help="Refuse rungs of fewer steps.")] = 200,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Write the tables as Markdown; - for stdout.")
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON; - for stdout.")] = None,
) -> None:
    """Every rung of a family: shape, tokens, batch, rates, decay, timescale, cost. Trains nothing.

    Sizes are given by shape or name, or by parameter counts and an aspect rule (ladder.params, ladder.aspect).

    [bold]Examples[/bold]

      onecurve plan recipe.toml -o ladder.toml && onecurve train ladder.toml

      onecurve plan recipe.toml --utilisation 0.5 --peak 312 --markdown plan.md
    """
    from onecurve.plan.recipe import dump_recipe, load_recipe, resolve
    from onecurve.plan.rungs import rungs
    from onecurve.plan.words import markdown as as_markdown
    from onecurve.plan.words import remarks, tables
    from onecurve.store import write_atomic

    if not 0 < utilisation <= 1:
        raise OnecurveError(f"--utilisation is {utilisation:g}; accepted is a share above 0 and up to 1")
    if not 0 < peak < float("inf"):
        raise OnecurveError(f"--peak is {peak:g}; accepted is a device's TFLOP/s, above 0")
    chosen = load_recipe(recipe)
    try:
        planned = rungs(chosen, least_steps)
    except OnecurveError as error:
        raise OnecurveError(f"{recipe}: {error}") from None
    flops = 1e12 * peak
    rows, lines = tables(planned, flops, utilisation), remarks(chosen, planned, flops, utilisation)
    bands = sorted({r.band or r.tokens_per_param for r in planned})
    if trade_off:
        from onecurve.plan.compression import EXPONENT, OPTIMAL
        from onecurve.plan.compression import trade_off as table

        rows.append(table(bands))
        lines.append(
            f"Trade-off: over the compute-optimal model of {OPTIMAL:g} tokens a parameter, k_D = (2 - k_N^-a)^(-1/a) "
            f"with a = {EXPONENT:g} (arXiv 2509.25087, appendix C.1)."
        )
    if figure is not None:
        from onecurve.report.plan import save_trade_off

        with a.writing(figure):
            save_trade_off(figure, bands)
    if out is not None:
        with a.writing(out):
            write_atomic(out, dump_recipe(resolve(chosen)))
    if markdown is not None:
        text = as_markdown(rows, lines)
        if str(markdown) == "-":
            print(text, end="")
        else:
            with a.writing(markdown):
                write_atomic(markdown, text)
    if json is not None:
        each = [r.to_dict() | {"device_hours": r.seeds * r.hours(flops, utilisation)} for r in planned]
        a.write_json(json, {"rungs": each, "peak_flops": flops, "utilisation": utilisation, "remarks": lines})
    if "-" not in (str(markdown), str(json)):
        a.show(rows, lines)
