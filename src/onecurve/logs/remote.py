"""Addresses in place of paths: W&B's cloud, MLflow servers, and files on object stores."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from onecurve.errors import OnecurveError, optional
from onecurve.logs import mlflow_server, wandb_cloud
from onecurve.logs.discover import Found, discover
from onecurve.logs.tables import TABLES, read_table
from onecurve.store import read_run

WEIGHTS = (
    ".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".distcp", ".npz", ".npy", ".pkl", ".gguf", ".h5", ".msgpack",
    ".zst", ".png", ".jpg", ".mp4", ".tar", ".gz", ".zip",
)  # fmt: skip
"""Endings of files that are no logs and may be large: they are not fetched."""
SCHEME = re.compile(r"(mlflow\+)?[a-z][a-z0-9.-]*(::[a-z][a-z0-9.-]*)*://")
"""A scheme, or several that fsspec chains. A plus is part of MLflow's only, elsewhere it joins parts of a run."""


def is_address(path: str) -> bool:
    """Whether a path names one place elsewhere: it begins with a scheme, and no other follows a plus."""
    scheme = SCHEME.match(path)
    return scheme is not None and not any(SCHEME.match(part) for part in path[scheme.end() :].split("+")[1:])


def find(address: str) -> Found:
    """What an address holds. Object stores go through fsspec (s3://, gs://, abfs://, hf://, http://, ...)."""
    scheme = address.partition("://")[0]
    if scheme == wandb_cloud.SCHEME:
        logs, problems = wandb_cloud.read(address)
        return Found(logs=logs, problems=problems)
    if scheme in mlflow_server.SCHEMES:
        return Found(logs=mlflow_server.read(address))
    address = address.rstrip("/") if not address.endswith("://") else address
    folder = Path(tempfile.mkdtemp(prefix="onecurve-"))
    local = folder
    try:
        local = _fetched(address, folder)
        found = discover(local)
        _check(address, local, found)
    except OnecurveError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise _elsewhere(error, local, address) from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    found.logs = [replace(log, source=log.source.replace(str(local), address)) for log in found.logs]
    found.problems = [_elsewhere(problem, local, address) for problem in found.problems]
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)  # its tables are read later
    return found


def _elsewhere(error: OnecurveError, local: Path, address: str) -> OnecurveError:
    return OnecurveError(str(error).replace(str(local), address))


def _fetched(address: str, folder: Path) -> Path:
    """The files under an address, copied below ``folder``; one file, or a folder of them, by its whole path there.

    What a run is called that is a folder or a file depends on the folders above it.
    """
    fsspec = optional("fsspec", f"logs on an object store ({address})", "remote")
    try:
        files, root = fsspec.core.url_to_fs(address)
        path = urlsplit(root).path if "://" in root else root  # of http, which may end in a query
        local = folder.joinpath(*(part for part in PurePosixPath(path).parts if part not in ("/", "..")))
        if files.isfile(root):
            local.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(root, str(local))
            return local
        for name in files.find(root):
            inside = PurePosixPath(name.removeprefix(root).lstrip("/"))
            if not name.startswith(root) or ".." in inside.parts or inside.suffix.lower() in WEIGHTS:
                continue
            target = local.joinpath(*inside.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(target))
    except Exception as error:  # every store raises its own kinds, those of its transport among them
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise OnecurveError(
            f"{address}: {reason}; is the address right, and are the package of its scheme and its credentials at hand?"
        ) from None
    if not local.is_dir():
        raise OnecurveError(f"{address}: nothing there")
    return local


def _check(address: str, local: Path, found: Found) -> None:
    """Read once what is read later by its path here, so that what is wrong with it is said of its address."""
    for folder in found.folders:
        read_run(folder)
    if found.logs or found.folders:
        return
    if local.is_dir():
        names = sorted(str(file.relative_to(local)) for file in local.rglob("*") if file.is_file())
        some = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        raise OnecurveError(
            f"{address}: no run directory (a folder with run.json) in it, and no log of another tool; it holds "
            f"{some}. Tables ({', '.join(TABLES)}) are named file by file"
        )
    read_table(local)
