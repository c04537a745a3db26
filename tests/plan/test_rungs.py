"""The plan of a family: every rung against the published tables, and what is refused or marked."""

import json

import numpy as np
import pytest

from onecurve import OnecurveError
from onecurve.plan.compression import share_at, tokens_factor, trade_off
from onecurve.plan.recipe import Recipe, dump_recipe, resolve
from onecurve.plan.rungs import rungs
from onecurve.plan.words import markdown, remarks, tables

from .test_rules import CELERITY, celerity

# arXiv 2509.25087, tables 2 and 6: width, layers, heads, head size, N, FLOPs at 234 TPP.
SHAPES = {
    "300M": (640, 13, 10, 64, 2.71e8, 1.47e20),
    "500M": (896, 17, 14, 64, 5.03e8, 5.15e20),
    "900M": (1152, 23, 9, 128, 9.06e8, 1.68e21),
    "1.8B": (1536, 30, 12, 128, 1.81e9, 6.54e21),
    "3.9B": (2048, 40, 16, 128, 3.88e9, 2.89e22),
}


def recipe(**changes) -> Recipe:
    content = {
        "task": {"kind": "tokens"},
        "model": changes.get("model", {"kind": "transformer", "vocabulary": 1024, "head_size": 16}),
        "ladder": {"sizes": [{"width": 64, "layers": 4}, {"width": 128, "layers": 4}], "base_width": 64},
        "optimiser": {"learning_rate": 0.01, "batch": 8192, "timescale": 0.2},
        "schedule": {"shape": "linear", "warmup": 0.1},
        "horizon": {"tokens_per_param": 20.0},
    }
    for section in ("ladder", "optimiser", "horizon", "schedule"):
        content[section] |= changes.get(section, {})
        content[section] = {k: v for k, v in content[section].items() if v is not None}
    return Recipe.model_validate(content)


def test_celeritys_table_to_its_printed_digits():
    planned = rungs(celerity())
    assert [(r.band, r.name) for r in planned] == [(b, name) for b in (20.0, 80.0, 234.0) for name in SHAPES]
    for r in planned:
        width, layers, heads, head_size, n, flops = SHAPES[r.name]
        assert (r.width, r.layers, r.heads, r.head_size) == (width, layers, heads, head_size)
        assert float(f"{r.n_params:.2e}") == n
        assert r.sequences == CELERITY[r.name][0] and r.batch == 8192 * r.sequences
        assert r.tokens / 1e9 == pytest.approx(CELERITY[r.name][1 + [20.0, 80.0, 234.0].index(r.band)], rel=5e-3)
        assert round(r.timescale, 3) == {20.0: 0.175, 80.0: 0.087, 234.0: 0.051}[r.band]
        # "min(10 % of tokens, 375M tokens)"
        assert r.warmup == pytest.approx(min(0.1, 375e6 / r.tokens), rel=1e-12)
        if r.band == 234.0:
            assert r.flops_with_attention == pytest.approx(flops, rel=0.06)
        assert r.flops == 6.0 * r.n_params * r.tokens < r.flops_with_attention
        assert not r.notes


def test_flops_and_hours_are_the_printed_formula():
    r = rungs(celerity())[0]
    exact = (6 * r.n_params + 12 * 13 * 8192 * 640) * r.tokens
    assert r.flops_with_attention == exact
    assert r.hours(989e12, 0.4) == pytest.approx(exact / (989e12 * 0.4) / 3600)
    assert r.n_params - r.n_without_embeddings == 2 * 128256 * 640


def test_what_is_applied_to_each_role_and_its_multipliers():
    large = next(r for r in rungs(celerity()) if r.name == "3.9B")
    m, depth = 2048 / 640, 40 / 13
    of = {g.role: g for g in large.groups}
    assert of["hidden"].learning_rate == pytest.approx(0.15 / m)
    assert of["hidden"].weight_decay == pytest.approx(m * of["embedding"].weight_decay)
    assert of["embedding"].learning_rate == of["readout"].learning_rate == of["final norm"].learning_rate == 0.15
    assert of["block norm"].eps == of["hidden"].eps == pytest.approx(1e-12 / (m * depth))
    assert large.multipliers.branch == pytest.approx(1 / depth)
    assert large.multipliers.output == pytest.approx(1 / m)
    assert large.multipliers.init_std is None
    # tau = B / (eta lambda D) of every role with decay is the rung's.
    for role in ("embedding", "hidden", "readout"):
        g = of[role]
        assert large.batch / (g.learning_rate * g.weight_decay * large.tokens) == pytest.approx(large.timescale)


def gpt2(**changes) -> Recipe:
    """A sweep of arXiv 2509.25087, figure 3: 610M at 80 TPP, base rate .0162 tuned at width 256."""
    return recipe(
        model={"preset": "gpt2"},
        ladder={"sizes": [{"name": "610M"}], "base_width": None},
        horizon={"tokens_per_param": 80.0},
        optimiser={"learning_rate": 1.62e-2, "timescale": None, "weight_decay": 0.1, "batch": 504 * 2048} | changes,
    )


FIGURE_3 = (0.026, 0.053, 0.105, 0.210, 0.421)


@pytest.mark.parametrize("k", range(5))
def test_figure_3s_five_timescales_by_each_of_its_three_ways(k):
    by_batch = rungs(gpt2(batch=126 * 2**k * 2048))[0]
    by_rate = rungs(gpt2(learning_rate=6.48e-2 / 2**k))[0]
    by_decay = rungs(gpt2(weight_decay=0.4 / 2**k))[0]
    # A factor 2 from each to the next; the printed .421 has the most digits.
    for r in (by_batch, by_rate, by_decay):
        assert r.timescale == pytest.approx(0.421 * 2.0 ** (k - 4), rel=5e-3)
        assert r.timescale == pytest.approx(FIGURE_3[k], abs=6e-4)


def test_the_gpt2_family_has_the_papers_parameter_counts():
    names = {"111M": 1.11e8, "266M": 2.66e8, "610M": 6.1e8, "1.7B": 1.7e9, "3.3B": 3.3e9}
    planned = rungs(
        recipe(
            model={"preset": "gpt2"},
            ladder={"sizes": [{"name": name} for name in names], "base_width": None},
            optimiser={"batch": 516096},
        )
    )
    for r, (name, n) in zip(planned, names.items(), strict=True):
        assert r.name == name and r.n_params == pytest.approx(n, rel=0.025)
        # Its decay stays as it is while the rate falls with width, so it is solved for the hidden matrices.
        assert r.timescale == pytest.approx(0.2)
        assert r.group("hidden").weight_decay == r.group("embedding").weight_decay
        assert any("embedding has another timescale" in note for note in r.notes)


def test_one_timescale_cannot_hold_for_two_parameterisations_with_unscaled_decay():
    both = recipe(ladder={"parameterisations": ["mup", "standard"]}, optimiser={"scale_weight_decay": False})
    with pytest.raises(OnecurveError, match="cannot hold for mup and standard together"):
        rungs(both)


def test_what_rounding_did_is_the_change_of_batch_over_tokens():
    r = rungs(recipe(optimiser={"batch": {"batch": 5000, "tokens": 7e6, "exponent": 0.5}}))[0]
    asked = 20.0 * r.n_params
    assert r.batch % 128 == 0 and r.batch != r.batch_asked
    assert r.batch_asked == pytest.approx(5000 * (asked / 7e6) ** 0.5)
    assert 1.0 + r.rounding == pytest.approx((r.batch / r.tokens) / (r.batch_asked / asked))
    assert r.rounding != 0.0 and r.timescale == pytest.approx(0.2, rel=1e-12)


def test_extrapolation_is_marked():
    rule = {"timescale": "power-lines", "batch": 1024}
    outside = rungs(recipe(optimiser=rule, horizon={"tokens_per_param": [10.0, 20.0]}))
    assert ["extrapolation" in " ".join(r.notes) for r in outside] == [True, False]
    far = rungs(recipe(optimiser={"batch": {"batch": 1024, "tokens": 1e5, "exponent": 0.383}}))[0]
    assert "its batch is an extrapolation: it was tuned at 100K tokens" in far.notes


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"optimiser": {"batch": 131072}}, "has 50 steps; a rung needs at least 200"),
        ({"optimiser": {"timescale": None, "weight_decay": 0.0}}, "no weight decay, so its timescale is infinite"),
        ({"optimiser": {"timescale": None}}, "no weight decay, so its timescale is infinite"),
        (
            {"optimiser": {"critical_batch": {"batch": 1024, "tokens": 7e6, "exponent": 0.462}}},
            "above the critical one",
        ),
        ({"ladder": {"sizes": None, "params": [1e5], "aspect": 16.0}}, "no shape with heads of 16 and about 16"),
        ({"ladder": {"sizes": None, "params": [1e6]}}, "ladder.aspect is missing"),
        ({"ladder": {"sizes": None, "params": [1e6, 1.01e6], "aspect": 16.0}}, "same nearest shape"),
        ({"ladder": {"params": [1e6]}}, "give one of sizes, widths or params"),
        ({"ladder": {"sizes": None}}, "give one of sizes, widths or params"),
        ({"ladder": {"aspect": 16.0}}, "aspect goes with params"),
        ({"ladder": {"sizes": None, "params": [-1e6], "aspect": 16.0}}, "greater than 0"),
        ({"ladder": {"sizes": None, "params": {"smallest": 1e6, "count": 3}, "aspect": 16.0}}, "largest"),
    ],
)
def test_what_cannot_be_planned_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        rungs(recipe(**changes))


def test_sizes_by_parameter_count_keep_the_aspect_and_come_within_5_per_cent():
    asked = {"smallest": 1e6, "largest": 1e10, "count": 20}
    planned = rungs(
        recipe(
            ladder={"sizes": None, "params": asked, "aspect": 16.0},
            optimiser={"batch": {"batch": 1024, "tokens": 1e7, "exponent": 0.5}},
        )
    )
    assert len(planned) == 20
    for k, r in enumerate(planned):
        assert r.n_params == pytest.approx(1e6 * 1e4 ** (k / 19), rel=0.05)
        assert 16.0 / 1.25 <= r.width / r.layers <= 16.0 * 1.25 or r.layers <= 2
        assert r.width % 16 == 0


def test_mlps_are_planned_by_parameter_count_too():
    content = {
        "task": {"kind": "fourier", "dimension": 8},
        "model": {"kind": "mlp"},
        "ladder": {"params": [1e5, 1e6], "base_width": 64},
        "optimiser": {"learning_rate": 0.001, "batch": 256, "timescale": 0.1},
        "schedule": {},
        "horizon": {"tokens_per_param": 20.0},
    }
    planned = rungs(Recipe.model_validate(content))
    assert [r.n_params for r in planned] == [pytest.approx(n, rel=0.05) for n in (1e5, 1e6)]
    assert all(r.flops == r.flops_with_attention and r.layers is r.sequences is None for r in planned)
    content["ladder"]["aspect"] = 16.0
    with pytest.raises(ValueError, match="aspect is for transformers"):
        Recipe.model_validate(content)


def test_a_resolved_recipe_plans_the_same_rungs():
    chosen = celerity()
    again = rungs(Recipe.model_validate(resolve(chosen).model_dump(exclude_none=True)))
    for first, second in zip(rungs(chosen), again, strict=True):
        assert {k: v for k, v in first.to_dict().items() if k not in ("rounding", "batch_asked")} == {
            k: v for k, v in second.to_dict().items() if k not in ("rounding", "batch_asked")
        }
    assert "params" not in dump_recipe(resolve(chosen))


def test_tables_hold_every_rung_and_markdown_repeats_them():
    chosen = celerity()
    planned = rungs(chosen)
    rows, lines = tables(planned, 989e12, 0.4), remarks(chosen, planned, 989e12, 0.4)
    runs = [r for r in rows if r.title.startswith("Runs at")]
    assert [len(r.rows) for r in runs] == [6, 6, 6]
    assert runs[0].rows[0] == ("300M", "5.41B", "1.44M", "176", "3,755", "6.9 %", "0.175", "8.79e18", "1.32e19", "9.3")
    text = markdown(rows, lines)
    assert "| 300M | 5.41B | 1.44M | 176 | 3,755 |" in text and "0.782 TPP^-0.5" in text
    assert json.loads(json.dumps([r.to_dict() for r in planned]))[0]["groups"][1]["role"] == "hidden"


def test_fewer_parameters_cost_more_tokens_as_published():
    # arXiv 2509.25087, appendix C.1: k_N = .38 gives 1.66 to 1.67 times the compute, and 230 to 234 tokens a parameter.
    k = float(tokens_factor(0.38))
    assert 1.655 <= 0.38 * k <= 1.67 and 230 <= round(20 * k / 0.38) <= 234
    assert tokens_factor(1.0) == 1.0 and np.isinf(tokens_factor(2 ** (-1 / 0.35) - 1e-6))
    # Equal loss: k_N^-a + k_D^-a = 2.
    for share in (0.9, 0.5, 0.2):
        assert share**-0.35 + float(tokens_factor(share)) ** -0.35 == pytest.approx(2.0)
        assert share_at(20 * float(tokens_factor(share)) / share) == pytest.approx(share)
    # Twice the compute again takes only about a tenth of N more.
    twice = min((s for s in np.linspace(0.2, 0.38, 2000) if s * tokens_factor(s) >= 2 * 0.38 * k), key=lambda s: -s)
    assert 0.38 - twice == pytest.approx(0.11, abs=0.03)
    with pytest.raises(OnecurveError, match="fewer than the compute-optimal 20"):
        share_at(10.0)
    (own,) = [row for row in trade_off([80.0]).rows if row[-1]]
    assert own[3] == "80" and own[-1] == "this plan's 80"
