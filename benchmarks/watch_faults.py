"""Healthy runs and runs with planted faults, for the monitor to be tried on: real trainings, small.

python benchmarks/watch_faults.py train /tmp/faults [mlp|lm]   # goes on where it stopped; hours on two cores
python benchmarks/watch_faults.py record /tmp/faults           # what is finished, into examples/faults

MLPs on the Fourier task: a reference of widths 20, 24, 28 and 32 with four seeds each, judged runs of width 64 (four
times the parameters of 32): 100 to calibrate on, 300 to test. Language models on the bytes of the standard library: a
reference of widths 16 to 40 (13K to 52K parameters), judged runs of width 96 (233K): 30 and 60. The recipe is the
family's, the seeds are their own. Then every fault with ten seeds (MLPs: twelve, three onsets of four seeds), its onset
uniform in [.1, .85]. Faults come in where the loop takes its loss, its stream and its optimiser; nothing of the trainer
is changed.

    kernel      logits (outputs) rounded coarsely from a restart on, as a kernel that loses precision does
    optimiser   first and second moments lost at a resume, the step count as well
    repeat      the data of the last twentieth again and again after a resume
    corrupt     a shard, a tenth of training long, in which a third of the targets are anything
    rate        the schedule of a run twice as long from a resume on
    rank        half of the batch drops out of the average
    clip        gradient clipping off, and one bad batch in a hundred (language models alone)
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import torch

from onecurve import read
from onecurve.plan.recipe import Job, Recipe, jobs
from onecurve.train.fourier import FourierStream
from onecurve.train.ladder import with_data
from onecurve.train.loop import run_job
from onecurve.train.program import BatchedMLPs, LanguageModel, cross_entropy, half_square
from recorded import finished, settings

HERE = Path(__file__).parent.parent / "examples" / "faults"
MLP_FAULTS = ("kernel", "optimiser", "repeat", "corrupt", "rate", "rank")
LM_FAULTS = (*MLP_FAULTS, "clip")
HEALTHY = {"mlp": (100, 300), "lm": (30, 60)}
AT_ONCE = 4
"""MLPs of one batched program; they share fault and onset."""
COMMON = {
    "mlp": {
        "task": {"kind": "fourier", "dimension": 3, "modes": 1000, "exponent": 2.0},
        "model": {"kind": "mlp", "blocks": 3, "inputs": 3},
        "schedule": {"shape": "linear", "warmup": 0.05},
        "optimiser": {"learning_rate": 0.02, "batch": 512, "timescale": 1.0},
        "horizon": {"tokens_per_param": 40.0},
        "evaluation": {"points": 20, "samples": 4096},
    },
    "lm": {
        "task": {"kind": "tokens"},
        "model": {"kind": "transformer", "ffn_multiple": 8.0, "head_size": 8},
        "schedule": {"shape": "linear", "warmup": 0.1},
        "optimiser": {"learning_rate": 0.016, "batch": 2048, "timescale": 0.2, "clip": 1.0},
        "horizon": {"tokens_per_param": 20.0},
        "evaluation": {"points": 20, "samples": 16_384},
    },
}
WIDTHS = {"mlp": ((20, 24, 28, 32), 64), "lm": ((16, 24, 32, 40), 96)}
REFERENCE_SEEDS = 4


def recipe(family: str, widths: tuple[int, ...], seeds: int) -> Recipe:
    """The family's recipe at some widths."""
    ladder = {"base_width": 32, "parameterisations": ["mup"], "seeds": seeds}
    if family == "lm":
        ladder |= {"parameterisations": ["completep"], "base_width": 16, "base_layers": 1}
    ladder["sizes"] = [{"width": w} | ({"layers": 1} if family == "lm" else {}) for w in widths]
    if family == "lm":
        for size in ladder["sizes"]:
            size["name"] = f"w{size['width']}"
    return Recipe.model_validate(COMMON[family] | {"ladder": ladder})


def shifted(job: Job, first: int) -> Job:
    """A job whose seeds begin at ``first`` instead of 0."""
    members = []
    for m in job.members:
        seed = m.seed_init + first
        name = m.config.name.replace(f"seed-{m.seed_init}", f"seed-{seed}")
        config = m.config.model_copy(update={"name": name, "seed_init": seed, "seed_data": seed})
        members.append(replace(m, config=config, seed_init=seed, seed_data=seed))
    name = members[0].config.name if len(members) == 1 else f"{job.name}-from-{first}"
    return replace(job, name=name, members=tuple(members))


def onset_of(family: str, fault: str, seed: int) -> float:
    """Where a fault begins, the same whenever it is asked; MLPs of one program share it."""
    key = f"{family}-{fault}-{seed // AT_ONCE if family == 'mlp' else seed}".encode()
    return 0.1 + 0.75 * int.from_bytes(hashlib.sha256(key).digest()[:4], "big") / 2**32


class Rounded:
    """A loss whose outputs are rounded from a step on; the gradient is that at the rounded ones."""

    def __init__(self, loss: Callable, step: float) -> None:
        self.loss, self.step, self.on = loss, step, False

    def __call__(self, outputs, targets):
        if self.on:
            outputs = outputs + ((outputs / self.step).round() * self.step - outputs).detach()
        return self.loss(outputs, targets)


class RepeatingStream:
    """A stream that, from a step on, gives the batches of the steps before over and over."""

    def __init__(self, stream, period: int) -> None:
        self.stream, self.period, self.start = stream, period, None

    def at(self, step: int) -> int:
        if self.start is None or step < self.start:
            return step
        return self.start - self.period + (step - self.start) % self.period

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def batch(self, seed, step, *rest):
        return self.stream.batch(seed, self.at(step), *rest)


class CorruptStream(RepeatingStream):
    """A stream with a stretch in which a third of the targets are anything."""

    def batch(self, seed, step, *rest):
        x, y = self.stream.batch(seed, step, *rest)
        if self.start is not None and self.start <= step < self.start + self.period:
            rng = torch.Generator().manual_seed(step)
            bad = torch.rand(y.shape, generator=rng) < 1 / 3
            other = y.flatten()[torch.randperm(y.numel(), generator=rng)].view(y.shape)
            y = torch.where(bad, other, y)
        return x, y


class HalfStream(RepeatingStream):
    """A stream of which, from a step on, half of each batch is the other half again."""

    def batch(self, seed, step, *rest):
        x, y = self.stream.batch(seed, step, *rest)
        if self.start is not None and step >= self.start:
            half = len(x) // 2
            x, y = torch.cat([x[:half], x[:half]]), torch.cat([y[:half], y[:half]])
        return x, y


def stream_with(fault: str, stream, job: Job, onset: int):
    """The stream of a job with a fault, if it is one of the data."""
    kinds = {
        "repeat": (RepeatingStream, job.steps // 20),
        "corrupt": (CorruptStream, job.steps // 10),
        "rank": (HalfStream, 0),
    }
    if fault not in kinds:
        return stream
    kind, period = kinds[fault]
    made = kind(stream, period)
    made.start = onset
    return made


def multiplier_with(fault: str, job: Job, onset: int, step: int, multiplier: float) -> float:
    """The rate of a step: under the fault that of a run of twice the length."""
    return float(job.schedule(0.5 * (step + 1) / job.steps)) if fault == "rate" and step >= onset else multiplier


class FaultyMLPs(BatchedMLPs):
    """MLPs with a fault from a step on; every step's training loss is logged."""

    each_step = True

    def __init__(self, job: Job, fault: str, onset: int) -> None:
        self.fault, self.onset, self.job = fault, onset, job
        self.rounded = Rounded(half_square, 0.05)
        super().__init__(job, stream_with(fault, FourierStream(job.recipe.task), job, onset), self.rounded)

    def update(self, step, multiplier):
        self.rounded.on = self.fault == "kernel" and step >= self.onset
        if self.fault == "optimiser" and step == self.onset:
            for moment in (*self.optimiser.first.values(), *self.optimiser.second.values()):
                moment.zero_()
        return super().update(step, multiplier_with(self.fault, self.job, self.onset, step, multiplier))


class FaultyModel(LanguageModel):
    """A transformer with a fault from a step on."""

    def __init__(self, job: Job, stream, world, fault: str, onset: int) -> None:
        self.fault, self.onset = fault, onset
        self.rounded = Rounded(cross_entropy, 1.0)
        super().__init__(job, stream_with(fault, stream, job, onset), world, loss=self.rounded, hook=self.bad_batch)

    def bad_batch(self, step, gradients):
        """One gradient in a hundred is huge; clipping, which is off, would take it."""
        if self.fault == "clip" and step >= self.onset and step % 100 == 0:
            for g in gradients:
                g.mul_(50.0)

    def update(self, step, multiplier):
        self.rounded.on = self.fault == "kernel" and step >= self.onset
        if self.fault == "clip" and step >= self.onset:
            clip, self._job.recipe.optimiser.__dict__["clip"] = self._job.recipe.optimiser.clip, None
        if self.fault == "optimiser" and step == self.onset:
            for p in self.parameters:
                state = self.optimiser.state[p]
                for name in ("exp_avg", "exp_avg_sq", "step"):
                    state[name].zero_()
        out = super().update(step, multiplier_with(self.fault, self._job, self.onset, step, multiplier))
        if self.fault == "clip" and step >= self.onset:
            self._job.recipe.optimiser.__dict__["clip"] = clip
        return out


def lots(family: str) -> list[tuple[str, str, tuple[int, ...], int, int]]:
    """All trainings: name of the lot, fault, widths, number of seeds, first seed. References first, then in turns."""
    small, large = WIDTHS[family]
    out = [("reference", "", small, REFERENCE_SEEDS, 0)]
    step = AT_ONCE if family == "mlp" else 1
    calibration, test = HEALTHY[family]
    healthy = [("calibration", "", (large,), step, 1000 + k) for k in range(0, calibration, step)]
    healthy += [("test", "", (large,), step, 2000 + k) for k in range(0, test, step)]
    faults, seeds = (MLP_FAULTS, 12) if family == "mlp" else (LM_FAULTS, 10)
    faulty = [(fault, fault, (large,), step, 3000 + k) for k in range(0, seeds, step) for fault in faults]
    turns = [lot for pair in zip(healthy, faulty, strict=False) for lot in pair]
    return out + turns + healthy[len(faulty) :] + faulty[len(healthy) :]


def train(out: str, *families: str) -> None:
    torch.set_num_threads(1)
    for family in families or ("mlp", "lm"):
        for lot, fault, widths, seeds, first in lots(family):
            folder = Path(out) / family / lot
            chosen = recipe(family, widths, seeds)
            if family == "lm":
                chosen = with_data(chosen, Path(out))
            for job in (shifted(job, first) for job in jobs(chosen)):
                if all(finished(folder / m.folder / m.config.name) for m in job.members):
                    continue
                onset = round(onset_of(family, fault, first) * job.steps) if fault else job.steps
                make = (
                    (lambda job, stream, world, f=fault, o=onset: FaultyMLPs(job, f, o))
                    if family == "mlp"
                    else (lambda job, stream, world, f=fault, o=onset: FaultyModel(job, stream, world, f, o))
                )
                run_job(job, folder, lambda done: None, lambda: False, make=make)
                print(family, lot, job.name, flush=True)


def record(out: str) -> None:
    """Finished runs: every training loss, as float32, and a table of runs with fault and onset."""
    HERE.mkdir(exist_ok=True)
    for family in ("mlp", "lm"):
        points, rows, done = [], [], set()
        for lot, fault, widths, seeds, first in lots(family):
            folder = Path(out) / family / lot
            for job in (shifted(job, first) for job in jobs(recipe(family, widths, seeds))):
                for m in job.members:
                    path = folder / m.folder / m.config.name
                    name = f"{lot}-{m.config.name}"
                    if name in done or not finished(path):
                        continue
                    done.add(name)
                    run = read([path]).runs[0]
                    curve, held = run.curves["train_loss"], run.curves["test_loss"]
                    every = 2 if family == "mlp" else 1  # half as many points, each the mean of two
                    count = len(curve) // every
                    loss = curve.loss[: count * every].reshape(count, every).mean(axis=1)
                    x = curve.x[every - 1 : count * every : every]
                    points.append(pl.DataFrame({"run_id": name, run.x_name: x, "train_loss": loss}))
                    onset = onset_of(family, fault, first) if fault else None
                    rows.append(
                        settings(run.config)
                        | {"run_id": name, "lot": lot, "onset": onset, "final_test_loss": float(held.loss[-1])}
                    )
        if rows:
            table = pl.concat(points).with_columns(
                pl.col("train_loss").cast(pl.Float32), pl.col("run_id").cast(pl.Categorical)
            )
            table.write_parquet(HERE / f"{family}.parquet", compression="zstd", compression_level=19)
            pl.DataFrame(rows, infer_schema_length=None).write_csv(HERE / f"{family}-runs.csv")
            print(f"{family}: {len(rows)} runs, {table.height} points")


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    {"train": train, "record": record}[command](*rest)
