"""Ought a family to collapse: the shipped examples, the thresholds, and bad files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecurve import OnecurveError
from onecurve.controls import controls
from onecurve.plan.family import FamilyModel, check_family, is_family, read_family

FAMILIES = Path(__file__).parent.parent.parent / "examples" / "families"


def example(name: str):
    return check_family(read_family(FAMILIES / name))


def test_llama_2_ought_not_to_collapse():
    (check,) = example("llama-2.toml")
    # arXiv 2509.25087, section 1: TPP 286 to 29, tau .07 .07 .13 .13.
    assert [round(r.tokens_per_param) for r in check.rows] == [286, 154, 59, 29]
    assert [round(r.timescale, 2) for r in check.rows] == [0.07, 0.07, 0.13, 0.13]
    assert check.verdict == "no"
    assert [r.verdict for r in check.rows] == ["reference", "no", "no", "no"]
    assert {f.control for f in check.findings} == {"timescale", "tokens per parameter"}
    assert check.rows[3].why[0] == "timescale 0.133, not 0.0667 (decay 0.2 instead of 0.1 holds it)"


def test_celeritys_bands_collapse_and_the_warmup_cap_is_named_at_20():
    checks = example("celerity.csv")
    assert {c.name: c.verdict for c in checks} == {"20 TPP": "nearly", "80 TPP": "yes", "234 TPP": "yes"}
    (finding,) = checks[0].findings
    assert finding.control == "warmup" and "0.00483 to 0.0694" in finding.text
    assert all(r.verdict == "yes" for r in checks[1].rows[1:] + checks[2].rows[1:])


def test_one_decay_for_all_sizes_lets_the_timescale_drift():
    (check,) = example("fixed-decay.toml")
    assert check.verdict == "no" and [f.control for f in check.findings] == ["timescale"]
    assert [r.verdict for r in check.rows] == ["reference", "no", "no", "no"]


def test_olmo_cores_rule_holds_the_timescale_without_naming_it():
    (check,) = example("olmo-core.csv")
    assert check.verdict == "yes"
    # B / (eta lambda D) at N: 2048 * 160 m^(2/3) / (.0047 m^(-1/3) / 2 * .1 * 20 * 108e6 m), whatever m.
    for r in check.rows:
        assert r.timescale == pytest.approx(2048 * 160 / (0.0047 / 2 * 0.1 * 20 * 108e6), rel=1e-4)
        assert r.warmup == pytest.approx(0.05, rel=1e-4)


def model(k: int, **settings) -> FamilyModel:
    base = {
        "name": str(k), "n_params": 1e8 * 2.0**k, "tokens_per_param": 20.0, "batch_tokens": 1e6 * 2.0**k,
        "learning_rate": 0.01, "weight_decay": 0.1, "schedule": "linear", "warmup": 0.1, "parameterisation": "mup",
    }  # fmt: skip
    return FamilyModel.model_validate({k: v for k, v in {**base, **settings}.items() if v is not None})


@pytest.mark.parametrize(
    "settings, verdict, control",
    [
        ({}, "yes", None),
        ({"weight_decay": 0.1 * 1.14}, "yes", None),
        ({"weight_decay": 0.1 * 1.16}, "nearly", "timescale"),
        ({"weight_decay": 0.1 * 1.49}, "nearly", "timescale"),
        ({"weight_decay": 0.1 * 1.51}, "no", "timescale"),
        ({"tokens_per_param": 20 * 1.16, "batch_tokens": 4e6 * 1.16}, "nearly", "tokens per parameter"),
        ({"tokens_per_param": 20 * 1.51, "batch_tokens": 4e6 * 1.51}, "no", "tokens per parameter"),
        ({"warmup": 0.119}, "yes", None),
        ({"warmup": 0.121}, "nearly", "warmup"),
        ({"schedule": "cosine"}, "no", "schedule"),
        ({"decay_frac": 0.5}, "no", "schedule"),
        ({"embeddings": "not counted"}, "no", "parameters"),
        ({"weight_decay": None}, "cannot tell", "timescale"),
        ({"weight_decay": 0.0}, "no", "timescale"),
        ({"batch_tokens": 8e6}, "no", "timescale"),
        ({"learning_rate": None, "weight_decay": 0.001, "convention": "independent"}, "yes", None),
        ({"learning_rate": None, "weight_decay": None, "timescale": 0.5}, "yes", None),
        ({"warmup": None, "warmup_tokens": 0.1 * 20 * 4e8}, "yes", None),
        ({"warmup": None, "warmup_steps": 200}, "yes", None),
    ],
)
def test_one_model_that_differs_is_named_with_what_differs(settings, verdict, control):
    counted = {"embeddings": "counted"}
    family = [model(k, **counted | (settings if k == 2 else {})) for k in range(4)]
    (check,) = check_family(family)
    row = check.rows[2]
    if verdict == "yes":
        assert check.verdict == "yes", check.findings
    assert row.verdict == verdict and check.rows[0].verdict == "reference"
    assert all(r.verdict == "yes" for k, r in enumerate(check.rows) if k in (1, 3))
    assert (control is None) == (verdict == "yes")
    if control is not None:
        assert control in {f.control for f in check.findings}


def test_the_reference_is_what_most_agree_with_not_the_smallest():
    (check,) = check_family([model(0, weight_decay=1.0), model(1), model(2), model(3)])
    assert [r.verdict for r in check.rows] == ["no", "reference", "yes", "yes"]


@given(st.floats(1e-4, 1e-1), st.floats(1e-3, 1.0), st.floats(1e5, 1e7), st.floats(10.0, 300.0))
def test_both_conventions_are_the_same_run(rate, decay, batch, tpp):
    shared = {"learning_rate": rate, "batch_tokens": batch, "tokens_per_param": tpp}
    multiplied = controls(model(0, weight_decay=decay, **shared).config)
    independent = controls(model(0, weight_decay=rate * decay, convention="independent", **shared).config)
    assert independent.timescale == pytest.approx(multiplied.timescale)
    assert multiplied.timescale == pytest.approx(batch / (rate * decay * tpp * 1e8))
    told = controls(model(0, weight_decay=None, timescale=multiplied.timescale, **shared).config)
    assert told.timescale == pytest.approx(multiplied.timescale)


ONE = """
N = 1e8
D = 2e9
"""


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "holds no models"),
        ("models = 3", "models must be tables"),
        ("models = [", "not a TOML file"),
        ("[[models]]\nD = 1e9", "model 1: n_params is required and missing"),
        (f"[[models]]{ONE}lamda = 0.1", "lamda is not a known key; did you mean lambda?"),
        (f"[[models]]{ONE}B = -1.0", "batch_tokens is -1.0"),
        (f"[[models]]{ONE}lambda = -0.1", "weight_decay is -0.1"),
        (f"[[models]]{ONE}lambda = 0.1", "learning_rate is missing"),
        (f"[[models]]{ONE}tokens_per_param = 20", "give one of tokens and tokens_per_param"),
        ("[[models]]\nN = 1e8", "give one of tokens and tokens_per_param"),
        (f"[[models]]{ONE}timescale = 0.1", "batch_tokens is missing"),
        (f"[[models]]{ONE}timescale = 0.1\nlambda = 0.1\nB = 1e6\neta = 1.0", "not both"),
        (f"[[models]]{ONE}schedule = 'cosin'", "schedule is 'cosin'"),
        (f"[[models]]{ONE}convention = 'coupled'", "convention is 'coupled'"),
        (f"[[models]]{ONE}warmup = 0.1\nwarmup_tokens = 1e6", "one of warmup"),
        (f"[[models]]{ONE}warmup_steps = 10", "warmup_steps needs batch_tokens"),
        (f"[[models]]{ONE}warmup_tokens = 3e9", "longer than all of it"),
        (f"[[models]]{ONE}name = 'a'\n[[models]]{ONE}name = 'a'", "two models are called 'a'"),
    ],
)
def test_a_bad_file_is_one_message(tmp_path, text, words):
    path = tmp_path / "family.toml"
    path.write_text(text)
    with pytest.raises(OnecurveError) as error:
        read_family(path)
    assert str(error.value).startswith(str(path)) and words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bad_table_is_one_message(tmp_path):
    path = tmp_path / "family.csv"
    path.write_text("name,N,D\na,1e8\n")
    with pytest.raises(OnecurveError, match="row 1 does not have as many cells"):
        read_family(path)
    path.write_text("name,N,D\na,big,1e9\n")
    with pytest.raises(OnecurveError, match="a: n_params is 'big'"):
        read_family(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OnecurveError, match="not text"):
        read_family(path)
    with pytest.raises(OnecurveError, match="cannot be read"):
        read_family(tmp_path / "none.csv")


def test_a_recipe_is_not_a_family(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("[ladder]\nwidths = [64]\n")
    assert not is_family(path) and not is_family(tmp_path / "none.toml")
    assert is_family(FAMILIES / "llama-2.toml") and is_family(FAMILIES / "celerity.csv")
