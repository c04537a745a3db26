"""A multiple-choice task that needs no download: which letters go on a piece of the standard library's prose.

The prose is the docstrings and comments of the modules that the corpus of the standard library holds out, so a model
trained on that corpus, byte by byte, has not seen it. Same Python, same items.
"""

from __future__ import annotations

import ast
import hashlib
import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onecurve.data.shards import is_held_out
from onecurve.data.sources import as_bytes, standard_library
from onecurve.store import dumps

CHOICES = 4
CONTEXT, CONTINUATION = 64, 32
"""Characters of a beginning and of what may follow. Most cuts are inside a word, so that spelling tells something too:
a small model knows little else."""
_COMMENTS = re.compile(r"(?:^[ \t]*#.*\n)+", re.MULTILINE)


@dataclass(frozen=True)
class Prose:
    """The items, and what they were made from."""

    source: str
    items: tuple[dict[str, str | int | list[str]], ...]
    """Each with ``context``, ``choices``, and ``gold``, the place of the true one."""


def prose_items() -> Prose:
    """The items of the running Python's standard library.

    Every docstring and block of comments is cut into pieces, each a beginning and its continuation; the three other
    choices are continuations from other texts, as long, drawn by the beginning's SHA-256.
    """
    name, documents = standard_library()
    pieces: dict[str, tuple[str, int]] = {}
    number = 0
    for ids in as_bytes(documents):
        if not is_held_out(ids.astype("<u2").tobytes()):
            continue
        for text in _texts(ids.tobytes().rstrip(b"\0").decode("utf-8", "replace")):
            number += 1
            for context, continuation in _pieces(text):
                pieces.setdefault(context, (continuation, number))
    continuations = np.array([continuation for continuation, _ in pieces.values()])
    of = np.array([text for _, text in pieces.values()])
    items: list[dict[str, str | int | list[str]]] = []
    for context, (truth, text) in pieces.items():
        draw = random.Random(hashlib.sha256(context.encode()).hexdigest())
        others = sorted({str(c) for c in continuations[(of != text) & (continuations != truth)]})
        choices = draw.sample(others, CHOICES - 1)
        gold = draw.randrange(CHOICES)
        choices.insert(gold, truth)
        items.append({"context": context, "choices": choices, "gold": gold})
    digest = hashlib.sha256(dumps(items).encode()).hexdigest()[:12]
    return Prose(f"{name}, {digest}", tuple(items))


def _texts(source: str) -> Iterator[str]:
    """The docstrings and the blocks of comments of a module, words parted by one space."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the parser thinks of an escape in somebody's module
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield " ".join((ast.get_docstring(node) or "").split())
    for block in _COMMENTS.finditer(source):
        yield " ".join(" ".join(line.strip().lstrip("#") for line in block.group().splitlines()).split())


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    whole = CONTEXT + CONTINUATION
    for at in range(0, len(text) - whole + 1, whole):
        yield text[at : at + CONTEXT], text[at + CONTEXT : at + whole]
