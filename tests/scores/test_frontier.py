"""The Pareto set, power laws and compute ratios: closed forms, the published table, other ways to the same number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecurve import OnecurveError
from onecurve.fit import minimise
from onecurve.scores.frontier import fit_power, frontier, pareto
from onecurve.scores.table import Scores, read_scores
from onecurve.scores.words import PRINTED, summary, tables

X = np.array([1e18, 3e18, 2e19, 8e19, 5e20])


def scores(compute, error, family=None, score="accuracy") -> Scores:
    count = len(compute)
    none = np.full(count, np.nan)
    return Scores(
        score=score,
        name=tuple(f"m{k}" for k in range(count)),
        family=tuple(family or ["one"] * count),
        n_params=none,
        tokens=none,
        student=np.asarray(compute, dtype=float),
        teacher=np.zeros(count),
        distilled=np.zeros(count, dtype=bool),
        error=np.asarray(error, dtype=float),
        stderr=none,
        source=("here",) * count,
    )


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=30))
def test_the_pareto_set_is_what_no_other_model_dominates(points):
    c, e = np.array(points, dtype=float).T
    dominated = [
        any(c2 <= c1 and e2 <= e1 and (c2 < c1 or e2 < e1) for c2, e2 in points) for c1, e1 in points
    ]  # fmt: skip
    assert np.array_equal(pareto(c, e), ~np.array(dominated))


def test_an_exact_power_law_is_recovered():
    fit = fit_power("a", "C", X, (2e16 / X) ** 0.12)
    assert fit.exponent == pytest.approx(0.12, abs=1e-12)
    assert fit.scale == pytest.approx(2e16, rel=1e-9)
    assert fit.interval == pytest.approx((0.12, 0.12), abs=1e-9)
    np.testing.assert_allclose(fit.without_smallest, 0.12, atol=1e-12)
    np.testing.assert_allclose(fit.predict(X), (2e16 / X) ** 0.12, rtol=1e-12)
    at, low, high = fit.inverse((2e16 / 7e19) ** 0.12)
    assert at == pytest.approx(7e19) and low == pytest.approx(7e19, rel=1e-4) and high == pytest.approx(7e19, rel=1e-4)


def noisy(seed: int, count: int = 5, spread: float = 0.02):
    rng = np.random.default_rng(seed)
    x = np.geomspace(1e18, 1e21, count)
    return x, (1e17 / x) ** 0.1 * np.exp(spread * rng.standard_normal(count))


def test_the_fit_is_the_engines_and_scipys():
    from scipy.stats import linregress, t

    x, e = noisy(0)
    fit = fit_power("a", "C", x, e)
    line = linregress(np.log(x), np.log(e))
    half = line.stderr * t.ppf(0.95, 3)
    assert fit.exponent == pytest.approx(-line.slope, rel=1e-12)
    assert fit.interval == pytest.approx((-line.slope - half, -line.slope + half), rel=1e-9)
    lx = np.log(x / x.mean())

    def residuals(p, rows):
        r = p[:, :1] - p[:, 1:] * lx - np.log(e)
        return r, np.broadcast_to(np.stack([np.ones_like(lx), -lx], axis=1), (len(p), lx.size, 2)).copy()

    got = minimise(residuals, np.array([[0.0, 0.0]]), np.array([-99.0, -9.0]), np.array([99.0, 9.0]))
    assert got.parameters[0, 1] == pytest.approx(fit.exponent, rel=1e-7)


def test_the_intervals_hold_ninety_per_cent():
    inside = np.zeros(3)
    draws = 2000
    for seed in range(draws):
        x, e = noisy(seed, 6)
        fit = fit_power("a", "C", x[:5], e[:5])
        low, high = fit.band(x[5])
        _, first, last = fit.inverse(e[5])
        inside += [fit.interval[0] <= 0.1 <= fit.interval[1], low <= e[5] <= high, first <= x[5] <= last]
    # Three binomial standard errors about .9.
    assert np.all(np.abs(inside / draws - 0.9) < 0.02), inside / draws


def test_a_slope_that_may_be_zero_bounds_nothing():
    x = np.array([1e18, 1e19, 1e20])
    fit = fit_power("a", "C", x, [0.5, 0.52, 0.49])
    _, low, high = fit.inverse(0.5)
    assert (low, high) == (0.0, np.inf)


def test_seeds_of_a_size_are_one_point():
    x, e = noisy(1)
    both = fit_power("a", "C", np.concatenate([x, x]), np.concatenate([e * 1.01, e / 1.01]))
    alone = fit_power("a", "C", x, e)
    assert both.exponent == pytest.approx(alone.exponent) and both.interval == pytest.approx(alone.interval)


def test_too_few_sizes_have_no_law():
    with pytest.raises(OnecurveError, match="at least 3 sizes; got 2"):
        fit_power("a", "C", [1.0, 2.0, 2.0], [0.5, 0.4, 0.4])
    f = frontier(scores([1e18, 2e18], [0.5, 0.4]))
    assert f.fits == () and f.ratios is None and f.on.tolist() == [True, True]


def test_ratios_between_and_on_the_law():
    error = (1e17 / X) ** 0.1
    # Another family that needs twice the compute everywhere, one model of it beyond the first family's reach.
    theirs = [2 * 1e19, 2 * 1e21]
    f = frontier(scores([*X, *theirs], [*error, *(1e17 / (np.array(theirs) / 2)) ** 0.1], ["a"] * 5 + ["b"] * 2))
    r = f.ratios
    assert r is not None and r.family == "a" and r.rows.tolist() == [5, 6]
    np.testing.assert_allclose(r.between, [0.5, np.nan], rtol=1e-9)
    np.testing.assert_allclose(r.fitted, 0.5, rtol=1e-9)
    assert [f.scores.name[k] for k in r.nearest] == ["m2", "m4"]
    other = frontier(f.scores, "b").ratios
    assert other is not None and np.isnan(other.fitted).all()  # two sizes have no law
    np.testing.assert_allclose(other.between[2:], [2.0, 2.0, 2.0], rtol=1e-9)


def test_a_family_of_one_model_is_compared_with_itself_alone():
    r = frontier(scores([1e18, 1e19], [0.5, 0.4], ["a", "b"]), "a").ratios
    assert r is not None and np.isnan(r.between).all() and r.nearest.tolist() == [0]


def test_perfect_scores_are_on_the_frontier_and_in_no_law():
    f = frontier(scores([*X, 1e22], [*(1e17 / X) ** 0.1, 0.0]))
    assert f.on[-1] and f.fit("one") is not None and f.fit("one").x.size == 5  # pyright: ignore
    assert any("no error left" in note and "m5" in note for note in f.notes)


def test_an_unknown_family_is_named():
    with pytest.raises(OnecurveError, match=r"'ons'.*did you mean 'one'"):
        frontier(scores(X, 1e17 / X), "ons")


# The published table.


@pytest.fixture(scope="module")
def published():
    return frontier(read_scores([]))


def test_the_averages_are_the_means_of_the_tasks():
    from onecurve.scores.suites import CELERITY7
    from onecurve.scores.table import published_records

    whole = [r for r in published_records() if all(task in r.scores for task in CELERITY7)]
    assert [r.name for r in whole] == ["Celerity-1.8B", "Celerity-3.9B"]
    for record in whole:
        mean = np.mean([record.scores[task][0] for task in CELERITY7])
        assert round(100 * mean, 2) == pytest.approx(100 * record.scores["accuracy"][0])


def test_the_published_pareto_set(published):
    on = {name for name, is_on in zip(published.scores.name, published.on, strict=True) if is_on}
    assert on == {*(f"Celerity-{n}" for n in ("300M", "500M", "900M", "1.8B", "3.9B")), "BTLM-3B", "Gemma-2-2B"}


def test_the_printed_laws_are_those_of_the_three_largest_sizes(published):
    for (family, axis), (scale, exponent) in PRINTED.items():
        fit = published.fit(family, axis)
        assert fit.without_smallest[-1] == pytest.approx(exponent, abs=5e-4)
        largest = fit_power(family, axis, fit.x[2:], fit.error[2:])
        percent = np.exp(np.log(largest.scale) + np.log(100) / largest.exponent)
        # K is x^(1/b): 2 % of a printed exponent is a factor of some.
        assert np.log(percent) == pytest.approx(np.log(scale), rel=0.02)
        # The printed exponents lie inside that fit's own interval; for D and N inside that of all five sizes too.
        assert largest.interval[0] < exponent < largest.interval[1]
    assert published.fit("Celerity", "C").exponent == pytest.approx(0.083, abs=5e-4)
    assert np.ptp(published.fit("Celerity", "C").interval) / 2 == pytest.approx(0.013, abs=5e-4)
    assert not published.fit("Celerity", "C").interval[1] >= 0.097
    for axis in "DN":
        assert published.fit("Celerity", axis).interval[1] > 0.189


def test_the_ratio_to_btlm(published):
    r = published.ratios
    (k,) = [i for i, row in enumerate(r.rows) if published.scores.name[row] == "BTLM-3B"]
    assert r.family == "Celerity"
    assert 1 - r.between[k] == pytest.approx(0.39, abs=0.005)
    assert 1 - r.fitted[k] == pytest.approx(0.31, abs=0.005)
    assert r.low[k] < r.between[k] < r.high[k] and r.low[k] > 0.25  # the claim of 75 % lies outside
    near = int(r.nearest[k])
    assert published.scores.name[near] == "Celerity-1.8B"
    saved = 1 - published.scores.compute[near] / published.scores.compute[r.rows[k]]
    assert saved == pytest.approx(0.58, abs=0.005)
    assert published.scores.error[near] - published.scores.error[r.rows[k]] == pytest.approx(0.011, abs=1e-6)


def test_words_and_tables_say_it(published):
    said = "\n".join(summary(published))
    assert "exponent 0.083 ± 0.013" in said and "Published: 0.097, outside that interval" in said
    assert "Gemma-2-2B (its teacher's compute not counted)" in said
    models, laws, off, ratios = tables(published)
    assert len(models.rows) == 10 and len(laws.rows) == 3 and len(off.rows) == 15
    assert ratios.rows[0][0] == "BTLM-3B" and "0.25" in ratios.rows[0]
    assert "Celerity-1.8B: 1.10 points less at 58% fewer FLOPs" in ratios.rows[0]


def test_everything_goes_into_json(published):
    import json

    from onecurve.store import dumps

    content = json.loads(dumps(published.to_dict()))
    assert [m["name"] for m in content["models"] if m["pareto"]][-1] == "Gemma-2-2B"
    assert len(content["fits"]) == 3 and content["ratios"]["family"] == "Celerity"
