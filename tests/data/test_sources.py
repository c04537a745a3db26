import json

import numpy as np
import pytest

from onecurve import OnecurveError
from onecurve.data import sources


def text(ids) -> bytes:
    return bytes(np.asarray(ids, dtype=np.uint8))


def test_the_standard_library_is_python_and_names_its_version():
    import platform

    name, documents = sources.standard_library()
    assert platform.python_version() in name
    total = sum(len(d) for d in documents)
    assert total > 5_000_000


def test_documents_end_with_a_separator_that_they_do_not_hold():
    a, b = sources.as_bytes([b"ab\0c", b""])
    assert text(a) == b"abc\0" and text(b) == b"\0"


def test_folders_are_read_by_path(tmp_path):
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("first")
    assert list(sources.text_files([tmp_path])) == [b"first", b"second"]
    with pytest.raises(OnecurveError, match="no such file or folder"):
        list(sources.text_files([tmp_path / "none"]))


def test_a_tokenizers_file_encodes_and_ends_each_document(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tok = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "a": 1, "b": 2, "?": 3}, unk_token="?"))
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tok.save(str(tmp_path / "tokenizer.json"))
    encode, size = sources.tokenizer(tmp_path / "tokenizer.json")
    assert size == 4 and encode("b a c").tolist() == [2, 1, 3, 0]
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(OnecurveError, match="not a tokenizers file"):
        sources.tokenizer(tmp_path / "bad.json")


def test_hugging_face_datasets_stream_from_a_file(tmp_path):
    pytest.importorskip("datasets")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": word}) + "\n" for word in ("one", "two")))
    assert list(sources.hugging_face(str(path), "train", "text")) == ["one", "two"]
    with pytest.raises(OnecurveError, match="no column 'body'; it has text"):
        list(sources.hugging_face(str(path), "train", "body"))


def test_cifar_parts_become_grey_pixels(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "part0.npz", X=images, Y=np.zeros(3))
    rows = list(sources.cifar5m([tmp_path / "part0.npz"]))
    assert len(rows) == 3 and all(len(r) == 1025 and r[0] == 256 for r in rows)
    assert rows[1][1] == round(images[1, 0, 0].astype(float).mean())
    np.savez(tmp_path / "other.npz", Z=images)
    with pytest.raises(OnecurveError, match="not a part of CIFAR-5M"):
        list(sources.cifar5m([tmp_path / "other.npz"]))


PGN = """[Event "Rated Blitz game"]
[WhiteElo "1639"]
[BlackElo "1403"]

1. e4 { [%eval 0.17] } 1... c5 2. Nf3
Nc6 1-0

[Event "Rated Bullet game"]

1. d4 d5 1/2-1/2
"""


@pytest.mark.parametrize("compressed", [False, True])
def test_games_are_ratings_and_moves(tmp_path, compressed):
    path = tmp_path / ("games.pgn.zst" if compressed else "games.pgn")
    if compressed:
        path.write_bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(PGN.encode()))
    else:
        path.write_text(PGN)
    assert list(sources.pgn_games([path])) == [b"1639 1403 1. e4 c5 2. Nf3 Nc6 1-0", b"? ? 1. d4 d5 1/2-1/2"]
