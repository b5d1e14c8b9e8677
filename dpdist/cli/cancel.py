"""``dpdist cancel``: end a submitted run."""

from __future__ import annotations

import click

from dpdist.cli.output import deliver


@click.command("cancel")
@click.argument("run")
@click.option("--namespace", metavar="NAME", help="Namespace of the cluster; by default that of the current context.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig; by default the current one.")
def command(run: str, namespace: str | None, context: str | None) -> None:
    """End the attempt at RUN that is under way, and start no further one.

    What was charged stays charged. The results can still be completed: 'dpdist submit' with another --name and the same
    --output goes on with the same run of the ledger.

    \b
    Examples:
      dpdist cancel monday --namespace dpdist
    """
    from dpdist.cluster.kubernetes import Namespace

    place = Namespace(namespace, context)
    place.run(run)
    attempts = place.attempts(run).get(run, [])
    if not attempts or attempts[-1].over:
        deliver(f"{run}: nothing is under way ({attempts[-1].state if attempts else 'never started'})")
        return
    place.give_up(attempts[-1], "cancelled")
    deliver(f"{run}: cancelled attempt {attempts[-1].number}")
