"""The colours of the figure and of the page: one for every size, and a few with a fixed meaning.

Sizes run along plasma, which is perceptually uniform and keeps its order for colour-blind readers. Its pale end is
left out on white, its dark end on black, so that every line stands out from what lies behind it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

PLASMA = (
    "#0d0887", "#330597", "#5002a2", "#6a00a8", "#8405a7", "#9c179e", "#b12a90", "#c33d80", "#d35171",
    "#e16462", "#ed7953", "#f68f44", "#fca636", "#fec029", "#f9dc24", "#f0f921",
)  # fmt: skip
"""The map at 16 equal steps; between them linearly."""
STRETCH = {"light": (0.0, 0.72), "dark": (0.36, 1.0)}

ROLES = {
    "light": {
        "ink": "#1a1a1a",
        "muted": "#5f6368",
        "grid": "#e3e5e8",
        "paper": "#ffffff",
        "deviation": "#c8500a",
        "noise": "#0068a8",
        "spread": "#c8500a",
    },
    "dark": {
        "ink": "#eceff1",
        "muted": "#a3abb3",
        "grid": "#33383e",
        "paper": "#16191d",
        "deviation": "#ff9b5c",
        "noise": "#62bdf2",
        "spread": "#ff9b5c",
    },
}
"""Deviation and noise floor are orange and blue, which every common colour blindness tells apart."""


def size_colours(count: int, theme: str = "light") -> list[str]:
    """One colour a size, smallest first.

    Examples:
        >>> size_colours(2)
        ['#0d0887', '#f48b47']
    """
    low, high = STRETCH[theme]
    at = np.linspace(low, high, count) if count > 1 else np.array([(low + high) / 2])
    table = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in PLASMA], dtype=np.float64)
    steps = np.linspace(0.0, 1.0, len(PLASMA))
    channels = np.column_stack([np.interp(at, steps, table[:, k]) for k in range(3)]).round().astype(int)
    return ["#" + "".join(f"{v:02x}" for v in row) for row in channels]


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours as WCAG 2 defines it, from 1 to 21."""
    low, high = sorted(_luminance(c) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255.0 for i, _ in pairwise((1, 3, 5, 7))]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
