"""What stands in a column of a table, for a curator who has to declare its levels."""

from __future__ import annotations

import csv
import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pds

from dpdist.data.delimited import TextFile
from dpdist.data.ingestion_spec import listed, near
from dpdist.data.rows import EMPTY, as_kind
from dpdist.errors import DataError

MOST = 10_000
"""Different values of a column that can have levels."""


@dataclass(frozen=True)
class Found:
    """What a column holds: not public, not private, the curator's own.

    Attributes
    ----------
    column : str
    counts : mapping of str to int
        Rows of every value, the most frequent first.
    empty : int
        Rows without one: an empty cell, or a text such as NA that stands for it.
    rows : int
    """

    column: str
    counts: dict[str, int]
    empty: int
    rows: int


def values_of(source: str, column: str, delimiter: str = ",") -> Found:
    """Count the values of a column as text, in constant memory.

    Parameters
    ----------
    source : str
        CSV (also gzipped) or Parquet, or a pattern that names several files.
    column, delimiter : str

    Raises
    ------
    DataError
        If there is no such table or column, or it has more than `MOST` different values.
    """
    place = os.path.expanduser(source)
    files = [place] if os.path.exists(place) else sorted(glob.glob(place, recursive=True))
    if not files:
        raise DataError(f"there is no file {source}, and no file that matches it as a pattern. Check the path")
    counts: Counter[str] = Counter()
    try:
        for file in files:
            for values in _texts(file, column, delimiter):
                for pair in pc.value_counts(values).to_pylist():
                    counts[pair["values"] or ""] += pair["counts"]
                if len(counts) > MOST:
                    raise DataError(
                        f"{column!r} has more than {MOST:,} different values: it is no category. A number goes into "
                        "--features, with its --range"
                    )
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror or type(error).__name__}") from None
    except pa.ArrowException as error:
        raise DataError(
            f"{source} cannot be read as a table ({type(error).__name__}): check it, or --delimiter"
        ) from None
    rows, empty = counts.total(), sum(counts.pop(text, 0) for text in EMPTY)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return Found(column, dict(ordered), empty, rows)


def _texts(file: str, column: str, delimiter: str) -> Iterator[pa.Array]:
    """The column as texts, batch by batch."""
    if file.endswith((".parquet", ".pq")) or os.path.isdir(file):
        table = pds.dataset(file, format="parquet")
        _check(column, table.schema.names, file)
        batches = table.to_batches(columns=[column])
    else:
        with TextFile(Path(file)) as stream:
            header = stream.header().decode("utf-8-sig", errors="replace").rstrip("\r\n")
        _check(column, next(csv.reader([header], delimiter=delimiter), []), file)
        batches = pacsv.open_csv(
            file,
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip"
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=[column], column_types={column: pa.string()}, strings_can_be_null=False
            ),
        )
    for batch in batches:
        yield as_kind(batch.column(0), "text")


def _check(column: str, available: Sequence[str], file: str) -> None:
    if column not in available:
        name = os.path.basename(file)
        raise DataError(f"there is no column {column!r} in {name}{near(column, available)}; it has {listed(available)}")
