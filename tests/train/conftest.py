import numpy as np
import pytest

from onecurve.data.shards import write_shards
from onecurve.plan.recipe import Recipe

torch = pytest.importorskip("torch", reason="the trainer's tests need torch (pip install 'onecurve[train]')")


@pytest.fixture
def recipe() -> Recipe:
    """Two widths, two seeds, both parameterisations, a few hundred steps in all."""
    return Recipe.model_validate(
        {
            "task": {"dimension": 2, "modes": 50},
            "model": {"blocks": 2, "inputs": 2},
            "ladder": {
                "widths": [8, 12],
                "base_width": 8,
                "seeds": 2,
                "parameterisations": ["mup", "standard"],
                "shared_data_widths": [8],
            },
            "optimiser": {"learning_rate": 0.01, "batch": 16, "weight_decay": 0.1},
            "schedule": {"shape": "linear", "warmup": 0.1},
            "horizon": {"tokens_per_param": 8.0},
            "evaluation": {"points": 8, "samples": 64},
        }
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A small corpus of two alternating words, with some noise, as byte shards."""
    rng = np.random.default_rng(0)
    documents = [
        rng.choice(np.frombuffer(b"abcdefgh", np.uint8), 400, p=[0.5, 0.2, 0.1, 0.05, 0.05, 0.05, 0.03, 0.02])
        for _ in range(400)
    ]
    return write_shards(tmp_path_factory.mktemp("corpus") / "shards", documents, "eight letters", vocabulary=256)


def language_recipe(corpus, **changes) -> Recipe:
    """Two tiny transformers under CompleteP, a few dozen steps each; ``changes`` replace values by "section.key"."""
    content = {
        "task": {"kind": "tokens", "data": str(corpus.path)},
        "model": {"kind": "transformer", "vocabulary": 128, "context": 16, "head_size": 8},
        "ladder": {
            "sizes": [
                {"name": "small", "width": 16, "layers": 2, "steps": 24},
                {"name": "large", "width": 32, "layers": 4, "steps": 12},
            ],
            "base_width": 16,
            "base_layers": 2,
            "parameterisations": ["completep"],
        },
        "optimiser": {"learning_rate": 0.01, "batch": 128, "timescale": 0.2, "clip": 1.0},
        "schedule": {"shape": "linear", "warmup": 0.1},
        "evaluation": {"points": 6, "samples": 256},
    }
    for path, value in changes.items():
        section, key = path.split(".")
        content[section][key] = value
    return Recipe.model_validate(content)


def never() -> bool:
    """No wish to stop."""
    return False


def ignore(*_: object) -> None:
    """Progress that nobody looks at."""


def metrics(out):
    """The bytes of every metrics.jsonl under a folder, by run."""
    return {p.parent.name: p.read_bytes() for p in sorted(out.rglob("metrics.jsonl"))}
