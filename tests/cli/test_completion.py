"""The completion scripts, and completion itself in a real bash."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpdist.cli import COMMANDS, main

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="no bash on this machine: apt-get install bash")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A PATH that starts with this Python's dpdist, and a folder with things to complete."""
    script = tmp_path / "bin" / "dpdist"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpdist.cli "$@"\n')
    script.chmod(0o755)
    (tmp_path / "here" / "flights of may.zarr").mkdir(parents=True)
    (tmp_path / "here" / "ledger-2026.sqlite").touch()
    return {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}


@pytest.mark.parametrize("shell", ("bash", "zsh", "fish"))
def test_the_script_of_each_shell(shell: str, environment: dict[str, str]) -> None:
    done = subprocess.run(["dpdist", "completion", shell], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_DPDIST_COMPLETE={shell}_complete" in done.stdout
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=done.stdout, text=True, check=True, timeout=60)


def test_another_shell() -> None:
    done = CliRunner().invoke(main, ["completion", "tcsh"])
    assert done.exit_code == 2 and "'bash', 'zsh', 'fish'" in done.output


@needs_bash
@pytest.mark.parametrize(
    ("line", "expected"),
    (
        (["dpdist", ""], list(COMMANDS)),
        (["dpdist", "bud"], ["budget"]),
        (["dpdist", "--ver"], ["--version"]),
        (["dpdist", "budget", ""], ["backup", "history", "move", "restore", "set", "show"]),
        (["dpdist", "budget", "set", "x", "--comp"], ["--composition"]),
        (["dpdist", "budget", "set", "x", "--composition", ""], ["basic", "gaussian"]),
        (["dpdist", "completion", "b"], ["bash"]),
        (["dpdist", "info", "--"], ["--verify", "--json", "--help"]),
        (["dpdist", "run", "dp-sv"], ["dp-svrg", "dp-svrgpp"]),
        (["dpdist", "plan", "mean-d"], ["mean-dp-thesis", "mean-dp"]),
        (["dpdist", "methods", "ou"], ["out-pert", "oue"]),
        (["dpdist", "figures", "fig-3.7"], ["fig-3.7"]),
    ),
)
def test_bash_completes(line: list[str], expected: list[str], environment: dict[str, str]) -> None:
    words = " ".join(f"'{word}'" for word in line)
    script = f"""
source <(dpdist completion bash)
COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}
$(complete -p dpdist | sed 's/.*-F \\([^ ]*\\).*/\\1/') dpdist
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert BASH is not None
    done = subprocess.run([BASH, "--norc", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == expected and done.stderr == ""


@needs_bash
@pytest.mark.parametrize(
    ("typed", "completed"),
    (
        ("dpdist info fli", r"dpdist info flights\ of\ may.zarr"),
        ("dpdist budget show --ledger led", "dpdist budget show --ledger ledger-2026.sqlite"),
        ("dpdist bud", "dpdist budget "),
    ),
)
def test_the_tab_key(typed: str, completed: str, environment: dict[str, str], tmp_path: Path) -> None:
    end, inner = pty.openpty()
    assert BASH is not None
    shell = subprocess.Popen(
        [BASH, "--norc", "--noprofile", "-i"], stdin=inner, stdout=inner, stderr=inner,
        env={**environment, "COLUMNS": "200"}, cwd=tmp_path / "here", start_new_session=True,
    )  # fmt: skip
    os.close(inner)

    def see(text: str) -> str:
        shown, deadline = "", time.monotonic() + 60
        while text not in shown:
            assert time.monotonic() < deadline, shown
            if select.select([end], [], [], 0.5)[0]:
                shown += os.read(end, 65536).decode()
        return shown

    try:
        os.write(end, b"source <(dpdist completion bash); echo loaded:$?\n")
        see("loaded:0")
        os.write(end, f"{typed}\t".encode())
        see(completed)
    finally:
        shell.kill()
        shell.wait()
        os.close(end)
