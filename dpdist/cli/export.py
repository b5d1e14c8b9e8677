"""``dpdist export``: the model of a run for programs that have no dpdist."""

from __future__ import annotations

import click

from dpdist.cli.output import write_whole
from dpdist.errors import DataError


@click.command("export")
@click.argument("run", type=click.Path())
@click.option("--output", required=True, type=click.Path(), help="New file, .onnx.")
def command(run: str, output: str) -> None:
    """Write the linear model of RUN, the output of 'dpdist run', as ONNX.

    Its input are rows of the columns that the model was fitted to, in the units of the table, categories as a column of
    0 and 1 for each level; the names of the columns and the guarantee stand in its metadata. Nothing is charged: the
    model is private already. Its predictions are not: each is about the row it was made of.

    \b
    Examples:
      dpdist export runs/delay --output delay.onnx
    """
    from dpdist.estimators.onnx_model import to_onnx
    from dpdist.jobs.loaded import load_run

    if not output.endswith(".onnx"):
        raise DataError(f"{output} is to hold ONNX, the one format that is written: name a file that ends in .onnx")
    found = to_onnx(load_run(run))
    try:
        write_whole(output, found.SerializeToString(), new=True)
    except FileExistsError:
        raise DataError(f"{output} exists already; name a new file") from None
    columns = found.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    click.echo(f"{output}: {columns} columns to {', '.join(o.name for o in found.graph.output)}")
