"""The one kind of error that a user can mend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class OnecurveError(ValueError):
    """Names the file or field, the value received, what is accepted and what to do next.

    The command line prints its text alone and exits with code 2; anything else is a fault of the program.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` with the nearest known name; nothing where none is near."""
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def some(names: Sequence[str], most: int = 8) -> str:
    """The first of some names, and how many there are.

    Examples:
        >>> some(["a", "b", "c"], 2)
        'a, b, ... (3 in all)'
    """
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def optional(module: str, purpose: str, extra: str) -> Any:
    """A module of a library that comes with an extra; OnecurveError with the remedy where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise OnecurveError(
            f"{purpose} need {package}, which is not installed: pip install 'onecurve[{extra}]'"
        ) from None
