"""Rules in a recipe: timescale by tokens per parameter, batch by tokens, several bands."""

import pytest

from onecurve import OnecurveError
from onecurve.plan.recipe import Recipe, dump_recipe, jobs, load_recipe, resolve
from onecurve.plan.rules import TIMESCALES

# arXiv 2509.25087, table 6: batch in sequences of 8192, billions of tokens at 20, 80 and 234 TPP.
CELERITY = {
    "300M": (176, 5.4, 21.7, 63.4),
    "500M": (240, 10.1, 40.2, 117.8),
    "900M": (336, 18.1, 72.5, 212.3),
    "1.8B": (464, 36.2, 144.8, 424.0),
    "3.9B": (672, 77.6, 310.4, 909.2),
}


def celerity(**optimiser) -> Recipe:
    return Recipe.model_validate(
        {
            "task": {"kind": "tokens"},
            "model": {"preset": "celerity"},
            "ladder": {
                "sizes": [{"name": name} for name in CELERITY],
                "base_width": 640,
                "base_layers": 13,
                "parameterisations": ["completep"],
            },
            "optimiser": {"learning_rate": 0.15, "timescale": "celerity", "warmup_tokens": 375e6, **optimiser},
            "schedule": {"warmup": 0.1},
            "horizon": {"bands": [20.0, 80.0, 234.0]},
        }
    )


def timescale(job) -> float:
    c = job.members[0].config
    return c.batch_tokens / (c.learning_rate * c.weight_decay * c.horizon)


def test_the_celerity_preset_gives_the_papers_table():
    all_jobs = jobs(celerity())
    assert len(all_jobs) == 15
    for name, (sequences, *tokens) in CELERITY.items():
        of = [job for job in all_jobs if job.size.name.startswith(name)]
        assert [job.size.band for job in of] == [20.0, 80.0, 234.0]
        assert {job.batch for job in of} == {8192 * sequences}
        for job, billions in zip(of, tokens, strict=True):
            assert job.batch * job.steps / 1e9 == pytest.approx(billions, rel=5e-3)
        assert [round(timescale(job), 3) for job in of] == [0.175, 0.087, 0.051]


def test_the_square_root_rule_gives_the_papers_batches_within_its_rounding():
    rule = {"batch": 176 * 8192, "tokens": 20 * 270663680.0, "exponent": 0.5}
    of = {job.size.name: job.batch for job in jobs(celerity(batch=rule)) if job.size.band == 20.0}
    for name, (sequences, *_) in CELERITY.items():
        assert of[f"{name}-20-tpp"] / 8192 == pytest.approx(sequences, rel=0.045)
        assert of[f"{name}-20-tpp"] % 8192 == 0


def test_a_resolved_plan_is_a_recipe_that_trains_the_same(tmp_path):
    resolved = resolve(celerity())
    path = tmp_path / "ladder.toml"
    path.write_text(dump_recipe(resolved))
    assert load_recipe(path) == resolved == resolve(resolved)
    assert jobs(load_recipe(path)) == jobs(celerity())


def test_the_decay_is_solved_after_rounding_so_that_the_timescale_is_exact():
    for job in jobs(celerity(timescale={"scale": 2.0, "exponent": -0.6})):
        assert timescale(job) == pytest.approx(2.0 * job.size.band**-0.6, rel=1e-12)


def test_published_rules_say_where_they_extrapolate():
    rule = TIMESCALES["power-lines"]
    assert not rule.extrapolates(20.0) and rule.extrapolates(10.0) and rule.extrapolates(1280.0)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"timescale": "power-line"}, "optimiser.timescale is 'power-line': Input should be 'power-lines' or 'celerit"),
        ({"timescale": -0.1}, "optimiser.timescale is -0.1: Input should be greater than 0"),
        ({"timescale": {"scale": 1.0}}, "optimiser.timescale.exponent is required and missing"),
        (
            {"timescale": {"scale": 1.0, "exponnt": -0.5}},
            "optimiser.timescale.exponnt is not a known key; did you mean",
        ),
        ({"weight_decay": 0.1}, "not both"),
        ({"timescale": None, "weight_decay": -0.1}, "optimiser.weight_decay is -0.1"),
        ({"batch": {"batch": 8192, "tokens": 1e9, "exponent": 1.5}}, "optimiser.batch.exponent is 1.5"),
        ({"batch": {"batch": 8192, "tokens": -1.0, "exponent": 0.5}}, "optimiser.batch.tokens is -1.0"),
        ({"batch": {"batch": 8192, "token": 1e9, "exponent": 0.5}}, "optimiser.batch.token is not a known key"),
    ],
)
def test_a_mistake_in_a_rule_is_told_of_that_field_alone(tmp_path, changes, words):
    import tomli_w

    content = celerity().model_dump(mode="json", exclude_none=True)
    content["model"] = {"preset": "celerity"}
    content["optimiser"] = {k: v for k, v in (content["optimiser"] | changes).items() if v is not None}
    path = tmp_path / "recipe.toml"
    path.write_text(tomli_w.dumps(content))
    with pytest.raises(OnecurveError) as error:
        load_recipe(path)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "horizon, words",
    [
        ({"bands": []}, "horizon.bands"),
        ({"bands": [20.0, 20.0]}, "must be different"),
        ({"bands": [20.0], "tokens_per_param": 20.0}, "give one of"),
        ({"tokens_per_param": -20.0}, "above 0"),
        ({"scale": 0.1}, "both scale and exponent"),
    ],
)
def test_a_horizon_is_given_in_one_way(tmp_path, horizon, words):
    import tomli_w

    content = celerity().model_dump(mode="json", exclude_none=True) | {"horizon": horizon}
    path = tmp_path / "recipe.toml"
    path.write_text(tomli_w.dumps(content))
    with pytest.raises(OnecurveError, match=words):
        load_recipe(path)


def test_a_batch_by_tokens_needs_them(tmp_path):
    content = celerity(batch={"batch": 8192, "tokens": 1e9, "exponent": 0.5}).model_dump(exclude_none=True)
    content["ladder"]["sizes"] = [s | {"steps": 100} for s in content["ladder"]["sizes"]]
    content["horizon"] = {"tokens_per_param": 20.0}
    for size in content["ladder"]["sizes"]:
        size.pop("batch", None)
    with pytest.raises(OnecurveError, match="has steps, so its tokens"):
        jobs(Recipe.model_validate(content))


def test_a_batch_above_the_critical_one_is_refused():
    critical = {"batch": 240 * 8192, "tokens": 20 * 503e6, "exponent": 0.462}
    assert jobs(celerity(critical_batch=critical | {"batch": 300 * 8192}))
    with pytest.raises(OnecurveError, match=r"the batch of 300M, 1441792 tokens, is above the critical one"):
        jobs(celerity(critical_batch=critical | {"tokens": 30 * 503e6}))
