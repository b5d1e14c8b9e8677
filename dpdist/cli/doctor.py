"""``dpdist doctor``: is a deployment what the guarantee needs, and what to do where it is not."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.exit_codes import WRONG
from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, deliver
from dpdist.errors import DataError

if TYPE_CHECKING:
    from dpdist.data import Dataset
    from dpdist.engine.doctor import Finding


@click.command("doctor")
@click.argument("job", type=JobName(), required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job; repeatable.")
@click.option("--cluster", metavar="ADDRESS", help="The scheduler (tls://host:8786), in place of the job's.")
@click.option("--ca-file", metavar="FILE", help="TLS: the authority; default: the job's, else Dask's configuration.")
@click.option("--cert-file", metavar="FILE", help="TLS: our certificate.")
@click.option("--key-file", metavar="FILE", help="TLS: its key.")
@click.option("--ledger", metavar="LEDGER", help="A file or postgresql://USER@HOST/DATABASE, in place of the job's.")
@click.option("--journal", metavar="PLACE", help="A file, a database or s3://BUCKET/PREFIX, in place of the job's.")
@click.option("--data", metavar="DATASET", help="A dataset that the workers have to read, in place of the job's.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(
    job: str | None,
    settings: tuple[str, ...],
    cluster: str | None,
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    ledger: str | None,
    journal: str | None,
    data: str | None,
    json_: bool,
) -> None:
    """Examine what JOB runs on, or what the options name, and say what to fix.

    A cluster: is it encrypted, does it refuse who has no certificate, is its dashboard closed, are the versions equal,
    do the clocks agree, may private rows be written to a disk, is a lost worker noticed, can every worker read the
    data. A ledger: can it be reached and written, and does a charge survive a crash. A journal in an object store: can
    an object be made only once. With data and a ledger: is it the ledger that limits the data.

    Nothing is charged and nothing stays written. Exit status 0, or 2 if something has to be fixed ("fail"); a warning
    ("warn") is about comfort or about a promise that somebody else has to keep.

    \b
    Examples:
      dpdist doctor nightly.yaml
      dpdist doctor --cluster tls://10.0.0.5:8786 --ca-file ca.pem --cert-file me.pem --key-file me.key
      dpdist doctor --ledger postgresql://dpdist@db/ledger?sslmode=verify-full --journal s3://bucket/journal
      dpdist doctor nightly.yaml --json | jq '.findings[] | select(.status == "fail")'
    """
    from dpdist.engine.doctor import examine_cluster
    from dpdist.engine.doctor_stores import examine_account, examine_journal, examine_ledger
    from dpdist.engine.local_cluster import opened
    from dpdist.patience import hurried

    if not any((job, cluster, ledger, journal, data)):
        raise click.UsageError("nothing to examine: give a JOB, or --cluster, --ledger, --journal or --data")
    place: Any = cluster
    arrays, options = {}, None
    if job is not None:
        from dpdist.jobs.account import ledger_path
        from dpdist.jobs.job import load_job
        from dpdist.jobs.run import at_scheduler

        asked = load_job(job, settings)
        place = asked.cluster if cluster is None else at_scheduler(asked.cluster, cluster)
        ledger, journal = ledger or ledger_path(asked), journal or asked.journal
        if data is None and "path" in asked.data:
            data = asked.data["path"]
            arrays, options = dict(asked.data.get("arrays") or {}), asked.data.get("storage_options")
    files = {"ca_file": ca_file, "cert_file": cert_file, "key_file": key_file}
    if given := {name: value for name, value in files.items() if value is not None}:
        if place is None or (isinstance(place, dict) and "workers" in place):
            raise click.UsageError("certificates belong to the address of a scheduler: give --cluster")
        place = {**(place if isinstance(place, dict) else {"address": place}), **given}

    findings: list[Finding] = []
    with hurried():  # what is away now is what has to be said
        dataset = None if data is None else _opened(data, arrays, options, findings)
        if job is not None or place is not None or data is not None:
            with opened(place) as there:
                findings += examine_cluster(there, dataset)
        found = examine_ledger(ledger) if ledger is not None else []
        if ledger is not None and dataset is not None and all(one.status != "fail" for one in found):
            found += examine_account(ledger, dataset)
        findings += found
        findings += examine_journal(journal) if journal is not None else []
    failed = any(finding.status == "fail" for finding in findings)
    if json_:
        deliver(as_json({"format": "dpdist-doctor/1", "ok": not failed, "findings": [asdict(one) for one in findings]}))
    else:
        deliver("\n".join(line for finding in findings for line in _lines(finding)))
    if failed:
        sys.exit(WRONG)


def _opened(path: str, arrays: dict[str, str], options: Any, findings: list[Finding]) -> Dataset | None:
    """The dataset, opened without writing an id to it."""
    from dpdist.data import Dataset
    from dpdist.data.dataset_schema import ATTRIBUTE
    from dpdist.data.stores import open_to_read
    from dpdist.engine.doctor import Finding

    try:
        group = open_to_read(path, options)
        named = None if ATTRIBUTE in group.attrs else "without an id so far"
        return Dataset.open(group, arrays=sorted(set(arrays.values())) or None, dataset_id=named)
    except DataError as error:
        findings.append(Finding("data", "fail", str(error), "see the message"))
    except Exception as error:  # Zarr and stores raise what they like
        text = f"no Zarr group can be opened there from here ({type(error).__name__})"
        findings.append(Finding("data", "fail", text, "check the path or address, and who may read it"))
    return None


def _lines(finding: Finding) -> list[str]:
    head = f"{finding.status:4}  {finding.check}: "
    lines = textwrap.wrap(head + finding.says, 100, subsequent_indent=" " * 6, break_long_words=False)
    if finding.fix:
        lines += textwrap.wrap(f"fix: {finding.fix}", 100, initial_indent=" " * 6, subsequent_indent=" " * 11)
    return lines
