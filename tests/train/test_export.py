"""A trained run as a folder that transformers loads: the same logits, and generation that works."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from onecurve.cli import app
from onecurve.plan.recipe import Recipe
from onecurve.plan.shape import PRESETS
from onecurve.train.export import export_huggingface, find_trained, load_weights
from onecurve.train.ladder import train_ladder

pytestmark = pytest.mark.slow
MODELS = {
    "alibi and squared relu": {},
    "alibi and swiglu, untied": {"activation": "swiglu", "tied": False},
    "learned positions, gelu, layer norm, tied": {
        "positions": "learned",
        "activation": "gelu",
        "norm": "layer",
        "norm_gain": True,
        "tied": True,
    },
    "multipliers and normed queries": {"qk_norm": True, "input_multiplier": 3.0, "output_multiplier": 0.5},
} | {f"the {preset} family": {"preset": preset} for preset in PRESETS}


@pytest.fixture
def trained(tmp_path, request):
    model = {"kind": "transformer", "context": 48, "head_size": 8} | request.param
    recipe = Recipe.model_validate(
        {
            "task": {"kind": "tokens"},
            "model": model,
            "ladder": {
                "sizes": [{"name": "a", "width": 32, "layers": 2, "steps": 20}],
                "base_width": 16,
                "base_head_size": 8,
                "base_layers": 1,
                "parameterisations": ["completep"],
                "seeds": 1,
            },
            "optimiser": {"learning_rate": 0.01, "batch": 240, "weight_decay": 0.1},
            "schedule": {"shape": "linear", "warmup": 0.1},
            "evaluation": {"points": 4, "samples": 960},
        }
    )
    train_ladder(recipe, tmp_path / "ladder", lambda state: None, workers=1)
    return tmp_path / "ladder" / "runs" / "completep-a-seed-0"


@pytest.mark.parametrize("trained", MODELS.values(), ids=MODELS, indirect=True)
def test_logits_and_greedy_text_are_ours(trained, tmp_path):
    transformers = pytest.importorskip("transformers")
    export_huggingface(trained, tmp_path / "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", trust_remote_code=True).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "def collapse(runs):\n    \tué"
    ids = torch.tensor([list(text.encode())])
    assert words(text, return_tensors="pt").input_ids.tolist() == ids.tolist()
    assert words.decode(ids[0]) == text
    ours = load_weights(find_trained(trained))
    with torch.no_grad():
        logits = ours(ids)
        assert (theirs(ids).logits - logits).abs().max() < 1e-5
        want = ids
        for _ in range(8):
            want = F.pad(want, (0, 1), value=int(ours(want)[0, -1].argmax()))
        kept = theirs.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None)
    assert kept.tolist() == want.tolist()


def test_the_bands_of_a_recipe_are_families(tmp_path):
    recipe = Recipe.model_validate(
        {
            "task": {"kind": "tokens"},
            "model": {"kind": "transformer", "context": 16, "head_size": 8},
            "ladder": {"sizes": [{"width": 8, "layers": 1}], "base_width": 8, "base_layers": 1, "seeds": 1},
            "optimiser": {"learning_rate": 0.01, "batch": 256, "weight_decay": 0.1},
            "schedule": {"shape": "linear"},
            "horizon": {"bands": [0.5, 1.0]},
            "evaluation": {"points": 4, "samples": 256},
        }
    )
    train_ladder(recipe, tmp_path, lambda state: None, workers=1)
    facts = [find_trained(run).facts() for run in sorted((tmp_path / "runs").iterdir())]
    assert {f["family"].rpartition(", ")[2] for f in facts} == {"0.5 TPP", "1 TPP"}
    assert sorted(f["tokens"] / f["n_params"] for f in facts) == pytest.approx([0.5, 1.0], abs=0.06)


@pytest.mark.parametrize("trained", [{}], indirect=True)
def test_the_command_line_says_what_is_wrong(trained, tmp_path):
    def said(*words):
        result = CliRunner().invoke(app, ["export", *map(str, words)])
        assert result.exit_code != 0
        return " ".join(f"{result.exception} {result.output}".split())

    assert "not a run directory" in said(tmp_path, tmp_path / "out")
    assert "--to is 'gguf'; accepted: huggingface" in said(trained, tmp_path / "out", "--to", "gguf")
    assert "not a tokenizers file" in said(trained, tmp_path / "out", "--tokenizer", trained / "run.json")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "is not empty" in said(trained, tmp_path / "full")
    (trained / "run.json").write_text("{")
    assert "not a run.json of onecurve" in said(trained, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*.part"))
