"""The best AdamW timescale against tokens per parameter, from sweeps of weight decay (arXiv 2505.13738)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onecurve.controls import timescale, tokens_per_param
from onecurve.errors import OnecurveError
from onecurve.laws.optimum import PowerLaw, Sweep, final_loss, power_law
from onecurve.run import Run, human


@dataclass(frozen=True)
class TimescaleLaw:
    """``tau = scale * TPP ** exponent`` through the optima of decay sweeps."""

    law: PowerLaw

    @property
    def fitted(self) -> tuple[float, float]:
        """Tokens per parameter of the shortest and the longest sweep behind it."""
        at = [o.at for o in self.law.optima]
        return min(at), max(at)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, in full precision."""
        return {"law": "timescale", "fitted": self.fitted, **asdict(self.law)}

    def __str__(self) -> str:
        law, (first, last) = self.law, self.fitted
        low, high = law.exponent_interval
        lines = [
            f"best timescale: tau = {law.scale:.4g} TPP^{law.exponent:.3f}",
            f"  exponent: {low:.3f} to {high:.3f} (90 %); noise of a run's loss {law.noise:.2%}",
        ]
        lines += [
            f"  {o.label}: tau {o.value:.3g} ({o.low:.3g} to {o.high:.3g}, 90 %), {o.count} runs" for o in law.optima
        ]
        middle = float(np.sqrt(first * last))
        below, above = law.interval(middle)
        lines += [
            f"  the law at {middle:.3g} tokens per parameter: {law(middle):.3g} ({below:.3g} to {above:.3g})",
            f"in a recipe: timescale = {{ scale = {law.scale:.5g}, exponent = {law.exponent:.4g}, "
            f"fitted_from = {first:.4g}, fitted_to = {last:.4g} }}",
        ]
        return "\n".join([*lines, *(f"note: {n}" for n in law.notes)])


def fit_timescale(runs: Sequence[Run], loss: str | None = None) -> TimescaleLaw:
    """Fit the best timescale against tokens per parameter to sweeps of weight decay.

    Runs that agree in all but decay and seed are a sweep: size, horizon, batch, rate, schedule, parameterisation. Final
    losses are those of `final_loss`; see `power_law` for what is fitted and which sweeps are left out. Raises
    OnecurveError where fewer than three tokens per parameter have an optimum.
    """
    groups: defaultdict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if run.config.weight_decay != 0:
            c = run.config
            key = (
                c.n_params, run.end, c.batch_tokens, c.learning_rate, str(c.schedule), c.parameterisation, c.optimiser,
                c.width,
            )  # fmt: skip
            groups[key].append(run)
    sweeps = [_sweep(group, loss) for group in groups.values() if len({r.config.weight_decay for r in group}) >= 3]
    if not sweeps:
        raise OnecurveError(
            "no sweep of weight decay was found: no three runs differ in weight_decay alone; the run table needs "
            "n_params, horizon, batch_tokens, learning_rate and weight_decay"
        )
    return TimescaleLaw(power_law(sweeps, "timescale", "tokens per parameter"))


def _sweep(group: Sequence[Run], loss: str | None) -> Sweep:
    first = group[0]
    tpp = tokens_per_param(first)
    return Sweep(
        at=tpp,
        label=f"N {human(first.config.n_params)} at {tpp:.3g} tokens per parameter",
        values=np.array([timescale(run) for run in group]),
        losses=np.array([final_loss(run, loss) for run in group]),
        seeds=tuple(run.config.seed_label for run in group),
    )
