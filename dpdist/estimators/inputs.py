"""From what users pass to ``fit`` to a `Dataset`, without an error that could depend on a value.

What is refused is refused for its shape or its declared dtype. scikit-learn's own checks run after that, because some
of their messages quote the rows ("could not convert string to float: ...", "Expected 2D array, got 1D array instead:
array=[...]").
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from dpdist.data import Dataset
from dpdist.errors import DataError, warn_caller
from dpdist.estimators.parameters import NUMBERS


def as_dataset(estimator: Any, X: Any, y: Any = None, *, labels: bool = True) -> Dataset:
    """``fit(dataset)`` or ``fit(X, y)`` on NumPy, Dask, pandas or array-likes; sets ``n_features_in_``.

    A path or an address is that of a stored dataset. Without ``labels`` it is ``fit(dataset)`` or ``fit(X)``, and y is
    ignored, as scikit-learn does it.

    Values are not looked at: a NaN is not refused but becomes a null row in the map stage, because an exception that
    depends on one row's value would tell something about it.
    """
    X = opened(X)
    names: Sequence[str] = ()
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
        names = dataset.schema.columns.get("X", ())
        estimator._check_units(dataset.schema.units)
    else:
        if labels and y is None:
            raise DataError(
                f"{type(estimator).__name__} requires y to be passed, but the target y is None: call fit(X, y) with "
                "one label per row, or fit(dataset)"
            )
        if _is_dask(X) and hasattr(X, "columns"):
            names = tuple(X.columns)
        X = _feature_array(X)
        columns = {"y": label_array(y, getattr(estimator, "classes", None))} if labels else {}
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
        if names and len(set(names)) == len(names) and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.array(names, dtype=object)
    return dataset


def opened(X: Any) -> Any:
    """The dataset at a path or an address; anything else as it is."""
    if not isinstance(X, str | os.PathLike):
        return X
    return Dataset.open(os.fspath(X))


def check_public_rows(rows: NDArray[Any], n_features: int) -> None:
    """Rows of other people, which are public."""
    if rows.ndim != 2 or rows.shape[1] != n_features or len(rows) == 0:
        raise DataError(f"public_X must have rows of {n_features} features, got shape {rows.shape}")


def check_public_columns(public_X: Any, dataset: Dataset, names: Sequence[Any]) -> None:
    """That public rows are not those of the fit, and that a frame of them has its columns, in their order.

    What has no names goes by place.
    """
    if isinstance(public_X, Dataset) and dataset.account == public_X.account:
        raise DataError(
            f"public_X is not public: it is the dataset of the fit, or pays from the same account ({dataset.account}). "
            "Pass rows of other people, which anybody may see"
        )
    known = public_X.schema.columns.get("X", ()) if isinstance(public_X, Dataset) else getattr(public_X, "columns", ())
    given, expected = list(known), list(names)
    if given and expected and all(isinstance(name, str) for name in given) and given != expected:
        raise DataError(
            f"public_X has the columns {given}, and X has {expected}: expected the same ones in the same order, as in "
            f"public_X[{expected}]"
        )


def asked_points(name: str, values: Any, n_features: int, low: float = -np.inf, high: float = np.inf) -> NDArray[Any]:
    """Points that a fitted answer is asked at: numbers in a range, shape (m, n_features)."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = None
    shaped = found is not None and found.ndim == 2 and found.shape[1] == n_features
    if found is not None and shaped and (np.isfinite(found) & (found >= low) & (found <= high)).all():
        return found
    expected = "finite numbers" if np.isinf(low) else f"numbers in [{low:g}, {high:g}]"
    got = "what is no number" if found is None else "others" if shaped else f"shape {found.shape}"
    raise DataError(f"{name} must be {expected} of shape (m, {n_features}), got {got}")


def _feature_array(X: Any) -> Any:
    """``X`` itself if its dtype and dimensions will do; an array of it if it has no dtype."""
    refuse_sparse(X, "X")
    X = _with_dtype(X, "X")
    if hasattr(X, "name") and hasattr(X, "to_frame"):  # a series, of pandas or Dask
        raise DataError(
            f"X is one column ({X.name!r}), and rows have features (2 dimensions): pass a frame of those columns that "
            f"are features, as in frame[[{X.name!r}]]"
        )
    if _is_dask(X) and not hasattr(X, "dtypes"):
        return X
    if hasattr(X, "columns"):
        _check_names(list(X.columns))
    dtypes = list(X.dtypes) if hasattr(X, "columns") else [X.dtype]
    for dtype in dtypes:
        kind = getattr(dtype, "kind", "O")
        _refuse_dates(dtype, "X", _columns_of(X, dtype))
        if kind == "c":
            raise DataError("Complex data not supported: store real and imaginary parts of X as separate columns")
        if kind not in "biuf":
            shown = "str" if kind in "US" else dtype  # how wide strings are is not for telling
            raise DataError(
                f"X has {shown} dtype{_columns_of(X, dtype)}: convert it to numbers first (for example "
                "X.astype(float)); a conversion here could fail on one row's value and tell it. A column of words "
                "needs its levels, which are public: dpdist ingest --levels COLUMN=a,b,c makes a column of 0 and 1 "
                "of each"
            )
    if _is_dask(X):  # how many rows it has is public, or is not shown
        return X.astype(np.float32 if set(map(str, dtypes)) == {"float32"} else np.float64).to_dask_array(lengths=True)
    if len(X.shape) != 2:
        raise _not_two_dimensional(X.shape)
    return X


def _check_names(names: Sequence[Any]) -> None:
    """Refuse a frame that has no columns, or two of one name."""
    if not names:
        raise DataError("X is a frame without columns: pass a frame of those that are features")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"X has {names.count(twice)} columns called {twice!r}; rename them, so that the name says which"
        )


def _refuse_dates(dtype: Any, name: str, where: str = "") -> None:
    """Say how dates and durations, which NumPy and pandas convert to nanoseconds or not at all, become numbers."""
    kind = getattr(dtype, "kind", "O")
    if kind in "mM":
        values = "column" if where else name
        since = f"({values} - pandas.Timestamp('2020-01-01'))" if kind == "M" else values
        zone = ", the day in the same time zone" if getattr(dtype, "tz", None) else ""
        raise DataError(
            f"{name} has {dtype} dtype{where}: pass numbers, such as the days since a day that is public, "
            f"{since} / pandas.Timedelta(days=1){zone}"
        )


def label_array(y: Any, classes: Sequence[Any] | None = None) -> Any:
    """One label per row as a NumPy or Dask array, missing ones (of pandas) as NaN.

    Labels that are Python objects or categories become the declared classes that they are equal to; what is none of
    them becomes a missing label. That cannot fail, whatever they are.
    """
    refuse_sparse(y, "y")
    y = _with_dtype(y, "y")
    if _is_dask(y):
        _refuse_dates(getattr(y, "dtype", None), "y")
        return dask_labels(y, classes)
    if hasattr(y, "iloc") and y.ndim == 2 and len(y.columns) == 1:  # a frame of one column
        y = y.iloc[:, 0]
    dtype = getattr(y, "dtype", None)
    _refuse_dates(dtype, "y")
    if not isinstance(dtype, np.dtype | None) and hasattr(y, "to_numpy"):
        # numpy.asarray would choose a dtype by whether a label is missing
        if str(dtype) in ("str", "string"):
            y = y.to_numpy(dtype=object, na_value=np.nan).astype(np.dtypes.StringDType(na_object=np.nan))
        elif dtype.kind in "biuf":
            y = y.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            y = np.asarray(y, dtype=object)
    y = np.asarray(y)
    if y.dtype == object:
        _check_comparable(classes)
        assert classes is not None
        y = declared_labels(y.ravel(), classes).reshape(y.shape)
    if y.ndim == 2 and y.shape[1] == 1:
        warn_caller("A column-vector y was passed when a 1d array was expected: pass y.ravel()", DataConversionWarning)
        return y[:, 0]
    if y.ndim != 1:
        raise DataError(f"y should be a 1d array, one label per row, got shape {y.shape}")
    return y


def _check_comparable(classes: Sequence[Any] | None) -> None:
    """Refuse labels of any type where no classes of one type say which they are."""
    if classes is None:
        raise DataError(
            "y has object dtype, so its values may be of any type: convert it to numbers first, for example with "
            "pandas.to_numeric(y, errors='coerce'), or, where the losses are for two classes, use a classifier with "
            "classes=[...]; a conversion here could fail on one row's value and tell it"
        )


def declared_labels(labels: NDArray[Any], classes: Sequence[Any]) -> NDArray[Any]:
    """Labels of any types as texts or numbers; those that are none of the classes are missing.

    Examples
    --------
    >>> declared_labels(np.array(["yes", None, 3, "maybe"], dtype=object), ["no", "yes"]).tolist()
    ['yes', nan, nan, nan]
    >>> declared_labels(np.array([1, True, 0.0, "1", [2]], dtype=object), [0, 1]).tolist()
    [1.0, 1.0, 0.0, nan, nan]
    """
    kinds: tuple[type, ...] = (str,) if isinstance(classes[0], str) else NUMBERS
    known = set(classes)
    found = [label if isinstance(label, kinds) and label in known else np.nan for label in labels.tolist()]
    if kinds == (str,):
        return np.array(found, dtype=np.dtypes.StringDType(na_object=np.nan))
    return np.array(found, dtype=np.float64)


def dask_labels(y: Any, classes: Sequence[Any] | None) -> Any:
    """A Dask array of labels, of a Dask array, series or frame of one column; computed where the rows are read."""
    if hasattr(y, "to_dask_array"):
        if y.ndim == 2 and len(y.columns) == 1:
            y = y[y.columns[0]]
        kind = getattr(getattr(y, "dtype", None), "kind", "O")
        y = (y.astype(np.float64) if kind in "biuf" else y.astype(object)).to_dask_array(lengths=True)
    if y.dtype != object:
        return y
    _check_comparable(classes)
    assert classes is not None
    textual = isinstance(classes[0], str)
    dtype = np.dtypes.StringDType(na_object=np.nan) if textual else np.dtype(np.float64)
    return y.map_blocks(declared_labels, classes=tuple(classes), dtype=dtype, meta=np.empty(0, dtype))


def _columns_of(X: Any, dtype: Any) -> str:
    """Which columns of a frame have that dtype, for a message."""
    if not hasattr(X, "columns"):
        return ""
    names = [repr(name) for name, own in zip(X.columns, X.dtypes, strict=True) if own == dtype]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f" in the column{'s' * (len(names) > 1)} {', '.join(names[:5])}{more}"


def refuse_sparse(values: Any, name: str) -> None:
    """Say what to do with a sparse matrix."""
    if hasattr(values, "tocsr") or hasattr(values, "todense"):
        raise DataError(
            f"{name} is a sparse matrix ({type(values).__name__}), and dense rows are needed: private sums have noise "
            f"in every entry, whatever is 0. Pass {name}.toarray(); or, of more rows than fit, write sparse lines "
            "(sklearn.datasets.dump_svmlight_file), make them a dataset with dpdist ingest rows.svm rows.zarr "
            "--features N, and fit that"
        )


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
