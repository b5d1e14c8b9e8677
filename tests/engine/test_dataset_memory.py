"""A limit does not vanish with its file: the dataset remembers the ledger that limits it, on a disk and in a bucket."""

from __future__ import annotations

import functools
import http.server
import json
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result

from dpdist import Budget, Dataset, Ledger, LogisticRegression
from dpdist.central import GradientDescent
from dpdist.cli import main
from dpdist.engine.memory import NOTE, noted_head
from dpdist.errors import BudgetExceeded, DataError, Forgotten
from tests.s3 import BUCKET


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory whose default ledger does not exist yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "ledger.sqlite"))
    return tmp_path


@pytest.fixture(params=["a directory", "a bucket"])
def place(request) -> Iterator[str]:
    """Where a dataset may be stored."""
    if request.param == "a directory":
        yield "rows.zarr"
    else:
        request.getfixturevalue("s3_account")
        yield f"s3://{BUCKET}/{secrets.token_hex(8)}"


def fit(data: Dataset, ledger: Ledger | str | None = None, **options) -> LogisticRegression:
    fixed = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
    fixed["solver"] = GradientDescent(2)
    return LogisticRegression(**fixed, ledger=ledger, **options).fit(data)


def table(path: str | None, **options) -> Dataset:
    X = np.random.default_rng(0).normal(size=(300, 2))
    return Dataset.from_arrays(path, X=X, y=(X[:, 0] > 0).astype(int), **options)


def dpdist(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done


def limited(place: str, **options) -> Dataset:
    data = table(place, **options)
    dpdist("budget", "set", place, "--epsilon", "3", "--delta", "1e-5")
    return data


def test_a_dataset_without_a_limit_belongs_to_no_ledger(place):
    data = table(place)
    fit(data, "first.sqlite")
    fit(data, "second.sqlite")
    assert noted_head(data) is None


def test_a_dataset_with_a_limit_refuses_any_other_ledger(place):
    data = limited(place)
    ledger = Ledger()
    assert noted_head(data)[0] == ledger.head()
    for other in ("new.sqlite", "/".join([".", "elsewhere", "new.sqlite"])):
        with pytest.raises(Forgotten, match=rf"ledger with the id {ledger.id}, last used at .*'dpdist budget restore'"):
            fit(Dataset.open(place), other)
        assert Ledger(other).accounts() == []
    fit(Dataset.open(place))
    assert noted_head(data)[0].number > 1 and ledger.spent(data.account).epsilon == pytest.approx(1.0)


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_ledger_that_was_lost_is_not_a_new_one(place, folder, left):
    limited(place)
    fit(Dataset.open(place))
    for file in folder.glob("ledger.sqlite*"):
        file.unlink()
    if left == "an empty file":
        (folder / "ledger.sqlite").touch()
    with pytest.raises(Forgotten, match="is limited by the ledger with the id"):
        fit(Dataset.open(place))
    assert Ledger().accounts() == []


def test_a_ledger_restored_from_a_copy_is_refused(place, folder):
    limited(place)
    shutil.copyfile("ledger.sqlite", "copy")
    fit(Dataset.open(place))
    shutil.copyfile("copy", "ledger.sqlite")
    with pytest.raises(Forgotten, match="is older than what the dataset"):
        fit(Dataset.open(place))
    assert Ledger().account(Dataset.open(place).account).total.epsilon == 0


def test_a_limit_that_was_set_by_name_is_remembered_from_the_next_charge_on(place):
    data = table(place, account="survey-2026")
    Ledger().set_limit("survey-2026", Budget(3.0, 1e-5))
    assert noted_head(data) is None
    fit(data)
    head, note = noted_head(data)
    assert head.ledger == Ledger().id and note["account"] == "survey-2026"
    assert note["limit"] == {
        "epsilon": 3.0, "delta": 1e-5, "neighbours": "replace-one", "composition": "basic",
    }  # fmt: skip
    with pytest.raises(Forgotten):
        fit(data, "new.sqlite")


def test_a_limit_is_not_set_in_a_second_ledger(place):
    limited(place)
    refused = dpdist("budget", "set", place, "--epsilon", "9", "--delta", "1e-5", "--ledger", "new.sqlite", code=3)
    assert "dpdist budget restore" in refused.stderr
    assert not Path("new.sqlite").exists() or Ledger("new.sqlite").accounts() == []


def test_the_schema_and_other_notes_stay_as_they_are(place):
    data = limited(place)
    before = dict(zarr.open_group(data._stored.read().store_path, mode="r").attrs)
    fit(data)
    after = dict(data._stored.read().attrs)
    assert set(after) == {"dpdist", NOTE} and after["dpdist"] == before["dpdist"]
    assert Dataset.open(place).schema == data.schema


def test_a_damaged_note_is_one_error(place):
    data = limited(place)
    assert data.note(NOTE, {"ledger": "x"})
    with pytest.raises(DataError, match="damaged, and it says which ledger"):
        fit(data)


def test_a_ledger_in_memory_limits_no_stored_dataset_and_serves_none_that_is_limited(place):
    data = table(place)
    memory = Ledger(":memory:")
    memory.set_limit(data.account, Budget(3.0, 1e-5))
    fit(data, memory)
    assert noted_head(data) is None
    dpdist("budget", "set", place, "--epsilon", "3", "--delta", "1e-5")
    with pytest.raises(Forgotten):
        fit(data, memory)


JOB = """
method: dp-gd
data: {path: rows.zarr}
params: {classes: [0, 1], row_norm: 1.0, solver: {GradientDescent: {n_rounds: 2}}}
budget: {epsilon: 1.0, delta: 1.0e-6}
output: out
"""


def test_info_names_the_ledger_and_a_dry_run_refuses_another_one(folder):
    data = table("rows.zarr")
    assert json.loads(dpdist("info", "rows.zarr", "--json").stdout)["ledger"] is None
    Path("job.yaml").write_text(JOB)
    dpdist("budget", "set", "rows.zarr", "--epsilon", "3", "--delta", "1e-5")
    known = {"id": Ledger().id, "path": str(folder / "ledger.sqlite")}
    assert json.loads(dpdist("info", "rows.zarr", "--json").stdout)["ledger"] == known
    assert known["id"] in dpdist("info", "rows.zarr").stdout and data.account in dpdist("info", "rows.zarr").stdout
    Path("other.yaml").write_text(JOB + "ledger: other.sqlite\n")
    for there in (False, True):
        if there:
            Ledger("other.sqlite").close()
        refused = dpdist("run", "other.yaml", "--dry-run", code=3)
        assert known["id"] in refused.stderr
    dpdist("run", "job.yaml", "--dry-run")


# -- who cannot write the dataset ---------------------------------------------------------------------------------


def read_only(path: str, **options) -> Dataset:
    return Dataset.open(zarr.open_group(path, mode="r"), **options)


def test_of_a_dataset_that_cannot_be_written_the_guarantee_says_that_the_ledger_alone_remembers(folder):
    data = table("rows.zarr")
    Ledger().set_limit(data.account, Budget(9.0, 1e-4))
    alone = "rests on the ledger alone: the dataset could not be written"
    for opened in (read_only("rows.zarr"), table(None, dataset_id=data.id), table(None, account=data.id)):
        model = fit(opened)
        assert alone in model.guarantee_.text and alone in model.guarantee_.to_dict()["text"]
    resumed = fit(read_only("rows.zarr"), run_id="r"), fit(read_only("rows.zarr"), run_id="r")
    assert all(alone in model.guarantee_.text for model in resumed)
    assert alone not in fit(Dataset.open("rows.zarr")).guarantee_.text
    assert alone in fit(read_only("rows.zarr")).guarantee_.text, "it knows its ledger, and not how far that is"
    assert alone not in fit(table("unlimited.zarr")).guarantee_.text
    assert alone not in fit(table(None)).guarantee_.text


def test_the_limit_holds_in_the_ledger_also_where_the_dataset_cannot_be_written(folder):
    data = table("rows.zarr")
    Ledger().set_limit(data.account, Budget(1.5, 1e-5))
    fit(read_only("rows.zarr"))
    with pytest.raises(BudgetExceeded):
        fit(read_only("rows.zarr"))


@pytest.fixture
def published(folder) -> Iterator[str]:
    """The address of a dataset of others, which can be read and not written."""
    table("rows.zarr")
    handler = functools.partial(_Quiet, directory=".")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/rows.zarr"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_a_limit_on_a_dataset_of_others_is_kept_by_the_ledger_and_whoever_sets_it_is_told(published):
    told = dpdist("budget", "set", published, "--epsilon", "1.5", "--delta", "1e-5").stdout
    assert "cannot be written, so the ledger alone remembers this limit" in " ".join(told.split())
    assert "rests on the ledger alone" in fit(Dataset.open(published)).guarantee_.text
    with pytest.raises(BudgetExceeded):
        fit(Dataset.open(published))
