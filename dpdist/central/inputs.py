"""From what users pass to ``fit`` to a `Dataset`, without an error that could depend on a value."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from dpdist.data import Dataset
from dpdist.errors import DataError


def as_dataset(estimator: Any, X: Any, y: Any) -> Dataset:
    """``fit(dataset)`` or ``fit(X, y)`` on NumPy, Dask or array-likes; sets ``n_features_in_`` on the estimator.

    Values are not looked at: a NaN is not refused but becomes a null row in the map stage, because an exception that
    depends on one row's value would tell something about it.
    """
    if isinstance(X, Dataset):
        if y is not None:
            raise DataError("fit(dataset) takes the labels from the dataset's array 'y'; call it without y")
        missing = [name for name in ("X", "y") if name not in X.arrays]
        if missing:
            raise DataError(
                f"the dataset has arrays {sorted(X.arrays)} but no {missing[0]!r}; "
                "name them with dataset.select(X=..., y=...)"
            )
        dataset = X
    elif hasattr(X, "__dask_graph__"):
        _require_labels(estimator, y)
        dataset = Dataset.from_arrays(X=X, y=y)
    else:
        _require_labels(estimator, y)
        if getattr(X, "dtype", None) == object or getattr(y, "dtype", None) == object:
            raise DataError(
                "object dtype: convert X to numbers and y to numbers or strings first (for example "
                "X.astype(float)); a conversion here could fail on one row's value and tell it"
            )
        X = validate_data(estimator, X, ensure_all_finite=False, dtype="numeric", order="C")
        dataset = Dataset.from_arrays(X=X, y=_column(y))
    shape = dataset.arrays["X"].shape
    if len(shape) != 2 or shape[1] == 0:
        raise DataError(f"X must have rows and features (2 dimensions), got shape {tuple(shape)}")
    estimator.n_features_in_ = shape[1]
    return dataset


def _require_labels(estimator: Any, y: Any) -> None:
    if y is None:
        raise DataError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: call fit(X, y) with one "
            "label per row, or fit(dataset)"
        )


def _column(y: Any) -> np.ndarray[Any, Any]:
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        return y[:, 0]
    if y.ndim != 1:
        raise DataError(f"y should be a 1d array, one label per row, got shape {y.shape}")
    return y
