"""Figures and the page: how a result looks."""

from onecurve.report.figures import draw, save_figure


__all__ = ["draw", "save_figure"]
