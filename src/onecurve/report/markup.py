"""The parts of a page: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from onecurve import __version__
from onecurve.errors import OnecurveError
from onecurve.measure.verdict import Rows
from onecurve.report.charts import Chart
from onecurve.report.colours import ROLES, size_colours
from onecurve.report.panels import optional

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def document(title: str, body: str, rows: Sequence[Sequence[Chart]], colours: int, beside: int = 1) -> str:
    """A self-contained page around ``body``, with the charts that its panels have places for.

    ``rows`` are plotly's charts as `onecurve.report.charts` makes them, whose roles size0, size1, ... have ``colours``.
    """
    # The words stand in the page itself.
    drawn = [[{k: v for k, v in chart.items() if k != "words"} for chart in row] for row in rows]
    data = {"rows": drawn, "palettes": {theme: _palette(colours, theme) for theme in ROLES}}
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
{_theme_rules(colours)}
{(own / "page.css").read_text("utf-8")}</style>
</head>
<body class="{"single" if beside == 1 else "several"}" style="--columns: {beside}">
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


def check_page(path: Path) -> None:
    """Raise OnecurveError for a file that is not one of a page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise OnecurveError(f"{path}: a page is written as .html; got suffix {path.suffix!r}")


def section(key: str, title: str, content: str) -> str:
    """A part of the page with its heading."""
    return f'<section aria-labelledby="{key}">\n<h2 id="{key}">{title}</h2>\n{content}\n</section>'


def columns(parts: Sequence[str]) -> str:
    """Parts side by side, where there is room."""
    return '<div class="columns">\n' + "\n".join(f"<div>{part}</div>" for part in parts) + "\n</div>"


def paragraphs(text: str) -> str:
    """Plain text; empty lines part its paragraphs."""
    return "\n".join(f"<p>{escape(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def items(kind: str, texts: Sequence[str]) -> str:
    """A list, ``ul`` or ``ol``, of plain texts."""
    return f"<{kind}>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + f"</{kind}>"


def switches(what: str, words: str, names: Sequence[str]) -> str:
    """Buttons that show and hide what is drawn in the colours size0, size1, ..."""
    buttons = "".join(
        f'<button type="button" class="size" aria-pressed="true" data-size="{i}">'
        f'<span style="background: var(--size{i})"></span>{escape(name)}</button>'
        for i, name in enumerate(names)
    )
    return f'<div class="sizes" role="group" aria-label="{what}">{words}: {buttons}</div>'


def panel(k: int, title: str, text: str, row: Sequence[Chart], names: Sequence[str]) -> str:
    """The place of the k-th row of charts, with its words and the buttons of its scales."""
    scales = "".join(
        f'<button type="button" data-row="{k}" data-axis="{axis}" '
        f'aria-pressed="{str(row[0]["layout"][axis]["type"] == "log").lower()}">log {axis[0]}</button>'
        for axis in row[0]["ranges"]
    )
    figures = "\n".join(
        _figure(f"plot-{k}-{i}", title, chart["words"], name)
        for i, (chart, name) in enumerate(zip(row, names, strict=True))
    )
    return (
        f'<div class="panel"><div class="head"><h3>{title}</h3>'
        f'<div class="scales" role="group" aria-label="Scales of {title.lower()}">{scales}</div></div>'
        f'<p class="what">{text}</p>\n<div class="columns">{figures}</div></div>'
    )


def _figure(key: str, title: str, words: str, name: str) -> str:
    above = f"<h4>{escape(name)}</h4>" if name else ""
    said = f"{name}: {title}: {words}" if name else f"{title}: {words}"
    plot = f'<div class="plot" id="{key}" role="img" aria-label="{escape(said)}"></div>'
    return f"<figure>{above}{plot}<figcaption>{escape(words)}</figcaption></figure>"


def table(rows: Rows) -> str:
    """A small table."""
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


def _json(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so no U+2028 either
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _palette(colours: int, theme: str) -> dict[str, str]:
    sizes = size_colours(colours, theme)
    return ROLES[theme] | {f"size{i}": colour for i, colour in enumerate(sizes)}


def _theme_rules(colours: int) -> str:
    """The colours as CSS variables: light, dark as the system says, dark or light as the button says."""
    rules = {
        theme: "".join(f"--{role}: {colour}; " for role, colour in _palette(colours, theme).items()) for theme in ROLES
    }
    return (
        f":root {{ color-scheme: light; {rules['light']}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {rules['dark']}}} }}\n"
        f":root[data-theme=light] {{ color-scheme: light; {rules['light']}}}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {rules['dark']}}}"
    )
