"""``dpdist run``: a job file becomes a fitted model, and a directory or an object store with its results."""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, as_list, as_table, cost, deliver
from dpdist.errors import BudgetExceeded, DpdistError, Fenced

if TYPE_CHECKING:
    from dpdist.engine.progress import Event, Planned
    from dpdist.jobs.job import Job
    from dpdist.privacy.accounting.filter import Amount

MOST_ESTIMATES = 20
"""Shown with their intervals; the report has all."""


@click.command("run")
@click.argument("job", type=JobName())
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job; repeatable.")
@click.option("--output", metavar="PLACE", help="Where the results go; the same as --set output=PLACE.")
@click.option("--scheduler", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler (tcp://host:8786).")
@click.option("--resume", is_flag=True, help="Go on with the run in the output; start it if there is none.")
@click.option("--dry-run", is_flag=True, help="Show the plan; read no row, charge and write nothing.")
@click.option("--json", "json_", is_flag=True, help="Print the result as one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def command(
    job: str,
    settings: tuple[str, ...],
    output: str | None,
    scheduler: str | None,
    resume: bool,
    dry_run: bool,
    json_: bool,
    quiet: bool,
) -> None:
    """Run JOB: fit a model under differential privacy, charge the budget, write the results.

    JOB is a YAML file with the keys method, estimator, data, params, then, budget, ledger, journal, cluster, output
    and version ('dpdist schema job' describes them), or, where there is no such file, the id of a method, whose own job
    on generated data is run ('dpdist methods ID --job' prints it). It is checked as a whole first. --set overrides
    one key; its value is YAML. Paths in a job are relative to the current directory.

    The output, a directory or the address of one in an object store (s3://bucket/prefix, gs://, az://), gets run.json
    (what was asked, released and guaranteed, and on what it ran), released.zarr (the released arrays) and report.html.
    It is required for a stored dataset, because such a run spends budget; a job on generated data can do without.

    The whole cost is charged to the ledger before any noise is drawn. A run that does not fit into the limit of its
    dataset is refused with exit status 3, and nothing is read or charged. If a run is interrupted, by Ctrl-C or by a
    crash, --resume goes on with it: it pays nothing again, and what was released stays as it was. --resume on an
    output without a run starts one, so that a scheduler can always give it.

    \b
    Examples:
      dpdist run dp-gd
      dpdist run job.yaml --dry-run
      dpdist run job.yaml --output runs/monday
      dpdist run job.yaml --output runs/monday --resume
      dpdist run job.yaml --output s3://bucket/runs/monday
      dpdist run job.yaml --set budget.epsilon=0.5 --set params.solver.n_rounds=20
      dpdist run job.yaml --scheduler tcp://scheduler:8786 --json > result.json
    """
    from dpdist.cli.plan import as_text
    from dpdist.cli.progress_display import showing
    from dpdist.engine.progress import watching
    from dpdist.jobs.job import load_job
    from dpdist.jobs.run import run_job

    if output is not None:
        settings = (*settings, f"output={json.dumps(output, ensure_ascii=False)}")
    loaded = load_job(job, settings)
    again = ["dpdist", "run", job, *(word for setting in settings for word in ("--set", _without_secrets(setting)))]
    again += [] if scheduler is None else ["--scheduler", scheduler]
    if dry_run:
        plan = run_job(loaded, resume=resume, dry_run=True, scheduler=scheduler)
        deliver(as_json(plan) if json_ else as_text(plan))
        if plan["budget"]["refusal"] is not None:
            raise BudgetExceeded(plan["budget"]["refusal"])
        return
    interruption = Interruption()
    try:
        with showing(quiet=quiet, left=_Left(loaded)), watching(interruption.tell):
            record = run_job(loaded, resume=resume, scheduler=scheduler)
    except Fenced:  # somebody else goes on with it
        raise
    except (KeyboardInterrupt, DpdistError) as error:
        for note in interruption.notes(loaded, shlex.join([*again, "--resume"])):
            if note.rstrip(".") not in str(error):  # a refusal may have said that nothing was charged
                error.add_note(note)
        raise
    deliver(as_json(record) if json_ else summary(record, loaded.output))


class Interruption:
    """What has to be said when a run does not come to its end: what was charged, and how to go on."""

    def __init__(self) -> None:
        self._planned: Planned | None = None
        self._charged = False

    def tell(self, event: Event) -> None:
        """Take in one event."""
        from dpdist.engine.progress import Charged, Planned

        if isinstance(event, Planned):
            self._planned = event
        self._charged |= isinstance(event, Charged)

    def notes(self, job: Job, resuming: str) -> list[str]:
        """Sentences for stderr; none if the run was refused before it could charge anything."""
        from dpdist.jobs.account import charge_of, goes_on, ledger_path
        from dpdist.patience import hurried

        ledger, planned = ledger_path(job), self._planned
        if planned is None:
            return []
        if ledger is None:
            return ["It was a run on generated data without an output directory, so there is nothing to resume."]
        try:
            with hurried():
                on_file = charge_of(ledger, planned.run_id)
                hopeless = on_file is not None and not goes_on(ledger, planned.run_id)
        except DpdistError:
            return [f"Whether it was charged is on file in {ledger}, which cannot be read now."]
        if on_file is None and not self._charged:
            return ["Nothing was charged."]
        paid = on_file or planned.plan.spent  # of an account about larger units it is more than the run's own cost
        spent = cost(paid.epsilon, paid.delta)
        where = (
            f"on file in {ledger}" if on_file is not None else f"and {ledger} has no such charge any more: restore it"
        )
        charged = f"Charged to the dataset {planned.dataset_id}: {spent}, {where}."
        return [charged] if hopeless else [charged, "To go on without paying again:", f"  {resuming}"]


class _Left:
    """What is left of the limit of the account that a run was charged to."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, run_id: str) -> Amount | None:
        from dpdist.jobs.account import ledger_path
        from dpdist.privacy.ledger.ledger import Ledger

        path = ledger_path(self._job)
        if path is None:
            return None
        with closing(Ledger.existing(path)) as ledger:
            run = ledger.run(run_id)
            return None if run is None else ledger.remaining(run.account)


def summary(record: dict[str, Any], output: str | None) -> str:
    """The result for people: what was released, under which guarantee, at which cost, and where it is."""
    from dpdist.cli.plan import wrapped

    dataset, budget = record["dataset"], record["budget"]
    rows = "" if dataset["n_rows"] is None else f", {dataset['n_rows']:,} rows"
    limit = "no limit" if budget["limit"] is None else f"limit {cost(**budget['limit'])}"
    released = [
        f"{name} ({' x '.join(map(str, a['shape'])) or '1'})" for name, a in record["released"]["arrays"].items()
    ]
    facts = [
        ("Method", f"{record['id']}: {record['title']} ({record['estimator']})"),
        *([("Chosen", record["reason"])] if record["reason"] is not None else []),
        ("Data", f"{dataset['source']}{rows}, id {dataset['id']}"),
        ("Account", dataset["account"]),
        ("Rounds", f"{record['rounds']:,}, {record['passes']:g} passes over the data, {record['seconds']:.2g} s"),
        ("Spent", f"before {cost(**budget['before'])}; after {cost(**budget['after'])}; {limit}"),
        ("Released", ", ".join(released)),
    ]
    if output is not None:
        facts.append(("Written", f"{output}: run.json, released.zarr, report.html"))
    lines = [as_list(facts)]
    if (metrics := record["metrics"]) is not None:
        against = f"without privacy {metrics['nonprivate_error']:.3g}, ignoring the data {metrics['trivial_error']:.3g}"
        lines += ["", *wrapped(f"Error {metrics['error']:.3g} ({against}): {metrics['what']}.")]
    for made in record.get("then", ()):
        error = "" if made["metrics"] is None else f" Error {made['metrics']['error']:.3g}: {made['metrics']['what']}."
        lines += ["", *wrapped(f"Made of it: {made['id']}, {made['title']} ({made['estimator']}).{error}")]
    lines += _sure(record, output)
    return "\n".join([*lines, "", *wrapped(record["guarantee"]["text"])])


def _sure(record: dict[str, Any], output: str | None) -> list[str]:
    """The estimates, the largest ones where they are many, with intervals or why there are none."""
    from dpdist.cli.plan import wrapped
    from dpdist.reports.model_card import coefficients

    found = coefficients(record)
    lines = [line for paragraph in found.paragraphs for line in ("", *wrapped(paragraph))]
    why = (record["inference"] or {}).get("none", "")
    if output is not None and "bootstrap(" in why:
        public = ["--public", "DATA"] * ("public_X" in why)
        lines += [
            "",
            "To have intervals, at no further cost:",
            f"  {shlex.join(['dpdist', 'bootstrap', output, *public])}",
        ]
    for caption, heads, rows in found.tables:
        largest = sorted(rows, key=lambda row: -abs(row[1]))[:MOST_ESTIMATES]
        more = f" (the {len(largest)} largest of {len(rows)})" if len(rows) > len(largest) else ""
        shown = [dict(zip(heads, row, strict=True)) for row in rows if row in largest]
        lines += ["", *wrapped(f"{caption}{more}:"), as_table(shown, {head: head for head in heads})]
    return lines


def _without_secrets(setting: str) -> str:
    key, _, _ = setting.partition("=")
    return f"{key}=***" if "storage_options" in key else setting
