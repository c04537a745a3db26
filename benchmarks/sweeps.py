"""Sweeps of weight decay, learning rate and batch size at several sizes, for stopping rules to be tried on.

The grid below was written down before anything was trained, and every sweep of it is reported.

python benchmarks/sweeps.py train /tmp/sweeps [SWEEP ...]   # goes on where it stopped; hours on two cores
python benchmarks/sweeps.py record /tmp/sweeps              # what is finished, into examples/sweeps
python benchmarks/sweeps.py report                          # from the recorded curves, the table of the notebook

MLPs on the Fourier task: base width 32, 512 samples a step, rate .04 at the base width (twice the best one without
decay: there decay matters), muP, warmup 5 %, linear to zero, 300 samples a parameter; at the smallest width decay
sweeps at 75, 150 and 600 as well. Language models: bytes of the Python standard library, 4096 tokens a step, rate .012,
CompleteP, warmup 10 %, linear to zero, 20 tokens a parameter; the smaller one's decay also at 5 and 10.
Each sweep has eight values, a factor 2 apart. Rate and batch sweeps hold the decay, so their timescale changes.
MLPs up to width 64 have two seeds, the others one. A sweep is recorded once all its runs are finished.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from onecurve import read
from onecurve.controls import controls
from onecurve.plan.recipe import Recipe, jobs
from onecurve.run import Run
from onecurve.train.ladder import train_ladder
from recorded import finished, settings

HERE = Path(__file__).parent.parent / "examples" / "sweeps"
TIMESCALES = [0.02 * 2**k for k in range(8)]
RATES = [2.0**k for k in range(-4, 4)]
"""Over the rate of the decay sweep."""
BATCHES = [2.0**k for k in range(-3, 5)]
"""Over the batch of the decay sweep."""
MIDDLE = 0.32
"""The timescale whose decay the rate and batch sweeps hold, at the middle rate and batch."""
AT = (0.1, 0.3, 0.6, 1.0)

MLPS = [(width, 300.0, kind) for kind in ("decay", "rate", "batch") for width in (32, 64, 128)]
MLPS[1:1] = [(32, tokens, "decay") for tokens in (75.0, 150.0, 600.0)]
LMS = [(size, tokens, kind) for kind in ("decay", "rate") for size, tokens in (("200K", 20.0), ("420K", 20.0))]
LMS[1:1] = [("200K", 5.0, "decay"), ("200K", 10.0, "decay")]
SWEEPS = {f"mlp-{width}-{tokens:g}-{kind}": ("mlp", width, tokens, kind) for width, tokens, kind in MLPS}
SWEEPS |= {f"lm-{size}-{tokens:g}-{kind}": ("lm", size, tokens, kind) for size, tokens, kind in LMS}

SIZES = {"200K": {"width": 64, "layers": 2}, "420K": {"width": 96, "layers": 2}}
COMMON: dict[str, dict[str, Any]] = {
    "mlp": {
        "task": {"kind": "fourier", "dimension": 3, "modes": 1000, "exponent": 2.0},
        "model": {"kind": "mlp", "blocks": 3, "inputs": 3},
        "schedule": {"shape": "linear", "warmup": 0.05},
        "evaluation": {"points": 200, "samples": 8192},
    },
    "lm": {
        "task": {"kind": "tokens"},
        "model": {"kind": "transformer", "vocabulary": 256, "context": 128, "ffn_multiple": 8.0, "head_size": 16},
        "schedule": {"shape": "linear", "warmup": 0.1},
        "evaluation": {"points": 240, "samples": 16_384},
    },
}
RATE, BATCH = {"mlp": 0.04, "lm": 0.012}, {"mlp": 512, "lm": 4096}


def recipe(name: str) -> Recipe:
    """One sweep as a recipe: eight sizes of the same shape, each with its own value."""
    family, size, tokens, kind = SWEEPS[name]
    shape = {"width": size} if family == "mlp" else SIZES[size]
    ladder = {"parameterisations": ["mup"], "base_width": 32, "seeds": 1 if size == 128 else 2}
    if family == "lm":
        ladder = {"parameterisations": ["completep"], "base_width": 64, "base_layers": 2, "seeds": 1}
    content = COMMON[family] | {"optimiser": {"learning_rate": RATE[family], "batch": BATCH[family]}}
    if family == "lm":
        content["optimiser"]["clip"] = 1.0
    content["horizon"] = {"tokens_per_param": tokens}

    def build(sizes: list[dict[str, Any]]) -> Recipe:
        return Recipe.model_validate(content | {"ladder": ladder | {"sizes": sizes}})

    n = build([shape]).n_params(build([shape]).ladder.sizes[0])
    steps = round(n * tokens / BATCH[family])

    def decay(timescale: float) -> float:
        return 1.0 / (RATE[family] * timescale * steps)

    match kind:
        case "decay":
            values = [{"weight_decay": decay(timescale)} for timescale in TIMESCALES]
        case "rate":
            values = [{"learning_rate": RATE[family] * f, "weight_decay": decay(MIDDLE)} for f in RATES]
        case _:
            batches = [int(BATCH[family] * f) for f in BATCHES]
            values = [{"batch": b, "steps": round(n * tokens / b), "weight_decay": decay(MIDDLE)} for b in batches]
    return build([{"name": f"{name}-{k}", "steps": steps} | shape | value for k, value in enumerate(values)])


def train(out: str, *names: str) -> None:
    for name in names or SWEEPS:
        train_ladder(recipe(name), Path(out) / name, lambda state: None)
        print(name, flush=True)


def record(out: str) -> None:
    """All finished sweeps as one table of points (Parquet) and one of runs (CSV) a family."""
    HERE.mkdir(exist_ok=True)
    for family in ("mlp", "lm"):
        points, rows = [], []
        for name in (name for name in SWEEPS if name.startswith(family)):
            folders = [Path(out) / name / "runs" / m.config.name for job in jobs(recipe(name)) for m in job.members]
            if not all(map(finished, folders)):
                continue
            for path in folders:
                run = read([path]).runs[0]
                c, curve = run.config, run.curves["test_loss"]
                points.append(pl.DataFrame({"run_id": c.name, run.x_name: curve.x, "test_loss": curve.loss}))
                rows.append(settings(c) | {"sweep": name, "optimiser": c.optimiser})
        if rows:
            table = pl.concat(points).with_columns(pl.col("test_loss").cast(pl.Float32))
            table.write_parquet(HERE / f"{family}.parquet", compression="zstd", compression_level=19)
            pl.DataFrame(rows).write_csv(HERE / f"{family}-runs.csv")
            print(f"{family}: {len(rows)} runs, {table.height} points")


def value(run: Run) -> float:
    """What a run's sweep varies: timescale, learning rate at the base width, or batch."""
    kind = str(run.config.settings["sweep"]).rsplit("-", 1)[1]
    c = run.config
    varied = {"decay": controls(c, run.unit).timescale, "rate": c.base_learning_rate, "batch": c.batch_tokens}[kind]
    return float(f"{varied:.4g}")


def standings(runs: list[Run]) -> tuple[np.ndarray, np.ndarray, float, list[float]]:
    """Of one sweep: its values (V,), their held-out losses at the fractions `AT` (V, F), the seeds' noise, the turn.

    Losses are means over seeds, infinite where one is not finite. The noise is the standard error of a value's final
    loss over that loss, pooled over values; nan with one seed. The turn is what picking the leader at 30 % instead of
    the winner costs, both picked on one seed and scored on the end of the other, once each way; none with one seed.
    """
    values = np.array([value(run) for run in runs])
    curves = [run.curves["test_loss"] for run in runs]
    loss = np.array([np.interp(np.array(AT) * r.end, c.x, c.loss) for r, c in zip(runs, curves, strict=True)])
    loss[~np.isfinite(loss)] = np.inf
    distinct = np.unique(values)
    end = [loss[values == v, -1] for v in distinct]
    spread = [e.var(ddof=1) / e.size / e.mean() ** 2 for e in end if e.size > 1 and np.isfinite(e).all()]
    mean = np.array([loss[values == v].mean(axis=0) for v in distinct])
    seeds = np.array([run.config.seed_label for run in runs])
    each = [np.array([loss[(values == v) & (seeds == s)][0] for v in distinct]) for s in np.unique(seeds)]
    turn = [
        float(b[a[:, AT.index(0.3)].argmin(), -1] / b[a[:, -1].argmin(), -1] - 1.0)
        for a, b in zip(each, each[::-1], strict=True)
        if a is not b
    ]
    return distinct, mean, float(np.sqrt(np.mean(spread))) if spread else np.nan, turn


def report() -> None:
    """A table: each recorded sweep's leader at some fractions, and what picking it then would have cost.

    Two columns a fraction: the rank correlation (Spearman) of the losses there with the final ones, and the regret, the
    leader's final loss over the best one, minus 1. The winner is chosen by the same noise that it is then judged by, so
    regret alone is no evidence: the ranking *turns* where the leader at 30 % is worse than the winner both times when
    they are picked on one seed and scored on the other.
    """
    shares = [f"{x:.0%}" for x in AT]
    print(f"| sweep | best at {', '.join(shares[:-1])}, end | rank correlation | regret | seed noise | other seed | |")
    print("|---|---|---|---|---|---|---|")
    for family in ("mlp", "lm"):
        if not (HERE / f"{family}.parquet").exists():
            continue
        runs = read([HERE / f"{family}.parquet"], HERE / f"{family}-runs.csv").runs
        for name in dict.fromkeys(str(run.config.settings["sweep"]) for run in runs):
            values, mean, noise, turn = standings([run for run in runs if run.config.settings["sweep"] == name])
            rank = mean.argsort(axis=0).argsort(axis=0)
            order = [np.corrcoef(rank[:, k], rank[:, -1])[0, 1] for k in range(len(AT) - 1)]
            best = mean.argmin(axis=0)
            regret = mean[best, -1] / mean[:, -1].min() - 1.0
            cells = [
                name,
                " ".join(f"{values[b]:g}" for b in best),
                " ".join(f"{rho:.2f}" for rho in order),
                " ".join(f"{lost:.1%}" for lost in regret[:-1]),
                "one seed" if np.isnan(noise) else f"{noise:.1%}",
                " ".join(f"{cost:+.1%}" for cost in turn),
                "turns" if turn and min(turn) > 0 else "",
            ]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    {"train": train, "record": record, "report": report}[command](*rest)
