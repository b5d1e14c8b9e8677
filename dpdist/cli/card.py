"""``dpdist card``: the model card of a run."""

from __future__ import annotations

import click

from dpdist.cli.output import deliver


@click.command("card")
@click.argument("run", type=click.Path(file_okay=False))
@click.option("--html", is_flag=True, help="One page of HTML in place of Markdown; also where --output ends in .html.")
@click.option("--output", type=click.Path(), help="A file; by default it is printed.")
def command(run: str, html: bool, output: str | None) -> None:
    """Write the model card of RUN, the output of 'dpdist run': what the model is, how private and how sure.

    Everything in it was public or released; nothing is charged. What a record cannot know (intended use, who the people
    in the data are) is marked as to be written.

    \b
    Examples:
      dpdist card runs/delay > MODEL.md
      dpdist card runs/delay --html --output model.html
    """
    from dpdist.reports.model_card import model_card

    html = html or (output is not None and output.endswith((".html", ".htm")))
    deliver(model_card(run, html=html).rstrip("\n"), output)
