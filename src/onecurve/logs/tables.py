"""Plain tables: CSV, TSV, Parquet and JSONL files as polars frames."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from onecurve.errors import OnecurveError

TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")


def read_table(path: Path) -> pl.DataFrame:
    """Read one table. Raises OnecurveError for a missing, empty or damaged file, or one that is not what it says."""
    if not path.is_file():
        raise OnecurveError(f"{path}: no such file")
    kind = path.suffix.lower()
    if kind not in TABLES:
        raise OnecurveError(f"{path}: a table ends in {', '.join(TABLES)}; got {kind or 'no ending'!r}")
    if path.stat().st_size == 0:
        raise OnecurveError(f"{path}: the file is empty")
    with path.open("rb") as file:
        head = file.read(4096)
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
            frame = pl.read_ndjson(path, infer_schema_length=None)
        else:
            # Numbers are parsed as floats or integers; a column with any other cell stays text and is judged later.
            frame = pl.read_csv(path, separator="\t" if kind == ".tsv" else ",", infer_schema_length=None)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise OnecurveError(f"{path}: cannot be read as {kind[1:].upper()}: {reason}") from None
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
