"""How the batch may grow: the best one against tokens, and the critical one, from runs at several batches.

Both follow arXiv 2505.13738. The critical batch is that of the hyperbola ``D = D_min (1 + B / B_crit)`` (McCandlish et
al., arXiv 1812.06162): at it, a target loss takes twice the tokens that it takes at the smallest batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.laws.optimum import LEAST, LEVEL, PowerLaw, Sweep, final_loss, power_law
from onecurve.run import Run, human

TARGETS = 5
"""Losses at which the critical batch is asked, spread over what every batch reaches."""
BEYOND = 1.2
"""A batch's tokens are read off its law up to this factor outside of its own horizons."""
GROWS = 1e-3
"""Tokens that grow by less than this from no batch to the largest one are not told from tokens that do not."""
SAME = 0.02
"""Horizons, decays and timescales within this of each other are the same: whole steps of another batch."""


@dataclass(frozen=True)
class CriticalBatch:
    """``D = D_min (1 + B / B_crit)`` at several losses, of one size."""

    n_params: float
    batches: FloatArray
    """(B,) tokens."""
    targets: FloatArray
    """(T,) losses, falling."""
    tokens: FloatArray
    """(T, B) tokens that each batch needs for them."""
    least_tokens: FloatArray
    """(T,) D_min."""
    critical: FloatArray
    """(T,) B_crit, in tokens."""
    low: FloatArray
    high: FloatArray
    """(T,) 90 % interval of B_crit: jackknife over batches, in its log."""
    exponent: float
    """Of B_crit in D_min."""
    exponent_interval: tuple[float, float]


@dataclass(frozen=True)
class BatchLaw:
    """What runs at several batches say."""

    best: PowerLaw | None
    """The best batch against tokens, where it was swept at three horizons or more."""
    critical: CriticalBatch | None
    """Where three batches or more were each trained to three horizons or more."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return {"law": "batch", **asdict(self)}

    def __str__(self) -> str:
        lines: list[str] = []
        if (law := self.best) is not None:
            low, high = law.exponent_interval
            o = law.optima[-1]
            lines += [f"best batch: B = {law.scale:.4g} D^{law.exponent:.3f}, exponent {low:.3f} to {high:.3f} (90 %)"]
            lines += [
                f"  {o.label}: {human(o.value)} ({human(o.low)} to {human(o.high)}, 90 %), {o.count} runs"
                for o in law.optima
            ]
            lines.append(
                f"in a recipe: batch = {{ batch = {o.value:.0f}, tokens = {o.at:.4g}, exponent = {law.exponent:.3f} }}"
            )
        if (c := self.critical) is not None:
            low, high = c.exponent_interval
            middle = c.targets.size // 2
            lines.append(f"critical batch of N {human(c.n_params)}: D = D_min (1 + B / B_crit)")
            lines += [
                f"  loss {target:.4g}: B_crit {human(b)} ({human(below)} to {human(above)}, 90 %), D_min {human(d)}"
                for target, b, below, above, d in zip(c.targets, c.critical, c.low, c.high, c.least_tokens, strict=True)
            ]
            lines += [
                f"  B_crit ~ D_min^{c.exponent:.3f} ({low:.3f} to {high:.3f}, 90 %)",
                f"in a recipe: critical_batch = {{ batch = {c.critical[middle]:.0f}, tokens = "
                f"{c.least_tokens[middle]:.4g}, exponent = 0.462 }}  # .462: arXiv 2505.13738",
            ]
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])


def fit_batch(runs: Sequence[Run], loss: str | None = None) -> BatchLaw:
    """Fit the best batch against tokens and the critical batch to runs at several batches.

    Runs of one size, schedule, rate and parameterisation are compared that hold either the decay or the timescale.
    *Best*: at each horizon the vertex of a parabola in log batch, and a power law through three or more (`power_law`).
    *Critical*: for each batch ``L = E + c D^-beta`` through its final losses at three or more horizons, solved for the
    tokens that reach a target; the hyperbola through these by least squares of relative errors. Raises OnecurveError
    where neither can be told.
    """
    ends = [(run, final_loss(run, loss)) for run in runs if run.config.batch_tokens]
    if not ends:
        raise OnecurveError("no run records batch_tokens, so nothing can be said of the batch")
    notes: list[str] = []
    by_recipe: defaultdict[tuple[Any, ...], list[tuple[Run, float]]] = defaultdict(list)
    for run, end in ends:
        c = run.config
        by_recipe[c.n_params, c.learning_rate, str(c.schedule), c.parameterisation, c.optimiser].append((run, end))
    sweeps: list[Sweep] = []
    critical: list[CriticalBatch] = []
    for group in by_recipe.values():
        for held in _held(group):
            each = _alike(held, lambda pair: pair[0].end)
            sweeps += [_sweep(same) for same in each if len({run.config.batch_tokens for run, _ in same}) >= LEAST]
            got = _critical(held)
            if isinstance(got, str):
                notes += [got] if got else []
            else:
                critical.append(got)
    best = None
    try:
        best = power_law(sweeps, "batch", "horizons")
        notes = [*best.notes, *notes]
    except OnecurveError as error:
        notes.append(str(error))
    if best is None and not critical:
        raise OnecurveError("; ".join(dict.fromkeys(notes)))
    return BatchLaw(best, max(critical, key=lambda c: c.tokens.size, default=None), tuple(dict.fromkeys(notes)))


def _held(group: list[tuple[Run, float]]) -> list[list[tuple[Run, float]]]:
    """Runs that hold the timescale, or else the decay, while their batch differs; each run in one set."""

    def timescale(pair: tuple[Run, float]) -> float:
        c = pair[0].config
        return c.batch_tokens / (c.weight_decay * pair[0].end) if c.batch_tokens and c.weight_decay else np.inf

    sets: list[list[tuple[Run, float]]] = []
    for key in (lambda pair: pair[0].config.weight_decay or 0.0, timescale):
        for alike in _alike(group, key):
            if len({run.config.batch_tokens for run, _ in alike}) >= 3:
                sets.append(alike)
                group = [pair for pair in group if all(pair[0] is not run for run, _ in alike)]
    return sets


def _alike(pairs: list[tuple[Run, float]], key: Any) -> list[list[tuple[Run, float]]]:
    """Pairs in sets whose keys are within 2 % of the first."""
    sets: list[tuple[float, list[tuple[Run, float]]]] = []
    for pair in sorted(pairs, key=key):
        value = key(pair)
        if sets and value <= sets[-1][0] * (1.0 + SAME):
            sets[-1][1].append(pair)
        else:
            sets.append((value, [pair]))
    return [held for _, held in sets]


def _sweep(pairs: Sequence[tuple[Run, float]]) -> Sweep:
    first = pairs[0][0]
    end = float(np.median([run.end for run, _ in pairs]))
    return Sweep(
        at=end,
        label=f"N {human(first.config.n_params)} at {human(end)} {first.unit}",
        values=np.array([run.config.batch_tokens for run, _ in pairs], dtype=np.float64),
        losses=np.array([loss for _, loss in pairs]),
        seeds=tuple(run.config.seed_label for run, _ in pairs),
    )


def _critical(pairs: list[tuple[Run, float]]) -> CriticalBatch | str:
    """The critical batch of one size; why not, in words, where it cannot be told; empty where nobody asked."""
    curves: dict[float, tuple[FloatArray, FloatArray]] = {}
    for batch in sorted({run.config.batch_tokens or 0.0 for run, _ in pairs}):
        of = [(run.end, loss) for run, loss in pairs if run.config.batch_tokens == batch and np.isfinite(loss)]
        ends = np.array(sorted({end for end, _ in of}))
        if ends.size >= 3:
            losses = [float(np.mean([loss for e, loss in of if e == end])) for end in ends]
            curves[batch] = ends, np.array(losses)
    if len(curves) < 3:
        return ""
    name = f"N {human(pairs[0][0].config.n_params)}"
    worst, best = min(y.max() for _, y in curves.values()), max(y.min() for _, y in curves.values())
    if not best < worst:
        return f"{name}: no loss is reached by every batch, so their tokens cannot be compared; train some for longer"
    targets = np.linspace(worst, best, TARGETS + 2)[1:-1]
    tokens = np.stack([_tokens_to(targets, *curve) for curve in curves.values()], axis=1)
    batches = np.array(list(curves))
    least, critical = _hyperbola(batches, tokens)
    if not np.all(np.isfinite(critical)):
        return (
            f"{name}: the tokens that a loss takes do not grow with the batch; all of these are below the critical one"
        )
    exponent = _slope(least, critical)
    low = high = np.full(targets.size, np.nan)
    interval = (np.nan, np.nan)
    if batches.size >= 4:
        from scipy.stats import t as student

        left = [_hyperbola(np.delete(batches, k), np.delete(tokens, k, axis=1)) for k in range(batches.size)]
        n, q = batches.size, float(student.ppf(0.5 + LEVEL / 2, batches.size - 2))
        logs = np.log([c for _, c in left])
        error = q * np.sqrt((n - 1) / n * np.sum((logs - logs.mean(axis=0)) ** 2, axis=0))
        low, high = critical * np.exp(-error), critical * np.exp(error)
        slopes = np.array([_slope(d, c) for d, c in left])
        half = q * float(np.sqrt((n - 1) / n * np.sum((slopes - slopes.mean()) ** 2)))
        interval = (exponent - half, exponent + half)
    return CriticalBatch(
        pairs[0][0].config.n_params, batches, targets, tokens, least, critical, low, high, exponent, interval
    )


def _tokens_to(targets: FloatArray, tokens: FloatArray, losses: FloatArray) -> FloatArray:
    """Tokens at which ``L = E + c D^-beta`` reaches each target; E by search, the rest a straight line in logs."""
    floors = losses.min() * (1.0 - np.geomspace(1e-3, 1.0, 200))
    x = np.log(tokens) - np.log(tokens).mean()
    logs = np.log(losses[None, :] - floors[:, None])
    slope = (logs @ x) / (x @ x)
    middle = logs.mean(axis=1)
    fitted = np.exp(middle[:, None] + slope[:, None] * x) + floors[:, None]
    k = int(np.argmin(np.sum((fitted - losses) ** 2, axis=1)))
    at = np.exp((np.log(targets - floors[k]) - middle[k]) / slope[k] + np.log(tokens).mean())
    return np.clip(at, tokens.min() / BEYOND, tokens.max() * BEYOND)


def _hyperbola(batches: FloatArray, tokens: FloatArray) -> tuple[FloatArray, FloatArray]:
    """D_min and B_crit (T,) of ``D = D_min (1 + B / B_crit)``, least relative squares; nan where D does not grow."""
    w = 1.0 / tokens
    wb = w * batches
    a, b, d = (w * w).sum(axis=1), (w * wb).sum(axis=1), (wb * wb).sum(axis=1)
    p, q = w.sum(axis=1), wb.sum(axis=1)
    determinant = a * d - b * b
    least, steps = (p * d - q * b) / determinant, (a * q - b * p) / determinant
    grows = (least > 0) & (steps * batches.max() > GROWS * least)
    return least, np.where(grows, least / np.where(grows, steps, 1.0), np.nan)


def _slope(x: FloatArray, y: FloatArray) -> float:
    u = np.log(x) - np.log(x).mean()
    return float(u @ np.log(y) / (u @ u))
