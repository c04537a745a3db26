from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onecurve.logs.clean import gaps, interval_means, mend, rewinds, sampled
from onecurve.logs.log import Series, flat


def slow_mend(step, value):
    """The rule as it reads: each written point removes what was written before at its step or beyond."""
    kept: list[tuple[float, float]] = []
    for s, v in zip(step, value, strict=True):
        kept = [(a, b) for a, b in kept if a < s]
        kept.append((s, v))
    return kept


@given(st.lists(st.integers(0, 30), max_size=60))
def test_the_branch_written_last_wins(steps):
    value = np.arange(len(steps), dtype=float)
    made, dropped = mend(Series.of(steps, value))
    assert list(zip(made.step, made.value, strict=True)) == slow_mend([float(s) for s in steps], value)
    assert np.all(np.diff(made.step) > 0)
    assert sum(dropped.values()) == len(steps) - len(made)


def test_what_is_dropped_is_counted_by_its_reason():
    made, dropped = mend(Series.of([1, 2, 3, 3, np.nan, 2, 3], [1, 2, 3, 4, 5, 6, 7]))
    assert made.step.tolist() == [1.0, 2.0, 3.0] and made.value.tolist() == [1.0, 6.0, 7.0]
    assert dropped == {
        "points rewritten after a resume": 2,
        "points that the next one repeats": 1,
        "points without a step": 1,
    }


def test_rewinds_are_where_steps_go_back():
    assert rewinds(np.array([1.0, 2.0, 5.0, 3.0, 4.0, 1.0])) == [(5.0, 3.0), (4.0, 1.0)]


def test_a_gap_is_a_gap_and_thinning_by_design_is_none():
    even = np.concatenate([np.arange(0, 500, 10.0), np.arange(1000, 1500, 10.0)])
    assert gaps(even) == [(490.0, 1000.0)]
    assert gaps(np.geomspace(1, 1e6, 200)) == []
    assert gaps(np.array([1.0, 2.0, 90.0])) == []


def test_a_sampled_export_is_recognised():
    rng = np.random.default_rng(0)
    full = np.arange(0, 100_000, 10.0)
    assert sampled(np.sort(rng.choice(full, 500, replace=False)))
    assert not sampled(full[:500])
    assert not sampled(np.unique(np.geomspace(1, 1e6, 620).round())[-500:])
    assert not sampled(np.sort(rng.choice(full, 300, replace=False)))


def test_means_move_to_the_middle_of_what_they_are_means_of():
    moved = interval_means(Series.of([10, 20, 40], [1, 2, 3]))
    assert moved.step.tolist() == [5.0, 15.0, 30.0]


def test_settings_are_flat_whatever_the_depth():
    assert flat({"a": {"b": {"c": 1}}, "d": None, "e": [1]}) == {"a.b.c": 1}
    deep: dict = {}
    inner = deep
    for _ in range(5_000):
        inner["x"] = {}
        inner = inner["x"]
    inner["y"] = 1
    assert list(flat(deep).values()) == [1]
