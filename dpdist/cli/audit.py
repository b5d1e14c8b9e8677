"""``dpdist audit``: try to catch a method leaking more than it claims."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, as_list, as_table, cost, deliver
from dpdist.cli.progress_bar import progress
from dpdist.errors import DpdistError

EXHIBITS = Path("tests", "privacy", "exhibits")
"""In a checkout: mechanisms that are not private. The package has none of them."""


@click.command("audit")
@click.argument("job", type=JobName(), metavar="[JOB]", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job; repeatable.")
@click.option(
    "--epsilon", type=float, default=2.0, show_default=True, help="Budget of each run, in place of the job's."
)
@click.option("--delta", type=float, default=0.01, show_default=True, help="Budget of each run, in place of the job's.")
@click.option("--runs", type=click.IntRange(50), default=1000, show_default=True, help="Runs on either, at most.")
@click.option("--exhibit", is_flag=True, help="Audit the printed versions that are not private, against those here.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def command(
    job: str | None,
    settings: tuple[str, ...],
    epsilon: float,
    delta: float,
    runs: int,
    exhibit: bool,
    json_: bool,
    quiet: bool,
) -> None:
    """Audit the method of JOB: run it many times on made-up neighbours, and bound from below what it leaks.

    JOB is the YAML file of 'dpdist run', or the id of a method, whose own job is taken. Its method and parameters
    are used; its data is not touched, and no budget of any dataset is charged. The datasets are made up and differ
    in one row that is as bad as can be; whoever sees all releases has to tell them apart. The result is a lower
    bound on epsilon (and on mu, where all noise is Gaussian) that is wrong with a chance of at most 1e-6. A bound
    above the claim is a bug, and the exit code is then 1. A bound below it proves nothing: the guarantee rests on
    the proof. A large epsilon and delta, as by default, let faults be seen in few runs.

    The runs are watched by a sequential test, which is valid whenever it stops: when the claim is contradicted, or when
    nothing that was seen would contradict it in the runs that are left.

    With --exhibit, in a checkout: the noise calibrations that were printed for some of these methods and are not
    private, audited in the same way beside the ones used here.

    \b
    Examples:
      dpdist audit dp-gd
      dpdist audit job.yaml --runs 2000 --epsilon 2
      dpdist audit --exhibit
    """
    if exhibit == (job is not None):
        raise DpdistError("name either a job (or a method) to audit, or --exhibit")
    if exhibit:
        found = exhibits()
        deliver(as_json(found) if json_ else exhibits_as_text(found))
        return
    from dpdist.jobs.audit import audit_job
    from dpdist.jobs.audit_local import audit_reports
    from dpdist.jobs.job import load_job

    assert job is not None
    budget = (f"budget.epsilon={epsilon}", f"budget.delta={_delta(job, delta)}")
    loaded = load_job(job, (*settings, *budget))
    with progress(loaded.method.id, quiet) as tell:
        audit = audit_reports if loaded.method.trust == "local" else audit_job
        record = audit(loaded, n_runs=runs, tell=tell)
    deliver(as_json(record) if json_ else as_text(record))
    if record["contradicted"]:
        click.echo("dpdist: the claim is contradicted, which is a bug in dpdist: please report it", err=True)
        raise SystemExit(1)


def as_text(record: dict[str, Any]) -> str:
    """An audit, for people."""
    claimed, found = record["claimed"], record["found"]
    verdict = "CONTRADICTED: it leaks more than it claims" if record["contradicted"] else "not contradicted"
    bound = f"epsilon {found['epsilon']:.3g} at delta {claimed['delta']:.3g}"
    claim = cost(claimed["epsilon"], claimed["delta"])
    if claimed["mu"] is not None:
        bound += f", mu {found['mu']:.3g}"
        claim += f", mu {claimed['mu']:.3g}"
    about = record.get("protects", {})
    if about.get("parts", 1) > 1:
        claim += (
            f", for {about['what']} (all {about['parts']} of a row: epsilon {about['parts'] * claimed['epsilon']:g})"
        )
    facts = [
        ("Method", f"{record['id']}: {record['title']} ({record['estimator']})"),
        ("Claimed", claim),
        ("Found", f"at least {bound}"),
        ("Verdict", verdict),
        ("Runs", f"{found['runs']} counted on either dataset; a bound is wrong with a chance of at most 1e-6"),
        ("Rows", f"{record['rows']} made-up, {record['features']} features; one differs ({record['neighbours']})"),
    ]
    return as_list(facts)


def exhibits() -> dict[str, Any]:
    """Audits of the printed versions, by the tests of a checkout, in a process of their own."""
    root = next((place for place in (Path.cwd(), Path(__file__).parents[2]) if (place / EXHIBITS).is_dir()), None)
    if root is None:
        raise DpdistError(
            f"the versions that are not private are part of the tests, never of the package: there is no {EXHIBITS} "
            "here. Run it in a checkout of the source"
        )
    ran = subprocess.run(
        [sys.executable, "-m", "tests.privacy.exhibits"], cwd=root, stdout=subprocess.PIPE, text=True, check=False
    )
    if ran.returncode:
        raise DpdistError(f"the audits in {root / EXHIBITS} did not come to their end; their message is above")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def exhibits_as_text(found: dict[str, Any]) -> str:
    """What was printed, and what audits find of it and of what is used here."""
    rows = [
        {**row, "printed": float(f"{row['printed']:.3g}"), "ours": float(f"{row['ours']:.3g}")}
        for row in found["exhibits"]
    ]
    titles = {
        "id": "Method",
        "source": "Printed in",
        "what": "What is wrong",
        "epsilon": "Claimed epsilon",
        "delta": "delta",
        "printed": "Printed: at least",
        "ours": "Ours: at least",
    }
    told = f"Lower bounds on epsilon from audits run now; each is wrong with a chance of at most {found['wrong']:g}."
    return f"{as_table(rows, titles)}\n\n{told}"


def _delta(job: str, delta: float) -> float:
    """None of it, where the method's guarantee is one of epsilon alone."""
    from dpdist.jobs.job import load_job

    return 0.0 if load_job(job).method.guarantee == "epsilon" else delta
