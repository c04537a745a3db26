"""The table of small runs' curves: its own settings give their own curves, others something between two of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onecurve import OnecurveError, Run
from onecurve.laws.small_runs import SmallRuns
from onecurve.laws.surrogate import Surrogate

from .conftest import NOTHING, at_timescale, of_law

TRUE = Surrogate(NOTHING, 0.05, 0.08, -0.4, 3.0, -0.25, 0.0, 0.0)
X = np.linspace(0.1, 1.0, 10)


def finished(*timescales: float) -> list[Run]:
    return of_law(TRUE, [at_timescale(t) for t in timescales])


def with_rate(run: Run, rate: float | None) -> Run:
    return replace(run, config=run.config.model_copy(update={"base_learning_rate": rate}))


def test_a_setting_of_the_table_gives_its_own_curve_without_error():
    law = SmallRuns.fit(finished(0.05, 0.1, 0.2))
    asked = at_timescale(0.1)
    assert law.predict(asked, X * asked.end) == pytest.approx(TRUE.predict(asked, X * asked.end), rel=1e-3)
    assert not law.error(asked, X * asked.end).any() and not law.remarks(asked)


def test_a_setting_between_two_is_between_their_curves_and_its_error_is_their_difference():
    law = SmallRuns.fit(finished(0.05, 0.2))
    asked = at_timescale(0.1)
    at = X * asked.end
    a, b = (np.log(law.predict(at_timescale(t), at)) for t in (0.05, 0.2))
    assert np.log(law.predict(asked, at)) == pytest.approx((a + b) / 2, abs=1e-9)
    assert law.error(asked, at) == pytest.approx(np.abs(a - b) / 2, abs=1e-9)


def test_far_from_the_table_the_error_grows_and_the_run_is_remarked_on():
    law = SmallRuns.fit(finished(0.05, 0.1))
    near, far = at_timescale(0.2), at_timescale(0.8)
    assert (law.error(far, X * far.end)[:-1] > 2 * law.error(near, X * near.end)[:-1]).all()
    assert "timescale 0.1 (this one 0.8)" in law.remarks(far)[0]


def test_seeds_are_averaged_and_the_largest_size_is_taken():
    runs = finished(0.1)
    small = replace(runs[0], config=runs[0].config.model_copy(update={"n_params": 1e7, "horizon": 2e8}))
    other = {k: replace(c, loss=c.loss**2, x=c.x / 10) for k, c in runs[0].curves.items()}
    # Ten times fewer steps at a tenth of the size: batch must fall too for the same timescale.
    small = replace(small, config=small.config.model_copy(update={"batch_tokens": 1e4}), curves=other)
    law = SmallRuns.fit([small, *runs])
    assert law.log_final.size == 1
    assert law.log_final[0] == pytest.approx(float(np.log(next(iter(runs[0].curves.values())).loss[-1])), abs=1e-3)


def test_rates_tell_settings_of_one_timescale_apart_only_where_all_record_them():
    low, high = (with_rate(finished(0.1)[0], rate) for rate in (0.01, 0.04))
    high = replace(high, curves={k: replace(c, loss=c.loss**2) for k, c in high.curves.items()})
    law = SmallRuns.fit([low, high])
    assert law.log_final.size == 2
    asked = at_timescale(0.1)
    at = X * asked.end
    assert np.log(law.predict(with_rate(asked, 0.04), at)) == pytest.approx(
        2 * np.log(law.predict(with_rate(asked, 0.01), at))
    )
    between = law.predict(asked, at)  # not told its rate: the two are as near as each other
    assert (between[:-1] >= law.predict(with_rate(asked, 0.01), at)[:-1]).all()


def test_what_no_decay_is_taken_for():
    law = SmallRuns.fit(finished(0.1, 10.0))
    none = at_timescale(0.1)
    none = replace(none, config=none.config.model_copy(update={"weight_decay": 0.0}))
    assert law.predict(none, X * none.end) == pytest.approx(law.predict(at_timescale(10.0), X * none.end))


def test_a_run_without_the_timescales_ingredients_is_told_which_is_missing():
    law = SmallRuns.fit(finished(0.1))
    asked = at_timescale(0.1)
    for name in ("batch_tokens", "learning_rate", "weight_decay"):
        lacking = replace(asked, config=asked.config.model_copy(update={name: None}))
        with pytest.raises(OnecurveError, match=f"lacks {name}, so its timescale"):
            law.predict(lacking, asked.end)
        with pytest.raises(OnecurveError, match=f"lacks {name}"):
            SmallRuns.fit([replace(lacking, curves=finished(0.1)[0].curves)])


def test_nothing_is_said_before_the_first_point_of_the_small_run():
    run = finished(0.1)[0]
    late = {k: replace(c, x=c.x[c.x > 0.3 * run.end], loss=c.loss[c.x > 0.3 * run.end]) for k, c in run.curves.items()}
    law = SmallRuns.fit([replace(run, curves=late)])
    told = law.predict(run, X * run.end)
    assert np.isnan(told[:2]).all() and np.isfinite(told[3:]).all()


def test_settings_left_out_come_from_the_others():
    law = SmallRuns.fit(finished(0.05, 0.1, 0.2))
    shape, error = law.left_out()
    others = SmallRuns.fit(finished(0.05, 0.2))
    asked = at_timescale(0.1)
    at = law.fractions * asked.end
    assert shape[1] == pytest.approx(np.log(others.predict(asked, at)), abs=1e-9)
    assert error[1] == pytest.approx(others.error(asked, at), abs=1e-9)
