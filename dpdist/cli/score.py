"""``dpdist score``: how well the model of a run does on rows whose labels are known."""

from __future__ import annotations

from typing import Any

import click

from dpdist.cli.output import as_json, as_list


@click.command("score")
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@click.option(
    "--format", "format_", type=click.Choice(["csv", "parquet", "zarr"]), help="Of DATA; default: its suffix."
)
@click.option("--delimiter", default=",", show_default=True, help="Between the values of CSV.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(run: str, data: str, format_: str | None, delimiter: str, json_: bool) -> None:
    """Score the model of RUN on the rows of DATA: accuracy of classes, R squared and errors of numbers.

    DATA is a table (CSV, Parquet) or a dataset as for 'dpdist predict', with its labels. Rows without a label, or with
    a value that cannot be used, are left out, and counted.

    This is the curator's side. The scores are exact numbers of DATA, under no guarantee, and charged to nobody: keep
    them to yourself where DATA is private. A score on public rows, or of people who agreed to it, may be shown.

    \b
    Examples:
      dpdist score runs/delay public-sample.csv
      dpdist score runs/delay held-out.zarr --json
    """
    from dpdist.jobs.loaded import load_run
    from dpdist.jobs.predictions import CURATORS_SIDE, scored

    found = scored(load_run(run), data, format=format_, delimiter=delimiter)
    click.echo(as_json({**found, "private": False}) if json_ else f"{_text(found)}\n\n{CURATORS_SIDE}")


def _text(found: dict[str, Any]) -> str:
    facts = [(str(found["what"]).capitalize(), f"{found['score']:.4g}")]
    for key, name in (("root_mean_squared_error", "Root mean squared error"), ("mean_absolute_error", "Mean error")):
        if key in found:
            facts.append((name, f"{found[key]:.4g}"))
    left = found["n_left_out"]
    why = f" ({left:,} left out: without a label, or with a value that cannot be used)" if left else ""
    return as_list([*facts, ("Rows", f"{found['n_rows']:,}{why}")])
