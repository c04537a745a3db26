"""The stopping rule on sweeps whose winner is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onecurve import OnecurveError, Run
from onecurve.laws.final import FinalLoss
from onecurve.laws.law import Report
from onecurve.laws.small_runs import SmallRuns
from onecurve.tune.forecast import Forecast
from onecurve.tune.stop import decide, earliest_safe, judge, stopped_at
from onecurve.tune.sweep import sweep_of

from .conftest import TRUE, cut, failing, sweep_runs

SMALL = SmallRuns.fit(sweep_runs(1e5, noise=0.01))


def ends(log_end, own, drop=0.0, shared=0.0) -> Forecast:
    n = len(log_end)
    one = np.ones(n)
    return Forecast(np.array(log_end), own * one, drop * one, 1.0, shared, 0.1, 0 * one, np.full(n, 9), 0.0)


def judged(e: Forecast, final=None, reach=1.0, **kwargs):
    n = e.log_end.size
    final = np.full(n, np.nan) if final is None else np.array(final)
    stopped = kwargs.pop("stopped", np.zeros(n, bool))
    may = np.isnan(final) & ~stopped
    return judge(e, final, np.full(n, reach), may, stopped, range(n), **kwargs)


def verdicts(found) -> dict[str, str]:
    return {row.run: row.verdict for row in found.rows}


def test_chances_are_those_of_normal_ends():
    got = judged(ends([0.0, 0.1], 0.1), tolerance=0.0)
    assert got.chance_best == pytest.approx([0.760, 0.240], abs=0.03)  # P(N(.1, .02) > 0)
    assert got.chance_best.sum() == pytest.approx(1.0)
    wide = judged(ends([0.0, 0.1], 0.1, drop=1.0, shared=5.0), tolerance=0.0)
    assert wide.chance_best == pytest.approx(got.chance_best)  # what all share lets none of them win


def test_runs_within_the_tolerance_do_not_hold_each_other_up():
    like = ends([0.0, 0.0, 0.0, 0.0, 3.0], 1e-6)
    assert judged(like, tolerance=0.001).stop.sum() == 4  # any of the four will do
    assert judged(like, tolerance=0.0, risk=0.0).stop.tolist() == [False] * 4 + [True]


def test_the_risk_is_spent_as_runs_come_on():
    close = ends([0.0, 0.35], 0.2)  # about one in ten
    assert not judged(close, reach=0.3, risk=0.2).stop.any()
    assert judged(close, reach=0.9, risk=0.2).stop.tolist() == [False, True]


def test_what_was_stopped_has_spent_its_risk():
    e = ends([0.0, 0.3, 0.3], 0.15)
    assert judged(e, risk=0.1).stop.sum() == 1
    gone = np.array([False, True, False])
    assert not judged(e, risk=0.1, stopped=gone).stop.any()
    assert judged(e, risk=0.3, stopped=gone).stop.tolist() == [False, False, True]


def test_ended_runs_are_exact_and_never_given_up():
    got = judged(ends([np.nan, 0.5, -0.5], 0.1), final=[0.0, np.nan, np.nan])
    assert got.stop.tolist() == [False, True, False] and got.chance_best[2] == pytest.approx(1.0, abs=0.01)
    assert judged(ends([np.nan, 0.5], 0.1), final=[0.0, np.nan]).stop.tolist() == [False, True]


@pytest.mark.parametrize("seed", range(20))
def test_one_run_is_always_left(seed):
    rng = np.random.default_rng(seed)
    e = ends(rng.normal(0, 1, 9), rng.uniform(1e-6, 1))
    assert not judged(e, risk=0.99).stop.all()


def test_nothing_known_nothing_said():
    got = judged(ends([np.nan, np.nan], np.nan))
    assert np.isnan(got.chance_best).all() and not got.stop.any()


def test_the_winner_is_kept_and_clear_losers_stopped():
    runs = sweep_runs(noise=0.01)
    found = decide(sweep_of([cut(run, 0.6) for run in runs]), SMALL)
    said = verdicts(found)
    assert said["sweep-3"] == "continue" and said["sweep-7"] == "stop"
    assert found.rows[0].run == "sweep-3" and found.saved == pytest.approx(
        0.4 * sum(v == "stop" for v in said.values()) / 8
    )
    best = next(row for row in found.rows if row.run == "sweep-3")
    assert best.low < 0.02 < best.high and best.end == pytest.approx(0.02, rel=0.05)


def test_the_surrogate_serves_as_well():
    found = decide(sweep_of([cut(run, 0.6) for run in sweep_runs()]), TRUE)
    assert found.rows[0].end == pytest.approx(0.02, rel=1e-3) and found.earliest == 0.3


def test_neither_order_nor_failed_runs_matter():
    runs = [cut(run, 0.5) for run in sweep_runs(noise=0.02)]
    first = decide(sweep_of(runs), SMALL)
    assert decide(sweep_of(runs[::-1]), SMALL) == first
    lost = replace(failing(runs[0]), config=runs[0].config.model_copy(update={"name": "sweep-2b"}))
    beside = decide(sweep_of([*runs, lost]), SMALL)
    assert [row for row in beside.rows if row.run != "sweep-2b"] == list(first.rows)
    assert verdicts(beside)["sweep-2b"] == "failed" and "sweep-2b" in beside.notes[-1]


def test_nothing_is_stopped_early_and_why_is_said():
    found = decide(sweep_of([cut(run, 0.2) for run in sweep_runs()]), SMALL, earliest=0.25)
    assert set(verdicts(found).values()) == {"continue"} and "nothing is stopped before x = 0.25" in found.rows[0].why


def test_a_run_with_two_points_goes_on_and_does_not_count():
    runs = [cut(run, 0.5) for run in sweep_runs()]
    short = cut(runs[0], 0.06)
    found = decide(sweep_of([short, *runs[1:]]), SMALL)
    row = next(row for row in found.rows if row.run == "sweep-0")
    assert row.verdict == "continue" and "points after the warmup: 2;" in row.why and np.isnan(row.end)
    assert found.rows[-1] == row


def test_a_stopped_run_stays_stopped():
    runs = [cut(run, 0.6) for run in sweep_runs(noise=0.01)]
    found = decide(sweep_of(runs), SMALL, stopped=["sweep-7"])
    assert verdicts(found)["sweep-7"] == "stopped" and verdicts(found)["sweep-3"] == "continue"


def test_ended_runs_end():
    runs = sweep_runs()
    found = decide(sweep_of([runs[3], *(cut(run, 0.5) for run in runs if run is not runs[3])]), SMALL)
    row = next(row for row in found.rows if row.run == "sweep-3")
    assert row.verdict == "ended" and row.end == row.low == row.high == pytest.approx(0.02)


def test_the_earliest_fraction_is_where_the_references_own_best_is_kept():
    fraction, why = earliest_safe(SMALL)
    assert 0.1 <= fraction < 1.0 and "8 settings" in why
    few = SmallRuns.fit(sweep_runs(1e5)[:3])
    assert earliest_safe(few)[0] == 0.3 and "too few" in earliest_safe(few)[1]
    # Among random curves nothing is foretold.
    rng = np.random.default_rng(0)
    shape = np.cumsum(rng.normal(0, 0.3, (8, 99)), axis=1)
    wild = replace(SMALL, log_shape=(shape - shape[:, -1:]).ravel(), log_final=rng.normal(0, 0.01, 8))
    assert earliest_safe(wild)[0] > fraction


def test_a_replay_never_looks_ahead():
    runs = sweep_runs(noise=0.01)
    at = np.arange(1, 20) / 20
    stopped = stopped_at(sweep_of(runs), SMALL, at)
    assert stopped[3] == 1.0 and (stopped < 1).sum() >= 3
    for k in np.flatnonzero(stopped < 1):  # what comes after does not matter
        changed = [run if j != k else altered(run, stopped[k]) for j, run in enumerate(runs)]
        assert stopped_at(sweep_of(changed), SMALL, at).tolist() == stopped.tolist()


def altered(run: Run, after: float) -> Run:
    """Another course after a fraction."""
    return replace(
        run,
        curves={
            n: replace(c, loss=np.where(c.x > after * run.end * (1 + 1e-9), 1e-3, c.loss))
            for n, c in run.curves.items()
        },
    )


def test_a_reference_of_another_task_is_named():
    other = [replace(r, curves={n: replace(c, loss=c.loss**0.1) for n, c in r.curves.items()}) for r in sweep_runs(1e5)]
    found = decide(sweep_of([cut(run, 0.5) for run in sweep_runs()]), SmallRuns.fit(other))
    assert any("do not follow the reference" in note for note in found.notes)
    assert not decide(sweep_of([cut(run, 0.5) for run in sweep_runs()]), SMALL).notes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tolerance": -1.0}, "--tolerance is -1"),
        ({"risk": 1.0}, "--risk is 1; accepted is 0 or more, below 1"),
        ({"earliest": 2.0}, "--earliest is 2"),
    ],
)
def test_numbers_out_of_range(options, words):
    with pytest.raises(OnecurveError, match=words):
        decide(sweep_of(sweep_runs()), SMALL, **options)


def test_a_law_of_losses_is_refused():
    law = FinalLoss.__new__(FinalLoss)
    object.__setattr__(law, "report", Report())
    with pytest.raises(OnecurveError, match="predicts losses, not the shape"):
        decide(sweep_of(sweep_runs()), law)
