"""Every published family at toy size, trained for a moment and exported: how far logits are from ours, and greedy text.

python benchmarks/export_presets.py      # a minute; needs onecurve[huggingface]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from onecurve.plan.recipe import Recipe
from onecurve.plan.shape import PRESETS
from onecurve.train.export import export_huggingface, find_trained, load_weights
from onecurve.train.ladder import train_ladder

CONTEXT, NEW = 64, 32
TEXT = "def collapse(runs):\n    return"


def toy(preset: str) -> Recipe:
    """The family's own settings, but for width, depth, heads and context."""
    return Recipe.model_validate(
        {
            "task": {"kind": "tokens"},
            "model": {"kind": "transformer", "preset": preset, "context": CONTEXT, "head_size": 8},
            "ladder": {
                "sizes": [{"name": "toy", "width": 32, "layers": 3, "steps": 20}],
                "base_width": 16,
                "base_head_size": 8,
                "base_layers": 1,
                "parameterisations": ["completep" if preset == "celerity" else "mup"],
                "seeds": 1,
            },
            "optimiser": {"learning_rate": 0.02, "batch": 4 * CONTEXT, "weight_decay": 0.1},
            "schedule": {"shape": "linear", "warmup": 0.1},
            "evaluation": {"points": 4, "samples": 512},
        }
    )


def measured(preset: str, folder: Path) -> tuple[float, float, bool]:
    """Largest distance of a logit from ours, the largest logit, and whether the greedy text is the same."""
    recipe = toy(preset)
    train_ladder(recipe, folder / "ladder", lambda state: None, workers=1)
    (run,) = (folder / "ladder" / "runs").iterdir()
    export_huggingface(run, folder / "hf")
    theirs = AutoModelForCausalLM.from_pretrained(folder / "hf", trust_remote_code=True).eval()
    ours = load_weights(find_trained(run))
    ids = torch.tensor([list(TEXT.encode())])
    with torch.no_grad():
        logits = ours(ids)
        distance = float((theirs(ids).logits - logits).abs().max())
        want = ids
        for _ in range(NEW):
            want = F.pad(want, (0, 1), value=int(ours(want)[0, -1].argmax()))
        got = theirs.generate(ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    return distance, float(logits.abs().max()), got.tolist() == want.tolist()


def main() -> None:
    logging.disable_progress_bar()
    for preset in PRESETS:
        with tempfile.TemporaryDirectory() as folder:
            distance, largest, same = measured(preset, Path(folder))
        words = "the same" if same else "another"
        print(f"{preset:14} largest distance {distance:.1e} of logits up to {largest:.2f}; {words} {NEW} greedy tokens")


if __name__ == "__main__":
    main()
