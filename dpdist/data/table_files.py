"""Tables that are read and written batch by batch: new rows for a model, and what it says of them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpdist.data.ingestion_spec import IngestionSpec
from dpdist.data.opening import open_source
from dpdist.data.rows import Rows
from dpdist.data.stores import resolved
from dpdist.errors import DataError

_FORMATS = (".csv", ".parquet")


def table_batches(source: str, spec: IngestionSpec, format: str | None = None, delimiter: str = ",") -> Iterator[Rows]:
    """The rows of a table, in its order, as an ingestion with these declarations would have them; bad ones included."""
    try:
        kind, reader = open_source(source, spec, format, delimiter)
        if kind not in ("csv", "parquet"):
            raise DataError(f"{source} is no table; expected CSV, Parquet or a stored dataset")
        for work in reader.batches(None):
            yield work().rows
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror or type(error).__name__}") from None


def write_table(place: str | os.PathLike[str], batches: Iterator[Mapping[str, NDArray[Any]]]) -> int:
    """Write columns, batch by batch, to a new CSV or Parquet file, which is there as a whole or not at all.

    NaN and empty texts become empty cells.

    Returns
    -------
    int
        Rows that were written.
    """
    path = Path(resolved(os.fspath(place)))
    if path.suffix not in _FORMATS:
        raise DataError(f"{path.name} must end in {' or '.join(_FORMATS)}, which says what is written")
    if path.exists():
        raise DataError(f"{path} exists already; name a new file")
    if not path.parent.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {path.parent}; make it, or name another")
    aside, n_rows = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial"), 0
    writer: Any = None
    try:
        for columns in batches:
            table = pa.table({name: _column(values) for name, values in columns.items()})
            if writer is None:
                make = pacsv.CSVWriter if path.suffix == ".csv" else pq.ParquetWriter
                writer = make(aside, table.schema)
            writer.write_table(table)
            n_rows += table.num_rows
        if writer is None:
            raise DataError("there are no rows to write")
        writer.close()
        os.replace(aside, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or type(error).__name__}") from None
    finally:
        if writer is not None:
            writer.close()
        aside.unlink(missing_ok=True)
    return n_rows


def _column(values: NDArray[Any]) -> pa.Array:
    if values.dtype.kind in "UTO":
        texts = values.astype(object)
        texts[texts == ""] = None
        return pa.array(texts, pa.string())
    return pa.array(values, from_pandas=True)
