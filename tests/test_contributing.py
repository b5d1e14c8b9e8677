"""The worked example of the contributing guide runs, and its tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import dpdist

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / ".github" / "CONTRIBUTING.md").read_text()


def test_the_example_runs_and_its_tests_pass(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    (tmp_path / "test_example.py").write_text("\n".join(blocks))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_example.py"]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_files_that_the_guide_names_exist():
    names = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|json|md|toml)|\.ci/run|deploy/Containerfile)`", GUIDE)
    new = {"dpdist/queries/row_sums.py", "dpdist/central/mean/row_mean.py", "tests/central/mean/test_row_mean.py"}
    assert len(set(names) - new) >= 8
    assert {name for name in names if not (ROOT / name).exists()} == new


def test_the_version_is_written_in_one_place():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert dpdist.__version__ == written
    assert re.search(rf"^## {re.escape(written)}\b", (ROOT / ".github" / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_hooks_are_local_and_those_of_the_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    commands = [hook["entry"] for hook in hooks[0]["hooks"]]
    assert commands == ["ruff check", "ruff format --check", "mypy"]
    assert {hook["language"] for hook in hooks[0]["hooks"]} == {"system"}
    script = (ROOT / ".ci" / "run").read_text().replace(chr(34), "")
    assert all(command in script for command in commands)


def test_the_checks_say_which_step_failed():
    done = subprocess.run([ROOT / ".ci" / "run", "nonsense"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "expected lint, types or tests" in done.stderr
    assert re.search(r"^=== nonsense FAILED in \d+ s$", done.stdout, re.MULTILINE)
