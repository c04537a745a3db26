"""What a reference learns of a family, against families that are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from onecurve import OnecurveError
from onecurve.run import Curve, Run
from onecurve.store import dumps
from onecurve.watch.reference import UNKNOWN, WIDTHS, Reference, contrasts

from .conftest import SIZES, family, healthy


def test_shape_and_trend_are_those_of_the_family():
    ref = Reference.of(family(noise=0.0))
    x = (np.arange(100) + 0.5) / 100
    shape, _, _ = ref.at(3.2e6)
    late = x >= 0.1
    assert shape[late] == pytest.approx(-(0.3 + 0.005 * np.log(8)) * np.log(x[late]), abs=2e-3)
    assert ref.final(3.2e6)[0] == pytest.approx(-0.1 * np.log(3.2e6), abs=2e-3) and ref.exponent == pytest.approx(
        -0.1, abs=1e-3
    )
    assert ref.sizes == SIZES and ref.runs == 12 and not ref.notes


def test_noise_of_contrasts_is_what_white_noise_gives():
    ref = Reference.of(family(seeds=8, noise=0.02))
    block = 0.02 / np.sqrt(10)
    noise = ref.noise.reshape(6, -1)
    for k, width in enumerate(WIDTHS):
        late = noise[k, 60:95]
        assert np.mean(late) == pytest.approx(block * np.sqrt(1 / width + 1 / (2 * width)), rel=0.15)
    drift = ref.drift.reshape(6, -1)
    assert (drift[:, 60:] < 0.6 * noise[:, 60:]).all()  # there is none


def test_contrasts_by_hand():
    rows = np.arange(20.0)[None]
    c = contrasts(rows)
    assert c[0, 0, 5] == pytest.approx(5 - 3.5) and np.isnan(c[0, 0, 0])
    assert c[1, 0, 9] == pytest.approx(8.5 - (4 + 5 + 6 + 7) / 4)
    rows[0, :10] = np.nan
    assert np.isnan(contrasts(rows)[0, 0, 10]) and contrasts(rows)[0, 0, 11] == 1.0
    flat = contrasts(np.ones((3, 100)))
    assert np.nanmax(np.abs(flat)) == 0.0 and np.isfinite(flat[5, :, 60:]).all() and np.isnan(flat[5, :, :54]).all()


def test_fewer_sizes_know_less_and_say_so():
    two = Reference.of([run for run in family() if run.config.n_params < 3e5])
    assert "two sizes tell no trend" in two.notes[0] and two.final(1e6) is None and not two.trend.any()
    one = Reference.of([healthy(1e5, s) for s in range(3)])
    assert "one size alone" in one.notes[0] and (one.drift == pytest.approx(UNKNOWN, rel=0.3))
    lone = Reference.of([healthy(1e5, 0)])
    assert "one seed a size" in lone.notes[1]


def test_a_far_size_is_less_well_known():
    ref = Reference.of(family())
    near, far = (ref.at(n)[2][4, 60:90].mean() for n in (4e5, 1e8))
    assert far > 1.5 * near
    assert ref.final(1e8)[1] > 1.5 * ref.final(4e5)[1]


def test_the_way_through_json_keeps_every_number():
    ref = Reference.of(family())
    again = Reference.from_dict(json.loads(dumps(ref.to_dict())), "x")
    assert dumps(again.to_dict()) == dumps(ref.to_dict())
    for a, b in zip(again.at(1e6), ref.at(1e6), strict=True):
        assert a.tobytes() == b.tobytes()


def test_short_logs_get_longer_blocks():
    assert Reference.of(family(points=40)).blocks == 40
    with pytest.raises(OnecurveError, match="needs 20 points of each run; one of these has 10"):
        Reference.of(family(points=10))


def test_damaged_references_are_named():
    good = json.loads(dumps(Reference.of(family()).to_dict()))
    with pytest.raises(OnecurveError, match=r"ref.json: no reference of this version"):
        Reference.from_dict(good | {"reference": 9}, "ref.json")
    with pytest.raises(OnecurveError, match=r"ref.json: shape"):
        Reference.from_dict(good | {"shape": "no"}, "ref.json")
    below = [Run(r.config, {"loss": Curve(r.curves["loss"].x, -r.curves["loss"].loss)}) for r in family()]
    with pytest.raises(OnecurveError, match="losses above 0"):
        Reference.of(below)
