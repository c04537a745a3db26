import json

import numpy as np
import pytest

from onecurve import OnecurveError
from onecurve.data.shards import open_shards, write_shards


def documents(count=300, length=20, top=100):
    rng = np.random.default_rng(0)
    return [rng.integers(1, top, length) for _ in range(count)]


def test_every_document_is_in_one_part_and_none_is_lost(tmp_path):
    given = documents()
    shards = write_shards(tmp_path / "s", given, "numbers", vocabulary=100)
    assert len(shards.training) + len(shards.held_out) == 300 * 20
    parts = [[tuple(d) for d in part.reshape(-1, 20).tolist()] for part in (shards.training, shards.held_out)]
    assert sorted(parts[0] + parts[1]) == sorted(tuple(d) for d in np.stack(given).tolist())
    assert 1 <= len(parts[1]) <= 20  # about one in fifty
    assert shards.source == "numbers" and shards.training.dtype == np.uint16


def test_a_copy_of_a_held_out_document_is_held_out_too(tmp_path):
    given = documents()
    shards = write_shards(tmp_path / "s", given + given, "twice", vocabulary=100)
    parts = [{tuple(d) for d in part.reshape(-1, 20).tolist()} for part in (shards.training, shards.held_out)]
    assert not parts[0] & parts[1]


def test_the_identity_is_that_of_the_ids(tmp_path):
    a, b = (write_shards(tmp_path / n, documents(), "x", vocabulary=100).identity for n in "ab")
    c = write_shards(tmp_path / "c", documents()[::-1], "x", vocabulary=100).identity
    assert a == b != c


def test_large_vocabularies_take_four_bytes(tmp_path):
    shards = write_shards(tmp_path / "s", documents(top=100_000), "x", vocabulary=100_000)
    assert shards.training.dtype == np.uint32 and shards.training.max() > 65_535


def test_ids_beyond_the_vocabulary_are_named_by_file_and_offset(tmp_path):
    shards = write_shards(tmp_path / "s", documents(), "x", vocabulary=100)
    at = int(np.argmax(shards.training >= 50))
    with pytest.raises(OnecurveError) as error:
        open_shards(shards.path, vocabulary=50)
    words = str(error.value)
    assert f"training.bin: token id {shards.training[at]} at offset {at}" in words and "at least 100" in words
    assert open_shards(shards.path, vocabulary=100).identity == shards.identity


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "note").write_text("mine")
    with pytest.raises(OnecurveError, match="is not empty"):
        write_shards(tmp_path, documents(), "x", vocabulary=100)
    assert [p.name for p in tmp_path.iterdir()] == ["note"]


def test_a_source_that_fails_leaves_nothing_behind(tmp_path):
    def failing():
        yield documents()[0]
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_shards(tmp_path / "s", failing(), "x", vocabulary=100)
    assert not list(tmp_path.iterdir())


def test_an_empty_source_is_refused(tmp_path):
    with pytest.raises(OnecurveError, match="no tokens"):
        write_shards(tmp_path / "s", [], "nothing", vocabulary=100)


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda p: (p / "manifest.json").unlink(), "No such file"),
        (lambda p: (p / "manifest.json").write_text("{"), "not a manifest"),
        (lambda p: (p / "training.bin").write_bytes(b"123"), "has 3 bytes"),
        (lambda p: (p / "held_out.bin").unlink(), "held_out.bin"),
    ],
)
def test_damaged_shards_are_refused_by_name(tmp_path, damage, words):
    shards = write_shards(tmp_path / "s", documents(), "x", vocabulary=100)
    damage(shards.path)
    with pytest.raises(OnecurveError, match=words):
        open_shards(shards.path)


def test_a_type_that_is_not_known_is_refused(tmp_path):
    shards = write_shards(tmp_path / "s", documents(), "x", vocabulary=100)
    manifest = json.loads((shards.path / "manifest.json").read_text()) | {"dtype": "int64"}
    (shards.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(OnecurveError, match="uint16 and uint32"):
        open_shards(shards.path)
