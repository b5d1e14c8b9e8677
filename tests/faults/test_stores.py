"""An object store that is away for 20 s, or for good, at every moment of a run; with the times that are set."""

from __future__ import annotations

import json
import secrets
import time

import pytest

from dpdist import patience
from dpdist.engine import coordinator
from tests import outages
from tests.cli.command import call
from tests.faults.page import came_to
from tests.s3 import BUCKET

pytestmark = pytest.mark.faults

AWAY = 20.0
KINDS = {
    "refused": "refuses connections",
    "503": "answers 503",
    "cut": "cuts its answers off",
    "silent": "takes requests and says nothing",
    "page": "is behind a page that asks to log in",
}
MOMENTS = {
    "opening": "when a run opens its rows",
    "loading": "while a run loads its rows",
    "round": "while a round reads its rows",
    "journal": "when a value goes into the journal",
    "results": "when the results are written",
}


@pytest.fixture(autouse=True)
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds read the store."""
    monkeypatch.setattr(coordinator, "RESIDENT_SHARE", 0.0)


@pytest.fixture
def address() -> str:
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_away_for_a_while(s3_faults, address, tmp_path, kind, moment):
    took = outages.go_through(s3_faults, tmp_path, address, kind, moment, AWAY)
    came_to("Object store", f"{KINDS[kind]} for {AWAY:.0f} s {MOMENTS[moment]}", "survived: the same values", took)


FOR_GOOD = [
    *(("refused", moment) for moment in MOMENTS),
    *(("503", "round"), ("cut", "journal"), ("silent", "round"), ("page", "round"), ("page", "journal")),
]


@pytest.mark.parametrize(("kind", "moment"), FOR_GOOD)
def test_away_for_good(s3_faults, address, tmp_path, capsys, kind, moment):
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(outages.job(tmp_path, moment, address)))
    with outages.struck(s3_faults, moment, kind, 120.0) as times:
        ended = call(capsys, "run", path, "--quiet")
    took = time.monotonic() - times[0]
    assert ended.code == 75 and took < patience.PATIENCE + 10
    s3_faults.come_back()
    assert call(capsys, "run", path, "--quiet", "--resume").code == 0
    came_to("Object store", f"{KINDS[kind]} for good {MOMENTS[moment]}", "exit code 75; resumed", took)


WRONG = {
    "refuses the credentials": {"AWS_SECRET_ACCESS_KEY": "another"},
    "is given no credentials": {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
    "has no such bucket": {},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_patience_cures(s3_account, address, tmp_path, monkeypatch, capsys, what):
    asked = outages.job(tmp_path, "journal", address.replace(BUCKET, "no-such-bucket") if "bucket" in what else address)
    for name, value in WRONG[what].items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    (tmp_path / "job.yaml").write_text(json.dumps(asked))
    began = time.monotonic()
    ended = call(capsys, "run", tmp_path / "job.yaml", "--quiet")
    took = time.monotonic() - began
    assert ended.code == 2 and took < 5
    came_to("Object store", f"{what} (of the journal)", "exit code 2; nothing charged", took)
