"""Figures of the checks of a parameterisation: activations against size, and loss against learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onecurve.measure.scaling import BAND, Coordinates, Transfer
from onecurve.report.colours import ROLES, size_colours
from onecurve.report.figures import check_suffix, style, write_figure
from onecurve.report.panels import optional
from onecurve.run import human

COLOURS = ROLES["light"]


def save_coordinates(path: Path, results: Sequence[Coordinates]) -> None:
    """Activations against width and depth, one line a layer kind with its slope; lines outside the band are thick."""
    check_suffix(path)
    figure, axes = _figure(len(results))
    with style():
        for ax, c in zip(axes, results, strict=True):
            colours = size_colours(len(c.values))
            for colour, (kind, values) in zip(colours, c.values.items(), strict=True):
                mean = np.exp(np.log(np.maximum(values, 1e-300)).mean(axis=1))
                slope, ok = c.slopes[kind], c.passes[kind]
                ax.fill_between(c.sizes, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15, lw=0)
                words = f"{kind}: slope {slope.value:+.2f}" + ("" if ok else f", beyond ±{BAND:g}")
                ax.plot(c.sizes, mean, color=colour, lw=1.2 if ok else 2.4, marker="o", ms=3, label=words)
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.set_xticks(c.sizes, [f"{v:g}" for v in c.sizes])
            ax.minorticks_off()
            ax.set_xlabel(c.axis if c.axis == "width" else "layers")
            ax.set_ylabel(f"root mean square after {c.steps} steps")
            ax.set_title(f"against {c.axis}", loc="left", fontweight="bold")
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))
    write_figure(path, figure)


def save_transfer(path: Path, results: Sequence[Transfer]) -> None:
    """Final loss against base learning rate, one line a size; its best rate with the interval below the curves."""
    check_suffix(path)
    figure, axes = _figure(len(results))
    with style():
        for ax, result in zip(axes, results, strict=True):
            colours = size_colours(len(result.sizes))
            for colour, size in zip(colours, result.sizes, strict=True):
                for seed in size.losses.T:
                    ax.plot(size.rates, seed, color=colour, lw=0.6, alpha=0.5)
                mean = size.losses.mean(axis=1)
                best = "at the grid's edge" if size.edge else f"best {size.value:.2g}"
                label = f"N = {human(size.n_params)}: {best}"
                ax.plot(size.rates, mean, color=colour, lw=1.3, marker="o", ms=3, label=label)
                if np.isfinite(size.value):
                    at = float(np.min(mean[np.isfinite(mean)]))
                    low, high = np.clip([size.low, size.high], size.rates[0], size.rates[-1])
                    ax.plot([low, high], [at, at], color=colour, lw=3, alpha=0.5, solid_capstyle="butt")
                    ax.plot([size.value], [at], color=colour, marker="|", ms=9, mew=2)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ticks = result.sizes[0].rates
            ax.set_xticks(ticks, [f"{v:.2g}" for v in ticks], rotation=45)
            ax.minorticks_off()
            ax.set_xlabel("base learning rate")
            ax.set_ylabel("final loss")
            ax.set_title(result.name, loc="left", fontweight="bold")
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
    write_figure(path, figure)


def _figure(columns: int) -> tuple[Any, list[Any]]:
    figure_module, canvas = optional("matplotlib.figure"), optional("matplotlib.backends.backend_agg")
    with style():
        figure = figure_module.Figure(figsize=(0.4 + 3.4 * columns, 4.2), layout="constrained")
        canvas.FigureCanvasAgg(figure)
        return figure, list(figure.subplots(1, columns, squeeze=False)[0])
