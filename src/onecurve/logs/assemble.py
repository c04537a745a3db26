"""From logs as they were written to runs: mending, the x axis, and the settings that the source records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.frame import HELD_OUT, SIGNALS, TOKENS, TRAINING, Columns, Table, runs_from_frame
from onecurve.logs.axis import Axis, axis_of, micro_batches
from onecurve.logs.clean import MENDS, SUMMARY, gaps, interval_means, mend, rewinds, sampled
from onecurve.logs.log import Log, Series, positive
from onecurve.run import Setting

SETTINGS: dict[str, tuple[str, ...]] = {
    "n_params": ("n_params", "num_params", "num_parameters", "n_parameters", "total_params", "model_size"),
    "batch_tokens": ("batch_tokens", "tokens_per_step", "global_batch_tokens", "total_batch_size_tokens"),
    "learning_rate": ("learning_rate", "lr", "max_lr", "peak_lr", "peak_learning_rate"),
    "weight_decay": ("weight_decay", "wd"),
    "seed": ("seed", "random_seed"),
    "schedule": ("lr_scheduler_type", "lr_decay_style", "lr_schedule", "schedule"),
    "warmup_steps": ("warmup_steps", "lr_warmup_iters", "warmup_iters", "num_warmup_steps"),
    "sequences": ("global_batch_size",),
    "length": ("seq_length", "sequence_length", "max_seq_len", "seq_len", "context_length", "block_size"),
    "accumulation": ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "grad_accum"),
    "steps": ("max_steps", "train_iters", "max_iters", "total_steps", "num_train_steps", "num_steps"),
}
"""What trainers call the settings that shape a curve."""


def configured(settings: dict[str, Setting]) -> dict[str, Setting]:
    """The settings that shape a curve, by their names here, from what a source records by its own.

    Nested keys count by their last part where that is not ambiguous. The batch in tokens is told, or sequences times
    length; the horizon is the planned steps times it.
    """
    last: dict[str, list[str]] = {}
    for key in settings:
        last.setdefault(key.rsplit(".", 1)[-1].rsplit("/", 1)[-1], []).append(key)
    out: dict[str, Setting] = {}
    for name, theirs in SETTINGS.items():
        for key in theirs:
            found = [key] if key in settings else last.get(key, [])
            if len({str(settings[k]) for k in found}) == 1:
                out[name] = settings[found[0]]
                break
    sequences, length, steps, accumulation = (
        positive(out.pop(k, None)) for k in ("sequences", "length", "steps", "accumulation")
    )
    if "batch_tokens" not in out and sequences and length:
        out["batch_tokens"] = sequences * length
    out |= {k: v for k, v in (("planned_steps", steps), ("accumulation", accumulation)) if v}
    return out


def mended(log: Log, columns: Columns, unmended: Collection[str] = ()) -> Log:
    """A log with the series that a run is made of, mended but for what is named; its notes say what was done."""
    losses = (columns.loss,) if columns.loss else (*HELD_OUT, *TRAINING)
    wanted = {*losses, *TOKENS, columns.x, *(n for names in SIGNALS.values() for n in names)}
    dropped = Counter(log.dropped)
    if log.summaries and "summaries" in unmended:
        log = replace(log, series=_with_summaries(log))
    elif log.summaries:
        dropped[SUMMARY] = max(map(len, log.summaries.values()))
    chosen = {name: s for name, s in log.series.items() if name in wanted and len(s)}
    notes = list(log.notes)
    if not any(name in chosen for name in losses):
        names = sorted(log.series)
        more = f", ... ({len(names)} in all)" if len(names) > 20 else ""
        raise OnecurveError(
            f"{log.source}: no series with a usual name of a loss; it has {', '.join(names[:20])}{more}; name one with "
            "--loss SERIES"
        )
    series: dict[str, Series] = {}
    for name, written in chosen.items():
        back = rewinds(written.step) if name in losses else []
        for old, new in back[:3]:
            notes.append(f"{name} goes back from {log.step_name} {old:g} to {new:g}: the branch written last is kept")
        made, lost = mend(written)
        if name in losses:
            dropped += Counter(lost)
            holes = gaps(made.step)
            for low, high in holes[:3]:
                notes.append(f"{name} has no point between {log.step_name} {low:g} and {high:g}: left as a gap")
            if sampled(made.step):
                notes.append(
                    f"{name} has {len(made)} points at irregular steps, as a sampled export has; read it in full"
                )
            if name in log.means and "means" not in unmended and len(made) > 1 and np.median(np.diff(made.step)) > 1:
                made = interval_means(made)
                notes.append(f"{name} is a mean over the steps since the point before: placed in the middle of them")
        series[name] = made
    return replace(log, series=series, dropped=dict(dropped), notes=tuple(notes))


def _with_summaries(log: Log) -> dict[str, Series]:
    """Its series with what its summary rows say as last points."""
    series = dict(log.series)
    for name, more in log.summaries.items():
        s = series.get(name, Series.of([], []))
        series[name] = Series(np.concatenate([s.step, more.step]), np.concatenate([s.value, more.value]))
    return series


def _refuse(log: Log, unmended: Collection[str]) -> None:
    """OnecurveError for a log that had to be mended in a way that was not to be."""
    for step in MENDS:
        for what in MENDS[step] if step in unmended else ():
            if count := log.dropped.get(what):
                raise OnecurveError(
                    f"{log.source}: {count} {what}, and --no-mend {step} asks not to drop them; mend the log, or read "
                    "it without that"
                )


def table_of(
    logs: Sequence[Log], settings: object, columns: Columns | None, label: str, unmended: Collection[str] = ()
) -> Table:
    """Runs from logs: on tokens where all of them know their tokens, else on steps."""
    columns = columns or Columns()
    made: list[tuple[Log, dict[str, Setting], Axis]] = []
    warnings: list[str] = []
    bare: list[OnecurveError] = []
    for log in logs:
        try:
            mended_log = mended(log, columns, unmended)
        except OnecurveError as error:
            bare.append(error)  # logs without a loss lie beside others: metrics by group, system statistics
            continue
        _refuse(mended_log, unmended)
        known = configured(log.settings)
        warnings += [f"{log.name}: {note}" for note in mended_log.notes]
        axis = axis_of(log, known, columns.x)
        if doubt := micro_batches(mended_log, known, axis):
            warnings.append(f"{log.name}: {doubt}")
        made.append((mended_log, known, axis))
    if not made:
        raise bare[0]
    if bare:
        warnings.append(f"{len(bare)} of {len(logs)} logs have no loss and are left out, the first: {bare[0]}")
    on_tokens = all(axis.known for _, _, axis in made)
    names = _unique([log.name for log, _, _ in made])
    frames = [
        _frame(log, known, axis if on_tokens else None, name, columns)
        for (log, known, axis), name in zip(made, names, strict=True)
    ]
    x = "tokens" if on_tokens else "step"
    if not on_tokens and columns.x is None:
        blank = [log.name for log, _, axis in made if not axis.known]
        warnings.append(
            f"x is in steps: {len(blank)} of {len(made)} logs do not say their tokens ({', '.join(blank[:5])}); "
            "batch_tokens in a table of runs (--runs) keeps the steps and gives tokens per parameter"
        )
    points = pl.concat(frames, how="diagonal_relaxed")
    table = runs_from_frame(points, settings, replace(columns, x=x, run="run"), label)
    dropped = sum((Counter(log.dropped) for log, _, _ in made), Counter(table.dropped))
    return Table(table.runs, dict(dropped), [*table.warnings, *dict.fromkeys(warnings)])


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return out


def _frame(log: Log, known: dict[str, Setting], axis: Axis | None, name: str, columns: Columns) -> pl.DataFrame:
    """One log as a long table on tokens, or on steps without an axis: a row a step, empty cells where nothing is."""
    wanted = {name: s for name, s in log.series.items() if name not in (*TOKENS, columns.x)}
    steps: FloatArray = np.unique(np.concatenate([s.step for s in wanted.values()]))
    data: dict[str, Any] = {"run": [name] * steps.size}
    data |= {"step": steps} if axis is None else {"tokens": axis.tokens(steps)}
    for metric, s in wanted.items():
        cells, here = np.zeros(steps.size), np.zeros(steps.size, dtype=bool)
        at = np.searchsorted(steps, s.step)
        cells[at], here[at] = s.value, True
        data[metric] = pl.select(pl.when(pl.Series(here)).then(pl.Series(cells))).to_series()
    frame = pl.DataFrame(data)
    rate = next((wanted[n] for n in SIGNALS["learning_rate"] if n in wanted), None)
    if rate is not None and len(rate) > 1 and np.ptp(rate.value) == 0.0:
        known = {"schedule": "constant"} | known  # a rate logged at every step and always the same
    told = {k: v for k, v in known.items() if k not in ("planned_steps", "accumulation", *frame.columns)}
    per_step = 1.0 if axis is None else axis.per_step
    if "planned_steps" in known and columns.horizon is None and per_step is not None:
        told["horizon"] = float(known["planned_steps"]) * per_step
    return frame.with_columns(pl.lit(v).alias(k) for k, v in told.items())
