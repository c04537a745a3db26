from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecurve.errors import OnecurveError
from onecurve.ladder import Ladder
from onecurve.measure.collapse import collapse
from onecurve.measure.result import WINDOWS, Collapse, Window
from onecurve.measure.uncertainty import size_test
from onecurve.run import Curve, Run, RunConfig
from onecurve.store import dumps

MEASURES = ("deviation", "noise_floor", "noise_floor_normalized", "between_sizes", "ratio", "corrected_deviation")


def measured(runs: list[Run], **options) -> Collapse:
    return collapse(Ladder(runs), **options)


def with_losses(runs: list[Run], change) -> list[Run]:
    return [Run(r.config, {k: Curve(c.x, change(c.loss), c.kind) for k, c in r.curves.items()}, r.x_name) for r in runs]


@settings(max_examples=10)
@given(st.floats(1e-4, 1e4), st.integers(0, 99))
def test_the_unit_of_the_loss_does_not_matter(make_runs, unit, seed):
    runs = make_runs(seeds=2, points=30, floor=1.5, rng=seed)
    plain = measured(runs, floor=1.5)
    scaled = measured(with_losses(runs, lambda v: unit * v), floor=unit * 1.5)
    for name in MEASURES:
        np.testing.assert_allclose(getattr(scaled, name), getattr(plain, name), rtol=1e-6, atol=1e-12)


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_runs_does_not_matter(make_runs, random):
    runs = make_runs(sizes=(1e6, 2e6, 3e6), seeds=[2, 1, 3], points=30)
    shuffled = random.sample(runs, len(runs))
    assert dumps(measured(shuffled).to_dict()) == dumps(measured(runs).to_dict())


@settings(max_examples=10)
@given(st.integers(0, 1000), st.floats(0.0, 2.0))
def test_all_curves_are_one_at_the_end(make_runs, seed, floor):
    c = measured(make_runs(seeds=2, points=40, floor=floor, rng=seed), floor=floor)
    assert c.fraction[-1] == 1.0
    assert (c.normalised[:, -1] == 1.0).all()
    for values in (c.deviation, c.noise_floor_normalized, c.between_sizes):
        assert values[-1] == pytest.approx(0.0, abs=1e-15)
    assert c.noise_floor[-1] > 0.001


def test_every_run_is_divided_by_its_own_end():
    runs = [
        Run.of("a", n_params=1.0, x=[1, 2], loss=[5.0, 3.0], seed=0),
        Run.of("b", n_params=1.0, x=[1, 2], loss=[9.0, 5.0], seed=1),
        Run.of("c", n_params=2.0, x=[1, 2], loss=[4.0, 2.0], seed=0),
    ]
    c = measured(runs, floor=1.0, window=0.0, grid=np.array([0.5, 1.0]))
    assert c.normalised.tolist() == [[2.0, 1.0], [2.0, 1.0], [3.0, 1.0]]
    assert c.mean_curve.tolist() == [2.5, 1.0]
    assert c.deviation[0] == pytest.approx(0.5 / 2.5)
    assert c.relative_spread[0] == pytest.approx(0.5 / 1.5)
    # Reducible losses of the first size: 4 and 8 at half way, 2 and 4 at the end.
    assert c.noise_floor == pytest.approx([1 / 3, 1 / 3])


def test_a_perfect_family_has_no_deviation_at_any_size_or_floor(make_runs):
    c = measured(make_runs(end_noise=0.01, noise=0.0, floor=1.7), floor=1.7)
    assert c.deviation.max() < 1e-13
    assert c.noise_floor.min() > 0.001


def test_sigma_keeps_the_noise_that_division_removes(make_runs):
    c = measured(make_runs(end_noise=0.02, noise=0.001), floor="zero")
    late = c.fraction > 0.5
    assert (c.noise_floor[late] > 5 * c.noise_floor_normalized[late]).all()
    assert (c.deviation >= c.noise_floor_normalized * (1 - 1e-12)).all()


def test_the_bent_size_leaves_first_and_upward(make_runs):
    up = measured(make_runs(bend=lambda i, x: 0.3 * np.sin(np.pi * x) * (i == 4)), floor="zero")
    assert up.leaves_first is not None
    assert (up.leaves_first.size, up.leaves_first.direction) == (256e6, "above")
    assert not up.practical
    assert all(w.finding == "sizes differ" for w in up.windows)


@pytest.mark.parametrize("bent", [0, 2, 4])
def test_the_bent_size_leaves_first_and_downward(make_runs, bent):
    down = measured(make_runs(bend=lambda i, x: -0.2 * np.sin(np.pi * x) * (i == bent)), floor="zero")
    assert down.leaves_first is not None
    assert (down.leaves_first.size, down.leaves_first.direction) == ((1e6, 4e6, 16e6, 64e6, 256e6)[bent], "below")


def test_of_two_bent_sizes_the_one_that_parts_later_in_training_is_named(make_runs):
    def bend(i, x):
        return 0.3 * (i == 1) * np.clip(0.4 - x, 0, None) + 0.3 * (i == 3) * np.clip(0.8 - x, 0, None)

    c = measured(make_runs(bend=bend), floor="zero")
    assert c.leaves_first is not None
    assert c.leaves_first.size == 64e6
    assert c.departures[1].fraction is None or c.departures[1].fraction < c.leaves_first.fraction


def test_a_lone_spike_is_no_departure(make_runs):
    c = measured(make_runs(points=200, bend=lambda i, x: 1.0 * (i == 2) * (abs(x - 0.5) < 0.003)), floor="zero")
    assert np.abs(c.departures[2].offset).max() > c.tolerance
    assert c.leaves_first is None


def test_nothing_is_judged_within_the_warmup(make_runs):
    config = {"schedule": {"shape": "linear", "warmup": 0.3}}
    runs = make_runs(config=lambda i: {"schedule": RunConfig(name="", n_params=1, **config).schedule})
    c = measured(runs, floor="zero")
    assert [(w.low, w.high) for w in c.windows] == [(0.3, 0.5), (0.5, 0.9), (0.9, 0.98)]


def test_perfect_families_are_called_different_in_one_case_of_twenty(make_runs):
    wrong = 0
    for i in range(300):
        s = Ladder(make_runs(points=50, rng=i)).sample()
        curves = s.loss / s.loss[:, -1:]
        inside = [(s.fraction >= low - 1e-9) & (s.fraction <= high + 1e-9) for low, high in WINDOWS]
        found = [Window(0, 1, 1, 1, (0, 1), size_test(curves[:, w], s.counts)).finding for w in inside]
        wrong += "sizes differ" in found
    assert 0.01 < wrong / 300 < 0.07  # with .05 for each window it is .12


def test_a_single_size_cannot_collapse(make_runs):
    with pytest.raises(OnecurveError, match=r"all 3 finished runs have size 1M.*at least two"):
        measured(make_runs(sizes=(1e6,)))


def test_two_sizes_are_measured_with_a_remark(make_runs):
    c = measured(make_runs(sizes=(1e6, 4e6)))
    assert c.leaves_first is None
    assert any("two sizes" in w for w in c.warnings)
    assert c.floor.how == "zero"
    assert "2 sizes" in c.floor.note


def test_one_seed_everywhere_leaves_the_noise_unknown(make_runs):
    c = measured(make_runs(seeds=1))
    assert np.isnan(c.noise_floor).all()
    assert np.isnan(c.ratio).all()
    assert np.isnan(c.noise_interval).all()
    assert np.isfinite(c.deviation).all()
    assert {w.finding for w in c.windows} == {"too few seeds"}
    assert all(k.fraction is None and k.corrected is None for k in c.crossings)
    assert any("one seed a size" in w for w in c.warnings)


def test_sizes_with_one_seed_are_named(make_runs):
    c = measured(make_runs(seeds=[1, 3, 3, 3, 1]))
    assert any("one seed only at size 1M, 256M" in w for w in c.warnings)
    assert np.isnan(c.noise_floor_by_size[[0, 4]]).all()
    assert np.isfinite(c.noise_floor_by_size[1:4]).all()
    assert np.isfinite(c.noise_floor).all()


def test_a_floor_above_a_loss_names_run_loss_and_place(make_runs):
    with pytest.raises(OnecurveError, match=r"run '2\.56e\+08-\d': loss .* at x = 1 is not above the floor 2\.1"):
        measured(make_runs(), floor=2.1)


@pytest.mark.parametrize("floor", [np.nan, np.inf, -np.inf, "nonsense"])
def test_a_floor_that_is_no_loss_is_refused(make_runs, floor):
    with pytest.raises(OnecurveError, match="accepted are auto, fit, zero"):
        measured(make_runs(), floor=floor)


def test_any_real_number_is_a_floor(make_runs):
    runs = make_runs(floor=1.0)
    assert measured(runs, floor=np.float32(1.0)).floor.value == measured(runs, floor=1).floor.value == 1.0


@pytest.mark.parametrize("tolerance", [0.0, -0.1, np.nan])
def test_a_tolerance_is_above_zero(make_runs, tolerance):
    with pytest.raises(OnecurveError, match="--tolerance"):
        measured(make_runs(), tolerance=tolerance)


@pytest.mark.parametrize("grid", [[0.5], [0.0, 1.0], [0.5, 0.4, 1.0], [0.5, 2.0], [np.nan, 1.0], [[0.5, 1.0]], []])
def test_a_grid_rises_and_ends_at_one(make_runs, grid):
    with pytest.raises(OnecurveError, match="grid"):
        measured(make_runs(), grid=np.array(grid))


def test_the_default_floor_is_the_fit_where_the_ladder_pins_it(make_runs):
    sizes = (1e6, 2e6, 4e6, 8e6, 16e6, 32e6)
    c = measured(make_runs(sizes=sizes, floor=1.5, end_noise=1e-4, noise=1e-4))
    assert c.floor.how == "fit"
    assert c.floor.value == pytest.approx(1.5, abs=0.02)
    assert [s.choice for s in c.sensitivity][:2] == ["as reported", "floor 0"]


def test_a_weak_ladder_falls_back_to_zero_and_says_so(make_runs):
    runs = make_runs(floor=1.5, end_noise=0.3, noise=1e-4)
    c = measured(runs)
    assert (c.floor.how, c.floor.value) == ("zero", 0.0)
    assert "does not pin" in c.floor.note
    with pytest.raises(OnecurveError, match="not above the floor 3"):
        measured(runs, floor="fit")
    mild = measured(make_runs(floor=1.5, end_noise=0.05, noise=1e-4), floor="fit").floor
    assert (mild.how, "does not pin" in mild.note) == ("fit", True)


def test_a_fit_above_a_single_loss_falls_back_to_zero(make_runs):
    runs = make_runs(sizes=(1e6, 2e6, 4e6, 8e6, 16e6, 32e6), floor=1.5, end_noise=1e-4, noise=1e-4)
    low = next(iter(runs[-1].curves.values()))
    loss = low.loss.copy()
    loss[50] = 0.5  # one evaluation far below everything
    runs[-1] = Run(runs[-1].config, {"val_loss": Curve(low.x, loss, "held-out")})
    c = measured(runs)
    assert c.floor.value == 0.0
    assert "above a loss of the ladder" in c.floor.note
    with pytest.raises(OnecurveError, match="not above the floor"):
        measured(runs, floor="fit")


def test_losses_at_or_below_zero_are_fitted_no_floor(make_runs):
    runs = with_losses(make_runs(), lambda v: v - 20.0)
    c = measured(runs, floor=-25.0)
    assert c.floor.value == -25.0
    with pytest.raises(OnecurveError, match="cannot be fitted: a loss is"):
        measured(runs, floor="fit")


def test_sizes_of_one_compute_are_fitted_no_floor(make_runs):
    c = measured(make_runs(config=lambda i: {"compute": 1e18}))
    assert "same compute" in c.floor.note


def test_steps_without_a_batch_give_no_compute(make_runs):
    runs = [Run(r.config, r.curves, "step") for r in make_runs()]
    assert "--compute" in measured(runs).floor.note
    with pytest.raises(OnecurveError, match="--compute"):
        measured(runs, floor="fit")


def test_steps_with_a_batch_give_the_compute_of_tokens(make_runs):
    def in_steps(run):
        config = run.config.model_copy(update={"batch_tokens": 1e4, "horizon": run.config.horizon / 1e4})
        return Run(config, {k: Curve(c.x / 1e4, c.loss, c.kind) for k, c in run.curves.items()}, "step")

    runs = make_runs(floor=1.5, end_noise=1e-3)
    fit, again = (measured(r, floor="fit").floor.fit for r in (runs, [in_steps(r) for r in runs]))
    assert fit is not None
    assert again is not None
    np.testing.assert_allclose(again.compute, fit.compute, rtol=1e-12)
    assert fit.compute.tolist() == [6 * n * 20 * n for n in (1e6, 4e6, 16e6, 64e6, 256e6)]


def test_the_window_of_a_training_loss_is_varied(make_runs):
    c = measured(make_runs(kind="training"), floor="zero")
    assert [s.choice for s in c.sensitivity] == [
        "as reported",
        "half the smoothing window",
        "double the smoothing window",
    ]


def test_a_floor_between_the_smoothed_and_the_raw_losses_still_gives_a_result(make_runs):
    runs = make_runs(kind="training", points=400, end_noise=0.0, noise=0.0)
    jagged = with_losses(runs, lambda v: v * (1 + 0.3 * (-1.0) ** np.arange(v.size)))
    lowest = Ladder(jagged).sample(window=0.04).loss.min()
    c = measured(jagged, floor=0.97 * lowest, window=0.04)
    assert np.isfinite(c.deviation).all()


def test_curves_that_begin_late_are_remarked(make_runs):
    late = [Run(r.config, {k: Curve(v.x[40:], v.loss[40:], v.kind) for k, v in r.curves.items()}) for r in make_runs()]
    c = measured(late)
    assert any("curves begin at x = 0.41" in w for w in c.warnings)
    assert c.windows[0].low == pytest.approx(0.41)


def test_two_points_a_run_are_enough():
    runs = [Run.of(f"{n}", n_params=n, x=[1, 2], loss=[2.0 + n / 10, 1.0]) for n in (1.0, 2.0, 3.0, 4.0, 5.0)]
    c = measured(runs, window=0.0)
    assert c.fraction[0] == 0.5
    assert c.normalised[0, 0] == pytest.approx(2.1)


def test_identical_seeds_have_no_noise_and_never_fall_below_it(make_runs):
    runs = make_runs(end_noise=0.0, noise=0.0, bend=lambda i, x: 0.05 * i * np.sin(np.pi * x))
    c = measured(runs)
    assert c.noise_floor.max() == pytest.approx(0.0, abs=1e-12)
    assert c.crossings[0].corrected is None
    assert len([w for w in c.warnings if "same losses" in w]) == 10


def test_rising_curves_are_measured_without_a_warning(make_runs):
    c = measured(with_losses(make_runs(), lambda v: 1.0 / v), floor="zero")
    assert not c.practical
    assert np.isnan(c.relative_spread).all()


def test_the_dictionary_is_json_and_holds_what_was_promised(make_runs):
    c = measured(make_runs())
    got = json.loads(dumps(c.to_dict()))
    keys = (
        "fraction deviation relative_spread noise_floor noise_floor_by_size noise_floor_normalized between_sizes "
        "mean_curve ratio windows crossings floor dropped warnings"
    )
    assert set(keys.split()) <= set(got)
    assert np.array_equal(got["deviation"], c.deviation)
    assert list(got["noise_floor_by_size"]) == ["1000000", "4000000", "16000000", "64000000", "256000000"]
    assert [(w["from"], w["to"]) for w in got["windows"]] == [(0.1, 0.5), (0.5, 0.9), (0.9, 0.98)]
    assert len(got["runs"]) == 15


def test_runs_of_one_name_keep_a_key_each(make_runs):
    runs = [Run(r.config.model_copy(update={"name": "run"}), r.curves, r.x_name, source=r.source) for r in make_runs()]
    assert len(measured(runs).to_dict()["runs"]) == 15


def test_the_same_input_gives_the_same_bytes(make_runs):
    first, again = (dumps(measured(make_runs()).to_dict()) for _ in range(2))
    assert first == again
    other = measured(make_runs(), seed=1)
    assert not np.array_equal(other.ratio_interval, measured(make_runs()).ratio_interval)
    assert np.array_equal(other.ratio, measured(make_runs()).ratio)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 3), min_size=2, max_size=7),
    st.sampled_from([0.0, 1e-3, 0.1, 0.5]),
    st.sampled_from([0.0, 1e-3, 0.3]),
    st.sampled_from(["held-out", "training"]),
)
def test_any_family_of_positive_losses_gives_a_result(make_runs, seed, counts, end_noise, noise, kind):
    sizes = [1e6 * 3**i for i in range(len(counts))]
    runs = make_runs(sizes, counts, 25, floor=1.0, end_noise=end_noise, noise=noise, kind=kind, rng=seed)
    c = measured(runs)
    assert str(c)
    json.loads(dumps(c.to_dict()))
    assert 0.0 <= c.floor.value < c.loss.min()


def test_a_window_of_one_width_in_tokens_tells_what_it_does_to_a_perfect_family():
    x = np.arange(1, 1001) / 1000

    def family(windows):
        runs = [
            Run.of(f"{d}", n_params=n, x=x * d, loss=1 + 0.2 * x**-0.5, horizon=d, kind="training", seed=0)
            for n, d in ((1e6, 2e7), (4e6, 8e7), (16e6, 32e7))
        ]
        return collapse(Ladder(runs), floor="zero", window=windows)

    assert family(0.02).at(family(0.02).relative_spread, 0.25) < 1e-9
    c = family(2e6)
    (words,) = [w for w in c.warnings if "by itself it spreads" in w]
    told = float(words.split("perfectly by about ")[1].split()[0])
    assert told == pytest.approx(c.at(c.relative_spread, 0.25), rel=0.25) and told > 0.05
    assert "0.0063 to 0.1 of the runs" in words
    assert [s.choice for s in c.sensitivity][-2:] == ["half the smoothing window", "double the smoothing window"]
