import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onecurve import OnecurveError
from onecurve.data.shards import write_shards
from onecurve.train.tokens import IGNORED, TokenStream, permuted


@given(st.integers(1, 3000), st.integers(0, 2**32), st.integers(0, 9))
def test_the_order_is_a_permutation_whatever_its_length(count, seed, epoch):
    assert np.array_equal(np.sort(permuted(np.arange(count), count, seed, epoch)), np.arange(count))


def test_the_order_has_no_trace_of_the_old_one():
    order = permuted(np.arange(100_000), 100_000, 1, 0)
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.02
    assert (order != permuted(np.arange(100_000), 100_000, 1, 1)).mean() > 0.99
    assert (order != permuted(np.arange(100_000), 100_000, 2, 0)).mean() > 0.99


def test_one_epoch_sees_every_window_once(corpus):
    stream = TokenStream(corpus, context=16)
    windows = stream.windows
    seen = [stream.batch(3, step, 1)[0][0] for step in range(windows)]
    expected = corpus.training[: windows * 16].astype(np.int64).reshape(windows, 16)
    assert np.array_equal(np.sort(torch.stack(seen).numpy(), axis=0), np.sort(expected, axis=0))


def test_targets_are_the_next_tokens(corpus):
    inputs, targets = TokenStream(corpus, context=16).batch(0, 5, 4)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_a_batch_is_a_function_of_seed_and_step_and_its_parts_are_its_rows(corpus):
    stream = TokenStream(corpus, context=16)
    whole = stream.batch(7, 100, 8)
    again = TokenStream(corpus, context=16).batch(7, 100, 8)
    assert torch.equal(whole[0], again[0]) and torch.equal(whole[1], again[1])
    parts = [stream.batch(7, 100, 8, slice(k, k + 4))[0] for k in (0, 4)]
    assert torch.equal(torch.cat(parts), whole[0])
    assert not torch.equal(whole[0], stream.batch(8, 100, 8)[0])


def test_a_second_epoch_has_an_order_of_its_own(corpus):
    stream = TokenStream(corpus, context=16)
    n = stream.windows
    first, second = (torch.cat([stream.batch(0, e * n + k, 1)[0] for k in range(n)]) for e in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(first.sort(dim=0).values, second.sort(dim=0).values)
    assert stream.epochs(2 * n * 16) == 2.0


def test_ignored_ids_are_no_targets(tmp_path):
    documents = [np.array([1, 2, 3, 0]) for _ in range(50)]
    shards = write_shards(tmp_path / "s", documents, "x", vocabulary=4, ignored=[0])
    inputs, targets = TokenStream(shards, context=8).batch(0, 0, 2)
    assert (inputs == 0).any()
    assert set(targets.unique().tolist()) == {IGNORED, 1, 2, 3}


def test_a_corpus_shorter_than_one_context_is_refused(corpus):
    with pytest.raises(OnecurveError, match="are less than one context of 1000000"):
        TokenStream(corpus, context=1_000_000)


def test_a_held_out_part_that_is_too_short_says_how_much_there_is(corpus):
    stream = TokenStream(corpus, context=16)
    with pytest.raises(OnecurveError, match="give at most"):
        stream.held_out(1_000_000)
    inputs, targets = stream.held_out(256)
    assert inputs.shape == targets.shape == (16, 16)
