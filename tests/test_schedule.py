from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from onecurve.schedule import Schedule

SHAPES = ("constant", "linear", "cosine", "quadratic", "multicosine", "sqrt", "exponential")
schedules = st.builds(
    Schedule,
    shape=st.sampled_from(SHAPES),
    warmup=st.floats(0.0, 0.9),
    decay_frac=st.floats(0.01, 1.0),
    final=st.floats(0.01, 1.0),
)


@pytest.mark.parametrize(
    ("shape", "middle"),
    [
        ("constant", 1.0),
        ("linear", 0.75),
        ("cosine", (1 + np.cos(np.pi / 4)) / 2),
        ("quadratic", 1 - 1 / 16),
        ("multicosine", (1 + np.cos(3 * np.pi / 4)) / 2),
        ("sqrt", 0.5),
        ("exponential", 0.01**0.25),
    ],
)
def test_each_shape_has_its_formula(shape, middle):
    final = 0.01 if shape == "exponential" else 0.0
    s = Schedule(shape=shape, final=final)
    assert s(0.25) == pytest.approx(middle)
    assert s(0.0) == 1.0
    assert s(1.0) == pytest.approx(1.0 if shape == "constant" else final, abs=1e-15)


@given(schedules)
def test_the_peak_is_one_and_nothing_is_above_it(s):
    value = s(np.linspace(0, 1, 201))
    assert (value <= 1.0 + 1e-12).all()
    assert (value[1:] >= 0.0).all()
    assert s(s.warmup) == pytest.approx(1.0)


@given(schedules)
def test_it_ends_at_its_final_value(s):
    assert s(1.0) == pytest.approx(1.0 if s.shape == "constant" else s.final)


@given(schedules, st.floats(0.0, 1.0))
def test_warmup_is_a_straight_line_from_zero(s, share):
    if s.warmup > 0:
        assert s(share * s.warmup) == pytest.approx(share)
        assert s(0.0) == 0.0


def test_decay_takes_its_share_of_what_follows_the_warmup():
    s = Schedule(shape="linear", warmup=0.2, decay_frac=0.25)
    assert s([0.2, 0.5, 0.8]) == pytest.approx([1.0, 1.0, 1.0])
    assert s(0.9) == pytest.approx(0.5)
    same = Schedule(shape="linear", warmup=0.2, decay_frac_of_total=0.2)
    assert same.decay_frac == pytest.approx(0.25)


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.3, 0.7, 0.9])
def test_a_decay_over_all_that_follows_may_be_given_as_a_share_of_the_whole(warmup):
    share = round(1.0 - warmup, 10)
    assert Schedule(warmup=warmup, decay_frac_of_total=share).decay_frac == pytest.approx(1.0)


@pytest.mark.parametrize(
    "options",
    [
        {"decay_frac_of_total": 0.5, "warmup": 1.0},
        {"decay_frac_of_total": 0.5, "warmup": 0.6},
        {"decay_frac_of_total": 0.5, "decay_frac": 0.5},
        {"decay_frac_of_total": "half"},
        {"decay_frac_of_total": 0.0},
        {"shape": "exponential"},
        {"shape": "step"},
        {"warmup": 1.0},
        {"warmup": -0.1},
        {"decay_frac": 0.0},
        {"final": 1.1},
        {"peak": 1.0},
        {"warmup": "0.1"},
        {"warmup": float("nan")},
    ],
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ValidationError):
        Schedule(**options)


def test_fractions_outside_take_the_value_at_the_nearer_end():
    s = Schedule(shape="linear", warmup=0.1, final=0.2)
    assert s([-1.0, 2.0]) == pytest.approx([0.0, 0.2])


def test_it_says_what_it_is():
    assert str(Schedule(shape="sqrt", warmup=0.01, decay_frac=0.2, final=0.1)) == "sqrt, warmup 0.01, last 0.2, to 0.1"
    assert str(Schedule()) == "linear"
