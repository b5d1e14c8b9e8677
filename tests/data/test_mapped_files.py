"""Files that are mapped under a lease: nobody writes to them meanwhile, and whoever tries is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dpdist.data.mapped_files import CAN_LEASE, MappedFiles

SIZE = 50_000
DATA = np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8)
pytestmark = pytest.mark.skipif(not CAN_LEASE, reason="leases are there on Linux only")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    file = tmp_path / "rows"
    file.write_bytes(DATA.tobytes())
    return file


@pytest.mark.parametrize(("start", "n"), [(0, SIZE), (1, 10), (4096, 4096), (5000, 40_000), (SIZE - 1, 1)])
def test_a_part_has_the_bytes_of_the_file(start, n, place):
    with MappedFiles() as files:
        part = files.part(place, start, n, SIZE)
        assert part is not None and (part == DATA[start : start + n]).all()
        assert not part.flags.writeable
        del part
        assert files.end()


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1, 0])
def test_a_file_of_another_size_is_left_to_whoever_checks_it(size, place):
    with MappedFiles() as files:
        assert files.part(place, 0, 10, size) is None
        assert files.part(place, 0, 0, SIZE) is None
        assert files.part(place.with_name("none"), 0, 10, SIZE) is None


def test_a_file_that_somebody_has_open_for_writing_has_no_lease(place):
    with MappedFiles() as files, open(place, "r+b"):
        assert files.part(place, 0, 10, SIZE) is None


def writer(place: Path, how: str) -> subprocess.Popen[str]:
    """Another process that says when it begins, and then writes to the file."""
    acts = {
        "shorten": f"import os; print('now', flush=True); os.truncate({str(place)!r}, 0)",
        "write": f"print('now', flush=True); open({str(place)!r}, 'r+b').write(b'x' * 100)",
        "new": f"print('now', flush=True); open({str(place)!r}, 'wb').write(b'x' * 100)",
    }
    process = subprocess.Popen([sys.executable, "-c", acts[how]], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "now\n"
    return process


@pytest.mark.parametrize("how", ["shorten", "write", "new"])
def test_who_wants_to_write_waits_and_is_noticed(how, place):
    with MappedFiles() as files:
        part = files.part(place, 0, SIZE, SIZE)
        assert part is not None
        process = writer(place, how)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert (part == DATA).all(), "and it is all there"
        del part
        assert not files.end(), "somebody waits: what was computed does not count"
    assert process.wait(30) == 0
    assert place.read_bytes()[:100] != DATA[:100].tobytes()


def test_a_thread_of_this_process_waits_as_well(place):
    """And the signal that tells of it does not end the process."""
    with MappedFiles() as files:
        part = files.part(place, 0, SIZE, SIZE)
        thread = threading.Thread(target=lambda: place.write_bytes(b"others"))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and part is not None and (part == DATA).all()
        del part
        assert not files.end()
    thread.join(30)
    assert place.read_bytes() == b"others"


def test_a_part_that_is_still_looked_at_does_not_count(place):
    """Nobody could say whether it was looked at after the lease."""
    with MappedFiles() as files:
        part = files.part(place, 0, SIZE, SIZE)
        assert not files.end()
        assert part is not None and (part == DATA).all()


def test_leases_end_with_the_computation_and_no_file_stays_open(place):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError), MappedFiles() as files:
        files.part(place, 0, 10, SIZE)
        raise RuntimeError
    for _ in range(3):
        with MappedFiles() as files:
            files.part(place, 0, 10, SIZE)
            files.part(place, 20, 10, SIZE)
    place.write_bytes(b"at once")
    assert len(os.listdir("/proc/self/fd")) == before
