import pytest

from onecurve.plan.shape import PRESETS, Size, TransformerModel, transformer_shape


def shape(family, name):
    preset = PRESETS[family]
    return transformer_shape(TransformerModel(**preset.model), Size(**preset.sizes[name]))


@pytest.mark.parametrize("name", PRESETS["celerity"].sizes)
def test_celerity_counts_equal_the_papers_formula(name):
    s = shape("celerity", name)
    assert s.n_params == 20 * s.layers * s.width**2 + 2 * 128256 * s.width


@pytest.mark.parametrize(
    "family, name, published",
    [
        ("celerity", "300M", 2.71e8),
        ("celerity", "500M", 5.03e8),
        ("celerity", "900M", 9.06e8),
        ("celerity", "1.8B", 1.81e9),
        ("celerity", "3.9B", 3.88e9),
        ("gpt2", "111M", 1.09e8),
        ("supercollapse", "768", 11.8e6),
        ("supercollapse", "2048", 78.6e6),
    ],
)
def test_counts_equal_the_published_ones_to_their_digits(family, name, published):
    assert shape(family, name).n_params == pytest.approx(published, rel=5e-3)


def test_tokens_of_the_published_families_follow_from_n():
    # arXiv 2509.25087, table 6: D at 20 tokens per parameter; and the 111M model's 2.19B tokens.
    for name, tokens in [("300M", 5.4e9), ("1.8B", 36.2e9), ("3.9B", 77.6e9)]:
        assert 20 * shape("celerity", name).n_params == pytest.approx(tokens, rel=5e-3)
    assert 20 * shape("gpt2", "111M").n_params == pytest.approx(2.19e9, rel=2e-3)


def test_flops_with_attention_are_within_the_papers_table():
    # Table 6 of arXiv 2509.25087 at 234 tokens per parameter.
    for name, flops in [("300M", 1.47e20), ("500M", 5.15e20), ("900M", 1.68e21), ("1.8B", 6.54e21), ("3.9B", 2.89e22)]:
        s = shape("celerity", name)
        assert s.flops_per_token * 234 * s.n_params == pytest.approx(flops, rel=0.06)
