"""Which runs of a sweep can be stopped now: one rule, a pure function of the curves so far.

Predicted ends are drawn jointly (`onecurve.tune.forecast`), because an error of the shape that all runs share lets none
of them win. Runs are then given up, those least likely to be best first, for as long as the chance that this loses more
than the tolerance stays below the risk, or as much of the risk as they have done of their training. Nothing is stopped
before the earliest safe fraction: from there on the same rule, replayed on the small runs of the reference, would have
kept their best.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onecurve.errors import OnecurveError, some
from onecurve.fit import FloatArray
from onecurve.laws.law import Law
from onecurve.laws.small_runs import SmallRuns
from onecurve.tune.forecast import FEWEST, NORMAL, Forecast, forecast
from onecurve.tune.sweep import Sweep

Verdict = Literal["continue", "stop", "stopped", "ended", "failed"]
TOLERANCE = 0.001
RISK = 0.05
DRAWS = 2000
REPLAYED = np.arange(2, 20) / 20
UNTRIED = 0.3
"""The earliest fraction where the reference's runs are not there, or too few, to be replayed on: that from which the
published procedure lost nothing in its sweeps (arXiv 2509.25087, figure 9)."""
ODD = 1.5
"""A stretch by more than this, or by less than its inverse, has not been seen between sizes of one task."""


@dataclass(frozen=True)
class Row:
    """One run, judged."""

    run: str
    fraction: float
    """How far it has come."""
    loss: float
    """Its last loss."""
    end: float
    """Its predicted final loss, or the final loss where it has ended; nan where nothing can be told."""
    low: float
    high: float
    """The central 90 % of the predicted end."""
    chance_best: float
    """Of ending with the lowest loss of all."""
    chance_close: float
    """Of ending within the tolerance of the lowest."""
    verdict: Verdict
    why: str
    remarks: tuple[str, ...]
    """What to know of the curve that it was held against."""


@dataclass(frozen=True)
class Decisions:
    """What the rule says of a sweep; rows by predicted end, the best first."""

    rows: tuple[Row, ...]
    tolerance: float
    risk: float
    earliest: float
    """Fraction before which nothing is stopped."""
    earliest_from: str
    """Where that comes from."""
    stretch: float
    """By how much the runs' curves are steeper, in logs, than those of the reference."""
    stretch_error: float
    notes: tuple[str, ...]

    @property
    def saved(self) -> float:
        """Share of the whole sweep's compute that stopping now leaves out."""
        return sum(1.0 - row.fraction for row in self.rows if row.verdict == "stop") / max(len(self.rows), 1)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return vars(self) | {"rows": [vars(row) for row in self.rows], "saved": self.saved}


@dataclass(frozen=True)
class Judged:
    """`judge` of rows: chances, and which rows to give up."""

    chance_best: FloatArray
    chance_close: FloatArray
    stop: NDArray[np.bool_]


def judge(
    ends: Forecast,
    log_final: FloatArray,
    reach: FloatArray,
    may_stop: NDArray[np.bool_],
    stopped: NDArray[np.bool_],
    keys: Sequence[int],
    tolerance: float = TOLERANCE,
    risk: float = RISK,
) -> Judged:
    """Chances of rows, and which can be given up; ``log_final`` (n,) holds the ends that are known, else nan.

    The risk is spent as runs come on: at a fraction ``reach`` (n,) that share of it, or early guesses would use it up.
    Rows that were ``stopped`` before count as given up already: what is risked by them is spent. Rows without a
    predicted or known end have no chances (nan) and are never given up; no row depends on them. ``keys`` (n,) seed the
    draws of each row.
    """
    n = log_final.size
    known = np.isfinite(log_final)
    told = known | np.isfinite(ends.log_end)
    best, close, stop = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, dtype=bool)
    if not told.any():
        return Judged(best, close, stop)
    drawn = np.where(known, log_final, ends.draws(DRAWS, keys))[:, told]
    lowest = drawn.min(axis=1, keepdims=True)
    slack = np.log1p(tolerance)
    best[told] = (drawn == lowest).mean(axis=0)
    close[told] = (drawn <= lowest + slack).mean(axis=0)
    # Given up first: what may be given up at all, the least likely winner before, among equals the higher end.
    middle = np.where(known, log_final, ends.log_end)[told]
    order = np.lexsort((-middle, best[told], ~may_stop[told], ~stopped[told]))
    rest = np.minimum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]  # lowest end of a row and all after it
    lost = (rest > lowest + slack).mean(axis=0)  # of giving up all before it
    new = may_stop[told][order]
    budget = risk * np.minimum.accumulate(np.where(new, reach[told][order], 1.0))
    fine = lost[1:] <= budget[:-1]  # giving up the first k + 1
    count = int(np.flatnonzero(fine & new[:-1])[-1]) + 1 if (fine & new[:-1]).any() else 0
    stop[np.flatnonzero(told)[order[:count]]] = True
    stop &= ~stopped
    return Judged(best, close, stop)


def decide(
    sweep: Sweep,
    law: Law,
    tolerance: float = TOLERANCE,
    risk: float = RISK,
    earliest: float | None = None,
    stopped: Collection[str] = (),
) -> Decisions:
    """The rule for a sweep against a law of normalised curves, `SmallRuns` or `Surrogate`.

    ``tolerance`` is what may be lost, as a share of the best final loss, and ``risk`` the chance of losing more;
    ``earliest`` is the fraction before which nothing is stopped, by default what the reference's own runs tell
    (`earliest_safe`); ``stopped`` names runs that will not go on. Raises OnecurveError for a law of another kind, for
    runs whose controls are not recorded, and for numbers out of range.
    """
    for name, value, top in (("tolerance", tolerance, np.inf), ("risk", risk, 1.0), ("earliest", earliest or 0.0, 1.0)):
        if not 0.0 <= value < top:
            raise OnecurveError(f"--{name} is {value:g}; accepted is 0 or more" + (", below 1" if top == 1.0 else ""))
    if not law.normalised:
        raise OnecurveError(
            f"{law.name} predicts losses, not the shape of a curve; tune needs small-runs or surrogate (onecurve fit)"
        )
    found, where = earliest_safe(law, tolerance, risk) if earliest is None else (earliest, "as told")
    ends = ends_of(sweep, *shapes_of(sweep, law))
    log_final = np.log(sweep.final)
    gone = np.array([run.config.name in stopped for run in sweep.runs]) & ~sweep.ended & ~sweep.failed
    may_stop = ~sweep.ended & (sweep.reach >= found * (1.0 - 1e-9)) & ~sweep.failed & ~gone
    judged = judge(ends, log_final, sweep.reach, may_stop, gone, sweep.keys, tolerance, risk)
    rows = [_row(sweep, ends, judged, k, found, law, bool(gone[k])) for k in range(len(sweep.runs))]
    order = sorted(range(len(rows)), key=lambda k: (not np.isfinite(rows[k].end), rows[k].end, rows[k].run))
    return Decisions(
        rows=tuple(rows[k] for k in order),
        tolerance=tolerance,
        risk=risk,
        earliest=found,
        earliest_from=where,
        stretch=ends.stretch,
        stretch_error=ends.stretch_error,
        notes=tuple(_notes(sweep, ends, law)),
    )


def shapes_of(sweep: Sweep, law: Law) -> tuple[FloatArray, FloatArray]:
    """(n, G) log shape of each run by the law, and the standard deviation of its error."""
    shape, error = np.empty_like(sweep.loss), np.zeros_like(sweep.loss)
    for k, run in enumerate(sweep.runs):
        x = sweep.fraction * run.end
        shape[k] = np.log(law.predict(run, x))
        if law.band is not None:
            low, high = law.interval(run, x)
            error[k] = np.log(high / low) / (2.0 * NORMAL)
        if isinstance(law, SmallRuns):
            error[k] = np.hypot(error[k], law.error(run, x))
    return shape, error


def ends_of(sweep: Sweep, shape: FloatArray, error: FloatArray) -> Forecast:
    """The predicted ends of a sweep's runs from their `shapes_of`."""
    # A run that has failed tells nothing of its end, nor of the others'.
    log_loss = np.where(sweep.failed[:, None], np.nan, np.log(sweep.loss))
    return forecast(sweep.fraction, log_loss, shape, error, sweep.warm)


def earliest_safe(law: Law, tolerance: float = TOLERANCE, risk: float = RISK) -> tuple[float, str]:
    """The first fraction from which on the rule, replayed on the reference's own runs, keeps their winner; and why.

    Each setting of `SmallRuns` is held against the shape that the others give it. Other laws, and fewer than four
    settings, tell nothing; then it is .3, or where the law's curves begin.
    """
    if not isinstance(law, SmallRuns) or law.log_final.size < 4:
        first = max(UNTRIED, float(law.fractions[0]))
        return first, "the default: the reference has too few runs of its own to try the rule on"
    shape, error = law.left_out()
    curve = law.log_final[:, None] + law.log_shape.reshape(shape.shape)
    winner = int(law.log_final.argmin())
    close = law.log_final[winner] + np.log1p(tolerance)
    warm = np.full(law.log_final.size, law.scope.schedule.warmup if law.scope and law.scope.schedule else 0.0)
    unknown, everything = np.full_like(law.log_final, np.nan), np.ones(law.log_final.size, dtype=bool)
    kept = np.zeros(REPLAYED.size, dtype=bool)
    for k, fraction in enumerate(REPLAYED):
        seen = np.where(law.fractions <= fraction + 1e-9, curve, np.nan)
        ends = forecast(law.fractions, seen, shape, error, warm)
        reach = np.full(warm.size, fraction)
        stop = judge(ends, unknown, reach, everything, ~everything, range(warm.size), tolerance, risk).stop
        kept[k] = law.log_final[~stop].min() <= close
    lost = np.flatnonzero(~kept)
    from_here = [*REPLAYED, 1.0][int(lost[-1]) + 1 if lost.size else 0]
    return float(
        from_here
    ), f"from there on the rule, replayed on the reference's {warm.size} settings, keeps their best"


def _row(sweep: Sweep, ends: Forecast, judged: Judged, k: int, earliest: float, law: Law, gone: bool) -> Row:
    run, reach = sweep.runs[k], float(sweep.reach[k])
    seen = np.flatnonzero(np.isfinite(sweep.loss[k]))
    last = float(sweep.loss[k, seen[-1]]) if seen.size else float("nan")
    remarks: tuple[str, ...] = ()
    if sweep.ended[k]:
        end = low = high = float(sweep.final[k])
        verdict, why = "ended", "it has ended"
    elif sweep.failed[k]:
        end = low = high = float("nan")
        verdict, why = "failed", f"its loss at x = {reach:.2f} is not finite"
    elif not np.isfinite(ends.log_end[k]):
        end = low = high = float("nan")
        verdict, why = "continue", f"points after the warmup: {int(ends.points[k])}; it takes {FEWEST} to tell anything"
    else:
        end = float(np.exp(ends.log_end[k]))
        half = NORMAL * float(ends.error[k])
        low, high = end * np.exp(-half), end * np.exp(half)
        remarks = tuple(law.remarks(run))
        chance = f"{judged.chance_best[k]:.1%} chance of being best"
        if gone:
            verdict, why = "stopped", chance
        elif judged.stop[k]:
            verdict, why = "stop", chance
        elif reach < earliest * (1.0 - 1e-9):
            verdict, why = "continue", f"{chance}; nothing is stopped before x = {earliest:.2f}"
        else:
            verdict, why = "continue", chance
    return Row(
        run.config.name, reach, last, end, float(low), float(high), float(judged.chance_best[k]),
        float(judged.chance_close[k]), verdict, why, remarks,
    )  # fmt: skip


def _notes(sweep: Sweep, ends: Forecast, law: Law) -> list[str]:
    out: list[str] = []
    if not 1.0 / ODD < ends.stretch < ODD or ends.unexplained > 1.0:
        out.append(
            f"the curves so far do not follow the reference: in logs they are {ends.stretch:.2f} times as steep, and "
            f"{ends.unexplained:.0%} of its variation is left; is it of the same task, schedule and settings? Do not "
            "trust these ends"
        )
    elif abs(ends.stretch - 1.0) > 2.0 * ends.stretch_error:
        out.append(
            f"in logs the curves are {ends.stretch:.2f} times as steep as the reference's; predictions allow for it"
        )
    if failed := [run.config.name for run, bad in zip(sweep.runs, sweep.failed, strict=True) if bad]:
        out.append(f"not finite at their last point, and told nothing of: {some(failed)}")
    return out


def stopped_at(sweep: Sweep, law: Law, fractions: FloatArray, **options: Any) -> FloatArray:
    """(n,) fraction at which each run would have been stopped, had the rule been asked at these; 1 for survivors.

    A replay on recorded curves: a stopped run stays as it was, and what it did later is not looked at.
    """
    out, shapes = np.ones(len(sweep.runs)), shapes_of(sweep, law)
    earliest = options.pop("earliest", None)
    first = earliest_safe(law, **options)[0] if earliest is None else earliest
    for fraction in fractions[fractions >= first * (1.0 - 1e-9)]:
        now = sweep.until(float(fraction))
        stands = out < 1.0
        frozen = np.where(stands[:, None] & (sweep.fraction > out[:, None]), np.nan, now.loss)
        now = replace(now, loss=frozen, reach=np.minimum(now.reach, out))
        ends = ends_of(now, *shapes)
        judged = judge(
            ends, np.log(now.final), now.reach, ~now.ended & ~now.failed & ~stands, stands, now.keys, **options
        )
        out[judged.stop] = fraction
    return out
