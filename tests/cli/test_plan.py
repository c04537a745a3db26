"""``onecurve plan`` as a user meets it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onecurve.cli import app
from onecurve.plan.recipe import load_recipe

from .test_collapse import onecurve

FAMILIES = Path(__file__).parent.parent.parent / "examples" / "families"


def lines(*arguments: object, code: int = 0) -> str:
    """What is printed, line by line as it stands."""
    done = CliRunner().invoke(app, list(map(str, arguments)), env={})
    assert done.exit_code == code, done.output
    return done.output


RECIPE = """
[task]
kind = "tokens"

[model]
preset = "celerity"

[ladder]
sizes = [{ name = "300M" }, { name = "3.9B" }]
base_width = 640
base_layers = 13
parameterisations = ["completep"]

[optimiser]
learning_rate = 0.15
timescale = "celerity"
warmup_tokens = 375e6

[schedule]
shape = "linear"
warmup = 0.1

[horizon]
bands = [20.0, 400.0]
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_plan_is_printed_whole_at_usual_widths(recipe, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    said = lines("plan", recipe)
    assert "…" not in said and max(map(len, said.splitlines())) <= int(columns)
    words = ("Runs at 20 tokens a parameter, τ = 0.175", "14,099", "0.0469", "6 N + 12 L S d", "* 300M at 400")
    for w in words:
        assert w in said


def test_everything_is_written_and_the_ladder_is_a_recipe(recipe, tmp_path):
    out, table, data = tmp_path / "ladder.toml", tmp_path / "plan.md", tmp_path / "plan.json"
    assert onecurve("plan", recipe, "-o", out, "--markdown", table, "--json", data, "--utilisation", "0.5").code == 0
    assert all(size["steps"] > 0 for size in tomllib.loads(out.read_text())["ladder"]["sizes"])
    assert load_recipe(out).ladder.sizes[0].name == "300M-20-tpp"
    assert table.read_text().startswith("### Sizes")
    told = json.loads(data.read_text())
    assert [r["name"] for r in told["rungs"]] == ["300M", "3.9B"] * 2
    first = told["rungs"][0]
    assert first["device_hours"] == pytest.approx(first["flops_with_attention"] / (989e12 * 0.5) / 3600)
    assert json.loads(onecurve("plan", recipe, "--json", "-", "--utilisation", "0.5").out) == told
    assert lines("plan", recipe, "--markdown", "-", "--utilisation", "0.5") == table.read_text()


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("bands = [20.0, 400.0]", "bands = [0.5, 400.0]", "has 94 steps; a rung needs at least 200"),
        ('timescale = "celerity"', "weight_decay = 0.0", "no weight decay"),
        ('timescale = "celerity"', "weight_decay = -0.1", "optimiser.weight_decay is -0.1"),
        ('timescale = "celerity"', 'timescale = "celerity"\nweight_decay = 0.1', "weight_decay or timescale, not both"),
        ('timescale = "celerity"', "timescale = 0.0", "optimiser.timescale is 0.0"),
        ("bands = [20.0, 400.0]", "band = [20.0, 400.0]", "horizon.band is not a known key; did you mean bands?"),
        ("bands = [20.0, 400.0]", "tokens_per_param = -1.0", "above 0"),
        ("base_layers = 13", "base_layer = 13", "ladder.base_layer is not a known key; did you mean base_layers?"),
        (
            "warmup_tokens = 375e6",
            "critical_batch = { batch = 1024000, tokens = 5e9, exponent = 0.462 }",
            "is above the critical one",
        ),
        (
            'sizes = [{ name = "300M" }, { name = "3.9B" }]',
            "params = [1e7]\naspect = 64",
            "no shape with heads of 64 and about 64 of width a layer comes within 5 % of 10M parameters",
        ),
        ('sizes = [{ name = "300M" }, { name = "3.9B" }]', 'params = "1e9"\naspect = 64', "ladder.params"),
        ('sizes = [{ name = "300M" }, { name = "3.9B" }]', "params = [3e8]\naspect = 0", "ladder.aspect is 0"),
    ],
)
def test_a_plan_that_cannot_be_is_one_message_and_nothing_written(tmp_path, old, new, words):
    path, out = tmp_path / "recipe.toml", tmp_path / "ladder.toml"
    assert old in RECIPE
    path.write_text(RECIPE.replace(old, new))
    said = onecurve("plan", path, "-o", out, "--markdown", tmp_path / "plan.md", "--json", tmp_path / "plan.json")
    assert said.code == 2 and said.err.startswith(f"onecurve: {path}: ") and words in said.err, said.err
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("flags, words", [(("--utilisation", "1.5"), "--utilisation"), (("--peak", "0"), "--peak")])
def test_a_flag_out_of_range_is_one_message(recipe, flags, words):
    said = onecurve("plan", recipe, *flags)
    assert said.code == 2 and said.err.startswith(f"onecurve: {words}")


@pytest.mark.parametrize(
    "name, code, words",
    [
        ("llama-2.toml", 1, ["fails: tokens per parameter", "70B: timescale 0.133, not 0.0667", "ought not to"]),
        ("celerity.csv", 0, ["warns: warmup", "they ought to collapse", "They ought to collapse but for"]),
        ("fixed-decay.toml", 1, ["fails: timescale", "reference"]),
        ("olmo-core.csv", 0, ["0.646", "they ought to collapse"]),
    ],
)
def test_families_that_there_are(monkeypatch, tmp_path, name, code, words):
    monkeypatch.setenv("COLUMNS", "80")
    said = lines("check", "family", FAMILIES / name, "--json", tmp_path / "family.json", code=code)
    assert all(w in said for w in words), said
    assert "…" not in said and max(map(len, said.splitlines())) <= 120
    told = json.loads((tmp_path / "family.json").read_text())["families"]
    assert any(f["verdict"] == "no" for f in told) == bool(code)
    assert json.loads(lines("check", "family", FAMILIES / name, "--json", "-", code=code)) == {"families": told}


def test_bands_of_a_recipe_are_families_of_their_own(recipe):
    said = lines("check", "family", recipe)
    assert said.count("completep, ") == 2 and "fails" not in said


def test_a_bad_family_is_one_message(tmp_path):
    path = tmp_path / "family.toml"
    path.write_text("[[models]]\nN = 1e8\nD = 2e9\nlamda = 0.1\n")
    said = onecurve("check", "family", path)
    assert said.code == 2 and said.err.startswith(f"onecurve: {path}: model 1: lamda is not a known key")
    assert "Traceback" not in onecurve("check", "family", tmp_path / "none.toml").err


def test_the_trade_off_is_a_table_and_a_figure(recipe, tmp_path):
    said = lines("plan", recipe, "--trade-off", "--figure", tmp_path / "trade.png")
    assert "this plan's 400" in said and "compute ×" in said
    assert (tmp_path / "trade.png").stat().st_size > 10_000
    assert "compute ×" not in lines("plan", recipe)
