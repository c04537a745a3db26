import numpy as np
import torch

from onecurve.plan.recipe import FourierTask
from onecurve.train.fourier import FourierStream

TASK = FourierTask(dimension=3, modes=200, exponent=1.5, seed=7)


def test_a_batch_is_a_function_of_seed_and_step_alone():
    a, b = FourierStream(TASK), FourierStream(TASK)
    a.batch(0, 0, 32)
    torch.testing.assert_close(a.batch(3, 17, 32), b.batch(3, 17, 32), rtol=0, atol=0)


def test_seeds_steps_and_the_test_set_share_no_sample():
    stream = FourierStream(TASK)
    drawn = [stream.batch(0, 0, 64)[0], stream.batch(1, 0, 64)[0], stream.batch(0, 1, 64)[0], stream.test_set(64)[0]]
    rows = {tuple(row) for x in drawn for row in x.tolist()}
    assert len(rows) == 4 * 64


def test_target_equals_the_written_sum():
    stream = FourierStream(TASK)
    rng = np.random.default_rng([TASK.seed, 0])
    direction = rng.standard_normal((200, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    length = (1 - rng.random(200)) ** (-1 / 1.5)
    weight = rng.standard_normal(200)
    weight /= np.linalg.norm(weight)
    phase = np.pi / 2 * rng.integers(0, 2, 200)
    k = np.round(length[:, None] * direction)
    x, y = stream.batch(0, 5, 100)
    expected = (weight * np.sqrt(2) * np.cos(2 * np.pi * x.numpy().astype(float) @ k.T + phase)).sum(axis=1)
    np.testing.assert_allclose(y.numpy(), expected, atol=2e-4)


def test_inputs_fill_the_centred_cube():
    x, _ = FourierStream(TASK).batch(0, 0, 20_000)
    assert x.shape == (20_000, 3)
    assert -0.5 <= x.min() < -0.49 and 0.49 < x.max() <= 0.5
    assert abs(float(x.mean())) < 0.01


def test_the_target_is_the_same_for_every_seed_of_a_run():
    x = torch.rand(10, 3)
    torch.testing.assert_close(FourierStream(TASK).target(x), FourierStream(TASK).target(x), rtol=0, atol=0)
    other = FourierStream(TASK.model_copy(update={"seed": 8}))
    assert not torch.allclose(FourierStream(TASK).target(x), other.target(x))
