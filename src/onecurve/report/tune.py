"""The figure of a sweep: its runs so far, where they are predicted to go, and what is said of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onecurve.laws.law import Law
from onecurve.report.colours import ROLES
from onecurve.report.figures import check_suffix, style, write_figure
from onecurve.report.panels import optional
from onecurve.tune.stop import Decisions, shapes_of
from onecurve.tune.sweep import Sweep

COLOURS = ROLES["light"]
OF = {
    "continue": COLOURS["noise"],
    "ended": COLOURS["ink"],
    "stop": COLOURS["deviation"],
    "stopped": COLOURS["muted"],
    "failed": COLOURS["muted"],
}
MOST = 30
"""Runs named beside the right panel; more names than these do not fit."""


def save_sweep(path: Path, sweep: Sweep, law: Law, found: Decisions) -> None:
    """Curves with their predicted continuations, and the ends with their 90 % intervals in the order of the ranking."""
    check_suffix(path)
    figure_module = optional("matplotlib.figure")
    at = {run.config.name: k for k, run in enumerate(sweep.runs)}
    shape, _ = shapes_of(sweep, law)
    with style():
        rows = len(found.rows)
        figure = figure_module.Figure(figsize=(7.2, min(max(3.2, 1.2 + 0.16 * rows), 9.0)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
        lowest = [value for row in found.rows for value in (row.loss, row.low) if np.isfinite(value)]
        highest = [row.loss for row in found.rows if np.isfinite(row.loss)]
        for place, row in enumerate(found.rows):
            k, colour = at[row.run], OF[row.verdict]
            seen = np.isfinite(sweep.loss[k])
            left.plot(sweep.fraction[seen], sweep.loss[k, seen], color=colour, lw=1.0)
            if np.isfinite(row.end):
                right.plot([row.low, row.high], [place, place], color=colour, lw=1.2, solid_capstyle="butt")
                right.plot([row.end], [place], color=colour, marker="o", ms=3.5)
                if row.verdict != "ended":
                    ahead = sweep.fraction >= row.fraction
                    going = row.end * np.exp(found.stretch * shape[k, ahead])
                    left.plot(sweep.fraction[ahead], going, color=colour, lw=0.8, ls=(0, (3, 2)), alpha=0.8)
        for verdict, colour in OF.items():
            count = sum(row.verdict == verdict for row in found.rows)
            if count:
                left.plot([], [], color=colour, lw=1.4, label=f"{verdict} ({count})")
        if highest:
            wide = max(highest) > 2.0 * min(lowest)
            for axis, set_scale in ((left, left.set_yscale), (right, right.set_xscale)):
                if wide:
                    set_scale("log")
                axis.margins(0.03)
            ends = [sweep.loss[k][sweep.fraction > 0.05] for k in range(len(sweep.runs))]
            top = max((float(np.nanmax(e)) for e in ends if np.isfinite(e).any()), default=max(highest))
            left.set_ylim(min(lowest) * 0.98, top * 1.02)
        left.set_xlim(0.0, 1.0)
        left.set_xlabel("training fraction x")
        left.set_ylabel(sweep.loss_name)
        left.set_title("so far, and as predicted", loc="left", fontweight="bold")
        left.legend(loc="upper right")
        right.set_ylim(rows - 0.4, -0.6)
        right.set_yticks(range(rows) if rows <= MOST else [])
        if rows <= MOST:
            labels = sweep.labels
            right.set_yticklabels([labels[at[row.run]] for row in found.rows])
        right.yaxis.tick_right()
        right.grid(axis="y", visible=False)
        right.set_xlabel("final loss, 90 % interval")
        right.set_title("ends", loc="left", fontweight="bold")
    write_figure(path, figure)
