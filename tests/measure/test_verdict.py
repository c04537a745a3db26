from __future__ import annotations

import numpy as np
import pytest

from onecurve.ladder import Ladder
from onecurve.measure.collapse import collapse
from onecurve.measure.verdict import heading, notes, summary, tables, verdict
from onecurve.schedule import Schedule

GOOD = {
    "batch_tokens": 1e4,
    "weight_decay": 0.1,
    "parameterisation": "mup",
    "schedule": Schedule(shape="linear", warmup=0.02),
}


def controlled(i, **changes):
    """Settings under which timescale, tokens per parameter, schedule and parameterisation agree over the sizes."""
    horizon = changes.pop("horizon", 20.0 * 1e6 * 4**i)
    rate = changes.pop("learning_rate", 2e-2 / (20.0 * 4**i))
    return GOOD | {"horizon": horizon, "learning_rate": rate} | changes


def judged(make_runs, config=None, bend=True, **options):
    def away(i, x):
        return 0.1 * i * np.sin(np.pi * x)

    runs = make_runs(bend=away if bend else None, config=config, **options)
    c = collapse(Ladder(runs), floor="zero")
    return c, verdict(c)


def test_a_collapsed_family_is_told_so(make_runs):
    c, v = judged(make_runs, controlled, bend=False)
    assert v.practical
    assert v.noise == "no difference seen"
    assert v.headline.startswith("The sizes fall onto one curve")
    assert v.checks == ()
    assert "Within seed noise? The deviation falls below the noise floor for good at" in summary(c)


def test_a_systematic_difference_within_the_tolerance_is_told_apart(make_runs):
    _, v = judged(make_runs, controlled, bend=False, noise=1e-5)
    c = collapse(
        Ladder(make_runs(config=controlled, bend=lambda i, x: 0.005 * i * np.sin(np.pi * x), noise=1e-4)), floor="zero"
    )
    assert v.noise == "no difference seen"
    assert verdict(c).practical
    assert verdict(c).noise == "sizes differ"
    assert "systematic" in verdict(c).headline


def test_a_difference_late_in_training_alone_is_a_difference(make_runs):
    def late(i, x):
        return 0.02 * i * np.clip(x - 0.92, 0.0, None) * (1.0 - x)

    c = collapse(Ladder(make_runs(points=200, bend=late, noise=1e-5, end_noise=0.0, seeds=4)), floor="zero")
    assert [w.finding for w in c.windows] == ["no difference seen", "no difference seen", "sizes differ"]
    assert verdict(c).noise == "sizes differ"


def test_agreeing_controls_point_to_the_horizon(make_runs):
    _, v = judged(make_runs, controlled)
    assert not v.practical
    assert len(v.checks) == 1
    assert v.checks[0].startswith("the recorded controls agree; next: is the horizon law right")


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("timescale", lambda i: {"weight_decay": 0.1 * 2**i}),
        ("tokens per parameter", lambda i: {"horizon": 20e6 * 6**i, "learning_rate": 2e-2 / (20.0 * 6**i)}),
        ("schedule", lambda i: {"schedule": Schedule(shape="cosine" if i == 4 else "linear", warmup=0.02)}),
        ("warmup", lambda i: {"schedule": Schedule(shape="linear", warmup=0.02 + 0.02 * i)}),
        ("parameterisation", lambda i: {"parameterisation": "standard" if i == 4 else "mup"}),
    ],
)
def test_the_control_that_drifts_is_the_one_named(make_runs, word, changes):
    _, v = judged(make_runs, lambda i: controlled(i, **changes(i)))
    assert [check.split(":")[0] for check in v.checks] == [word]


def test_checks_come_in_the_stated_order(make_runs):
    def all_wrong(i):
        return controlled(
            i,
            weight_decay=0.1 * 2**i,
            horizon=20e6 * 6**i,
            schedule=Schedule(shape="cosine" if i else "linear", warmup=0.05 * i),
            parameterisation="standard" if i else "mup",
        )

    _, v = judged(make_runs, all_wrong)
    order = ["timescale", "tokens per parameter", "schedule", "warmup", "parameterisation"]
    assert [check.split(":")[0] for check in v.checks] == order


def test_what_is_not_recorded_is_said_to_be_unchecked(make_runs):
    _, v = judged(make_runs)
    assert v.checks[0] == "not recorded, so not checked: timescale, schedule, parameterisation"
    assert v.checks[1].startswith("next: is the horizon law right")


def test_one_seed_says_what_it_can_and_what_it_cannot(make_runs):
    c, v = judged(make_runs, controlled, bend=False, seeds=1)
    assert v.practical
    assert v.noise == "too few seeds"
    assert "without repeated seeds nothing is said about noise" in v.headline
    assert any(s.startswith("Within a practical tolerance? Yes") for s in v.sentences)
    assert any("Not known: one seed a size gives no noise floor" in s for s in v.sentences)
    assert all(table.title != "Deviation against seed noise" for table in tables(c))


def test_a_large_noise_is_named_as_a_possible_reason(make_runs):
    c = collapse(Ladder(make_runs(noise=0.5, seeds=2, rng=3)), floor="zero")
    v = verdict(c)
    assert (v.practical, v.noise) == (False, "no difference seen")
    assert "more seeds would tell" in v.headline


def test_who_leaves_first_is_said_with_place_and_direction(make_runs):
    runs = make_runs(bend=lambda i, x: 0.4 * np.sin(np.pi * x) * (i == 4))
    text = str(collapse(Ladder(runs), floor="zero"))
    assert (
        "Size 256M leaves first: read back from the end, it runs above the mean of the other sizes from x = 0." in text
    )


def test_an_answer_that_depends_on_the_floor_says_so(make_runs):
    c = collapse(Ladder(make_runs(floor=10.0, end_noise=1e-4, noise=1e-4)))
    assert c.practical
    assert any("with floor 0 the sizes do not agree" in s for s in verdict(c).sentences)


def test_the_share_of_the_loss_is_relative_to_the_loss_itself():
    from onecurve.run import Run

    # Reducible losses 2 -> 1 and 3 -> 1 on a floor of 9: half a unit from the mean, of a final loss of 10.
    runs = [Run.of(f"{n}", n_params=n, x=[1, 2], loss=[9 + n, 10], horizon=2) for n in (2.0, 3.0)]
    c = collapse(Ladder(runs), floor=9.0, window=0.0)
    share = 100 * np.sqrt(2) * 0.5 / 10
    assert any(f"At x = .5 the deviation is {share:.2g} % of the final loss" in s for s in verdict(c).sentences)


def test_everything_that_was_dropped_or_remarked_is_noted(make_runs):
    ladder = Ladder(make_runs()).noting({"rows": 3}, ["look here"])
    c = collapse(ladder)
    assert "dropped: 3 rows" in notes(c)
    assert "note: look here" in notes(c)
    assert notes(c)[0].startswith("floor: ")


def test_the_heading_says_what_was_measured(make_runs):
    c = collapse(Ladder(make_runs(kind="training", seeds=[2, 3, 3, 3, 3])), floor="zero")
    text = heading(c)
    assert "5 sizes from 1M to 256M" in text
    assert "14 runs, 2 to 3 seeds a size" in text
    assert "training loss 'loss', trailing mean over 0.02 of the run (400K to 102M tokens)" in text


def test_a_verdict_shows_itself_in_a_notebook(make_runs):
    c = collapse(Ladder(make_runs(), name="a<b"))
    assert c._repr_html_().startswith("<pre>a&lt;b: 5 sizes")
