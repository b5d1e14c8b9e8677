"""What was lost, emptied, exchanged or restored from a copy is refused, and no value is drawn twice; with real copies.

In a file, on a server and in a bucket; a run is a few dependent releases with secret noise, so that a second draw of
one is another value with certainty.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger
from dpdist.errors import LedgerError
from dpdist.objects import Objects
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.mechanisms.additive import Gaussian
from tests.engine.conftest import ARRAYS, QUERY
from tests.postgres import PostgresServer
from tests.s3 import BUCKET

N_RELEASES = 4


class Place:
    """Where a ledger and its journal are kept, and how copies of the two are made and put back."""

    def __init__(self, folder: Path, journal: str, postgres_server: PostgresServer | None) -> None:
        self.folder = folder
        self.server = postgres_server
        self.ledger = str(folder / "ledger.sqlite") if postgres_server is None else postgres_server.address
        self.journal = {
            "with the ledger": None,
            "a file": str(folder / "journal.sqlite"),
            "a bucket": f"s3://{BUCKET}/{secrets.token_hex(8)}",
        }[journal]

    def run(self, dataset: Dataset, run_id: str = "monday", stop: int = N_RELEASES, journal: str = "") -> np.ndarray:
        """The first releases of a run."""
        with contextlib.closing(Ledger(self.ledger, journal=journal or self.journal)) as ledger:
            options = {"ledger": ledger, "run_id": run_id, "cluster": "threads"}
            with Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, **options) as coordinator:
                item = coordinator.plan([Item("gradient", Gaussian(), count=N_RELEASES)])["gradient"]
                w, values = np.zeros(5), []
                for _ in range(stop):
                    values.append(coordinator.release(QUERY, item, w))
                    w = w - values[-1] / dataset.n_rows
                return np.array(values)

    def runs(self, dataset: Dataset) -> list[str]:
        with contextlib.closing(Ledger(self.ledger)) as ledger:
            return [run.run_id for run in ledger.history(dataset.id)]

    def copy_ledger(self) -> None:
        if self.server is not None:
            self.server.back_up()
        else:
            shutil.copyfile(self.ledger, f"{self.ledger}.copy")

    def restore_ledger(self) -> None:
        if self.server is not None:
            self.server.restore()
        else:
            shutil.copyfile(f"{self.ledger}.copy", self.ledger)

    def lose_ledger(self) -> None:
        if self.server is not None:
            self.server.forget()
        else:
            Path(self.ledger).unlink()

    def copy_journal(self) -> None:
        if self.journal is not None and "://" in self.journal:
            objects = Objects(self.journal)
            self.objects = {key: objects.get(key) or b"" for key in objects.listed()}
        else:
            shutil.copyfile(str(self.journal), f"{self.journal}.copy")

    def restore_journal(self) -> None:
        self.lose_journal()
        if self.journal is not None and "://" in self.journal:
            for key, data in self.objects.items():
                Objects(self.journal).put(key, data)
        else:
            shutil.copyfile(f"{self.journal}.copy", str(self.journal))

    def lose_journal(self) -> None:
        if self.journal is not None and "://" in self.journal:
            objects = Objects(self.journal)
            objects.delete(list(objects.listed()))
        else:
            Path(str(self.journal)).unlink()


@pytest.fixture(params=["a file", "a server"])
def ledger_kind(request) -> str:
    return request.param


@pytest.fixture
def place(request, ledger_kind, tmp_path) -> Place:
    """The parameter says where the journal is."""
    postgres_server = None
    if ledger_kind == "a server":
        postgres_server = request.getfixturevalue("postgres_server")
    if request.param == "a bucket":
        request.getfixturevalue("s3_account")
    return Place(tmp_path, request.param, postgres_server)


@pytest.fixture
def dataset(rows) -> Dataset:
    return Dataset.from_arrays(**rows, dataset_id="survey")


everywhere = pytest.mark.parametrize("place", ["with the ledger", "a file", "a bucket"], indirect=True)
elsewhere = pytest.mark.parametrize("place", ["a file", "a bucket"], indirect=True)


@everywhere
def test_the_same_run_with_another_journal_is_refused_and_draws_nothing(place, dataset, tmp_path):
    first = place.run(dataset, stop=2)
    other = str(tmp_path / "other.sqlite")
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"kept in the journal with the id \w{32}, last used at .*restore it"):
            place.run(dataset, journal=other)
    assert not Journal(other).holds("monday")
    assert np.array_equal(place.run(dataset)[:2], first) and place.runs(dataset) == ["monday"]


@elsewhere
@pytest.mark.parametrize("stop", [2, N_RELEASES])
def test_a_lost_journal_is_refused_also_where_the_run_was_finished(place, dataset, stop):
    first = place.run(dataset, stop=stop)
    place.copy_journal()
    place.lose_journal()
    for _ in range(2):
        with pytest.raises(LedgerError, match="kept in the journal with the id"):
            place.run(dataset)
    assert place.run(dataset, "tuesday").shape == (N_RELEASES, 5)  # which has no past
    place.restore_journal()
    assert np.array_equal(place.run(dataset)[:stop], first)


@elsewhere
def test_a_journal_restored_from_a_copy_does_not_draw_what_it_has_lost(place, dataset):
    place.run(dataset, stop=1)
    place.copy_journal()
    first = place.run(dataset, stop=3)
    place.restore_journal()
    for _ in range(2):
        with pytest.raises(LedgerError, match="release 1 of the run 'monday' has been drawn, and its value is missing"):
            place.run(dataset)
    assert np.array_equal(place.run(dataset, stop=1), first[:1])


@elsewhere
def test_a_ledger_restored_from_before_the_charge_does_not_charge_and_draw_again(place, dataset):
    place.run(dataset, "sunday")
    place.copy_ledger()
    first = place.run(dataset)
    place.restore_ledger()
    with pytest.raises(LedgerError, match=r"is older than what the journal .* remembers"):
        place.run(dataset)
    assert place.runs(dataset) == ["sunday"] and len(first) == N_RELEASES


@elsewhere
def test_whoever_uses_the_journal_notices_that_the_ledger_forgot_the_runs_of_others(place, dataset):
    place.run(dataset, "sunday")
    place.copy_ledger()
    place.run(dataset, "monday")
    place.restore_ledger()
    with pytest.raises(LedgerError, match="is older than"):
        place.run(dataset, "tuesday")
    with pytest.raises(LedgerError, match="is older than"):
        place.run(dataset, "sunday")
    assert place.runs(dataset) == ["sunday"]


@elsewhere
def test_a_lost_ledger_is_not_a_new_one_where_the_journal_is_left(place, dataset):
    place.run(dataset, stop=2)
    place.lose_ledger()
    for run_id in ("monday", "tuesday"):
        with pytest.raises(LedgerError, match=r"belongs to the ledger with the id \w{32}, and .* is another one"):
            place.run(dataset, run_id)
    assert place.runs(dataset) == []
    with contextlib.closing(Ledger(place.ledger)) as another:  # that has a past of its own
        another.open_run("other", "r", "plan", Charge(1.0))
    with pytest.raises(LedgerError, match=r"has values of the run 'monday', and the ledger .* has no charge for it"):
        place.run(dataset)
    assert place.runs(dataset) == []


@elsewhere
def test_a_ledger_that_went_on_from_a_copy_is_noticed(place, dataset, tmp_path):
    place.run(dataset, "sunday")
    place.copy_ledger()
    place.run(dataset, "monday")
    place.restore_ledger()
    place.run(dataset, "tuesday", journal=str(tmp_path / "other.sqlite"))  # somebody who cannot know
    with pytest.raises(LedgerError, match="another history than what the journal"):
        place.run(dataset, "monday")


@elsewhere
def test_a_value_that_was_stored_and_not_committed_counts(place, dataset, monkeypatch):
    """The process ends between the journal and the ledger."""

    class Killed(BaseException):
        pass

    def dies(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("dpdist.privacy.ledger.ledger.Ledger.confirm", dies)
        with pytest.raises(Killed):
            place.run(dataset, stop=1)
    with contextlib.closing(Ledger(place.ledger, journal=place.journal)) as ledger:
        (release,) = ledger.history(dataset.id)[0].releases
        assert release.committed is None
        stored = ledger.journal.open("monday").get(release.release_id)
    assert np.array_equal(place.run(dataset)[0], stored)
    with contextlib.closing(Ledger(place.ledger)) as ledger:
        assert None not in [release.committed for release in ledger.history(dataset.id)[0].releases]


@everywhere
def test_a_release_that_was_only_announced_may_be_drawn_again(place, dataset, monkeypatch):
    class Killed(BaseException):
        pass

    def dies(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("dpdist.privacy.ledger.paid_run.PaidRun.commit", dies)
        with pytest.raises(Killed):
            place.run(dataset, stop=1)
    assert np.array_equal(place.run(dataset), place.run(dataset)) and place.runs(dataset) == ["monday"]


def forget_version_two(ledger: str) -> None:
    """Make the ledger what an earlier version leaves: nobody wrote down journals and commitments."""
    with contextlib.closing(Ledger(ledger)) as book:
        book._db.write(lambda db: db.execute("UPDATE dpdist_runs SET journal = NULL, library = NULL"))
        book._db.write(lambda db: db.execute("UPDATE dpdist_releases SET committed = NULL"))


@everywhere
def test_a_run_of_an_earlier_version_belongs_to_the_journal_that_knows_it(place, dataset, tmp_path):
    first = place.run(dataset, stop=2)
    forget_version_two(place.ledger)
    with pytest.raises(LedgerError, match="has never heard of it: name the journal that it was started with"):
        place.run(dataset, journal=str(tmp_path / "other.sqlite"))
    again = place.run(dataset)
    assert np.array_equal(again[:2], first)
    with pytest.raises(LedgerError, match="kept in the journal"):
        place.run(dataset, journal=str(tmp_path / "other.sqlite"))
