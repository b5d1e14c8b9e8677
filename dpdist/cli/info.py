"""``dpdist info``: what is public about a stored dataset, and whether all of it can be read."""

from __future__ import annotations

import itertools
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.output import as_json, as_list, as_table, deliver, size
from dpdist.errors import DataError

if TYPE_CHECKING:
    import zarr

    from dpdist.data import Dataset


def open_read_only(location: str) -> zarr.Group:
    """Open the Zarr group at a path or URL so that nothing can be written to it."""

    from dpdist.data.stores import open_to_read, shown

    place = shown(location)
    if "://" not in location and not os.path.exists(os.path.expanduser(location)):
        raise DataError(f"{place}: there is no such file or directory; check the name of the dataset")
    try:
        return open_to_read(location)
    except (DataError, PermissionError):
        raise
    except Exception as error:
        problem = type(error).__name__
    raise DataError(
        f"{place} is not a dataset: no Zarr group can be opened there ({problem}). Expected a group that holds the "
        "arrays, such as 'dpdist ingest' writes; not a file, nor one array of a group."
    )


def stored_account(location: str) -> str | None:
    """Return the account that a store pays from, None if it has never been given an id; writes nothing."""
    from dpdist.data.dataset_schema import ATTRIBUTE, Schema
    from dpdist.data.stores import shown

    attributes = open_read_only(location).attrs.get(ATTRIBUTE)
    return None if attributes is None else Schema.from_attributes(attributes, shown(location)).pays_from


def describe(location: str) -> tuple[Dataset, dict[str, Any]]:
    """Open a dataset without writing to it, and list what is public about it as plain JSON.

    Where the number of rows is private (`dpdist.data.units`) it is null, as is whatever would tell it.
    """
    from dpdist.data import Dataset
    from dpdist.data.dataset_schema import ATTRIBUTE
    from dpdist.data.stores import shown
    from dpdist.engine.memory import noted_head

    group = open_read_only(location)
    has_id = ATTRIBUTE in group.attrs
    # A store without an id would be given one at this opening; with a read-only group and a name that stays out.
    dataset = Dataset.open(group) if has_id else Dataset.open(group, dataset_id="none")
    schema, known = dataset.schema, noted_head(dataset)
    counted = schema.units.counted
    # Sizes are those of the schema: how many bytes the chunks take tells counts of values, and labels letter by letter.
    arrays = {
        name: {
            "dtype": spec.dtype,
            "shape": [spec.n_rows if counted else None, *spec.shape[1:]],
            "bytes": spec.row_bytes * spec.n_rows if counted else None,
        }
        for name, spec in schema.arrays.items()
    }
    return dataset, {
        "location": shown(group),
        "id": dataset.id if has_id else None,
        "edition": schema.edition,
        "account": dataset.account if has_id else None,
        "ledger": None if known is None else {"id": known[0].ledger, "path": known[1].get("path")},
        "n_rows": dataset.n_rows if counted else None,
        "unit": schema.unit,
        "max_rows_per_unit": schema.max_rows_per_unit,
        "grouped": schema.grouped,
        "row_order": schema.row_order,
        "arrays": arrays,
        "columns": {name: list(columns) for name, columns in schema.columns.items()},
        "missing": list(schema.missing),
        "encoding": None if schema.encoding is None else schema.encoding.to_attributes(),
        "declared": {} if schema.encoding is None else schema.encoding.described(),
        "partitions": len(dataset.partitions) if counted else None,
        "partition_bytes": dataset.partition_bytes if counted else None,
        "bytes": dataset.nbytes if counted else None,
        "zarr_format": group.metadata.zarr_format,
    }


@click.command("info")
@click.argument("dataset", type=click.Path())
@click.option("--verify", is_flag=True, help="Read every stored chunk once and report the first that is damaged.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(dataset: str, verify: bool, json_: bool) -> None:
    """Show what is public about DATASET, a Zarr group at a path or URL.

    This is the schema: the arrays with their shapes, types and columns, whose data one privacy unit is, how the
    order of the rows came about, how the rows are cut into partitions, the random id, the account of the ledger that
    pays for what is learned, and the random edition that rows get when they are written: no run goes on with those of
    another. No value is shown, nor how many bytes the store takes, which would tell counts of values (of strings 16
    bytes are counted each); and nothing is written. The number of rows is public where neighbours are made by
    replacing one unit's data; keep it to yourself where they are made by adding or removing one. It is private, and
    not shown, where one unit may own any number of rows up to a bound: 'dpdist ingest --unit' writes equally many of
    each, so that it is public again.

    With --verify every chunk is read and decoded as well. This finds chunks that are missing, cut short, or do not
    match their checksum (datasets that dpdist wrote have checksums; a flipped bit in another store may pass). Exit
    status 2 if there is damage.

    \b
    Examples:
      dpdist info flights.zarr
      dpdist info s3://bucket/flights.zarr --json
      dpdist info flights.zarr --verify && dpdist run job.yaml
    """
    opened, facts = describe(dataset)
    if verify:
        _verify(opened)
        facts["verified"] = True
    deliver(as_json(facts) if json_ else _text(facts))


def _verify(dataset: Dataset) -> None:
    """Read the stored pieces one by one, for the sake of the progress bar; the first damaged one raises."""
    pieces = [
        (source, first, last)
        for source in map(dataset.source, dataset.arrays)
        for first, last in itertools.pairwise(source.boundaries())
    ]
    with click.progressbar(pieces, label="verifying", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for source, first, last in bar:
            source.verify(first, last)


def _length(n: int | None) -> str:
    return "private" if n is None else f"{n:,}"


def _text(facts: dict[str, Any]) -> str:
    from dpdist.data import Units

    units = Units(facts["unit"], facts["max_rows_per_unit"], facts["grouped"])
    rows = partitions = size_of = "private"
    if facts["n_rows"] is not None:
        rows = f"{facts['n_rows']:,}" + (f", of {facts['n_rows'] // units.max_rows:,} units" if units.grouped else "")
        partitions = f"{facts['partitions']:,}, of up to {size(facts['partition_bytes'])}"
        size_of = f"{size(facts['bytes'])} in memory"
    no_id = "none yet; the store gets one when it is first opened for a run or for 'dpdist budget set'"
    lines = [
        ("Dataset", facts["location"]),
        ("Id", facts["id"] or no_id),
        ("Account", facts["account"] or "none yet"),
        *([] if facts["ledger"] is None else [("Limited by", "the ledger {path}, id {id}".format(**facts["ledger"]))]),
        *([("Edition", facts["edition"])] if facts["edition"] else []),
        ("Rows", rows),
        ("Privacy unit", str(units)),
        ("Row order", facts["row_order"]),
        *([("Empty cells", f"are values in {', '.join(facts['missing'])}")] if facts["missing"] else []),
        ("Partitions", partitions),
        ("Size", size_of),
        ("Zarr format", str(facts["zarr_format"])),
    ]
    if facts.get("verified"):
        lines.append(("Verified", "every chunk can be read"))
    arrays = [
        {"name": name, "dtype": array["dtype"], "shape": " x ".join(map(_length, array["shape"]))}
        for name, array in facts["arrays"].items()
    ]
    parts = [as_list(lines), as_table(arrays, {"name": "Array", "dtype": "Type", "shape": "Shape"})]
    for name, columns in facts["columns"].items():
        listed = textwrap.wrap(", ".join(map(str, columns)), 96, initial_indent="  ", subsequent_indent="  ")
        parts.append("\n".join([f"Columns of {name}, in order:", *listed]))
    if facts["declared"]:
        declared = [{"column": name, "declared": text} for name, text in facts["declared"].items()]
        parts.append(as_table(declared, {"column": "Column of the table", "declared": "Declared"}))
    return "\n\n".join(parts)
