"""onecurve evaluate: trained models in, their scores on downstream tasks and on held-out text beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError


def command(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="Run directories, folders of models for transformers, folders of these.",
            show_default=False,
            metavar="RUN|DIR",
        ),
    ],
    tasks: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="celerity7, bits_per_byte, stdlib_prose, tasks of lm-eval; task:5 for shots."
        ),
    ] = "bits_per_byte",
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Text (or a folder) for bits_per_byte; default: what the run held out."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="FILE|bytes", help="The tokenizers file; by default the model's, or its corpus's."),
    ] = None,
    tokens: Annotated[
        float | None, typer.Option(metavar="D", help="Training tokens of a model from elsewhere, for its 6 N D.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="The first N examples of each task alone, to try.", min=1)
    ] = None,
) -> None:
    """Score trained models with EleutherAI's lm-eval, and by their bits per byte of held-out text.

    Every score is written as it is known, into scores/TASK.json of the model's folder, with its standard error; the
    same command goes on where it was stopped. celerity7 is seven tasks with the shots of arXiv 2509.25087.

    [bold]Examples[/bold]

      onecurve evaluate ladder/runs --tasks celerity7,bits_per_byte

      onecurve evaluate ladder/runs/completep-420K-seed-0 --tasks lambada_openai,hellaswag:5

      onecurve evaluate exported --tasks bits_per_byte --text book.txt

    then

      onecurve frontier ladder/runs --score bits_per_byte
    """
    import os
    import sys
    from importlib.util import find_spec

    from onecurve.scores.suites import tasks_of

    told = tasks_of(tasks)
    missing = [name for name in ("torch", "transformers", "lm_eval") if find_spec(name) is None]
    if missing:
        raise OnecurveError(
            f"evaluations need {' and '.join(missing)}, not installed: pip install 'onecurve[evaluate]'"
        )
    if tokens is not None and not tokens > 0:
        raise OnecurveError(f"--tokens is {tokens:g}; give the number of training tokens, above 0")
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # the harness draws bars; it has to be told before it is imported
    from onecurve.train.evaluate import evaluate

    def tell(model: str, task: str, words: str) -> None:
        print(f"{model}  {task}  {words}", flush=True)

    with a.writing(models[0]):
        evaluate(models, told, tell, text=text, tokenizer=tokenizer, tokens=tokens, limit=limit)
