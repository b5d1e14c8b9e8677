"""``dpdist predict``: what the model of a run says of new rows."""

from __future__ import annotations

import click

from dpdist.cli.output import as_json


@click.command("predict")
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--output", required=True, type=click.Path(), help="New file, .csv or .parquet: a row for each of DATA.")
@click.option("--probabilities", is_flag=True, help="Of classes: the probability of each as well.")
@click.option(
    "--format", "format_", type=click.Choice(["csv", "parquet", "zarr"]), help="Of DATA; default: its suffix."
)
@click.option("--delimiter", default=",", show_default=True, help="Between the values of CSV.")
@click.option("--scheduler", metavar="ADDRESS", help="Compute on the Dask cluster of this scheduler (tcp://host:8786).")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(
    run: str,
    data: str,
    output: str,
    probabilities: bool,
    format_: str | None,
    delimiter: str,
    scheduler: str | None,
    json_: bool,
) -> None:
    """Predict the labels of the rows of DATA with the model of RUN, the output of 'dpdist run'.

    DATA is a table (CSV, Parquet) with the columns that the model was fitted to, in their own units, or a dataset that
    was ingested with the same declarations. The rows go through in constant memory, block by block. OUTPUT has one line
    for every row, in the same order and with its number: a number in the units of the table, or a class. Rows
    with a value that cannot be used have empty cells.

    Nothing is charged: the model is private already. Its predictions are not: each is about the row it was made of.
    They are for whoever may see the rows of DATA.

    \b
    Examples:
      dpdist predict runs/delay flights-of-may.csv --output delays.csv
      dpdist predict runs/late flights.zarr --output late.parquet --probabilities
    """
    from dpdist.data.table_files import write_table
    from dpdist.engine.by_blocks import computing_at
    from dpdist.jobs.loaded import load_run
    from dpdist.jobs.predictions import NOT_PRIVATE, counting_unanswered, predictions

    model = load_run(run)
    with computing_at(scheduler):
        answers = predictions(model, data, probabilities=probabilities, format=format_, delimiter=delimiter)
        unanswered: list[int] = []
        n_rows = write_table(output, counting_unanswered(answers, unanswered))
    without = sum(unanswered)
    why = f", {without:,} without a prediction (a value cannot be used)" if without else ""
    click.echo(
        as_json({"output": output, "rows": n_rows, "without_prediction": without, "private": False})
        if json_
        else f"{output}: {n_rows:,} rows{why}. {NOT_PRIVATE}"
    )
