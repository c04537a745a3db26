import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest

from onecurve import Ladder, OnecurveError, Run, collapse
from onecurve.report import draw, save_figure
from onecurve.report.figures import log_ticks


def labels(figure):
    return [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes]


def words(figure):
    return "\n".join(text.get_text() for ax in figure.axes for text in ax.texts)


def test_four_panels_with_units_on_all_axes(measured):
    figure = draw(measured(floor="fit"))
    assert labels(figure) == [
        ("tokens", "held-out loss"),
        ("", "normalised loss ℓ(x)"),
        ("training fraction x", "from\nmean (%)"),
        ("training fraction x", "relative standard deviation"),
        ("training compute 6ND (FLOPs)", "final held-out loss − fitted floor"),
    ]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["1M", "2.34M", "5.48M", "12.8M", "30M"]
    assert "exponent" in words(figure)


def test_the_crossing_is_marked_with_its_value_and_interval(measured):
    c = measured(floor=2.0, drift=0.5)
    crossing = c.crossings[0]
    assert crossing.corrected is not None
    assert crossing.interval is not None
    text = words(draw(c))
    assert f"from x = {crossing.corrected:.2f}" in text
    assert f"{crossing.interval[0]:.2f} to {crossing.interval[1]:.2f}" in text


def test_one_seed_a_size_is_said(measured):
    figure = draw(measured(seeds=1))
    assert "one seed a size: no noise floor" in words(figure)
    assert figure.axes[3].get_ylabel() == "spread / curve height"


def test_without_a_fit_final_losses_stand_against_size(measured):
    assert labels(draw(measured(floor=1.9)))[-1] == ("size N (parameters)", "final held-out loss")


def test_several_collapses_share_their_axes(measured):
    figure = draw(measured(name="with muP"), measured(name="without", drift=1.0))
    left, right = figure.axes[:5], figure.axes[5:]
    assert [ax.get_ylim() for ax in left] == [ax.get_ylim() for ax in right]
    assert [ax.get_xlim() for ax in left] == [ax.get_xlim() for ax in right]
    assert (left[0].get_title(), right[0].get_title()) == ("with muP", "without")


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_the_same_input_gives_the_same_bytes(measured, tmp_path, suffix, start):
    c = measured(sizes=2)
    for name in ("a", "b"):
        save_figure(tmp_path / f"{name}{suffix}", c)
    one, other = (tmp_path / f"a{suffix}").read_bytes(), (tmp_path / f"b{suffix}").read_bytes()
    assert one.startswith(start)
    assert one == other


def test_another_suffix_is_refused_with_the_accepted_ones(measured, tmp_path):
    with pytest.raises(OnecurveError, match=r"\.png, \.svg, \.pdf; got suffix '\.jpg'"):
        save_figure(tmp_path / "a.jpg", measured(points=20))


def test_the_users_settings_neither_show_nor_change(measured, tmp_path):
    c = measured(sizes=2)
    save_figure(tmp_path / "a.svg", c)
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        save_figure(tmp_path / "b.svg", c)
        assert mpl.rcParams["font.size"] == 20
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_names_are_never_read_as_formulas(measured, tmp_path):
    c = measured(name=r"$\frac{1$ & <b>", run_name="$x_", loss_name="$y^", x_name="tokens $_", points=30)
    save_figure(tmp_path / "a.svg", c, c)


def test_losses_that_are_not_finite_and_unfinished_runs_are_drawn(measured):
    figure = draw(measured(broken=True, unfinished=True))
    assert "dotted: unfinished runs" in words(figure)
    assert any(np.isnan(line.get_ydata()).any() for line in figure.axes[0].lines)


def test_many_runs_are_thinned(measured):
    assert len(draw(measured(seeds=100, points=50)).axes[0].lines) == 120 + 5


def test_a_perfect_family_can_be_drawn(tmp_path):
    x = np.arange(1.0, 101.0)
    runs = [
        Run.of(f"{n}-{s}", n_params=n, x=x, loss=n * (3 - x / 100) + 1e-9 * s, horizon=100.0, seed=s)
        for n in (1.0, 2.0, 3.0)
        for s in (0, 1)
    ]
    save_figure(tmp_path / "a.png", collapse(Ladder(runs), floor="zero"))


@pytest.mark.parametrize("range_", [(0.02, 5e9), (3.1, 5.6), (1.0, 1.01), (0.9, 12.0), (1e14, 2e17)])
def test_a_log_axis_has_a_few_round_ticks(range_):
    ticks = log_ticks(*range_)
    assert 2 <= len(ticks) <= 8
    assert all(range_[0] <= t <= range_[1] for t in ticks)


def test_importing_the_report_imports_no_plotting_library():
    code = (
        "import sys, onecurve.report; print([m for m in ('matplotlib', 'plotly', 'tsdownsample') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
