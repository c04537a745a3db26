"""Scores of models beside what they cost: from tables, from evaluated runs, and as published.

A score is an accuracy in [0, 1] or bits per byte; its *error* is what falls with compute: 1 - accuracy, or the bits
per byte themselves. Compute is training FLOPs, a teacher's included where it is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from onecurve.errors import OnecurveError, some
from onecurve.fit import FloatArray
from onecurve.frame import SIZES, TOKENS, listing, numbers
from onecurve.logs.tables import TABLES, read_table
from onecurve.scores.suites import ACCURACY, BITS_PER_BYTE, CELERITY7, falls, no_score

FLOPS = ("flops", "compute", "training_flops", "train_flops", "total_flops", "C")
FOLDER = "scores"
"""The folder of a run directory, or of a model, that holds one file a task."""
SCHEMA = 1
_NAMES = ("name", "model", "run")
_HORIZON = ("horizon", "D", *TOKENS)
_KNOWN = (ACCURACY, BITS_PER_BYTE, *CELERITY7)
_ALIASES = {"siqa": "social_iqa", "bpb": BITS_PER_BYTE}
_YES = ("yes", "true", "1")
Compute = Literal["given", "6nd"]


@dataclass(frozen=True)
class Scores:
    """One score of R models. Vectors have R entries; what is not known is nan."""

    score: str
    """Its name: a task, ``accuracy`` (the mean of celerity7), or ``bits_per_byte``."""
    name: tuple[str, ...]
    family: tuple[str, ...]
    n_params: FloatArray
    tokens: FloatArray
    student: FloatArray
    """Training FLOPs of the model itself."""
    teacher: FloatArray
    """FLOPs spent on its teacher; 0 where it has none or none is told."""
    distilled: NDArray[np.bool_]
    """Whether it learned from a teacher, whatever is known of that."""
    error: FloatArray
    """1 - accuracy, or bits per byte."""
    stderr: FloatArray
    """Standard error of the score over the task's examples."""
    source: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.name)

    @property
    def falling(self) -> bool:
        """Whether the score itself is the error (bits per byte)."""
        return falls(self.score)

    @property
    def compute(self) -> FloatArray:
        """(R,) training FLOPs with the teacher's."""
        return self.student + self.teacher

    @property
    def uncounted(self) -> NDArray[np.bool_]:
        """(R,) whether it is distilled and its teacher's FLOPs are not known: ``compute`` is a lower bound."""
        return self.distilled & (self.teacher == 0.0)

    @property
    def value(self) -> FloatArray:
        """(R,) the score itself."""
        return self.error if self.falling else 1.0 - self.error


def read_scores(
    paths: Sequence[Path],
    score: str | None = None,
    *,
    compute: Compute = "given",
    percent: bool = False,
    published: bool = True,
) -> Scores:
    """Scores of the models in tables, in evaluated runs, and in folders of these; the published ones beside them.

    ``score`` is by default the mean of celerity7, or the one score that all models have. ``compute="6nd"`` counts 6 N D
    for every model, in place of the FLOPs that are given. ``percent`` says that the accuracies of tables are in per
    cent. The published comparators are left out where they have no such score. Raises OnecurveError naming file, row
    and value for a score outside its range, a model that is there twice, or one whose compute is not known.
    """
    parts = [_found(Path(path)) for path in paths]
    own = [record for part in parts for record in part.records(score, percent)]
    if not own and not published:
        raise OnecurveError("no models: name tables of scores or evaluated runs, or leave --no-published out")
    chosen = score or _default([r.scores for r in own] or [{ACCURACY: (0.0, 0.0)}])
    notes: list[str] = []
    rows = own
    if published:
        theirs = published_records()
        with_it = [r for r in theirs if chosen in r.scores]
        if len(with_it) < len(theirs):
            notes.append(f"{len(theirs) - len(with_it)} of {len(theirs)} published models have no {chosen}: left out")
        rows = [*own, *with_it]
    if not rows:
        raise no_score(chosen, "the published table", sorted({s for r in published_records() for s in r.scores}))
    lacking = next((r for r in rows if chosen not in r.scores), None)
    if lacking is not None:
        raise no_score(chosen, lacking.where, list(lacking.scores))
    _refuse_twice(rows)
    _refuse_unlike(chosen, rows)
    low = [r.name for r in rows if no_better_than_chance(*r.scores[chosen], r.chance.get(chosen))]
    if low:
        notes.append(f"no better than chance, so their {chosen} says nothing of their compute: {some(low)}")
    return _stacked(chosen, rows, compute, notes)


@dataclass(frozen=True)
class Record:
    """One model as it was read."""

    name: str
    family: str
    where: str
    """File and row, for messages."""
    scores: Mapping[str, tuple[float, float]]
    """By name: the value and its standard error."""
    n_params: float = np.nan
    tokens: float = np.nan
    flops: float = np.nan
    teacher: float = 0.0
    distilled: bool = False
    source: str = ""
    measured: Mapping[str, str] = field(default_factory=dict[str, str])
    """By score: how an evaluated run came to it, in words; models are compared only where these agree."""
    chance: Mapping[str, float] = field(default_factory=dict[str, float])
    """By score: the accuracy of guessing, where an evaluated run tells it."""


def published_records() -> list[Record]:
    """The published models that are shipped, with their sources."""
    return _Table(Path(__file__).with_name("published.csv")).records(None, False)


class _Table:
    """A table with one row a model."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self, score: str | None, percent: bool) -> list[Record]:
        frame, label = read_table(self.path), str(self.path)
        if frame.is_empty():
            raise OnecurveError(f"{label}: no rows; a table of scores has one row a model")

        def column(names: Sequence[str]) -> str | None:
            found = [name for name in names if name in frame.columns]
            if len(found) > 1:
                raise OnecurveError(f"{label}: columns {' and '.join(map(repr, found))} mean the same; drop one")
            return found[0] if found else None

        def values(names: Sequence[str], default: float = np.nan) -> FloatArray:
            name = column(names)
            if name is None:
                return np.full(frame.height, default)
            got = numbers(frame, name, label)
            _refuse(got <= 0.0, got, name, label, "must be above 0")
            return np.where(np.isnan(got), default, got)

        def texts(names: Sequence[str], default: str) -> list[str]:
            name = column(names)
            if name is None:
                return [default] * frame.height
            return [default if cell is None else str(cell) for cell in frame[name].to_list()]

        named = column(_NAMES)
        if named is None or frame[named].null_count():
            raise OnecurveError(
                f"{label}: every model needs a name, in a column {' or '.join(map(repr, _NAMES))}; "
                f"its columns are {listing(frame.columns)}"
            )
        n, d, flops = values(SIZES), values(_HORIZON), values(FLOPS)
        teacher_n = values(("teacher_params",))
        # A teacher costs at least its forward pass over what the model learned from.
        forward = np.where(np.isnan(teacher_n), 0.0, 2.0 * teacher_n * d)
        teacher = values(("teacher_flops",))
        teacher = np.where(np.isnan(teacher), forward, teacher)
        if np.isnan(teacher).any():
            row = int(np.argmax(np.isnan(teacher))) + 1
            raise OnecurveError(f"{label}: row {row} has teacher_params but no tokens; give both, or teacher_flops")
        distilled = [t.strip().lower() in _YES for t in texts(("distilled",), "no")]
        scores = self._scores(frame, score, percent)
        family, source = texts(("family",), self.path.stem), texts(("source",), label)
        rows = zip(texts(_NAMES, ""), family, scores, n, d, flops, teacher, distilled, source, strict=True)
        return [
            Record(
                name=name,
                family=of,
                where=f"{label}: row {k} ({name})",
                scores=found,
                n_params=float(size),
                tokens=float(horizon),
                flops=float(cost),
                teacher=float(taught),
                distilled=was or taught > 0,
                source=origin,
            )
            for k, (name, of, found, size, horizon, cost, taught, was, origin) in enumerate(rows, start=1)
        ]

    def _scores(self, frame: pl.DataFrame, score: str | None, percent: bool) -> list[dict[str, tuple[float, float]]]:
        """The columns with a known score's name, and the one that was asked for, row by row, in range."""
        label = str(self.path)
        out: list[dict[str, tuple[float, float]]] = [{} for _ in range(frame.height)]
        tasks: dict[str, FloatArray] = {}
        for column in frame.columns:
            name = _ALIASES.get(column, column)
            if name not in _KNOWN and column != score:
                continue
            if name in tasks:
                first, second = (c for c in frame.columns if _ALIASES.get(c, c) == name)
                raise OnecurveError(f"{label}: columns {first!r} and {second!r} mean the same; drop one")
            got = numbers(frame, column, label)
            error = f"{column}_stderr"
            width = numbers(frame, error, label) if error in frame.columns else np.full(frame.height, np.nan)
            if falls(name):
                _refuse(got <= 0.0, got, column, label, "must be above 0")
            else:
                got, width = _shares(got, width, column, label, percent)
            tasks[name] = got
            for row in np.flatnonzero(np.isfinite(got)):
                out[row][name] = (float(got[row]), float(width[row]))
        if ACCURACY not in tasks and all(task in tasks for task in CELERITY7):
            mean = np.mean([tasks[task] for task in CELERITY7], axis=0)
            for row in np.flatnonzero(np.isfinite(mean)):
                out[row][ACCURACY] = _mean(out[row])
        empty = next((k for k, scores in enumerate(out, start=1) if not scores), None)
        if empty is not None:
            raise OnecurveError(
                f"{label}: row {empty} has no score; scores are in the columns {listing(list(tasks)) or 'none'} "
                "(accuracy, bits_per_byte, and the tasks of celerity7 are known by name; any other with --score COLUMN)"
            )
        return out


def _mean(scores: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """The mean of the seven tasks and its standard error, the tasks' own taken as independent."""
    value, stderr = np.array([scores[task] for task in CELERITY7]).T
    return float(value.mean()), float(np.sqrt((stderr**2).sum()) / value.size)


def _shares(
    got: FloatArray, width: FloatArray, column: str, label: str, percent: bool
) -> tuple[FloatArray, FloatArray]:
    """Accuracies as shares in [0, 1]; per cent only where told so."""
    if percent:
        if got.size and np.nanmax(got, initial=0.0) <= 1.0:
            raise OnecurveError(f"{label}: no {column} is above 1, which is not per cent; leave --percent out")
        _refuse((got < 0.0) | (got > 100.0), got, column, label, "in per cent lies in [0, 100]")
        return got / 100.0, width / 100.0
    words = "an accuracy lies in [0, 1]"
    if np.nanmax(got, initial=0.0) > 1.0 and np.nanmax(got, initial=0.0) <= 100.0:
        words += "; if the table is in per cent, say --percent"
    _refuse((got < 0.0) | (got > 1.0), got, column, label, words)
    return got, width


def _refuse(bad: NDArray[np.bool_], got: FloatArray, column: str, label: str, words: str) -> None:
    bad = bad | np.isinf(got)
    if bad.any():
        row = int(np.argmax(bad))
        raise OnecurveError(f"{label}: column {column!r} is {got[row]:g} at row {row + 1}; {words}")


class _Folder:
    """Evaluated models: folders that hold scores/TASK.json."""

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path, self.files = path, files

    def records(self, score: str | None, percent: bool) -> list[Record]:
        by_model: dict[Path, dict[str, dict[str, Any]]] = {}
        for file in self.files:
            by_model.setdefault(file.parent.parent, {})[file.stem] = read_result(file)
        mine = [self._record(folder, results) for folder, results in sorted(by_model.items())]
        # Ladders of one folder are told apart by what parts them.
        kinds = {family for _, family in mine}
        return [record if len(kinds) > 1 else replace(record, family=self._label()) for record, _ in mine]

    def _label(self) -> str:
        path = self.path.resolve()
        return path.parent.name if path.name in ("runs", FOLDER) else path.name

    def _record(self, folder: Path, results: Mapping[str, dict[str, Any]]) -> tuple[Record, str]:
        models = [r["model"] for r in results.values()]
        first = models[0]
        other = next((m for m in models if m["weights"] != first["weights"]), None)
        if other is not None:
            raise OnecurveError(
                f"{folder / FOLDER}: its tasks were scored on different weights ({first['weights']}, "
                f"{other['weights']}); evaluate again"
            )
        scores = {task: (float(r["value"]), float(r["stderr"])) for task, r in results.items()}
        measured = {task: _words(r["measured"]) for task, r in results.items()}
        chance = {task: float(r["chance"]) for task, r in results.items() if r.get("chance") is not None}
        if all(task in scores for task in CELERITY7):
            scores[ACCURACY] = _mean(scores)
            if all(task in chance for task in CELERITY7):
                chance[ACCURACY] = float(np.mean([chance[task] for task in CELERITY7]))
            measured[ACCURACY] = "; ".join(f"{task} {measured[task]}" for task in CELERITY7)
        kind = str(first["family"])
        family = f"{self._label()} ({kind})" if kind else self._label()

        def number(key: str) -> float:
            return float("nan") if first[key] is None else float(first[key])

        n, d, flops = number("n_params"), number("tokens"), number("flops")
        name, where = str(first["name"]), str(folder)
        return Record(name, family, where, scores, n, d, flops, source=where, measured=measured, chance=chance), kind


def read_result(file: Path) -> dict[str, Any]:
    """One task's result of one model, from its scores/TASK.json."""
    try:
        content = json.loads(file.read_text())
        if content["schema"] > SCHEMA:
            raise OnecurveError(
                f"{file}: schema {content['schema']} is newer than this program reads; upgrade onecurve"
            )
        for key in ("value", "stderr"):
            content[key] = float(content[key])
        if not {"name", "family", "n_params", "tokens", "flops", "weights"} <= content["model"].keys():
            raise KeyError("model")
        if not {"shots", "limit", "text"} <= content["measured"].keys():
            raise KeyError("measured")
        if not content["value"] >= 0.0 or (not falls(file.stem) and content["value"] > 1.0):
            raise ValueError(f"value {content['value']}")
    except OnecurveError:
        raise
    except OSError as error:
        raise OnecurveError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OnecurveError(
            f"{file}: not a result of onecurve evaluate ({type(error).__name__}: {error}); delete it and evaluate again"
        ) from None
    return cast("dict[str, Any]", content)


def _found(path: Path) -> _Table | _Folder:
    if path.is_dir():
        files = sorted(f for f in path.rglob(f"{FOLDER}/*.json"))
        if path.name == FOLDER:
            files = sorted(path.glob("*.json"))
        if not files:
            raise OnecurveError(
                f"{path}: holds no evaluated model; score its runs with `onecurve evaluate {path}`, or name a table "
                f"({', '.join(TABLES)})"
            )
        return _Folder(path, files)
    return _Table(path)


def _default(scores: Sequence[Mapping[str, Any]]) -> str:
    """The score that is meant where none is told."""
    shared = [name for name in scores[0] if all(name in s for s in scores)]
    if ACCURACY in shared:
        return ACCURACY
    if len(shared) == 1:
        return shared[0]
    if not shared:
        raise OnecurveError(
            f"the models share no score: the first has {', '.join(scores[0])}; evaluate all on the same tasks"
        )
    raise OnecurveError(f"which score? The models share {', '.join(shared)}; choose with --score")


def _refuse_twice(rows: Sequence[Record]) -> None:
    seen: dict[tuple[str, str], Record] = {}
    for row in rows:
        before = seen.setdefault((row.family, row.name), row)
        if before is not row:
            raise OnecurveError(
                f"{row.where}: {row.name!r} of family {row.family!r} is there twice, before it at {before.where}; keep "
                "one, or give them different names"
            )


def _refuse_unlike(score: str, rows: Sequence[Record]) -> None:
    """Evaluated models whose scores were measured in different ways."""
    told = [row for row in rows if score in row.measured]
    other = next((row for row in told if row.measured[score] != told[0].measured[score]), None)
    if other is not None:
        raise OnecurveError(
            f"{score} was measured in different ways: {told[0].measured[score]} ({told[0].where}) and "
            f"{other.measured[score]} ({other.where}); evaluate both alike"
        )


def no_better_than_chance(value: float, stderr: float, chance: float | None) -> bool:
    """Whether an accuracy less two standard errors is not above that of guessing."""
    return chance is not None and value - 2.0 * stderr <= chance


def _words(measured: Mapping[str, Any]) -> str:
    """How a score was measured."""
    shots, limit, text = (measured[key] for key in ("shots", "limit", "text"))
    parts = (
        "" if shots is None else f"{shots} shots",
        "" if limit is None else f"the first {limit} examples",
        "" if text is None else f"on {text}",
    )
    return ", ".join(part for part in parts if part) or "on all examples"


def _stacked(score: str, rows: Sequence[Record], compute: Compute, notes: list[str]) -> Scores:
    value, stderr = np.array([r.scores[score] for r in rows]).T
    n, d, flops = (np.array([getattr(r, key) for r in rows]) for key in ("n_params", "tokens", "flops"))
    six = 6.0 * n * d
    student = six if compute == "6nd" else np.where(np.isnan(flops), six, flops)
    if np.isnan(student).any():
        row = rows[int(np.argmax(np.isnan(student)))]
        missing = [key for key in ("n_params", "tokens") if np.isnan(getattr(row, key))]
        raise OnecurveError(
            f"{row.where}: its compute is not known: it has no {' and no '.join(missing)}"
            + (" and no flops" if compute == "given" else "")
            + "; give flops, or n_params and tokens, from which 6 N D follows"
        )
    by_rule = np.isnan(flops) & (compute == "given")
    if by_rule.any() and not by_rule.all():
        notes.append(f"{int(by_rule.sum())} of {len(rows)} models give no flops: 6 N D is counted for them")
    distilled = np.array([r.distilled for r in rows])
    teacher = np.array([r.teacher for r in rows])
    silent = [r.name for r in rows if r.distilled and r.teacher == 0.0]
    if silent:
        notes.append(
            f"distilled, and their teachers' FLOPs are not known, so their compute is a lower bound: {some(silent)}"
        )
    return Scores(
        score=score,
        name=tuple(r.name for r in rows),
        family=tuple(r.family for r in rows),
        n_params=n,
        tokens=d,
        student=student,
        teacher=teacher,
        distilled=distilled,
        error=value if falls(score) else 1.0 - value,
        stderr=stderr,
        source=tuple(r.source for r in rows),
        notes=tuple(notes),
    )
