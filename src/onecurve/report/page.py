"""The page of a collapse: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from onecurve import __version__
from onecurve.errors import OnecurveError
from onecurve.measure.result import Collapse
from onecurve.measure.verdict import Rows, heading, notes, smoothing, tables, verdict
from onecurve.report.charts import charts
from onecurve.report.colours import ROLES, size_colours
from onecurve.report.panels import MOST_RUNS, View, optional, view
from onecurve.run import human
from onecurve.store import write_atomic

TITLE = "Do the loss curves fall onto one curve?"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
HEADINGS = (
    ("Loss", "Each run as it was logged, before any smoothing."),
    (
        "Normalised loss",
        "Every run less the floor, divided by its own final value. Below: how far each size's mean lies from the mean "
        "of the sizes.",
    ),
    (
        "Deviation and noise floor",
        "Δ: spread of the normalised curves over sizes and seeds. σ: spread of the reducible loss over seeds. Δ goes "
        "to zero at x = 1 because every run is divided by its own end.",
    ),
    ("Final loss", "Circles: the mean of a size. Dots: its runs."),
)
SPREAD_HEADING = (
    "Relative spread of the sizes",
    "Spread over sizes, relative to the height of the mean curve above its end, against the tolerance; the verdict is "
    "read at the marked fractions.",
)


def page(collapses: Sequence[Collapse], title: str = TITLE, introduction: str = "") -> str:
    """A self-contained HTML page of one collapse, or of several side by side.

    ``introduction`` is plain text that goes above the verdict; empty lines part its paragraphs. Text from runs and
    columns is shown as text, whatever it holds. Raises OnecurveError without a collapse, or without plotly.
    """
    collapses = list(collapses)
    shown = view(collapses)
    rows = charts(shown)
    # The words stand in the page itself.
    drawn = [[{k: v for k, v in chart.items() if k != "words"} for chart in row] for row in rows]
    data = {"rows": drawn, "palettes": {theme: _palette(shown, theme) for theme in ROLES}}
    # The name of a lone collapse is said once.
    each = [(c, p.name if len(collapses) > 1 else "") for c, p in zip(collapses, shown.panels, strict=True)]
    body = "\n".join(
        [
            _paragraphs(introduction),
            _section("verdict", "Verdict", _columns([_verdict(p.collapse, p.name) for p in shown.panels])),
            _section("charts", "Charts", _charts(shown, rows)),
            _section("tables", "Tables", _columns([_tables(c, name) for c, name in each])),
            _section("notes", "Notes", _columns([_notes(c, name) for c, name in each])),
            _section("made", "What produced this", _columns([_made(c, name) for c, name in each])),
        ]
    )
    own = files("onecurve.report")
    plotly = optional("plotly.offline").get_plotlyjs().replace("</script", "<\\/script")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{_theme_rules(shown)}
{(own / "page.css").read_text("utf-8")}</style>
</head>
<body class="{"single" if len(collapses) == 1 else "several"}" style="--columns: {len(collapses)}">
<header>
<h1>{escape(title)}</h1>
<button type="button" id="theme" aria-pressed="false" hidden>Dark theme</button>
</header>
<main>
{body}
</main>
<footer>onecurve {escape(__version__)}</footer>
<script>{plotly}</script>
<script type="application/json" id="data">{_json(data)}</script>
<script type="module">
{(own / "page.js").read_text("utf-8")}</script>
</body>
</html>
"""


def save_page(path: str | Path, collapses: Sequence[Collapse], title: str = TITLE, introduction: str = "") -> None:
    """Write the page of `page`, in one step. Raises OnecurveError for a suffix other than .html."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise OnecurveError(f"{path}: a page is written as .html; got suffix {path.suffix!r}")
    write_atomic(path, page(collapses, title, introduction))


def _json(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so no U+2028 either
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _palette(shown: View, theme: str) -> dict[str, str]:
    sizes = size_colours(len(shown.sizes), theme)
    return ROLES[theme] | {f"size{i}": colour for i, colour in enumerate(sizes)}


def _theme_rules(shown: View) -> str:
    """The colours as CSS variables: light, dark as the system says, dark or light as the button says."""
    rules = {
        theme: "".join(f"--{role}: {colour}; " for role, colour in _palette(shown, theme).items()) for theme in ROLES
    }
    return (
        f":root {{ color-scheme: light; {rules['light']}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {rules['dark']}}} }}\n"
        f":root[data-theme=light] {{ color-scheme: light; {rules['light']}}}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {rules['dark']}}}"
    )


def _section(key: str, title: str, content: str) -> str:
    return f'<section aria-labelledby="{key}">\n<h2 id="{key}">{title}</h2>\n{content}\n</section>'


def _columns(parts: Sequence[str]) -> str:
    return '<div class="columns">\n' + "\n".join(f"<div>{part}</div>" for part in parts) + "\n</div>"


def _paragraphs(text: str) -> str:
    return "\n".join(f"<p>{escape(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def _items(kind: str, texts: Sequence[str]) -> str:
    return f"<{kind}>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + f"</{kind}>"


def _name(name: str) -> str:
    return f"<h3>{escape(name)}</h3>\n" if name else ""


def _verdict(c: Collapse, name: str) -> str:
    v = verdict(c)
    checks = f"<h4>Check, in this order</h4>\n{_items('ol', v.checks)}" if v.checks else ""
    what = heading(c).removeprefix(f"{c.name}: ")
    return (
        f'<div class="verdict {"within" if v.practical else "beyond"}">\n{_name(name)}'
        f'<p class="headline">{escape(v.headline)}</p>\n<p class="what">{escape(what)}</p>\n'
        f"{_items('ul', v.sentences)}\n{checks}\n</div>"
    )


def _charts(shown: View, rows: list[list[dict[str, Any]]]) -> str:
    swatches = "".join(
        f'<button type="button" class="size" aria-pressed="true" data-size="{i}">'
        f'<span style="background: var(--size{i})"></span>{escape(human(size))}</button>'
        for i, size in enumerate(shown.sizes)
    )
    parts = [
        '<noscript><p class="note">The charts need JavaScript; verdict, tables and notes do not.</p></noscript>',
        f'<div class="sizes" role="group" aria-label="Sizes to show">Size (parameters): {swatches}</div>',
    ]
    thinned = [p for p in shown.panels if p.thinned]
    if thinned:
        total = ", ".join(str(len(p.collapse.sampled.runs)) for p in thinned)
        parts.append(
            f'<p class="note">More than {MOST_RUNS} runs ({total}): drawn are the mean of every size and an even '
            "subset of its runs; everything that is measured uses all of them.</p>"
        )
    parts.append('<div class="panels">')
    for k, row in enumerate(rows):
        title, text = SPREAD_HEADING if k == 2 and not shown.repeated else HEADINGS[k]
        scales = "".join(
            f'<button type="button" data-row="{k}" data-axis="{axis}" '
            f'aria-pressed="{str(row[0]["layout"][axis]["type"] == "log").lower()}">log {axis[0]}</button>'
            for axis in row[0]["ranges"]
        )
        figures = "\n".join(
            _figure(f"plot-{k}-{i}", title, chart["words"], p.name if len(row) > 1 else "")
            for i, (chart, p) in enumerate(zip(row, shown.panels, strict=True))
        )
        parts.append(
            f'<div class="panel"><div class="head"><h3>{title}</h3>'
            f'<div class="scales" role="group" aria-label="Scales of {title.lower()}">{scales}</div></div>'
            f'<p class="what">{text}</p>\n<div class="columns">{figures}</div></div>'
        )
    return "\n".join([*parts, "</div>"])


def _figure(key: str, title: str, words: str, name: str) -> str:
    above = f"<h4>{escape(name)}</h4>" if name else ""
    said = f"{name}: {title}: {words}" if name else f"{title}: {words}"
    plot = f'<div class="plot" id="{key}" role="img" aria-label="{escape(said)}"></div>'
    return f"<figure>{above}{plot}<figcaption>{escape(words)}</figcaption></figure>"


def _tables(c: Collapse, name: str) -> str:
    return _name(name) + '<div class="tables">' + "\n".join(_table(rows) for rows in tables(c)) + "</div>"


def _table(rows: Rows) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows.header)
    body = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows.rows
    )
    # A table wider than the screen scrolls in its own box, which the keyboard can reach.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(rows.title)}"><table>\n'
        f"<caption>{escape(rows.title)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>\n</table></div>"
    )


def _notes(c: Collapse, name: str) -> str:
    return _name(name) + _items("ul", notes(c))


def _made(c: Collapse, name: str) -> str:
    s = c.sampled
    facts = {
        "loss": f"{s.loss_name} ({s.kind})",
        "smoothing": smoothing(c),
        "x": s.runs[0].x_name,
        "grid": f"{c.fraction.size} fractions from {c.fraction[0]:.3g} to {c.fraction[-1]:.3g}",
        "floor": f"{c.floor.value!r} ({c.floor.how})",
        "tolerance": f"{c.tolerance:g} of the curve's height at x = .25 and .5",
        "runs": f"{len(s.runs)} finished, {len(s.unfinished)} unfinished",
        "made with": f"onecurve {__version__}",
    }
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in facts.items())
    return f"{_name(name)}<dl>{rows}</dl>"
