from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from onecurve.errors import OnecurveError
from onecurve.run import Curve, Run, RunConfig, human


def test_a_curve_is_a_value():
    curve = Curve(np.array([1.0, 2.0]), np.array([3.0, np.nan]))
    assert curve == Curve(np.array([1.0, 2.0]), np.array([3.0, np.nan]))
    assert curve != Curve(np.array([1.0, 2.0]), np.array([3.0, 2.0]))
    assert curve != Curve(np.array([1.0, 2.0]), np.array([3.0, np.nan]), "held-out")
    assert curve != Curve(np.array([1.0]), np.array([3.0]))


def test_runs_are_compared_by_value():
    def run(last):
        return Run.of("a", n_params=1, x=[1, 2], loss=[2, last])

    assert run(1) == run(1)
    assert run(1) != run(0)


def test_a_curve_cannot_be_changed_and_leaves_its_source_alone():
    x, loss = np.array([1.0, 2.0]), np.array([3.0, 2.0])
    curve = Curve(x, loss)
    x[0] = loss[0] = -7.0
    assert curve.x[0] == 1.0
    assert curve.loss[0] == 3.0
    with pytest.raises(ValueError, match="read-only"):
        curve.loss[0] = 0.0


def test_finite_leaves_out_what_is_not():
    curve = Curve(np.arange(1.0, 5.0), np.array([3.0, np.nan, np.inf, 1.0]), "held-out")
    assert curve.finite() == Curve(np.array([1.0, 4.0]), np.array([3.0, 1.0]), "held-out")
    assert len(curve) == 4


@pytest.mark.parametrize(
    ("x", "loss", "words"),
    [
        ([1, 2], [1], "equally long"),
        ([[1, 2]], [[1, 2]], "equally long vectors"),
        ([1, np.nan], [1, 2], "x must be finite; got nan at row 1"),
        ([1, 3, 2], [1, 2, 3], "got 2 after 3 at row 2"),
        ([1, 1], [1, 2], "rise strictly"),
    ],
)
def test_what_is_no_curve_is_refused(x, loss, words):
    with pytest.raises(OnecurveError, match=words):
        Run.of("a", n_params=1, x=x, loss=loss)


@pytest.mark.parametrize(
    "options", [{"n_params": 0}, {"n_params": -1.0}, {"horizon": 0.0}, {"colour": "red"}, {"weight_decay": -0.1}]
)
def test_settings_that_cannot_be_are_refused(options):
    with pytest.raises(ValidationError):
        RunConfig(**({"name": "a", "n_params": 1.0} | options))


def test_a_seed_is_one_label():
    def label(**options):
        return RunConfig(name="a", n_params=1.0, **options).seed_label

    assert label() == ""
    assert label(seed=3) == "3"
    assert label(seed_init=1, seed_data=2) == "1/2"
    assert label(seed_init=1, seed_data=2) != label(seed_init=2, seed_data=1)
    assert label(seed=0, seed_init=5) == "0"


def test_a_run_shows_itself():
    run = Run.of("a", n_params=1.5e9, x=[1, 2], loss=[2, 1], horizon=2e9, seed=1, kind="held-out", loss_name="val")
    assert repr(run) == "Run('a', N 1.5B, horizon 2B tokens, seed 1, 2 points of 'val' (held-out))"
    assert Run.of("a", n_params=1, x=[1], loss=[1], recipe="x").config.settings == {"recipe": "x"}


def test_counts_are_short():
    assert [human(v) for v in (0.5, 999, 1000, 12_345, 7e9, 3e13)] == ["0.5", "999", "1K", "12.3K", "7B", "30T"]


def test_the_end_of_a_run_is_its_horizon_or_its_last_point():
    planned = Run(RunConfig(name="a", n_params=1.0, horizon=9.0), {})
    assert planned.end == 9.0
    run = Run.of("a", n_params=1.0, x=[1, 5], loss=[2, 1])
    assert run.end == 5.0
    with pytest.raises(OnecurveError, match="neither a horizon nor a point"):
        _ = Run(RunConfig(name="a", n_params=1.0), {}).end


def test_the_held_out_curve_is_the_one_that_is_meant():
    run = Run.of("a", n_params=1.0, x=[1, 2], loss=[2, 1])
    both = Run(run.config, run.curves | {"val": Curve(np.array([1.0]), np.array([3.0]), "held-out")})
    assert both.curve().kind == "held-out"
    assert both.curve("loss").kind == "training"
    with pytest.raises(OnecurveError, match="no curve 'x'; it has 'loss', 'val'"):
        both.curve("x")
    with pytest.raises(OnecurveError, match="it has none"):
        Run(run.config, {}).curve()
