"""What a fitted model says of new rows: of arrays, of frames in the units of the table, of stored datasets, of Dask.

`BlockByBlock` makes every ``predict``, ``predict_proba``, ``decision_function``, ``transform``, ``score`` ... of
an estimator take all of these; each of them is written for an array of rows.

Predictions cost no budget, and they are about the rows they are made of: the model is private, an answer for somebody's
row is not, and a score on private rows is no private number. Both are for whoever may see the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dpdist.data import Dataset
from dpdist.data.encoding import Encoding
from dpdist.engine.by_blocks import of_dask, of_dataset, totals
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.inputs import opened, refuse_sparse

ANSWERS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")

Rows = NDArray[Any]
Answering = Callable[..., Any]


class BlockByBlock:
    """Answers about arrays become answers about frames, stored datasets and Dask collections.

    Examples
    --------
    >>> import dask.array as da
    >>> from dpdist import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2)) / 2
    >>> model = LinearRegression(loss="huber", row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X, X[:, 0])
    >>> lazy = model.predict(da.from_array(X, chunks=(6_000, 2)))
    >>> lazy.chunks, bool((lazy.compute() == model.predict(X)).all())
    (((6000, 6000, 6000, 2000),), True)
    >>> model.predict(Dataset.from_arrays(X=X)).shape
    (20000,)
    """

    _encoding: Encoding | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ANSWERS:
            own = cls.__dict__.get(name)
            if isinstance(own, FunctionType):
                setattr(cls, name, _of_anything(own))
            elif isinstance(getattr(own, "fn", None), FunctionType):  # of sklearn's available_if
                own.fn = _of_anything(own.fn)  # type: ignore[union-attr]
        score = getattr(cls, "score", None)
        if isinstance(score, FunctionType) and not hasattr(score, "by_blocks"):
            cls.score = _scored(score)  # type: ignore[attr-defined]


def _of_anything(method: FunctionType) -> Answering:
    """The method, for rows of any kind."""

    @functools.wraps(method)
    def answer(self: Any, X: Any) -> Any:
        if isinstance(X, np.ndarray):
            return method(self, X)
        X = opened(X)
        lazy = hasattr(X, "__dask_graph__")
        if isinstance(X, Dataset) or lazy:
            check_is_fitted(self)
            like = _of_rows(self, method, np.zeros((1, self.n_features_in_)))
            if lazy:
                return of_dask(X, functools.partial(answer, self), like)
            _check_width(self, X)
            return of_dataset(X, "X", functools.partial(of_stored_rows, self, method), _with_missing(like))
        refuse_sparse(X, "X")
        if is_table(X) and self._encoding is not None:
            available = {str(name) for name in (X.column_names if isinstance(X, pa.Table) else X.columns)}
            names = self._encoding.names
            if set(self._encoding.spec.features) <= available or not set(names) <= available:
                return _of_rows(self, method, self._encoding.encode(X))
        return method(self, X)

    answer.of_rows = method  # type: ignore[attr-defined]
    return answer


def _of_rows(model: Any, method: FunctionType, X: Rows) -> Rows:
    """The answers about rows of ``X``, and predicted numbers in the units of the table."""
    names = getattr(model, "feature_names_in_", None)
    # with their names, so that scikit-learn does not miss them
    rows: Any = X if names is None else pa.table(dict(zip(names, X.T, strict=True)))
    found: Rows = np.asarray(method(model, rows))
    if model._encoding is not None and method.__name__ == "predict" and predicts_numbers(model):
        found = model._encoding.label_in_units(found)
    return found


def of_stored_rows(model: Any, method: FunctionType, X: Rows) -> Rows:
    """The same; a null row, of which nothing is known, has no answer: NaN, or the empty text."""
    known = known_rows(model, X)
    like = _with_missing(_of_rows(model, method, np.zeros((1, X.shape[1]))))
    found = np.full((len(X), *like.shape[1:]), "" if like.dtype.kind in "UT" else np.nan, dtype=like.dtype)
    if known.any():
        found[known] = _of_rows(model, method, np.asarray(X[known], dtype=np.float64))
    return found


def answers_of(model: Any, X: Rows, name: str = "predict") -> Rows:
    """Answers about rows of ``X`` of which some may be null rows."""
    # not __wrapped__: of a method that is there for some parameters only, that is the answer about tables
    return of_stored_rows(model, getattr(type(model), name).of_rows, X)


def known_rows(model: Any, X: Rows) -> NDArray[np.bool_]:
    """Rows of which something is known: all cells, or some, of a model to which an empty cell is a value."""
    finite = np.isfinite(X)
    if not model.empty_cells:
        return np.asarray(finite.all(axis=1))
    return np.asarray((finite | np.isnan(X)).all(axis=1) & finite.any(axis=1))


def predicts_numbers(model: Any) -> bool:
    """Whether what it predicts is a label that is a number, in some units."""
    numbers = {Answer.NUMBERS, Answer.COEFFICIENTS}
    return not numbers.isdisjoint(model.answers) and not is_classifier(model)


def check_scored(model: Any) -> None:
    """Refuse a score of answers that are not compared with labels row by row."""
    if not predicts_numbers(model) and Answer.CLASSES not in model.answers:
        words = " and ".join(kind.words for kind in model.answers) or "no predictions"
        raise DataError(
            f"{type(model).__name__} gives {words}, for which there is no score of labels row by row"
            + (": pass its score arrays, score(X, y)" if Answer.RANKING in model.answers else "")
        )


def is_table(X: Any) -> bool:
    """Whether rows come with the names of their columns."""
    return isinstance(X, pa.Table) or hasattr(X, "to_arrow") or (hasattr(X, "columns") and hasattr(X, "iloc"))


def _with_missing(like: Rows) -> Rows:
    """A type that has a value for no answer: whole numbers become floats."""
    return like if like.dtype.kind in "fUT" else like.astype(np.float64)


def _check_width(model: Any, dataset: Dataset) -> None:
    if "X" not in dataset.arrays or dataset.arrays["X"].shape[1:] != (model.n_features_in_,):
        found = {name: spec.shape[1:] for name, spec in dataset.arrays.items()}
        raise DataError(
            f"the model reads {model.n_features_in_} features, and the dataset has arrays with rows of shape {found}: "
            "ingest it with the declarations of the data that the model was fitted to"
        )
    names, wanted = dataset.schema.columns.get("X", ()), getattr(model, "feature_names_in_", None)
    if names and wanted is not None and tuple(names) != tuple(wanted):
        raise DataError(
            f"the columns of the dataset, {', '.join(names[:5])} ..., are not those of the model, "
            f"{', '.join(wanted[:5])} ...: ingest it with the same features and levels, in the same order"
        )
    if dataset.schema.encoding is not None and model._encoding is not None:
        mine, theirs = model._encoding.spec, dataset.schema.encoding.spec
        if any(getattr(mine, each) != getattr(theirs, each) for each in ("ranges", "levels", "reference")):
            raise DataError(
                "the dataset was ingested with other ranges or levels than the model was fitted with, so its rows mean "
                "something else: ingest it with those of the model ('dpdist info' shows them)"
            )


def _scored(method: FunctionType) -> Answering:
    @functools.wraps(method)
    def score(self: Any, X: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        X = opened(X)
        if not isinstance(X, Dataset):
            return method(self, X, y, *args, **kwargs)
        if any(each is not None for each in (y, *args, *kwargs.values())):
            raise DataError(
                "score(dataset) takes the labels from the dataset's array 'y' and counts every row alike: call it "
                "without y and weights, or pass rows, score(X, y, sample_weight=w)"
            )
        return score_of(self, X)["score"]

    score.by_blocks = True  # type: ignore[attr-defined]
    return score


def score_of(model: Any, dataset: Dataset) -> dict[str, Any]:
    """Accuracy (of classes) or R squared and errors (of numbers) on the rows of a stored dataset that are no null rows.

    **Not private**: exact numbers, for whoever may see the rows. They are not charged, and not to be published.
    """
    check_scored(model)
    _check_width(model, dataset)
    if "y" not in dataset.arrays:
        raise DataError(f"a score needs labels, and the dataset has the arrays {sorted(dataset.arrays)} but no 'y'")
    sums = totals(dataset, ("X", "y"), functools.partial(_sums_of_scores, model))
    return scores_of(model, sums)


def scores_of(model: Any, sums: Rows) -> dict[str, Any]:
    """Scores, of sums over rows (`sums_of_scores`)."""
    n = float(sums[0])
    if not n:
        raise DataError("no row has a label and all features, so there is nothing to score")
    rows = {"n_rows": int(n), "n_left_out": int(sums[1])}
    if not predicts_numbers(model):
        return {"score": float(sums[2]) / n, "what": "accuracy", **rows}
    _, _, y, square, residual, absolute = map(float, sums)
    spread = square - y * y / n
    return {
        "score": 1.0 - residual / spread if spread > 0 else float("nan"),
        "what": "R squared",
        "root_mean_squared_error": (residual / n) ** 0.5,
        "mean_absolute_error": absolute / n,
        **rows,
    }


def _sums_of_scores(model: Any, X: Rows, y: Rows) -> Rows:
    """Of stored rows."""
    y = y.reshape(len(y))
    if predicts_numbers(model) and model._encoding is not None:
        y = model._encoding.label_in_units(y)
    return sums_of_scores(model, X, y)


def sums_of_scores(model: Any, X: Rows, y: Rows) -> Rows:
    """How many rows have an answer and a label, how many have not, and sums from which `scores_of` has the scores.

    y is in its own units.
    """
    found = answers_of(model, X)
    if not predicts_numbers(model):
        # a missing text is unlike itself, as NaN is
        labelled = (y != "") & (y == y) if y.dtype.kind in "UT" else np.isfinite(y.astype(np.float64))
        known = known_rows(model, X) & labelled
        right = found[known] == (y if found.dtype.kind in "UT" else y.astype(np.float64))[known]
        return np.array([known.sum(), (~known).sum(), right.sum()], dtype=np.float64)
    known = np.isfinite(found) & np.isfinite(y)
    y, difference = y[known], (found - y)[known]
    counts = known.sum(), (~known).sum()
    return np.array([*counts, y.sum(), (y**2).sum(), (difference**2).sum(), np.abs(difference).sum()])
