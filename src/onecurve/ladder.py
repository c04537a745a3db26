"""`Ladder`: the runs of one recipe, by size and seed; sampled, it is one matrix on one grid of fractions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onecurve.errors import OnecurveError, did_you_mean
from onecurve.fit import FloatArray, IntArray
from onecurve.run import Curve, LossKind, Run, human

if TYPE_CHECKING:
    from onecurve.frame import Columns

TRAINING_WINDOW = 0.02
"""Width of the trailing mean over a training loss, as a share of the run."""
GRID = 200
"""Steps of the default grid of fractions."""


@dataclass(frozen=True)
class Sampled:
    """The runs of a ladder on one grid of fractions; rows sorted by size, then by name."""

    fraction: FloatArray
    """(G,) rising, ends at 1."""
    loss: FloatArray
    """(n, G)"""
    counts: IntArray
    """(S,) runs of each size."""
    sizes: FloatArray
    """(S,) parameters."""
    runs: tuple[Run, ...]
    """(n,) the runs behind the rows."""
    unfinished: tuple[Run, ...]
    """Runs that end more than one evaluation before their horizon: not among the rows."""
    loss_name: str
    kind: LossKind
    window: float
    """Width of the trailing mean: a share of the run below 1, else in units of x; 0 where the loss is as logged."""
    dropped: dict[str, int]
    warnings: tuple[str, ...]

    @property
    def ends(self) -> FloatArray:
        """(n,) the x at which each run ends: its horizon, else its last point."""
        return np.array([run.config.horizon or float(run.curves[self.loss_name].x[-1]) for run in self.runs])


@dataclass(frozen=True)
class Ladder:
    """Runs of one recipe that differ in size and seed only.

    Two runs of one size are repetitions of each other: they differ in their seed and in nothing else that was
    recorded. Exact second copies of a run are dropped and counted. `families` splits a mixed lot into ladders.

    Raises OnecurveError for no runs at all, for two runs of one size and seed that are not copies, and for a size
    whose runs differ in anything but the seed.

    Examples:
        >>> runs = [Run.of(f"{n}-{s}", n_params=n, x=[1, 2], loss=[2, 1 + s / 100], horizon=2, seed=s)
        ...         for n in (1e6, 1e7) for s in (0, 1)]
        >>> Ladder(runs)
        Ladder(2 sizes from 1M to 10M, 4 runs, 2 seeds a size)
    """

    runs: tuple[Run, ...]
    name: str = ""
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __init__(
        self,
        runs: Iterable[Run],
        name: str = "",
        dropped: dict[str, int] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        kept, copies, twins = _without_copies(sorted(runs, key=lambda r: (r.config.n_params, r.config.name)))
        if not kept:
            raise OnecurveError("a ladder needs at least one run; got none")
        _refuse_unlike_repetitions(kept)
        counts = dict(dropped or {})
        if copies:
            counts["copies of a run"] = counts.get("copies of a run", 0) + copies
        object.__setattr__(self, "runs", tuple(kept))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "dropped", counts)
        object.__setattr__(self, "warnings", (*warnings, *(t for t in twins if t not in warnings)))

    @classmethod
    def from_frame(cls, frame: Any, runs: Any = None, columns: Columns | None = None) -> Ladder:
        """A ladder from a long table (pandas or polars), one row a logged point, and a table of the runs' settings.

        Columns are found by their usual names, or as ``columns`` says. Raises OnecurveError where the table holds
        more than one family (read it with `onecurve.frame.runs_from_frame` and split it with `families`).
        """
        from onecurve.frame import Columns, runs_from_frame

        table = runs_from_frame(frame, runs, columns or Columns())
        split = families(table.runs)
        if len(split) > 1:
            raise OnecurveError(
                f"the table holds {len(split)} families ({'; '.join(f.name for f in split)}); "
                "a ladder is one of them: filter the table first"
            )
        return cls(split[0].runs, dropped=table.dropped, warnings=table.warnings)

    def noting(self, dropped: Mapping[str, int], warnings: Sequence[str]) -> Ladder:
        """The same ladder with what its reader dropped and remarked."""
        together = Counter(self.dropped) + Counter(dropped)
        return replace(self, dropped=dict(together), warnings=(*self.warnings, *warnings))

    @property
    def sizes(self) -> list[float]:
        """Parameter counts, smallest first."""
        return sorted({run.config.n_params for run in self.runs})

    def rungs(self) -> Iterator[tuple[float, tuple[Run, ...]]]:
        """Each size with its runs."""
        for size, runs in by_size(self.runs).items():
            yield size, tuple(runs)

    def sample(
        self,
        grid: FloatArray | None = None,
        loss: str | None = None,
        kind: LossKind | None = None,
        window: float | None = None,
    ) -> Sampled:
        """All finished runs on one grid of fractions of their own horizon, by linear interpolation.

        ``grid`` defaults to 200 steps of .005 that end at 1, from the first fraction at which every run has a point.
        ``loss`` names the curve: by default the held-out loss if every run has one, else the training loss. A
        held-out loss is taken as it is; a training loss is smoothed by a trailing mean over ``window`` of the run
        (.02), the same share for every run; from 1 on it is a width in units of x, the same for every run, which bends
        small and large runs differently. ``kind`` overrides what the column's name says.
        """
        name, kind = self._which(loss, kind)
        width = (0.0 if kind == "held-out" else TRAINING_WINDOW) if window is None else window
        if not 0.0 <= width < np.inf:
            raise OnecurveError(
                f"the smoothing window (--window) is a share of the run below 1, or a width in x; got {width:g}"
            )
        grid = np.arange(1, GRID + 1) / GRID if grid is None else np.asarray(grid, dtype=np.float64)
        if grid.ndim != 1 or not grid.size or not (np.diff(grid) > 0).all() or not (grid[0] > 0 and grid[-1] == 1):
            raise OnecurveError("the grid must be a vector of fractions above 0 that rise strictly and end at 1")
        notes: list[str] = []
        finished: list[tuple[Run, Curve, float]] = []
        unfinished: list[Run] = []
        non_finite = 0
        no_horizon = sum(run.config.horizon is None for run in self.runs)
        if no_horizon:
            notes.append(
                f"{no_horizon} of {len(self.runs)} runs state no horizon: their last point is taken as the end of "
                "training (give the planned end with --horizon COLUMN)"
            )
        for run in self.runs:
            whole = run.curves[name]
            curve = whole.finite()
            non_finite += len(whole) - len(curve)
            if not len(curve):
                raise OnecurveError(
                    f"{run.where}: all {len(whole)} values of {name!r} are NaN or infinite; drop the run or choose "
                    "another curve with --loss"
                )
            horizon = float(whole.x[-1]) if run.config.horizon is None else run.config.horizon
            if horizon <= 0:
                raise OnecurveError(
                    f"{run.where}: {run.x_name!r} ends at {horizon:g}, so no share of the run can be told; x counts "
                    "from 0 at the start of training: choose another --x"
                )
            if ends_early(curve, horizon):
                unfinished.append(run)
            else:
                finished.append((run, curve, horizon))
        if non_finite:
            notes.append(f"{non_finite} losses are NaN or infinite: left out of every statistic")
        if unfinished:
            notes.append(
                f"{len(unfinished)} runs end before their horizon and are left out of every statistic: "
                + ", ".join(f"{r.config.name} (at x = {_reach(r, name):.2f})" for r in unfinished[:5])
                + (", ..." if len(unfinished) > 5 else "")
            )
        if not finished:
            raise OnecurveError(
                f"none of the {len(self.runs)} runs reaches its horizon, so nothing can be divided by its final loss; "
                "check --horizon (in units of --x), or wait for the runs to end"
            )
        first = max(curve.x[0] / horizon for _, curve, horizon in finished)
        fraction = grid[grid >= first - 1e-12]
        if fraction.size < 2:
            slow = max(finished, key=lambda f: f[1].x[0] / f[2])
            raise OnecurveError(
                f"{slow[0].where}: the first point is at x = {first:.3g} of the horizon, so there is no stretch of "
                "training that all runs cover; drop the run or check --horizon"
            )
        values = np.empty((len(finished), fraction.size))
        for row, (_, curve, horizon) in enumerate(finished):
            span = width if width >= 1.0 else width * horizon
            if not span < horizon:
                raise OnecurveError(
                    f"the smoothing window (--window) of {human(width)} is as long as a whole run ({human(horizon)})"
                )
            values[row] = resample(curve, fraction * horizon, span)
        rows = tuple(run for run, _, _ in finished)
        sizes, counts = np.unique([run.config.n_params for run in rows], return_counts=True)
        dropped = dict(self.dropped)
        if non_finite:
            dropped["losses that are NaN or infinite"] = non_finite
        return Sampled(
            fraction=fraction,
            loss=values,
            counts=counts.astype(np.intp),
            sizes=sizes,
            runs=rows,
            unfinished=tuple(unfinished),
            loss_name=name,
            kind=kind,
            window=width,
            dropped=dropped,
            warnings=(*self.warnings, *notes),
        )

    def _which(self, loss: str | None, kind: LossKind | None) -> tuple[str, LossKind]:
        """The curve that all runs share, and its kind."""
        shared = [name for name in self.runs[0].curves if all(name in run.curves for run in self.runs)]
        if loss is None:
            if not shared:
                raise OnecurveError(
                    f"the runs share no curve: {self.runs[0].where} has {sorted(self.runs[0].curves)}, "
                    f"{self.runs[-1].where} has {sorted(self.runs[-1].curves)}; name one with --loss"
                )
            loss = min(shared, key=lambda name: self.runs[0].curves[name].kind != "held-out")
        elif loss not in shared:
            lacking = next(run for run in self.runs if loss not in run.curves)
            raise OnecurveError(
                f"{lacking.where}: no curve {loss!r}; it has {', '.join(map(repr, sorted(lacking.curves)))}"
            )
        return loss, kind or self.runs[0].curves[loss].kind

    def __repr__(self) -> str:
        counts = sorted({len(runs) for _, runs in self.rungs()})
        seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        sizes = self.sizes
        label = f"{self.name}: " if self.name else ""
        span = human(sizes[0]) if len(sizes) == 1 else f"from {human(sizes[0])} to {human(sizes[-1])}"
        return (
            f"Ladder({label}{len(sizes)} size{'s' * (len(sizes) > 1)} {span}, {len(self.runs)} "
            f"run{'s' * (len(self.runs) > 1)}, {seeds} seed{'s' * (seeds != '1')} a size)"
        )


def resample(curve: Curve, at: FloatArray, window: float) -> FloatArray:
    """Losses at x = ``at``: interpolated, or the trailing mean over (x - window, x] where that holds a point."""
    exact = np.interp(at, curve.x, curve.loss)
    if window == 0.0:
        return exact
    # A point that lies at x up to rounding belongs to the window that ends there.
    slack = 1e-9 * curve.x[-1]
    high = np.searchsorted(curve.x, at + slack, side="right")
    low = np.searchsorted(curve.x, at - window + slack, side="right")
    points = high - low
    # Each window is summed by itself: differences of one running sum would carry a spike's rounding to the end.
    bounds = np.empty(2 * at.size, dtype=np.intp)
    bounds[::2], bounds[1::2] = low, high
    total = np.add.reduceat(np.append(curve.loss, 0.0), bounds)[::2]
    return np.where(points > 0, total / np.maximum(points, 1), exact)


def ends_early(finite: Curve, horizon: float) -> bool:
    """Whether the last finite point lies more than one evaluation spacing before the horizon."""
    spacing = finite.x[-1] - finite.x[-2] if len(finite) > 1 else 0.0
    return finite.x[-1] < horizon - spacing * (1 + 1e-6) - 1e-9 * horizon


def _reach(run: Run, loss: str) -> float:
    return float(run.curves[loss].finite().x[-1] / (run.config.horizon or run.curves[loss].x[-1]))


def _without_copies(runs: list[Run]) -> tuple[list[Run], int, list[str]]:
    """Runs without exact second copies, how many were dropped, and warnings of curves equal under two labels."""
    kept: list[Run] = []
    copies = 0
    warnings: list[str] = []
    alike: defaultdict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        c = run.config
        curve = next(iter(run.curves.values()), None)
        key = (c.n_params, len(curve) if curve else 0, repr(float(curve.loss[-1])) if curve else "")
        twins = [other for other in alike[key] if run.curves == other.curves]
        if any(not c.seed_label or c.seed_label == twin.config.seed_label for twin in twins):
            copies += 1
            continue
        if twins:
            twin = twins[0].config
            warnings.append(
                f"runs {twin.name!r} and {c.name!r} have different seeds ({twin.seed_label} and {c.seed_label}) but "
                "the same losses: a seed that changes nothing, or a copy under another name?"
            )
        alike[key].append(run)
        kept.append(run)
    return kept, copies, warnings


def _refuse_unlike_repetitions(runs: list[Run]) -> None:
    recipes = _recipes(runs)
    for size, group in by_size(runs).items():
        differing = _differing([recipes[id(run)] for run in group])
        if differing:
            raise OnecurveError(
                f"the {len(group)} runs of size {human(size)} differ in more than the seed, in "
                f"{' and '.join(differing)}: {_names(group)}; they are no repetitions of each other, so name the "
                "column that tells the families apart with --by, or leave runs out"
            )
        by_parent: defaultdict[str, list[Run]] = defaultdict(list)
        for run in group:
            if run.config.parent is not None:
                by_parent[run.config.parent].append(run)
        for parent, branches in by_parent.items():
            if len(branches) > 1:
                raise OnecurveError(
                    f"{_names(branches)} branched off the same run {parent!r} and share its losses up to there: they "
                    "are no repetitions of each other; name the column that tells them apart with --by, or keep one"
                )
        by_seed: defaultdict[str, list[Run]] = defaultdict(list)
        for run in group:
            by_seed[run.config.seed_label].append(run)
        for seed, same in by_seed.items():
            if seed and len(same) > 1:
                columns = _differing([run.config.settings for run in same])
                hint = f" (they differ in {', '.join(columns)})" if columns else ""
                raise OnecurveError(
                    f"{len(same)} runs have size {human(size)} and seed {seed} but different losses: {_names(same)}; "
                    f"if they are of different families, name the column that tells them apart with --by{hint}; if "
                    "one is a repetition, give it a seed of its own"
                )


def _names(runs: Sequence[Run]) -> str:
    return ", ".join(run.config.name for run in runs[:6]) + (", ..." if len(runs) > 6 else "")


def _differing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values are not the same in all records."""
    keys = {key: None for record in records for key in record}
    return [key for key in keys if len({str(record.get(key)) for record in records}) > 1]


def _recipes(runs: Sequence[Run]) -> dict[int, dict[str, Any]]:
    """For each run (by id), the recorded settings that belong to its recipe: not the name, the size or the seed.

    A learning rate counts before its scaling with width where that is known. Tokens per parameter count as equal up
    to 5 %, so that rounding to whole steps splits nothing.
    """
    per_param = sorted({r.config.horizon / r.config.n_params for r in runs if r.config.horizon is not None})
    group: dict[float, str] = {}
    for i, value in enumerate(per_param):
        together = i > 0 and value < 1.05 * per_param[i - 1]
        group[value] = group[per_param[i - 1]] if together else f"{value:.3g}"
    out: dict[int, dict[str, Any]] = {}
    for run in runs:
        c = run.config
        rate = (
            ("learning rate", c.learning_rate) if c.base_learning_rate is None else ("base rate", c.base_learning_rate)
        )
        known = {
            "schedule": None if c.schedule is None else str(c.schedule),
            "tokens per parameter": None if c.horizon is None else group[c.horizon / c.n_params],
            "batch": c.batch_tokens,
            rate[0]: rate[1],
            "weight decay": c.weight_decay,
            "optimiser": c.optimiser,
            "parameterisation": c.parameterisation,
            "branched": None if c.parent is None else "yes",
        }
        out[id(run)] = {key: value for key, value in known.items() if value is not None}
    return out


def _by_column(run: Run) -> dict[str, Any]:
    """Everything that was recorded of a run, by the names that a user may give."""
    fields = run.config.model_dump(exclude={"name", "n_params", "settings", "schedule"}, exclude_none=True)
    schedule = {} if run.config.schedule is None else {"schedule": str(run.config.schedule)}
    return fields | schedule | run.config.settings


def by_size(runs: Iterable[Run]) -> dict[float, list[Run]]:
    """The runs of each size, sizes rising."""
    groups: dict[float, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.config.n_params):
        groups.setdefault(run.config.n_params, []).append(run)
    return groups


def select(runs: Sequence[Run], condition: str) -> list[Run]:
    """The runs that meet ``SETTING=VALUE[,VALUE...]`` or ``SETTING!=VALUE[,...]``; the name and n_params count as
    settings. Numbers are compared as numbers, a text may end in ``*``.

    Raises OnecurveError for a condition without ``=``, a setting that no run records, or one that no run meets.
    """
    name, equals, text = condition.partition("=")
    negated = name.endswith("!")
    name, wanted = name.rstrip("!").strip(), [v.strip() for v in text.split(",")]
    if not equals or not name or not all(wanted):
        raise OnecurveError(
            f"{condition!r} is no condition; write SETTING=VALUE, SETTING=VALUE,VALUE or SETTING!=VALUE"
        )
    recorded = [_by_column(run) | {"name": run.config.name, "n_params": run.config.n_params} for run in runs]
    known = sorted({key for record in recorded for key in record})
    if name not in known:
        raise OnecurveError(f"no run records {name!r}{did_you_mean(name, known)}; recorded are {', '.join(known)}")

    def meets(value: Any) -> bool:
        return any(_equal(value, w) for w in wanted)

    out = [run for run, r in zip(runs, recorded, strict=True) if meets(r.get(name)) != negated]
    if not out:
        seen = list(dict.fromkeys(str(r.get(name)) for r in recorded))
        raise OnecurveError(f"no run meets {condition!r}; the values of {name!r} are {', '.join(seen[:20])}")
    return out


def _equal(value: Any, wanted: str) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return bool(np.isclose(float(wanted), value, rtol=5e-3))  # as printed, to three digits
        except ValueError:
            return False
    return str(value).startswith(wanted[:-1]) if wanted.endswith("*") else str(value) == wanted


def families(runs: Sequence[Run], by: str | None = None) -> list[Ladder]:
    """Split runs into ladders of one recipe each, in order of first appearance.

    Without ``by``: the recorded parts of the recipe that differ between runs of one size tell the families apart,
    and runs of other sizes join by the same values. With ``by``: the values of that setting, alone. Raises
    OnecurveError where no value is shared between sizes, so that every family would hold a single size.
    """
    if not runs:
        raise OnecurveError("no runs were given")
    recipes = _recipes(runs)
    values = [_by_column(run) | recipes[id(run)] for run in runs]
    if by is None:
        telling = {
            key: None for group in by_size(runs).values() for key in _differing([recipes[id(run)] for run in group])
        }
        keys = list(telling)
    else:
        for run, recorded in zip(runs, values, strict=True):
            if by not in recorded:
                raise OnecurveError(
                    f"{run.where}: no setting {by!r} to tell families apart by; recorded are "
                    f"{', '.join(sorted(_by_column(run))) or 'none'}"
                )
        keys = [by]
    groups: defaultdict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run, recorded in zip(runs, values, strict=True):
        groups[tuple(str(recorded.get(key)) for key in keys)].append(run)
    sizes = {run.config.n_params for run in runs}
    if len(groups) > 1 and len(sizes) > 1 and all(len({r.config.n_params for r in g}) == 1 for g in groups.values()):
        raise OnecurveError(
            f"runs of one size differ in {' and '.join(keys)}, but no two sizes share a value "
            f"({'; '.join(', '.join(v) for v in list(groups)[:6])}), so the families cannot be told; name a column "
            "that says to which family a run belongs with --by"
        )
    return [
        Ladder(members, name=", ".join(f"{key} {value}" for key, value in zip(keys, label, strict=True)))
        for label, members in groups.items()
    ]
