"""``dpdist bootstrap``: how sure a run is where there is no formula, by fits to rows of its own law."""

from __future__ import annotations

from typing import Any

import click

from dpdist.cli.output import as_json, as_table
from dpdist.cli.progress_bar import progress

COLUMNS = {
    "name": "",
    "coefficient": "estimate",
    "standard_error": "standard error",
    "low": "lower end",
    "high": "upper end",
}


@click.command("bootstrap")
@click.argument("run", type=click.Path(file_okay=False))
@click.option("--n-fits", default=100, show_default=True, metavar="N", help="Two to five times as many are made.")
@click.option("--public", type=click.Path(), metavar="DATA", help="Public rows: a table as for 'dpdist predict'.")
@click.option("--level", default=0.95, show_default=True, metavar="SHARE", help="Of the intervals.")
@click.option(
    "--random-state", default=0, show_default=True, metavar="N", help="Of the rows and the noise that are made up."
)
@click.option(
    "--format", "format_", type=click.Choice(["csv", "parquet", "zarr"]), help="Of DATA; default: its suffix."
)
@click.option("--delimiter", default=",", show_default=True, help="Between the values of CSV.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def command(
    run: str,
    n_fits: int,
    public: str | None,
    level: float,
    random_state: int,
    format_: str | None,
    delimiter: str,
    json_: bool,
    quiet: bool,
) -> None:
    """Say how sure RUN is, the output of 'dpdist run', by fits to rows of the law that it found.

    For models that say how rows come about and whose methods have no formula: mixtures, mixed regressions, missing
    cells, and two classes given features (any solver), which takes public rows with --public, as how features vary was
    not released. Rows are made up by the fitted model, and fitted with fresh noise of the same size; how the answers
    differ from the model tells standard errors, and the bias of the method, which is taken off the estimates.

    Nothing is charged: the rows that the model was fitted to are not read. The result is kept in RUN as bootstrap.json,
    and the report and the card show it from then on.

    \b
    Examples:
      dpdist bootstrap runs/two-groups
      dpdist bootstrap runs/delay --public flights-of-2001.csv --n-fits 200
    """
    from dpdist.jobs.simulated_intervals import bootstrap_run

    with progress("bootstrap", quiet, what="fit") as tell:
        found = bootstrap_run(
            run,
            n_fits=n_fits,
            public=public,
            random_state=random_state,
            level=level,
            format=format_,
            delimiter=delimiter,
            tell=tell,
        )
    click.echo(as_json(found) if json_ else as_text(found))


def as_text(found: dict[str, Any]) -> str:
    """Estimates and intervals, for people."""
    from dpdist.cli.plan import wrapped

    inferred = found["inference"]
    rows = [{key: _rounded(row[key]) for key in COLUMNS} for row in inferred["rows"]]
    lines = [as_table(rows, COLUMNS), "", *wrapped(f"Intervals of {100 * inferred['level']:g} %.")]
    for note in inferred["notes"]:
        lines += wrapped(note)
    return "\n".join([*lines, "", *wrapped(f"Kept in the run; the report shows it: {found['report']}")])


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
