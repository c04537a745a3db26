"""The monitor on runs whose faults are known."""

from __future__ import annotations

import numpy as np
import pytest

from onecurve import OnecurveError
from onecurve.watch.monitor import Plan, finish, onset_of, start, statistics, step
from onecurve.watch.reference import Reference

from .conftest import family, healthy, with_fault

REF = Reference.of(family(seeds=4))
N = 3.2e6


def watch(run, limit=7.0, reference=REF):
    plan = Plan.of(reference, run.config.n_params, run.end, limit)
    s, out = start(plan), []
    c = run.curves["loss"]
    for x, loss in zip(c.x.tolist(), c.loss.tolist(), strict=True):
        s, events = step(plan, s, x, loss)
        out += events
    s, events = finish(plan, s)
    return s, out + events


def kinds(events):
    return [e.kind for e in events]


def test_a_healthy_run_of_a_larger_size_is_let_be():
    for seed in range(20):
        _, events = watch(healthy(N, 100 + seed))
        assert kinds(events) == ["aligned"]
        assert float(events[0].text.split()[-1]) == pytest.approx(N**-0.1, rel=0.03)


@pytest.mark.parametrize("at", [0.2, 0.45, 0.7, 0.85])
@pytest.mark.parametrize("size", [0.04, -0.04])
def test_a_step_is_seen_and_placed(at, size):
    _, events = watch(with_fault(healthy(N, 7), lambda f: np.where(f > at, 1 + size, 1.0)))
    alarm = next(e for e in events if e.severity == "alarm")
    assert alarm.kind == ("departure" if size > 0 else "too-good")
    assert abs(alarm.onset - at) <= 0.03 and alarm.fraction <= at + 0.1
    assert alarm.onset_low - 0.011 <= at <= alarm.onset_high + 0.011
    assert alarm.size == pytest.approx(size, abs=0.015)


def test_a_ramp_is_seen_and_placed():
    _, events = watch(with_fault(healthy(N, 8), lambda f: 1 + np.clip(f - 0.6, 0, 1)))
    alarm = next(e for e in events if e.severity == "alarm")
    assert 0.57 <= alarm.onset <= 0.66 and alarm.fraction < 0.75


def test_one_departure_is_one_alarm_and_a_second_is_another():
    one = watch(with_fault(healthy(N, 9), lambda f: np.where(f > 0.3, 1.2, 1.0)))[1]
    assert kinds(one).count("departure") == 1
    two = watch(with_fault(healthy(N, 9), lambda f: np.where(f > 0.7, 1.44, np.where(f > 0.3, 1.2, 1.0))))[1]
    assert kinds(two).count("departure") == 2


def test_spikes_that_recover_are_no_departures():
    _, events = watch(with_fault(healthy(N, 10), lambda f: np.where(np.abs(f - 0.5) < 0.0025, 3.0, 1.0)))
    assert kinds(events) == ["spike", "aligned"] or kinds(events) == ["aligned", "spike"]
    spike = next(e for e in events if e.kind == "spike")
    assert spike.onset == pytest.approx(0.498, abs=0.003) and spike.severity == "notice"


def test_a_blow_up_is_told_within_a_dozen_points():
    _, events = watch(with_fault(healthy(N, 11), lambda f: np.where(f > 0.505, 5.0, 1.0)))
    alarm = next(e for e in events if e.severity == "alarm")
    assert alarm.fraction <= 0.505 + 0.015 and alarm.size > 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 0.0, -1.0])
def test_losses_that_are_no_numbers_are_told_once_and_enter_nothing(bad):
    run = healthy(N, 12)
    broken = with_fault(run, lambda f: np.where((f > 0.5) & (f < 0.51), bad, 1.0))
    s, events = watch(broken)
    assert kinds(events).count("not-finite") == 1 and kinds(events).count("aligned") == 1
    assert not any(e.kind == "departure" for e in events)
    assert np.isfinite(s.residual[60:]).all()


def test_what_comes_later_changes_nothing_that_was_said():
    run = with_fault(healthy(N, 13), lambda f: np.where(f > 0.6, 1.1, 1.0))
    _, whole = watch(run)
    plan = Plan.of(REF, N, run.end, 7.0)
    c, s, out = run.curves["loss"], start(plan), []
    for x, loss in zip(c.x[:750].tolist(), c.loss[:750].tolist(), strict=True):
        before = s.residual.copy()
        s, events = step(plan, s, x, loss)
        out += events
        assert np.array_equal(before, before, equal_nan=True)
    assert out == [e for e in whole if e.x <= c.x[749]]


def test_points_that_go_back_are_left_out():
    plan = Plan.of(REF, N, 20 * N, 7.0)
    s, _ = step(plan, start(plan), 100.0, 1.0)
    assert step(plan, s, 100.0, 5.0) == (s, []) and step(plan, s, 50.0, 5.0) == (s, [])


def test_a_run_beyond_its_plan_is_told_once():
    plan = Plan.of(REF, N, 100.0, 7.0)
    s, events = start(plan), []
    for x in range(1, 130):
        s, new = step(plan, s, float(x), 1.0)
        events += new
    assert kinds(events).count("overrun") == 1


def test_a_level_that_the_smaller_sizes_do_not_point_to_is_a_warning():
    _, events = watch(with_fault(healthy(N, 14), lambda f: 1.3 + 0 * f))
    level = next(e for e in events if e.kind == "level")
    assert level.severity == "warning" and level.size == pytest.approx(0.3, abs=0.05)


def test_noise_of_the_run_widens_what_is_allowed():
    loud = [watch(healthy(N, 200 + k, noise=0.03))[1] for k in range(10)]
    assert sum("departure" in kinds(e) or "too-good" in kinds(e) for e in loud) <= 1


def test_memory_does_not_grow():
    plan = Plan.of(REF, N, 1e9, 7.0)
    s = start(plan)
    for x in range(1, 20_000):
        s, _ = step(plan, s, float(x), 1.0)
    assert (
        s.residual.size == 100 and sum(np.size(getattr(s, name)) for name in s.__slots__) == 100 + len(s.__slots__) - 1
    )


def test_statistics_of_noise_alone_are_standard():
    plan = Plan.of(REF, N, 20 * N, 7.0)
    z = []
    for k in range(40):
        s, _ = watch(healthy(N, 300 + k))
        z.append([statistics(plan, s.residual, b) for b in range(30, 95, 7)])
    spread = np.nanstd(np.array(z), axis=(0, 1))
    assert (spread[:3] > 0.6).all() and (spread[:3] < 1.35).all()


@pytest.mark.parametrize("first", [10, 40, 70])
def test_onsets_in_closed_form(first):
    y = np.full(100, np.nan)
    y[5:80] = 0.0
    y[first:80] = 1.0
    place, low, high, size = onset_of(y, 79)
    assert (place, low, high) == (first / 100,) * 3 and size == pytest.approx(1.0)


def test_a_plan_needs_a_horizon():
    with pytest.raises(OnecurveError, match="horizon is 0"):
        Plan.of(REF, N, 0.0, 7.0)
