"""From what users pass to ``fit`` to a `Dataset`, without an error that could depend on a value.

What is refused is refused for its shape or its declared dtype. scikit-learn's own checks run after that, because some
of their messages quote the rows ("could not convert string to float: ...", "Expected 2D array, got 1D array instead:
array=[...]").
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from dpdist.data import Dataset
from dpdist.errors import DataError, warn_caller


def as_dataset(estimator: Any, X: Any, y: Any = None, *, labels: bool = True) -> Dataset:
    """``fit(dataset)`` or ``fit(X, y)`` on NumPy, Dask, pandas or array-likes; sets ``n_features_in_``.

    Without ``labels`` it is ``fit(dataset)`` or ``fit(X)``, and y is ignored, as scikit-learn does it.

    Values are not looked at: a NaN is not refused but becomes a null row in the map stage, because an exception that
    depends on one row's value would tell something about it.
    """
    if isinstance(X, Dataset):
        if labels and y is not None:
            raise DataError("fit(dataset) takes the labels from the dataset's array 'y'; call it without y")
        missing = [name for name in ("X", "y")[: 1 + labels] if name not in X.arrays]
        if missing:
            raise DataError(
                f"the dataset has arrays {sorted(X.arrays)} but no {missing[0]!r}; "
                "name them with dataset.select(X=..., y=...)"
            )
        dataset = X
        estimator._check_units(dataset.schema.units)
    else:
        if labels and y is None:
            raise DataError(
                f"{type(estimator).__name__} requires y to be passed, but the target y is None: call fit(X, y) with "
                "one label per row, or fit(dataset)"
            )
        X = _feature_array(X)
        columns = {"y": _label_array(y)} if labels else {}
        if not _is_dask(X):
            X = validate_data(estimator, X, ensure_all_finite=False, dtype="numeric", order="C")
        dataset = Dataset.from_arrays(X=X, **columns)
    shape = dataset.arrays["X"].shape
    if len(shape) != 2:
        raise _not_two_dimensional(dataset.schema.shown_shape("X"))
    if labels and dataset.arrays["y"].shape[1:] not in ((), (1,)):
        raise DataError(f"y must have one label per row, got shape {dataset.schema.shown_shape('y')}")
    if isinstance(X, Dataset) or _is_dask(X):
        estimator.n_features_in_ = shape[1]
        if hasattr(estimator, "feature_names_in_"):  # of an earlier fit to a frame
            del estimator.feature_names_in_
    return dataset


def check_public_rows(rows: NDArray[Any], n_features: int) -> None:
    """Rows of other people, which are public."""
    if rows.ndim != 2 or rows.shape[1] != n_features or len(rows) == 0:
        raise DataError(f"public_X must have rows of {n_features} features, got shape {rows.shape}")


def _feature_array(X: Any) -> Any:
    """``X`` itself if its dtype and dimensions will do; an array of it if it has no dtype."""
    X = _with_dtype(X, "X")
    if _is_dask(X):
        return X
    dtypes = list(X.dtypes) if hasattr(X, "dtypes") else [X.dtype]
    for dtype in dtypes:
        kind = getattr(dtype, "kind", "O")
        if kind == "c":
            raise DataError("Complex data not supported: store real and imaginary parts of X as separate columns")
        if kind not in "biuf":
            shown = "str" if kind in "US" else dtype  # how wide strings are is not for telling
            raise DataError(
                f"X has {shown} dtype: convert it to numbers first (for example X.astype(float)); a conversion here "
                "could fail on one row's value and tell it"
            )
    if len(X.shape) != 2:
        raise _not_two_dimensional(X.shape)
    return X


def _label_array(y: Any) -> Any:
    """One label per row as a NumPy or Dask array, missing ones (of pandas) as NaN."""
    y = _with_dtype(y, "y")
    if _is_dask(y):
        return y
    dtype = getattr(y, "dtype", None)
    if not isinstance(dtype, np.dtype | None) and hasattr(y, "to_numpy"):
        # numpy.asarray would choose a dtype by whether a label is missing
        if str(dtype) in ("str", "string"):
            y = y.to_numpy(dtype=object, na_value=np.nan).astype(np.dtypes.StringDType(na_object=np.nan))
        elif dtype.kind in "biuf":
            y = y.to_numpy(dtype=np.float64, na_value=np.nan)
    y = np.asarray(y)
    if y.dtype == object:
        raise DataError(
            "y has object dtype: convert it to numbers or strings first (for example y.astype(str)); a conversion "
            "here could fail on one row's value and tell it"
        )
    if y.ndim == 2 and y.shape[1] == 1:
        warn_caller("A column-vector y was passed when a 1d array was expected: pass y.ravel()", DataConversionWarning)
        return y[:, 0]
    if y.ndim != 1:
        raise DataError(f"y should be a 1d array, one label per row, got shape {y.shape}")
    return y


def _with_dtype(values: Any, name: str) -> Any:
    """Lists have no dtype until they are converted; what can go wrong there may quote a value."""
    if hasattr(values, "dims") and hasattr(values, "data"):  # xarray: NumPy or Dask inside
        values = values.data
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{name} is a masked array, whose mask would be ignored: fill it (for example with NaN) first")
    if hasattr(values, "dtype") or hasattr(values, "dtypes"):
        return values
    try:
        return np.asarray(values)
    except Exception as error:
        problem = type(error).__name__
    raise DataError(
        f"{name} cannot be made into an array ({problem}): expected "
        f"{'rows of equally many numbers' if name == 'X' else 'one number or string per row'}. Pass a NumPy array"
    )


def _is_dask(values: Any) -> bool:
    return hasattr(values, "__dask_graph__")


def _not_two_dimensional(shape: Any) -> DataError:
    return DataError(f"X must have rows and features (2 dimensions), got shape {tuple(shape)}")
