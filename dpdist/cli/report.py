"""``dpdist report``: render the report of a run again."""

from __future__ import annotations

import json

import click


@click.command("report")
@click.argument("place", type=click.Path(file_okay=False))
@click.option("--json", "as_json", is_flag=True, help='Print one JSON object, {"report": PATH}.')
def command(place: str, as_json: bool) -> None:
    """Render report.html of a run again, and print its path.

    PLACE is the output of a run, a directory or the address of one in an object store: its run.json and released.zarr
    are read, nothing else is. The report is one file that opens in any browser, without a network. Nothing is charged,
    because everything in it has been released before.

    \b
    Examples:
      dpdist report runs/dp-gd
      dpdist report runs/dp-gd --json
      dpdist report s3://bucket/runs/monday
    """
    from dpdist.reports.report import write_report

    path = str(write_report(place))
    click.echo(json.dumps({"report": path}) if as_json else path)
