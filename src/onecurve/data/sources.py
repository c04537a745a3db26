"""Where documents come from, and how they become token ids. Every source is an iterator; nothing is held whole."""

from __future__ import annotations

import io
import platform
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecurve.errors import OnecurveError, optional

SEPARATOR = 0
"""The byte between documents: no text has it."""
Encode = Callable[[str], NDArray[np.integer]]


def standard_library() -> tuple[str, Iterator[bytes]]:
    """The sources of the running Python's own standard library, by path, and their name with its version."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(
        path
        for path in root.rglob("*.py")
        if not {"site-packages", "dist-packages", "__pycache__"} & set(path.relative_to(root).parts)
    )
    return f"standard library of Python {platform.python_version()}", (path.read_bytes() for path in files)


def text_files(paths: Sequence[Path]) -> Iterator[bytes]:
    """The files that were named, and all files under the folders that were named, by path; one document each."""
    for path in paths:
        if not path.exists():
            raise OnecurveError(f"{path}: no such file or folder")
        for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
            yield file.read_bytes()


def as_bytes(documents: Iterable[bytes]) -> Iterator[NDArray[np.uint8]]:
    """Each document's bytes and a separator. NUL bytes inside a document are dropped: they are the separator."""
    for document in documents:
        yield np.frombuffer(document.replace(b"\0", b"") + bytes([SEPARATOR]), np.uint8)


def tokenizer(path: Path) -> tuple[Encode, int]:
    """A Hugging Face tokenizers file (tokenizer.json) as a function from text to ids, and its vocabulary size.

    Its end-of-text token, if it has one, ends each document.
    """
    library = optional("tokenizers", "tokenizer files", "data")
    try:
        loaded = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise OnecurveError(f"{path}: not a tokenizers file ({error})") from None
    end = end_of_text(loaded)

    def encode(text: str) -> NDArray[np.integer]:
        ids = loaded.encode(text, add_special_tokens=False).ids
        return np.array(ids if end is None else [*ids, end[1]], dtype=np.uint32)

    return encode, int(loaded.get_vocab_size())


def end_of_text(loaded: Any) -> tuple[str, int] | None:
    """The token of a tokenizer that ends a text, and its id, where it has one of the usual names."""
    ids = {name: loaded.token_to_id(name) for name in ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>")}
    return next(((name, i) for name, i in ids.items() if i is not None), None)


def hugging_face(name: str, split: str, column: str) -> Iterator[str]:
    """The texts of a Hugging Face dataset, streamed: a name on the hub, or a folder or file that `datasets` reads."""
    datasets = optional("datasets", "Hugging Face datasets", "data")
    path = Path(name)
    kinds = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
    try:
        if path.is_file() and path.suffix in kinds:
            rows: Any = datasets.load_dataset(kinds[path.suffix], data_files=str(path), split=split, streaming=True)
        else:
            rows = datasets.load_dataset(name, split=split, streaming=True)
        for number, row in enumerate(rows):
            if column not in row:
                raise OnecurveError(
                    f"{name}: row {number} has no column {column!r}; it has {', '.join(row)} (--column)"
                )
            yield row[column]
    except OnecurveError:
        raise
    except Exception as error:  # the library's errors have no common kind
        raise OnecurveError(f"{name}: datasets could not load it ({type(error).__name__}: {error})") from None


GREY_SIZE = 32 * 32
IMAGE_START = 256


def cifar5m(paths: Sequence[Path]) -> Iterator[NDArray[np.uint16]]:
    """CIFAR-5M's npz parts as grey pixels: a start token (256) and the channel means of 32 x 32 pixels, row by row."""
    for path in paths:
        try:
            with np.load(path, allow_pickle=False) as part:
                images = part["X"]
        except (OSError, ValueError, KeyError) as error:
            raise OnecurveError(f"{path}: not a part of CIFAR-5M, an npz with images X ({error})") from None
        if images.ndim != 4 or images.shape[1:] != (32, 32, 3):
            raise OnecurveError(f"{path}: X has shape {images.shape}; expected (images, 32, 32, 3)")
        for some in np.array_split(images, max(1, len(images) // 4096)):
            grey = np.round(some.mean(axis=3)).astype(np.uint16).reshape(len(some), GREY_SIZE)
            start = np.full((len(some), 1), IMAGE_START, np.uint16)
            yield from np.hstack([start, grey])


def pgn_games(paths: Sequence[Path]) -> Iterator[bytes]:
    """The games of Lichess PGN files (.pgn, or compressed .zst) as text: ratings, then moves without comments."""
    for path in paths:
        with _opened(path) as file:
            tags: dict[str, str] = {}
            moves: list[str] = []
            for line in file:
                line = line.strip()
                if line.startswith("["):
                    if moves:
                        yield _game(tags, moves)
                        tags, moves = {}, []
                    key, _, value = line.strip("[]").partition(" ")
                    tags[key] = value.strip('"')
                elif line:
                    moves.append(line)
            if moves:
                yield _game(tags, moves)


def _game(tags: dict[str, str], moves: list[str]) -> bytes:
    import re

    text = re.sub(r"\{[^}]*\}|\d+\.\.\.", " ", " ".join(moves))
    ratings = f"{tags.get('WhiteElo', '?')} {tags.get('BlackElo', '?')} "
    return (ratings + " ".join(text.split())).encode("ascii", "replace")


def _opened(path: Path) -> io.TextIOBase:
    try:
        if path.suffix != ".zst":
            return path.open(encoding="utf-8", errors="replace")
        zstandard = optional("zstandard", f"compressed files ({path})", "data")
        stream = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), closefd=True)
        return io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
    except OSError as error:
        raise OnecurveError(f"{path}: {error.strerror}") from None
