"""``dpdist plan``: what a job would release, from public quantities only."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, as_list, as_table, cost, deliver, size


@click.command("plan")
@click.argument("job", type=JobName())
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the job; repeatable.")
@click.option("--n-rows", type=click.IntRange(1), metavar="N", help="Plan for N rows instead of the data's own.")
@click.option(
    "--n-features", type=click.IntRange(1), metavar="D", help="Plan for D features instead of the data's own."
)
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(job: str, settings: tuple[str, ...], n_rows: int | None, n_features: int | None, json_: bool) -> None:
    """Show what JOB would release, with how much noise, at which cost.

    JOB is the YAML file or the id that 'dpdist run' takes. Everything follows from public numbers: the parameters,
    the budget, and the number of rows and features. No row is read, no ledger is opened, nothing is charged. With
    --n-rows and --n-features the dataset need not exist yet.

    In the local model the noise is that of the report of one user, and the standard error that of a coordinate of
    their mean (a frequency), at the worst records that users can have.

    Where the method has a formula, the error to expect is predicted, as a range if it depends much on what is not
    public; if it would be no better than ignoring the data, the number of rows or the epsilon is shown that it would
    take. 'dpdist run --dry-run' adds what the ledger would
    say and how much memory the workers need.

    The suggested partitions and workers, and the times, come from a cost model with constants that were measured on
    one machine; they are good to a factor of about two.

    \b
    Examples:
      dpdist plan job.yaml
      dpdist plan job.yaml --set budget.epsilon=0.5
      dpdist plan job.yaml --n-rows 1000000 --n-features 50
      dpdist plan job.yaml --json | jq '.plan.items[].noise_std'
    """
    from dpdist.jobs.job import load_job
    from dpdist.jobs.planning import plan_job

    record = plan_job(load_job(job, settings), n_rows=n_rows, n_features=n_features)
    deliver(as_json(record) if json_ else as_text(record))


def as_text(record: dict[str, Any]) -> str:
    """A plan, or a dry run, for people."""
    facts, data = [("Method", f"{record['id']}: {record['title']} ({record['estimator']})")], record["data"]
    facts += [("Chosen", record["reason"])] if record["reason"] is not None else []
    rows = "" if data["n_rows"] is None else f", {data['n_rows']:,} rows"
    facts.append(("Data", f"{data['source']}{rows}, {data['n_features']:,} features"))
    if data["account"] is not None:
        facts.append(("Account", data["account"]))
    facts.append(("Releases", f"{record['releases']:,}, in {record['passes']:g} passes over the data"))
    facts += _memory(record.get("memory")) + _scale(record.get("scale")) + _budget(record)
    lines = [as_list(facts), "", _items(record["plan"]["items"]), "", *wrapped(record["guarantee"]["text"])]
    if (outlook := record["outlook"]) is not None and outlook["predicted_error"] is not None:
        trivial = outlook["trivial_error"]
        against = "" if trivial is None else f"; ignoring the data: at most {trivial:.3g}"
        error = f"{outlook['predicted_error']:.3g}"
        if outlook["low"] is not None:
            error = f"{outlook['low']:.2g} to {outlook['high']:.2g}; {outlook['unknown']} makes it wide"
        lines += ["", *wrapped(f"Predicted error {error}{against} ({outlook['what']}).")]
    for made in record["then"]:
        lines += ["", *wrapped(f"Then {made['id']}, at no further cost: {made['title']} ({made['estimator']}).")]
        if (error := made["outlook"]["predicted_error"]) is not None:
            lines += wrapped(f"Predicted: {error:.3g} ({made['outlook']['what']}).")
        lines += [line for text in made["outlook"]["warnings"] for line in wrapped(f"Warning: {text}.")]
    lines += [line for text in (outlook or {}).get("warnings", ()) for line in wrapped(f"Warning: {text}.")]
    return "\n".join(lines)


def wrapped(text: str) -> list[str]:
    """Lines of at most 100 characters."""
    return textwrap.wrap(text, 100)


def _items(items: list[dict[str, Any]]) -> str:
    rows = [
        {
            **item,
            "rows": " ".join(part for part in (item["sampling"], item["fold"]) if part) or "all",
            "noise": _noise(item),
        }
        for item in items
    ]
    if "standard_error" in items[0]:  # reports of the local model
        titles = {"name": "Users", "count": "Times", "rows": "Rows", "noise_std": "Noise of a report (std)"}
        return as_table(rows, {**titles, "standard_error": "Standard error"})
    titles = {"name": "Release", "count": "Times", "mechanism": "Mechanism", "rows": "Rows", "noise": "Noise (std)"}
    return as_table(rows, {**titles, "sensitivity": "Sensitivity"})


def _noise(item: dict[str, Any]) -> Any:
    if "standard_error" in item:
        return item["noise_std"]
    if item["noise_multiplier"] is None:
        return "not public"
    return item["noise_std"] if item["noise_std"] is not None else f"{item['noise_multiplier']:.6g} x"


def _memory(memory: dict[str, Any] | None) -> list[tuple[str, str]]:
    if memory is None:
        return []
    how = "kept in memory" if memory["resident"] else "read again in every round"
    threads = f"{memory['worker_threads']} worker thread{'s' * (memory['worker_threads'] != 1)}"
    each = size(memory["bytes_per_thread"])
    return [("Memory", f"rows {how}: {each} for each of {threads}, which have {size(memory['workers_bytes'])} in all")]


def _scale(scale: dict[str, Any] | None) -> list[tuple[str, str]]:
    if scale is None:
        return []
    rows = f"{scale['partition_rows']:,} rows a partition"
    rows += {"small": " (larger than now)", "large": " (smaller than now)"}.get(scale["partitions_are"], "")
    workers = "1 thread is enough"
    if scale["threads"] > 1:
        workers = f"{scale['threads']:,} worker threads with {size(scale['bytes_per_thread'])} each"
    stay = "" if scale["resident"] else ", rows read again"
    times = f"loading takes about {seconds(scale['load_seconds'])}, a pass {seconds(scale['round_seconds'])}{stay}"
    return [("Suggested", f"{rows}; {workers}; {times}")]


def seconds(value: float) -> str:
    """A time that is known to a factor of about two.

    Examples
    --------
    >>> seconds(0.034), seconds(12.3), seconds(400), seconds(20_000)
    ('0.03 s', '12 s', '7 min', '6 h')
    """
    if value < 120:
        return f"{value:.1g} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"


def _budget(record: dict[str, Any]) -> list[tuple[str, str]]:
    asked = record["guarantee"]
    facts = [("Cost", cost(asked["epsilon"], asked["delta"]))]
    if (budget := record.get("budget")) is not None:
        limit = "no limit" if budget["limit"] is None else f"limit {cost(**budget['limit'])}"
        facts.append(("Ledger", budget["ledger"] or "in memory, for this run only"))
        facts += [("Journal", budget["journal"])] if budget["journal"] else []
        facts.append(("Spent", f"before {cost(**budget['before'])}; after {cost(**budget['after'])}; {limit}"))
    return facts
