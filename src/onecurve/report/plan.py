"""The figure of a plan: fewer parameters for more tokens, at equal loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onecurve.plan.compression import EXPONENT, OPTIMAL, share_at, tokens_factor
from onecurve.report.colours import ROLES, size_colours
from onecurve.report.figures import check_suffix, style, write_figure
from onecurve.report.panels import optional

COLOURS = ROLES["light"]


def save_trade_off(path: Path, bands: Sequence[float]) -> None:
    """Parameters and compute, over the compute-optimal model's, against tokens per parameter; bands are marked."""
    check_suffix(path)
    figure_module, canvas = optional("matplotlib.figure"), optional("matplotlib.backends.backend_agg")
    least = 1.05 * 2.0 ** (-1.0 / EXPONENT)
    share = np.geomspace(least, 1.0, 400)
    tokens = tokens_factor(share)
    tpp = OPTIMAL * tokens / share
    shown = tpp <= max(2000.0, *bands)
    with style():
        figure = figure_module.Figure(figsize=(5.6, 3.6), layout="constrained")
        canvas.FigureCanvasAgg(figure)
        ax = figure.subplots()
        first, second = size_colours(2)
        ax.plot(tpp[shown], share[shown], color=first, label="parameters")
        ax.plot(tpp[shown], (share * tokens)[shown], color=second, label="training compute")
        for band in bands:
            if band >= OPTIMAL:
                k = share_at(band)
                compute = k * float(tokens_factor(k))
                for y, colour in ((k, first), (compute, second)):
                    ax.plot([band], [y], "o", ms=5, color=colour)
                    ax.annotate(
                        f"{y:.2f}", (band, y), textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8
                    )
        ax.set_xscale("log")
        ax.set_yscale("log", base=2)
        ticks = [20, 50, 100, 200, 500, 1000, 2000]
        ax.set_xticks(ticks, [f"{t}" for t in ticks])
        ax.set_yticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
        ax.minorticks_off()
        ax.set_xlabel("tokens per parameter, at equal loss")
        ax.set_ylabel("over the compute-optimal model's")
        ax.legend(loc="upper left")
    write_figure(path, figure)
