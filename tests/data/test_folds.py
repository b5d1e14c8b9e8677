"""Folds by slot: a partition of the rows, near-equal, and refused where positions shift."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.data import Dataset
from dpdist.errors import BudgetError, DataError
from dpdist.privacy.budget import Neighbours


@pytest.mark.parametrize(("n", "T"), [(1, 1), (10, 3), (10, 10), (4097, 64), (1000, 7)])
def test_split_is_a_partition_by_position(n: int, T: int) -> None:
    data = Dataset.from_arrays(X=np.zeros((n, 1)))
    folds = data.split(T)
    assert [row for fold in folds for row in range(fold.start, fold.stop)] == list(range(n))
    assert [fold.index for fold in folds] == list(range(T))
    assert {fold.start for fold in folds} == {t * n // T for t in range(T)}
    assert max(fold.n_rows for fold in folds) - min(fold.n_rows for fold in folds) <= 1


def test_a_replaced_row_changes_one_fold_only() -> None:
    X = np.random.default_rng(1).standard_normal((101, 3))
    changed = X.copy()
    changed[57] = np.nan
    first, second = Dataset.from_arrays(X=X), Dataset.from_arrays(X=changed)
    folds = first.split(8)
    assert folds == second.split(8)
    differ = [
        fold.index
        for fold in folds
        if not np.array_equal(first.read(fold.start, fold.stop)["X"], second.read(fold.start, fold.stop)["X"])
    ]
    assert len(differ) == 1


def test_split_ids_tell_splits_apart() -> None:
    data = Dataset.from_arrays(X=np.zeros((100, 1)))
    assert {fold.split_id for fold in data.split(4)} == {fold.split_id for fold in data.split(4)}
    assert not {fold.split_id for fold in data.split(4)} & {fold.split_id for fold in data.split(5)}
    fold = data.split(4)[0]
    with pytest.raises(AttributeError):
        fold.start = 3  # type: ignore[misc]


def test_refusals() -> None:
    data = Dataset.from_arrays(X=np.zeros((10, 1)))
    with pytest.raises(BudgetError, match="replace-one only"):
        data.split(2, neighbours=Neighbours.ADD_OR_REMOVE_ONE)
    for T in (0, 11, -1, 2.0):
        with pytest.raises(DataError, match="number of folds"):
            data.split(T)  # type: ignore[arg-type]
