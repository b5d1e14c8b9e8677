"""``dpdist logs``: what the runner of a submitted run said."""

from __future__ import annotations

import click


@click.command("logs")
@click.argument("run")
@click.option("--attempt", type=click.IntRange(1), help="Which one; the last by default.")
@click.option("--follow", is_flag=True, help="Go on until the runner ends.")
@click.option("--namespace", metavar="NAME", help="Namespace of the cluster; by default that of the current context.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig; by default the current one.")
def command(run: str, attempt: int | None, follow: bool, namespace: str | None, context: str | None) -> None:
    """Print the log of the runner of RUN: its progress, and its result.

    Schedulers and workers are deleted with their attempt; while it runs, kubectl logs shows theirs.

    \b
    Examples:
      dpdist logs monday --namespace dpdist
      dpdist logs monday --attempt 1
    """
    from dpdist.cluster.kubernetes import Namespace
    from dpdist.cluster.submission import SubmissionError

    place = Namespace(namespace, context)
    place.run(run)
    attempts = {each.number: each for each in place.attempts(run).get(run, [])}
    if not attempts or (attempt is not None and attempt not in attempts):
        there = ", ".join(map(str, attempts)) or "none"
        raise SubmissionError(f"the run {run} has no such attempt; there are: {there}")
    for line in place.logs(attempts[max(attempts) if attempt is None else attempt], follow):
        click.echo(line)
