"""From one value per user to a `Dataset`, without an error that could depend on a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Dataset
from dpdist.engine.checks import check_one_report
from dpdist.errors import DataError
from dpdist.estimators.inputs import dask_labels, declared_labels, opened
from dpdist.estimators.parameters import of_one_kind


def as_given(rows: NDArray[Any]) -> NDArray[Any]:
    """The stored values themselves."""
    return rows


def one_column(X: Any, y: Any = None, categories: Sequence[Any] | None = None) -> Dataset:
    """A dataset with the array X, of one value per row, and y if it is given (or asked of a dataset).

    Parameters
    ----------
    X : Dataset, array, Series or sequence
    y : array, Series or sequence, optional
    categories : sequence, optional
        Those that were declared: values that are Python objects, or pandas' categories, become the ones they equal.
    """
    X = opened(X)
    if isinstance(X, Dataset):
        if y is not None:
            raise DataError("fit(dataset) takes every user's epsilon from the dataset's array 'y'; call it without y")
        if "X" not in X.arrays:
            raise DataError(
                f"the dataset has arrays {sorted(X.arrays)} but no 'X'; name one with dataset.select(X=...)"
            )
        check_one_report(X.schema.units)
        dataset = X
    else:
        given = {"X": _array(X, "X", categories)} | ({} if y is None else {"y": _array(y, "y")})
        dataset = Dataset.from_arrays(**given)
    for name, spec in dataset.arrays.items():
        if name in ("X", "y") and spec.shape[1:] not in ((), (1,)):
            raise DataError(f"{name} must have one value per user, got shape {spec.shape}")
    return dataset


def _array(values: Any, name: str, categories: Sequence[Any] | None = None) -> Any:
    """A NumPy or Dask array; missing values (of pandas) become NaN."""
    if hasattr(values, "columns") and hasattr(values, "iloc"):  # a frame, of pandas or Dask
        if len(values.columns) > 1:
            raise DataError(
                f"{name} must have one value per user, and this frame has {len(values.columns)} columns: pass one of "
                f"them, as in frame[{values.columns[0]!r}]"
            )
        values = values[values.columns[0]]
    if hasattr(values, "__dask_graph__") and hasattr(values, "to_dask_array"):
        return dask_labels(values, categories)
    if hasattr(values, "__dask_graph__") and hasattr(values, "dtype"):
        return values
    dtype = getattr(values, "dtype", None)
    try:
        if dtype is not None and not isinstance(dtype, np.dtype) and hasattr(values, "to_numpy"):
            # numpy.asarray would choose a dtype by whether a value is missing
            if str(dtype) in ("str", "string"):
                text = np.dtypes.StringDType(na_object=np.nan)
                values = values.to_numpy(dtype=object, na_value=np.nan).astype(text)
            elif dtype.kind in "biuf":
                values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        values = np.asarray(values)
        if values.dtype == object and values.ndim == 1 and of_one_kind(categories):
            assert categories is not None
            values = declared_labels(values, categories)
        problem = f"it has dtype {values.dtype}" if values.dtype.kind not in "biufUT" else None
    except Exception as error:  # its text may quote a value
        problem = type(error).__name__
    if problem is not None:
        raise DataError(
            f"{name} cannot be made into an array of numbers or strings ({problem}): pass a NumPy array of one value "
            "per user (for example X.astype(str))"
        )
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
