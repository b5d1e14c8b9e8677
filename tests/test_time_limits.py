"""That no test waits for ever: a limit for each, that holds in the processes of xdist and says where a test stood."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

HANGING = """
import subprocess, sys, threading
import pytest

def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def waits_for_a_process():
    subprocess.run([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"])

@pytest.fixture
def left_hanging():
    yield
    threading.Event().wait()

def test_lock():
    threading.Thread(target=waits_for_a_lock, name="another", daemon=True).start()
    waits_for_a_lock()

def test_process():
    waits_for_a_process()

def test_fixture(left_hanging):
    pass

def test_that_kills_a_process():
    child = subprocess.Popen(["sleep", "60"])
    child.kill()
    assert child.wait() == -9
"""


def test_a_test_that_hangs_fails_after_its_time_and_says_where_it_stood(tmp_path):
    (tmp_path / "test_hanging.py").write_text(HANGING)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-o", "timeout=2"]
    done = subprocess.run(
        [*map(str, command), "-p", "no:cacheprovider", str(tmp_path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert "2 failed, 2 passed, 1 error" in done.stdout, done.stdout
    assert done.stdout.count("Failed: Timeout") >= 3
    for place in ("waits_for_a_lock", "waits_for_a_process", "left_hanging", "Stack of another"):
        assert place in done.stdout + done.stderr


def test_every_test_has_a_limit_and_long_ones_a_longer_one(request):
    default = float(request.config.getini("timeout"))
    assert 60 <= default <= 900
    for item in request.session.items:
        limit = item.get_closest_marker("timeout")
        long = any(item.get_closest_marker(mark) for mark in ("slow", "faults", "kubernetes"))
        assert (limit.args[0] if limit else default) > default * long
