"""A plan in words: tables and remarks, which the command line shows and writes as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from onecurve.measure.verdict import Rows
from onecurve.plan.recipe import BatchRule, Recipe, timescale_rule
from onecurve.plan.rules import BATCH_EXPONENTS
from onecurve.plan.rungs import Rung
from onecurve.run import human

Column = tuple[str, Callable[[Rung], str]]
ROUNDING_SHOWN = 0.005
"""Rounding that moves tau by more than this gets a column."""


def tables(rungs: Sequence[Rung], peak_flops: float, utilisation: float) -> list[Rows]:
    """Of each ladder: its shapes; for each band what is trained and what it costs; what the optimiser applies."""
    several = len({r.parameterisation for r in rungs}) > 1
    out: list[Rows] = []
    for parameterisation, ladder in groupby(rungs, lambda r: r.parameterisation):
        of = list(ladder)
        under = f" under {parameterisation}" if several else ""
        out.append(_shapes(of, under))
        for band, rows in groupby(of, lambda r: r.band):
            out.append(_runs(list(rows), band, under, peak_flops, utilisation))
        out += [_settings(of, under), _decays(of, under)]
    return out


def remarks(recipe: Recipe, rungs: Sequence[Rung], peak_flops: float, utilisation: float) -> list[str]:
    """Where the numbers come from, and what to know of them."""
    lines = [
        "D = batch × steps. 6ND: training FLOPs of one run, by that formula.",
        "exact: the same with attention, (6 N + 12 L S d) D, where S is the context.",
        f"GPU-h: exact, all seeds, at {100 * utilisation:g} % of {peak_flops / 1e12:g} TFLOP/s; in all "
        f"{_hours(sum(r.seeds * r.hours(peak_flops, utilisation) for r in rungs))}.",
    ]
    rule = timescale_rule(recipe)
    if rule is not None and rule.exponent:
        interval = "" if rule.interval is None else f" (exponent {rule.interval[0]:g} to {rule.interval[1]:g})"
        lines.append(f"τ = {rule.scale:g} TPP^{rule.exponent:g}{interval}: {rule.source}.")
    if rule is not None:
        worst = max(rungs, key=lambda r: abs(r.rounding))
        lines.append(
            "Decay is solved after rounding, λ = B / (η τ D), so τ is as asked; rounding batch and steps would have "
            f"moved it by {100 * worst.rounding:+.2g} % at most ({_full_name(worst)})."
        )
    batch = recipe.optimiser.batch
    if isinstance(batch, BatchRule):
        source = BATCH_EXPONENTS.get(batch.exponent)
        lines.append(
            f"batch = {human(batch.batch)} (D / {human(batch.tokens)})^{batch.exponent:g}, from one tuned point"
            + ("." if source is None else f"; {source}.")
        )
    told: dict[str, list[str]] = {}
    for r in rungs:
        for note in r.notes:
            told.setdefault(note, []).append(_full_name(r))
    lines += [f"* {', '.join(_some(list(dict.fromkeys(names))))}: {note}" for note, names in told.items()]
    return lines


def markdown(rows: Sequence[Rows], lines: Sequence[str]) -> str:
    """Tables and remarks as Markdown."""
    parts: list[str] = []
    for table in rows:
        parts += [f"### {table.title}", ""]
        parts += [
            "| " + " | ".join(name.replace("\n", " ") for name in table.header) + " |",
            "|---" + "|---:" * (len(table.header) - 1) + "|",
        ]
        parts += ["| " + " | ".join(row) + " |" for row in table.rows] + [""]
    return "\n".join([*parts, *(f"- {line.removeprefix('* ')}" for line in lines), ""])


def _shapes(rungs: Sequence[Rung], under: str) -> Rows:
    """One row a size, whatever its band."""
    columns: list[Column] = [
        ("size", lambda r: r.name),
        ("width", lambda r: str(r.width)),
        ("layers", lambda r: _count(r.layers)),
        ("heads", lambda r: "" if r.heads is None else f"{r.heads} × {r.head_size}"),
        ("ffn", lambda r: _count(r.ffn)),
        ("N", lambda r: human(r.n_params)),
        ("without embeddings", lambda r: human(r.n_without_embeddings)),
    ]
    return _rows(f"Sizes{under}", columns, _once(rungs))


def _runs(rungs: Sequence[Rung], band: float | None, under: str, peak_flops: float, utilisation: float) -> Rows:
    taus = {f"{r.timescale:.3g}" for r in rungs}
    title = f"Runs{under}" if band is None else f"Runs at {band:g} tokens a parameter{under}"
    columns: list[Column] = [
        ("size", lambda r: r.name + ("*" if r.notes else "")),
        ("D", lambda r: human(r.tokens)),
        ("batch", lambda r: human(r.batch)),
        ("seqs", lambda r: _count(r.sequences)),
        ("steps", lambda r: f"{r.steps:,}"),
        ("warmup", lambda r: f"{100 * r.warmup:.2g} %"),
        ("τ", lambda r: f"{r.timescale:.3g}"),
        ("6ND", lambda r: _power(r.flops)),
        ("exact", lambda r: _power(r.flops_with_attention)),
        ("GPU-h", lambda r: _hours(r.seeds * r.hours(peak_flops, utilisation))),
    ]
    if len(taus) == 1:
        title += f", τ = {taus.pop()}"
    if any(r.band is None for r in rungs) and len({f"{r.tokens_per_param:.3g}" for r in rungs}) > 1:
        columns.insert(2, ("D/N", lambda r: f"{r.tokens_per_param:.3g}"))
    if any(abs(r.rounding) > ROUNDING_SHOWN for r in rungs):
        columns.insert(-3, ("rounding", lambda r: f"{100 * r.rounding:+.1f} %"))
    if len({r.seeds for r in rungs}) > 1:
        columns.insert(1, ("seeds", lambda r: str(r.seeds)))
    elif rungs[0].seeds > 1:
        title += f", {rungs[0].seeds} seeds each"
    if all(r.flops_with_attention == r.flops for r in rungs):
        columns = [c for c in columns if c[0] != "6ND"]
    rows = _rows(title, columns, rungs)
    if len(rungs) == 1:
        return rows
    hours = sum(r.seeds * r.hours(peak_flops, utilisation) for r in rungs)
    exact = sum(r.seeds * r.flops_with_attention for r in rungs)
    total = ["all", *[""] * (len(rows.header) - 3), _power(exact), _hours(hours)]
    return Rows(rows.title, rows.header, (*rows.rows, tuple(total)))


def _settings(rungs: Sequence[Rung], under: str) -> Rows:
    """Multipliers, peak rate and eps of each size, as applied; none of them depends on the band."""
    once = _once(rungs)
    columns: list[Column] = [
        ("size", lambda r: r.name),
        ("branch ×", lambda r: _short(r.multipliers.branch)),
        ("logits ×", lambda r: _short(r.multipliers.attention)),
        ("output ×", lambda r: _short(r.multipliers.output)),
        ("init std", lambda r: _short(r.multipliers.init_std)),
    ]
    for symbol, value in (("η", _rate), ("ε", _eps)):
        columns += _by_role(symbol, value, once)
    return _rows(f"As applied{under}: multipliers, peak rate, ε", columns, once)


def _decays(rungs: Sequence[Rung], under: str) -> Rows:
    """Decay of each size as applied, band beside band."""
    names = [r.name for r in _once(rungs)]
    header, columns = ["size"], [names]
    for band, rows in groupby(rungs, lambda r: r.band):
        of = {r.name: r for r in rows}
        for title, cell in _by_role("λ", _decay, list(of.values())):
            header.append(title + ("" if band is None else f"\nat {band:g}"))
            columns.append([cell(of[name]) for name in names])
    return Rows(f"As applied{under}: decay, multiplied by the rate", tuple(header), tuple(zip(*columns, strict=True)))


def _by_role(symbol: str, value: Callable[[Rung, str], float], rungs: Sequence[Rung]) -> list[Column]:
    """One column for all roles that have the same value at every size; none for those that have zero."""
    roles = [g.role for g in rungs[0].groups]
    alike: dict[tuple[float, ...], list[str]] = {}
    for role in roles:
        alike.setdefault(tuple(value(r, role) for r in rungs), []).append(role)
    told = [named for values, named in alike.items() if any(values)]
    every = [role for named in told for role in named]
    return [
        (f"{symbol} {_roles(named, every)}".strip(), lambda r, role=named[0]: f"{value(r, role):.3g}") for named in told
    ]


def _once(rungs: Sequence[Rung]) -> list[Rung]:
    """The first rung of each size."""
    return list({r.name: r for r in reversed(rungs)}.values())[::-1]


def _rate(r: Rung, role: str) -> float:
    return next(g.learning_rate for g in r.groups if g.role == role)


def _decay(r: Rung, role: str) -> float:
    return next(g.weight_decay for g in r.groups if g.role == role)


def _eps(r: Rung, role: str) -> float:
    return next(g.eps for g in r.groups if g.role == role)


def _roles(named: Sequence[str], every: Sequence[str]) -> str:
    """Some of all roles in few words; empty for all of them."""
    if len(named) == len(every):
        return ""
    if list(named) == ["hidden", "block norm"]:
        return "blocks"
    rest = [role for role in every if role not in named]
    if rest in (["hidden"], ["hidden", "block norm"]):
        return "others"
    return ", ".join(named)


def _rows(title: str, columns: Sequence[Column], rungs: Sequence[Rung]) -> Rows:
    """A table without the columns that say nothing."""
    filled = [(name, [cell(r) for r in rungs]) for name, cell in columns]
    told = [(name, cells) for name, cells in filled if any(cells)]
    return Rows(title, tuple(name for name, _ in told), tuple(zip(*(cells for _, cells in told), strict=True)))


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _power(value: float) -> str:
    return f"{value:.2e}".replace("e+0", "e").replace("e+", "e")


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _full_name(r: Rung) -> str:
    return r.name if r.band is None else f"{r.name} at {r.band:g}"


def _some(names: Sequence[str], most: int = 6) -> list[str]:
    return [*names[:most], f"{len(names) - most} others"] if len(names) > most else list(names)
