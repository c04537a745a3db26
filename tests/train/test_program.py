import numpy as np
import pytest
import torch
import torch.nn.functional as F

from onecurve import OnecurveError
from onecurve.data.shards import write_shards
from onecurve.plan.recipe import jobs
from onecurve.train import mlp, transformer
from onecurve.train.devices import World
from onecurve.train.fourier import FourierStream
from onecurve.train.program import BatchedMLPs, LanguageModel, Machine
from onecurve.train.tokens import TokenStream

from .conftest import language_recipe


def program(corpus, machine=None, hook=None, **changes):
    job = jobs(language_recipe(corpus, **changes))[0]
    return job, LanguageModel(job, TokenStream(corpus, 16), machine=machine, hook=hook)


def losses(corpus, steps=20, machine=None, **changes):
    job, p = program(corpus, machine, **changes)
    return np.array([p.update(k, float(job.schedule(k / steps)))["train_loss"].item() for k in range(steps)])


def test_the_loop_takes_the_steps_of_a_plain_one(corpus):
    job, ours = program(corpus)
    net = transformer.build(job)
    transformer.initialise(net, job)
    theirs = transformer.optimiser(net, job)
    stream = TokenStream(corpus, 16)
    for step in range(10):
        multiplier = 1.0 - step / 10
        record = ours.update(step, multiplier)
        x, y = stream.batch(0, step, 8)
        loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
        theirs.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for group in theirs.param_groups:
            group["lr"] = multiplier * group["peak_lr"]
        before = [p.detach().clone() for p in net.parameters()]
        theirs.step()
        moved = sum((p.detach() - b).square().sum() for p, b in zip(net.parameters(), before, strict=True)) ** 0.5
        assert record["train_loss"].item() == pytest.approx(loss.item(), rel=1e-6)
        assert record["grad_norm"].item() == pytest.approx(norm.item(), rel=1e-5)
        assert record["update_norm"].item() == pytest.approx(moved.item(), rel=1e-4)
    for a, b in zip(ours.model.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tokens", [16, 48, 128, 4096])
def test_the_micro_batch_does_not_change_the_curve(corpus, tokens):
    whole = losses(corpus, machine=Machine(micro_batch=64))
    np.testing.assert_allclose(losses(corpus, machine=Machine(micro_batch=tokens)), whole, rtol=1e-6)


def test_with_ignored_targets_the_loss_is_still_the_sum_over_all_by_their_number(tmp_path):
    rng = np.random.default_rng(1)
    documents = [np.append(rng.integers(1, 100, rng.integers(2, 60)), 0) for _ in range(300)]
    shards = write_shards(tmp_path / "s", documents, "ragged", vocabulary=128, ignored=[0])
    whole = losses(shards, machine=Machine(micro_batch=128))
    # Micro-batches of one sequence have unequal numbers of targets; a mean of their means would differ.
    np.testing.assert_allclose(losses(shards, machine=Machine(micro_batch=16)), whole, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_compiled_the_curve_is_the_same(corpus):
    eager = losses(corpus, steps=5)
    np.testing.assert_allclose(losses(corpus, steps=5, machine=Machine(compile=True)), eager, rtol=1e-5)


def test_bfloat16_is_near_float32_and_keeps_its_weights_whole(corpus):
    near = losses(corpus, steps=10, **{"evaluation.points": 6})
    job = jobs(language_recipe(corpus).model_copy(update={"precision": "bfloat16"}))[0]
    p = LanguageModel(job, TokenStream(corpus, 16))
    rounded = [p.update(k, float(job.schedule(k / 10)))["train_loss"].item() for k in range(10)]
    assert 1e-6 < np.abs(np.array(rounded) / near - 1).max() < 0.02
    assert all(t.dtype == torch.float32 for t in p.model.parameters())


def test_a_gradient_that_is_not_finite_skips_its_step_and_three_in_a_row_stop(corpus):
    bad = {2, 5, 6, 7}

    def hook(step, gradients):
        if step in bad:
            gradients[0].fill_(float("inf"))

    _, p = program(corpus, hook=hook)
    weights = []
    skipped = []
    for step in range(8):
        skipped.append(int(p.update(step, 1.0)["skipped_steps"]))
        weights.append([w.detach().clone() for w in p.model.parameters()])
        assert (p.trouble() is None) == (step < 7)
    assert skipped == [0, 0, 1, 1, 1, 2, 3, 3]
    assert all(torch.equal(a, b) for a, b in zip(weights[1], weights[2], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights[2], weights[3], strict=True))
    assert "3 steps in a row" in p.trouble()


def test_clipping_counts_the_share_of_steps_that_it_touched(corpus):
    _, p = program(corpus, **{"optimiser.clip": 1e-3})
    for step in range(4):
        share = p.update(step, 1.0)["clip_fraction"].item()
    assert share == 1.0
    _, p = program(corpus, **{"optimiser.clip": None})
    assert "clip_fraction" not in p.update(0, 1.0)


def test_the_held_out_loss_is_the_mean_over_its_targets(corpus):
    _, p = program(corpus)
    for step in range(3):
        p.update(step, 1.0)
    x, y = TokenStream(corpus, 16).held_out(256)
    expected = F.cross_entropy(p.model(x).flatten(0, 1), y.flatten()).item()
    assert p.evaluate()["test_loss"].item() == pytest.approx(expected, rel=1e-6)


def test_a_batch_that_the_processes_do_not_divide_is_refused(corpus):
    job = jobs(language_recipe(corpus))[0]
    with pytest.raises(OnecurveError, match="8 sequences of 16, which 3 processes do not divide"):
        LanguageModel(job, TokenStream(corpus, 16), World(rank=0, size=3))


def test_gradient_noise_is_the_preconditioned_trace_of_the_covariance(corpus):
    job = jobs(language_recipe(corpus, **{"evaluation.gradient_batches": 5}))[0]
    p = LanguageModel(job, TokenStream(corpus, 16))
    for step in range(3):
        p.update(step, 1.0)
    before = [w.detach().clone() for w in p.model.parameters()]
    measured = p.evaluate()["gradient_noise"].item()
    rows = []
    for k in range(5):
        x, y = TokenStream(corpus, 16).batch(2**32 - 1, k, 8)
        loss = F.cross_entropy(p.model(x).flatten(0, 1), y.flatten())
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(p.model.parameters()))]))
    variance = torch.stack(rows).double().var(dim=0, correction=0)
    scale = []
    for w in p.model.parameters():
        (group,) = [g for g in p.optimiser.param_groups if any(w is q for q in g["params"])]
        v = p.optimiser.state[w]["exp_avg_sq"] / (1 - 0.95**3)
        scale.append((group["peak_lr"] / (v.sqrt() + group["eps"])).flatten())
    assert measured == pytest.approx((variance * torch.cat(scale)).sum().item(), rel=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, p.model.parameters(), strict=True))
    # Measuring leaves no trace in what follows.
    other = LanguageModel(jobs(language_recipe(corpus))[0], TokenStream(corpus, 16))
    for step in range(3):
        other.update(step, 1.0)
    assert p.update(3, 1.0)["train_loss"] == other.update(3, 1.0)["train_loss"]


def test_gradient_noise_of_batched_mlps_is_that_of_each_alone(recipe):
    noisy = recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"gradient_batches": 4})})
    job = jobs(noisy)[0]
    p = BatchedMLPs(job)
    for step in range(3):
        p.update(step, 1.0)
    measured = p.evaluate()["gradient_noise"]
    stream = FourierStream(recipe.task)
    for i in (0, 3):
        rows = []
        for k in range(4):
            x, y = stream.batch(2**32 - 1, k, 16)
            alone = {name: w[i : i + 1].detach().requires_grad_(True) for name, w in p.weights.items()}
            loss = (0.5 * (mlp.forward(alone, x[None]) - y).square()).mean()
            rows.append(torch.autograd.grad(loss, list(alone.values())))
        expected = 0.0
        for name, gradients in zip(p.weights, zip(*rows, strict=True), strict=True):
            variance = torch.stack(gradients).double().var(dim=0, correction=0)
            expected += (variance * p.optimiser.preconditioner(name, 3)[i : i + 1]).sum().item()
        assert measured[i].item() == pytest.approx(expected, rel=1e-4)
