"""What the command line takes as text, given to Python where an object is expected: taken, or refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger, Neighbours, SampleAndAggregate, local
from dpdist.errors import BudgetError, DataError

ROWS = np.zeros((10, 2))
PROTOCOL = local.Histogram(categories=["no", "yes"], epsilon=1.0).protocol(100, 1)
SURVEY = local.Survey(PROTOCOL)
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: Neighbours("add"), BudgetError, "choose 'replace-one' or 'add-or-remove-one'"),
    (lambda: Coordinator("x.zarr", Budget(1.0), arrays={}), DataError, r"such as Dataset.open\('rows.zarr'\)"),
    (lambda: Coordinator(Dataset.from_arrays(X=ROWS), "1", arrays={}), BudgetError, r"such as Budget\(1.0, 1e-6\)"),
    (lambda: local.aggregate("survey.json", "reports.zarr"), DataError, r"Survey.read\(path\) opens a file"),
    (lambda: local.aggregate(PROTOCOL, ["00ff"]), DataError, r"bytes.fromhex\(line\)"),
    (lambda: local.decode(SURVEY, "00ff"), DataError, r"bytes.fromhex\(line\)"),
    (lambda: local.encode(SURVEY, ["no"]), DataError, "survey.protocol.randomise returns, got list"),
    (lambda: local.write_reports("reports.zarr", "00ff"), DataError, r"batches of bytes \(uint8\)"),
    (lambda: local.Survey("survey.json"), DataError, r"Survey.read\(path\) opens a file"),
    (lambda: local.Survey(PROTOCOL, labels="no,yes"), DataError, "labels must be a list of texts"),
    (lambda: local.simulate("survey.json", counts=[1, 2]), DataError, r"Survey.read\(path\).protocol"),
    (lambda: local.simulate(PROTOCOL, "x.zarr"), DataError, "a population is a mapping"),
    (lambda: local.simulate(PROTOCOL, counts=[1, 2], fidelity="sums"), DataError, "no fidelity="),
    (lambda: SampleAndAggregate(radius=1.0, centre="0,0", delta=1e-6).fit(ROWS, ROWS[:, 0]), BudgetError, "centre"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "says"), REFUSED, ids=range(len(REFUSED)))
def test_a_text_in_the_place_of_an_object_is_refused_in_words(
    call: Callable[[], Any], kind: type[Exception], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=says):
        call()
    assert not list(tmp_path.iterdir())


def test_a_limit_is_set_on_an_account_and_not_on_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes the path of a dataset; in Python it would be the name of an account of nobody."""
    monkeypatch.chdir(tmp_path)
    dataset, ledger = Dataset.from_arrays("x.zarr", X=ROWS), Ledger("ledger.sqlite")
    for account in ("x.zarr", 3):
        with pytest.raises(BudgetError, match="the name of an account"):
            ledger.set_limit(account, Budget(1.0))
    with pytest.raises(BudgetError, match="unit must be a name"):
        ledger.set_limit(dataset.account, Budget(1.0), unit=3)
    with pytest.raises(BudgetError, match="neighbours='one' is not known"):
        ledger.set_limit(dataset.account, Budget(1.0), neighbours="one")
    ledger.set_limit(dataset.account, Budget(1.0), neighbours="add-or-remove-one")


def test_a_coordinator_takes_the_relation_by_name() -> None:
    relation = Coordinator(Dataset.from_arrays(X=ROWS), Budget(1.0), arrays={}, neighbours="replace-one").neighbours
    assert relation is Neighbours.REPLACE_ONE
