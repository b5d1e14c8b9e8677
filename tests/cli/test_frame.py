"""The frame of the command line, in real processes: start-up, exit codes, signals, pipes, and what is never printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpdist.cli import COMMANDS, exit_codes, main

HEAVY = {"numpy", "numba", "dask", "distributed", "zarr", "sklearn", "scipy", "pandas", "pyarrow", "rich", "yaml"}
SECRET = "1234.5678"

# `dpdist plan` with a body of the test's own, everything around it real.
FAKE = """
import errno, os, signal, sys, time, types, warnings
import click
from dpdist.errors import BudgetExceeded, ClusterError, ClusterUnavailable, DataError, DpdistError, Fenced

@click.command()
def command():
{body}

sys.modules["dpdist.cli.plan"] = types.ModuleType("plan")
sys.modules["dpdist.cli.plan"].command = command
from dpdist.cli import main
main(["plan"])
"""


def fake(body: str) -> list[str]:
    return [sys.executable, "-c", FAKE.format(body="\n".join(f"    {line}" for line in body.splitlines()))]


def ran(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "DPDIST_DEBUG"}
    return subprocess.run(arguments, env={**clean, **environment}, capture_output=True, text=True, timeout=120)


def started(body: str) -> subprocess.Popen[str]:
    """A command that has said "ready"."""
    process = subprocess.Popen(fake(body), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


# -- start-up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", (["--help"], ["--version"], ["budget", "--help"], ["budget", "set", "--help"], ["info", "--help"])
)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = f"""
import sys
from dpdist.cli import main
try:
    main({words!r})
except SystemExit as end:
    print("exit", end.code, "imported", *sorted({HEAVY!r} & set(sys.modules)))
"""
    done = ran([sys.executable, "-c", code])
    assert done.stdout.endswith("\nexit 0 imported\n"), done.stdout[-300:] + done.stderr


def test_the_help_lists_every_command() -> None:
    done = ran([sys.executable, "-m", "dpdist.cli", "--help"])
    assert done.returncode == 0 and done.stderr == ""
    for name, text in COMMANDS.items():
        assert f"  {name}" in done.stdout and text in done.stdout
    assert "Exit status:" in done.stdout and "Traceback" not in done.stdout


def test_the_help_lists_every_exit_code() -> None:
    codes = re.findall(r"^(\d+) ", exit_codes.__doc__ or "", re.MULTILINE)
    listed = CliRunner().invoke(main, ["--help"]).output.split("Exit status:")[1].split("Environment:")[0]
    assert {"0", str(exit_codes.TRY_AGAIN)} <= set(codes) == set(re.findall(r"^    (\d+) ", listed, re.MULTILINE))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert "Examples:\n" in done.output and f"dpdist {name}" in done.output


def test_the_modules_of_commands_replace_nothing_of_the_frame() -> None:
    for name in COMMANDS:  # importing dpdist.cli.report binds the name "report" in dpdist.cli
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
    done = CliRunner().invoke(main, ["info", "no.zarr"])
    assert done.exit_code == 2 and "no such file" in done.output


def test_the_version() -> None:
    from importlib.metadata import version

    assert ran([sys.executable, "-m", "dpdist.cli", "--version"]).stdout == f"dpdist {version('dpdist')}\n"


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    done = ran([sys.executable, "-m", "dpdist.cli", "bugdet", "show"])
    assert done.returncode == 2 and done.stdout == ""
    assert "there is no command 'bugdet'; did you mean 'budget'?" in done.stderr
    nested = CliRunner().invoke(main, ["budget", "hystory"])
    assert nested.exit_code == 2 and "did you mean 'history'?" in nested.output
    far = CliRunner().invoke(main, ["zzz"])
    assert far.exit_code == 2 and "expected one of: ingest, levels, info" in far.output
    option = CliRunner().invoke(main, ["info", "--verfy", "x"])
    assert option.exit_code == 2 and "--verify" in option.output


# -- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "message"),
    (
        ("raise DataError('bad shape; give 2-d')", 2, "dpdist: bad shape; give 2-d\n"),
        ("raise ClusterUnavailable('no scheduler')", 75, "dpdist: no scheduler\n"),
        ("raise ClusterError('no certificate')", 2, "dpdist: no certificate\n"),
        ("raise BudgetExceeded('too much')", 3, "dpdist: too much\n"),
        ("raise Fenced('taken over')", 3, "dpdist: taken over\n"),
        ("e = DataError('wrong'); e.add_note('do this'); raise e", 2, "dpdist: wrong\ndo this\n"),
        ("open('/nowhere/at.all')", 2, "dpdist: /nowhere/at.all: No such file or directory; check the name"),
        ("open('/')", 2, "dpdist: /: Is a directory; expected a file"),
        ("raise PermissionError(errno.EACCES, 'x', 'some.csv')", 2, "dpdist: some.csv: Permission denied; give this"),
        ("raise FileNotFoundError('s3://key:pw@host/b?sig=1')", 2, "dpdist: s3://host/b: No such file or directory;"),
        ("with open('/dev/full', 'w') as f: f.write('x')", 2, "dpdist: No space left on device; make room"),
        ("raise MemoryError('array of shape (1234, 5678)')", 2, "dpdist: the memory of this machine is used up"),
        ("warnings.warn('delta is large')", 0, "dpdist: warning: delta is large\n"),
        ("raise KeyboardInterrupt", 130, "dpdist: interrupted\n"),
        ("e = KeyboardInterrupt(); e.add_note('see --resume'); raise e", 130, "dpdist: interrupted\nsee --resume\n"),
        ("raise click.UsageError('no')", 2, "Error: no"),
        ("raise click.ClickException('no')", 2, "Error: no"),
        ("raise click.Abort", 130, "dpdist: interrupted\n"),
        ("click.get_current_context().exit(3)", 3, ""),
        ("sys.exit(7)", 7, ""),
    ),
)  # fmt: skip
def test_exit_codes_and_messages(body: str, code: int, message: str) -> None:
    done = ran(fake(body))
    assert done.returncode == code, done.stderr
    assert message in done.stderr and (message or not done.stderr)
    assert done.stdout == "" and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "body",
    (
        f"raise ValueError('row 7 holds {SECRET}')",
        f"raise OSError('cannot convert {SECRET}')",
        f"assert {SECRET} == 0, {SECRET}",
        f"raise {SECRET}",
        f"sys.modules['dpdist.errors'].DataError('fine').missing_{SECRET.replace('.', '_')}",
    ),
)
def test_a_bug_shows_no_value_unless_it_is_asked_to(body: str) -> None:
    done = ran(fake(body))
    assert done.returncode == 1 and done.stdout == ""
    assert "is a bug in dpdist" in done.stderr and "DPDIST_DEBUG=1" in done.stderr
    assert SECRET not in done.stderr and SECRET.replace(".", "_") not in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    if "ValueError" in body:
        shown = ran(fake(body), DPDIST_DEBUG="1")
        assert shown.returncode == 1 and "Traceback" in shown.stderr and SECRET in shown.stderr
        assert "may quote private values" in shown.stderr


# -- signals ------------------------------------------------------------------------------------------------------

STOPPED = """
try:
    print("ready", flush=True)
    time.sleep(100)
finally:
    print("closed", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "code", "message"),
    ((signal.SIGINT, 130, "dpdist: interrupted\n"), (signal.SIGTERM, 143, "dpdist: terminated (SIGTERM)\n")),
)
def test_a_stop_closes_everything(number: int, code: int, message: str) -> None:
    process = started(STOPPED)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "closed\n", message)


@pytest.mark.parametrize("second", (signal.SIGINT, signal.SIGTERM))
def test_a_second_stop_ends_the_process_at_once(second: int) -> None:
    # the worst case: the exception would be swallowed (a finaliser, say), again and again
    process = started(STOPPED + "    while True:\n        try: time.sleep(100)\n        except BaseException: pass\n")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None and process.stdout.readline() == "closed\n"
    before = time.monotonic()
    process.send_signal(second)
    process.communicate(timeout=60)
    assert process.returncode == -second and time.monotonic() - before < 30


def test_a_second_stop_ends_what_waits_for_threads_at_exit() -> None:
    wait = "import threading; threading.Thread(target=time.sleep, args=(100,)).start()\n"
    process = started(wait + STOPPED)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None and process.stderr.readline() == "dpdist: interrupted\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and err == ""


def test_an_ignored_signal_stays_ignored() -> None:
    command = fake('print("ready", flush=True)\nsys.stdin.readline()\nprint("done", flush=True)')
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    out, _ = process.communicate("\n", timeout=60)
    assert (process.returncode, out) == (0, "done\n")


def test_the_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert CliRunner().invoke(main, ["--version"]).exit_code == 0
    assert CliRunner().invoke(main, ["no-such"]).exit_code == 2
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# -- pipes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", (1, 100_000))  # found at the last flush, and in the middle of writing
def test_a_reader_that_leaves_is_no_error(lines: int) -> None:
    body = f'print("ready", flush=True)\nsys.stdin.readline()\nfor i in range({lines}): print("x" * 99)'
    process = subprocess.Popen(
        fake(body), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.stdout.close()
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write("\n")
    process.stdin.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 141


def test_a_full_disk_under_the_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dpdist.cli", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr == "dpdist: No space left on device; make room and start again\n"


def test_another_broken_pipe_is_reported() -> None:
    done = ran(fake("raise BrokenPipeError(errno.EPIPE, 'x')"))
    assert done.returncode == 2 and "dpdist: Broken pipe; check" in done.stderr


def test_the_script_is_installed() -> None:
    script = Path(sys.executable).with_name("dpdist")
    assert ran([str(script), "--version"]).stdout.startswith("dpdist ")
