"""``dpdist ingest``: files into a dataset, on the curator's side."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.listed_names import listed_names
from dpdist.cli.output import as_json

if TYPE_CHECKING:
    from dpdist.data import Ingested, Progress

EVERY = 2.0
"""Seconds between plain lines."""


class _Names(click.ParamType):
    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return value if isinstance(value, tuple) else listed_names(value)


class _Levels(click.ParamType):
    name = "column=a,b,c"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[str, ...]]:
        column, sign, levels = str(value).partition("=")
        if not (column and sign and levels):
            self.fail(f"{value!r} is not of the form COLUMN=LEVEL,LEVEL,...", param, ctx)
        return column, listed_names(levels)


class _Reference(click.ParamType):
    name = "column=level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        column, _, level = str(value).partition("=")
        words = listed_names(level)
        if not column or len(words) != 1:
            self.fail(f"{value!r} is not of the form COLUMN=LEVEL", param, ctx)
        return column, words[0]


class _Range(click.ParamType):
    name = "column=lo:hi"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[float, float]]:
        column, _, bounds = str(value).rpartition("=")
        low, _, high = bounds.partition(":")
        try:
            return column, (float(low), float(high))
        except ValueError:
            self.fail(f"{value!r} is not of the form COLUMN=LO:HI with two numbers", param, ctx)


class _Missing(click.ParamType):
    name = "column=what"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        column, _, stands_for = str(value).rpartition("=")
        if not (column and stands_for):
            self.fail(
                f"{value!r} is not of the form COLUMN=keep, COLUMN=indicator, COLUMN=level or COLUMN=VALUE", param, ctx
            )
        return column, stands_for


class _Separator(click.ParamType):
    name = "character"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return "\t" if value in ("\\t", "tab") else str(value)


def _once(what: str, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column, value in pairs:
        if column in found:
            raise click.UsageError(f"{what} was given twice for the column {column!r}; give it once for each")
        found[column] = value
    return found


@click.command("ingest")
@click.argument("source", type=click.Path())
@click.argument("dest", type=click.Path())
@click.option(
    "--features", type=_Names(), default=(), help="Columns of X, in this order: names or patterns, separated by commas."
)
@click.option("--label", help="Column that becomes y.")
@click.option(
    "--label-type",
    type=click.Choice(["float", "str"]),
    default="float",
    show_default=True,
    help="Of y as it is stored.",
)
@click.option("--label-levels", type=_Names(), default=(), help="The allowed labels, as text: no,yes.")
@click.option(
    "--levels",
    type=_Levels(),
    multiple=True,
    help="Allowed values of a categorical column; each becomes a column of X with 0 and 1. Repeatable.",
)
@click.option(
    "--reference",
    type=_Reference(),
    multiple=True,
    help="The level of a category that gets no column, and that the others are compared with: with it there are "
    "standard errors beside an intercept. Repeatable.",
)
@click.option(
    "--range",
    "ranges",
    type=_Range(),
    multiple=True,
    help="Public bounds of a feature or of the label, mapped to -1 and 1. Repeatable.",
)
@click.option(
    "--clip/--no-clip",
    default=True,
    show_default=True,
    help="Move values outside of their range to its nearer end.",
)
@click.option(
    "--missing",
    type=_Missing(),
    multiple=True,
    help="What an empty cell of a feature stands for: indicator (of numbers) and level (of categories) add a column "
    "that says so; a number or a level takes its place; keep leaves it empty, which only estimators made for missing "
    "cells accept. Repeatable.",
)
@click.option("--unit", help="Column that names whose row it is (patient, household); it is not written.")
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    help="With --unit: rows that each has in DEST. The first ones are kept; who has fewer has copies of them.",
)
@click.option(
    "--on-bad",
    type=click.Choice(["stop", "drop", "zero"]),
    default="stop",
    show_default=True,
    help="Bad rows stop it, are left out, or become null rows.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["csv", "parquet", "libsvm", "numpy", "zarr"]),
    help="Of SOURCE; by default what its suffix says.",
)
@click.option(
    "--delimiter", type=_Separator(), default=",", show_default=True, help="Between the values of CSV; tab for tabs."
)
@click.option(
    "--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True, help="Of X as stored."
)
@click.option(
    "--row-order",
    type=click.Choice(["arrival", "permuted", "unknown"]),
    default="unknown",
    show_default=True,
    help="How the order of the rows came about; with --unit that of the units is permuted.",
)
@click.option("--dataset-id", help="Public name of the dataset for ever; by default a random one.")
@click.option(
    "--account", help="Account of the ledger that pays, shared by all data about the same people; default: its own."
)
@click.option(
    "--partition-rows", type=click.IntRange(min=1), help="Rows of a chunk, of at most 1 GiB; default: 16 MiB."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "zstd"]),
    default="none",
    show_default=True,
    help="Of the chunks: none reads fastest.",
)
@click.option("--restart", is_flag=True, help="Delete an unfinished ingestion to DEST and start again.")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(
    source: str,
    dest: str,
    levels: Sequence[tuple[str, Any]],
    reference: Sequence[tuple[str, Any]],
    ranges: Sequence[tuple[str, Any]],
    missing: Sequence[tuple[str, Any]],
    format_: Any,
    quiet: bool,
    json_: bool,
    **options: Any,
) -> None:
    """Turn SOURCE into a dataset at DEST, a new directory.

    SOURCE is CSV, sparse lines of LIBSVM (.libsvm, .svm; both also gzipped), Parquet, NumPy (.npy, .npz with arrays X
    and y) or a Zarr group; for several text or Parquet files a pattern in quotes, or a directory of Parquet files.
    Tables need --features: which columns are used is decided by names, never by values. Of arrays, --features and
    --label name the arrays instead (X and y unless said), and --range takes the number of a column. Of sparse lines,
    "label index:value ...", --features is how many features there are, --range takes an index, from 1, or "label", and
    what a line does not name is 0. It runs in constant memory. If it is stopped or killed, the same command continues
    where it was, or says that DEST is finished; DEST.ingesting remembers that, holds rows, and is deleted at the end.

    This is the curator's side, before any guarantee: it looks at the data, and prints numbers of rows, reasons and
    counts that depend on them. Keep its output to yourself. Levels, ranges, the bound of --max-rows and the choice of
    --on-bad become public: choose them without looking at the data, from what the columns mean, or answer for it.

    The columns of all levels of a category add up to 1, so that with an intercept (or a second category) no
    coefficient of them has a standard error. "--levels origin=EWR,JFK,LGA --reference origin=EWR" leaves EWR without a
    column: the coefficient of "origin=JFK" is then how much JFK differs from EWR.

    Empty cells, and those that say NA, NaN or null where no level is called so, need no row to be left out: "--missing
    income=indicator" keeps the row, puts the middle of the range in the place of the number, and adds the column
    "income is missing"; "--missing town=level" does so for a category, whose levels are all 0 then; "--missing
    children=0" and "--missing town=other" put a value there. With "--missing income=keep" the cells stay empty in DEST
    (NaN), which its description says, and every estimator but those for missing cells refuses it. Rows without a label
    teach nothing, so the label has no such choice. Declare columns by what they are, not by whether a cell is empty:
    the declaration is public.

    A row is bad if a value it needs is missing, NaN, infinite, no number, not UTF-8 or not one of the levels, or if its
    line has too few or too many values, or (sparse lines) indices that do not ascend from 1 to --features. By default
    it stops there, says in which rows, and leaves nothing behind. "drop" leaves such rows out and says how many. "zero"
    makes them null rows, which contribute zero.

    A later guarantee is about DEST: two datasets as they are written that differ in the rows of one unit. Of SOURCE it
    says as much as follows from that:

    With --unit a unit is all that one owner has. Every owner gets --max-rows rows in DEST, side by side: its first good
    ones, in turns if it has fewer, and null rows if it has none. So the guarantee covers any two SOURCEs with the same
    owners that differ in the rows of one of them: how many, which and where they are, and whether they are bad. Rows
    without an owner are left out, and with them lines of too few or too many values, which have none: who has no other
    line is no owner. Every owner counts as the mean of its rows, and the noise of a mean is that of one row per owner.
    DEST takes --max-rows rows for every owner, whatever it owns, of at most 128 MiB together. If the disk has no room
    for them, it stops before the first one is written.

    Without --unit a unit is one row. The guarantee covers SOURCEs of equally many rows that differ in one of them; with
    "drop" only where the same rows are bad, because what is left out changes the number of rows and the places of those
    behind it. Where people can have several rows and --unit is not given, people are not protected, only single rows.

    \b
    Examples:
      dpdist ingest flights.csv flights.zarr --features dep_delay,distance,hour \\
          --levels origin=EWR,JFK,LGA --reference origin=EWR --range dep_delay=-60:600 \\
          --label arr_delay --on-bad drop --row-order arrival
      dpdist ingest 'visits-*.csv.gz' visits.zarr --features 'x*' --label ill \\
          --label-levels no,yes --unit patient --max-rows 5
      dpdist ingest export/ sales.zarr --format parquet --features price,amount
      dpdist ingest arrays.npz arrays.zarr --compression zstd
      dpdist ingest people.csv people.zarr --features age,income --levels town=A,B \\
          --range age=0:100 --range income=0:200000 --missing income=indicator --missing town=level
      dpdist ingest covtype.libsvm covtype.zarr --features 54 --range 1=0:1
    """
    from dpdist.data.ingestion import ingest

    chosen = {
        "levels": _once("--levels", levels),
        "reference": _once("--reference", reference),
        "ranges": _once("--range", ranges),
        "missing": _once("--missing", missing),
        "format": format_,
        **options,
    }
    try:
        with _shown(quiet) as tell:
            done = ingest(source, dest, progress=tell, **chosen)
    except KeyboardInterrupt as error:
        error.add_note("the same command continues where it was")
        raise
    click.echo(as_json(_facts(done)) if json_ else _text(done))


def _facts(done: Ingested) -> dict[str, Any]:
    schema = done.schema
    return {
        "path": done.path,
        "id": schema.id,
        "account": schema.pays_from,
        "n_rows": schema.n_rows,
        "arrays": {name: {"dtype": spec.dtype, "shape": list(spec.shape)} for name, spec in schema.arrays.items()},
        "columns": {name: list(columns) for name, columns in schema.columns.items()},
        "unit": schema.unit,
        "max_rows_per_unit": schema.max_rows_per_unit,
        "rows_read": done.rows_read,
        "bad": dict(done.bad),
        "over_bound": done.over_bound,
        **({"missing": list(schema.missing)} if schema.missing else {}),
    }


def _text(done: Ingested) -> str:
    schema = done.schema
    arrays = ", ".join(f"{name} {spec.dtype} {spec.shape}" for name, spec in schema.arrays.items())
    lines = [f"{done.path}: {schema.n_rows:,} rows ({arrays}), id {schema.id}"]
    if schema.account is not None:
        lines.append(f"  pays from the account {schema.account}")
    lines += [f"  {name}: {', '.join(columns)}" for name, columns in schema.columns.items()]
    if schema.missing:
        lines.append(f"  empty cells are values in: {', '.join(schema.missing)}")
    lines.append(f"For the curator only: {done.rows_read:,} rows were read, {sum(done.bad.values()):,} were bad")
    lines += [f"  {count:,}: {reason}" for reason, count in done.bad.items()]
    if schema.grouped:
        lines[1:1] = [f"  {schema.n_rows // schema.max_rows_per_unit:,} times {schema.units}"]
        lines.append(f"  {done.over_bound:,}: left out, as {schema.unit} had {schema.max_rows_per_unit} rows already")
    return "\n".join(lines)


@contextlib.contextmanager
def _shown(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Progress on stderr: a bar on a terminal, else a line every few seconds."""
    if quiet:
        yield None
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bar() as tell:
            yield tell
    else:
        yield _Lines()


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda at: bar.update(task, total=at.bytes_total, completed=at.bytes_done, description=_speed(at))


class _Lines:
    """A plain line every two seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, at: Progress) -> None:
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            share = at.bytes_done / max(1, at.bytes_total)
            with contextlib.suppress(OSError, ValueError):  # a display that is gone does not stop the work
                click.echo(f"dpdist: {_speed(at)}, {share:.0%}", err=True)


def _speed(at: Progress) -> str:
    return f"{at.rows:,} rows, {at.rows_now / max(at.seconds, 1e-9):,.0f} rows/s"
