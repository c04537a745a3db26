"""A collapse in words: two questions apart, who leaves first, and what to check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onecurve.measure.result import LAST, SPREAD_AT, TOLERANCE_AT, Collapse, within_window
from onecurve.run import human

CHECK_ORDER = "timescale, tokens per parameter, schedule and warmup, parameterisation, horizon"


@dataclass(frozen=True)
class Verdict:
    """What a collapse means. ``practical`` and ``noise`` answer the two questions; the rest says it in sentences."""

    practical: bool
    """Within a practical tolerance?"""
    noise: str
    """Within seed noise? ``no difference seen``, ``sizes differ`` or ``too few seeds``."""
    headline: str
    sentences: tuple[str, ...]
    checks: tuple[str, ...]
    """What to check where curves differ, in order."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Rows:
    """A small table for people."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def verdict(c: Collapse) -> Verdict:
    """Judge a collapse. Pure: the same result gives the same words."""
    noise = _noise(c)
    leaves = c.leaves_first
    if c.practical:
        headline = {
            "no difference seen": "The sizes fall onto one curve: within the tolerance, and no size effect is seen "
            "against seed noise.",
            "sizes differ": "The sizes fall onto one curve within the tolerance; what difference is left between "
            "them is systematic, not seed noise.",
            "too few seeds": "The sizes fall onto one curve within the tolerance; without repeated seeds nothing is "
            "said about noise.",
        }[noise]
    else:
        headline = {
            "no difference seen": "The sizes do not fall onto one curve within the tolerance, but seed noise is large "
            "enough to explain it: more seeds would tell.",
            "sizes differ": "The sizes do not fall onto one curve.",
            "too few seeds": "The sizes do not fall onto one curve within the tolerance; without repeated seeds it is "
            "not known how much of that is noise.",
        }[noise]
    sentences = [_tolerance_sentence(c), *_noise_sentences(c)]
    if leaves is not None:
        worst = leaves.offset[int(np.argmin(np.abs(c.fraction - (leaves.fraction or 0.0))))]
        who = f"{'Still, size' if c.practical else 'Size'} {human(leaves.size)}"
        sentences.append(
            f"{who} leaves first: read back from the end, it runs {leaves.direction} the mean of the other sizes from "
            f"x = {leaves.fraction:.2f} ({abs(worst):.0%} of the curve's height there)."
        )
    elif len(c.sizes) > 2:
        sentences.append(f"No size leaves the mean of the others by more than {c.tolerance:.0%} of the curve's height.")
    sentences += _sensitivity_sentences(c)
    checks = _checks(c) if not c.practical or noise == "sizes differ" else ()
    return Verdict(c.practical, noise, headline, tuple(sentences), checks)


def _noise(c: Collapse) -> str:
    found = [w.finding for w in c.windows]
    if not found or "too few seeds" in found:
        return "too few seeds"
    return "sizes differ" if "sizes differ" in found else "no difference seen"


def _tolerance_sentence(c: Collapse) -> str:
    spread = " and ".join(f"{c.at(c.relative_spread, x):.1%} at x = {x:g}" for x in TOLERANCE_AT)
    # Delta is relative to the reducible loss; people also ask for it as a share of the loss itself.
    end = c.end_loss
    share = float(np.mean((end - c.floor.value) / end))
    of_loss = c.at(c.corrected_deviation * c.mean_curve, 0.5) * share
    start = c.collapsed_from
    since = f"; it stays within from x = {start:.2f} on" if start is not None else ""
    answer = "Yes" if c.practical else "No"
    return (
        f"Within a practical tolerance? {answer}: the sizes spread by {spread} of the curve's height above its end "
        f"(tolerance {c.tolerance:.0%}){since}. At x = .5 the deviation is {100 * of_loss:.2g} % of the final loss."
    )


def _noise_sentences(c: Collapse) -> list[str]:
    if not any(k > 1 for k in c.counts):
        return [
            "Within seed noise? Not known: one seed a size gives no noise floor. Two or three seeds at the smaller "
            "sizes would give one."
        ]
    first = c.crossings[0]
    if first.corrected is None:
        text = f"Within seed noise? The deviation does not fall below the noise floor for good before x = {LAST}."
    else:
        where = f"x = {first.corrected:.2f}"
        if first.interval is not None:
            where += f" (90 % interval {first.interval[0]:.2f} to {first.interval[1]:.2f})"
        text = f"Within seed noise? The deviation falls below the noise floor for good at {where}."
    out = [text]
    differ = [w for w in c.windows if w.finding == "sizes differ"]
    same = [w for w in c.windows if w.finding == "no difference seen"]
    if differ:
        where = " and ".join(f"[{w.low:g}, {w.high:g}] (p = {_p(w.test.p_value)})" for w in differ if w.test)
        out.append(f"The sizes' mean curves differ by more than own-normalised seed noise on {where}.")
    if same:
        where = " and ".join(
            f"[{w.low:g}, {w.high:g}] (a spread of {w.test.smallest_seen:.2%} would have shown)" for w in same if w.test
        )
        out.append(f"No difference between the sizes is seen on {where}.")
    return out


def _sensitivity_sentences(c: Collapse) -> list[str]:
    if not c.sensitivity:
        return []
    other = [s for s in c.sensitivity[1:] if s.practical != c.practical]
    if other:
        return [
            "The answer depends on a choice: "
            + "; ".join(f"with {s.choice} the sizes {'agree' if s.practical else 'do not agree'}" for s in other)
            + "."
        ]
    return ["The answer is the same with " + ", ".join(s.choice for s in c.sensitivity[1:]) + "."]


def _checks(c: Collapse) -> tuple[str, ...]:
    known = [f.text for f in c.findings if f.level in ("fails", "warns")]
    unknown = [f.control for f in c.findings if f.level == "unknown"]
    out = list(known)
    if unknown:
        out.append(f"not recorded, so not checked: {', '.join(unknown)}")
    if not known:
        out.append(
            ("the recorded controls agree; " if not unknown else "")
            + "next: is the horizon law right (curves that leave in order of size), and the learning rate transferred?"
        )
    return tuple(out)


def _p(value: float) -> str:
    return f"{value:.1g}" if value < 0.001 else f"{value:.3f}"


def tables(c: Collapse) -> tuple[Rows, ...]:
    """The tables of a collapse: windows, sizes, and other choices."""
    out = []
    if any(k > 1 for k in c.counts):
        rows = []
        for w in c.windows:
            interval = "" if np.isnan(w.interval[0]) else f"{w.interval[0]:.2f} to {w.interval[1]:.2f}"
            inside = within_window(c.fraction, w.low, w.high)
            rows.append(
                (
                    f"{w.low:g} to {w.high:g}",
                    f"{_rms(c.corrected_deviation[inside]):.2%}",
                    f"{_rms(c.corrected_noise_floor[inside]):.2%}",
                    f"{w.corrected:.2f}",
                    interval,
                    w.finding,
                    "" if w.test is None else _p(w.test.p_value),
                )
            )
        header = ("x", "deviation", "noise floor", "ratio", "90 % interval", "sizes", "p")
        out.append(Rows("Deviation against seed noise", header, tuple(rows)))
    rows = []
    for i, (size, count, end) in enumerate(zip(c.sizes, c.counts, c.end_loss, strict=True)):
        d = c.departures[i]
        sigma = c.at(c.noise_floor_by_size[i], 0.5) * np.sqrt(count / max(count - 1, 1))
        rows.append(
            (
                human(float(size)),
                str(int(count)),
                f"{end:.5g}",
                "" if np.isnan(sigma) else f"{sigma:.2%}",
                *(f"{c.at(d.offset, x):+.1%}" for x in SPREAD_AT),
                "" if d.fraction is None else f"{d.fraction:.2f} {d.direction}",
            )
        )
    header = ("size", "runs", "final loss", "noise .5", *(f"offset {x:g}" for x in SPREAD_AT), "leaves at")
    out.append(Rows("Sizes (offset: from the others' mean, relative to the curve's height)", header, tuple(rows)))
    if c.sensitivity:
        rows = [
            (
                s.choice,
                *(f"{v:.1%}" for v in s.spread),
                "" if np.isnan(s.ratio) else f"{s.ratio:.2f}",
                "yes" if s.practical else "no",
            )
            for s in c.sensitivity
        ]
        header = ("choice", *(f"spread {x:g}" for x in TOLERANCE_AT), "ratio .5 to .9", "within")
        out.append(Rows("Other choices (within: the tolerance)", header, tuple(rows)))
    return tuple(out)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def heading(c: Collapse) -> str:
    """One line: what was measured."""
    s = c.sampled
    seeds = sorted(set(map(int, c.counts)))
    each = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    parts = [
        f"{len(c.sizes)} sizes from {human(float(c.sizes[0]))} to {human(float(c.sizes[-1]))}",
        f"{len(s.runs)} runs, {each} seed{'s' * (each != '1')} a size",
        f"{s.kind} loss {s.loss_name!r}" + (f", {smoothing(c)}" if s.window else ""),
        f"floor {c.floor.value:.6g} ({c.floor.how})",
    ]
    return (f"{c.name}: " if c.name else "") + " · ".join(parts)


def smoothing(c: Collapse) -> str:
    """The trailing mean in fraction, x and, where the batch is known, steps."""
    s = c.sampled
    if not s.window:
        return "not smoothed"
    name, ends = s.runs[0].x_name, s.ends
    if s.window >= 1.0:
        shares = s.window / ends
        return f"trailing mean over {human(s.window)} {name} ({shares.min():.2g} to {shares.max():.2g} of the run)"
    widths = s.window * ends
    text = f"trailing mean over {s.window:.3g} of the run ({human(min(widths))} to {human(max(widths))} {name}"
    batches = [run.config.batch_tokens for run in s.runs]
    steps = [width / batch for width, batch in zip(widths, batches, strict=True) if batch is not None]
    if len(steps) == len(widths):
        text += f", {human(min(steps))} to {human(max(steps))} steps"
    return text + ")"


def notes(c: Collapse) -> list[str]:
    """Remarks that go below the tables: the floor, what was dropped, warnings."""
    out = [f"floor: {c.floor.note}"]
    if c.floor.fit is not None:
        f = c.floor.fit
        spread = ", ".join(f"{value:.5g} by {name}" for name, value in f.recipes.items())
        out.append(
            f"the fit: {f.floor:.6g} (interval {f.interval[0]:.5g} to {f.interval[1]:.5g}), exponent {f.exponent:.4f}; "
            f"{spread}"
        )
    out += [f"dropped: {count} {what}" for what, count in c.dropped.items()]
    return out + [f"note: {w}" for w in c.warnings]


def summary(c: Collapse) -> str:
    """The whole verdict as plain text."""
    v = verdict(c)
    lines = [heading(c), "", v.headline, *(f"  {s}" for s in v.sentences)]
    if v.checks:
        lines += ["", f"Check, in this order ({CHECK_ORDER}):", *(f"  {i}. {t}" for i, t in enumerate(v.checks, 1))]
    for table in tables(c):
        lines += ["", table.title, *_aligned(table)]
    return "\n".join([*lines, "", *notes(c)])


def _aligned(table: Rows) -> list[str]:
    grid = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.header))]
    return ["  " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in grid]
