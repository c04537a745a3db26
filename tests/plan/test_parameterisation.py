import pytest

from onecurve.plan.parameterisation import ROLES, Factors, attention_scale, branch_multiplier, factors

ONES = Factors()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("parameterisation", ["standard", "mup", "completep"])
def test_the_base_shape_is_the_standard_model(role, parameterisation):
    assert factors(role, parameterisation, 1.0, 1.0) == factors(role, "standard", 1.0, 1.0)
    assert branch_multiplier(parameterisation, 1.0) == 1.0
    assert attention_scale(parameterisation, 64, 64) == 64**-0.5


@pytest.mark.parametrize("role", ROLES)
def test_standard_scales_nothing(role):
    assert factors(role, "standard", 8.0, 4.0) == factors(role, "standard", 1.0, 1.0)
    assert branch_multiplier("standard", 4.0) == 1.0


def test_completep_is_the_table_of_the_paper():
    # arXiv 2505.01618, table 1 with alpha = 1, m_N = 4 and m_L = 2.
    table = {role: factors(role, "completep", 4.0, 2.0) for role in ROLES}
    assert table == {
        "embedding": ONES,
        "hidden": Factors(init_variance=1 / 4, learning_rate=1 / 4, weight_decay=4.0, eps=1 / 8),
        "block norm": Factors(weight_decay=0.0, eps=1 / 8),
        "final norm": Factors(weight_decay=0.0),
        "readout": Factors(forward=1 / 4),
    }
    assert branch_multiplier("completep", 2.0) == 0.5


def test_mup_is_completep_without_depth():
    for role in ROLES:
        assert factors(role, "mup", 4.0, 2.0) == factors(role, "completep", 4.0, 1.0)
    assert branch_multiplier("mup", 2.0) == 1.0


@pytest.mark.parametrize("role", ["embedding", "hidden", "readout"])
@pytest.mark.parametrize("parameterisation", ["standard", "mup", "completep"])
def test_every_group_keeps_its_timescale(role, parameterisation):
    f = factors(role, parameterisation, 4.0, 2.0)
    assert f.learning_rate * f.weight_decay == 1.0


def test_decay_may_stay_as_it_is_by_name():
    assert factors("hidden", "mup", 4.0, scale_weight_decay=False).weight_decay == 1.0


def test_attention_falls_as_one_over_the_head_size():
    assert attention_scale("mup", 128, 64) == 8 / 128
    assert attention_scale("standard", 128, 64) == 128**-0.5
