"""What the loop trains: several MLPs at once, or one transformer. Loss, data and gradient hook are arguments."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from onecurve.errors import OnecurveError
from onecurve.plan.parameterisation import factors
from onecurve.plan.recipe import FourierTask, Job, TokenTask, width_and_depth_ratio
from onecurve.plan.shape import MLPModel
from onecurve.train import mlp, transformer
from onecurve.train.devices import World, autocast, local
from onecurve.train.fourier import FourierStream
from onecurve.train.optimiser import BatchedAdamW
from onecurve.train.tokens import IGNORED, TokenStream

HELD_OUT, TRAINING, NOISE = "test_loss", "train_loss", "gradient_noise"
_EVALUATION_ROWS = 512  # keeps the activations of all models in the cache
_CPU_MICRO_BATCH = 1024  # tokens: keeps a block's activations in the cache; a larger one is slower, not faster
_GPU_MICRO_BATCH = 16_384
_SKIPS_IN_A_ROW = 3
_NOISE_SEED = 2**32 - 1
"""Data seed of the batches from which gradient noise is measured: one fixed set for all runs."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""MLPs: (outputs (R, B), targets (R, B)) -> (R, B). Transformer: (logits (n, V), targets (n,)) -> their sum."""
GradientHook = Callable[[int, Sequence[Tensor]], None]
"""(step, gradients): called once gradients are reduced over micro-batches and processes, before clipping."""


class Program(Protocol):
    """What the loop trains: R models that share their steps."""

    each_step: bool
    """Whether every step is logged, or those with an evaluation only."""
    x_name: Literal["samples", "tokens"]

    def update(self, step: int, multiplier: float) -> dict[str, Tensor]:
        """One optimiser step (from 0) at ``multiplier`` times the peak rates; what is logged of it, (R,) each."""
        ...

    def evaluate(self) -> dict[str, Tensor]:
        """The held-out loss of each model, and whatever else is measured with it, (R,) each."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that later steps depend on: a nested dict of live tensors."""
        ...

    def restored(self, step: int) -> None:
        """Called once ``state`` holds that of a step."""
        ...

    def trouble(self) -> str | None:
        """Why training cannot go on after the last update, or None."""
        ...


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the squared error."""
    return 0.5 * (outputs - targets).square()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Nats, summed over the targets that are not ignored."""
    return F.cross_entropy(logits.float(), targets, reduction="sum", ignore_index=IGNORED)


class RunningVariance:
    """The variance of each coordinate of several tensors over what was added (Welford; divided by their number)."""

    def __init__(self) -> None:
        self._count = 0
        self._means: list[Tensor] = []
        self._squares: list[Tensor] = []

    @torch.no_grad()
    def add(self, values: Sequence[Tensor]) -> None:
        """Add one sample of every tensor."""
        if not self._count:
            self._means = [torch.zeros_like(v) for v in values]
            self._squares = [torch.zeros_like(v) for v in values]
        self._count += 1
        for value, mean, square in zip(values, self._means, self._squares, strict=True):
            off = value - mean
            mean.add_(off, alpha=1.0 / self._count)
            square.addcmul_(off, value - mean)

    def value(self) -> list[Tensor]:
        """The variances."""
        return [square / self._count for square in self._squares]


class BatchedMLPs:
    """The models of one width, trained as one batched program on streams of their own seeds."""

    each_step = False
    x_name: Literal["samples", "tokens"] = "samples"

    def __init__(self, job: Job, stream: FourierStream | None = None, loss: Loss = half_square) -> None:
        recipe, members, size = job.recipe, job.members, job.size
        assert isinstance(recipe.task, FourierTask) and isinstance(recipe.model, MLPModel)
        o, ratios = recipe.optimiser, width_and_depth_ratio(recipe, size)
        self._loss = loss
        self._stream = stream or FourierStream(recipe.task)
        self._batch = job.batch
        self._data_seeds = sorted({m.seed_data for m in members})
        self._of_seed = torch.tensor([self._data_seeds.index(m.seed_data) for m in members])
        self._test = self._stream.test_set(recipe.evaluation.samples)
        self._noise_batches = recipe.evaluation.gradient_batches
        self._updates = 0
        self.weights = mlp.initial(recipe.model, size.width, [m.seed_init for m in members])
        for weight in self.weights.values():
            weight.requires_grad_(True)
        # A forward multiplier c on a readout that starts at zero is, under Adam, c times the rate and 1 / c the decay.
        tables = {
            name: [factors(role, m.parameterisation, *ratios, o.scale_weight_decay) for m in members]
            for name, role in mlp.ROLES.items()
        }
        rate, decay = size.learning_rate or 0.0, size.weight_decay or 0.0
        self.optimiser = BatchedAdamW(
            self.weights,
            {name: [rate * f.learning_rate * f.forward for f in table] for name, table in tables.items()},
            {name: [decay * f.weight_decay / f.forward for f in table] for name, table in tables.items()},
            o.betas,
            o.eps,
        )

    def update(self, step: int, multiplier: float) -> dict[str, Tensor]:  # noqa: D102  (as `Program` says)
        batches = [self._stream.batch(seed, step, self._batch) for seed in self._data_seeds]
        x = torch.stack([x for x, _ in batches])[self._of_seed]
        y = torch.stack([y for _, y in batches])[self._of_seed]
        losses, gradients = self._gradients(x, y)
        self.optimiser.step(dict(zip(self.weights, gradients, strict=True)), step + 1, multiplier)
        self._updates = step + 1
        return {TRAINING: losses.detach()}

    def _gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        losses = self._loss(mlp.forward(self.weights, x), y).mean(dim=1)
        return losses, torch.autograd.grad(losses.sum(), list(self.weights.values()))

    def evaluate(self) -> dict[str, Tensor]:  # noqa: D102
        measured = {HELD_OUT: self._held_out_loss()}
        if self._noise_batches:
            measured[NOISE] = self._gradient_noise()
        return measured

    def _gradient_noise(self) -> Tensor:
        shape = (len(self._of_seed), -1, -1)
        moments = RunningVariance()
        for k in range(self._noise_batches):
            x, y = self._stream.batch(_NOISE_SEED, k, self._batch)
            moments.add(self._gradients(x.expand(shape), y.expand(shape[:2]))[1])
        total = torch.zeros(len(self._of_seed), dtype=torch.float64)
        for name, variance in zip(self.weights, moments.value(), strict=True):
            total += (variance * self.optimiser.preconditioner(name, self._updates)).flatten(1).sum(1).double()
        return total

    @torch.no_grad()
    def _held_out_loss(self) -> Tensor:
        models = len(self._of_seed)
        total = torch.zeros(models, dtype=torch.float64)
        for x, y in zip(*(part.split(_EVALUATION_ROWS) for part in self._test), strict=True):
            outputs = mlp.forward(self.weights, x.expand(models, -1, -1))
            total += self._loss(outputs, y).sum(dim=1, dtype=torch.float64)
        return total / len(self._test[1])

    def state(self) -> dict[str, Any]:  # noqa: D102
        weights = {name: w.detach() for name, w in self.weights.items()}
        return {"weights": weights, "first": self.optimiser.first, "second": self.optimiser.second}

    def restored(self, step: int) -> None:  # noqa: D102
        self._updates = step

    def trouble(self) -> str | None:  # noqa: D102
        return None  # a model whose loss is no number leaves its neighbours alone


@dataclass(frozen=True)
class Machine:
    """How the machine at hand computes a step; what is computed does not depend on it beyond rounding."""

    micro_batch: int | None = None
    """Tokens that go through the model at once; by default what suits the device."""
    compile: bool | None = None
    """torch.compile; by default where it pays (`compiles`)."""


_WORTH_COMPILING = 2e13
"""FLOPs of a job (some minutes on two CPU cores) from which compiling, a quarter of a minute, is soon earned back."""


def compiles(job: Job, on_gpu: bool) -> bool:
    """Whether torch.compile pays for a job: on a GPU always, on a CPU for a long job where there is a C++ compiler.

    It depends on the job and the machine alone, so that a resumed run computes as it did before.
    """
    if on_gpu:
        return True
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return job.work >= _WORTH_COMPILING and compiler is not None and headers.is_file()


class LanguageModel:
    """One transformer on token windows, on one process or several."""

    each_step = True
    x_name: Literal["samples", "tokens"] = "tokens"

    def __init__(
        self,
        job: Job,
        stream: TokenStream,
        world: World | None = None,
        machine: Machine | None = None,
        loss: Loss = cross_entropy,
        hook: GradientHook | None = None,
    ) -> None:
        self._job, self._stream, self._loss = job, stream, loss
        self._world = world = world or World()
        machine = machine or Machine()
        recipe = job.recipe
        assert isinstance(recipe.task, TokenTask)
        context = stream.context
        self._sequences = job.batch // context
        if self._sequences % world.size:
            raise OnecurveError(
                f"optimiser.batch {job.batch} is {self._sequences} sequences of {context}, which {world.size} "
                f"processes do not divide; give a multiple of {world.size * context} tokens, or other processes"
            )
        own = self._sequences // world.size
        self._part = slice(world.rank * own, (world.rank + 1) * own)
        on_gpu = world.device.type == "cuda"
        tokens = machine.micro_batch or (_GPU_MICRO_BATCH if on_gpu else _CPU_MICRO_BATCH)
        self.micro_batch = min(own, max(1, tokens // context))
        """Sequences that go through the model at once."""
        self.compiled = compiles(job, on_gpu) if machine.compile is None else machine.compile
        self._hook = hook
        self._autocast = lambda: autocast(world.device, recipe.precision)
        with torch.device("meta"):
            self.model = transformer.build(job)
        world.shard(self.model, self.model.blocks)
        self.model.to_empty(device=world.device)
        transformer.initialise(self.model, job)
        self._run: nn.Module = world.wrap(self.model)
        if self.compiled:
            self._run.compile()
        self.optimiser = transformer.optimiser(self.model, job)
        self.parameters = list(self.model.parameters())
        self._held_out = self._own_part(*stream.held_out(recipe.evaluation.samples))
        # [steps skipped, of these in a row, steps clipped]
        self._counts = torch.zeros(3, dtype=torch.int64)
        self._trouble: str | None = None

    def _own_part(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """This process's share of an evaluation; all have equally many windows, the last ones perhaps ignored."""
        world = self._world
        missing = -len(inputs) % world.size
        inputs = torch.cat([inputs, inputs[:missing]])
        targets = torch.cat([targets, torch.full_like(targets[:missing], IGNORED)])
        return tuple(t.chunk(world.size)[world.rank].to(world.device) for t in (inputs, targets))  # type: ignore[return-value]

    def _summed(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with self._autocast():
            logits = self._run(inputs)
            return self._loss(logits.flatten(0, 1), targets.flatten())

    def backward(self, step: int, seed: int) -> Tensor:
        """Leave the gradient of a step's mean loss in the parameters; that loss.

        The loss is the sum over all targets of the global batch divided by their number, however they are split.
        """
        world = self._world
        inputs, targets = self._stream.batch(seed, step, self._sequences, self._part)
        count = world.sum((targets != IGNORED).sum()).item()
        inputs, targets = inputs.to(world.device), targets.to(world.device)
        total = torch.zeros((), dtype=torch.float64, device=world.device)
        parts = list(zip(inputs.split(self.micro_batch), targets.split(self.micro_batch), strict=True))
        for number, (x, y) in enumerate(parts, start=1):
            with world.accumulating(self._run, last=number == len(parts)):
                loss = self._summed(x, y)
                # Processes average their gradients, so each counts its own as many times as there are processes.
                (loss * (world.size / count)).backward()
            total += loss.detach()
        return world.sum(total) / count

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def update(self, step: int, multiplier: float) -> dict[str, Tensor]:  # noqa: D102
        loss = self.backward(step, self._job.members[0].seed_data)
        if self._hook is not None:
            self._hook(step, self._gradients())
        norm = nn.utils.get_total_norm(self._gradients())
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        clip = self._job.recipe.optimiser.clip
        update_norm = torch.zeros(())
        if not torch.isfinite(loss):
            self._trouble = f"the training loss became {loss.item()} at step {step + 1}"
        elif not torch.isfinite(norm):
            if self._counts[1] + 1 >= _SKIPS_IN_A_ROW:
                self._trouble = f"the gradient was not finite for {_SKIPS_IN_A_ROW} steps in a row, to step {step + 1}"
            else:
                self._counts[:2] += 1
        else:
            self._counts[1] = 0
            if clip is not None:
                self._counts[2] += int(norm > clip)
                nn.utils.clip_grads_with_norm_(self.parameters, clip, norm)
            update_norm = self._step(multiplier)
        self.optimiser.zero_grad()
        record = {
            TRAINING: loss,
            "learning_rate": torch.tensor(self._hidden_rate(multiplier), dtype=torch.float64),
            "grad_norm": norm,
            "update_norm": update_norm,
        }
        if clip is not None:
            record["clip_fraction"] = self._counts[2].double() / (step + 1)
        record["skipped_steps"] = self._counts[0]
        return {name: value.reshape(1) for name, value in record.items()}

    def _hidden_rate(self, multiplier: float) -> float:
        return (self._job.members[0].config.learning_rate or 0.0) * multiplier

    @torch.no_grad()
    def _step(self, multiplier: float) -> Tensor:
        """Apply the optimiser; the norm of what it changed."""
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak_lr"] * multiplier
        weights = [local(p) for p in self.parameters]
        before = [w.clone() for w in weights]
        self.optimiser.step()
        for old, new in zip(before, weights, strict=True):
            old.sub_(new)
        squares = torch.stack([torch.linalg.vector_norm(moved) for moved in before]).square().sum()
        return (self._world.sum(squares) if self._world.parallel == "fsdp" else squares).sqrt()

    def evaluate(self) -> dict[str, Tensor]:  # noqa: D102
        measured = {HELD_OUT: self._held_out_loss()}
        if batches := self._job.recipe.evaluation.gradient_batches:
            measured[NOISE] = self._gradient_noise(batches)
        return {name: value.reshape(1) for name, value in measured.items()}

    def _gradient_noise(self, batches: int) -> Tensor:
        moments = RunningVariance()
        for k in range(batches):
            self.backward(k, _NOISE_SEED)
            moments.add([local(g) for g in self._gradients()])
            self.optimiser.zero_grad()
        variance = dict(zip(map(id, self.parameters), moments.value(), strict=True))
        total = torch.zeros((), dtype=torch.float64, device=self._world.device)
        for group in self.optimiser.param_groups:
            for p in group["params"]:
                state = self.optimiser.state[p]
                corrected = local(state["exp_avg_sq"]) / (1.0 - group["betas"][1] ** float(state["step"]))
                total += (variance[id(p)] * (group["peak_lr"] / (corrected.sqrt() + group["eps"]))).sum().double()
        return self._world.sum(total) if self._world.parallel == "fsdp" else total

    @torch.no_grad()
    def _held_out_loss(self) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._world.device)
        for x, y in zip(*(part.split(self.micro_batch) for part in self._held_out), strict=True):
            total[0] += self._summed(x, y)
            total[1] += (y != IGNORED).sum()
        total = self._world.sum(total)
        return total[0] / total[1]

    def state(self) -> dict[str, Any]:  # noqa: D102
        names = [name for name, _ in self.model.named_parameters()]
        moments = [self.optimiser.state[p] for p in self.parameters]
        return {
            "weights": {name: p.detach() for name, p in zip(names, self.parameters, strict=True)},
            "first": {name: s["exp_avg"] for name, s in zip(names, moments, strict=True)},
            "second": {name: s["exp_avg_sq"] for name, s in zip(names, moments, strict=True)},
            "counts": self._counts,
        }

    def restored(self, step: int) -> None:  # noqa: D102
        done = step - int(self._counts[0])
        for p in self.parameters:
            self.optimiser.state[p]["step"].fill_(float(done))

    def trouble(self) -> str | None:  # noqa: D102
        return self._trouble


Make = Callable[[Job, TokenStream | None, World], Program]
"""How a job's program is built; another loss, stream or gradient hook comes in here."""


def make_program(
    job: Job, stream: TokenStream | None, world: World | None = None, machine: Machine | None = None
) -> Program:
    """The program of a job: a transformer where there is a token stream, else MLPs."""
    return BatchedMLPs(job) if stream is None else LanguageModel(job, stream, world, machine)
