"""onecurve export: a trained run as a folder that other programs load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecurve.cli import arguments as a
from onecurve.cli.train import needs_torch
from onecurve.errors import OnecurveError


def command(
    run: Annotated[Path, typer.Argument(help="The run directory of a transformer.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="A new folder.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="huggingface: for transformers.")] = "huggingface",
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="FILE|bytes", help="The tokenizers file; by default what the corpus was prepared with."),
    ] = None,
) -> None:
    """Write a run's weights, configuration, tokenizer and the model's code; its logits stay the same.

    [bold]Example[/bold]

      onecurve export ladder/runs/completep-420K-seed-0 exported --to huggingface
    """
    needs_torch(run)
    from onecurve.train.export import FORMATS, export_huggingface

    if to not in FORMATS:
        raise OnecurveError(f"--to is {to!r}; accepted: {', '.join(FORMATS)}")
    with a.writing(out):
        trained = export_huggingface(run, out, tokenizer)
    if trained.step < trained.job.steps:
        print(f"note: training has not ended: these are the weights of step {trained.step} of {trained.job.steps}")
    print(f"{trained.member.config.name} is in {out}. To load it:")
    print(f'  AutoModelForCausalLM.from_pretrained("{out}", trust_remote_code=True)')
    print(f'  AutoTokenizer.from_pretrained("{out}")')
