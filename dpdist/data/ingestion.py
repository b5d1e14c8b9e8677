"""Tables and arrays into a dataset: the curator's side, before any guarantee, where bad rows are refused loudly.

Everything here may look at the data. What it writes into the store besides the rows is public and decided by names:
columns, levels, ranges, bounds. How many rows were read, were bad or exceeded the bound of their unit depends on the
values; it goes to the curator who called, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dpdist.data.copying import Ingested, Ingestion, Progress, already_there, state_path
from dpdist.data.dataset_schema import ArraySpec, RowOrder, Schema, new_id
from dpdist.data.encoding import Encoding
from dpdist.data.growing import kind_of
from dpdist.data.ingestion_spec import FeatureType, IngestionSpec, LabelType, OnBad, bounds, by_column, texts
from dpdist.data.opening import Format, open_source
from dpdist.data.owners import OwnerBuckets, check_size
from dpdist.data.readers import Reader
from dpdist.data.stores import resolved
from dpdist.data.writing import Compression
from dpdist.errors import DataError


def ingest(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    features: Sequence[str] = (),
    label: str | None = None,
    label_type: LabelType = "float",
    label_levels: Sequence[str] = (),
    levels: Mapping[str, Sequence[str]] | None = None,
    reference: Mapping[str, str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    clip: bool = True,
    missing: Mapping[str, str] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    on_bad: OnBad = "stop",
    dtype: FeatureType = "float64",
    format: Format | None = None,
    delimiter: str = ",",
    dataset_id: str | None = None,
    account: str | None = None,
    row_order: RowOrder = "unknown",
    partition_rows: int | None = None,
    compression: Compression = "none",
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Ingested:
    """Write a source to a new dataset at ``dest``, in constant memory; the same call continues after a crash.

    Arrays ``X`` (``features`` in order, then what ``levels`` adds) and ``y`` (``label``) are written. A row is bad if
    one of the values it needs is missing, NaN, infinite, no number, no UTF-8 text or not one of the declared levels, or
    if its line is ragged.

    The guarantee of a later fit is between datasets as they are written, and begins there. What it says of sources:

    - with a unit, any two whose rows have the same owners and that differ in the rows of one of them: their number,
      where they stand and which of them are bad may be different too. Every owner gets ``max_rows`` rows side by side,
      the first good ones of the source, in turns where it has fewer (`dpdist.data.owners` says why); rows without an
      owner are left out, and so are ragged lines, which name none: who has no other line is no owner of the source;
    - without a unit, any two of equally many rows that differ in one of them, with ``on_bad="zero"`` or "stop"; with
      ``"drop"`` only where the same rows are good, because others move up when one is left out.

    Parameters
    ----------
    source : path or str
        CSV or sparse lines of LIBSVM (both also gzipped), Parquet, ``.npy``, ``.npz`` or a Zarr group; several text or
        Parquet files by a shell pattern, or a directory of Parquet files.
    dest : path
        A directory that does not exist yet. ``dest`` + ``.ingesting`` beside it remembers how far it is.
    features, label, label_type, label_levels, levels, reference, ranges, clip, missing, unit, max_rows, dtype
        See `dpdist.data.ingestion_spec.IngestionSpec`. Nothing of it should be chosen by looking at the data, except by
        the curator.
    on_bad : {"stop", "drop", "zero"}
        Raise, leave the row out, or keep its place as a null row, which contributes zero to every sum.
    format : {"csv", "parquet", "libsvm", "numpy", "zarr"}, optional
        By default what the suffix says.
    delimiter : str
        Of CSV.
    dataset_id, account, row_order, partition_rows, compression
        As in `Dataset.from_arrays`; ``row_order`` is that of the source. Owners stand in a permuted order.
    restart : bool
        Delete an unfinished ingestion to ``dest`` first. A finished dataset is never overwritten.
    progress : function of `Progress`, optional
        Called after every batch.

    Raises
    ------
    DataError
        What cannot be read, written or understood; under ``on_bad="stop"`` with the numbers of the first bad rows.
    MissingBound
        A unit without ``max_rows``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dpdist.data import Dataset
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> lines = ["delay,origin,late", "10,EWR,yes", "NA,JFK,no", "20,JFK,no"]
    >>> _ = (folder / "flights.csv").write_text(chr(10).join(lines))
    >>> done = ingest(folder / "flights.csv", folder / "flights.zarr", features=["delay"], ranges={"delay": (0, 20)},
    ...     levels={"origin": ["EWR", "JFK"]}, label="late", label_levels=["no", "yes"], on_bad="drop")
    >>> done.schema.columns["X"], dict(done.bad)
    (('delay', 'origin=EWR', 'origin=JFK'), {'delay is missing': 1})
    >>> Dataset.open(folder / "flights.zarr").read(0, 2)["X"]
    array([[0., 1., 0.],
           [1., 0., 1.]])
    """
    spec = IngestionSpec(
        features=texts("features", features, '["age", "income"]'),
        label=label,
        label_type=label_type,
        label_levels=texts("label_levels", label_levels, '["no", "yes"]'),
        levels={
            name: texts(f"the levels of {name!r}", allowed, '["A", "B"]')
            for name, allowed in by_column("levels", levels, '{"town": ["A", "B"]}').items()
        },
        reference={name: str(level) for name, level in by_column("reference", reference, '{"town": "A"}').items()},
        ranges={name: bounds(name, given) for name, given in by_column("ranges", ranges, '{"age": (0, 100)}').items()},
        clip=clip,
        missing={
            name: str(stands_for)
            for name, stands_for in by_column("missing", missing, '{"income": "indicator"}').items()
        },
        unit=unit,
        max_rows=max_rows,
        on_bad=on_bad,
        dtype=dtype,
    )
    place = _location(dest)
    asked = {"source": os.path.basename(os.fspath(source).rstrip("/")), **spec.to_attributes()}
    if kind_of(place) == "taken" and not state_path(place).exists():
        raise already_there(place, asked)
    try:
        kind, reader = open_source(os.fspath(source), spec, format, delimiter)
        identity = reader.identity()
    except OSError as error:
        raise DataError(f"cannot read {os.fspath(source)}: {error.strerror or type(error).__name__}") from None
    least = max_rows or 1
    specs = {"X": ArraySpec(dtype, (least, reader.layout.width))}
    if reader.layout.label is not None:
        specs["y"] = ArraySpec("str" if reader.layout.text_label else "float64", (least,))
    if unit is not None:
        check_size(unit, least, sum(spec.row_bytes for spec in specs.values()))
    columns = {"X": reader.layout.names, "y": (str(reader.layout.label),)} if reader.named else {}
    schema = Schema(
        id=new_id() if dataset_id is None else dataset_id,
        arrays=specs,
        unit="row" if unit is None else unit,
        max_rows_per_unit=least,
        grouped=unit is not None,
        row_order=row_order if unit is None else "permuted",  # of the owners, whatever that of the source is
        partition_rows=partition_rows,
        columns=columns,
        account=account,
        missing=kept_columns(reader),
        encoding=Encoding.of(reader.layout) if reader.named or spec.ranges else None,
    )
    # part of what was asked for: rows that are put aside stay in their range, and another version may cut others
    buckets = OwnerBuckets.of(schema.id, reader.stored_bytes)
    public = {**asked, "format": kind}
    others = {
        "dataset_id": dataset_id,
        "account": account,
        "row_order": row_order,
        "partition_rows": partition_rows,
        "compression": compression,
        "delimiter": delimiter,
        **({} if unit is None else {"layout": f"owners in {buckets.n_buckets} ranges"}),
    }
    request = {"source": identity, "options": {**public, **others}, "id": schema.id}
    return Ingestion(place, reader, schema, compression, public, request, progress).run(restart)


def kept_columns(reader: Reader) -> tuple[str, ...]:
    """Columns of X whose missing cells are kept, by the names that the schema has for them."""
    layout = reader.layout
    return tuple(name if reader.named else str(j) for name, j in layout.numbers if name in layout.kept)


def _location(dest: str | os.PathLike[str]) -> Path:
    if "://" in os.fspath(dest) or "::" in os.fspath(dest):
        raise DataError(f"{os.fspath(dest)} is a URL; expected a local directory. Ingest to a local disk, then copy it")
    path: Path = resolved(os.fspath(dest))
    return path
