"""How fast logs are read, as ratios in one run, on one core.

POLARS_MAX_THREADS=1 python benchmarks/logs_speed.py      # some three minutes, most of it writing the TensorBoard file
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from onecurve import RunConfig, read
from onecurve.logs import csvlog, jsonl, tensorboard
from onecurve.store import RunWriter

POINTS = 1_000_000


def best(call: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def events(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    values = np.random.default_rng(0).standard_normal(POINTS)
    with SummaryWriter(folder) as writer:
        for k, value in enumerate(values):
            writer.add_scalar("train/loss", value, k)
    (file,) = folder.iterdir()
    ours = best(lambda: tensorboard.read([file]))

    def theirs() -> None:
        accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        accumulator.Reload()
        assert len(accumulator.Scalars("train/loss")) == POINTS

    def checked() -> None:
        data = file.read_bytes()
        start, length, _ = tensorboard._chain(data)
        raw = np.frombuffer(data, np.uint8)
        for size, at in tensorboard._batches(start, length):
            tensorboard._masked(raw[at[:, None] + np.arange(12, 12 + size)])

    print(
        f"TensorBoard, {POINTS:,} scalars: {ours:.2f} s; EventAccumulator {best(theirs, 1) / ours:.0f} times as long; "
        f"reading its bytes and checking their sums {ours / best(checked):.1f} times as fast"
    )


def json_lines(folder: Path) -> None:
    file = folder / "a.jsonl"
    with file.open("w") as out:
        for k in range(POINTS):
            out.write(json.dumps({"step": k, "loss": 2 + 1 / (k + 1), "lr": 1e-3, "grad_norm": 0.5 + k % 7}) + "\n")
    size = file.stat().st_size / 1e6
    ours, theirs = best(lambda: jsonl.read([file])), best(lambda: pl.read_ndjson(file))
    share = f"{theirs / ours:.2f} of polars' own parse ({size / theirs:.0f})"
    print(f"JSON lines, {POINTS:,}: {size / ours:.0f} MB/s, {share}")
    file.write_bytes(file.read_bytes().replace(b'"loss": 2.5,', b'"loss": NaN,'))
    print(f"  with a bare NaN: {size / best(lambda: jsonl.read([file])):.0f} MB/s")


def comma_separated(folder: Path) -> None:
    file = folder / "a.csv"
    with file.open("w") as out:
        out.write("step,train_loss,lr,grad_norm\n")
        for k in range(POINTS):
            out.write(f"{k},{2 + 1 / (k + 1)!r},0.001,{0.5 + k % 7}\n")
    size = file.stat().st_size / 1e6
    ours, theirs = best(lambda: csvlog.read([file])), best(lambda: pl.read_csv(file))
    print(
        f"CSV, {POINTS:,} lines: {size / ours:.0f} MB/s, {theirs / ours:.2f} of polars' own parse ({size / theirs:.0f})"
    )


def folders(root: Path) -> None:
    count, points = 1_000, 10_000
    losses = 2 + 1 / np.arange(1, points + 1)
    text = [{"step": k, "tokens": k * 100, "train_loss": float(v)} for k, v in enumerate(losses, start=1)]
    for k in range(count):
        config = RunConfig(name=f"{k}", n_params=1e6 * (k + 1), horizon=1e6, seed=0)
        writer = RunWriter(root / f"{k}", config, "tokens", {"train_loss": "training"})
        if k == 0:
            writer.write(text)
            whole = (root / "0" / "metrics.jsonl").read_bytes()
        else:
            (root / f"{k}" / "metrics.jsonl").write_bytes(whole)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    table = read([root])
    took = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    kept = sum(c.x.nbytes + c.loss.nbytes for r in table.runs for c in r.curves.values()) / 1e6
    memory = f"memory {(after - before) / kept:.1f} times the points"
    print(f"{count:,} run folders of {points:,} points: {took:.1f} s; {memory}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for k, part in enumerate((folders, json_lines, comma_separated, events)):
            place = Path(name) / str(k)
            place.mkdir()
            part(place)
