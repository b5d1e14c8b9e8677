"""Calls of the command line in this process, and of a process of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from dpdist.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *words: object) -> Outcome:
    """Run one command line in this process, with the exit code and the messages of the real one."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main.main([str(word) for word in words])
    said = capsys.readouterr()
    return Outcome(int(stopped.value.code or 0), said.out, said.err)


def start(*words: object, **options: object) -> subprocess.Popen[str]:
    """Start a ``dpdist`` process with its stderr in a pipe."""
    command = [sys.executable, "-m", "dpdist.cli", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]
