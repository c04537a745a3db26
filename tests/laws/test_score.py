from __future__ import annotations

import numpy as np
import pytest

from onecurve import OnecurveError, Run
from onecurve.laws.annealing import Annealing
from onecurve.laws.final import FinalLoss
from onecurve.laws.law import planned
from onecurve.laws.score import Residuals, band, calibrated, errors, group_of, left_out_residuals, score
from onecurve.laws.shape import TokensPerParameter
from onecurve.run import Curve

from .conftest import NOTHING, SIZES, constant, ladder, named, of_law, schedules


def residuals(groups: int, points: int, seed: int, between: float = 1.0) -> list[Residuals]:
    """Left-out residuals as a law with an error of each group and noise of each point would leave."""
    rng = np.random.default_rng(seed)
    out = []
    for g in range(groups):
        x = np.linspace(0.02, 1.0, points)
        value = (between * rng.standard_normal() + rng.standard_normal(points)) * (2.0 - x) * 1e-2
        out.append(Residuals(planned(1e6, 1.0), f"{g}", x, value))
    return out


@pytest.mark.parametrize(("groups", "between"), [(5, 0.0), (5, 1.0), (10, 1.0), (10, 3.0), (40, 3.0)])
def test_a_band_holds_nine_tenths_of_new_groups_points(groups, between):
    held = []
    for seed in range(150):
        made = band(residuals(groups, 60, seed, between), "run")
        new = residuals(20, 60, 10_000 + seed, between)
        held += [(np.abs(r.value) <= made.at(r.fraction)).mean() for r in new]
    assert 0.85 <= np.mean(held) <= 0.95


def test_a_band_is_as_wide_as_its_residuals_where_they_are():
    made = band(residuals(40, 200, 0), "size")
    assert made.at(np.array([0.05]))[0] / made.at(np.array([1.0]))[0] == pytest.approx(1.95, rel=0.25)
    assert (made.groups, made.left_out, made.level) == (40, "size", 0.9)


def test_one_group_gives_no_band():
    assert band(residuals(1, 10, 0), "size") is None


def test_sizes_are_left_out_but_never_the_smallest():
    got, failed = left_out_residuals(FinalLoss, ladder(), None, "size")
    assert not failed
    assert sorted({r.run.config.n_params for r in got}) == list(SIZES[1:])
    assert {r.group for r in got} == {"2000000", "4000000", "8000000", "16000000"}
    assert max(np.abs(r.value).max() for r in got) < 0.02


def test_the_largest_size_is_judged_by_default():
    result = score(FinalLoss, ladder())
    assert {row.n_params for row in result.rows} == {SIZES[-1]}
    assert result.left_out == "the largest size"
    for row in result.rows:
        assert row.mae <= row.rmse and row.mean_relative <= row.worst_relative
        assert 0.0 <= row.inside <= 1.0 and row.half_width > 0
    every = score(FinalLoss, ladder(), leave_out="size")
    assert sorted({row.n_params for row in every.rows}) == list(SIZES[1:])
    assert every.mean("inside") > 0.8
    assert every.to_dict()["rows"][0]["run"] == every.rows[0].run


def test_errors_are_what_they_say():
    runs = ladder(noise=0.0)
    off = [named(r, r.config.name) for r in runs]
    result = score(FinalLoss, off, fit_on=runs[:8], test_on=[runs[-1]], bands=False)
    row = result.rows[0]
    law = FinalLoss.fit(runs[:8])
    curve = runs[-1].curves["val_loss"]
    late = curve.x >= 0.02 * runs[-1].end
    error = law.predict(runs[-1], curve.x[late]) - curve.loss[late]
    assert row.mae == pytest.approx(np.abs(error).mean())
    assert row.end_bias == pytest.approx(error[-1])
    assert row.points == late.sum()
    assert np.isnan(row.inside) and np.isnan(row.half_width)


def test_laws_of_schedules_leave_each_schedule_out():
    true = Annealing(NOTHING, 3.0, 30.0, 0.5, 3e-4, 0.998)
    runs = of_law(true, schedules("constant", "cosine", "linear", "quadratic"), 1e-4)
    result = score(Annealing, runs)
    assert result.left_out == "each schedule in turn"
    assert len(result.rows) == 4
    assert result.mean("mean_relative") < 2e-3
    two_sizes = [named(r, f"{r.config.name}-{n}", n_params=n) for r in runs for n in (1e8, 2e8)]
    assert len(score(Annealing, two_sizes, bands=False).rows) == 8  # size by size


def test_a_group_that_cannot_be_predicted_is_told_and_not_fatal():
    true = Annealing(NOTHING, 3.0, 30.0, 0.5, 3e-4, 0.998)
    runs = of_law(true, schedules("constant", "cosine"), 1e-4)
    result = score(Annealing, runs)
    assert len(result.rows) == 1  # without the cosine run only constant rates are left
    assert any("not predicted" in w and "constant rate" in w for w in result.warnings)


def test_what_cannot_be_left_out_is_refused():
    with pytest.raises(OnecurveError, match="all 2 runs are of one size"):
        score(FinalLoss, ladder()[:2])


def test_a_law_is_calibrated_on_its_own_runs():
    runs = ladder()
    law, notes = calibrated(FinalLoss.fit(runs), runs)
    assert law.band is not None and law.band.groups == 4
    assert any("rough" in note for note in notes)
    law, notes = calibrated(FinalLoss.fit(runs), runs[:2])
    assert law.band is None and "nothing can be left out" in notes[0]


def test_groups_have_names_that_people_use():
    run = schedules("cosine")[0]
    assert group_of(run, "schedule") == "cosine, to 0.1"
    assert group_of(run, "size") == "100000000"
    assert group_of(run, "run") == "planned"


def test_a_law_that_predicts_a_loss_below_zero_has_failed_there():
    class Broken(FinalLoss):
        def values(self, run, x):
            return super().values(run, x) - 9.0

    got, failed = left_out_residuals(Broken, ladder(), None, "size")
    assert not got
    assert len(failed) == 4 and all("losses of 0 and below" in f for f in failed)


def test_the_band_of_normalised_curves_ends_where_they_do():
    true = TokensPerParameter(NOTHING, 0.35, 20.0)
    runs = of_law(true, [constant(n, v * n) for n in SIZES[:4] for v in (5.0, 20.0, 80.0)], 3e-3)
    law, _ = calibrated(TokensPerParameter.fit(runs), runs)
    assert law.band is not None
    assert float(law.band.at(np.array([1.0]))[0]) < 1e-10 < float(law.band.at(np.array([0.5]))[0])
    asked = constant(8e6, 20 * 8e6)
    (low,), (high,) = law.interval(asked, [asked.end])
    assert low == pytest.approx(1.0) == high
    inside = [errors(law, run, None).inside for run in runs]
    assert 0.85 < np.mean(inside) <= 1.0
    assert "at half of training" in str(law)


def test_why_a_group_is_missing_from_a_band_is_said():
    runs = ladder()
    broken = [
        Run(r.config, {"val_loss": Curve(r.curve().x, r.curve().loss * np.nan, "held-out")}, r.x_name)
        if r.config.n_params == SIZES[2]
        else r
        for r in runs
    ]
    got, failed = left_out_residuals(FinalLoss, broken, None, "size")
    assert {r.run.config.n_params for r in got} <= {SIZES[2]}
    assert len(failed) >= 3 and all("the band lacks size" in f for f in failed)


def test_a_group_that_is_predicted_by_half_does_not_count():
    half = [r for r in ladder() if r.config.n_params == SIZES[-1]][1]

    class Picky(FinalLoss):
        def values(self, run, x):
            return super().values(run, x) * (0.0 if run is half else 1.0)

    runs = [half if r.config.name == half.config.name else r for r in ladder()]
    got, failed = left_out_residuals(Picky, runs, None, "size")
    assert SIZES[-1] not in {r.run.config.n_params for r in got} and len(failed) == 1


def test_without_a_band_nothing_is_said_of_whole_curves():
    law = FinalLoss.fit(ladder())
    assert errors(law, ladder()[0], None).whole is None
