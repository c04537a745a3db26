import pytest

from onecurve.train.recipe import Recipe

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
            "horizon": {"samples_per_param": 8.0},
            "evaluation": {"points": 8, "samples": 64},
        }
    )
