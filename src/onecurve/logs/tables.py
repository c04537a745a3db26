"""Plain tables: CSV, TSV, Parquet and JSONL files as polars frames."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from onecurve.errors import OnecurveError

TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
LOOKED_AT = 1000
"""Rows by which a column's kind is told."""


def read_table(path: Path) -> pl.DataFrame:
    """Read one table. Raises OnecurveError for a missing, empty or damaged file, or one that is not what it says."""
    if not path.is_file():
        raise OnecurveError(f"{path}: {'a folder, not a table' if path.is_dir() else 'no such file'}")
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise OnecurveError(f"{path}: cannot be read: {error.strerror}") from None
    if not head:
        raise OnecurveError(f"{path}: the file is empty; was it written to its end, and is it the one meant?")
    kind = path.suffix.lower()
    if kind not in TABLES:
        raise OnecurveError(f"{path}: a table ends in {', '.join(TABLES)}; got {kind or 'no ending'!r}")
    parquet = head.startswith(b"PAR1")
    if parquet != (kind == ".parquet"):
        is_, says = ("a Parquet file", kind) if parquet else ("no Parquet file", ".parquet")
        raise OnecurveError(f"{path}: the name says {says}, but it is {is_}; rename it or write it again")
    if not parquet and b"\0" in head:
        raise OnecurveError(f"{path}: the name says {kind}, but it holds binary data; is it compressed?")
    try:
        if parquet:
            frame = pl.read_parquet(path)
        elif kind in (".jsonl", ".ndjson"):
            frame = _read_jsonl(path)
        else:
            frame = read_csv(path, "\t" if kind == ".tsv" else ",")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeDecodeError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise OnecurveError(
            f"{path}: cannot be read as {kind[1:].upper()}: {reason}; is the file whole, and what its name says?"
        ) from None
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def read_csv(path: Path, separator: str = ",", ragged: bool = False) -> pl.DataFrame:
    """A CSV file; a column of which any cell is no number is text. Raises polars' errors.

    The first rows tell what a column holds, which is ten times as fast as looking at all of them; where they do not
    (they are empty, or a later cell is of another kind) all are looked at.
    """

    def parsed(rows: int | None) -> pl.DataFrame:
        return pl.read_csv(path, separator=separator, infer_schema_length=rows, truncate_ragged_lines=ragged)

    try:
        frame = parsed(LOOKED_AT)
    except pl.exceptions.PolarsError:
        return parsed(None)
    late = frame.height > LOOKED_AT and any(
        column.dtype == pl.String and column[:LOOKED_AT].null_count() == LOOKED_AT for column in frame
    )
    return parsed(None) if late else frame


def _read_jsonl(path: Path) -> pl.DataFrame:
    try:
        return pl.read_ndjson(path, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        pass
    # Python's own json writes NaN and Infinity, which strict JSON lacks; its reader also tells the damaged line.
    records: list[dict[str, object]] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            record = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            raise OnecurveError(f"{path}: line {number} is not JSON ({error}); mend or drop the line") from None
        if not isinstance(record, dict):
            raise OnecurveError(f"{path}: line {number} is {str(line[:40], errors='replace')!r}, not a JSON object")
        if record:
            records.append(record)
    return pl.DataFrame(records, infer_schema_length=None, strict=False)
