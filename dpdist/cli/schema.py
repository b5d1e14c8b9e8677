"""``dpdist schema``: print the JSON Schema of jobs or of results."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument("name", type=click.Choice(("job", "run")))
def command(name: str) -> None:
    """Print the JSON Schema (2020-12) of a job file or of a result.

    'job' is the format of the YAML file that 'dpdist run' takes, with the methods, estimators, parameters and
    generators of this version filled in: give it to an editor for completion, or to a scheduler that checks jobs before
    it submits them. 'run' is the format of run.json, which 'dpdist run --json' prints as well. Nothing is read but the
    installed package.

    \b
    Examples:
      dpdist schema job > job.schema.json
      dpdist schema run | jq '.properties | keys'
    """
    from dpdist.jobs.json_schema import schema

    click.echo(json.dumps(schema(name), indent=2))
