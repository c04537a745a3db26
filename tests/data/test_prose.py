"""The multiple-choice task made from the standard library: same items each time, and a true one among the choices."""

from __future__ import annotations

from onecurve.data.prose import CHOICES, CONTEXT, CONTINUATION, prose_items
from onecurve.data.shards import is_held_out
from onecurve.data.sources import as_bytes, standard_library


def test_items_are_pieces_of_held_out_modules():
    made = prose_items()
    assert made == prose_items() and len(made.items) > 200 and made.source.startswith("standard library of Python")
    held = [ids for ids in as_bytes(standard_library()[1]) if is_held_out(ids.astype("<u2").tobytes())]
    words = {word for ids in held for word in ids.tobytes().decode("utf-8", "replace").replace("#", " ").split()}
    for item in made.items:
        context, choices = str(item["context"]), item["choices"]
        assert isinstance(choices, list) and len(set(choices)) == CHOICES and item["gold"] in range(CHOICES)
        assert len(context) == CONTEXT and {len(choice) for choice in choices} == {CONTINUATION}
        assert words.issuperset(context.replace("#", " ").split()[1:-1])
    golds = [item["gold"] for item in made.items]
    assert all(0.15 < golds.count(k) / len(golds) < 0.35 for k in range(CHOICES))
