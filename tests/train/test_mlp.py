import pytest
import torch
import torch.nn.functional as F

from onecurve.plan.shape import MLPModel
from onecurve.train import mlp
from onecurve.train.functions import rms_norm, squared_relu
from onecurve.train.mlp import forward, initial


def alone(weights: dict[str, torch.Tensor], i: int, x: torch.Tensor) -> torch.Tensor:
    """Model i written out for one model, in torch's own functions."""
    width = weights["input"].shape[-1]
    blocks = weights["block_in"].shape[1]
    h = x @ weights["input"][i]
    for k in range(blocks):
        a = F.gelu(F.rms_norm(h, (width,)) @ weights["block_in"][i, k])
        h = h + 6.0 / blocks * (a @ weights["block_out"][i, k])
    return (F.rms_norm(h, (width,)) @ weights["readout"][i]).squeeze(-1)


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    w = initial(MLPModel(blocks=3, inputs=4), 10, [0, 1, 2])
    generator = torch.Generator().manual_seed(1)
    for name in ("block_out", "readout"):
        w[name].normal_(0, 0.3, generator=generator)
    return w


def test_batched_models_equal_models_alone(weights):
    x = torch.rand(3, 7, 4)
    for i in range(3):
        torch.testing.assert_close(forward(weights, x)[i], alone(weights, i, x[i]), rtol=1e-5, atol=1e-6)


def test_batched_gradients_equal_gradients_alone(weights):
    x, y = torch.rand(3, 7, 4), torch.rand(3, 7)
    for w in weights.values():
        w.requires_grad_(True)
    loss = (forward(weights, x) - y).square().sum()
    together = torch.autograd.grad(loss, list(weights.values()))
    apart = torch.autograd.grad(
        sum((alone(weights, i, x[i]) - y[i]).square().sum() for i in range(3)), list(weights.values())
    )
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_rms_norm_and_its_gradient_equal_torchs():
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    g = torch.randn(3, 5, 7, dtype=torch.float64)
    ours, theirs = rms_norm(x), F.rms_norm(x, (7,))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, x, g), torch.autograd.grad(theirs, x, g))


def test_squared_relu_and_its_gradient_equal_the_formula():
    x = torch.randn(40, dtype=torch.float64, requires_grad=True)
    g = torch.randn(40, dtype=torch.float64)
    ours, theirs = squared_relu(x), F.relu(x).square()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, x, g), torch.autograd.grad(theirs, x, g))


def test_a_models_start_does_not_depend_on_its_neighbours():
    shape = MLPModel(blocks=2, inputs=3)
    together, single = initial(shape, 6, [5, 9]), initial(shape, 6, [9])
    for name in together:
        torch.testing.assert_close(together[name][1], single[name][0], rtol=0, atol=0)


def test_every_model_starts_as_the_zero_function():
    w = initial(MLPModel(blocks=2, inputs=3), 6, [0])
    assert torch.count_nonzero(forward(w, torch.rand(1, 9, 3))) == 0


@pytest.mark.parametrize("width, expected", [(384, 1_478_016), (2048, 41_961_472)])
def test_parameter_count_equals_the_published_one(width, expected):
    # 10 D^2 + 9 D at five blocks and eight inputs
    assert MLPModel(blocks=5, inputs=8).n_params(width) == expected
    w = initial(MLPModel(blocks=2, inputs=3), 6, [0])
    assert MLPModel(blocks=2, inputs=3).n_params(6) == sum(t.numel() for t in w.values())


def test_every_tensor_has_a_role():
    assert mlp.ROLES.keys() == initial(MLPModel(), 4, [0]).keys()
