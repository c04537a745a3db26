"""What shapes a normalised loss curve, and why the curves of two runs may differ.

Bergsma et al. (arXiv 2509.25087): the shape is set by the AdamW timescale, the tokens per parameter and the
schedule, its warmup share included. Runs that share these ought to collapse; runs that do not, need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.run import Run, RunConfig, human

RATIO_WARNS = 1.15
RATIO_FAILS = 1.5
WARMUP_WARNS = 0.02


@dataclass(frozen=True)
class Controls:
    """The controls of one run; `None` where a setting that it needs was not recorded."""

    timescale: float | None
    """tau = B / (eta lambda D), with the peak rate and decay as applied to the hidden matrices; inf without decay."""
    tokens_per_param: float | None
    schedule: str | None
    warmup: float | None
    parameterisation: str | None


def timescale(run: Run) -> float:
    """The AdamW timescale of a run as a share of it. Raises OnecurveError where it is not known, or infinite."""
    value = controls_of(run).timescale
    if value is None:
        raise OnecurveError(
            f"{run.where}: its timescale B / (eta lambda D) is not known; the run table needs batch_tokens, "
            "learning_rate and weight_decay, and x must be in tokens or steps"
        )
    if not 0 < value < np.inf:
        name = "weight_decay" if run.config.learning_rate else "learning_rate"
        raise OnecurveError(f"{run.where}: its {name} is 0, so its timescale is infinite; leave the run out")
    return value


def tokens_per_param(run: Run) -> float:
    """D / N of a run. Raises OnecurveError where x does not tell its tokens."""
    value = controls_of(run).tokens_per_param
    if value is None:
        raise OnecurveError(
            f"{run.where}: its tokens per parameter are not known with x in {run.x_name!r}; choose a column of tokens "
            "with --x, or give batch_tokens beside steps"
        )
    return value


def controls_of(run: Run) -> Controls:
    """The controls of a run; its last point is its end where it states no horizon."""
    c = run.config
    return controls(c if c.horizon else c.model_copy(update={"horizon": run.end}), run.unit)


def controls(config: RunConfig, unit: str = "tokens") -> Controls:
    """The controls that a run's recorded settings imply; ``unit`` is what its horizon counts (`Run.unit`).

    Examples:
        >>> config = RunConfig(name="a", n_params=6.1e8, horizon=4.88e10, batch_tokens=504 * 2048.0,
        ...                    learning_rate=1.62e-2 * 256 / 2048, weight_decay=0.1)
        >>> round(controls(config).timescale, 3)  # arXiv 2509.25087, figure 3
        0.104
    """
    c = config
    timescale = tokens = None
    step = {"tokens": c.batch_tokens, "samples": c.batch_tokens, "steps": 1.0}.get(unit)
    if None not in (step, c.learning_rate, c.weight_decay, c.horizon):
        product = c.learning_rate * c.weight_decay * c.horizon  # type: ignore[operator]
        timescale = step / product if product > 0 else float("inf")  # type: ignore[operator]
    a_unit = {"tokens": 1.0, "samples": 1.0, "steps": c.batch_tokens}.get(unit)
    if c.horizon is not None and a_unit is not None:
        tokens = c.horizon * a_unit
    schedule = c.schedule
    return Controls(
        timescale=timescale,
        tokens_per_param=None if tokens is None else tokens / c.n_params,
        schedule=None if schedule is None else str(schedule.model_copy(update={"warmup": 0.0})),
        warmup=None if schedule is None else schedule.warmup,
        parameterisation=c.parameterisation,
    )


@dataclass(frozen=True)
class Finding:
    """One reason why curves may differ, or a control that cannot be checked."""

    control: str
    level: str
    """``fails``, ``warns``, or ``unknown`` where not every run records the setting."""
    text: str


def differences(configs: Sequence[RunConfig], unit: str = "tokens") -> list[Finding]:
    """What differs between the controls of several runs, worst first within the order in which to check.

    The order: timescale (called batch where the batch alone moves it), tokens per parameter, schedule and warmup,
    parameterisation (one for all, and a hidden learning rate that falls as 1 / width, as the optimum does under muP).
    Timescales or tokens per parameter that differ by more than a factor 1.5 fail, by more than 1.15 warn; warmup
    shares that differ by more than .02 warn. ``unit`` is what the horizons count (`Run.unit`).
    """
    each = [controls(c, unit) for c in configs]
    sizes = [c.n_params for c in configs]
    ratios = [c.tokens_per_param for c in each]
    found = [
        _timescale(configs, [c.timescale for c in each]),
        _ratio("tokens per parameter", "tokens per parameter D/N", ratios, sizes),
    ]
    found.append(_same("schedule", [c.schedule for c in each]))
    found.append(_warmup([c.warmup for c in each]))
    found.append(_same("parameterisation", [c.parameterisation for c in each]))
    found.append(_rate_against_width(configs))
    return [f for f in found if f is not None]


def _unknown(control: str, values: Sequence[object]) -> Finding | None:
    missing = sum(v is None for v in values)
    if not missing:
        return None
    whose = "no run" if missing == len(values) else f"{len(values) - missing} of {len(values)} runs"
    return Finding(control, "unknown", f"{control}: cannot be checked, {whose} records it")


def _timescale(configs: Sequence[RunConfig], values: Sequence[float | None]) -> Finding | None:
    """How far timescales lie apart; where all but the batch is matched, the finding is the batch's."""
    found = _ratio("timescale", "AdamW timescale B/(eta lambda D)", values, [c.n_params for c in configs])
    if found is None or found.level == "unknown":
        return found
    batches = [c.batch_tokens or 0.0 for c in configs]
    rest = [tau / batch for tau, batch in zip(values, batches, strict=True) if tau is not None]
    if not max(rest) / min(rest) <= RATIO_WARNS:  # infinite without decay
        return found
    usual = sorted(batches)[len(batches) // 2]
    odd = [f"{b:.4g} at N = {human(c.n_params)}" for b, c in zip(batches, configs, strict=True) if b != usual]
    return Finding(
        "batch",
        found.level,
        f"batch: {usual:.4g} tokens a step, but {', '.join(dict.fromkeys(odd))}, while rate, decay and horizon are "
        f"matched; it moves the {found.text.partition(': ')[2]}",
    )


def _ratio(control: str, words: str, values: Sequence[float | None], sizes: Sequence[float]) -> Finding | None:
    if unknown := _unknown(control, values):
        return unknown
    known = [v for v in values if v is not None]
    low, high = min(known), max(known)
    if low == high or high / low <= RATIO_WARNS:
        return None
    level = "fails" if high / low > RATIO_FAILS else "warns"
    text = f"{control}: {words} runs from {low:.3g} to {high:.3g} over the sizes"
    return Finding(control, level, text + _as_power(sizes, known))


def _as_power(sizes: Sequence[float], values: Sequence[float]) -> str:
    """``, as N^e`` where values follow a power of the size over three sizes or more, else nothing."""
    if len(set(sizes)) < 3 or not all(0 < v < float("inf") for v in values):
        return ""
    u, v = np.log(np.array(sizes)), np.log(np.array(values))
    exponent, at_one = np.polyfit(u, v, 1)
    off = np.abs(v - at_one - exponent * u).max()
    return f", as N^{exponent:.2g}" if off < 0.1 * np.ptp(v) else ""


def _same(control: str, values: Sequence[str | None]) -> Finding | None:
    if unknown := _unknown(control, values):
        return unknown
    distinct = sorted({v for v in values if v is not None})
    if len(distinct) == 1:
        return None
    return Finding(control, "fails", f"{control}: differs between the runs ({'; '.join(distinct)})")


def _warmup(values: Sequence[float | None]) -> Finding | None:
    known = [v for v in values if v is not None]
    if len(known) < len(values) or max(known) - min(known) <= WARMUP_WARNS:
        return None  # an unknown schedule is already named
    return Finding("warmup", "warns", f"warmup: its share of training runs from {min(known):.3g} to {max(known):.3g}")


def _rate_against_width(configs: Sequence[RunConfig]) -> Finding | None:
    """Whether the hidden matrices' learning rate falls as 1 / width; None where it does, or is not known."""
    known = [(c.width, c.learning_rate) for c in configs if c.width and c.learning_rate]
    if len(known) < len(configs) or not known:
        return None
    products = [width * rate for width, rate in known]
    if max(products) / min(products) <= RATIO_WARNS:
        return None
    (narrow, at_narrow), (wide, at_wide) = min(known), max(known)
    under_mup = at_narrow * narrow / wide
    if any(c.base_learning_rate is None for c in configs):
        # A lone "learning rate" in a log may be the one before the trainer scales it with width.
        return Finding(
            "parameterisation",
            "warns",
            f"parameterisation: from width {narrow} to {wide} the recorded learning rate goes from {at_narrow:.3g} to "
            f"{at_wide:.3g}; is that the rate as applied to the hidden matrices? Under muP that would fall to "
            f"{under_mup:.3g}, as 1 / width (a rate before scaling is called base_learning_rate)",
        )
    return Finding(
        "parameterisation",
        "fails" if max(products) / min(products) > RATIO_FAILS else "warns",
        f"parameterisation: from width {narrow} to {wide} the hidden learning rate goes from {at_narrow:.3g} to "
        f"{at_wide:.3g}; under muP it would fall to {under_mup:.3g}, as 1 / width",
    )
