"""Which reader a source gets: by what it is and by its suffix, never by what is in it."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Literal, get_args

from dpdist.data.arrayfiles import numpy_reader, zarr_reader
from dpdist.data.delimited import CsvReader
from dpdist.data.ingestion_spec import IngestionSpec
from dpdist.data.libsvm import LibsvmReader
from dpdist.data.readers import ParquetReader, Reader
from dpdist.errors import DataError

Format = Literal["csv", "parquet", "libsvm", "numpy", "zarr"]
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".libsvm": "libsvm",
    ".libsvm.gz": "libsvm",
    ".svm": "libsvm",
    ".npy": "numpy",
    ".npz": "numpy",
    ".zarr": "zarr",
}


def open_source(source: str, spec: IngestionSpec, format: str | None, delimiter: str) -> tuple[str, Reader]:
    """The format of a source, and its reader."""
    if "://" in source and format in (None, "zarr"):
        return "zarr", zarr_reader(source, spec)
    path = Path(os.path.expanduser(source))
    if path.exists():
        found = [path]
    else:
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
        if not found:
            raise DataError(f"there is no file {source}, and no file that matches it as a pattern. Check the path")
    kind = _format_of(source, found, format)
    if kind in ("numpy", "zarr") and len(found) > 1:
        raise DataError(f"{source} matches {len(found)} arrays; several sources at once must be text or Parquet files")
    if kind == "zarr":
        return kind, zarr_reader(str(path), spec)
    if kind == "parquet" and path.is_dir():
        found = sorted(f for suffix in ("*.parquet", "*.pq") for f in path.rglob(suffix) if f.name[0] not in "._")
    folders = [file.name for file in found if not file.is_file()]
    if folders or not found:
        raise DataError(
            f"{source} is a directory without Parquet files or Zarr metadata; expected a file, a Zarr group, a "
            'directory of Parquet files, or a pattern in quotes such as "data/*.csv"'
        )
    if kind == "numpy":
        return kind, numpy_reader(found[0], spec)
    if kind == "libsvm":
        return kind, LibsvmReader(found, spec)
    return kind, ParquetReader(found, spec) if kind == "parquet" else CsvReader(found, spec, delimiter)


def _format_of(source: str, files: list[Path], given: str | None) -> Format:
    """Return the format: what was said, else what the suffix says."""
    if given is not None:
        if given not in get_args(Format):
            raise DataError(f"the format must be one of {', '.join(get_args(Format))}, got {given!r}")
        return given  # type: ignore[return-value]
    name = files[0].name.lower() if files else source.lower().rstrip("/")
    for suffix, found in _SUFFIXES.items():
        if name.endswith(suffix):
            return found
    if files and files[0].is_dir():
        return "zarr" if any((files[0] / mark).exists() for mark in ("zarr.json", ".zgroup")) else "parquet"
    raise DataError(
        f"the suffix of {os.path.basename(source)} says no format that is known ({', '.join(_SUFFIXES)}); give "
        "--format where it is one of them (a spreadsheet is none: save it as CSV)"
    )
