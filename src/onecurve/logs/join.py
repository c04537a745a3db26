"""Parts of the same runs, as several folders or files: put together in the order in which they were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.logs.discover import Found
from onecurve.logs.log import Log, Series


def joined(parts: Sequence[tuple[str, Found]]) -> Found:
    """Logs of the same name as one run each; where every part holds one log, these, whatever they are called.

    Where a later part goes back in steps it is the branch that counts, as after any resume. A run that is in one part
    only stays as it is. Raises OnecurveError for parts that hold run directories or tables, no log, or two of a name.
    """
    if len(parts) < 2:
        raise OnecurveError(f"{''.join(path for path, _ in parts)}+: nothing to join; parts of a run are named A+B")
    for path, found in parts:
        if not found.logs or found.folders:
            what = "a run directory, which is whole" if found.folders else "no log of a trainer"
            raise OnecurveError(f"{path}: {what}; only logs are joined with +")
    groups: dict[str, list[Log]] = {}
    alone = all(len(found.logs) == 1 for _, found in parts)
    for path, found in parts:
        names = [log.name for log in found.logs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise OnecurveError(
                f"{path}: {names.count(twice)} runs are called {twice!r}, and parts are matched by name: join run by "
                "run"
            )
        for log in found.logs:
            groups.setdefault("" if alone else log.name, []).append(log)
    if not alone and all(len(logs) == 1 for logs in groups.values()):
        raise OnecurveError(
            f"{' and '.join(path for path, _ in parts)}: no run is in two of them, so nothing can be joined; they hold "
            f"{', '.join(sorted(groups)[:8])}"
        )
    return Found(
        logs=[_one(logs) for logs in groups.values()],
        problems=[error for _, found in parts for error in found.problems],
    )


def _one(logs: list[Log]) -> Log:
    dropped: Counter[str] = Counter()
    for log in logs:
        dropped.update(log.dropped)
    return replace(
        logs[0],
        source=" + ".join(log.source for log in logs),
        series=_after_each_other([log.series for log in logs]),
        settings={key: value for log in logs for key, value in log.settings.items()},
        notes=tuple(dict.fromkeys(note for log in logs for note in log.notes)),
        dropped=dict(dropped),
        means=tuple(dict.fromkeys(name for log in logs for name in log.means)),
        summaries=_after_each_other([log.summaries for log in logs]),
    )


def _after_each_other(parts: list[dict[str, Series]]) -> dict[str, Series]:
    out = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        found = [part[name] for part in parts if name in part]
        out[name] = Series(np.concatenate([s.step for s in found]), np.concatenate([s.value for s in found]))
    return out
