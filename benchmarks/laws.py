"""All laws on the same published curves under the same protocol: the tables of docs/laws.md.

ONECURVE_REFERENCE_DATA=... python benchmarks/laws.py             # prints them
ONECURVE_REFERENCE_DATA=... python benchmarks/laws.py --write     # puts them into docs/laws.md; or only some, by name

About three minutes on two cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import beta

from onecurve import Ladder, OnecurveError, Run, collapse, read
from onecurve.controls import controls
from onecurve.laws.annealing import Annealing
from onecurve.laws.averaging import MovingAverage
from onecurve.laws.decayed import DecayedPower
from onecurve.laws.estimate import normalised
from onecurve.laws.exponent import fit_exponent
from onecurve.laws.final import FinalLoss
from onecurve.laws.horizon import fit_horizon
from onecurve.laws.law import Law
from onecurve.laws.multipower import MultiPower
from onecurve.laws.powers import SumOfPowers
from onecurve.laws.quadratic import NoisyQuadratic, OwnNoise, decayed_at, split, transferred
from onecurve.laws.score import band, calibrated, errors, left_out_residuals, score
from onecurve.laws.shape import TokensPerParameter
from onecurve.laws.variance import fade
from onecurve.run import Curve, human
from published import FIT_ON, at_horizon, language_models, qiu

ROOT = Path(__file__).parent.parent
PEER = {
    25: (0.00158, 0.00744, 0.00341, 0.00314, 0.00449, 0.00250),
    100: (0.00478, 0.00727, 0.00375, 0.00325, 0.00567, 0.00138),
}
FLOORS = {"c5m": 3.13238735, "mlp": 0.00132648}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def milli(value: float) -> str:
    return f"{1e3 * value:.2f}"


def languages() -> str:
    """Multi-Power Law data: fitted on three curves, judged on six."""
    out = []
    for size in (25, 100):
        runs = language_models(size)
        fit_on, test = [runs[n] for n in FIT_ON], [r for n, r in runs.items() if n not in FIT_ON]
        rows = []

        def row(name: str, law: Law, test: list[Run] = test) -> list[str]:
            off = [float(np.abs(law.predict(r, r.curve().x) - r.curve().loss).mean()) for r in test]
            judged = [errors(law, r, None) for r in test]
            held, width = (float(np.mean([getattr(j, what) for j in judged])) for what in ("inside", "half_width"))
            inside = "" if law.band is None else f"{held:.0%}, ±{width:.1%}"
            worst = max(j.worst_relative for j in judged)
            return [name, f"**{milli(float(np.mean(off)))}**", *map(milli, off), f"{worst:.2%}", inside]

        rows.append(row("decayed-power", calibrated(DecayedPower.fit(fit_on), fit_on)[0]))
        rows.append(row("multi-power, at its optimum", calibrated(MultiPower.fit(fit_on), fit_on)[0]))
        rows.append(row("annealing", calibrated(Annealing.fit(fit_on), fit_on)[0]))
        rows.append(
            ["multi-power, published program", f"**{milli(np.mean(PEER[size]))}**", *map(milli, PEER[size]), "", ""]
        )
        rows.append(row("decayed-power, fitted on all nine (oracle)", DecayedPower.fit(list(runs.values()))))
        header = ["law", "mean", *(r.config.name for r in test), "worst", "in the band, width"]
        out.append(f"{size}M parameters, MAE on each test curve (1e-3 nats):\n\n" + table(header, rows))
    return "\n".join(out)


def transient() -> str:
    """How far the transient after the warmup reaches, from the fit curves alone."""
    rows = []
    for size in (25, 100):
        runs = [language_models(size)[n] for n in FIT_ON]
        values = [DecayedPower.fit(runs, after=a).report.objective for a in (1.0, 1.5, 2.0, 2.5, 3.0)]
        rows.append([f"{size}M", *(f"{1e7 * v:.2f}" for v in values)])
    return table(["objective (1e-7) from x times the warmup on", "1", "1.5", "2", "2.5", "3"], rows)


def thin(run: Run) -> Run:
    """Every fourth point of a curve: the sums of the Multi-Power Law over all of them take minutes."""
    return Run(
        run.config, {k: Curve(c.x[::4], c.loss[::4], c.kind) for k, c in run.curves.items()}, run.x_name, run.signals
    )


def key(run: Run) -> str:
    s = run.config.schedule
    return f"{s.shape} {s.decay_frac:g}"


def share(law: Callable[[Sequence[Run]], Law], runs: list[Run], bare: OwnNoise, blind: bool) -> tuple[float, float]:
    """The share of the schedules' effect that is removed, and the mean of the runs' MAE; each schedule left out."""
    off, none = [], []
    constant, decayed = split(runs)
    for out in sorted({key(r) for r in decayed}):
        fitted = law([*constant, *(r for r in decayed if key(r) != out)])
        for run in decayed:
            if key(run) == out:
                curve = run.curve()
                at = decayed_at(run, curve.x)
                asked = Run(run.config, {}, run.x_name) if blind else run
                off.append(np.abs(fitted.predict(asked, curve.x[at]) - curve.loss[at]).mean())
                none.append(np.abs(bare.parts(run, curve.x[at])[0] - curve.loss[at]).mean())
    return 1.0 - float(np.sum(off) / np.sum(none)), float(np.mean(off))


def schedules() -> str:
    """Schedules of arXiv 2507.02119: each left out in turn; all sizes where a law can, width 1024 for all laws."""
    rows = []
    logs = {task: qiu(f"{task}_schedules") for task in ("c5m", "mlp")}
    one = {task: [thin(r) for r in runs if r.config.width == 1024] for task, runs in logs.items()}
    laws: list[tuple[str, Callable[[Sequence[Run]], Law], bool, bool]] = [
        ("noisy-quadratic", NoisyQuadratic.fit, True, True),
        ("noisy-quadratic-own (needs the run's own noise)", OwnNoise.fit, False, True),
        ("decayed-power", DecayedPower.fit, True, False),
        ("multi-power", MultiPower.fit, True, False),
        ("annealing", Annealing.fit, True, False),
    ]
    for name, fit, blind, every in laws:
        cells = []
        for task in ("c5m", "mlp"):
            bare = OwnNoise.fit(logs[task], c=0.25)
            for runs in (logs[task] if every else None, one[task]):
                if runs is None:
                    cells.append("")
                    continue
                removed, mae = share(fit, runs, bare, blind)
                cells.append(f"{removed:.3f} ({mae:.2e})")
        rows.append([name, *cells])
    out = table(["law", "transformers", "width 1024", "MLPs", "width 1024"], rows)

    crossed = []
    for source, target in (("c5m", "mlp"), ("mlp", "c5m")):
        constants = NoisyQuadratic.fit(logs[source])
        own = NoisyQuadratic.fit(split(logs[target])[0])
        law = NoisyQuadratic(own.report, constants.c, constants.lag_share, constants.path_power, own.references)
        bare = OwnNoise.fit(logs[target], c=0.25)
        crossed.append(f"{share(lambda _, law=law: law, logs[target], bare, True)[0]:.3f} (on {target})")
    out += f"\nConstants of one task on the other, none of its decayed runs used: {', '.join(crossed)}.\n"
    out += "\n" + ratio(logs)
    return out


def ratio(logs: dict[str, list[Run]]) -> str:
    """Eq. 18: the ratio of noise to reducible loss of one size, carried to the others under the same schedule."""
    cells = []
    for task, runs in logs.items():
        law = OwnNoise.fit(runs)
        _, decayed = split(runs)
        budget = {"c5m": 1e10, "mlp": 1e9}[task]
        decayed = [r for r in decayed if abs(r.config.horizon / budget - 1) < 0.1]
        smallest = {key(r): r for r in sorted(decayed, key=lambda r: -r.config.n_params)}
        off, none = [], []
        for run in decayed:
            source = smallest[key(run)]
            if source is run:
                continue
            at = decayed_at(run, run.curve().x)
            x = run.curve().x[at]
            own_x = np.clip(x / run.end, 0, 1) * source.end
            noise, loss = source.signals["gradient_noise"], source.curve()
            floor = FLOORS[task]
            h = np.interp(own_x, noise.x, noise.value) / (np.interp(own_x, loss.x, loss.loss) - floor)
            base, slope = law.parts(run, x)
            drop = slope / np.interp(x, run.signals["gradient_noise"].x, run.signals["gradient_noise"].value)
            predicted = floor + transferred(base - floor, h, drop, law.c)
            off.append(np.abs(predicted - run.curve().loss[at]).mean())
            none.append(np.abs(base - run.curve().loss[at]).mean())
        cells.append(f"{1 - np.sum(off) / np.sum(none):.3f} ({task}, {len(off)} runs)")
    return (
        f"Eq. 18, noise over reducible loss read off the smallest size under the same schedule: {', '.join(cells)}.\n"
    )


def binomial(hits: int, count: int) -> str:
    """A share with its 90 % Clopper-Pearson interval."""
    low = beta.ppf(0.05, hits, count - hits + 1) if hits else 0.0
    high = beta.ppf(0.95, hits + 1, count - hits) if hits < count else 1.0
    return f"{hits} of {count} ({low:.0%} to {high:.0%})"


def ladders() -> str:
    """Whole curves of sizes and runs left out, with the coverage of their bands."""
    rows = []
    for task in ("c5m", "mlp"):
        runs = qiu(task)
        by_run, _ = left_out_residuals(FinalLoss, runs, None, "run")
        inside, whole, widths = [], [], []
        for r in by_run:
            made = band([q for q in by_run if q is not r], "run")
            assert made is not None
            held = np.abs(r.value) <= made.at(r.fraction)
            inside.append(held.mean())
            whole.append(held.all())
            widths.append(made.at(r.fraction).mean())
        count = len(whole)
        flat = float(np.quantile(np.abs(np.concatenate([r.value for r in by_run])), 0.9))
        rows.append(
            [task, f"each of {count} runs", "", f"{np.mean(inside):.1%}", binomial(sum(whole), count),
             f"±{np.mean(widths):.2%}", f"±{flat:.2%}"]
        )  # fmt: skip
        judged = score(FinalLoss, runs, leave_out="size")
        count = len(judged.rows)
        whole_runs = sum(r.whole for r in judged.rows)
        rows.append(
            [task, "each size but the smallest", f"{judged.mean('mean_relative'):.3%}", f"{judged.mean('inside'):.1%}",
             binomial(whole_runs, count), f"±{judged.mean('half_width'):.2%}", ""]
        )  # fmt: skip
    for task in ("c5m", "mlp"):
        judged = score(NoisyQuadratic, qiu(f"{task}_schedules"), leave_out="schedule")
        whole_runs = sum(r.whole for r in judged.rows)
        rows.append(
            [f"{task}, schedules (noisy-quadratic)", "each schedule", f"{judged.mean('mean_relative'):.3%}",
             f"{judged.mean('inside'):.1%}", binomial(whole_runs, len(judged.rows)),
             f"±{judged.mean('half_width'):.2%}", ""]
        )  # fmt: skip
    header = ["runs", "left out in turn", "mean error", "points in the band", "whole curves", "width", "constant width"]
    return table(header, rows)


def constant_rates() -> str:
    """Constant-rate ladders: the largest size left out; shapes by tokens per parameter."""
    rows = []
    mlp = at_horizon(qiu("mlp_const"))
    for name, law, runs, by in (
        ("powers", SumOfPowers, mlp, None),
        ("final", FinalLoss, [cut(r) for r in mlp], None),
        ("tokens-per-param (normalised)", TokensPerParameter, [cut(r) for r in mlp], "run"),
    ):
        judged = score(law, runs, leave_out=by)
        worst = max(judged.rows, key=lambda r: r.mean_relative)
        rows.append(
            [
                name,
                judged.left_out,
                f"{judged.mean('mean_relative'):.2%}",
                f"{worst.mean_relative:.2%} ({human(worst.n_params)})",
            ]
        )
    return table(["law", "left out", "mean relative error", "worst run"], rows)


def cut(run: Run) -> Run:
    """The run up to its horizon: at a constant rate that is what a shorter run would have logged."""
    curve = run.curve()
    here = curve.x < run.end
    end = np.exp(np.interp(np.log(run.end), np.log(curve.x[1:]), np.log(curve.loss[1:])))
    x, loss = np.append(curve.x[here], run.end), np.append(curve.loss[here], end)
    return Run(run.config, {"loss": Curve(x, loss, curve.kind)}, run.x_name)


def timescales() -> str:
    """The recorded language-model ladders: the shape of the largest size from its timescale."""
    rows = []
    corpus = ROOT / "examples" / "corpus"
    runs = []
    for name in ("fixed", "drifting"):
        runs += read([corpus / f"{name}.parquet"], corpus / f"{name}-runs.csv").runs
    largest = max(r.config.n_params for r in runs)
    train = [r for r in runs if r.config.n_params < largest]
    test = [r for r in runs if r.config.n_params == largest]
    law = MovingAverage.fit(train, "test_loss")
    x = np.linspace(0.2, 1.0, 81)
    mean = normalised(train, "test_loss", x).mean(axis=0)
    for run in test:
        curve = normalised([run], "test_loss", x)[0]
        off = [float(np.abs(v / curve - 1).mean()) for v in (law.predict(run, x * run.end), mean)]
        tau = controls(run.config).timescale
        rows.append([human(run.config.n_params), f"{tau:.3f}", *(f"{v:.2%}" for v in off)])
    return table(["largest size, N", "timescale", "moving-average", "mean of the smaller sizes' curves"], rows)


def studies() -> str:
    """Horizon, data exponent, fading spread."""
    constant = qiu("mlp_const")
    law = fit_horizon(constant, start=1e14)
    found = fit_exponent(constant)
    lines = [
        f"- horizon: exponent {law.exponent:.4f} by the published recipe, {law.robust_exponent:.4f} from one point a "
        f"size; interval {law.exponent_interval[0]:.3f} to {law.exponent_interval[1]:.3f}",
        f"- data exponent by collapse: {found.exponent:.3f}, {found.interval[0]:.3f} to {found.interval[1]:.3f} with a "
        f"size left out; the bowl is within a tenth of its least from {found.bottom[0]:.3f} to {found.bottom[1]:.3f}",
    ]
    for task in ("c5m", "mlp"):
        c = collapse(Ladder(qiu(task)), floor=FLOORS[task], grid=np.append(np.arange(100, 1000, 5) / 1000, 1.0))
        d = fade(c).fades[0]
        lines.append(
            f"- spread near the end ({task}): slope {d.slope:.3f} against log (1 - x); eq. 24 predicts "
            f"{d.flow_slope:.2f}, with the training fraction in place of flow time {d.fraction_slope:.2f}"
        )
    return "\n".join(lines) + "\n"


SECTIONS = {
    "language-models": languages,
    "transient": transient,
    "schedules": schedules,
    "ladders": ladders,
    "constant": constant_rates,
    "timescales": timescales,
    "studies": studies,
}


def main() -> None:
    page = ROOT / "docs" / "laws.md"
    text = page.read_text() if page.exists() else ""
    told = [name for name in sys.argv[1:] if name != "--write"]
    for name in told or SECTIONS:
        make = SECTIONS[name]
        try:
            made = make()
        except OnecurveError as error:
            sys.exit(f"{name}: {error}")
        print(f"{name}\n\n{made}", flush=True)
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if begin in text:
            before, rest = text.split(begin)
            text = before + begin + "\n" + made + "\n" + end + rest.split(end)[1]
    if "--write" in sys.argv:
        page.write_text(text)


if __name__ == "__main__":
    main()
