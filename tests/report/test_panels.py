import numpy as np
import pytest

from onecurve import OnecurveError
from onecurve.report import panels
from onecurve.report.colours import ROLES, contrast, size_colours
from onecurve.report.panels import MOST_POINTS, MOST_RUNS, evenly, optional, own_noise, reduced, view


def test_a_reduced_curve_keeps_its_ends_and_extremes():
    x = np.arange(1.0, 1e6 + 1)
    y = np.exp(-x / 1e5) + 1.0
    y[123_456], y[654_321] = 9.0, -9.0
    a, b = reduced(x, y, MOST_POINTS)
    assert a.size <= MOST_POINTS + 2
    assert np.all(np.diff(a) > 0)
    assert (a[0], a[-1], b.max(), b.min()) == (1.0, 1e6, 9.0, -9.0)


def test_a_reduced_curve_has_a_gap_where_losses_are_not_finite():
    x = np.arange(1.0, 11.0)
    y = np.where((x > 3) & (x < 6), np.nan, x)
    a, b = reduced(x, y, 100)
    np.testing.assert_array_equal(a, [1, 2, 3, 5, 6, 7, 8, 9, 10])
    assert np.isnan(b).tolist() == [False, False, False, True, False, False, False, False, False]


def test_points_that_a_log_axis_cannot_show_are_left_out():
    a, _ = reduced(np.array([0.0, 1.0, 2.0]), np.array([3.0, 2.0, 1.0]), 10)
    np.testing.assert_array_equal(a, [1.0, 2.0])


def test_sizes_are_the_same_in_all_collapses_and_axes_are_shared(measured):
    shown = view([measured(sizes=4), measured(sizes=5, drift=1.0)])
    assert len(shown.sizes) == 7
    assert shown.residual.high >= max(abs(p.residual[:, -1]).max() for p in shown.panels)
    assert [p.name for p in shown.panels] == ["family 1", "family 2"]


def test_runs_are_thinned_evenly_beyond_the_most_that_are_drawn(measured):
    shown = view([measured(seeds=100, points=50)])
    panel = shown.panels[0]
    runs = [line for line in panel.raw if line.kind == "run"]
    means = [line for line in panel.raw if line.kind == "mean"]
    assert panel.thinned
    assert len(runs) == MOST_RUNS
    assert {line.size for line in means} == set(shown.sizes)
    assert len(panel.ends.x_runs) == 500
    assert evenly(5, 1) == [0]


def test_the_noise_of_normalised_curves_matches_the_measurement(measured):
    c = measured(seeds=3)
    np.testing.assert_allclose(own_noise(c)[:-1], c.noise_floor_normalized[:-1] * np.sqrt(3 / 2), rtol=1e-12)


def test_without_repeated_seeds_the_spread_stands_in_for_the_deviation(measured):
    assert not view([measured(seeds=1)]).repeated
    assert not view([measured(), measured(seeds=1)]).repeated
    assert view([measured()]).repeated


def test_a_library_that_is_missing_is_named_with_the_remedy():
    with pytest.raises(OnecurveError, match=r"no_such_library.*pip install 'onecurve\[report\]'"):
        optional("no_such_library.part")


def test_nothing_to_draw_is_said():
    with pytest.raises(OnecurveError, match="at least one collapse"):
        view([])


def test_identical_seeds_leave_axes_that_can_be_drawn(measured):
    c = measured(seeds=1, sizes=2)
    shown = view([c])
    for axis in (shown.raw_x, shown.raw_y, shown.spread, shown.end_x, shown.end_y, shown.normalised):
        assert np.isfinite([axis.low, axis.high]).all()
        assert axis.low < axis.high


def test_an_axis_is_linear_where_a_value_is_not_positive():
    assert panels._axis("", [np.array([1.0, np.nan, 3.0])]).log
    assert not panels._axis("", [np.array([-1.0, np.nan, 3.0])]).log


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_stand_out_from_what_lies_behind_them(theme):
    paper = ROLES[theme]["paper"]
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast(ROLES[theme]["ink"], paper) >= 12
    assert contrast(ROLES[theme]["muted"], paper) >= 4.5
    assert all(contrast(ROLES[theme][role], paper) >= 3 for role in ("deviation", "noise", "spread"))
    assert all(contrast(colour, paper) >= 2.3 for colour in size_colours(9, theme))
    assert len(set(size_colours(30, theme))) == 30


def test_the_drawn_budget_bounds_all_raw_points(measured, monkeypatch):
    monkeypatch.setattr(panels, "BUDGET", 600)
    monkeypatch.setattr(panels, "FEWEST_POINTS", 10)
    shown = view([measured(points=400)])
    assert sum(line.x.size for line in shown.panels[0].raw) <= 600 + 2 * 15
