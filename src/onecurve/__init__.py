"""onecurve: do the loss curves of a model family fall onto one curve, and what does it mean if not?

The names below are loaded when they are first used, so that ``import onecurve`` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Collapse": "onecurve.measure.result",
    "Columns": "onecurve.frame",
    "Curve": "onecurve.run",
    "Ladder": "onecurve.ladder",
    "OnecurveError": "onecurve.errors",
    "Run": "onecurve.run",
    "RunConfig": "onecurve.run",
    "Schedule": "onecurve.schedule",
    "collapse": "onecurve.measure.collapse",
    "draw": "onecurve.report",
    "families": "onecurve.ladder",
    "fit_horizon": "onecurve.laws.horizon",
    "read": "onecurve.logs",
}

if TYPE_CHECKING:
    from onecurve.errors import OnecurveError as OnecurveError
    from onecurve.frame import Columns as Columns
    from onecurve.ladder import Ladder as Ladder
    from onecurve.ladder import families as families
    from onecurve.laws.horizon import fit_horizon as fit_horizon
    from onecurve.logs import read as read
    from onecurve.measure.collapse import collapse as collapse
    from onecurve.measure.result import Collapse as Collapse
    from onecurve.report import draw as draw
    from onecurve.run import Curve as Curve
    from onecurve.run import Run as Run
    from onecurve.run import RunConfig as RunConfig
    from onecurve.schedule import Schedule as Schedule

__all__ = [
    "Collapse",
    "Columns",
    "Curve",
    "Ladder",
    "OnecurveError",
    "Run",
    "RunConfig",
    "Schedule",
    "collapse",
    "draw",
    "families",
    "fit_horizon",
    "read",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'onecurve' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
