"""onecurve data: corpora into token shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecurve.cli import arguments as a
from onecurve.errors import OnecurveError

app = typer.Typer(no_args_is_help=True, help="Prepare corpora for training.")
KINDS = ("stdlib", "text", "hf", "cifar5m", "pgn")


@app.callback()
def _data() -> None:
    """Prepare corpora for training."""


@app.command("prepare", no_args_is_help=True)
def prepare(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.", show_default=False)],
    sources: Annotated[
        list[str] | None, typer.Argument(help="Files or folders; for hf a dataset's name or file.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the shards.")] = Path("data"),
    tokenizer: Annotated[
        Path | None, typer.Option(help="A Hugging Face tokenizers file; by default every byte is a token.")
    ] = None,
    split: Annotated[str, typer.Option(help="hf: the split.")] = "train",
    column: Annotated[str, typer.Option(help="hf: the column of the text.")] = "text",
) -> None:
    """Write token shards: one document in fifty is held out, chosen by its content.

    stdlib: the running Python's standard library. text: files and folders. hf: a Hugging Face dataset, streamed.
    cifar5m: npz parts as grey pixels (vocabulary 257, context 1025). pgn: Lichess games, also .zst, as characters.

    [bold]Examples[/bold]

      onecurve data prepare stdlib -o corpus

      onecurve data prepare text books/ --tokenizer tokenizer.json -o corpus

      onecurve data prepare hf roneneldan/TinyStories -o corpus
    """
    import itertools

    from onecurve.data import sources as of
    from onecurve.data.shards import write_shards

    if kind not in KINDS:
        raise OnecurveError(f"{kind!r} is no kind of corpus; accepted are {', '.join(KINDS)}")
    given = sources or []
    if (kind == "stdlib") == bool(given):
        raise OnecurveError(f"data prepare {kind} takes {'no sources' if kind == 'stdlib' else 'at least one source'}")
    if tokenizer is not None and kind == "cifar5m":
        raise OnecurveError("cifar5m is pixels; it takes no tokenizer")
    name = f"{kind}: {', '.join(given)}"
    paths = [Path(s) for s in given]
    with a.writing(out):
        if kind == "cifar5m":
            shards = write_shards(out, of.cifar5m(paths), name, of.IMAGE_START + 1, ignored=[of.IMAGE_START])
        else:
            if kind == "stdlib":
                name, texts = of.standard_library()
            elif kind == "text":
                texts = of.text_files(paths)
            elif kind == "pgn":
                texts = of.pgn_games(paths)
            else:
                rows = (of.hugging_face(source, split, column) for source in given)
                texts = (text.encode() for text in itertools.chain.from_iterable(rows))
            if tokenizer is None:
                ignored = [of.SEPARATOR] if kind == "pgn" else []
                shards = write_shards(out, of.as_bytes(texts), name, vocabulary=256, ignored=ignored)
            else:
                encode, size = of.tokenizer(tokenizer)
                ids = (encode(text.decode("utf-8", "replace")) for text in texts)
                shards = write_shards(out, ids, f"{name}, {tokenizer.name}", size, tokenizer=tokenizer)
    print(f"{shards.source}: {len(shards.training):,} training tokens and {len(shards.held_out):,} held out in {out}")
    print(f"Vocabulary {shards.vocabulary}; SHA-256 {shards.identity}")
    print(f'In a recipe:  [task] kind = "tokens", data = "{out}"')
