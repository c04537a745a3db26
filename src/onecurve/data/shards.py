"""Token shards: a folder with a manifest and memory-mapped files of token ids.

``manifest.json`` names the files of the training and the held-out part (little-endian uint16 or uint32 ids, one after
the other), how many tokens each has, the ids that are never a target, the source, and the SHA-256 of all ids.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onecurve.errors import OnecurveError
from onecurve.store import dumps, new_folder, write_atomic

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
"""The tokenizers file that the corpus was made with; a corpus of bytes has none."""
HELD_OUT_SHARE = 50
"""One document in so many is held out."""
Ids = NDArray[np.uint16] | NDArray[np.uint32]
_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Shards:
    """The token ids of a prepared corpus, mapped, not read."""

    path: Path
    training: Ids
    held_out: Ids
    ignored: tuple[int, ...]
    """Ids that are never a target: padding, or a separator."""
    vocabulary: int
    """One more than the largest id."""
    identity: str
    """SHA-256 over all token ids."""
    source: str


def write_shards(
    out: Path,
    documents: Iterable[NDArray[np.integer]],
    source: str,
    vocabulary: int,
    ignored: Iterable[int] = (),
    tokenizer: Path | None = None,
) -> Shards:
    """Write documents of token ids as shards; one in fifty, chosen by its content, is held out.

    A copy of a document is held out with it, so no held-out text was trained on. ``vocabulary`` is one more than the
    largest id that may come; ``tokenizer``, the file that made the ids, is kept beside them. The folder appears whole
    or not at all; one that is there already is an error.
    """
    dtype = np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")
    with new_folder(out) as part:
        counts = {"training": 0, "held_out": 0}
        digests = {name: hashlib.sha256() for name in counts}
        files = {name: (part / f"{name}.bin").open("wb") for name in counts}
        try:
            for document in documents:
                data = document.astype(dtype).tobytes()
                name = "held_out" if is_held_out(data) else "training"
                files[name].write(data)
                digests[name].update(data)
                counts[name] += len(document)
        finally:
            for file in files.values():
                file.close()
        if not counts["training"]:
            raise OnecurveError(f"{source}: no tokens; there is nothing to train on")
        manifest = {
            "dtype": "uint16" if dtype.itemsize == 2 else "uint32",
            **{name: {"file": f"{name}.bin", "tokens": counts[name]} for name in counts},
            "vocabulary": vocabulary,
            "ignored": sorted(ignored),
            "source": source,
            "sha256": hashlib.sha256(b"".join(d.digest() for d in digests.values())).hexdigest(),
        }
        if tokenizer is not None:
            shutil.copyfile(tokenizer, part / TOKENIZER)
        write_atomic(part / MANIFEST, dumps(manifest) + "\n")
    return open_shards(out)


def is_held_out(data: bytes) -> bool:
    """Whether a document is held out, by its token ids as they stand in a shard."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little") % HELD_OUT_SHARE == 0


def open_shards(path: Path, vocabulary: int | None = None) -> Shards:
    """Open a prepared corpus. Raises OnecurveError for ids beyond a model's vocabulary, by file and offset."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        if manifest["dtype"] not in ("uint16", "uint32"):
            raise ValueError(f"dtype {manifest['dtype']!r}; accepted are uint16 and uint32")
        dtype = np.dtype("<u2" if manifest["dtype"] == "uint16" else "<u4")
        out: dict[str, Ids] = {}
        for name in ("training", "held_out"):
            tokens, file = int(manifest[name]["tokens"]), path / str(manifest[name]["file"])
            if file.stat().st_size != tokens * dtype.itemsize:
                raise OnecurveError(
                    f"{file}: has {file.stat().st_size} bytes, but {MANIFEST} says {tokens} tokens of "
                    f"{dtype.itemsize}; prepare the corpus again"
                )
            out[name] = np.memmap(file, dtype, mode="r") if tokens else np.empty(0, dtype)
            if vocabulary is not None:
                _check_vocabulary(file, out[name], vocabulary)
        return Shards(
            path,
            out["training"],
            out["held_out"],
            tuple(manifest["ignored"]),
            manifest["vocabulary"],
            manifest["sha256"],
            manifest["source"],
        )
    except OnecurveError:
        raise
    except OSError as error:
        raise OnecurveError(
            f"{error.filename or path}: {error.strerror}; task.data is a folder that `onecurve data prepare` wrote"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise OnecurveError(
            f"{path / MANIFEST}: not a manifest of token shards ({type(error).__name__}: {error})"
        ) from None


def _check_vocabulary(file: Path, ids: Ids, vocabulary: int) -> None:
    if vocabulary > np.iinfo(ids.dtype).max:
        return
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        if part.max() >= vocabulary:
            at = start + int(np.argmax(part >= vocabulary))
            raise OnecurveError(
                f"{file}: token id {ids[at]} at offset {at} is beyond model.vocabulary {vocabulary}; "
                f"give a vocabulary of at least {int(ids.max()) + 1}"
            )
