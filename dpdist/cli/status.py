"""``dpdist status``: the runs that were submitted to Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.output import as_json, as_table, deliver

if TYPE_CHECKING:
    from dpdist.cluster.attempt import Attempt

TITLES = {
    "run": "run",
    "attempt": "attempt",
    "state": "state",
    "exit_code": "exit",
    "started": "started",
    "finished": "finished",
    "reason": "reason",
}


@click.command("status")
@click.argument("run", required=False)
@click.option("--namespace", metavar="NAME", help="Namespace of the cluster; by default that of the current context.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig; by default the current one.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON list.")
def command(run: str | None, namespace: str | None, context: str | None, json_: bool) -> None:
    """Show the runs of a namespace with their last attempts, or all attempts at RUN.

    The state comes from the runner's pod, not from the DaskJob, whose status can stay behind. "waiting" says for what,
    "failed" why; "lost" means that the pod or its node disappeared.

    \b
    Examples:
      dpdist status --namespace dpdist
      dpdist status monday --namespace dpdist --json
    """
    from dpdist.cluster.kubernetes import Namespace
    from dpdist.cluster.submission import RUN

    place = Namespace(namespace, context)
    rows: list[dict[str, Any]] = []
    if run is not None:
        place.run(run)  # says so if there is none
        rows = [row(run, attempt) for attempt in place.attempts(run).get(run, [])]
    else:
        attempts = place.attempts()
        for name in (each["metadata"]["labels"][RUN] for each in place.runs()):
            rows += [row(name, attempt) for attempt in attempts.get(name, [])[-1:]]
    if json_:
        deliver(as_json(rows))
    else:
        deliver(as_table(rows, TITLES) if rows else f"no attempts in the namespace {place.name}")


def row(run: str, attempt: Attempt) -> dict[str, Any]:
    """One line of the table."""
    from dpdist.cli.submit import described

    return {"run": run, "attempt": attempt.number, **described(attempt)}
