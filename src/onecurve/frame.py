"""A long table, one row a logged point, and a table of the runs' settings: into runs.

Columns are found by the names that loggers and people use, or taken as told. Where two columns could be meant, both
are listed and the caller is asked; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
import polars as pl
from pydantic import ValidationError

from onecurve.errors import OnecurveError, did_you_mean, some
from onecurve.fit import FloatArray
from onecurve.run import Curve, LossKind, Run, RunConfig, Setting, Signal
from onecurve.schedule import Schedule

HELD_OUT = (
    "val_loss", "val/loss", "valid_loss", "validation_loss", "test_loss", "eval_loss", "eval/loss", "held_out_loss",
    "validation_metrics/loss", "lm loss validation", "validation/lm_loss",
)  # fmt: skip
TRAINING = (
    "train/loss", "train_loss", "loss", "train/CE loss", "lm loss", "train/lm_loss", "loss_metrics/global_avg_loss",
    "lm-loss-training/lm loss",
)  # fmt: skip
TOKENS = (
    "tokens", "total_tokens", "n_tokens_seen", "num_input_tokens_seen", "consumed_tokens", "num_consumed_tokens",
    "throughput/total_tokens", "throughput/total tokens",
)  # fmt: skip
_STEPS = ("step", "global_step", "trainer/global_step", "iter", "iteration", "_step", "training_iteration")
_AXES = {"tokens": (*TOKENS, "samples", "consumed_samples"), "steps": _STEPS}

SIGNALS = {
    "learning_rate": ("learning_rate", "lr", "train/lr", "train/learning_rate", "learning-rate"),
    "gradient_noise": ("gradient_noise", "grad_cov_trace"),
    "gradient_flow_time": ("gradient_flow_time", "tau"),
}
"""What else of a logged point is kept, by its usual names."""

# What a column of the run table may be called, for each field of `RunConfig` (and of its schedule).
_USUAL: dict[str, tuple[str, ...]] = {
    "run": ("run_id", "run", "run_name", "name", "id"),
    "size": ("n_params", "num_params", "params", "parameters", "N", "model_size", "n_parameters"),
    "seed": ("seed", "random_seed"),
    "seed_init": ("seed_init", "init_seed"),
    "seed_data": ("seed_data", "data_seed"),
    "horizon": ("horizon", "horizon_tokens", "planned_tokens", "tokens_budget", "D"),
    "compute": ("compute", "flops", "training_flops", "train_flops", "total_flops"),
    "batch_tokens": ("batch_tokens", "tokens_per_step", "B"),
    "learning_rate": ("learning_rate", "peak_lr", "lr", "peak_learning_rate"),
    "base_learning_rate": ("base_learning_rate", "base_lr"),
    "weight_decay": ("weight_decay", "wd"),
    "optimiser": ("optimiser", "optimizer"),
    "parameterisation": ("parameterisation", "parameterization", "parametrization"),
    "parent": ("parent", "parent_run", "branched_from"),
    "branch_step": ("branch_step",),
    "width": ("width", "d_model", "hidden_size", "n_embd"),
    "schedule": ("schedule", "lr_schedule", "lr_scheduler_type"),
    "warmup": ("warmup", "warmup_frac", "warmup_fraction"),
    "warmup_steps": ("warmup_steps", "num_warmup_steps"),
    "decay_frac": ("decay_frac", "decay_fraction"),
    "final": ("final", "final_lr_frac", "min_lr_frac"),
}
SIZES = _USUAL["size"]
_FLAGS = {"run": "--run", "size": "--size", "seed": "--seed", "horizon": "--horizon", "compute": "--compute"}
_CONFIG_FLOATS = (
    "horizon", "compute", "batch_tokens", "learning_rate", "base_learning_rate", "weight_decay", "branch_step",
)  # fmt: skip
_SCHEDULE_NAMES = {"const": "constant", "cos": "cosine", "lin": "linear", "1-sqrt": "sqrt", "exp": "exponential"}


@dataclass(frozen=True)
class Columns:
    """Which column means what; None where it is to be found by its usual names."""

    run: str | None = None
    x: str | None = None
    loss: str | None = None
    size: str | None = None
    seed: str | None = None
    horizon: str | None = None
    compute: str | None = None
    held_out: bool = False
    """Whether the loss named by ``loss`` was measured on held-out data, where its name does not say so."""


@dataclass(frozen=True)
class Table:
    """Runs read from one place, with what was left out and what should be known."""

    runs: list[Run]
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def runs_from_frame(frame: Any, runs: Any = None, columns: Columns | None = None, source: str = "") -> Table:
    """Runs from a long table and, if given, a table with one row a run.

    ``frame`` and ``runs`` are polars or pandas tables (anything that `polars.DataFrame` takes). A setting may stand
    in either; in the long table it must be the same on all rows of a run. Rows that repeat the x of the row before
    them count once. Raises OnecurveError with the source, the column, the value and the next step.
    """
    columns = columns or Columns()
    points = _to_polars(frame)
    settings = None if runs is None else _to_polars(runs).fill_nan(None)  # as a setting, NaN is an empty cell
    label = source or "the table"
    if points.is_empty():
        raise OnecurveError(f"{label}: no rows; nothing was logged, or this is not the file of the curves")
    losses = _loss_columns(points, columns, label)
    x = _axis(points, columns, label)
    run = _column(points, "run", columns.run, label)
    if run is None:
        run, points = "run", points.with_columns(pl.lit(PurePath(source).stem or "run").alias("run"))
    points = points.with_columns(pl.col(run).cast(pl.String))
    if points[run].null_count():
        row = int(points[run].is_null().arg_max() or 0) + 1
        raise OnecurveError(f"{label}: row {row} has no value in column {run!r}; every point must name its run")
    signals = _signal_columns(points, run)
    values = {name: numbers(points, name, label) for name in (x, *losses, *signals.values())}
    table, listed = _settings_by_run(points, settings, run, columns, [x, *losses], label)

    # Rows of a run keep their order; runs come in order of first appearance.
    codes = points[run].rank("dense").to_numpy().astype(np.intp) - 1
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1))
    names = points[run].gather(order[bounds[:-1]]).to_list()
    out: list[tuple[int, Run]] = []
    repeats = 0
    for name, start, stop in zip(names, bounds[:-1], bounds[1:], strict=True):
        rows = order[start:stop]
        xs = values[x][rows]
        where = f"{label}: run {_short(name)}"
        if not np.all(np.isfinite(xs)):
            bad = int(rows[np.argmin(np.isfinite(xs))]) + 1
            raise OnecurveError(f"{where}: column {x!r} has no number at row {bad}; every point needs its {x}")
        step = np.diff(xs)
        if np.any(step < 0):
            i = int(np.argmax(step < 0))
            raise OnecurveError(
                f"{where}: {x!r} goes back from {xs[i]:g} to {xs[i + 1]:g} at row {int(rows[i + 1]) + 1}; a resumed "
                "run logged a stretch twice? Keep the branch that was written last and read again"
            )
        fresh = np.concatenate([[True], step > 0])
        repeats += int((~fresh).sum())
        curves: dict[str, Curve] = {}
        for loss, kind in losses.items():
            y = values[loss][rows]
            here = fresh & ~_absent(points, loss)[rows]
            if here.any():
                curves[loss] = Curve(xs[here], y[here], kind)
        logged: dict[str, Signal] = {}
        for signal, column in signals.items():
            here = fresh & np.isfinite(values[column][rows])
            if here.any():
                logged[signal] = Signal(xs[here], values[column][rows][here])
        if not curves:
            raise OnecurveError(
                f"{where}: column {next(iter(losses))!r} is empty; drop the run or choose another --loss"
            )
        out.append(
            (int(rows[0]), Run(_config(name, table.get(name, {}), label, x, float(xs[-1])), curves, x, logged, source))
        )
    dropped = {"rows that repeat the x of the row before": repeats} if repeats else {}
    idle = len(listed - set(names))
    unused = [f"{idle} of {len(listed)} runs in the run table have no curve in {label}"] if idle else []
    return Table([r for _, r in sorted(out, key=lambda pair: pair[0])], dropped, unused)


def _to_polars(frame: Any) -> pl.DataFrame:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    if hasattr(frame, "columns") and hasattr(frame, "to_dict"):  # pandas; its own converter would want pyarrow
        names = list(map(str, frame.columns))
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise OnecurveError(f"two columns of the table are called {twice!r}; rename or drop one")
        return pl.DataFrame({name: _cells(frame.iloc[:, i]) for i, name in enumerate(names)}, strict=False)
    return pl.DataFrame(frame)


def _cells(column: Any) -> list[Any]:
    """The cells of a pandas column; in plain float columns NaN stays, elsewhere what is missing becomes None."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub":
        return column.to_list()
    return column.astype(object).where(column.notna(), None).to_list()


def _column(table: pl.DataFrame, what: str, told: str | None, label: str) -> str | None:
    """The column that means ``what``: as told, else the one with a usual name, else None."""
    if told is not None:
        if told not in table.columns:
            raise OnecurveError(_no_column(told, table.columns, label, _FLAGS.get(what, f"--{what}")))
        return told
    found = [name for name in _USUAL[what] if name in table.columns]
    if len(found) > 1 and what in _FLAGS:
        raise OnecurveError(
            f"{label}: columns {' and '.join(map(repr, found))} could both be the {what}; choose with {_FLAGS[what]}"
        )
    return found[0] if found else None


def _no_column(told: str, columns: Sequence[str], label: str, flag: str) -> str:
    hint = did_you_mean(told, columns)
    return f"{label}: no column {told!r} for {flag}{hint}; its columns are {listing(columns)}"


def _loss_columns(points: pl.DataFrame, columns: Columns, label: str) -> dict[str, LossKind]:
    """The loss columns and what each was measured on, held-out first."""
    if columns.loss is not None:
        if columns.loss not in points.columns:
            raise OnecurveError(_no_column(columns.loss, points.columns, label, "--loss"))
        held_out = columns.held_out or columns.loss in HELD_OUT
        return {columns.loss: "held-out" if held_out else "training"}
    found: dict[str, LossKind] = {}
    kinds: tuple[tuple[tuple[str, ...], LossKind], ...] = ((HELD_OUT, "held-out"), (TRAINING, "training"))
    for names, kind in kinds:
        here = [name for name in names if name in points.columns]
        if len(here) > 1:
            raise OnecurveError(
                f"{label}: columns {' and '.join(map(repr, here))} could both be the {kind} loss; choose with --loss"
            )
        told: LossKind = "held-out" if columns.held_out else kind
        found |= dict.fromkeys(here, told)
    if not found:
        raise OnecurveError(
            f"{label}: no column with a usual name of a loss; its columns are {listing(points.columns)}; "
            "name one with --loss COLUMN"
        )
    return found


def _signal_columns(points: pl.DataFrame, run: str) -> dict[str, str]:
    """The column of each signal that the table logs; one that stays the same along each run is a setting instead."""
    found = {signal: next((n for n in names if n in points.columns), None) for signal, names in SIGNALS.items()}
    here = {signal: name for signal, name in found.items() if name is not None and points[name].dtype.is_numeric()}
    steady = set(_steady(points.select(run, *here.values()), run, []))
    return {signal: name for signal, name in here.items() if name not in steady}


def _axis(points: pl.DataFrame, columns: Columns, label: str) -> str:
    if columns.x is not None:
        if columns.x not in points.columns:
            raise OnecurveError(_no_column(columns.x, points.columns, label, "--x"))
        return columns.x
    for names in _AXES.values():
        here = [name for name in names if name in points.columns]
        if len(here) > 1:
            raise OnecurveError(
                f"{label}: columns {' and '.join(map(repr, here))} could both be the x axis; choose with --x"
            )
        if here:
            return here[0]
    raise OnecurveError(
        f"{label}: no column with a usual name of an x axis (tokens, samples, step); its columns are "
        f"{listing(points.columns)}; name one with --x COLUMN"
    )


def numbers(table: pl.DataFrame, name: str, label: str) -> FloatArray:
    """A column as float64, empty cells as nan; a cell that is no number is an error with its row."""
    column = table[name]
    if not (column.dtype.is_numeric() or column.dtype == pl.String or column.dtype == pl.Null):
        raise OnecurveError(f"{label}: column {name!r} holds {column.dtype}, not numbers; choose another column")
    if column.dtype == pl.String:
        text = column.str.strip_chars().str.to_lowercase()
        numbers = text.cast(pl.Float64, strict=False)
        words = text.is_in(["nan", "inf", "+inf", "-inf", "infinity", "-infinity", ""])
        bad = column.is_not_null() & numbers.is_null() & ~words
        if bad.any():
            row = int(bad.arg_max() or 0)
            raise OnecurveError(
                f"{label}: column {name!r} has {_short(column[row])} at row {row + 1}, which is not a number; "
                "mend the cell or leave it empty"
            )
        column = numbers
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)


def _short(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def listing(names: Sequence[str], most: int = 40) -> str:
    """The first of some names, quoted, and how many there are."""
    return some([_short(name) for name in names], most)


def _absent(table: pl.DataFrame, name: str) -> np.ndarray:
    """Cells that hold nothing at all, unlike a logged NaN."""
    column = table[name]
    if column.dtype == pl.String:
        return (column.is_null() | (column.str.strip_chars() == "")).to_numpy()
    return column.is_null().to_numpy()


def _settings_by_run(
    points: pl.DataFrame, settings: pl.DataFrame | None, run: str, columns: Columns, logged: list[str], label: str
) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """For each run, its settings by field name, and all other scalar columns by their own name under ``settings``.

    They stand in the run table or along the curves, the run table first. The second value is what runs it lists.
    """
    told = {"size": columns.size, "seed": columns.seed, "horizon": columns.horizon, "compute": columns.compute}
    where = label if settings is None else f"the run table of {label}"
    steady = _steady(points, run, logged)
    fields: dict[str, str] = {}  # from the run table
    along: dict[str, str] = {}  # from the curves
    for what in _USUAL:
        name = told.get(what)
        if what == "run":
            continue
        if settings is not None and (name is None or name in settings.columns or name not in points.columns):
            found = _column(settings, what, name, where)
            if found is not None:
                fields[what] = found
                behind = next((usual for usual in _USUAL[what] if usual in steady), None)
                if behind is not None:
                    along[what] = behind  # for runs whose cell in the run table is empty
                continue
        found = _column(points if name is not None else points.select(steady), what, name, label)
        if found in steady:
            along[what] = found
        elif name is not None or (what == "size" and any(usual in points.columns for usual in _USUAL[what])):
            name = name or next(usual for usual in _USUAL[what] if usual in points.columns)
            raise OnecurveError(
                f"{label}: column {name!r} ({what}) changes along a run; it must hold one value on all its rows"
            )
    if "size" not in fields and "size" not in along:
        table = points if settings is None else settings
        raise OnecurveError(
            f"{where}: no column with a usual name of the model size ({', '.join(_USUAL['size'][:4])}); its columns "
            f"are {listing(table.columns)}; name it with --size COLUMN"
            + ("" if settings is not None else ", or give a table of the runs with --runs FILE")
        )
    first = points.select(run, *steady).unique(subset=[run], keep="first", maintain_order=True).fill_nan(None)
    out = {str(row[run]): _record(row, along, run) for row in first.iter_rows(named=True)}
    return out, set() if settings is None else _add_run_table(out, settings, fields, run, where)


def _steady(points: pl.DataFrame, run: str, logged: list[str]) -> list[str]:
    """Columns that stay the same along each run, so that they are settings and not logged values."""
    names = [c for c, dtype in points.schema.items() if c not in (run, *logged) and not dtype.is_nested()]
    same = points.group_by(run).agg(pl.col(c).eq_missing(pl.col(c).first()).all() for c in names)
    return [c for c in names if same[c].all()]


def _record(row: dict[str, Any], fields: dict[str, str], key: str) -> dict[str, Any]:
    taken = {key, *fields.values()}
    others = {c: v for c, v in row.items() if c not in taken and isinstance(v, (str, int, float, bool))}
    return {what: row[column] for what, column in fields.items()} | {"settings": others}


def _add_run_table(
    out: dict[str, dict[str, Any]], settings: pl.DataFrame, fields: dict[str, str], run: str, where: str
) -> set[str]:
    """Add the run table's rows to what is known of the runs; the names of all its runs."""
    # The run table may call its key otherwise than the long table does.
    key = _column(settings, "run", run if run in settings.columns else None, where)
    if key is None:
        raise OnecurveError(
            f"{where}: no column that names the run; the curves name it in {run!r}, the run table has "
            f"{listing(settings.columns)}"
        )
    listed: dict[str, dict[str, Any]] = {}
    for row in settings.iter_rows(named=True):
        name, record = str(row[key]), _record(row, fields, key)
        if listed.setdefault(name, record) != record:
            raise OnecurveError(f"{where}: run {name!r} has two rows that differ; keep one")
    missing = [name for name in out if name not in listed]
    if missing:
        raise OnecurveError(
            f"{where}: no row for run {missing[0]!r}"
            + (f" and {len(missing) - 1} others" if len(missing) > 1 else "")
            + f"; its column {key!r} has {listing(list(listed), 4)}"
        )
    for name, record in out.items():
        others = record["settings"] | listed[name]["settings"]
        told = {what: cell for what, cell in listed[name].items() if cell is not None or what not in record}
        record.update(told, settings=others)
    return set(listed)


def _config(name: str, record: dict[str, Any], label: str, x: str, last: float) -> RunConfig:
    """The configuration of one run from the cells of its row; its x axis and last x tell what share a warmup has."""
    where = f"{label}: run {_short(name)}"

    def number(what: str) -> float | None:
        cell = record.get(what)
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            return None
        try:
            value = float(cell)
        except (ValueError, TypeError, OverflowError):
            raise OnecurveError(f"{where}: {what} is {_short(cell)}, which is not a number") from None
        if not np.isfinite(value):
            return None
        return value

    size = number("size")
    if size is None:
        raise OnecurveError(f"{where}: its size is empty; give the number of parameters")
    settings: dict[str, Setting] = record.get("settings", {})
    shape = record.get("schedule")
    schedule = None
    if shape is not None:
        text = str(shape).strip().lower()
        try:
            options = {k: number(k) for k in ("warmup", "decay_frac", "final")}
            steps = number("warmup_steps")
            a_step = 1.0 if x in _STEPS else number("batch_tokens") if x in _AXES["tokens"] else None
            if options["warmup"] is None and steps is not None and a_step is not None:
                options["warmup"] = min(steps * a_step / (number("horizon") or last), 0.999)
            schedule = Schedule(
                shape=_SCHEDULE_NAMES.get(text, text),  # pyright: ignore[reportArgumentType]
                **{k: v for k, v in options.items() if v is not None},
            )
        except ValidationError:
            settings = settings | {"schedule": str(shape)}  # a schedule that we have no formula for: a label
    width = number("width")
    try:
        return RunConfig(
            name=name,
            n_params=size,
            seed=_label(record.get("seed")),
            seed_init=_label(record.get("seed_init")),
            seed_data=_label(record.get("seed_data")),
            width=None if width is None else int(width),
            schedule=schedule,
            optimiser=_text(record.get("optimiser")),
            parameterisation=_text(record.get("parameterisation")),
            parent=_text(record.get("parent")) or None,
            settings=settings,
            **{what: number(what) for what in _CONFIG_FLOATS},
        )
    except ValidationError as error:
        first = error.errors()[0]
        what = ".".join(map(str, first["loc"]))
        raise OnecurveError(f"{where}: {what} is {first['input']!r}: {first['msg'].lower()}") from None


def _label(cell: Any) -> str | int | None:
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)  # pandas turns integers into floats where one is missing
    return cell if cell is None or isinstance(cell, (str, int)) else str(cell)


def _text(cell: Any) -> str | None:
    return None if cell is None else str(cell)
