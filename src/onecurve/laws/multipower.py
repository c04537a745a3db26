"""The Multi-Power Law of loss curves under a schedule (arXiv 2503.12811).

::

    L(t) = L0 + A S(t)^-alpha - B sum_{k <= t} d_k [1 - (1 + C s_k^-gamma S_k(t))^-beta]

S is the rate summed to t, S_k the part of it from step k on, d_k = s_{k-1} - s_k the drop of the rate at step k; the
warmup is a negative drop. Here rates are shares of their peak and S is in the unit of the runs' x axis, so that the
numbers do not change with the peak: ``A' = A peak^-alpha``, ``B' = B peak``, ``C' = C peak^(1 - gamma)``.

The sum has as many terms as steps at every point. `Drops` replaces it by some two hundred whatever the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from onecurve.fit import FloatArray, IntArray, project
from onecurve.laws.estimate import refuse_several_sizes, solve, usable
from onecurve.laws.law import Intervals, Law, Scope
from onecurve.laws.path import Path, path_of, refuse_no_decay
from onecurve.run import Run

NAMES = ("floor", "amplitude", "exponent", "drop", "rate", "drop_exponent", "rate_exponent")
LEAF = 16
NODES = 7
"""Chebyshev nodes that stand for a cell as far away as it is long: relative error 5.8^-7 and less."""
SMOOTH = 1e-7


@dataclass(frozen=True)
class Drops:
    """The drops of the rate before each of n points, far ones gathered in cells: m terms in all.

    The further back a drop is, the smoother its effect is along the path, so drops in dyadic cells at least as far
    from the point as they are long are moved onto the cell's Chebyshev nodes (with the weights that leave polynomials
    unchanged). Cells within which the rate is no smooth function of the step are opened.
    """

    point: IntArray
    """(m,) rises: which point the term belongs to."""
    drop: FloatArray
    """(m,)"""
    log_rate: FloatArray
    """(m,) log s_k"""
    since: FloatArray
    """(m,) S_k at the point"""


def drops(path: Path, x: FloatArray) -> Drops:
    """The drops that matter to points at x."""
    d = -np.diff(path.s, prepend=0.0)
    before = np.concatenate([[0.0], path.tau[:-1]])
    log_s = np.log(np.maximum(path.s, 1e-12))
    last = np.searchsorted(path.x, x * (1 + 1e-12), side="right") - 1
    tau = path.at(x, path.tau)
    tree = _Tree(d, log_s, before)
    point, drop, log_rate, start = tree.terms(last)
    order = np.argsort(point, kind="stable")
    point = point[order]
    return Drops(point, drop[order], log_rate[order], np.maximum(tau[point] - start[order], 0.0))


class _Tree:
    """Dyadic cells over steps: level 0 holds LEAF single steps a cell, level l NODES nodes over LEAF 2^l steps."""

    def __init__(self, d: FloatArray, log_s: FloatArray, before: FloatArray) -> None:
        self.depth = max(0, int(np.ceil(np.log2(max(d.size / LEAF, 1.0)))))
        size = LEAF * 2**self.depth
        pad = (0, size - d.size)
        d, log_s, before = np.pad(d, pad), np.pad(log_s, pad, mode="edge"), np.pad(before, pad, mode="edge")
        unit = np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)[::-1]
        self.weight = [d.reshape(-1, LEAF)]
        self.log_s = [log_s.reshape(-1, LEAF)]
        self.before = [before.reshape(-1, LEAF)]
        self.open = [np.zeros(self.weight[0].shape[0], dtype=bool)]
        inner = np.tile(np.linspace(-1.0, 1.0, LEAF), (2, 1))
        for level in range(1, self.depth + 1):
            length = LEAF * 2**level
            # Where the nodes of both children lie in the parent's [-1, 1].
            half = (length / 2 - 1) / (length - 1)
            at = np.concatenate([-(1 - half) + half * inner[0], (1 - half) + half * inner[1]])
            move = _lagrange(unit, at)
            weight, log_rate, start = (
                v[-1].reshape(v[-1].shape[0] // 2, -1) for v in (self.weight, self.log_s, self.before)
            )
            gather = np.linalg.pinv(move).T
            own_s, own_before = log_rate @ gather, start @ gather
            rough = np.abs(own_s @ move.T - log_rate).max(axis=1) > SMOOTH
            span = np.maximum(start[:, -1] - start[:, 0], 1e-300)
            rough |= np.abs(own_before @ move.T - start).max(axis=1) > SMOOTH * span
            busy = np.any(weight != 0, axis=1)
            self.open.append((rough & busy) | self.open[-1].reshape(-1, 2).any(axis=1))
            self.weight.append(weight @ move)
            self.log_s.append(own_s)
            self.before.append(own_before)
            inner = np.tile(unit, (2, 1))

    def terms(self, last: IntArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """For points whose last step is ``last``: point, weight, log rate and S before the step of all terms."""
        out: list[tuple[IntArray, FloatArray, FloatArray, FloatArray]] = []
        # The last cell of each level that is far enough away, and -1 above the top.
        far = [(last + 1) // (LEAF * 2**level) - 2 for level in range(self.depth + 1)]
        far.append(np.full_like(last, -1))
        for level in range(self.depth + 1):
            top = far[level] if level else last // LEAF
            for offset in range(5):  # cells whose parent is too near
                cell = 2 * far[level + 1] + 2 + offset
                self._add(out, level, np.flatnonzero((cell <= top) & (cell >= 0)), cell, last)
            if level < self.depth:  # cells whose parent is far enough away but not smooth
                for cell in np.flatnonzero(np.repeat(self.open[level + 1], 2)):
                    here = np.flatnonzero(far[level + 1] >= cell // 2)
                    self._add(out, level, here, np.full_like(last, cell), last)
        return tuple(np.concatenate(v) for v in zip(*out, strict=True))  # pyright: ignore[reportReturnType]

    def _add(
        self,
        out: list[tuple[IntArray, FloatArray, FloatArray, FloatArray]],
        level: int,
        points: IntArray,
        cell: IntArray,
        last: IntArray,
    ) -> None:
        points = points[(cell[points] < self.open[level].size)]
        points = points[~self.open[level][cell[points]]]
        weight = self.weight[level][cell[points]]
        use = weight != 0
        if level == 0:
            use &= LEAF * cell[points][:, None] + np.arange(LEAF) <= last[points][:, None]
        owner = np.broadcast_to(points[:, None], use.shape)[use]
        at = cell[points]
        out.append((owner, weight[use], self.log_s[level][at][use], self.before[level][at][use]))


def _lagrange(nodes: FloatArray, at: FloatArray) -> FloatArray:
    """(len(at), len(nodes)) values of each node's Lagrange polynomial."""
    out = np.ones((at.size, nodes.size))
    for j, node in enumerate(nodes):
        for i, other in enumerate(nodes):
            if i != j:
                out[:, j] *= (at - other) / (node - other)
    return out


def effect(
    terms: Drops, points: int, rate: FloatArray, exponent: FloatArray, rate_exponent: FloatArray, slopes: bool = True
) -> tuple[FloatArray, FloatArray]:
    """``sum_k d_k [1 - (1 + C s_k^-gamma S_k)^-beta]`` (S, n) and its derivatives (S, n, 3) in C, beta and gamma."""
    value = np.zeros((rate.size, points))
    slope = np.zeros((rate.size, points, 3)) if slopes else np.empty((0, 0, 0))
    if not terms.point.size:
        return value, slope
    first = np.flatnonzero(np.diff(terms.point, prepend=-1))
    owner = terms.point[first]
    for i, (c, beta, gamma) in enumerate(zip(rate, exponent, rate_exponent, strict=True)):
        u = c * np.exp(-gamma * terms.log_rate) * terms.since
        log_u = np.log1p(u)
        left = terms.drop * np.exp(-beta * log_u)
        value[i, owner] = np.add.reduceat(terms.drop - left, first)
        if slopes:
            by_u = beta * left * (u / (1.0 + u))
            slope[i, owner, 0] = np.add.reduceat(by_u, first) / max(c, 1e-300)
            slope[i, owner, 1] = np.add.reduceat(left * log_u, first)
            slope[i, owner, 2] = -np.add.reduceat(by_u * terms.log_rate, first)
    return value, slope


@dataclass(frozen=True)
class MultiPower(Law):
    """``floor + amplitude S^-exponent - drop * sum_k d_k [1 - (1 + rate s_k^-rate_exponent S_k)^-drop_exponent]``."""

    floor: float
    amplitude: float
    exponent: float
    drop: float
    rate: float
    drop_exponent: float
    rate_exponent: float

    name: ClassVar[str] = "multi-power"
    about: ClassVar[str] = "the Multi-Power Law: any schedule, one size, seven parameters"
    needs: ClassVar[str] = "runs of one size, one of which at least lowers its rate"
    reach: ClassVar[str] = "other schedules of similar length; at three times the length it is off; not other sizes"
    one_size: ClassVar[bool] = True
    over: ClassVar[str] = "schedule"

    @classmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """Fit to runs of one size from the end of their warmup on, every point counting the same, as published."""
        scope = Scope.of(runs, cls.name)
        refuse_several_sizes(scope, cls.name)
        refuse_no_decay(runs, cls.name)
        points = usable(runs, loss)
        paths = [path_of(run) for run in points.runs]
        total = np.concatenate([p.at(points.x[points.run == k], p.tau) for k, p in enumerate(paths)])
        scale = float(np.exp(np.log(total).mean()))
        log_s = np.log(total / scale)
        offsets = np.searchsorted(points.run, np.arange(len(paths)))
        parts = [drops(p, points.x[points.run == k]) for k, p in enumerate(paths)]
        terms = Drops(
            np.concatenate([t.point + o for t, o in zip(parts, offsets, strict=True)]),
            np.concatenate([t.drop for t in parts]),
            np.concatenate([t.log_rate for t in parts]),
            np.concatenate([t.since for t in parts]) / scale,
        )

        def model(p: FloatArray) -> tuple[FloatArray, FloatArray]:
            floor, a, alpha, b, log_c, beta, gamma = p.T[:, :, None]
            c = np.exp(log_c[:, 0])
            value, slope = effect(terms, log_s.size, c, beta[:, 0], gamma[:, 0])
            power = np.exp(-alpha * log_s)
            columns = [np.ones_like(power), power, -a * log_s * power, -value]
            columns += [-b * slope[:, :, 0] * c[:, None], -b * slope[:, :, 1], -b * slope[:, :, 2]]
            return floor + a * power - b * value, np.stack(columns, axis=-1)

        starts = _starts(terms, log_s, points.loss)
        lower = np.array([0.0, 0.0, 0.0, 0.0, -30.0, 0.0, 0.0])
        upper = np.array([points.loss.min(), np.inf, 5.0, np.inf, 30.0, 20.0, 5.0])
        got = solve(NAMES, model, points, starts, lower, upper, intervals=intervals)

        def raw(p: FloatArray) -> FloatArray:
            floor, a, alpha, b, log_c, beta, gamma = np.moveaxis(p, -1, 0)
            return np.stack([floor, a * scale**alpha, alpha, b, np.exp(log_c) / scale, beta, gamma], axis=-1)

        got = got.mapped(raw)
        return cls(got.report, *map(float, got.values), scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss at each x."""
        path = path_of(run)
        one = np.ones(1)
        value, _ = effect(
            drops(path, x), x.size, self.rate * one, self.drop_exponent * one, self.rate_exponent * one, slopes=False
        )
        return self.floor + self.amplitude * path.at(x, path.tau) ** -self.exponent - self.drop * value[0]


def _starts(terms: Drops, log_s: FloatArray, loss: FloatArray) -> FloatArray:
    """The best of a grid over the four parameters that enter non-linearly, the other three in closed form."""
    alpha, log_c, beta, gamma = (
        v.ravel() for v in np.meshgrid([0.3, 0.5, 0.7], [0.0, 2.0, 4.0], [0.2, 0.6], [0.3, 0.8])
    )
    value, _ = effect(terms, log_s.size, np.exp(log_c), beta, gamma, slopes=False)
    power = np.exp(-alpha[:, None] * log_s)
    basis = np.stack([np.ones_like(power), power, -value], axis=-1)
    linear = project(basis, loss, np.array([0.0, 1e-3, 1e-6]))
    fit = np.einsum("snk,sk->sn", basis, linear)
    error = np.mean(np.abs(fit / loss - 1.0), axis=1)
    best = np.argsort(error, kind="stable")[:3]
    return np.column_stack([linear[:, :2], alpha, linear[:, 2], log_c, beta, gamma])[best]
