"""Damaged files of every format: curves or one message, in no time. ONECURVE_MUTATIONS says how many a format."""

from __future__ import annotations

import os
import random
import time

import pytest

from onecurve import OnecurveError
from onecurve.logs.discover import discover

from .made import FORMATS

COUNT = int(os.environ.get("ONECURVE_MUTATIONS", "2000"))
pytestmark = pytest.mark.slow


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A file cut short, with some bytes changed, or with one stretch in place of another."""
    out, kind = bytearray(data), rng.random()
    if kind < 0.3:
        return data[: rng.randrange(len(data))]
    if kind < 0.8:
        for _ in range(rng.choice([1, 1, 2, 5, 30])):
            out[rng.randrange(len(out))] = rng.randrange(256)
        return bytes(out)
    low = rng.randrange(len(out))
    out[low : low + rng.randrange(1, 400)] = data[rng.randrange(len(data)) :][: rng.randrange(1, 800)]
    return bytes(out)


@pytest.mark.parametrize("name", list(FORMATS))
def test_no_damage_ends_in_a_traceback_or_a_hang(tmp_path, name):
    make, place = FORMATS[name]
    source = make(tmp_path / place)
    files = [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file()]
    file = max(files, key=lambda f: f.stat().st_size)
    data, rng = file.read_bytes(), random.Random(name)
    folder = tmp_path / "mutated"
    folder.mkdir()
    target = folder / file.name
    for k in range(COUNT):
        target.write_bytes(mutated(data, rng))
        start = time.perf_counter()
        try:
            discover(folder)
        except OnecurveError as error:
            assert len(str(error)) < 1500
        except Exception as error:
            raise AssertionError(f"mutation {k} of {name}: {type(error).__name__}: {error}") from error
        assert time.perf_counter() - start < 5.0
