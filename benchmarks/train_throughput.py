"""The trainer's step against a plain eager PyTorch loop of the same model, and what the loop around it costs.

Both train the same transformer in the same precision with the same batch, threads and fused AdamW, alternating in one
process; each figure is the best of five rounds. The loop around the steps (logging, checkpoints, progress) is timed in
a run of its own.

    python benchmarks/train_throughput.py              # 0.8M and 2.7M parameters in float32, for a CPU
    python benchmarks/train_throughput.py gpu          # 111M parameters (gpt2 preset) in bfloat16, for a GPU
    python benchmarks/train_throughput.py seeds        # three seeds of 0.2M as one batched program, against one by one
"""

import math
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from onecurve.data.shards import open_shards, write_shards
from onecurve.data.sources import as_bytes, standard_library
from onecurve.plan.recipe import Recipe, jobs
from onecurve.plan.shape import transformer_shape
from onecurve.train import loop
from onecurve.train.devices import World, autocast, device, peak_flops
from onecurve.train.program import LanguageModel, make_program
from onecurve.train.tokens import TokenStream

ROUNDS = 5


class PlainBlock(nn.Module):
    def __init__(self, d, inner, heads, activation, norm):
        super().__init__()
        self.heads, self.activation, self.norm = heads, activation, norm
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.up = nn.Linear(d, inner * (2 if activation == "swiglu" else 1), bias=False)
        self.down = nn.Linear(inner, d, bias=False)

    def forward(self, x, bias):
        b, s, d = x.shape
        normed = F.rms_norm(x, (d,)) if self.norm == "rms" else F.layer_norm(x, (d,))
        q, k, v = self.qkv(normed).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, bias.to(q.dtype)).transpose(1, 2).reshape(b, s, d)
        x = x + self.out(a)
        h = self.up(F.rms_norm(x, (d,)) if self.norm == "rms" else F.layer_norm(x, (d,)))
        if self.activation == "swiglu":
            gate, value = h.chunk(2, -1)
            h = F.silu(gate) * value
        else:
            h = F.relu(h).square()
        return x + self.down(h)


class Plain(nn.Module):
    """The same transformer as a user would write it."""

    def __init__(self, shape):
        super().__init__()
        m = shape.model
        self.embedding = nn.Embedding(m.vocabulary, shape.width)
        self.blocks = nn.ModuleList(
            PlainBlock(shape.width, shape.ffn, shape.heads, m.activation, m.norm) for _ in range(shape.layers)
        )
        self.head = nn.Linear(shape.width, m.vocabulary, bias=False)
        if m.tied:
            self.head.weight = self.embedding.weight
        at = torch.arange(m.context)
        distance = (at[:, None] - at[None, :]).float()
        slopes = 2.0 ** (-8.0 / shape.heads * torch.arange(1, shape.heads + 1))
        bias = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -math.inf)
        self.register_buffer("bias", bias)
        self.norm = m.norm

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.bias)
        d = x.shape[-1]
        return self.head(F.rms_norm(x, (d,)) if self.norm == "rms" else F.layer_norm(x, (d,)))


def recipe(corpus: Path, width: int, layers: int, steps: int) -> Recipe:
    """The corpus ladder's recipe at one shape."""
    return Recipe.model_validate(
        {
            "task": {"kind": "tokens", "data": str(corpus)},
            "model": {"kind": "transformer", "ffn_multiple": 8.0, "head_size": 16},
            "ladder": {
                "sizes": [{"width": width, "layers": layers, "steps": steps}],
                "base_width": 64,
                "base_layers": 2,
                "parameterisations": ["completep"],
            },
            "optimiser": {"learning_rate": 0.012, "batch": 4096, "timescale": 0.2, "clip": 1.0},
            "schedule": {"warmup": 0.1},
            "evaluation": {"points": 4, "samples": 4096},
        }
    )


def gpu_recipe(corpus: Path, steps: int) -> Recipe:
    """111M of the gpt2 preset on byte ids; the vocabulary stays, so the work does."""
    return Recipe.model_validate(
        {
            "task": {"kind": "tokens", "data": str(corpus)},
            "model": {"preset": "gpt2"},
            "ladder": {"sizes": [{"name": "111M", "steps": steps}]},
            "optimiser": {"learning_rate": 0.0162, "batch": 192 * 2048, "weight_decay": 0.1, "clip": 1.0},
            "schedule": {"warmup": 0.1},
            "evaluation": {"points": 4, "samples": 65_536},
            "precision": "bfloat16",
        }
    )


def synchronise():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(step, count):
    synchronise()
    began = time.perf_counter()
    for k in range(count):
        step(k)
    synchronise()
    return (time.perf_counter() - began) / count


def compare(made: Recipe, count: int) -> None:
    """Print the two step times, their ratio, tokens a second and model FLOP utilisation."""
    (job,) = jobs(made)
    stream = TokenStream(open_shards(Path(made.task.data)), made.model.context)
    where = device()
    ours = LanguageModel(job, stream, World(device=where))
    plain = Plain(transformer_shape(made.model, job.size)).to(where)
    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sequences = job.batch // stream.context

    def eager(k):
        # On a GPU the whole batch does not fit at once, so it too accumulates, in the micro-batches that ours takes.
        x, y = (t.to(where) for t in stream.batch(0, k, sequences))
        parts = ours.micro_batch if where.type == "cuda" else sequences
        for xs, ys in zip(x.split(parts), y.split(parts), strict=True):
            with autocast(where, made.precision):
                logits = plain(xs)
            loss = F.cross_entropy(logits.float().flatten(0, 1), ys.flatten()) * (len(xs) / sequences)
            loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        return loss.item()

    def step(k):
        return {name: value.tolist() for name, value in ours.update(k, 1.0).items()}

    for warm in (eager, step):
        seconds(warm, 2)
    times = [(seconds(eager, count), seconds(step, count)) for _ in range(ROUNDS)]
    a, b = (min(t) for t in zip(*times, strict=True))
    rate = job.batch / b
    used = loop.utilisation(job, rate, peak_flops(where, made.precision))
    print(
        f"N {made.n_params(job.size):>11,}: plain eager {1e3 * a:7.1f} ms a step, ours {1e3 * b:7.1f} ms "
        f"({'compiled' if ours.compiled else 'eager'}), "
        f"ratio {a / b:.2f}; {rate:,.0f} tokens/s, {used:.0%} of this device's own matrix-product rate",
        flush=True,
    )


def overhead(made: Recipe, out: Path) -> None:
    """Print the share of a run's wall time that is neither update nor evaluation."""
    spent = {"inside": 0.0, "first": 0.0, "last": 0.0}

    def timed(of):
        def inner(*arguments):
            began = time.perf_counter()
            spent["first"] = spent["first"] or began
            result = of(*arguments)
            # What a value costs to fetch belongs to the step.
            for value in result.values():
                value.tolist()
            spent["last"] = time.perf_counter()
            spent["inside"] += spent["last"] - began
            return result

        return inner

    def make(job, stream, world):
        program = make_program(job, stream, world)
        program.update, program.evaluate = timed(program.update), timed(program.evaluate)
        return program

    (job,) = jobs(made)
    loop.run_job(job, out, lambda step: None, lambda: False, World(device=device()), make)
    whole = time.perf_counter() - spent["first"]
    print(
        f"N {made.n_params(job.size):>11,}: {job.steps} steps in {whole:.1f} s with logging, progress and a checkpoint "
        f"every {loop.SAVE_EVERY:g} s and at the end: {1 - spent['inside'] / whole:.2%} outside update and evaluation",
        flush=True,
    )


def batched_seeds(corpus: Path, seeds: int = 3, count: int = 8) -> None:
    """Print seconds a step and seed of three models one by one, and as one program under vmap."""
    made = recipe(corpus, 64, 2, 1000)
    (job,) = jobs(made)
    stream = TokenStream(open_shards(corpus), 128)
    torch.set_num_threads(1)
    alone = LanguageModel(job, stream)
    models = [LanguageModel(job, stream).model for _ in range(seeds)]
    stacked, _ = torch.func.stack_module_state(models)
    plain = Plain(transformer_shape(made.model, job.size))
    stacked, buffers = torch.func.stack_module_state([plain] * seeds)
    stacked = {n: p.detach().requires_grad_() for n, p in stacked.items()}
    adamw = torch.optim.AdamW(stacked.values(), lr=1e-3, fused=True)

    def loss(parameters, buffer, x, y):
        logits = torch.func.functional_call(plain, (parameters, buffer), (x,))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")

    def together(k):
        batches = [stream.batch(seed, k, 32) for seed in range(seeds)]
        x, y = (torch.stack([b[i] for b in batches]) for i in (0, 1))
        for part in range(0, 32, 8):
            each = torch.func.vmap(loss)(stacked, buffers, x[:, part : part + 8], y[:, part : part + 8])
            (each.sum() / 4096).backward()
        adamw.step()
        adamw.zero_grad()

    seconds(lambda k: alone.update(k, 1.0), 2)
    seconds(together, 2)
    times = [(seconds(lambda k: alone.update(k, 1.0), count), seconds(together, count) / seeds) for _ in range(ROUNDS)]
    a, b = (min(t) for t in zip(*times, strict=True))
    print(f"0.2M, one thread: {1e3 * a:.0f} ms a step alone, {1e3 * b:.0f} ms a step and seed as {seeds} batched seeds")


def main(what: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        source, documents = standard_library()
        write_shards(corpus, as_bytes(documents), source, vocabulary=256)
        if what == "gpu":
            made = gpu_recipe(corpus, 60)
            compare(made, 5)
            overhead(made, Path(folder) / "run")
        elif what == "seeds":
            batched_seeds(corpus)
        else:
            for width, layers, count, steps in ((112, 3, 6, 240), (208, 3, 3, 90)):
                # The whole job decides whether compiling pays; the overhead is that of a part of it.
                whole = recipe(corpus, width, layers, 1)
                n = whole.n_params(whole.ladder.sizes[0])
                compare(recipe(corpus, width, layers, 20 * n // 4096), count)
                overhead(recipe(corpus, width, layers, steps), Path(folder) / f"run-{width}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
