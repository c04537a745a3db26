"""Pickers and stopping rules replayed on the recorded sweeps of `examples/sweeps`.

python benchmarks/tune_replay.py surrogate       # errors of the surrogate by size, beside the oracle and the ablations
python benchmarks/tune_replay.py pick            # regret of picking a winner at a fraction of training
python benchmarks/tune_replay.py stop            # compute and regret of stopping rules
python benchmarks/tune_replay.py cover           # how often the intervals hold the ends

References are runs of the smallest size alone, 32 wide or 200K; sweeps of larger sizes are judged. A sweep is one seed
of one kind (decay, rate or batch); *all* is every run of one size, which a run with the same settings enters once.
The regret is the final loss of the pick over the best of the sweep, less 1. Compute counts losers until they are
stopped and the others in full, as a share of all runs in full; the winner alone would be one over their number.
`stop` needs Optuna and Ray: their own code decides, fed with the curves at every hundredth of training.
"""

import sys
import warnings
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from onecurve import read
from onecurve.laws.estimate import normalised
from onecurve.laws.path import path_of
from onecurve.laws.small_runs import SmallRuns
from onecurve.laws.surrogate import GRID, Surrogate, _oracle
from onecurve.tune.stop import NORMAL, ends_of, shapes_of, stopped_at
from onecurve.tune.sweep import Sweep, sweep_of

HERE = Path(__file__).parent.parent / "examples" / "sweeps"
SMALLEST = {"mlp": "32", "lm": "200K"}
FRACTIONS = (0.1, 0.2, 0.3, 0.5, 0.7)
EVERY = np.arange(1, 100) / 100
ORDERS = 5
"""Orders of arrival over which rules that depend on it are averaged."""
WORKERS = 4


def sweeps() -> dict[str, list]:
    """Recorded runs by sweep."""
    out = defaultdict(list)
    for family in ("mlp", "lm"):
        if (HERE / f"{family}.parquet").exists():
            for run in read([HERE / f"{family}.parquet"], HERE / f"{family}-runs.csv").runs:
                out[str(run.config.settings["sweep"])].append(run)
    return out


def cases() -> list[tuple[str, Sweep, SmallRuns, Surrogate]]:
    """Sweeps to be judged, each with its references."""
    by = sweeps()
    out = []
    for family, smallest in SMALLEST.items():
        mine = {name: runs for name, runs in by.items() if name.startswith(family)}
        tokens = "300" if family == "mlp" else "20"
        small = [run for name, runs in mine.items() if name.split("-")[1] == smallest for run in runs]
        same = [run for run in small if f"-{tokens}-" in str(run.config.settings["sweep"])]
        if not same or len(mine) < 2:
            continue
        law, surrogate = SmallRuns.fit(same), Surrogate.fit(small)
        for size in dict.fromkeys(name.split("-")[1] for name in mine):
            if size == smallest:
                continue
            together: dict[tuple, object] = {}
            for name in (n for n in mine if n.split("-")[1] == size):
                seeds = sorted({run.config.seed_label for run in mine[name]})
                for seed in seeds:
                    runs = [run for run in mine[name] if run.config.seed_label == seed]
                    out.append((f"{name} seed {seed}", sweep_of(runs), law, surrogate))
                    for run in runs:
                        c = run.config
                        together.setdefault((c.base_learning_rate, c.weight_decay, c.batch_tokens, seed), run)
            if len(together) > 8:
                out.append((f"{family}-{size} all", sweep_of(list(together.values())), law, surrogate))
    return out


def regret(sweep: Sweep, pick: int) -> float:
    final = np.where(np.isfinite(sweep.final), sweep.final, np.inf)
    return float(final[pick] / final.min() - 1.0)


def power_law(x: np.ndarray, loss: np.ndarray) -> float:
    """The end of one curve by ``E + A x^-a`` fitted to its own points after the warmup; E and A are 0 or more."""
    best = np.inf, np.nan
    for a in np.geomspace(0.02, 4.0, 40):
        basis = x**-a
        for design in (np.stack([np.ones_like(x), basis]), basis[None]):
            p = np.linalg.lstsq(design.T, loss, rcond=None)[0]
            error = float(((p @ design - loss) ** 2).sum())
            if (p >= 0).all() and error < best[0]:
                best = error, float(p.sum())
    return best[1]


def picks(sweep: Sweep, law: SmallRuns, surrogate: Surrogate, fraction: float) -> dict[str, float]:
    """Regret of each picker at a fraction."""
    now = sweep.until(fraction)
    seen = np.isfinite(now.loss)
    last = np.array([np.mean(row[s][-3:]) if s.any() else np.inf for row, s in zip(now.loss, seen, strict=True)])
    after = seen & (now.fraction > now.warm[:, None])
    own = np.array([power_law(now.fraction[s], row[s]) for row, s in zip(now.loss, after, strict=True)])
    finite = sweep.final[np.isfinite(sweep.final)]
    out = {
        "random": float(finite.mean() / finite.min() - 1.0),
        "current best": regret(sweep, int(np.argmin(last))),
        "power law": regret(sweep, int(np.nanargmin(own))),
    }
    for name, shape in (("small runs", law), ("surrogate", surrogate)):
        out[name] = regret(sweep, int(np.nanargmin(ends_of(now, *shapes_of(sweep, shape)).log_end)))
    return out


def pick() -> None:
    found = cases()
    names = ["random", "current best", "power law", "small runs", "surrogate"]
    table = {f: {name: [] for name in names} for f in FRACTIONS}
    print("| sweep | at | " + " | ".join(names) + " |")
    print("|---|---|" + "---|" * len(names))
    for label, sweep, law, surrogate in found:
        for f in FRACTIONS:
            got = picks(sweep, law, surrogate, f)
            print(f"| {label} | {f:.0%} | " + " | ".join(f"{got[name]:.1%}" for name in names) + " |")
            if not label.endswith("all"):
                for name in names:
                    table[f][name].append(got[name])
    for f, row in table.items():
        print(
            f"| **mean of {len(row['random'])}** | {f:.0%} | "
            + " | ".join(f"{np.mean(row[n]):.2%}" for n in names)
            + " |"
        )


def optuna_rule(make):
    """A pruner of Optuna as a rule: fractions at which runs are stopped, workers taking them in a given order."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def rule(loss, order):
        study = optuna.create_study(pruner=make(), direction="minimize")
        out, queue, busy = np.ones(len(loss)), list(order), []
        while queue or busy:
            while queue and len(busy) < WORKERS:
                busy.append([study.ask(), queue.pop(0), 0])
            for job in list(busy):
                trial, run, step = job
                trial.report(float(loss[run, step]), step + 1)
                if step + 1 == loss.shape[1]:
                    study.tell(trial, float(loss[run, step]))
                    busy.remove(job)
                elif trial.should_prune():
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                    out[run] = (step + 1) / loss.shape[1]
                    busy.remove(job)
                else:
                    job[2] += 1
        return out

    return rule


def ray_asha(loss, order):
    """Ray's ASHA as a rule: all runs side by side, in a given order at each hundredth."""
    from ray.tune.schedulers import AsyncHyperBandScheduler

    steps = loss.shape[1]
    scheduler = AsyncHyperBandScheduler(time_attr="t", metric="loss", mode="min", max_t=steps, grace_period=10)
    trials = {run: SimpleNamespace(trial_id=str(run), checkpoint=None) for run in order}
    for trial in trials.values():
        scheduler.on_trial_add(None, trial)
    out = np.ones(len(loss))
    for step in range(steps):
        for run in order:
            if out[run] == 1.0 and step + 1 < steps:
                told = scheduler.on_trial_result(None, trials[run], {"t": step + 1, "loss": float(loss[run, step])})
                if told == "STOP":
                    out[run] = (step + 1) / steps
    return out


def stop() -> None:
    import optuna.pruners as p

    warnings.filterwarnings("ignore")
    engines = {
        "Optuna median": optuna_rule(p.MedianPruner),
        "Optuna successive halving": optuna_rule(lambda: p.SuccessiveHalvingPruner(min_resource=10)),
        "Optuna Hyperband": optuna_rule(lambda: p.HyperbandPruner(min_resource=10, max_resource=100)),
        "Ray ASHA": ray_asha,
    }
    names = ["small runs", "surrogate", *engines]
    print("| sweep | one in | " + " | ".join(names) + " |")
    print("|---|---|" + "---|" * len(names))
    table = {name: [] for name in names}
    for label, sweep, law, surrogate in cases():
        at = np.append(EVERY, 1.0)
        loss = np.array([np.interp(at, sweep.fraction[np.isfinite(r)], r[np.isfinite(r)]) for r in sweep.loss])
        cells = []
        for name in names:
            if name in engines:
                rng = np.random.default_rng(0)
                outs = [engines[name](loss, [int(k) for k in rng.permutation(len(loss))]) for _ in range(ORDERS)]
            else:
                outs = [stopped_at(sweep, law if name == "small runs" else surrogate, EVERY)]
            spent = float(np.mean([out.mean() for out in outs]))
            lost = float(np.mean([np.nanmin(sweep.final[out == 1.0]) / np.nanmin(sweep.final) - 1.0 for out in outs]))
            cells.append(f"{spent:.0%}, {lost:.2%}")
            table[name].append((spent, lost, label.endswith("all")))
        print(f"| {label} | {1 / len(loss):.0%} | " + " | ".join(cells) + " |", flush=True)
    for words, which in (("mean of single sweeps", False), ("mean of all", True)):
        cells = []
        for name in names:
            rows = np.array([row[:2] for row in table[name] if row[2] == which])
            cells.append(f"{rows[:, 0].mean():.0%}, {rows[:, 1].mean():.2%}" if rows.size else "")
        print(f"| **{words}** | | " + " | ".join(cells) + " |")


def cover() -> None:
    print("| reference | " + " | ".join(f"{f:.0%}" for f in FRACTIONS) + " | all |")
    print("|---|" + "---|" * (len(FRACTIONS) + 1))
    found = [case for case in cases() if not case[0].endswith("all")]
    for kind in (2, 3):
        inside = []
        for case in found:
            sweep = case[1]
            shapes = shapes_of(sweep, case[kind])
            ok = np.isfinite(sweep.final)
            for f in FRACTIONS:
                ends = ends_of(sweep.until(f), *shapes)
                inside.append((np.abs(ends.log_end - np.log(sweep.final)) < NORMAL * ends.error)[ok].mean())
        by = np.array(inside).reshape(len(found), len(FRACTIONS))
        print(
            f"| {('small runs', 'surrogate')[kind - 2]} | "
            + " | ".join(f"{v:.0%}" for v in by.mean(axis=0))
            + f" | {by.mean():.0%} |"
        )


def surrogate() -> None:
    """Fitted on the smallest size at three tokens per parameter; the fourth and the larger sizes are held out."""
    by = sweeps()
    print("| runs | number | oracle | both | b alone | q alone | neither |")
    print("|---|---|---|---|---|---|---|")
    for family, held in (("mlp", "300"), ("lm", "10")):
        decays = {n: runs for n, runs in by.items() if n.startswith(family)}
        small = [
            r
            for n, runs in decays.items()
            if n.split("-")[1] == SMALLEST[family] and f"-{held}-" not in n
            for r in runs
        ]
        if len({str(r.config.settings["sweep"]) for r in small}) < 2:
            continue
        laws = [Surrogate.fit(small, following=f) for f in (("b", "q"), ("b",), ("q",), ())]
        print(f"| {family}, of the fit: m {laws[0].power:.3g} | | | | | | |")
        groups = {f"{family} {SMALLEST[family]}, fitted": small} | {
            n: r for n, r in decays.items() if r[0] not in small
        }
        for name, runs in groups.items():
            curves = normalised(runs, None, GRID)
            rates = np.array([np.log(path_of(r).at(GRID * r.end, path_of(r).s) + 0.1) for r in runs])
            errors = [
                np.abs([law.values(r, GRID * r.end) - c for r, c in zip(runs, curves, strict=True)]).mean()
                for law in laws
            ]
            oracle = _oracle(curves, rates, laws[0].power).mean()
            print(f"| {name} | {len(runs)} | {oracle:.3g} | " + " | ".join(f"{e:.3g}" for e in errors) + " |")


if __name__ == "__main__":
    {"pick": pick, "stop": stop, "cover": cover, "surrogate": surrogate}[sys.argv[1]](*sys.argv[2:])
