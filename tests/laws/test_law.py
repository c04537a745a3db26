"""What all laws promise: the contract, how a fit reports on itself, and how a law is kept."""

from __future__ import annotations

import numpy as np
import pytest

from onecurve import OnecurveError, Run, Schedule
from onecurve.fit import minimise
from onecurve.laws.annealing import Annealing
from onecurve.laws.averaging import MovingAverage
from onecurve.laws.decayed import DecayedPower
from onecurve.laws.estimate import HUBER, Points, blocks, solve, usable
from onecurve.laws.final import FinalLoss
from onecurve.laws.law import planned
from onecurve.laws.multipower import MultiPower
from onecurve.laws.powers import SumOfPowers
from onecurve.laws.quadratic import NoisyQuadratic, OwnNoise
from onecurve.laws.registry import LAWS, STUDIES, load, named
from onecurve.laws.shape import TokensPerParameter
from onecurve.laws.surrogate import Surrogate
from onecurve.run import Curve
from onecurve.store import dumps

from .conftest import NOTHING, SIZES, at_timescale, constant, ladder, noisy, of_law, schedules

LINEAR = Schedule(shape="linear", warmup=0.02)


def example(law) -> tuple[list[Run], Run]:
    """Runs that a law can be fitted to, and one it can be asked about."""
    match law.name:
        case "final":
            return ladder(), planned(32e6, 20 * 32e6, Schedule(shape="linear"))
        case "powers":
            true = SumOfPowers(NOTHING, 30.0, 0.3, 60.0, 0.35, 1.0)
            return of_law(true, [constant(n, 50 * n) for n in SIZES], 1e-3), constant(32e6, 32e8)
        case "noisy-quadratic" | "noisy-quadratic-own":
            runs = [noisy(1e6, s, noise=1e-4) for s in (Schedule(shape="constant", warmup=0.02), LINEAR)]
            return [*runs, noisy(1e6, Schedule(shape="cosine", warmup=0.02), noise=1e-4)], runs[1]
        case "decayed-power":
            true = DecayedPower(NOTHING, 3.0, 20.0, 0.45, 0.5, 0.1, 0.5, 0.3, 4.0, 100.0)
            return of_law(true, schedules("constant", "cosine", "linear"), 1e-4), schedules("quadratic")[0]
        case "multi-power":
            true = MultiPower(NOTHING, 3.0, 30.0, 0.5, 0.3, 0.05, 0.4, 0.6)
            return of_law(true, schedules("constant", "cosine", "linear"), 1e-4), schedules("quadratic")[0]
        case "annealing":
            true = Annealing(NOTHING, 3.0, 30.0, 0.5, 3e-4, 0.998)
            return of_law(true, schedules("constant", "cosine", "linear"), 1e-4), schedules("quadratic")[0]
        case "surrogate":
            true = Surrogate(NOTHING, 0.05, 0.08, -0.4, 3.0, -0.25, 0.0, 0.0)
            runs = [at_timescale(t, tokens_per_param=r) for t in (0.05, 0.2) for r in (20.0, 80.0)]
            return of_law(true, runs), at_timescale(0.1, tokens_per_param=40.0)
        case "moving-average":
            true = MovingAverage(NOTHING, 20.0, 2.0)
            return of_law(true, [at_timescale(t) for t in (0.05, 0.1, 0.2)]), at_timescale(0.3)
        case "tokens-per-param":
            true = TokensPerParameter(NOTHING, 0.35, 20.0)
            return of_law(true, [constant(1e6, v * 1e6) for v in (5.0, 20.0, 80.0)], 1e-3), constant(1e6, 4e7)
        case "small-runs":
            true = Surrogate(NOTHING, 0.05, 0.08, -0.4, 3.0, -0.25, 0.0, 0.0)
            return of_law(true, [at_timescale(t) for t in (0.05, 0.1, 0.2)]), at_timescale(0.15)
        case _:
            raise AssertionError(law.name)


every_law = pytest.mark.parametrize("law", list(LAWS.values()), ids=list(LAWS))


@every_law
def test_a_law_predicts_a_curve_of_the_shape_asked_for(law):
    runs, asked = example(law)
    fitted = law.fit(runs)
    x = np.linspace(0.3, 1.0, 7) * asked.end
    value = fitted.predict(asked, x)
    assert value.shape == (7,) and np.all(np.isfinite(value)) and np.all(value > 0)
    assert np.all(np.isnan(fitted.interval(asked, x)))
    assert fitted.predict(asked, [0.5 * asked.end]) == pytest.approx(np.interp(0.5, x / asked.end, value), rel=0.02)


@every_law
def test_a_law_comes_back_from_its_json_to_the_bit(law, tmp_path):
    runs, asked = example(law)
    fitted = law.fit(runs)
    file = tmp_path / "law.json"
    file.write_text(dumps(fitted.to_dict()))
    again = load(file)
    assert type(again) is law
    x = np.linspace(0.3, 1.0, 7) * asked.end
    assert again.predict(asked, x).tobytes() == fitted.predict(asked, x).tobytes()
    assert dumps(again.to_dict()) == file.read_text()
    assert str(again) == str(fitted)


@every_law
def test_a_fit_says_what_it_used(law):
    runs, _ = example(law)
    fitted = law.fit(runs)
    assert fitted.report.points > 0
    assert 0 < fitted.report.runs <= len(runs)
    assert "fitted to" in str(fitted) and law.name in str(fitted).split(":")[0]


@every_law
def test_the_same_runs_give_the_same_bytes(law):
    runs, _ = example(law)
    assert dumps(law.fit(runs).to_dict()) == dumps(law.fit(runs).to_dict())


@every_law
def test_no_runs_are_refused(law):
    with pytest.raises(OnecurveError):
        law.fit([])


@every_law
def test_a_law_says_what_it_is_good_for(law):
    assert law.about and law.needs and law.reach and law.over in ("size", "schedule")


def on_axis(run: Run, x_name: str) -> Run:
    return Run(run.config, run.curves, x_name, run.signals)


@every_law
def test_a_law_of_one_axis_is_not_asked_about_another(law):
    runs, asked = example(law)
    fitted = law.fit(runs)
    with pytest.raises(OnecurveError, match=f"x is in samples, and {law.name} was fitted to x in {asked.unit}"):
        fitted.predict(on_axis(asked, "seen_samples"), asked.end)
    with pytest.raises(OnecurveError, match="needs one unit for all"):
        law.fit([on_axis(runs[0], "samples"), *runs[1:]])


@every_law
def test_a_law_of_one_size_is_not_asked_about_another(law):
    runs, asked = example(law)
    fitted = law.fit(runs)
    other = Run(
        asked.config.model_copy(update={"n_params": 10 * runs[0].config.n_params}), {}, asked.x_name, asked.signals
    )
    if law.one_size:
        with pytest.raises(OnecurveError, match="does not carry over"):
            fitted.predict(other, asked.end)
        near = Run(asked.config.model_copy(update={"n_params": 1.009 * runs[0].config.n_params}), {}, asked.x_name)
        assert float(fitted.predict(near, asked.end)) == float(fitted.predict(asked, asked.end))
    assert not fitted.remarks(asked)


@every_law
def test_runs_far_from_the_fit_are_remarked_on(law):
    runs, _ = example(law)
    fitted = law.fit(runs)
    far = planned(100 * max(fitted.scope.sizes), 100 * fitted.scope.lengths[1], x_name=fitted.scope.unit)
    (first, *_) = fitted.remarks(far)
    assert "100 times the largest size" in first
    if law.over == "schedule":
        assert any("100 times the largest length" in r for r in fitted.remarks(far))


def test_one_schedule_has_one_curve():
    law = FinalLoss.fit(ladder())
    (remark,) = law.remarks(planned(32e6, 20 * 32e6, Schedule(shape="cosine", warmup=0.1)))
    assert "its schedule is cosine, and the curve is that of linear" in remark


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("curve", {}, "curve: .*must be a list of numbers"),
        ("curve", [[1.0]], "must be a list of numbers"),
        ("curve", ["a"], "must be a list of numbers"),
        ("curve", [1.0], "fraction and curve must be equally long"),
        ("ends", [], "log_compute and ends must be equally long"),
        ("floor", "much", "floor"),
        ("scope", {}, "scope"),
        ("band", {"fraction": [1.0], "half_width": [], "level": 0.9, "groups": 2, "left_out": "size"}, "equally long"),
    ],
)
def test_a_law_whose_numbers_were_changed_is_refused(tmp_path, part, value, words):
    file = tmp_path / "law.json"
    file.write_text(dumps(FinalLoss.fit(ladder()).to_dict() | {part: value}))
    with pytest.raises(OnecurveError, match=words):
        load(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not the JSON of a law"),
        ("[]", "does not say which law it holds"),
        ('{"law": "powres"}', "no law 'powres' .did you mean 'powers'"),
        ('{"law": "horizon"}', "predicts no curve"),
        ('{"law": "powers", "version": 99}', "version 99 of a saved law.*upgrade"),
        ('{"law": "powers", "version": 1}', "report: field required"),
        ('{"law": "powers", "version": "x"}', "version 'x'"),
    ],
)
def test_a_damaged_or_newer_law_is_refused_with_the_file(tmp_path, content, words):
    file = tmp_path / "law.json"
    file.write_text(content)
    with pytest.raises(OnecurveError, match=words) as refusal:
        load(file)
    assert str(refusal.value).startswith(str(file))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(OnecurveError, match=r"none\.json: cannot be read"):
        load(tmp_path / "none.json")


def test_studies_are_no_curves():
    for name in STUDIES:
        with pytest.raises(OnecurveError, match="use it with onecurve fit"):
            named(name)


def line(points: Points):
    def model(p):
        slope, offset = p.T[:, :, None]
        ones = np.ones((p.shape[0], points.x.size))
        return offset + slope * points.x, np.stack([points.x * ones, ones], axis=-1)

    return model


def straight(runs: int, points: int, seed: int = 0, correlated: float = 0.0, huge: bool = False) -> Points:
    rng = np.random.default_rng(seed)
    x = np.tile(np.linspace(0.1, 1.0, points), runs)
    noise = rng.standard_normal((runs, points))
    for k in range(1, points):
        noise[:, k] += correlated * noise[:, k - 1]
    noise = noise + 2.0 * rng.standard_normal((runs, 1)) * (runs > 1)
    owner = np.repeat(np.arange(runs), points)
    loss = (2.0 + x) * np.exp((2e-2 if huge else 2e-4) * noise.ravel())
    return Points(tuple(planned(1e6, 1.0) for _ in range(runs)), x, loss, owner, {})


@pytest.mark.parametrize("huge", [False, True])
def test_intervals_by_one_step_are_those_of_whole_refits(huge):
    """Residuals far below the bend of Huber's loss, and far above it, where it is an absolute error."""
    points = straight(12, 40, huge=huge)
    model = line(points)
    start, low, high = np.array([[1.0, 2.0]]), np.array([-9.0, -9.0]), np.array([9.0, 9.0])
    got = solve(("slope", "offset"), model, points, start, low, high)
    assert got.report.resampled == "resampling runs"

    def residuals(p, rows):
        value, slope = model(p)
        return np.log(value / points.loss), slope / value[:, :, None]

    share = np.random.default_rng(1).dirichlet(np.ones(12), size=300) * 12
    refits = minimise(
        residuals, np.tile(got.values, (300, 1)), low, high, huber=HUBER, weights=share[:, points.run]
    ).parameters
    for k, name in enumerate(("slope", "offset")):
        one_step = np.diff(got.report.intervals[name])[0]
        assert one_step == pytest.approx(np.diff(np.quantile(refits[:, k], [0.05, 0.95]))[0], rel=0.25)


def test_intervals_over_runs_cover_the_truth():
    inside = 0
    for seed in range(200):
        points = straight(10, 20, seed)
        got = solve(("slope", "offset"), line(points), points, np.array([[1.0, 2.0]]), [-9.0] * 2, [9.0] * 2)
        low, high = got.report.intervals["offset"]
        inside += low <= 2.0 <= high
    assert 0.80 <= inside / 200 <= 0.95  # ten runs: a little narrow, as every bootstrap of ten is


def test_profiles_agree_with_the_bootstrap_where_the_valley_is_straight():
    points = straight(1, 2_000)
    fits = [
        solve(
            ("slope", "offset"), line(points), points, np.array([[1.0, 2.0]]), [-9.0] * 2, [9.0] * 2, intervals=how
        ).report.intervals
        for how in ("bootstrap", "profile")
    ]
    for name in ("slope", "offset"):
        assert np.diff(fits[1][name])[0] == pytest.approx(np.diff(fits[0][name])[0], rel=0.25)
        assert fits[1][name][0] == pytest.approx(fits[0][name][0], rel=1e-3)


def test_a_profile_ends_at_a_bound_that_it_reaches():
    points = straight(1, 50, huge=True)
    got = solve(
        ("slope", "offset"), line(points), points, np.array([[1.0, 2.0]]), [-9.0, -9.0], [1.0, 9.0],
        intervals="profile", allowed_at=("slope",),
    )  # fmt: skip
    assert got.report.intervals["slope"][1] == 1.0
    assert got.report.resampled == "profiles"


def test_other_units_carry_the_intervals_along():
    points = straight(8, 30)
    for how in ("bootstrap", "profile"):
        got = solve(
            ("slope", "offset"), line(points), points, np.array([[1.0, 2.0]]), [-9.0] * 2, [9.0] * 2, intervals=how
        )
        mapped = got.mapped(np.exp)
        np.testing.assert_allclose(mapped.values, np.exp(got.values))
        np.testing.assert_allclose(mapped.report.intervals["slope"], np.exp(got.report.intervals["slope"]), rtol=1e-4)


def test_laws_without_profiles_refuse_them():
    for law in (FinalLoss, OwnNoise):
        with pytest.raises(OnecurveError, match="no profile intervals"):
            law.fit(example(law)[0], intervals="profile")


@pytest.mark.parametrize("law", [SumOfPowers, DecayedPower, Annealing], ids=lambda law: law.name)
def test_profiles_of_a_law_hold_its_constants(law):
    made = law.fit(example(law)[0], intervals="profile")
    for name, (low, high) in made.report.intervals.items():
        assert low <= getattr(made, name) <= high


def test_few_runs_are_resampled_in_blocks_as_long_as_their_correlation():
    white, red = straight(1, 400, correlated=0.0), straight(1, 400, correlated=0.9)
    short = blocks(np.log(white.loss / (2 + white.x)), white.run)
    long = blocks(np.log(red.loss / (2 + red.x)), red.run)
    assert short[1] < 10 < long[1]
    got = [solve(("slope", "offset"), line(p), p, np.array([[1.0, 2.0]]), [-9.0] * 2, [9.0] * 2) for p in (white, red)]
    widths = [np.diff(g.report.intervals["slope"])[0] for g in got]
    assert widths[1] > 3 * widths[0]
    assert "blocks of" in got[1].report.resampled


def test_blocks_never_span_two_runs():
    run = np.repeat([0, 1, 2], [50, 37, 20])
    unit, _ = blocks(np.random.default_rng(0).standard_normal(run.size).cumsum(), run)
    assert all(len(set(run[unit == u])) == 1 for u in np.unique(unit))
    assert np.array_equal(np.unique(unit), np.arange(unit.max() + 1))


def test_fewer_points_than_parameters_are_refused():
    points = straight(1, 2)
    with pytest.raises(OnecurveError, match=r"2 points cannot tell 2 parameters \(slope, offset\)"):
        solve(("slope", "offset"), line(points), points, np.array([[1.0, 2.0]]), [-9.0] * 2, [9.0] * 2)


def test_a_parameter_at_its_bound_is_never_silent():
    points = straight(6, 30)
    got = solve(("slope", "offset"), line(points), points, np.array([[1.0, 2.0]]), [2.0, -9.0], [9.0, 9.0])
    assert got.report.at_bound == ("slope",)
    assert any("slope lies at the edge of what is allowed (2)" in w for w in got.report.warnings)


def test_parameters_that_the_data_tie_together_are_said_to_be():
    points = straight(6, 30)

    def tied(p):
        value, slope = line(points)(p[:, :2])
        return value + p[:, 2:], np.concatenate([slope, np.ones_like(value)[:, :, None]], axis=-1)

    got = solve(("slope", "offset", "more"), tied, points, np.array([[1.0, 1.0, 1.0]]), [-9.0] * 3, [9.0] * 3)
    assert any("do not tell the parameters apart" in w for w in got.report.warnings)


def test_points_that_are_left_out_are_counted():
    x = np.arange(1.0, 11.0)
    loss = np.array([9.0, 8.0, np.nan, 6.0, np.inf, 4.0, 0.0, -1.0, 2.0, 1.0])
    run = Run(planned(1e6, 10.0, Schedule(shape="linear", warmup=0.25)).config, {"loss": Curve(x, loss)}, "tokens")
    points = usable([run], None)
    assert points.x.tolist() == [4.0, 6.0, 9.0, 10.0]
    assert points.dropped == {"points in the warmup": 2, "losses that are not finite and above 0": 4}
    assert points.by_stretch().mean() == pytest.approx(1.0)
    with pytest.raises(OnecurveError, match="none of its 10 points"):
        usable([run], None, 4.4)


def test_own_noise_cannot_predict_a_planned_run():
    runs, asked = example(OwnNoise)
    fitted = OwnNoise.fit(runs)
    with pytest.raises(OnecurveError, match="does not log its gradient_noise"):
        fitted.predict(planned(1e6, 1e9, Schedule(shape="linear")), [5e8])
    assert np.isfinite(fitted.predict(asked, [5e8]))


def test_the_band_is_an_interval_around_the_prediction():
    from onecurve.laws.law import Band

    runs, asked = example(FinalLoss)
    band = Band(np.array([0.0, 1.0]), np.array([0.02, 0.01]), 0.9, 4, "size")
    law = FinalLoss.fit(runs).with_band(band)
    x = np.array([0.5, 1.0]) * asked.end
    low, high = law.interval(asked, x)
    width = law.stretch(asked) * np.array([0.015, 0.01])
    np.testing.assert_allclose(low, law.predict(asked, x) * np.exp(-width))
    np.testing.assert_allclose(high, law.predict(asked, x) * np.exp(width))
    assert law.stretch(asked) > law.stretch(runs[4]) > 1.0
    assert "band: 90%" in str(law)


def test_a_noisy_quadratic_without_decayed_runs_says_whose_constants_it_uses():
    law = NoisyQuadratic.fit([noisy(1e6, Schedule(shape="constant"))])
    assert any("not fitted here" in w for w in law.report.warnings)


def test_a_log_that_is_denser_at_the_start_does_not_count_more_there():
    x = np.concatenate([np.linspace(0.1, 0.5, 41), np.linspace(0.6, 1.0, 5), [0.5, 1.0]])
    points = Points((planned(1e6, 1.0),) * 2, x, np.ones(48), np.repeat([0, 1], [46, 2]), {})
    w = points.by_stretch()
    assert w.mean() == pytest.approx(1.0)
    assert w[:46].sum() == pytest.approx(w[46:].sum())
    assert w[:46][x[:46] < 0.5].sum() / w[:46].sum() == pytest.approx(0.43, abs=0.03)


@pytest.mark.parametrize(
    ("size", "horizon", "words"),
    [(0, 1e9, "n_params is 0.0"), (float("nan"), 1e9, "n_params is nan"), (1e6, -1.0, "horizon is -1.0")],
)
def test_a_planned_run_that_cannot_be_is_refused(size, horizon, words):
    with pytest.raises(OnecurveError, match=words):
        planned(size, horizon)
