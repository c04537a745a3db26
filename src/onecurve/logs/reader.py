"""The contract of a reader: one format, claimed by content and read into logs.

A module with the names of `Reader` is a reader, and so is any object with them. Readers of other packages are found by
the entry point group ``onecurve.readers``; `onecurve.logs.testing` holds a reader against the contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from onecurve.errors import OnecurveError
from onecurve.logs.log import Log

HEAD = 16 * 1024
"""Bytes of a file that a reader is shown to claim it."""
MODULES = (
    "tensorboard",
    "databases",
    "mlflow_files",
    "wandb",
    "wandb_csv",
    "huggingface",
    "olmo",
    "jsonl",
    "csvlog",
    "console",
)
"""The readers of this package, in the order in which they are asked."""
GROUP = "onecurve.readers"


class Reader(Protocol):
    """One format of logs."""

    FORMAT: str
    """Its name, as tables show it."""

    def claims(self, path: Path, head: bytes) -> bool:
        """Whether a file is of this format, by its content (``head``: the first 16 KiB) and name."""
        ...

    def place(self, path: Path) -> Path:
        """What a file is part of: files of one place are read together. The file itself, or a folder of its run."""
        ...

    def read(self, paths: Sequence[Path]) -> list[Log]:
        """All runs in the claimed files of one place; none where they turn out to hold no curve at all.

        Only reads, never writes beside its source. A torn end is normal and counted; anything else that is damaged
        raises OnecurveError naming the file, what is wrong and the next step.
        """
        ...


@runtime_checkable
class Tailed(Protocol):
    """A format to which writers only append, so that it can be read on from where it was left."""

    def tail(self, path: Path, offset: int) -> tuple[list[Log], int]:
        """What whole records follow a byte offset, and the offset after them; a torn tail is kept back."""
        ...


@cache
def readers() -> tuple[Reader, ...]:
    """All readers: those of other packages first, because they know their own formats best."""
    outside: list[Reader] = []
    for entry in entry_points(group=GROUP):
        try:
            outside.append(cast(Reader, entry.load()))
        except Exception as error:  # a broken package of someone else must not end the reading of other logs
            raise OnecurveError(f"the reader {entry.name!r} of another package cannot be loaded: {error}") from error
    return (*outside, *(cast(Reader, import_module(f"onecurve.logs.{name}")) for name in MODULES))


def claimant(path: Path) -> Reader | None:
    """The reader of a file; None for an empty file and for one that no reader knows."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return next((reader for reader in readers() if reader.claims(path, head)), None) if head else None
