"""Settings that tools keep beside a log, in files of their own. Only plain values are read, nothing is executed."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

import yaml

from onecurve.logs.log import flat
from onecurve.run import Setting

LARGEST_HEADER = 100_000_000
"""Bytes; the safetensors format's own limit."""


class _Untagged(yaml.SafeLoader):
    """Plain values; nothing where a tag asks for an object, as for a tuple or a path, which others stand beside."""


_Untagged.add_multi_constructor("", lambda loader, tag, node: None)


def lightning(folder: Path) -> dict[str, Setting]:
    """What Lightning keeps in hparams.yaml; no tag is followed."""
    file = folder / "hparams.yaml"
    try:
        return flat(yaml.load(_plain(file).decode(errors="replace"), _Untagged))
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: of a date that there is not
        return {}


def hugging_face(folder: Path) -> dict[str, Setting]:
    """The model's config.json, and its parameters counted from the headers of its safetensors files.

    The Trainer's own arguments are kept as a pickle, which is not opened.
    """
    settings: dict[str, Setting] = {}
    try:
        settings |= flat(json.loads(_plain(folder / "config.json") or b"{}"))
    except (ValueError, RecursionError):
        pass
    counted = sum(_parameters(file) for file in sorted(folder.glob("*.safetensors")) if not file.is_symlink())
    return settings | ({"n_params": counted} if counted else {})


def _plain(file: Path) -> bytes:
    """What is in a file; nothing where there is none, or a link."""
    try:
        return b"" if file.is_symlink() or not file.is_file() else file.read_bytes()
    except OSError:
        return b""


def _parameters(file: Path) -> int:
    """Elements of all tensors in a safetensors file, by its header; 0 where that cannot be read."""
    try:
        with file.open("rb") as opened:
            (size,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(size)) if size <= LARGEST_HEADER else {}
        return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 0
