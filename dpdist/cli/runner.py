"""What the runner pod of ``dpdist submit`` runs: ``python -m dpdist.cli.runner --workers N -- JOB [OPTIONS OF RUN]``.

It waits for the cluster of the attempt and runs ``dpdist run JOB --resume`` there. Its exit code is that of ``dpdist
run``: 75 (`dpdist.cli.exit_codes`) says that another attempt can help.
What is worth keeping stands in the pod's termination message, where it can be read without the run's storage.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from dpdist.cli import exit_codes, main
from dpdist.runs.directory import OutputError, read_run

MESSAGE = Path("/dev/termination-log")
"""Where Kubernetes reads the last words of a container."""


def run(arguments: Sequence[str]) -> int:
    """Wait, then run the job, and return the exit code."""
    try:
        with (
            exit_codes.stoppable(),
            exit_codes.plain_warnings(),
            _command.make_context("dpdist.cli.runner", [*arguments]) as c,
        ):
            _command.invoke(c)
        return exit_codes.DONE
    except BaseException as error:
        code = exit_codes.report(error)
        known = isinstance(error, exit_codes.DpdistError)  # the text of any other may quote values
        _last_words(error=str(error) if known else type(error).__name__)
        return code


@click.command()
@click.option("--workers", type=int, required=True)
@click.option("--patience", type=float, default=600.0)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def _command(workers: int, patience: float, words: tuple[str, ...]) -> None:
    import dpdist.central
    import dpdist.local  # noqa: F401 - imported while the workers import theirs
    from dpdist.engine.waiting import wait_for_workers

    address = os.environ["DASK_SCHEDULER_ADDRESS"]
    found = wait_for_workers(address, workers, patience)
    click.echo(f"workers: {found} of {workers}", err=True)
    words = ("run", *words, "--scheduler", address, "--resume")
    with main.make_context("dpdist", list(words)) as context:
        main.invoke(context)
    with contextlib.suppress(OutputError):  # the run is done, whoever can be told
        _last_words(run_id=read_run(words[words.index("--output") + 1])["run_id"])


def _last_words(**what: str) -> None:
    if MESSAGE.exists():  # 4096 bytes are kept
        MESSAGE.write_text(json.dumps({name: text[:3000] for name, text in what.items()}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
