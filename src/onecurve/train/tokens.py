"""The batches that a run draws from token shards.

What a run sees at a step is a function of (seed, step) alone: windows of ``context`` tokens in an order that a keyed
permutation gives, a new one each epoch.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onecurve.data.shards import Ids, Shards
from onecurve.errors import OnecurveError

IGNORED = -100
"""The target at which no loss is measured."""


class TokenStream:
    """Batches of windows of a corpus, each a function of (seed, step) alone."""

    def __init__(self, shards: Shards, context: int) -> None:
        self.shards, self.context = shards, context
        # A window's targets reach one token beyond its inputs.
        self.windows = (len(shards.training) - 1) // context
        if self.windows < 1:
            raise OnecurveError(
                f"{shards.path}: {len(shards.training)} training tokens are less than one context of {context} and its "
                "last target; give a shorter model.context or a larger corpus"
            )
        self._ignored = np.array(shards.ignored, dtype=np.int64)

    def epochs(self, tokens: float) -> float:
        """How often a run of so many tokens sees each token."""
        return tokens / (self.windows * self.context)

    def batch(self, seed: int, step: int, sequences: int, part: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Inputs and targets (sequences, context) of one step, or of a part of them; ignored targets are -100."""
        index = np.arange(step * sequences, (step + 1) * sequences)[part]
        epochs, position = np.divmod(index, self.windows)
        window = np.empty_like(position)
        for epoch in np.unique(epochs):
            of = epochs == epoch
            window[of] = permuted(position[of], self.windows, seed, int(epoch))
        return self._windows(self.shards.training, window)

    def held_out(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Windows spread evenly over the held-out part, (tokens / context, context), shared by all runs."""
        wanted = tokens // self.context
        available = (len(self.shards.held_out) - 1) // self.context
        if available < wanted:
            raise OnecurveError(
                f"{self.shards.path}: the held-out part has {len(self.shards.held_out)} tokens, evaluation.samples "
                f"asks for {tokens}; give at most {max(0, available) * self.context}, or prepare more"
            )
        return self._windows(self.shards.held_out, np.arange(wanted) * available // wanted)

    def _windows(self, ids: Ids, window: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        at = window[:, None] * self.context + np.arange(self.context + 1)
        tokens = ids[at].astype(np.int64)
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        if self._ignored.size:
            targets = np.where(np.isin(targets, self._ignored), IGNORED, targets)
        return torch.from_numpy(inputs.copy()), torch.from_numpy(np.ascontiguousarray(targets))


_ROUNDS = 6


def permuted(position: NDArray[np.int64], count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Where a keyed permutation of range(count) sends each position: any part of it costs no more than itself.

    A Feistel network on the smallest even number of bits that holds ``count``, walked on where it leaves the range.

    Examples:
        >>> sorted(permuted(np.arange(10), 10, seed=1, epoch=0).tolist()) == list(range(10))
        True
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    keys = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))).integers(
        0, 2**64, _ROUNDS, dtype=np.uint64
    )
    value = position.astype(np.uint64)
    outside = np.ones(value.shape, dtype=bool)
    while outside.any():
        v = value[outside]
        left, right = v >> np.uint64(half), v & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        value[outside] = (left << np.uint64(half)) | right
        outside = value >= np.uint64(count)
    return value.astype(np.int64)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the output depends on every bit of the input."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
