"""``dpdist levels``: what stands in a column, on the curator's side, before its levels are declared."""

from __future__ import annotations

import csv
import io

import click

from dpdist.cli.output import as_json, as_table

CURATORS_SIDE = (
    "The curator's side: this looked at the data, before any guarantee, and the counts are exact. What is declared "
    "becomes public: declare levels from what the column means. Leave out a level that only few rows have, whose being "
    "there would tell of them, and add those that could occur and do not."
)


@click.command("levels")
@click.argument("source", type=click.Path())
@click.argument("column")
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Values to propose.")
@click.option("--fewest", type=click.IntRange(min=1), default=1, show_default=True, help="Rows of a value to propose.")
@click.option("--delimiter", default=",", show_default=True, help="Between the values of CSV.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(source: str, column: str, most: int, fewest: int, delimiter: str, json_: bool) -> None:
    """Count the values of COLUMN in SOURCE (CSV, Parquet), and propose the option that declares its levels.

    This is the curator's side: it looks at the data, and prints exact counts. Keep its output to yourself. What is
    declared by --levels and --label-levels becomes public, so it should follow from what the column means: a proposal
    is for reading and changing, and not for a script.

    \b
    Examples:
      dpdist levels flights.csv origin
      dpdist levels people.parquet town --fewest 100
    """
    from dpdist.data.proposed_levels import values_of

    found = values_of(source, column, delimiter)
    proposed = [value for value, count in found.counts.items() if count >= fewest][:most]
    option = f"{column}={_quoted(proposed)}"
    left = len(found.counts) - len(proposed)
    if json_:
        counts = {value: found.counts[value] for value in proposed}
        facts = {"column": column, "levels": proposed, "counts": counts, "left_out": left, "empty": found.empty}
        click.echo(as_json({**facts, "rows": found.rows, "private": False}))
        return
    rows = [{"value": value, "rows": found.counts[value]} for value in proposed]
    click.echo(as_table(rows, {"value": "Value", "rows": "Rows"}))
    numbers = all(_is_number(value) for value in found.counts)
    if left:
        click.echo(f"and {left:,} more values, which would be bad rows")
    if found.empty:
        kept = "indicator (as a number), or level (as a category)" if numbers else "level"
        click.echo(f"{found.empty:,} of {found.rows:,} rows are empty (NA is); to keep them: --missing {column}={kept}")
    if numbers:
        click.echo("All values are numbers: as a number the column needs no levels, but its public --range")
    click.echo(f"\nA proposal:\n  --levels {_shell(option)}\n  --label-levels {_shell(_quoted(proposed))}\n")
    if len(proposed) > 1:
        commonest = _shell(f"{column}={_quoted(proposed[:1])}")
        click.echo(f"For standard errors beside an intercept, compare with one of them: --reference {commonest}\n")
    click.echo(CURATORS_SIDE)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _quoted(levels: list[str]) -> str:
    """As `dpdist ingest` reads them: a level with a comma is quoted, as in CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(levels)
    return text.getvalue().removesuffix("\n")


def _shell(text: str) -> str:
    import shlex

    return shlex.quote(text)
