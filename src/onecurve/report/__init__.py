"""Figures and the page: how a result looks."""

from onecurve.report.figures import draw, save_figure
from onecurve.report.page import page, save_page

__all__ = ["draw", "page", "save_figure", "save_page"]
