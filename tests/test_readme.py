"""Every Python block of the README runs, and so does its first command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
SCRIPT = "# a script of its own"


def test_the_blocks_run_in_order(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    session = [block for block in blocks if not block.startswith(SCRIPT)]
    scripts = [block for block in blocks if block.startswith(SCRIPT)]
    assert len(session) >= 4 and scripts
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    for code in ("\n".join(session), *scripts):
        (tmp_path / "block.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "block.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr


def test_the_first_command_fits_a_model():
    first = re.search(r"^```sh\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    assert first is not None
    script = re.search(r"bin/python (\S+)$", first[1].strip())
    assert script is not None, first[1]
    command = [sys.executable, script[1], "--rows", "50000", "--features", "5"]
    done = subprocess.run(command, cwd=README.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "guarantee " in done.stdout and "release " in done.stderr
