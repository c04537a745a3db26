"""Figures and the page: how a result looks."""
