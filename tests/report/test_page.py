import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from onecurve import OnecurveError, __version__
from onecurve.measure.verdict import tables, verdict
from onecurve.report import page, save_page
from onecurve.report.markup import POLICY

NASTY = "<script>alert(1)</script><!--\u2028%{x} </script> &amp; \"'"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Elements, attributes and text; raises where elements do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.scripts, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def named(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def data(self):
        return json.loads(self.scripts[1])


def numbers(array):
    return np.frombuffer(base64.b64decode(array["bdata"]), dtype="<f4")


def test_the_page_says_what_was_found(measured):
    c = measured(drift=1.0)
    read = Reader(page([c], introduction="One.\n\nTwo & three."))
    text = "\n".join(read.texts)
    v = verdict(c)
    for part in (v.headline, *v.sentences, *v.checks, "One.", "Two & three.", c.floor.note, f"onecurve {__version__}"):
        assert part in text
    assert len(read.named("caption")) == len(tables(c))
    assert [k for k, _ in read.elements if k in ("h1", "h2")] == ["h1"] + ["h2"] * 5


def test_the_page_loads_nothing(measured):
    text = page([measured()])
    read = Reader(text)
    assert [a for _, attrs in read.elements for a in attrs if a in ("src", "href", "srcset", "action", "data")] == []
    assert read.named("link") == []
    assert re.findall(r"@import|url\(", "".join(re.findall(r"<style>.*?</style>", text, re.S))) == []
    assert {"http-equiv": "Content-Security-Policy", "content": POLICY} in read.named("meta")
    assert "showSendToCloud: false" in read.scripts[2]
    assert len(text) < 6e6


def test_text_of_the_user_stays_text(measured):
    c = measured(name=NASTY, run_name=NASTY, loss_name=NASTY, x_name=NASTY, unfinished=True)
    text = page([c, c], title=NASTY, introduction=NASTY)
    read = Reader(text)
    assert len(read.scripts) == 3
    assert text.count("<script") == 3
    assert "alert(1)</script>" not in text
    assert "<!--" not in read.scripts[1] + read.scripts[2]
    assert "\u2028" not in read.scripts[1]
    assert read.texts.count(NASTY) >= 6
    trace = read.data["rows"][0][0]["data"][0]
    assert "&lt;script&gt;alert(1)" in trace["meta"][0]
    assert NASTY not in trace["hovertemplate"]
    # Plotly knows a few tags: none of the user's may reach it as one.
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(read.data["rows"]))
    tags = {tag for s in strings for tag in re.findall(r"<[^>]*>", s)}
    assert tags <= {"<b>", "</b>", "<br>", "<extra>", "</extra>"}


def test_charts_hold_the_curves(measured):
    c = measured(floor="fit", drift=1.0)
    rows = Reader(page([c])).data["rows"]
    assert [len(row) for row in rows] == [1, 1, 1, 1]
    normalised = rows[1][0]["data"]
    np.testing.assert_allclose(numbers(normalised[0]["y"]), c.normalised[0], rtol=1e-6)
    by_name = {trace.get("name"): trace for trace in rows[2][0]["data"]}
    np.testing.assert_allclose(numbers(by_name["deviation Δ"]["y"])[:-1], c.corrected_deviation[:-1], rtol=1e-6)
    np.testing.assert_allclose(numbers(by_name["noise floor σ"]["y"]), c.corrected_noise_floor, rtol=1e-6)
    assert all(len(chart["data"]) == len(chart["roles"]) for row in rows for chart in row)


def test_two_collapses_have_the_same_ranges(measured):
    read = Reader(page([measured(name="with muP"), measured(name="without", drift=1.0)]))
    for row in read.data["rows"]:
        assert row[0]["ranges"] == row[1]["ranges"]
        assert row[0]["layout"]["yaxis"]["range"] == row[1]["layout"]["yaxis"]["range"]
    assert len([a for a in read.named("div") if a.get("role") == "img"]) == 8
    assert {"with muP", "without"} <= set(read.texts)


def test_every_role_has_a_colour_in_both_themes(measured):
    data = Reader(page([measured(), measured(sizes=7)])).data
    roles = {role for row in data["rows"] for chart in row for role in chart["roles"]}
    assert all(roles <= set(palette) for palette in data["palettes"].values())


def test_controls_can_be_reached_and_are_named(measured):
    read = Reader(page([measured()]))
    buttons = read.named("button")
    assert all(b["type"] == "button" and b["aria-pressed"] in ("true", "false") for b in buttons)
    assert {b.get("id") for b in buttons} >= {"theme"}
    assert sum("data-axis" in b for b in buttons) == 8
    assert sum("data-size" in b for b in buttons) == 5
    assert all(a["aria-label"] for a in read.named("div") if a.get("role") in ("img", "region", "group"))
    assert read.named("html") == [{"lang": "en"}]


def test_one_seed_nan_unfinished_and_many_runs(measured):
    assert "one seed a size: no noise floor" in page([measured(seeds=1)])
    read = Reader(page([measured(broken=True, unfinished=True)]))
    assert "1 unfinished run" in "".join(read.texts)
    assert any(np.isnan(numbers(t["y"])).any() for t in read.data["rows"][0][0]["data"])
    text = page([measured(seeds=100, points=50)])
    assert "More than 120 runs (500)" in text
    assert len(text) < 6.5e6


def test_the_same_input_gives_the_same_bytes_and_the_file_is_written_at_once(measured, tmp_path):
    c = measured(points=40)
    save_page(tmp_path / "a.html", [c])
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page([c])
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    with pytest.raises(OnecurveError, match=r"\.html; got suffix '\.pdf'"):
        save_page(tmp_path / "a.pdf", [c])
    with pytest.raises(OnecurveError, match="at least one collapse"):
        page([])
