"""``dpdist warm``: compile the kernels of methods, before a run waits for it."""

from __future__ import annotations

from typing import Any

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, deliver


@click.command("warm")
@click.argument("jobs", type=JobName(), metavar="JOB...", nargs=-1, required=True)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of each job; repeatable.")
@click.option(
    "--dtype", type=click.Choice(["float64", "float32"]), default="float64", show_default=True, help="Of the features."
)
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(jobs: tuple[str, ...], settings: tuple[str, ...], dtype: str, json_: bool) -> None:
    """Compile what each JOB needs, and keep it for the processes to come.

    JOB is the YAML file of 'dpdist run', or the id of a method, whose own job is taken. The first fit of a method on a
    machine, or after an upgrade, compiles for one to five seconds; after this command it does not. Each job is fitted
    once to a few rows that are generated or made up: its data, its ledger, its output and its cluster are not touched.

    What is compiled is kept in the folder of the package or in the user's cache, or where NUMBA_CACHE_DIR says, for
    processors like this one: others compile for themselves. In an image: compile into a folder of it, on a machine like
    those that it will run on, and copy the folder to where NUMBA_CACHE_DIR says before a process starts.

    \b
    Examples:
      dpdist warm dp-gd
      dpdist warm nightly.yaml --dtype float32
      NUMBA_CACHE_DIR=/opt/kernels dpdist warm dp-gd mean-dp
    """
    from dpdist.jobs.job import load_job
    from dpdist.jobs.warming import kernel_folder, warm_job

    folder = kernel_folder()
    loaded = [load_job(job, settings) for job in jobs]  # all are read before the first is fitted
    found = []
    for job in loaded:
        found.append(warm_job(job, dtype=dtype))
        if not json_:
            deliver(_told(found[-1]))
    deliver(as_json({"folder": folder, "jobs": found}) if json_ else f"Kept in {folder}")


def _told(found: dict[str, Any]) -> str:
    n = len(found["compiled"])
    what = f"compiled {n} kernel{'s' * (n != 1)}" if n else "nothing was left to compile"
    return f"{found['id']}: {what} ({found['seconds']:.1f} s)"
