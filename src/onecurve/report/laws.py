"""Figures of laws: a predicted curve with its band, beside what the run did where it was trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onecurve.laws.estimate import measured
from onecurve.laws.law import Law
from onecurve.report.colours import ROLES, size_colours
from onecurve.report.figures import check_suffix, style, write_figure
from onecurve.report.panels import optional
from onecurve.run import Run, human

COLOURS = ROLES["light"]
POINTS = 300
MOST = 12
"""Predictions drawn; more than these hide each other."""


def save_predictions(path: Path, law: Law, runs: Sequence[Run], loss: str | None = None) -> None:
    """Predicted curves with their bands; the losses of runs that were trained as points behind them."""
    check_suffix(path)
    figure_module = optional("matplotlib.figure")
    # Runs that differ in their seed have one prediction.
    alike: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.config.n_params):
        c = run.config
        schedule = "" if c.schedule is None else f", {c.schedule}"
        alike.setdefault(f"N = {human(c.n_params)}, {human(run.end)} {run.x_name}{schedule}", []).append(run)
    with style():
        figure = figure_module.Figure(figsize=(5.2, 3.4), layout="constrained")
        ax = figure.subplots()
        ends: list[float] = []
        shown = list(alike.items())[:MOST]
        for colour, (label, group) in zip(size_colours(len(shown)), shown, strict=True):
            run = group[0]
            x = np.linspace(0.02, 1.0, POINTS) * run.end
            value = law.predict(run, x)
            low, high = law.interval(run, x)
            for each in group:
                if each.curves:
                    curve = measured(type(law), each, loss)
                    late = curve.x >= x[0]
                    at, losses = curve.x[late] / each.end, curve.loss[late]
                    ax.plot(at, losses, color=colour, lw=0, marker=".", ms=2, alpha=0.5)
            ax.plot(x / run.end, value, color=colour, lw=1.3, label=label)
            if np.isfinite(low).any():
                ax.fill_between(x / run.end, low, high, color=colour, alpha=0.18, lw=0)
            late = x > 0.06 * run.end
            ends += [float(v) for c in (value, low, high) for v in c[late & np.isfinite(c)]]
        if ends:
            margin = 0.05 * (max(ends) - min(ends))
            ax.set_ylim(min(ends) - margin, max(ends) + margin)
        ax.set_xlim(0.0, 1.0)
        ax.set_xlabel("training fraction x")
        ax.set_ylabel("loss / final loss" if law.normalised else "loss")
        words = (
            "" if law.band is None else f"; band: {law.band.level:.0%} of points with a {law.band.left_out} left out"
        )
        ax.set_title(f"{law.name}{words}", loc="left", fontweight="bold")
        ax.legend(loc="upper right", frameon=False)
    write_figure(path, figure)
