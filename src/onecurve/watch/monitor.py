"""The monitor: a pure fold over the points of a run, of constant memory.

One point in; a new state and perhaps events out. Points are gathered into the reference's blocks. When a block is full,
its mean residual, ``log L - log shape``, joins those before, and their contrasts (`onecurve.watch.reference`) are held
against what a healthy run does::

    z = contrast / sqrt((q noise)^2 + drift^2)

q compares the run's own noise with the family's, from single blocks so far. The level of the residual, which is the log
of the final loss to come, cancels in a contrast: nothing is fitted to the points under test. Before enough blocks are
there, only single points are looked at: spikes against the run's own scatter, and losses that are not finite.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.watch.reference import WINDOW, Reference, contrasts

Severity = Literal["notice", "warning", "alarm"]
LIMIT = 7.0
"""Standard deviations of a healthy run beyond which a contrast is an alarm."""
SPIKE = 8.0
"""Standard deviations of a run's own scatter beyond which a point is a spike."""
LASTING = 12
"""Points in a row beyond it that are no spike any more, but a departure."""
LEARN = 24
"""Points from which the run's own scatter is known."""
QUIET = 0.25
"""The least share of the family's noise that a run's own is taken to have."""
OWN, LEAST = 8, 3
"""Contrasts of single blocks from which a run may be taken to be quieter than the family, and from which louder."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a run."""

    kind: str
    """departure, too-good, spike, not-finite, aligned, level, overrun"""
    severity: Severity
    x: float
    """Where it was noticed, in the unit of x."""
    fraction: float
    text: str
    onset: float | None = None
    """Fraction at which it began."""
    onset_low: float | None = None
    onset_high: float | None = None
    """A 90 % interval of it."""
    size: float | None = None
    """By how much the loss is off by now: relative to what it should be, so of the final loss too if it stays."""
    statistic: float | None = None
    """Standard deviations of a healthy run."""


@dataclass(frozen=True)
class Plan:
    """What a run is held against: a reference at its size, its horizon, and the limit for an alarm."""

    horizon: float
    shape: FloatArray
    noise: FloatArray
    drift: FloatArray
    limit: float
    warm: float
    expected: tuple[float, float] | None = None
    """Log of the final loss that the smaller sizes point to, and its standard deviation."""

    @classmethod
    def of(cls, reference: Reference, n_params: float, horizon: float, limit: float) -> Plan:
        """The plan for a run of a size and a planned end."""
        if not horizon > 0 or not np.isfinite(horizon):
            raise OnecurveError(f"the run's horizon is {horizon:g}; it must be above 0: give the planned end")
        shape, noise, drift = reference.at(n_params)
        return cls(horizon, shape, noise, drift, limit, reference.judged_from, reference.final(n_params))


@dataclass(frozen=True, slots=True)
class State:
    """What the monitor keeps of a run."""

    residual: FloatArray
    """(B,) mean residuals of the blocks that are full; nan for the others."""
    block: int = 0
    """Which block the last point was in."""
    total: float = 0.0
    count: int = 0
    """Sum and number of its residuals."""
    x: float = 0.0
    centre: float = 0.0
    scatter: float = 0.0
    """Running mean of the residual of points, and of its distance from that."""
    learned: int = 0
    odd: int = 0
    """Points in a row beyond the spike limit."""
    odd_from: float = 0.0
    bad: int = 0
    """Losses in a row that are not finite."""
    since: int = 0
    """Block from which on contrasts are judged: those before belong to an alarm that has been raised."""
    aligned: bool = False
    over: bool = False


def start(plan: Plan) -> State:
    """The state before the first point."""
    return State(np.full(plan.shape.size, np.nan))


def step(plan: Plan, s: State, x: float, loss: float) -> tuple[State, list[Event]]:
    """The state after one more point, and what it means. Points at or before the last x are ignored."""
    if x <= s.x:
        return s, []
    blocks = plan.shape.size
    fraction = x / plan.horizon
    if not 0.0 < loss < np.inf:
        text = f"the loss at {fraction:.1%} of training is {loss:g}"
        events = [] if s.bad else [Event("not-finite", "alarm", x, fraction, text, onset=fraction)]
        return _with(s, x=x, bad=s.bad + 1), events
    if fraction > 1.0 + 1.0 / blocks:
        text = f"the run goes on beyond its planned end, x = {plan.horizon:g}: nothing is judged there"
        return _with(s, x=x, bad=0, over=True), [] if s.over else [Event("overrun", "warning", x, fraction, text)]
    events: list[Event] = []
    block = min(blocks - 1, max(0, int(np.ceil(fraction * blocks - 1e-9)) - 1))
    if block != s.block and s.count:
        s, events = _close(plan, s)
    at = plan.shape[block]
    if at != at:  # the reference has no point so early
        return _with(s, x=x, block=block, bad=0), events
    residual = float(np.log(loss)) - _between(plan.shape, fraction)
    centre, scatter, learned, odd, odd_from = s.centre, s.scatter, s.learned, s.odd, s.odd_from
    counts = True
    if fraction > plan.warm:
        off = residual - centre
        if learned >= LEARN and abs(off) > SPIKE * 1.25 * scatter:  # 1.25: mean distance to standard deviation
            odd, odd_from = odd + 1, odd_from if odd else fraction
            counts = False
            if odd == LASTING:
                events = [*events, _sudden(x, fraction, off, odd_from, scatter)]
                # Scatter and contrasts begin anew where the run is now.
                return _with(s, block=block, total=0.0, count=0, x=x, learned=0, odd=0, bad=0, since=block + 1), events
        else:
            if 0 < odd < LASTING:
                text = f"a spike at {odd_from:.1%} of training, over after {odd} points"
                events = [*events, Event("spike", "notice", x, fraction, text, onset=odd_from)]
            odd = 0
        if not learned:
            centre, scatter, learned = residual, 0.0, 1
        elif (counts and not odd) or learned < LEARN:
            learned += 1
            rate = max(1.0 / learned, 0.02)
            scatter += rate * (abs(residual - centre) - scatter) if learned > 2 else abs(residual - centre)
            centre += rate * (residual - centre)
    if not counts:
        return State(s.residual, block, s.total if block == s.block else 0.0, s.count if block == s.block else 0, x,
                     centre, scatter, learned, odd, odd_from, 0, s.since, s.aligned, s.over), events  # fmt: skip
    fresh = block != s.block
    return State(s.residual, block, residual + (0.0 if fresh else s.total), 1 + (0 if fresh else s.count), x,
                 centre, scatter, learned, odd, odd_from, 0, s.since, s.aligned, s.over), events  # fmt: skip


def finish(plan: Plan, s: State) -> tuple[State, list[Event]]:
    """What the points of the block that is not full yet say, once no more will come."""
    return _close(plan, s) if s.count else (s, [])


def _between(shape: FloatArray, fraction: float) -> float:
    """The shape at a fraction: linearly between the middles of blocks, and so on beyond the outer ones."""
    place = fraction * shape.size - 0.5
    low = min(max(int(place), 0), shape.size - 2)
    a, b = float(shape[low]), float(shape[low + 1])
    return b if a != a else a + (place - low) * (b - a)


def _with(s: State, **changes: Any) -> State:
    values = {name: getattr(s, name) for name in State.__slots__} | changes
    return State(**values)


def _sudden(x: float, fraction: float, off: float, onset: float, scatter: float) -> Event:
    way = "above" if off > 0 else "below"
    text = f"from {onset:.1%} of training on the loss is {abs(np.expm1(off)):.1%} {way} its course"
    size, sigmas = float(np.expm1(off)), abs(off) / (1.25 * scatter) if scatter else None
    kind = "departure" if off > 0 else "too-good"
    return Event(kind, "alarm", x, fraction, text, onset, onset, fraction, size, sigmas)


def _close(plan: Plan, s: State) -> tuple[State, list[Event]]:
    """The block of the last points is full: its mean joins the others, and contrasts are judged."""
    residual = s.residual.copy()
    residual[s.block] = s.total / s.count
    s = _with(s, residual=residual, total=0.0, count=0)
    blocks = residual.size
    events: list[Event] = []
    fraction = (s.block + 1) / blocks
    z = statistics(plan, np.where(np.arange(blocks) >= s.since, residual, np.nan), s.block)
    worst = int(np.nanargmax(np.abs(z))) if np.isfinite(z).any() else None
    if worst is not None and abs(z[worst]) > plan.limit:
        event = _departure(plan, s, residual, float(z[worst]), fraction)
        return _with(s, since=s.block + 1, learned=0), [event]
    if not s.aligned and fraction >= WINDOW[1]:
        s = _with(s, aligned=True)
        if s.since <= round(WINDOW[0] * blocks):
            events = _aligned(plan, s, residual, fraction)
    return s, events


def statistics(plan: Plan, residual: FloatArray, block: int) -> FloatArray:
    """(6,) each contrast that ends at a block, in standard deviations of a healthy run; nan where it cannot be told."""
    judged = np.arange(1, residual.size + 1) / residual.size > plan.warm + 1e-9
    seen = np.where(judged & (np.arange(residual.size) <= block), residual, np.nan)[None]
    every = contrasts(seen)[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        single = np.abs(every[0, :block]) / plan.noise[0, :block]
    single = single[np.isfinite(single)][-2 * 16 :]
    # The median of |normal| is .674 standard deviations.
    q = max(QUIET if single.size >= OWN else 1.0, float(np.median(single)) / 0.6745) if single.size >= LEAST else 1.0
    scale = np.hypot(q * plan.noise[:, block], plan.drift[:, block])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0, every[:, block] / scale, np.nan)


def _aligned(plan: Plan, s: State, residual: FloatArray, fraction: float) -> list[Event]:
    """The final loss that the alignment window points to, and whether that is what the smaller sizes point to."""
    low, high = (round(share * residual.size) for share in WINDOW)
    window = residual[low:high]
    window = window[np.isfinite(window)]
    if not window.size:
        return []
    level = float(window.mean())
    text = f"aligned on {WINDOW[0]:.0%} to {WINDOW[1]:.0%} of training: a final loss of {np.exp(level):.4g}"
    events = [Event("aligned", "notice", s.x, fraction, text)]
    if plan.expected is not None:
        expected, error = plan.expected
        far = (level - expected) / error if error > 0 else 0.0
        if abs(far) > 3.0:
            text = (
                f"aligned, the run ends at {np.exp(level):.4g}; the smaller sizes point to {np.exp(expected):.4g} "
                f"± {1.645 * error:.1%}: {abs(far):.1f} standard deviations apart"
            )
            events.append(
                Event("level", "warning", s.x, fraction, text, size=float(np.expm1(level - expected)), statistic=far)
            )
    return events


def _departure(plan: Plan, s: State, residual: FloatArray, z: float, fraction: float) -> Event:
    at = np.arange(residual.size)
    judged = (at >= s.since) & ((at + 1) / residual.size > plan.warm + 1e-9)
    onset, low, high, size = onset_of(np.where(judged, residual, np.nan), s.block)
    way = "above" if size > 0 else "below"
    text = (
        f"the loss leaves its course at {onset:.0%} of training ({low:.0%} to {high:.0%}) and is by now "
        f"{abs(np.expm1(size)):.2%} {way} it; a healthy run does so {abs(z):.1f} standard deviations less"
    )
    kind = "departure" if size > 0 else "too-good"
    return Event(kind, "alarm", s.x, fraction, text, onset, low, high, float(np.expm1(size)), abs(z))


def onset_of(residual: FloatArray, block: int) -> tuple[float, float, float, float]:
    """Where a departure noticed at a block began: fraction, its 90 % interval, and the size by now, in logs.

    Two courses are fitted by least squares for every onset: level and then a step, level and then a ramp. The better
    one wins; the interval holds the onsets of it whose fit is worse by no more than chi-squared allows.
    """
    at = np.flatnonzero(np.isfinite(residual[: block + 1]))
    y = residual[at]
    if at.size < 4:
        place = float(at[-1]) / residual.size if at.size else 0.0
        return place, place, place, float(y[-1] - y[0]) if at.size else 0.0
    candidates = np.arange(2, at.size)
    best: tuple[float, FloatArray, int, float] | None = None
    for ramp in (False, True):
        losses, sizes = np.empty(candidates.size), np.empty(candidates.size)
        for j, first in enumerate(candidates):
            course = np.where(np.arange(at.size) >= first, at - at[first - 1] if ramp else 1.0, 0.0)
            design = np.stack([np.ones(at.size), course], axis=1)
            p = np.linalg.lstsq(design, y, rcond=None)[0]
            losses[j], sizes[j] = ((y - design @ p) ** 2).sum(), p[1] * course[-1]
        k = int(losses.argmin())
        if best is None or losses[k] < best[0]:
            best = float(losses[k]), losses, k, float(sizes[k])
    assert best is not None
    least, losses, k, size = best
    variance = least / max(at.size - 3, 1)
    inside = candidates[losses <= least + 2.7055 * variance] if variance > 0 else candidates[[k]]
    low, high = (float(at[i]) / residual.size for i in (inside.min(), inside.max()))
    return float(at[candidates[k]]) / residual.size, low, high, size


def event_dict(event: Event) -> dict[str, Any]:
    """An event as plain values, without what it does not tell."""
    return {key: value for key, value in asdict(event).items() if value is not None}
