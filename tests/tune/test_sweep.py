"""Which runs make a sweep, and how they stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onecurve import OnecurveError, Schedule
from onecurve.run import Curve
from onecurve.tune.sweep import sweep_of

from .conftest import cut, failing, run, sweep_runs


def having(one, **settings):
    return replace(one, config=one.config.model_copy(update=settings))


def test_runs_stand_where_they_are():
    whole, half, lost = sweep_runs()[:3]
    got = sweep_of([cut(half, 0.5), whole, failing(cut(lost, 0.3))])
    assert [r.config.name for r in got.runs] == ["sweep-0", "sweep-1", "sweep-2"] and got.labels == ["0", "1", "2"]
    assert got.reach == pytest.approx([1.0, 0.5, 0.3]) and got.ended.tolist() == [True, False, False]
    assert got.failed.tolist() == [False, False, True] and got.warm == pytest.approx([0.05] * 3)
    assert got.final[0] == pytest.approx(whole.curves["test_loss"].loss[-1])
    assert np.isfinite(got.loss).sum(axis=1).tolist() == [200, 100, 59]
    back = got.until(0.2)
    assert back.reach == pytest.approx([0.2] * 3) and not back.ended.any() and not back.failed.any()
    assert np.isfinite(back.loss).sum(axis=1).tolist() == [40, 40, 40]


def test_only_cells_with_points_count():
    one = sweep_runs()[0]
    c = one.curves["test_loss"]
    sparse = replace(one, curves={"test_loss": Curve(c.x[9::10], c.loss[9::10], "held-out")})
    assert np.isfinite(sweep_of([sparse]).loss).sum() == 20


def test_a_training_loss_is_smoothed():
    one = run("a", 0.1, 1.0, noise=0.1)
    c = one.curves["test_loss"]
    rough = sweep_of([one]).loss[0]
    smooth = sweep_of([replace(one, curves={"loss": Curve(c.x, c.loss)})]).loss[0]
    assert np.std(np.diff(np.log(smooth[100:]))) < 0.6 * np.std(np.diff(np.log(rough[100:])))


def test_a_run_that_has_logged_nothing_yet_is_one_of_the_sweep():
    runs = sweep_runs()
    got = sweep_of([replace(runs[0], curves={}), *runs[1:]])
    assert got.reach[0] == 0.0 and np.isnan(got.loss[0]).all()


def test_losses_of_zero_and_below_do_not_count():
    one = sweep_runs()[0]
    c = one.curves["test_loss"]
    got = sweep_of(
        [replace(one, curves={"test_loss": Curve(c.x, np.where(c.x < 0.3 * one.end, -1.0, c.loss), "held-out")})]
    )
    assert np.isnan(got.loss[0, :59]).all() and np.isfinite(got.loss[0, 60:]).all()


RUNS = sweep_runs()
BAD = {
    "none": ([], "needs runs; got none"),
    "no horizon": ([having(RUNS[0], horizon=None), RUNS[1]], "sweep-0 state no horizon"),
    "two sizes": ([RUNS[0], having(RUNS[1], n_params=2e6)], "these runs have 2 .1M, 2M.: choose one with --where"),
    "two horizons": ([RUNS[0], having(RUNS[1], horizon=4e7)], "different horizons, 20M to 40M tokens"),
    "two schedules": ([RUNS[0], having(RUNS[1], schedule=Schedule(shape="cosine"))], "2 schedules"),
    "no curve": ([replace(RUNS[0], curves={})], "none of the runs has logged a loss yet"),
    "no shared curve": (
        [RUNS[0], replace(RUNS[1], curves={"other": RUNS[1].curves["test_loss"]})],
        "share no curve: run 'sweep-0' has .'test_loss'., run 'sweep-1' has .'other'.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_sweep(case):
    runs, words = BAD[case]
    with pytest.raises(OnecurveError, match=words):
        sweep_of(runs)


def test_a_named_loss():
    assert sweep_of(RUNS, "test_loss").loss_name == "test_loss"
    with pytest.raises(OnecurveError, match="no curve 'val'"):
        sweep_of(RUNS, "val")
