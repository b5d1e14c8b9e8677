"""Nightly runs of the command line in processes of their own, killed at a step of their own account-keeping.

A process that is to die counts the calls of functions in the rooms that keep accounts, and kills itself with
SIGKILL at one of them: between any two statements, within transactions too. What it used of released values it has
written down before: whoever uses a value has seen it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import dpdist
from tests.processes import PROCESSES

KEEPERS = tuple(
    str(Path(dpdist.__file__).parent / keeper) for keeper in ("privacy/ledger/", "runs/", "engine/memory.py")
)
"""Where steps are counted: what begins like this."""


def night(folder: Path, directory: str, dies_at: int | None = None) -> tuple[int, str]:
    """Run the job of a directory, or go on with it; the exit code (-9: killed) and what was said."""
    process = PROCESSES.Process(target=_run, args=(str(folder), directory, dies_at))
    process.start()
    process.join(300)
    assert process.exitcode is not None
    return process.exitcode, (folder / "said").read_text()


def steps(folder: Path) -> int:
    """How many steps the last process took that came to its end."""
    return int((folder / "steps").read_text())


def used(folder: Path) -> list[tuple[str, str, str]]:
    """Run, release and value of all that was ever used, as it was used."""
    return [tuple(json.loads(line)) for line in (folder / "used").read_text().splitlines()]  # type: ignore[misc]


def _run(folder: str, directory: str, dies_at: int | None) -> None:
    os.chdir(folder)
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    from dpdist.cli import main
    from dpdist.privacy.ledger.paid_run import PaidRun

    seen = os.open("used", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    real_value, real_commit = PaidRun.value, PaidRun.commit

    def write(run: PaidRun, release: str, value: Any) -> Any:
        if value is not None:
            os.write(seen, (json.dumps([run.run_id, release, value.tobytes().hex()]) + "\n").encode())
        return value

    PaidRun.value = lambda run, release: write(run, release, real_value(run, release))  # type: ignore[method-assign]
    PaidRun.commit = lambda run, release, value: write(run, release, real_commit(run, release, value))  # type: ignore[method-assign]
    count = 0

    def step(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(KEEPERS):
            count += 1
            if count == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(step)
    try:
        main.main(["run", "job.yaml", "--output", directory, "--resume", "--quiet"])
    finally:
        sys.setprofile(None)
        Path("steps").write_text(str(count))
