"""``dpdist report``: render the report of a run again."""

from __future__ import annotations

import json

import click


@click.command("report")
@click.argument("run_directory", type=click.Path(file_okay=False))
@click.option("--json", "as_json", is_flag=True, help='Print one JSON object, {"report": PATH}.')
def command(run_directory: str, as_json: bool) -> None:
    """Render report.html of a run again, and print its path.

    RUN_DIRECTORY is the output directory of a run: its run.json and released.zarr are read, nothing else is. The report
    is one file that opens in any browser, without a network. Nothing is charged, because everything in it has been
    released before.

    \b
    Examples:
      dpdist report runs/dp-gd
      dpdist report runs/dp-gd --json
    """
    from dpdist.pipeline.report import write_report

    path = str(write_report(run_directory))
    click.echo(json.dumps({"report": path}) if as_json else path)
