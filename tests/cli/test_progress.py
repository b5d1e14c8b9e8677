"""What a watched run shows: on a real terminal, in a log, and nothing that was not public."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger, LogisticRegression
from dpdist.central import GradientDescent
from dpdist.cli.progress_display import Lines, Tally, showing
from dpdist.engine.progress import Charged, Loading, Planned, Released, tell
from dpdist.errors import LedgerError
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.filter import Amount
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian

PLAN = calibrate([Item("gradient", Gaussian(), count=4)], Budget(1.0, 1e-6))
PLANNED = Planned("nightly", "survey", PLAN, 1_000_000)


def released(done: int, rate: float = 1.0, replayed: bool = False) -> Released:
    return Released(done, 4, "gradient", rate, replayed)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


# -- the sums -----------------------------------------------------------------------------------------------------


def test_speed_and_time_left() -> None:
    clock = Clock()
    tally = Tally(lambda run_id: Amount(2.0, 9e-6) if run_id == "nightly" else None, clock)
    assert tally.stage == "planning" and tally.speed_and_time() == []
    for event in (PLANNED, Loading()):
        tally.tell(event)
    assert tally.budget == "to be charged: epsilon 1, delta 1e-06" and tally.stage == "reading the data"
    clock.now += 50  # reading the data is not counted
    tally.tell(Charged(1.0, 1e-6))
    assert tally.budget == "charged: epsilon 1, delta 1e-06; left of the dataset's limit: epsilon 2, delta 9e-06"
    assert tally.speed_and_time() == []
    clock.now += 2
    tally.tell(released(1))
    assert tally.rows_per_second == pytest.approx(500_000) and tally.seconds_left() == pytest.approx(6)
    clock.now += 4
    tally.tell(released(2, rate=0.1))
    assert tally.rows_per_second == pytest.approx(1.1e6 / 6) and tally.seconds_left() == pytest.approx(6)
    clock.now += 1.5
    assert tally.seconds_left() == pytest.approx(4.5)
    assert tally.speed_and_time() == ["183k rows/s", "about 4 s left"]
    clock.now += 100
    assert tally.seconds_left() == 0 and not tally.finished
    tally.tell(released(4))
    assert tally.finished and len(tally.speed_and_time()) == 1


def test_no_speed_where_the_number_of_rows_is_private() -> None:
    clock = Clock()
    tally = Tally(clock=clock)
    for event in (Planned("r", "d", PLAN, None), Charged(1.0, 1e-6), released(1)):
        clock.now += 1
        tally.tell(event)
    assert tally.rows_per_second is None and tally.speed_and_time() == ["about 3 s left"]


def test_replayed_releases_say_nothing_about_the_speed() -> None:
    clock = Clock()
    tally = Tally(clock=clock)
    for event in (PLANNED, released(1, replayed=True), released(2, replayed=True)):
        tally.tell(event)
    assert tally.stage == "gradient, from the journal" and tally.done == 2 and tally.speed_and_time() == []
    tally.tell(Charged(1.0, 1e-6))
    clock.now += 3
    tally.tell(released(3))
    assert tally.speed_and_time() == ["333k rows/s", "about 3 s left"]
    tally.tell(PLANNED)  # the next fit begins anew
    assert tally.done == 0 and tally.speed_and_time() == []


def test_a_ledger_that_fails_does_not_stop_the_run() -> None:
    def broken(dataset_id: str) -> Amount:
        raise LedgerError("locked")

    tally = Tally(broken)
    for event in (PLANNED, Charged(1.0, 1e-6)):
        tally.tell(event)
    assert tally.budget == "charged: epsilon 1, delta 1e-06"


def test_a_run_that_goes_on_says_that_it_was_charged_before() -> None:
    tally = Tally(lambda _: Amount(0.5, 0.0))
    tally.tell(Planned("r", "d", PLAN, 100, goes_on=True))
    assert tally.budget == "goes on, charged before: epsilon 1, delta 1e-06"
    tally.tell(Charged(1.0, 1e-6))
    assert tally.budget.startswith("goes on, charged before: epsilon 1, delta 1e-06; left of the dataset's limit")


# -- not a terminal -----------------------------------------------------------------------------------------------


def test_lines_come_every_two_seconds_and_last(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    plan = calibrate([Item("gradient", Gaussian(), count=100)], Budget(1.0, 1e-6))
    with Lines(Tally(clock=clock), clock) as lines:
        for event in (Planned("nightly", "survey", plan, 1000), Loading(), Charged(1.0, 1e-6)):
            lines.tell(event)
        for done in range(1, 101):
            clock.now += 0.1
            lines.tell(Released(done, 100, "gradient", 1.0, False))
    out, err = capsys.readouterr()
    assert out == ""
    head, rounds = err.splitlines()[:3], err.splitlines()[3:]
    assert head == [
        "dpdist: run nightly on dataset survey, 100 rounds, to be charged: epsilon 1, delta 1e-06",
        "dpdist: reading the data",
        "dpdist: charged: epsilon 1, delta 1e-06",
    ]
    assert rounds[0] == "dpdist: round 1 of 100 (gradient), 10k rows/s, about 10 s left"
    assert rounds[-1] == "dpdist: round 100 of 100 (gradient), 10k rows/s"
    assert len(rounds) in (6, 7)  # 10 s, one every 2 s, and the last


def test_a_real_fit_in_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).normal(size=(500, 3))
    data = Dataset.from_arrays(X=rows, y=(rows[:, 0] > 0).astype(int), dataset_id="survey")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.set_limit("survey", Budget(3.0, 1e-5))
    fixed = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
    fixed["solver"] = GradientDescent(n_rounds=3)
    with showing(left=lambda run_id: ledger.remaining(ledger.run(run_id).account)):
        model = LogisticRegression(**fixed, ledger=ledger, run_id="r1").fit(data)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == len(set(lines)) >= 5
    assert lines[0].startswith("dpdist: run r1 on dataset survey, ") and lines[1].startswith("dpdist: reading the data")
    assert lines[2] == "dpdist: charged: epsilon 1, delta 1e-06; left of the dataset's limit: epsilon 2, delta 9e-06"
    n = len(model.releases_)
    assert lines[-1].startswith(f"dpdist: round {n} of {n} (")
    with showing(quiet=True):
        LogisticRegression(**fixed, ledger=ledger, run_id="r2").fit(data)
    LogisticRegression(**fixed, ledger=ledger, run_id="r3").fit(data)  # outside the block nobody watches
    ledger.close()
    assert capsys.readouterr() == ("", "")


class Gone(io.TextIOBase):
    """A log whose disk is full."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_does_not_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    with showing():
        for event in (PLANNED, Charged(1.0, 1e-6), released(4)):
            tell(event)


# -- a terminal ---------------------------------------------------------------------------------------------------

WATCHED = """
import sys, time, types
import click
from dpdist.engine.progress import Charged, Loading, Planned, Released, tell
from dpdist.privacy.budget import Budget
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Item

@click.command()
def command():
    from dpdist.cli.progress_display import showing
    plan = calibrate([Item("gradient", Gaussian(), count=4)], Budget(1.0, 1e-6))
    with showing():
        tell(Planned("nightly", "survey", plan, {n_rows}))
        tell(Loading())
        time.sleep(0.6)
        tell(Charged(1.0, 1e-6))
        for done in range(1, {last} + 1):
            time.sleep(0.3)
            tell(Released(done, 4, "gradient", 1.0, False))
        click.echo("result")
        {then}

sys.modules["dpdist.cli.plan"] = types.ModuleType("plan")
sys.modules["dpdist.cli.plan"].command = command
from dpdist.cli import main
main(["plan"])
"""


class Terminal:
    """A process whose stderr, stdin and controlling terminal are a pseudo-terminal; stdout is a pipe."""

    def __init__(self, code: str, **environment: str) -> None:
        self.end, inner = pty.openpty()
        self.shown = ""
        here = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{code}"],
            stdin=inner, stdout=subprocess.PIPE, stderr=inner, text=True, env=here, start_new_session=True,
        )  # fmt: skip
        os.close(inner)

    def read(self, until: str | None = None, seconds: float = 60.0) -> str:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (until is None or until not in self.shown):
            if select.select([self.end], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.end, 65536).decode()
                except OSError:  # closed at the other end
                    return self.shown
        assert until is None or until in self.shown, self.shown
        return self.shown

    def finish(self) -> tuple[int, str]:
        self.read()
        os.close(self.end)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_a_terminal_is_kept_up_to_date() -> None:
    terminal = Terminal(WATCHED.format(n_rows=1_000_000, last=4, then="pass"))
    code, out = terminal.finish()
    text = plain(terminal.shown)
    assert (code, out) == (0, "result\n")  # the display is on stderr alone
    for words in ("0/4 rounds", "reading the data", "to be charged: epsilon 1", "4/4 rounds", "gradient"):
        assert words in text
    assert "charged: epsilon 1, delta 1e-06" in text
    assert re.search(r"[12]/4 rounds +[\d.]+[kM] rows/s, about \d s left", text)
    assert "\x1b[1A" in terminal.shown  # redrawn in place
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")  # the cursor is back


def test_a_terminal_shows_no_speed_where_the_number_of_rows_is_private() -> None:
    terminal = Terminal(WATCHED.format(n_rows=None, last=4, then="pass"))
    assert terminal.finish() == (0, "result\n")
    assert "4/4 rounds" in plain(terminal.shown) and "rows/s" not in terminal.shown


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    terminal = Terminal(WATCHED.format(n_rows=1000, last=4, then="pass"), TERM="dumb")
    assert terminal.finish() == (0, "result\n")
    assert "\x1b" not in terminal.shown and "dpdist: round 4 of 4 (gradient)" in terminal.shown


def test_ctrl_c_at_the_terminal() -> None:
    terminal = Terminal(WATCHED.format(n_rows=1000, last=2, then="time.sleep(100)"))
    terminal.read("2/4 rounds")
    os.write(terminal.end, b"\x03")
    assert terminal.finish() == (130, "result\n")
    assert "stopping; press Ctrl-C again to stop at once" in terminal.shown
    assert plain(terminal.shown).rstrip().endswith("dpdist: interrupted")
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")


def test_a_second_ctrl_c_leaves_the_cursor_visible() -> None:
    stuck = "try: time.sleep(100)\n        finally: time.sleep(100)"
    terminal = Terminal(WATCHED.format(n_rows=1000, last=2, then=stuck))
    terminal.read("2/4 rounds")
    os.write(terminal.end, b"\x03")
    terminal.read("press Ctrl-C again")
    os.write(terminal.end, b"\x03")
    code, _ = terminal.finish()
    assert code == -signal.SIGINT
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")
