"""The published training logs that several benchmarks read, as runs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from onecurve import Columns, Run, RunConfig, read
from onecurve.run import Curve, Signal


def folder() -> Path:
    told = os.environ.get("ONECURVE_REFERENCE_DATA")
    if told is None:
        sys.exit("set ONECURVE_REFERENCE_DATA to the folder that holds qiu2025 and mpl2025")
    return Path(told)


def qiu(log: str) -> list[Run]:
    """Runs of one log of arXiv 2507.02119, x in tokens, copies dropped."""
    where = folder() / "qiu2025"
    columns = Columns(x="tokens", loss="loss", held_out=True)
    runs = read([where / f"curves_{log}.parquet"], where / "runs.csv", columns).runs
    return [run for run in runs if not run.config.settings["copy"]]


def at_horizon(runs: list[Run]) -> list[Run]:
    """Constant-rate runs with their published compute-optimal horizon in place of their length."""
    out = []
    for run in runs:
        horizon = run.config.settings["horizon_compute_pf"] * 1e15 / (6.0 * run.config.n_params)
        out.append(replace(run, config=run.config.model_copy(update={"horizon": horizon})))
    return out


FIT_ON = ("cosine_24000", "constant_24000", "wsdcon_9")


def rates(name: str) -> np.ndarray:
    """The rate of every step of a schedule of arXiv 2503.12811."""
    kind, *rest = name.split("_")
    steps = 16_000 if kind == "wsdcon" else int(rest[-1])
    t, peak, last = np.arange(steps), 3e-4, 3e-5
    u = np.clip((t - 20_000) / 4_000, 0.0, 1.0)
    made = {
        "constant": np.full(steps, peak),
        "cosine": last + (peak - last) * (1 + np.cos(np.pi * (t - 2_160) / (steps - 2_160))) / 2,
        "wsdcon": np.where(t < 8_000, peak, float(rest[0]) * 1e-5),
        "wsd": peak ** (1 - u) * last**u,
        "wsdld": peak * (1 - u) + last * u,
    }[kind]
    made[:2_160] = np.linspace(0.0, peak, 2_160)
    return made


def language_models(size: int) -> dict[str, Run]:
    """The nine runs of a size (25 or 100 M parameters) of arXiv 2503.12811, x in steps."""
    table = pl.read_parquet(folder() / "mpl2025" / "curves.parquet").filter(pl.col("model_params_m") == size)
    out = {}
    for name in table["schedule"].unique(maintain_order=True).to_list():
        rows = table.filter(pl.col("schedule") == name).sort("step")
        rate = rates(name)
        config = RunConfig(name=name, n_params=size * 1e6, horizon=float(rate.size), settings={"schedule": name})
        curve = Curve(rows["step"].to_numpy() + 1.0, rows["loss"].to_numpy(), "held-out")
        out[name] = Run(
            config, {"loss": curve}, "steps", {"learning_rate": Signal(np.arange(1.0, rate.size + 1), rate)}
        )
    return {name: out[name] for name in (*FIT_ON, *(n for n in out if n not in FIT_ON))}
