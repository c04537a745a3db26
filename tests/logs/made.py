"""One ladder, written through every format: by the real tool where it is at hand, else in its documented form."""

from __future__ import annotations

import json
import sqlite3
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from onecurve import OnecurveError, read

SIZES = {"small": 1e6, "middle": 4e6, "large": 16e6}
STEPS = np.arange(1, 201)
SETTINGS = {
    "learning_rate": 1e-3, "weight_decay": 0.1, "global_batch_size": 64, "seq_length": 128, "max_steps": 200,
    "lr_scheduler_type": "linear", "seed": 0,
}  # fmt: skip


def loss(n: float) -> np.ndarray:
    """Exact in float32, so that every format keeps it to the bit."""
    values = 2 + (n / 1e6) ** -0.2 * (STEPS / 200.0) ** -0.3
    return values.astype(np.float32).astype(np.float64)


def varint(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def message(*fields: tuple[int, bytes | int]) -> bytes:
    out = b""
    for number, content in fields:
        if isinstance(content, int):
            out += varint(number << 3) + varint(content)
        else:
            out += varint(number << 3 | 2) + varint(len(content)) + content
    return out


def wandb_file(path: Path, records: list[bytes]) -> None:
    """A `.wandb` file: LevelDB's log format."""
    data = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        first = True
        while True:
            left = 32768 - len(data) % 32768
            if left < 7:
                data += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if not record else 2) if first else (4 if not record else 3)
            data += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
            if not record:
                break
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(data))


def item(key: str, value: object, nested: bool = False) -> bytes:
    return message((2 if nested else 1, key.encode()), (16, json.dumps(value).encode()))


def history(step: int, **metrics: object) -> bytes:
    rows = [(1, item(k, v, nested=True)) for k, v in metrics.items()]
    return message((2, message(*rows, (2, message((1, step))))))


def wandb_offline(folder: Path) -> Path:
    for name, n in SIZES.items():
        config = message(*((1, item(k, v)) for k, v in (SETTINGS | {"n_params": n}).items()))
        records = [message((17, message((1, b"x1"), (4, config), (8, name.encode()))))]
        records += [history(int(k), **{"train/loss": v, "_runtime": 1.0}) for k, v in zip(STEPS, loss(n), strict=True)]
        wandb_file(folder / f"offline-run-{name}" / f"run-{name}.wandb", records)
    return folder


def tensorboard(folder: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    for name, n in SIZES.items():
        with SummaryWriter(folder / name) as writer:
            writer.add_text("args", json.dumps(SETTINGS))
            writer.add_hparams({"dropout": 0.1, "compile": True, "task": "text"}, {}, run_name=".")
            for k, v in zip(STEPS, loss(n), strict=True):
                writer.add_scalar("train/loss", v, int(k))
                writer.add_scalar("n_tokens_seen", int(k) * 8192, int(k))
    return folder


def mlflow(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT)")
        db.execute("CREATE TABLE params (run_uuid TEXT, key TEXT, value TEXT)")
        db.execute("CREATE TABLE metrics (key TEXT, value REAL, timestamp INT, run_uuid TEXT, step INT, is_nan INT)")
        for name, n in SIZES.items():
            db.execute("INSERT INTO runs VALUES (?, ?)", (f"id-{name}", name))
            for k, v in (SETTINGS | {"n_params": n}).items():
                db.execute("INSERT INTO params VALUES (?, ?, ?)", (f"id-{name}", k, str(v)))
            rows = [
                ("train_loss", float(v), int(k), f"id-{name}", int(k), 0) for k, v in zip(STEPS, loss(n), strict=True)
            ]
            db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
    return file


def mlflow_store(folder: Path) -> Path:
    for name, n in SIZES.items():
        run = folder / "1" / f"id-{name}"
        for inside in ("metrics", "params", "tags"):
            (run / inside).mkdir(parents=True)
        (run / "meta.yaml").write_text(f"run_name: {name}\n")
        (run / "tags" / "mlflow.runName").write_text(name)
        for k, v in (SETTINGS | {"n_params": n}).items():
            (run / "params" / k).write_text(str(v))
        lines = [f"{1000 + k} {float(v)!r} {k}\n" for k, v in zip(STEPS, loss(n), strict=True)]
        (run / "metrics" / "train_loss").write_text("".join(lines))
    return folder


def trackio(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")
        db.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT)")
        for name, n in SIZES.items():
            db.execute(
                "INSERT INTO configs (run_name, config) VALUES (?, ?)", (name, json.dumps(SETTINGS | {"n_params": n}))
            )
            for k, v in zip(STEPS, loss(n), strict=True):
                row = (name, int(k), json.dumps({"train_loss": float(v), "x": "NaN"}))
                db.execute("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", row)
    return file


def trainer_state(folder: Path) -> Path:
    for name, n in SIZES.items():
        history = [{"step": int(k), "loss": float(v), "epoch": k / 200} for k, v in zip(STEPS, loss(n), strict=True)]
        for last in (100, 200):
            rows = history[:last] + ([{"step": 200, "train_runtime": 9.0, "train_loss": 2.5}] if last == 200 else [])
            state = {"global_step": last, "max_steps": 200, "log_history": rows, "best_metric": None}
            place = folder / name / f"checkpoint-{last}"
            place.mkdir(parents=True)
            (place / "trainer_state.json").write_text(json.dumps(state))
    return folder


def json_lines(folder: Path) -> Path:
    for name, n in SIZES.items():
        (folder / name).mkdir(parents=True)
        rows = [{"tracker": "json_logger", "event": "hparams", "hparams": SETTINGS | {"n_params": n}}]
        rows += [
            {"tracker": "json_logger", "event": "log", "step": int(k), "metrics": {"train/loss": float(v)}}
            for k, v in zip(STEPS, loss(n), strict=True)
        ]
        (folder / name / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


def lightning(folder: Path) -> Path:
    for name, n in SIZES.items():
        place = folder / name
        place.mkdir(parents=True)
        lines = ["epoch,step,train_loss,val_loss"]
        lines += [f"0,{k},{float(v)!r}," for k, v in zip(STEPS, loss(n), strict=True)] + ["0,200,,2.5"]
        (place / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def megatron(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in SIZES.items():
        dump = {"global_batch_size": 64, "seq_length": 128, "lr": 1e-3, "weight_decay": 0.1, "seed": 0}
        dump |= {"lr_decay_style": "linear", "train_iters": 200}
        lines = ["------------------------ arguments ------------------------"]
        lines += [f"  {k} {'.' * 40} {v}" for k, v in dump.items()]
        lines += [
            f" [2026-12-01 10:00:00] iteration {k:8d}/ 200 | consumed samples: {k * 64} | elapsed time per iteration"
            f" (ms): 9.1 | learning rate: 1.0E-03 | global batch size: 64 | lm loss: {float(v)!r} | loss scale: 1.0 |"
            " grad norm: 0.9 | number of skipped iterations: 0 | number of nan iterations: 0 |"
            for k, v in zip(STEPS, loss(n), strict=True)
        ]
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
    return folder


def torchtitan(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in SIZES.items():
        lines = [
            f"\x1b[36m[titan] 2026-12-01 10:00:00 - root - INFO - \x1b[31mstep: {k:2d}  \x1b[32mloss: {float(v)!r}  "
            "\x1b[33mgrad_norm: 0.9  \x1b[34mmemory: 1.00GiB(2.0%)  \x1b[36mtps: 9,123  \x1b[35mmfu: 30.1%\x1b[39m"
            for k, v in zip(STEPS, loss(n), strict=True)
        ]
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
    return folder


def nanogpt(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in SIZES.items():
        lines = ["iter,train_loss,lr"] + [f"{k},{float(v)!r},0.001" for k, v in zip(STEPS, loss(n), strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def wandb_export(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = [f"{name} - train/loss{part}" for name in SIZES for part in ("", "__MIN", "__MAX")]
    lines = [",".join(f'"{c}"' for c in ["Step", *columns])]
    every = [loss(n) for n in SIZES.values()]
    for k, values in zip(STEPS, zip(*every, strict=True), strict=True):
        lines.append(",".join([f'"{k}"', *(f'"{float(v)!r}"' for v in values for _ in range(3))]))
    file.write_text("\n".join(lines) + "\n")
    return file


def olmo(folder: Path) -> Path:
    for name, n in SIZES.items():
        (folder / name).mkdir(parents=True)
        for k, v in zip(STEPS, loss(n), strict=True):
            content = {"train/CE loss": float(v), "throughput/total tokens": int(k) * 8192}
            (folder / name / f"metrics_step{k}.json").write_text(json.dumps(content))
    return folder


FORMATS = {
    "W&B offline": (wandb_offline, "wandb"),
    "TensorBoard": (tensorboard, "tb"),
    "MLflow": (mlflow, "mlflow.db"),
    "MLflow store": (mlflow_store, "mlruns"),
    "Trackio": (trackio, "trackio.db"),
    "Hugging Face Trainer": (trainer_state, "hf"),
    "JSON lines": (json_lines, "jsonl"),
    "Lightning": (lightning, "lightning"),
    "Megatron-LM": (megatron, "megatron"),
    "torchtitan": (torchtitan, "titan"),
    "nanoGPT CSV": (nanogpt, "nano"),
    "W&B CSV export": (wandb_export, "export.csv"),
    "OLMo-core": (olmo, "olmo"),
}


def refused(url) -> tuple[str, float]:
    """What is said, and after how long."""
    start = time.monotonic()
    with pytest.raises(OnecurveError) as error:
        read([url])
    assert "\n" not in str(error.value)
    return str(error.value), time.monotonic() - start
