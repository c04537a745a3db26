"""The processes and devices that train one job together: alone, or under torchrun with DDP or FSDP2."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from onecurve.errors import OnecurveError

Parallel = Literal["ddp", "fsdp"]
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class World:
    """The place of this process among those that train the job."""

    rank: int = 0
    size: int = 1
    device: torch.device = _CPU
    parallel: Parallel = "ddp"

    @property
    def first(self) -> bool:
        """Whether this process writes the run directory."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def agree(self, value: int) -> int:
        """What the first process says: decisions by the clock, or by a signal, must be one process's."""
        if self.size == 1:
            return int(value)
        said = torch.tensor([int(value)])
        dist.broadcast(said, 0)
        return int(said.item())

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module whose forward and backward pass reduce gradients over the processes."""
        if self.size == 1:
            return model
        if self.parallel == "ddp":
            ids = [self.device.index] if self.device.type == "cuda" else None
            return nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
        return model  # sharded in place by `shard`

    def shard(self, model: nn.Module, blocks: nn.ModuleList) -> None:
        """Shard a model's parameters over the processes, block by block, where FSDP2 was asked for."""
        if self.size > 1 and self.parallel == "fsdp":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(self.device.type, (self.size,))
            for block in blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)

    @contextmanager
    def accumulating(self, model: Any, last: bool) -> Generator[None]:
        """Inside: a backward pass; gradients are reduced over the processes in the last of a step only."""
        if self.size == 1 or last:
            if self.size > 1 and self.parallel == "fsdp":
                model.set_requires_gradient_sync(True)
            yield
        elif self.parallel == "fsdp":
            model.set_requires_gradient_sync(False)
            yield
        else:
            with model.no_sync():
                yield


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def device() -> torch.device:
    """The GPU, where there is one, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def world(parallel: Parallel | None) -> Generator[World]:
    """This process's world: torchrun's where it started us, else this process alone."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        yield World(device=device())
        return
    if parallel is None:
        raise OnecurveError(f"torchrun started {ranks} processes: say how they share the work, --parallel ddp or fsdp")
    on_gpu = torch.cuda.is_available()
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(own)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size(), own, parallel)
    finally:
        dist.destroy_process_group()


def peak_flops(device: torch.device, precision: str) -> float:
    """FLOP/s of a large square matrix product in a precision: what this device, as it is used here, can do at best."""
    on_gpu = device.type == "cuda"
    size, dtype = 8192 if on_gpu else 1024, torch.bfloat16 if precision == "bfloat16" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        a @ b  # pyright: ignore[reportUnusedExpression]
        if on_gpu:
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2.0 * size**3 / best


def autocast(device: torch.device, precision: str) -> Any:
    """bfloat16 matrix products where the recipe asks for them."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()
