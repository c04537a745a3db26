"""The page of a collapse: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from onecurve import __version__
from onecurve.measure.result import Collapse
from onecurve.measure.verdict import heading, notes, smoothing, tables, verdict
from onecurve.report.charts import charts
from onecurve.report.markup import check_page, columns, document, items, panel, paragraphs, section, switches, table
from onecurve.report.panels import MOST_RUNS, View, view
from onecurve.run import human
from onecurve.store import write_atomic

TITLE = "Do the loss curves fall onto one curve?"
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
    # The name of a lone collapse is said once.
    each = [(c, p.name if len(collapses) > 1 else "") for c, p in zip(collapses, shown.panels, strict=True)]
    body = "\n".join(
        [
            paragraphs(introduction),
            section("verdict", "Verdict", columns([_verdict(p.collapse, p.name) for p in shown.panels])),
            section("charts", "Charts", _charts(shown, rows)),
            section("tables", "Tables", columns([_tables(c, name) for c, name in each])),
            section("notes", "Notes", columns([_notes(c, name) for c, name in each])),
            section("made", "What produced this", columns([_made(c, name) for c, name in each])),
        ]
    )
    return document(title, body, rows, len(shown.sizes), len(collapses))


def save_page(path: str | Path, collapses: Sequence[Collapse], title: str = TITLE, introduction: str = "") -> None:
    """Write the page of `page`, in one step. Raises OnecurveError for a suffix other than .html."""
    path = Path(path)
    check_page(path)
    write_atomic(path, page(collapses, title, introduction))


def _name(name: str) -> str:
    return f"<h3>{escape(name)}</h3>\n" if name else ""


def _verdict(c: Collapse, name: str) -> str:
    v = verdict(c)
    checks = f"<h4>Check, in this order</h4>\n{items('ol', v.checks)}" if v.checks else ""
    what = heading(c).removeprefix(f"{c.name}: ")
    return (
        f'<div class="verdict {"within" if v.practical else "beyond"}">\n{_name(name)}'
        f'<p class="headline">{escape(v.headline)}</p>\n<p class="what">{escape(what)}</p>\n'
        f"{items('ul', v.sentences)}\n{checks}\n</div>"
    )


def _charts(shown: View, rows: list[list[dict[str, Any]]]) -> str:
    parts = [
        '<noscript><p class="note">The charts need JavaScript; verdict, tables and notes do not.</p></noscript>',
        switches("Sizes to show", "Size (parameters)", [human(size) for size in shown.sizes]),
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
        parts.append(panel(k, title, text, row, [p.name if len(row) > 1 else "" for p in shown.panels]))
    return "\n".join([*parts, "</div>"])


def _tables(c: Collapse, name: str) -> str:
    return _name(name) + '<div class="tables">' + "\n".join(table(rows) for rows in tables(c)) + "</div>"


def _notes(c: Collapse, name: str) -> str:
    return _name(name) + items("ul", notes(c))


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
