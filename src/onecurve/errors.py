"""The one kind of error that a user can mend."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class OnecurveError(ValueError):
    """Names the file or field, the value received, what is accepted and what to do next.

    The command line prints its text alone and exits with code 2; anything else is a fault of the program.
    """


def optional(module: str, purpose: str, extra: str) -> Any:
    """A module of a library that comes with an extra; OnecurveError with the remedy where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise OnecurveError(
            f"{purpose} need {package}, which is not installed: pip install 'onecurve[{extra}]'"
        ) from None
