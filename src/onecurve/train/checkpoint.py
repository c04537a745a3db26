"""Checkpoints: a folder a step, whole or not there at all, readable on any number of devices.

::

    <folder>/step-00000120/     torch's distributed format (one file a rank and .metadata), tensors only
                           identity.json    what was trained; a checkpoint of another recipe is refused

A checkpoint is written beside, flushed to disk, and then renamed: whoever is killed meanwhile leaves a ``.part``
folder, which the next one removes.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed.checkpoint as _dcp
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from onecurve.errors import OnecurveError
from onecurve.store import dumps, write_atomic
from onecurve.train.devices import World

dcp: Any = _dcp  # its names are public, but not exported as a type checker wants
KEEP = 2
"""Checkpoints that are kept, the newest."""
IDENTITY = "identity.json"


def save(folder: Path, step: int, state: dict[str, Any], identity: dict[str, Any], world: World) -> None:
    """Write the tensors of ``state`` (a nested dict) as the checkpoint of a step; older ones beyond `KEEP` go."""
    path = folder / f"step-{step:08d}"
    if world.agree(path.is_dir()):
        return
    part = path.with_suffix(".part")
    if world.first:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    world.barrier()
    writer = dcp.FileSystemWriter(part, single_file_per_rank=True, sync_files=True)
    with _quiet():
        dcp.save(state, storage_writer=writer, no_dist=world.size == 1)
    if world.first:
        write_atomic(part / IDENTITY, dumps(identity))
        _flush_folder(part)
        part.rename(path)
        _flush_folder(folder)
        for old in _steps(folder)[:-KEEP]:
            shutil.rmtree(folder / f"step-{old:08d}")
    world.barrier()


def latest(folder: Path) -> int | None:
    """The step of the newest checkpoint, if there is one."""
    steps = _steps(folder)
    return steps[-1] if steps else None


def load(folder: Path, step: int, state: dict[str, Any], world: World) -> None:
    """Read the checkpoint of a step into the tensors of ``state``, in place."""
    path = folder / f"step-{step:08d}"
    try:
        with _quiet():
            dcp.load(state, storage_reader=_Reader(path), no_dist=world.size == 1)
    except (dcp.CheckpointException, pickle.UnpicklingError, RuntimeError, OSError, EOFError, KeyError) as error:
        words = str(error).strip().splitlines()
        raise OnecurveError(
            f"{path}: cannot be read ({words[-1] if words else type(error).__name__}); "
            "delete it to go on from the one before"
        ) from None


def check_identity(folder: Path, step: int, identity: dict[str, Any]) -> None:
    """Raise OnecurveError, naming what differs, where a checkpoint is not of the same job."""
    path = folder / f"step-{step:08d}"
    saved = read_identity(folder, step)
    wanted = json.loads(dumps(identity))
    if saved != wanted:
        differ = [_difference(key, saved.get(key), wanted.get(key)) for key in wanted if saved.get(key) != wanted[key]]
        raise OnecurveError(
            f"{path}: this checkpoint belongs to another recipe ({'; '.join(differ) or 'an older format'}); "
            "train into another folder, or delete this one"
        )


def read_identity(folder: Path, step: int) -> dict[str, Any]:
    """What was trained, as the checkpoint of a step says it."""
    path = folder / f"step-{step:08d}" / IDENTITY
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise OnecurveError(
            f"{path}: cannot be read ({error}); delete its folder to go on from the one before"
        ) from None


def _difference(key: str, saved: Any, wanted: Any) -> str:
    if isinstance(saved, dict) and isinstance(wanted, dict):
        inner = [k for k in wanted if saved.get(k) != wanted[k]]
        return ", ".join(f"{key}.{k} was {saved.get(k)!r}, now {wanted[k]!r}" for k in inner) or key
    return f"{key} was {saved!r}, now {wanted!r}"


def _steps(folder: Path) -> list[int]:
    names = [p.name for p in folder.glob("step-*") if p.suffix != ".part"]
    return sorted(int(name.removeprefix("step-")) for name in names if name.removeprefix("step-").isdigit())


@contextmanager
def _quiet() -> Generator[None]:
    """torch warns where it saves for one process, which is what is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _TensorsOnly(pickle.Unpickler):
    """torch keeps the index of a checkpoint as a pickle; this reads one that names nothing but tensors' places."""

    _MODULES = frozenset({"torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"})
    _NAMES = frozenset({("torch", "Size"), ("torch.serialization", "_get_layout"), ("pathlib", "PosixPath")})

    def find_class(self, module: str, name: str) -> Any:
        if module in self._MODULES and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ in self._MODULES:
                return found
        elif (module, name) in self._NAMES:
            return super().find_class(module, name)
        elif module == "torch" and isinstance(getattr(torch, name, None), (torch.dtype, torch.memory_format)):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"its index names {module}.{name}, which no checkpoint of ours does")


class _Reader(dcp.FileSystemReader):
    """torch's reader, with an index that cannot run code and entries that are tensors only."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata = cast(Metadata, _TensorsOnly(file).load())
        for name, entry in metadata.state_dict_metadata.items():
            if not isinstance(entry, TensorStorageMetadata):
                raise pickle.UnpicklingError(f"its entry {name} is no tensor")
        if getattr(metadata, "storage_meta", None) is None:
            from torch.distributed.checkpoint.metadata import StorageMeta

            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id  # type: ignore[union-attr]
        return metadata
