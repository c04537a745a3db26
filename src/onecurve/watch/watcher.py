"""Runs watched on disk: what is new is read, folded into each run's state, and each event told once.

The monitor's state is kept in memory; what has been told, and what a sink has not taken yet, in a file, so that a
watcher that is started again repeats nothing and loses nothing. A log that was cut, or went back after a resume, is
folded anew: the fold is pure, so what was told before is known again by where it began.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from onecurve.controls import RATIO_WARNS, WARMUP_WARNS, controls_of
from onecurve.errors import OnecurveError
from onecurve.run import Run
from onecurve.store import EVENTS, dumps, write_atomic
from onecurve.watch.monitor import Event, Plan, State, event_dict, finish, start, step
from onecurve.watch.reference import WINDOW, Reference, densest

NEARBY = 0.03
"""Share of training around an onset within which what happened is named."""
RATE_OFF = 0.05
"""How far a logged rate may lie from its schedule, as a share of the peak."""
QUIET = ("start", "checkpoint", "evaluate", "finish")
"""Events of a run directory that change nothing."""


@dataclass(frozen=True)
class Told:
    """An event of one run, with what happened near it."""

    run: str
    event: Event
    near: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """By what it is known again: what it is and where it began, to a hundredth of training."""
        e = self.event
        return f"{self.run}|{e.kind}|{round(100 * (e.onset if e.onset is not None else e.fraction))}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {"run": self.run, **event_dict(self.event), "near": list(self.near)}

    def __str__(self) -> str:
        near = f"; near it: {', '.join(self.near)}" if self.near else ""
        return f"{self.run}: {self.event.severity}: {self.event.text}{near}"


@dataclass
class Watched:
    """One run as far as it has been followed."""

    run: Run
    plan: Plan
    state: State
    events: list[Event] = field(default_factory=list[Event])
    points: int = 0
    last: tuple[float, float] = (0.0, 0.0)
    """The last point that was folded, by which a log is known to go on from it."""

    @property
    def fraction(self) -> float:
        """How far the run has come."""
        return self.state.x / self.plan.horizon

    @property
    def residual(self) -> float:
        """Mean residual of the last blocks over that of the alignment window; nan before both are there."""
        r = self.state.residual
        low, high = (round(share * r.size) for share in WINDOW)
        window, last = r[low:high], r[max(0, self.state.block - 3) : self.state.block + 1]
        window, last = window[np.isfinite(window)], last[np.isfinite(last)]
        return float(last.mean() - window.mean()) if window.size and last.size else float("nan")


class Watcher:
    """Follows runs against a reference. ``limit`` is in standard deviations of a healthy run (`monitor`)."""

    def __init__(self, reference: Reference, limit: float, memory: Path | None = None) -> None:
        self.reference, self.limit, self.memory = reference, limit, memory
        self.runs: dict[str, Watched] = {}
        self.told: set[str] = set()
        self.pending: list[dict[str, Any]] = []
        """What sinks have not taken yet."""
        if memory is not None and memory.exists():
            try:
                content = json.loads(memory.read_text())
                self.told, self.pending = set(content["told"]), list(content["pending"])
            except (ValueError, KeyError, TypeError) as error:
                raise OnecurveError(f"{memory}: not what a watcher wrote ({error}); remove it to start anew") from None

    def look(self, runs: Iterable[Run], over: bool = False) -> list[Told]:
        """Fold what is new of some runs; the events that have not been told before. ``over``: no more will come."""
        out: list[Told] = []
        for run in runs:
            for event in self._fold(run, over):
                told = Told(run.config.name, event, near(run, event))
                if told.key not in self.told:
                    self.told.add(told.key)
                    self.pending.append(told.to_dict())
                    out.append(told)
        self.keep()
        return out

    def keep(self) -> None:
        """Bring what has been told, and what is still to be delivered, to the disk."""
        if self.memory is not None:
            self.memory.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.memory, dumps({"told": sorted(self.told), "pending": self.pending}) + "\n")

    def deliver(self, sinks: Sequence[Callable[[dict[str, Any]], bool]]) -> None:
        """Offer what is pending to every sink, in order; what one does not take stays for the next time."""
        left: list[dict[str, Any]] = []
        for event in self.pending:
            missing = [k for k in event.get("for", range(len(sinks))) if k < len(sinks) and not sinks[k](event)]
            if missing:
                left.append(event | {"for": missing})
        self.pending = left
        self.keep()

    def _fold(self, run: Run, over: bool) -> list[Event]:
        name = self.reference.loss_name
        curve = run.curve(name if name in run.curves else densest([run]))
        w = self.runs.get(run.config.name)
        x, loss = curve.x, curve.loss
        if w is None or not self._goes_on(w, x, loss):
            if run.config.horizon is None:
                raise OnecurveError(
                    f"{run.where}: states no horizon, so nobody knows how far it has come; give its planned end with "
                    "--horizon (a column), or --until VALUE"
                )
            plan = Plan.of(self.reference, run.config.n_params, run.end, self.limit)
            w = Watched(run, plan, start(plan), [*mismatch(run, self.reference)])
            self.runs[run.config.name] = w
        w.run = run
        state, events = w.state, w.events
        for at, value in zip(x[w.points :].tolist(), loss[w.points :].tolist(), strict=True):
            state, new = step(w.plan, state, at, value)
            events += new
        w.points = len(curve)
        if w.points:
            w.last = float(x[-1]), float(loss[-1])
        w.state = state
        return [*events, *finish(w.plan, state)[1]] if over or w.fraction >= 1.0 else list(events)

    def _goes_on(self, w: Watched, x: np.ndarray, loss: np.ndarray) -> bool:
        """Whether a curve holds what was folded already, and more."""
        k = w.points
        return k == 0 or (len(x) >= k and float(x[k - 1]) == w.last[0] and repr(float(loss[k - 1])) == repr(w.last[1]))


def mismatch(run: Run, reference: Reference) -> list[Event]:
    """What a run sets otherwise than the reference's family, and what that does to its residual."""
    mine = controls_of(run)
    words: list[str] = []
    for name, a, b, does in (
        ("timescale", mine.timescale, reference.timescale, "bends the curve: a longer one lies below in the middle"),
        (
            "tokens per parameter",
            mine.tokens_per_param,
            reference.tokens_per_param,
            "makes the curve steeper or flatter",
        ),
    ):
        if a and b and not 1.0 / RATIO_WARNS <= a / b <= RATIO_WARNS:
            words.append(f"its {name} is {a:.3g}, the reference's {b:.3g}, which {does}")
    if mine.schedule and reference.schedule and mine.schedule != reference.schedule:
        words.append(
            f"its schedule is {mine.schedule}, the reference's {reference.schedule}: the shapes are not the same"
        )
    if mine.warmup is not None and mine.warmup > reference.judged_from + WARMUP_WARNS:
        words.append(f"its warmup takes {mine.warmup:.0%}, and is judged from {reference.judged_from:.0%} on")
    text = f"not what the reference was trained with: {'; '.join(words)}. Departures may be no fault"
    return [Event("other-controls", "warning", 0.0, 0.0, text, onset=0.0)] if words else []


def near(run: Run, event: Event) -> tuple[str, ...]:
    """What a run directory and the run's signals say of the time at which something began."""
    if event.onset is None or event.kind == "other-controls":
        return ()
    low = (event.onset_low if event.onset_low is not None else event.onset) - NEARBY
    high = (event.onset_high if event.onset_high is not None else event.onset) + NEARBY
    out = [text for fraction, text in happenings(run) if low <= fraction <= high]
    return (*out, *_rate(run, low, high))


def happenings(run: Run) -> list[tuple[float, str]]:
    """The events of a run directory that may change a loss, with the fraction at which they came."""
    file = Path(run.source) / EVENTS if run.source else None
    if file is None or not file.is_file() or not run.config.horizon:
        return []
    a_step = run.config.batch_tokens if run.unit in ("tokens", "samples") else 1.0
    out: list[tuple[float, str]] = []
    before: dict[str, Any] = {}
    for line in file.read_text(errors="replace").splitlines():
        try:
            record = cast(dict[str, Any], json.loads(line))
            kind, at = str(record["event"]), float(record["step"]) * (a_step or np.nan) / run.config.horizon
        except (ValueError, KeyError, TypeError):  # a torn line, or an event without a step
            continue
        details = {
            k: v for k, v in record.items() if k not in ("event", "time", "step") and isinstance(v, (str, int, float))
        }
        changed = [
            f"{k} {before[k]} to {v}"
            for k, v in details.items()
            if k in before and before[k] != v and k != "points_cut"
        ]
        before |= details
        if kind not in QUIET or changed:
            out.append((at, f"{kind} at {at:.1%}" + (f" ({', '.join(changed)})" if changed else "")))
    return out


def _rate(run: Run, low: float, high: float) -> list[str]:
    """Whether the logged learning rate leaves its schedule there."""
    signal, schedule = run.signals.get("learning_rate"), run.config.schedule
    if signal is None or schedule is None or not len(signal):
        return []
    fraction = signal.x / run.end
    planned = schedule(fraction)
    early = fraction < low
    peak = float(np.max(signal.value[early])) / max(float(np.max(planned[early])), 1e-12) if early.any() else None
    if not peak:
        return []
    here = (fraction >= low) & (fraction <= high)
    off = np.abs(signal.value / peak - planned)
    if not here.any() or not (off[here] > RATE_OFF).any():
        return []
    k = int(np.flatnonzero(here)[np.argmax(off[here] > RATE_OFF)])
    return [f"learning rate {signal.value[k] / peak:.2f} of its peak at {fraction[k]:.1%}, planned {planned[k]:.2f}"]


def reference_from(paths: Sequence[str], read: Callable[[Sequence[str]], Sequence[Run]], loss: str | None) -> Reference:
    """A reference as `onecurve collapse -o` wrote it, or made of finished runs."""
    if len(paths) == 1 and paths[0].endswith(".json") and Path(paths[0]).is_file():
        try:
            content = json.loads(Path(paths[0]).read_text())
        except (OSError, ValueError) as error:
            raise OnecurveError(
                f"{paths[0]}: cannot be read ({error}); make it with onecurve collapse DATA -o FILE"
            ) from None
        if isinstance(content, dict) and "reference" in content:
            return Reference.from_dict(cast(dict[str, Any], content), paths[0])
        raise OnecurveError(f"{paths[0]}: no reference; make one with onecurve collapse DATA -o FILE")
    return Reference.of(read(paths), loss)


def until(run: Run, horizon: float) -> Run:
    """The same run with a planned end that its log does not state."""
    return replace(run, config=run.config.model_copy(update={"horizon": horizon}))
