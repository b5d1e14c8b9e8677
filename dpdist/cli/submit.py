"""``dpdist submit``: a job runs on a Kubernetes cluster, and again if the cluster failed it."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, deliver
from dpdist.errors import BudgetExceeded

if TYPE_CHECKING:
    from dpdist.cluster.attempt import Attempt

LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no words by accident


@click.command("submit")
@click.argument("job", type=JobName())
@click.option("--namespace", metavar="NAME", help="Namespace of the cluster; by default that of the current context.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig; by default the current one.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Number of worker pods.")
@click.option("--image", metavar="IMAGE", help="Image of all pods, in place of that of the templates.")
@click.option("--name", metavar="RUN", help="Name of the run; made from the file's name if not given.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job; repeatable.")
@click.option("--output", metavar="PLACE", help="For the results: on a claim, or s3://BUCKET/PREFIX.")
@click.option("--wait", is_flag=True, help="Wait for the end of the run; the exit status is that of the run.")
@click.option("--retries", type=click.IntRange(0), default=0, show_default=True, help="Further attempts; with --wait.")
@click.option("--owner", metavar="JOB", help="A Kubernetes Job with which the run's objects shall be deleted.")
@click.option("--json", "json_", is_flag=True, help="Print what became of the run as one JSON object.")
def command(
    job: str,
    namespace: str | None,
    context: str | None,
    workers: int,
    image: str | None,
    name: str | None,
    settings: tuple[str, ...],
    output: str | None,
    wait: bool,
    retries: int,
    owner: str | None,
    json_: bool,
) -> None:
    """Run JOB on Kubernetes: a scheduler, workers and a runner, each in pods of their own.

    The namespace has to be prepared (deploy/README.md in the source), and the dask-kubernetes operator has to be there.
    The job is checked here first. Its file is stored in a ConfigMap, so it must not hold secrets; paths in it are those
    in the pods. The results, the ledger and the journal have to be on storage that outlives pods: a claim that the
    templates mount, an object store (not for the ledger), PostgreSQL. A job that would lose them is refused.

    With --wait --retries 3 an attempt that the cluster failed (node lost, pod evicted or out of memory, no connection
    to the ledger) is followed by another one. Every attempt goes on with the same run: what was paid is not paid again
    and what was released stays as it was. A job that is wrong, or refused by the ledger, is not tried again. The same
    command with the same --name takes a run up again that was submitted before, so it can itself be killed and retried.

    \b
    Examples:
      dpdist submit job.yaml --namespace dpdist --workers 4 --wait --retries 3
      dpdist submit job.yaml --namespace dpdist --name monday --output s3://bucket/runs/monday
      dpdist status monday --namespace dpdist
    """
    from dpdist.cluster.kubernetes import Namespace, follow
    from dpdist.cluster.submission import check_job, check_name, config_map, dask_job, name_of
    from dpdist.jobs.job import load_job
    from dpdist.jobs.shipped import job_file
    from dpdist.jobs.yaml_lines import read_text

    if retries and not wait:
        raise click.UsageError("--retries needs --wait: somebody has to see that an attempt failed")
    suffix = "".join(secrets.choice(LETTERS) for _ in range(6))
    run = name_of(job, suffix) if name is None else check_name(name)
    overrides = [] if output is None else [f"output={json.dumps(output, ensure_ascii=False)}"]
    loaded = load_job(job, [*settings, *overrides])
    place = Namespace(namespace, context)
    templates = place.templates()
    check_job(loaded, templates)
    arguments = [word for setting in settings for word in ("--set", setting)]
    arguments += ["--output", str(loaded.output)]
    stored = config_map(run, read_text(job_file(job)), arguments, None if owner is None else place.owner_job(owner))
    made = place.register(stored)

    def start(number: int) -> None:
        place.start(dask_job(run, number, templates, arguments=arguments, workers=workers, image=image, owner=made))

    if not wait:
        if not place.attempts(run).get(run):
            start(1)
        deliver(as_json({"run": run, "namespace": place.name}) if json_ else run)
        return
    click.echo(f"run {run} in the namespace {place.name}", err=True)
    try:
        last = follow(place, run, start, retries, tell)
    except KeyboardInterrupt as error:
        where = f"{run} --namespace {place.name}"
        error.add_note(f"The run goes on: dpdist status {where}")
        error.add_note(f"To end it:       dpdist cancel {where}")
        raise
    if json_:
        deliver(as_json({"run": run, "namespace": place.name, **described(last), "attempts": last.number}))
    if last.state != "done":
        raise failure(run, last)
    if not json_:
        deliver(f"{run}: done after {last.number} attempt{'s' * (last.number > 1)}; results in {loaded.output}")


def tell(attempt: Attempt) -> None:
    """One line on what happens."""
    click.echo(f"{attempt.name}: {attempt.state}{f', {attempt.reason}' if attempt.reason else ''}", err=True)


def described(attempt: Attempt) -> dict[str, object]:
    """An attempt for programs."""
    names = ("state", "reason", "exit_code", "started", "finished", "run_id")
    return {name: getattr(attempt, name) for name in names}


def failure(run: str, attempt: Attempt) -> Exception:
    """The error that ends the command, with the exit status of the run."""
    from dpdist.cli.exit_codes import REFUSED
    from dpdist.cluster.submission import SubmissionError

    if attempt.exit_code == REFUSED:
        return BudgetExceeded(attempt.reason)
    what = f"the run {run} {'was cancelled' if attempt.state == 'cancelled' else 'failed'}"
    return SubmissionError(f"{what} in attempt {attempt.number}: {attempt.reason}")
