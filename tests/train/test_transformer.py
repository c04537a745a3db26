import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from onecurve.plan.parameterisation import Factors, factors
from onecurve.plan.recipe import jobs
from onecurve.plan.shape import PRESETS, Size, TransformerModel, transformer_shape
from onecurve.train import transformer
from onecurve.train.transformer import Transformer, build, initialise, role

from .conftest import language_recipe


def made(model: TransformerModel, size: Size, std: float = 0.3) -> Transformer:
    net = Transformer(transformer_shape(model, size))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in net.parameters():
            p.normal_(0, std, generator=generator)
    return net


def written_out(net: Transformer, ids: torch.Tensor) -> torch.Tensor:
    """The same model for one sequence, head by head, in plain formulas."""
    m, shape = net.shape.model, net.shape
    p = dict(net.named_parameters())

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True) if m.norm == "layer" else x
        y = centred / (centred.square().mean(-1, keepdim=True) + m.norm_eps).sqrt()
        return y * p[f"{name}.gain"] if m.norm_gain else y

    x = p["embedding"][ids]
    if m.positions == "learned":
        x = x + p["positions"][: len(ids)]
    x = x * m.input_multiplier
    at = torch.arange(len(ids))
    for k in range(shape.layers):
        b = f"blocks.{k}"
        heads = []
        q, k_, v = (norm(x, f"{b}.attention_norm") @ p[f"{b}.qkv.weight"].T).chunk(3, -1)
        for h in range(shape.heads):
            part = slice(h * shape.head_size, (h + 1) * shape.head_size)
            qh, kh = q[:, part], k_[:, part]
            if m.qk_norm:
                qh = qh / (qh.square().mean(-1, keepdim=True) + m.norm_eps).sqrt()
                kh = kh / (kh.square().mean(-1, keepdim=True) + m.norm_eps).sqrt()
            logits = qh @ kh.T * net.blocks[0].scale
            if m.positions == "alibi":
                logits = logits - 2.0 ** (-8.0 * (h + 1) / shape.heads) * (at[:, None] - at[None, :])
            logits = logits.masked_fill(at[None, :] > at[:, None], -math.inf)
            heads.append(logits.softmax(-1) @ v[:, part])
        x = x + net.blocks[0].multiplier * torch.cat(heads, -1) @ p[f"{b}.attention_out.weight"].T
        inner = norm(x, f"{b}.ffn_norm") @ p[f"{b}.ffn_in.weight"].T
        if m.activation == "swiglu":
            gate, value = inner.chunk(2, -1)
            inner = gate * gate.sigmoid() * value
        elif m.activation == "gelu":
            inner = 0.5 * inner * (1 + torch.erf(inner / 2**0.5))
        else:
            inner = inner.clamp(min=0) ** 2
        x = x + net.blocks[0].multiplier * inner @ p[f"{b}.ffn_out.weight"].T
    out = p["embedding"] if m.tied else p["readout"]
    return net.output_multiplier * norm(x, "final_norm") @ out.T


@pytest.mark.parametrize(
    "positions, activation, norm, gain, qk, tied",
    [
        ("alibi", "squared-relu", "rms", False, False, False),
        ("alibi", "swiglu", "layer", True, False, True),
        ("learned", "gelu", "rms", True, True, False),
        ("learned", "squared-relu", "layer", False, True, True),
    ],
)
def test_the_model_equals_its_formulas(positions, activation, norm, gain, qk, tied):
    model = TransformerModel(
        vocabulary=11,
        context=9,
        positions=positions,
        activation=activation,
        ffn_multiple=1.5,
        head_size=4,
        norm=norm,
        norm_gain=gain,
        qk_norm=qk,
        tied=tied,
        input_multiplier=1.7,
        output_multiplier=0.6,
    )
    net = made(model, Size(width=12, layers=2)).double()
    for block in net.blocks:
        block.multiplier, block.scale = 0.7, 0.4
    ids = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(1))
    for row, one in zip(net(ids), ids, strict=True):
        torch.testing.assert_close(row, written_out(net, one), rtol=1e-6, atol=1e-6)


def test_no_token_sees_a_later_one():
    net = made(TransformerModel(vocabulary=7, context=8, head_size=4), Size(width=8, layers=2))
    ids = torch.randint(7, (1, 8), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[0, 5] = (ids[0, 5] + 1) % 7
    a, b = net(ids), net(changed)
    torch.testing.assert_close(a[0, :5], b[0, :5], rtol=0, atol=0)
    assert (a[0, 5:] != b[0, 5:]).any()


PRESET_SIZES = [(family, name) for family, preset in PRESETS.items() for name in preset.sizes]


@pytest.mark.parametrize("family, name", PRESET_SIZES, ids=str)
def test_the_counted_parameters_are_the_models(family, name):
    model = TransformerModel(**PRESETS[family].model)
    shape = transformer_shape(model, Size(**PRESETS[family].sizes[name]))
    with torch.device("meta"):
        net = Transformer(shape)
    gains = sum(p.numel() for n, p in net.named_parameters() if n.endswith("gain"))
    assert sum(p.numel() for p in net.parameters()) - gains == shape.n_params


def test_every_parameter_has_the_role_that_its_place_says():
    model = TransformerModel(positions="learned", norm_gain=True, head_size=4)
    net = Transformer(transformer_shape(model, Size(width=8, layers=1)))
    roles = {name: role(name) for name, _ in net.named_parameters()}
    assert roles == {
        "embedding": "embedding",
        "positions": "embedding",
        "readout": "readout",
        "blocks.0.attention_norm.gain": "block norm",
        "blocks.0.qkv.weight": "hidden",
        "blocks.0.attention_out.weight": "hidden",
        "blocks.0.ffn_norm.gain": "block norm",
        "blocks.0.ffn_in.weight": "hidden",
        "blocks.0.ffn_out.weight": "hidden",
        "final_norm.gain": "final norm",
    }


def nets(corpus, **changes):
    out = {}
    for job in jobs(language_recipe(corpus, **changes)):
        net = build(job)
        initialise(net, job)
        out[job.name] = (job, net)
    return out


def test_the_base_shape_is_the_standard_model_to_the_bit(corpus):
    made = nets(corpus, **{"ladder.parameterisations": ["completep", "mup", "standard"]})
    ids = torch.randint(128, (2, 16), generator=torch.Generator().manual_seed(0))
    _, standard = made["standard-small-seed-0"]
    for p in ("completep", "mup"):
        job, net = made[f"{p}-small-seed-0"]
        for (name, a), (_, b) in zip(net.named_parameters(), standard.named_parameters(), strict=True):
            assert torch.equal(a, b), name
        assert torch.equal(net(ids), standard(ids))
        groups = [transformer.optimiser(n, j).param_groups for j, n in (made["standard-small-seed-0"], (job, net))]
        for a, b in zip(*groups, strict=True):
            assert {k: v for k, v in a.items() if k != "params"} == {k: v for k, v in b.items() if k != "params"}


def test_initial_weights_depend_on_the_seed_and_name_alone(corpus):
    made = nets(corpus, **{"ladder.seeds": 2})
    again = nets(corpus, **{"optimiser.learning_rate": 0.5})
    a, b = made["completep-large-seed-0"][1], again["completep-large-seed-0"][1]
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    other = made["completep-large-seed-1"][1]
    assert not torch.equal(a.embedding, other.embedding)
    assert not torch.equal(a.blocks[0].qkv.weight, a.blocks[1].qkv.weight)


def test_initial_deviations_are_those_of_the_recipe(corpus):
    changes = {"model.zero_outputs": False, "model.init_std": 0.05, "model.embedding_std": 0.2, "model.head_size": 16}
    changes["ladder.sizes"] = [{"name": "large", "width": 256, "layers": 2, "steps": 2}]
    (_, net) = nets(corpus, **changes)["completep-large-seed-0"]
    assert net.embedding.std().item() == pytest.approx(0.2, rel=0.02)
    # Width 16 times the base: the hidden variance falls by as much, the readout's does not.
    assert net.blocks[0].ffn_out.weight.std().item() == pytest.approx(0.05 / 4, rel=0.02)
    assert net.readout.std().item() == pytest.approx(0.05, rel=0.02)


def test_a_model_with_zero_outputs_starts_with_the_uniform_prediction(corpus):
    (_, net) = nets(corpus)["completep-large-seed-0"]
    logits = net(torch.zeros(1, 16, dtype=torch.int64))
    assert F.cross_entropy(logits.flatten(0, 1), torch.zeros(16, dtype=torch.int64)).item() == pytest.approx(
        math.log(128)
    )


class Standing(nn.Module):
    """An embedding, a hidden matrix and a readout, as the `mup` package wants them."""

    def __init__(self, mup, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        self.hidden = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width, bias=False)
        self.readout = mup.MuReadout(width, 50, bias=False)


@pytest.mark.parametrize("width", [32, 64, 256])
def test_factors_in_width_are_those_of_the_mup_package(width):
    mup = pytest.importorskip("mup", reason="compares against PyPI's mup 1.0.0")
    base, delta, net = (Standing(mup, w) for w in (32, 48, width))
    mup.set_base_shapes(net, base, delta=delta)
    rates = {}
    groups = mup.MuAdamW(net.parameters(), lr=0.01, weight_decay=0.1).param_groups
    for name, p in net.named_parameters():
        (group,) = [g for g in groups if any(p is q for q in g["params"])]
        rates[name] = group["lr"] / 0.01
    m = width / 32
    ours = {of: factors(of, "mup", m) for of in ("embedding", "hidden", "readout", "block norm")}
    assert rates["embedding.weight"] == pytest.approx(ours["embedding"].learning_rate)
    assert rates["hidden.weight"] == pytest.approx(ours["hidden"].learning_rate)
    assert rates["readout.weight"] == pytest.approx(ours["readout"].learning_rate)
    assert rates["norm.weight"] == pytest.approx(ours["block norm"].learning_rate)
    # Its readout divides what comes in by the width ratio.
    x = torch.randn(3, width)
    torch.testing.assert_close(net.readout(x), F.linear(x, net.readout.weight) * ours["readout"].forward)
    # Its initialiser scales the hidden variance with fan in, which the base deviation and our factor give too.
    mup.init.normal_(net.hidden.weight, std=0.5)
    if width > 32:
        expected = 0.5 * ours["hidden"].init_variance ** 0.5
        assert net.hidden.weight.std().item() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("p, tied", list(itertools.product(["standard", "mup", "completep"], [True, False])))
def test_optimiser_groups_have_the_tables_rates_decays_and_eps(corpus, p, tied):
    changes = {"ladder.parameterisations": [p], "model.tied": tied, "model.norm_gain": True}
    job, net = nets(corpus, **changes)[f"{p}-large-seed-0"]
    adamw = transformer.optimiser(net, job)
    names = {id(q): n for n, q in net.named_parameters()}
    seen = set()
    for group in adamw.param_groups:
        of = {role(names[id(q)]) for q in group["params"]}
        assert len(of) == 1
        (of,) = of
        seen |= {names[id(q)] for q in group["params"]}
        f: Factors = factors(of, p, 2.0, 2.0)
        assert group["peak_lr"] == pytest.approx(0.01 * f.learning_rate)
        assert group["weight_decay"] == pytest.approx(job.size.weight_decay * f.weight_decay)
        assert group["eps"] == pytest.approx(1e-12 * f.eps)
        if "norm" in of:
            assert group["weight_decay"] == 0.0
    assert seen == set(names.values())
