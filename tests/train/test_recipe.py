import pytest

from onecurve import OnecurveError
from onecurve.train.recipe import EXAMPLES, Recipe, load_recipe, rungs


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_recipes_load(path):
    assert rungs(load_recipe(path))


def test_sizes_follow_the_horizon_law(recipe):
    law = recipe.model_copy(update={"horizon": type(recipe.horizon)(scale=0.1, exponent=2.0, multiple=0.5)})
    n = law.model.n_params(12)
    assert law.steps(12) == round(0.5 * (n / 0.1) ** 2 / (6 * n) / 16)


def edited(recipe: Recipe, old: str, new: str, tmp_path):
    text = (EXAMPLES / "demo.toml").read_text()
    assert old in text
    path = tmp_path / "recipe.toml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("[task]", "[tusk]", ["task", "required"]),
        ("learning_rate", "learning_rat", ["optimiser.learning_rat"]),
        ('shape = "linear"', 'shape = "line"', ["schedule.shape", "'line'", "linear"]),
        ("widths = [", "widths = [0, ", ["positive"]),
        ("[optimiser]", "[optimiser", ["TOML"]),
    ],
)
def test_a_mistake_names_file_field_and_value(recipe, tmp_path, old, new, words):
    path = edited(recipe, old, new, tmp_path)
    with pytest.raises(OnecurveError) as error:
        load_recipe(path)
    assert str(path) in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_missing_recipe_says_where_examples_are(tmp_path):
    with pytest.raises(OnecurveError, match="no such file; examples are in"):
        load_recipe(tmp_path / "none.toml")
