"""``dpdist ingest`` as a curator uses it: options, what is printed where, exit codes, and what it leaves."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dpdist.cli import ingest as module
from dpdist.cli.ingest import command
from dpdist.data import Dataset, Progress
from dpdist.errors import DataError

TEXT = """who,delay,origin,"wind, gusts",late
a,10,EWR,1,no
a,20,JFK,2,yes
b,NA,LGA,3,no
a,30,LGA,4,no
c,40,EWR,5,yes
"""
OPTIONS = [
    "--features", 'delay,"wind, gusts"', "--levels", "origin=EWR,JFK,LGA", "--range", "delay=-50:50",
    "--label", "late", "--label-levels", "no,yes", "--unit", "who", "--max-rows", "2", "--row-order", "arrival",
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TEXT)
    return tmp_path


def call(*arguments: str, **extra: Any) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], **extra)


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    command_line = [sys.executable, "-W", "ignore", "-m", "dpdist.cli", "ingest", *arguments]
    return subprocess.run(command_line, capture_output=True, text=True)


def test_all_options(place: Path) -> None:
    result = call("t.csv", "out", *OPTIONS, "--on-bad", "drop", "--dataset-id", "flights", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told == {
        "path": str(place / "out"), "id": "flights", "account": "flights", "n_rows": 6,
        "arrays": {"X": {"dtype": "float64", "shape": [6, 5]}, "y": {"dtype": "str", "shape": [6]}},
        "columns": {"X": ["delay", "wind, gusts", "origin=EWR", "origin=JFK", "origin=LGA"], "y": ["late"]},
        "unit": "who", "max_rows_per_unit": 2, "rows_read": 5, "bad": {"delay is missing": 1}, "over_bound": 1,
    }  # fmt: skip
    data = Dataset.open("out")
    assert data.schema.row_order == "permuted" and data.schema.grouped
    stored = data.read(0, 6)
    rows = [f"{x.round(9).tolist()} {label}" for x, label in zip(stored["X"], stored["y"], strict=True)]
    a, b, c = (
        ["[0.2, 1.0, 1.0, 0.0, 0.0] no", "[0.4, 2.0, 0.0, 1.0, 0.0] yes"],
        [f"{[math.nan] * 5} "] * 2,
        ["[0.8, 5.0, 1.0, 0.0, 0.0] yes"] * 2,
    )
    assert sorted(sorted(rows[i : i + 2]) for i in (0, 2, 4)) == sorted([a, b, c])


def test_what_the_curator_reads(place: Path) -> None:
    result = call("t.csv", "out", *OPTIONS, "--on-bad", "zero")
    assert result.stderr == ""
    first, *rest = result.stdout.splitlines()
    assert "6 rows (X float64 (6, 5), y str (6,))" in first and rest[0] == "  3 times who, with 2 rows each"
    assert rest[-3:] == [
        "For the curator only: 5 rows were read, 1 were bad",
        "  1: delay is missing",
        "  1: left out, as who had 2 rows already",
    ]


def test_tabs_and_patterns(place: Path) -> None:
    for i in range(2):
        (place / f"part {i}.csv").write_text("a\tb\n1\t2\n")
    assert call("part *.csv", "out", "--features", "*", "--delimiter", "\\t", "-q").exit_code == 0
    assert Dataset.open("out").n_rows == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--levels", "origin"], "COLUMN=LEVEL,LEVEL"),
        (["--reference", "origin"], "'origin' is not of the form COLUMN=LEVEL"),
        (["--reference", "origin=EWR,JFK"], "is not of the form COLUMN=LEVEL"),
        (["--range", "delay=1"], "COLUMN=LO:HI"),
        (["--range", "delay=a:b"], "COLUMN=LO:HI"),
        (["--range", "delay=0:1", "--range", "delay=0:2"], "--range was given twice"),
        (["--on-bad", "ignore"], "'stop', 'drop', 'zero'"),
        (["--max-rows", "0"], "--max-rows"),
    ],
)
def test_mistyped_options(place: Path, arguments: list[str], said: str) -> None:
    result = call("t.csv", "out", "--features", "delay", *arguments)
    assert result.exit_code == 2 and said in result.stderr
    assert not (place / "out").exists()


def test_library_errors_pass_through(place: Path) -> None:
    result = call("t.csv", "out", "--features", "delay", "--unit", "patient", "--max-rows", "2")
    assert isinstance(result.exception, DataError) and "no column 'patient' in t.csv" in str(result.exception)


def test_plain_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    with module._shown(quiet=False) as tell:
        assert tell is not None
        tell(Progress(rows=3_000_000, bytes_done=50, bytes_total=200, seconds=2.0, rows_now=1_000_000))
    with module._shown(quiet=True) as nothing:
        assert nothing is None
    assert capsys.readouterr() == ("", "dpdist: 3,000,000 rows, 500,000 rows/s, 25%\n")


def test_a_bar_on_a_terminal(place: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "dpdist.cli", "ingest", "t.csv", "out", "--features", "delay", "--on-bad", "drop"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(line, stderr=theirs, stdout=subprocess.PIPE, env=environment)
    os.close(theirs)
    out, seen = process.communicate()[0], b""
    try:
        while data := os.read(ours, 4096):
            seen += data
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert process.returncode == 0 and b"For the curator only" in out
    assert b"5 rows" in seen and b"100%" in seen


def test_the_program_refuses_bad_rows(place: Path) -> None:
    result = program("t.csv", "out", *OPTIONS)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith(
        "dpdist: bad rows; nothing was written:\n  t.csv row 3 (line 4): delay is missing\n"
    )
    assert "--on-bad drop" in result.stderr and "Traceback" not in result.stderr
    assert sorted(os.listdir(place)) == ["t.csv"]


def test_interrupted_and_continued(place: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((600_000, 8)).round(4)
    with open("big.csv", "w") as out:
        out.write("a,b,c,d,e,f,g,h\n")
        text = "\n".join(",".join(map(str, row)) for row in rows[:20_000].tolist()) + "\n"
        out.write(text * 30)
    line = [sys.executable, "-m", "dpdist.cli", "ingest", "big.csv", "big.zarr", "--features", "*"]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not Path("big.zarr/zarr.json").exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130 and "the same command continues where it was" in told and "Traceback" not in told
    with pytest.raises(DataError, match="never finished"):
        Dataset.open("big.zarr")
    assert program("big.csv", "big.zarr", "--features", "*").returncode == 0
    data = Dataset.open("big.zarr")
    np.testing.assert_array_equal(data.read(0, 600_000)["X"], np.tile(rows[:20_000], (30, 1)))


def test_help_says_whose_side_it_is() -> None:
    text = " ".join(call("--help").stdout.split())
    for words in ("curator's side, before any guarantee", "without looking at the data", "Examples:", "--max-rows"):
        assert words in text
