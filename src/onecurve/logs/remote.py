"""Addresses in place of paths: W&B's cloud, MLflow servers, and files on object stores."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path, PurePosixPath

from onecurve.errors import OnecurveError, optional
from onecurve.logs import mlflow_server, wandb_cloud
from onecurve.logs.discover import Found, discover

WEIGHTS = (
    ".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".distcp", ".npz", ".npy", ".pkl", ".gguf", ".h5", ".msgpack",
    ".zst", ".png", ".jpg", ".mp4", ".tar", ".gz", ".zip",
)  # fmt: skip
"""Endings of files that are no logs and may be large: they are not fetched."""


def is_address(path: str) -> bool:
    """Whether a path names a place elsewhere: it has a scheme."""
    return "://" in path


def find(address: str) -> Found:
    """What an address holds. Object stores go through fsspec (s3://, gs://, abfs://, hf://, http://, ...)."""
    scheme = address.partition("://")[0]
    if scheme == wandb_cloud.SCHEME:
        return Found(logs=wandb_cloud.read(address))
    if scheme in mlflow_server.SCHEMES:
        return Found(logs=mlflow_server.read(address))
    folder = Path(tempfile.mkdtemp(prefix="onecurve-"))
    try:
        local = _fetched(address, folder)
        found = discover(local)
    except OnecurveError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise OnecurveError(str(error).replace(str(folder), address.rstrip("/"))) from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    found.logs = [replace(log, source=log.source.replace(str(local), address.rstrip("/"))) for log in found.logs]
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)  # its tables are read later
    return found


def _fetched(address: str, folder: Path) -> Path:
    """The files under an address, copied into ``folder``; one file, or a folder of them."""
    fsspec = optional("fsspec", f"logs on an object store ({address})", "remote")
    try:
        files, root = fsspec.core.url_to_fs(address)
        if files.isfile(root):
            target = folder / PurePosixPath(root).name
            files.get_file(root, str(target))
            return target
        for name in files.find(root):
            inside = PurePosixPath(name).relative_to(root)
            if inside.suffix.lower() in WEIGHTS or ".." in inside.parts:
                continue
            target = folder.joinpath(*inside.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(target))
    except (ImportError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise OnecurveError(
            f"{address}: {reason}; is the address right, and are the package of its scheme and its credentials at hand?"
        ) from None
    if not any(folder.iterdir()):
        raise OnecurveError(f"{address}: nothing there")
    return folder
