"""Predicted ends against curves whose ends are known."""

from __future__ import annotations

import numpy as np
import pytest

from onecurve.tune.forecast import DRIFT, OWN, SHARED, forecast

G = 200
X = np.arange(1, G + 1) / G
WARM = 0.05


def shapes(n: int, rng) -> np.ndarray:
    """(n, G) log shapes, 0 at the end, that bend differently."""
    power = rng.uniform(0.1, 0.6, (n, 1))
    late = rng.uniform(0.0, 1.5, (n, 1))
    log = -power * np.log(X) + late * (1 - X)
    return log - log[:, -1:]


def told(log_loss, shape, until):
    n = shape.shape[0]
    seen = np.where(until + 1e-9 >= X, log_loss, np.nan)
    return forecast(X, seen, shape, np.zeros_like(shape), np.full(n, WARM))


def test_runs_that_follow_their_shapes_are_told_exactly():
    rng = np.random.default_rng(0)
    shape, end = shapes(12, rng), rng.normal(0, 0.3, 12)
    for until in (0.1, 0.3, 0.9):
        got = told(end[:, None] + shape, shape, until)
        assert got.log_end == pytest.approx(end, abs=1e-12) and got.stretch == pytest.approx(1.0)
        assert (got.error > 0).all() and got.unexplained == pytest.approx(0.0, abs=1e-9)


def test_a_stretch_that_all_share_is_found_and_its_error_shrinks_as_runs_come_on():
    rng = np.random.default_rng(1)
    shape, end = shapes(12, rng), rng.normal(0, 0.3, 12)
    found = [told(end[:, None] + 1.25 * shape, shape, until) for until in (0.1, 0.3, 0.6, 0.9)]
    assert found[-1].stretch == pytest.approx(1.25, abs=0.02)
    errors = [f.stretch_error for f in found]
    assert errors == sorted(errors, reverse=True) and errors[0] < SHARED
    off = [np.abs(f.log_end - end).max() for f in found]
    assert off[-1] < 0.01 and off == sorted(off, reverse=True)
    assert (np.abs(found[0].log_end - end) < 1.645 * found[0].error).all()


@pytest.mark.parametrize("until", [0.15, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("noise", [0.003, 0.02])
def test_intervals_cover_ends_of_sweeps_drawn_from_the_model(until, noise):
    rng = np.random.default_rng(2)
    inside, pairs = [], []
    ahead = -np.log(until) / np.log(until / (WARM + 1 / G))
    for _ in range(150):
        n = 10
        shape, end = shapes(n, rng), rng.normal(0, 0.3, n)
        later = 1.0 + SHARED * rng.standard_normal() + OWN * rng.standard_normal((n, 1))
        own = later + DRIFT * np.sqrt(ahead) * rng.standard_normal()  # what is seen of it so far
        reach = np.searchsorted(X, until + 1e-9)
        log = np.where(np.arange(G) < reach, own * (shape - shape[:, [reach - 1]]), 0.0) + later * shape[:, [reach - 1]]
        got = told(end[:, None] + log + noise * rng.standard_normal((n, G)), shape, until)
        inside.append(np.abs(got.log_end - end) < 1.645 * got.error)
        apart = np.diff(got.log_end - end)
        pairs.append(np.abs(apart) < 1.645 * np.hypot(got.own[1:], got.own[:-1]))
    assert 0.84 <= np.mean(inside) <= 0.97
    assert 0.84 <= np.mean(pairs) <= 0.97  # the order rests on the runs' own errors


def test_a_row_is_the_same_whatever_stands_beside_it():
    rng = np.random.default_rng(3)
    shape = shapes(6, rng)
    log = shape + 0.01 * rng.standard_normal((6, G))
    alone = told(log, shape, 0.4)
    log = np.vstack([log, np.full((1, G), np.nan)])
    beside = told(log, np.vstack([shape, shape[:1]]), 0.4)
    assert beside.log_end[:6].tobytes() == alone.log_end.tobytes() and np.isnan(beside.log_end[6])
    assert beside.own[:6].tobytes() == alone.own.tobytes()
    draws = beside.draws(50, range(7))[:, :6]
    assert draws.tobytes() == np.ascontiguousarray(alone.draws(50, range(6))).tobytes()


def test_few_points_tell_nothing_or_little():
    rng = np.random.default_rng(4)
    shape = shapes(3, rng)
    log = np.full((3, G), np.nan)
    log[0, 20:22] = shape[0, 20:22]
    log[1, 20:23] = shape[1, 20:23]
    got = forecast(X, log, shape, np.zeros_like(shape), np.full(3, WARM))
    assert np.isnan(got.log_end[0]) and got.points.tolist() == [2, 3, 0] and np.isnan(got.log_end[2])
    assert got.log_end[1] == pytest.approx(0.0, abs=1e-12) and got.stretch == 1.0 and got.stretch_error == SHARED


def test_draws_share_the_stretch():
    rng = np.random.default_rng(5)
    shape = shapes(2, rng)
    got = told(shape, shape, 0.2)
    draws = got.draws(4000, [7, 8])
    assert draws.mean(axis=0) == pytest.approx(got.log_end, abs=0.02)
    assert draws.std(axis=0) == pytest.approx(got.error, rel=0.06)
    shared = got.stretch_error**2 * got.drop[0] * got.drop[1] / (got.error[0] * got.error[1])
    assert np.corrcoef(draws.T)[0, 1] == pytest.approx(shared, abs=0.06)
