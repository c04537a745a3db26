"""``onecurve frontier`` as a user meets it."""

from __future__ import annotations

import json

import pytest

from .test_collapse import onecurve

TABLE = """name,family,n_params,tokens,accuracy
small,mine,1e8,2e9,0.40
middle,mine,2e8,4e9,0.44
large,mine,4e8,8e9,0.48
"""


def test_the_published_models_alone():
    said = onecurve("frontier")
    assert said.code == 0
    assert "exponent 0.083 ± 0.013 (90 %, 5 sizes)" in said.out and "BTLM-3B" in said.out


def test_a_table_in_json_figure_and_page_out(tmp_path):
    file, out = tmp_path / "models.csv", tmp_path / "out.json"
    file.write_text(TABLE)
    page, figure = tmp_path / "page.html", tmp_path / "figure.svg"
    said = onecurve("frontier", file, "--family", "mine", "--json", out, "--figure", figure, "--report", page)
    assert said.code == 0 and "Compute of mine at the score of each other model" in said.out
    content = json.loads(out.read_text())
    assert content["ratios"]["family"] == "mine" and len(content["models"]) == 13
    html = page.read_text()
    assert "small" in html and "plotly" in html and 'src="http' not in html
    drawn = figure.read_text()
    assert drawn.startswith("<?xml") and len(drawn) > 10_000
    first = figure.read_bytes()
    onecurve("frontier", file, "--figure", figure)
    assert figure.read_bytes() == first
    assert json.loads(onecurve("frontier", file, "--family", "mine", "--json", "-").out) == content


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--flops", "exact"), "--flops is 'exact'; accepted are given or 6nd"),
        (("--family", "Celerty"), "did you mean 'Celerity'?"),
        (("--score", "acuracy"), "did you mean 'accuracy'?"),
        (("missing.csv",), "missing.csv: no such file"),
        (("--report", "page.txt"), "a page is written as .html"),
        (("--figure", "figure.jpg"), "a figure is written as"),
        (("--no-published",), "no models: name tables"),
    ],
)
def test_what_is_refused(arguments, words):
    said = onecurve("frontier", *arguments)
    assert said.code == 2 and words in said.err and "Traceback" not in said.err


def test_text_of_the_user_stays_text(tmp_path):
    file, page = tmp_path / "models.csv", tmp_path / "page.html"
    file.write_text(TABLE.replace("small,mine", "<script>alert(1)</script>,<b>mine</b>"))
    assert onecurve("frontier", file, "--report", page, "--figure", tmp_path / "f.png").code == 0
    assert "<script>alert" not in page.read_text() and "<b>mine" not in page.read_text()


def test_distilled_models_are_hollow_on_the_page(tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "models.csv"
    file.write_text(TABLE)

    def drawn(*arguments: object) -> tuple[int, bool]:
        assert onecurve("frontier", *arguments, "--report", page).code == 0
        return page.read_text().count('"circle-open"'), "Hollow: distilled, teacher not counted" in page.read_text()

    ours = drawn(file, "--no-published")  # what is left is the chart library's own
    assert not ours[1] and drawn() == (ours[0] + 4, True)  # Gemma 2 and 3, on both charts


def test_one_model_and_many(tmp_path):
    file = tmp_path / "models.csv"
    file.write_text("name,flops,bits_per_byte\nalone,1e18,1.5\n")
    said = onecurve("frontier", file, "--figure", tmp_path / "f.png", "--report", tmp_path / "f.html")
    assert said.code == 0 and "On the frontier of bits per byte and compute: alone." in said.out
    rows = [f"m{k},f{k % 15},{10 ** (15 + k / 100)},{2 - k / 1000}" for k in range(300)]
    file.write_text("\n".join(["name,family,flops,bits_per_byte", *rows]))
    said = onecurve("frontier", file, "--figure", tmp_path / "f.png", "--report", tmp_path / "f.html")
    assert said.code == 0 and "(the first 40 of 300)" in said.out
