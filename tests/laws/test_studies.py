"""Laws of a family: the data exponent by collapse, and the spread near the end of training."""

from __future__ import annotations

import numpy as np
import pytest

from onecurve import Ladder, OnecurveError, Run, RunConfig, Schedule, collapse
from onecurve.laws.exponent import fit_exponent
from onecurve.laws.variance import fade
from onecurve.run import Curve

SIZES = 2.0 ** np.arange(6) * 1e6


def constant(sizes=SIZES, alpha=0.35, beta=0.35, noise=0.0):
    rng = np.random.default_rng(0)
    out = []
    for n in sizes:
        x = np.geomspace(0.05 * n, 3e3 * n, 600)
        loss = (300 * n**-alpha + 800 * x**-beta) * np.exp(noise * rng.standard_normal(600))
        config = RunConfig(name=f"{n:g}", n_params=n, schedule=Schedule(shape="constant"))
        out.append(Run(config, {"loss": Curve(x, loss, "held-out")}))
    return out


@pytest.mark.parametrize(("alpha", "beta"), [(0.35, 0.35), (0.30, 0.36)])
def test_curves_collapse_at_the_exponent_of_their_law(alpha, beta):
    found = fit_exponent(constant(alpha=alpha, beta=beta))
    assert found.exponent == pytest.approx(1 + alpha / beta, abs=0.03)
    assert found.interval[0] <= found.exponent <= found.interval[1]
    assert found.deviation.min() < 2e-3
    assert found.bottom[0] <= found.exponent <= found.bottom[1]


def test_noise_makes_the_bowl_blunt_and_says_so():
    sharp, blunt = fit_exponent(constant()), fit_exponent(constant(noise=0.02), smooth=0.0)
    assert np.ptp(blunt.bottom) > np.ptp(sharp.bottom)
    assert "within a tenth of its least" in str(blunt)
    assert blunt.to_dict()["law"] == "exponent"


def test_an_exponent_outside_the_search_is_not_taken_for_one():
    found = fit_exponent(constant(), exponent=4.0, middle=1e16)
    assert any("edge of the search" in w for w in found.warnings)


def test_a_floor_is_taken_off_first():
    raised = [
        Run(r.config, {"loss": Curve(r.curves["loss"].x, r.curves["loss"].loss + 5.0, "held-out")}) for r in constant()
    ]
    assert fit_exponent(raised, exponent=2.0, middle=1e15, floor=5.0).deviation == pytest.approx(
        fit_exponent(constant(), exponent=2.0, middle=1e15).deviation, rel=1e-6, nan_ok=True
    )


def test_two_sizes_have_no_exponent():
    with pytest.raises(OnecurveError, match="at least 3 sizes; got 2"):
        fit_exponent(constant(SIZES[:2]), exponent=2.0, middle=1e15)


def test_horizons_beyond_all_curves_are_refused():
    with pytest.raises(OnecurveError, match="at no exponent do three sizes reach"):
        fit_exponent(constant(), exponent=2.0, middle=1e30)


def ladder(shape: str, power: float) -> Ladder:
    """Runs whose normalised curves differ by a spread of exactly (1 - x)^power times a fixed pattern."""
    x = np.arange(1, 201) / 200.0
    runs = []
    for k, n in enumerate((1e6, 2e6, 4e6)):
        for seed in (0, 1):
            curve = x**-0.2 + 0.01 * (k - 1 + 0.3 * (2 * seed - 1)) * (1 - x) ** power
            config = RunConfig(name=f"{n}{seed}", n_params=n, seed=seed, horizon=1.0, schedule=Schedule(shape=shape))
            runs.append(Run(config, {"v": Curve(x, curve, "held-out")}))
    return Ladder(runs)


@pytest.mark.parametrize(
    ("shape", "power", "reading"), [("constant", 0.5, "flow"), ("linear", 1.5, "flow"), ("linear", 1.0, "fraction")]
)
def test_a_spread_that_fades_as_predicted_is_recognised(shape, power, reading):
    found = fade(collapse(ladder(shape, power), floor="zero"))
    deviation = found.fades[0]
    assert deviation.what == "deviation"
    assert deviation.slope == pytest.approx(power, abs=0.03)
    assert getattr(deviation, f"{reading}_slope") == pytest.approx(power, abs=1e-2)
    assert getattr(deviation, f"{reading}_error") < 0.02
    np.testing.assert_allclose(found.predicted, found.deviation, rtol=0.05)
    assert "spread near the end" in str(found) and found.to_dict()["law"] == "variance"


def test_a_coarse_end_is_refused():
    grid = np.array([0.2, 0.4, 0.6, 0.85, 1.0])
    with pytest.raises(OnecurveError, match="1 fractions between"):
        fade(collapse(ladder("linear", 1.0), floor="zero", grid=grid))
