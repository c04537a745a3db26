# ruff: noqa: E501, B905
"""The monitor and the rules that people use, replayed on the recorded runs of `examples/faults`.

python benchmarks/watch_replay.py calibrate      # what healthy runs come to, and the limit for one false alarm in 100
python benchmarks/watch_replay.py faults         # caught, when, where placed; beside the other rules at the same rate
python benchmarks/watch_replay.py simulate       # 10,000 simulated healthy runs
python benchmarks/watch_replay.py cost           # a point, and ten million

Calibration runs set every rule's limit, test runs measure false alarms, faults are held against the limit as it stands.
"""

import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from onecurve import read
from onecurve.run import Run
from onecurve.watch.monitor import LIMIT, Plan, finish, start, statistics, step
from onecurve.watch.reference import Reference

HERE = Path(__file__).parent.parent / "examples" / "faults"
COSTS = 0.005
"""Faults that cost less of the final loss than this are counted apart."""


def load(family: str) -> tuple[Reference, dict[str, list[Run]]]:
    """The family's reference, and its judged runs by lot."""
    lots = defaultdict(list)
    for run in read([HERE / f"{family}.parquet"], HERE / f"{family}-runs.csv").runs:
        lots[str(run.config.settings["lot"])].append(run)
    return Reference.of(lots.pop("reference"), "train_loss"), dict(lots)


def watched(reference: Reference, run: Run, limit: float):
    """Events of a run, and the largest statistic of each kind of contrast had nothing been said."""
    plan = Plan.of(reference, run.config.n_params, run.end, limit)
    quiet = Plan.of(reference, run.config.n_params, run.end, np.inf)
    c = run.curves["train_loss"]
    events, s, q = [], start(plan), start(quiet)
    for x, loss in zip(c.x.tolist(), c.loss.tolist(), strict=True):
        s, new = step(plan, s, x, loss)
        events += new
        q, _ = step(quiet, q, x, loss)
    s, new = finish(plan, s)
    q, _ = finish(quiet, q)
    blocks = np.arange(reference.blocks)
    z = [statistics(quiet, np.where(blocks <= b, q.residual, np.nan), b) for b in blocks]
    return events + new, np.array(z)


def first_alarm(events) -> object | None:
    return next((e for e in events if e.severity == "alarm"), None)


# The rules that people use; each gives a score at every point, from what came before it; it fires above a limit.


def window_sigma(x, loss, size: int = 128):
    """Standard deviations over the mean of the last 128 losses."""
    out = np.zeros(loss.size)
    sums, squares = np.cumsum(np.r_[0.0, loss]), np.cumsum(np.r_[0.0, loss**2])
    k = np.arange(size, loss.size)
    mean = (sums[k] - sums[k - size]) / size
    deviation = np.sqrt(np.maximum((squares[k] - squares[k - size]) / size - mean**2, 1e-24))
    out[k] = (loss[k] - mean) / deviation
    return out


def modified_z(x, loss, size: int = 21):
    """The modified z-score of the last 21 losses (median and median absolute deviation)."""
    out = np.zeros(loss.size)
    windows = np.lib.stride_tricks.sliding_window_view(loss, size)[:-1]
    middle = np.median(windows, axis=1)
    spread = np.median(np.abs(windows - middle[:, None]), axis=1)
    out[size:] = 0.6745 * (loss[size:] - middle) / np.maximum(spread, 1e-12)
    return out


def times_median(x, loss, size: int = 128):
    """The loss over the median of the last 128."""
    out = np.zeros(loss.size)
    windows = np.lib.stride_tricks.sliding_window_view(loss, size)[:-1]
    out[size:] = loss[size:] / np.median(windows, axis=1)
    return out


def smoothed_rise(x, loss, share: float = 0.02):
    """How far the smoothed loss lies over its lowest value so far, in logs."""
    k = max(1, round(share * loss.size))
    smooth = np.convolve(loss, np.ones(k) / k, "valid")
    out = np.zeros(loss.size)
    out[k - 1 :] = np.log(smooth / np.minimum.accumulate(smooth))
    return out


RULES = {
    "128-step window, sigmas": window_sigma,
    "modified z (MAD)": modified_z,
    "times the median": times_median,
    "rise of the smoothed loss": smoothed_rise,
}


def scores(rule, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Fractions and scores of a rule after a tenth of training."""
    c = run.curves["train_loss"]
    fraction = c.x / run.end
    loss = np.where(np.isfinite(c.loss), c.loss, 1e30)
    return fraction, np.where(fraction > 0.1, rule(c.x, loss), 0.0)


def clopper_pearson(count: int, total: int) -> tuple[float, float]:
    """The central 95 % interval of a share."""
    from scipy.stats import beta

    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, total - count + 1))
    high = 1.0 if count == total else float(beta.ppf(0.975, count + 1, total - count))
    return low, high


def limits(family: str, reference: Reference, lots) -> dict[str, float]:
    """Every rule's limit for one false alarm in 100 runs: the largest but one in 100 of the calibration runs."""
    out = {}
    runs = lots["calibration"]
    top = np.array([np.nanmax(np.abs(watched(reference, run, np.inf)[1])) for run in runs])
    out["onecurve"] = float(np.quantile(top, 0.99, method="higher"))
    for name, rule in RULES.items():
        out[name] = float(np.quantile([scores(rule, run)[1].max() for run in runs], 0.99, method="higher"))
    return out


def calibrate() -> None:
    for family in ("mlp", "lm"):
        if not (HERE / f"{family}.parquet").exists():
            continue
        reference, lots = load(family)
        print(
            f"{family}: reference of {reference.runs} runs at {len(reference.sizes)} sizes; {dict(zip(lots, map(len, lots.values())))}"
        )
        for lot in ("calibration", "test"):
            if lot not in lots:
                continue
            z = np.array([np.nanmax(np.abs(watched(reference, run, np.inf)[1]), axis=0) for run in lots[lot]])
            top = z.max(axis=1)
            print(
                f"  {lot}: {len(z)} runs, largest statistic: median {np.median(top):.2f}, 90 % {np.quantile(top, 0.9):.2f}, "
                f"99 % {np.quantile(top, 0.99):.2f}, all {top.max():.2f}; by kind {np.nanmax(z, axis=0).round(1)}"
            )
            count = int((top > LIMIT).sum())
            low, high = clopper_pearson(count, len(top))
            print(f"  {lot}: beyond the shipped limit {LIMIT:g}: {count} of {len(top)} ({low:.1%} to {high:.1%})")


def faults() -> None:
    for family in ("mlp", "lm"):
        if not (HERE / f"{family}.parquet").exists():
            continue
        reference, lots = load(family)
        limit = limits(family, reference, lots)
        test = lots.get("test", [])
        print(f"\n{family}: limits {', '.join(f'{k} {v:.3g}' for k, v in limit.items())}")
        for name, value in limit.items():
            if name == "onecurve":
                count = sum(first_alarm(watched(reference, run, value)[0]) is not None for run in test)
            else:
                count = sum(scores(RULES[name], run)[1].max() > value for run in test)
            if test:
                low, high = clopper_pearson(count, len(test))
                print(f"  false alarms in {len(test)} test runs: {name} {count} ({low:.1%} to {high:.1%})")
        healthy = np.log([float(run.config.settings["final_test_loss"]) for run in lots["calibration"] + test]).mean()
        print("| fault | runs | cost | caught | onset off | noticed after | best raw-loss rule: caught, after | lead |")
        print("|---|---|---|---|---|---|---|---|")
        for fault, runs in lots.items():
            if fault in ("calibration", "test"):
                continue
            cost, caught, off, after, raw_caught, raw_after, leads = [], 0, [], [], 0, [], []
            for run in runs:
                onset = float(run.config.settings["onset"])
                cost.append(np.log(float(run.config.settings["final_test_loss"])) - healthy)
                alarm = next(
                    (
                        e
                        for e in watched(reference, run, limit["onecurve"])[0]
                        if e.severity == "alarm" and e.fraction >= onset
                    ),
                    None,
                )
                mine = alarm.fraction if alarm else 1.0
                if alarm:
                    caught += 1
                    off.append(abs(alarm.onset - onset))
                    after.append(alarm.fraction - onset)
                theirs = 1.0
                for name, rule in RULES.items():
                    fraction, score = scores(rule, run)
                    fired = (score > limit[name]) & (fraction >= onset)
                    theirs = min(theirs, float(fraction[fired.argmax()]) if fired.any() else 1.0)
                raw_caught += theirs < 1.0
                raw_after.append(theirs - onset)
                leads.append(theirs - mine)
            median = lambda v: f"{np.median(v):.1%}" if v else ""  # noqa: E731
            print(
                f"| {fault} | {len(runs)} | {np.median(np.expm1(cost)):+.1%} | {caught} | {median(off)} | {median(after)} | "
                f"{raw_caught}, {median(raw_after)} | {median(leads)} |"
            )


def simulate() -> None:
    """Healthy runs drawn from the family's own noise: white in each block, with the drift of another size."""
    rng = np.random.default_rng(0)
    for family in ("mlp", "lm"):
        if not (HERE / f"{family}.parquet").exists():
            continue
        reference, lots = load(family)
        n = lots["calibration"][0].config.n_params
        plan = Plan.of(reference, n, 1.0, LIMIT)
        block = plan.noise[0] / np.sqrt(1.5)
        top = np.empty(10_000)
        for k in range(top.size):
            residual = block * rng.standard_normal(reference.blocks)
            residual = residual + np.cumsum(plan.drift[0] * rng.standard_normal(reference.blocks)) / 3.0
            top[k] = max(
                np.nanmax(np.abs(statistics(plan, residual, b)), initial=0.0) for b in range(10, reference.blocks, 3)
            )
        print(
            f"{family}: 10,000 simulated runs beyond {LIMIT:g}: {(top > LIMIT).mean():.2%}; 99 % at {np.quantile(top, 0.99):.2f}"
        )


def cost() -> None:
    rng = np.random.default_rng(0)
    reference, _ = load("lm" if (HERE / "lm.parquet").exists() else "mlp")
    for points in (10_000, 100_000, 1_000_000, 10_000_000):
        plan = Plan.of(reference, reference.sizes[-1] * 4, float(points), LIMIT)
        s, began = start(plan), time.perf_counter()
        for x in range(1, points + 1):
            s, _ = step(plan, s, float(x), 1.0 + 1e-3 * (x % 7))
        seconds = time.perf_counter() - began
        print(
            f"{points:>10,} points: {1e6 * seconds / points:.2f} us each, state of {s.residual.nbytes} bytes and 14 numbers"
        )
    del rng


if __name__ == "__main__":
    {"calibrate": calibrate, "faults": faults, "simulate": simulate, "cost": cost}[sys.argv[1]]()
