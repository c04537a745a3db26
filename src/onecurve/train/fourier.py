"""The power-law Fourier regression task (arXiv 2507.02119, section 2 and its released code).

Inputs are uniform on [-1/2, 1/2]^d; the target is a fixed sum of plane waves whose integer frequencies have a
Pareto-distributed length, so that its spectrum is a power law and so are the losses of networks that learn it::

    y(x) = sum_i w_i sqrt(2) cos(2 pi k_i . x + b_i),   sum_i w_i^2 = 1,   b_i in {0, pi/2}
    k_i = round(s_i v_i),   v_i uniform on the unit sphere,   s_i = (1 - u_i)^(-1 / exponent)

Every sample is a pure function of (seed, step): a resumed run sees what an uninterrupted one would have seen.
One sample counts as one token.
"""

from __future__ import annotations

import numpy as np
import torch

from onecurve.plan.recipe import FourierTask

_ROWS_AT_ONCE = 512  # keeps the (rows, modes) intermediate inside the cache


class FourierStream:
    """Endless fresh samples of a `FourierTask`, one batch a step, each a function of (seed, step) alone."""

    def __init__(self, task: FourierTask) -> None:
        rng = np.random.default_rng([task.seed, 0])
        direction = rng.standard_normal((task.modes, task.dimension))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        length = (1.0 - rng.random(task.modes)) ** (-1.0 / task.exponent)
        weight = rng.standard_normal(task.modes)
        weight /= np.linalg.norm(weight)
        quarter_turns = rng.integers(0, 2, task.modes)
        self.task = task
        # 2 pi is folded into the frequencies and sqrt(2) into the weights.
        self._frequency = torch.tensor(2.0 * np.pi * np.round(direction * length[:, None]).T, dtype=torch.float32)
        self._phase = torch.tensor(np.pi / 2.0 * quarter_turns, dtype=torch.float32)
        self._weight = torch.tensor(np.sqrt(2.0) * weight, dtype=torch.float32)

    def batch(self, seed: int, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (size, dimension) and targets (size,) of one step."""
        return self._draw(seed, step, size, use=1)

    def test_set(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A held-out set shared by all runs of the task, independent of every training batch."""
        return self._draw(0, 0, size, use=2)

    def _draw(self, seed: int, step: int, size: int, use: int) -> tuple[torch.Tensor, torch.Tensor]:
        # Philox is counter-based: the seeds are the key and the step is part of the counter, so no state is carried.
        key = np.array([self.task.seed, seed], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, step, use], dtype=np.uint64)))
        x = torch.from_numpy(rng.random((size, self.task.dimension), dtype=np.float32) - np.float32(0.5))
        return x, self.target(x)

    def target(self, x: torch.Tensor) -> torch.Tensor:
        """The target at inputs of shape (rows, dimension)."""
        rows = [
            torch.cos_(torch.addmm(self._phase, part, self._frequency)) @ self._weight
            for part in x.split(_ROWS_AT_ONCE)
        ]
        return torch.cat(rows)
