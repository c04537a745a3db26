import pytest

from onecurve.plan.recipe import Recipe, groups, jobs


def recipe(**changes) -> Recipe:
    content = {
        "task": {"kind": "tokens"},
        "model": {"kind": "transformer", "head_size": 16, "norm_gain": True, **changes.get("model", {})},
        "ladder": {
            "sizes": [{"width": 32, "layers": 2}, {"width": 128, "layers": 4}],
            "base_width": 32,
            "base_layers": 2,
            "parameterisations": ["completep"],
        },
        "optimiser": {"learning_rate": 0.01, "batch": 1024, "timescale": 0.2, **changes.get("optimiser", {})},
        "schedule": {},
        "horizon": {"tokens_per_param": 20.0},
    }
    return Recipe.model_validate(content)


def last(recipe):
    job = jobs(recipe)[-1]
    return {g.role: g for g in groups(job, job.members[0])}


def test_every_decayed_group_has_the_recipes_timescale():
    of = last(recipe())
    assert list(of) == ["embedding", "hidden", "block norm", "final norm", "readout"]
    assert {g.timescale for r, g in of.items() if "norm" in r} == {float("inf")}
    assert [of[r].timescale for r in ("embedding", "hidden", "readout")] == pytest.approx([0.2] * 3)
    assert not any(g.odd for g in of.values())
    assert (of["hidden"].learning_rate, of["hidden"].eps) == (0.01 / 4, 1e-12 / 8)


def test_a_group_with_a_rate_of_its_own_is_flagged():
    of = last(recipe(model={"embedding_rate": 10.0}))
    assert [r for r, g in of.items() if g.odd] == ["embedding"]
    assert of["embedding"].timescale == pytest.approx(0.02)


def test_decay_that_is_not_scaled_flags_the_groups_that_are_then_apart():
    of = last(recipe(optimiser={"scale_weight_decay": False}))
    assert [r for r, g in of.items() if g.odd] == ["embedding", "readout"]


def test_a_tied_model_has_no_readout_and_one_without_gains_no_norms():
    assert list(last(recipe(model={"tied": True, "norm_gain": False}))) == ["embedding", "hidden"]
