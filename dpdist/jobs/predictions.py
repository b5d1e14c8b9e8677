"""What a loaded model says of new rows, and how well: of stored datasets and of tables, block by block.

Nothing here is private, and nothing is charged: an answer about a row tells of that row, a score is an exact number.
Both are for whoever may see the rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Dataset
from dpdist.data.dataset_schema import ATTRIBUTE
from dpdist.data.encoding import Encoding
from dpdist.data.ingestion_spec import IngestionSpec
from dpdist.data.stores import open_to_read, shown
from dpdist.data.table_files import table_batches
from dpdist.engine.by_blocks import in_turn
from dpdist.errors import DataError
from dpdist.estimators.predicting import (
    answers_of,
    check_scored,
    predicts_numbers,
    score_of,
    scores_of,
    sums_of_scores,
)

Columns = dict[str, NDArray[Any]]

NOT_PRIVATE = (
    "Predictions are about the rows they are made of: the guarantee covers the model, not them. They are for whoever "
    "may see these rows."
)
CURATORS_SIDE = (
    "The curator's side: exact numbers of the rows, under no guarantee and charged to nobody. Whoever publishes them, "
    "or chooses a model by them, tells something about the rows that no budget counts."
)


def predictions(
    model: Any, place: str, *, probabilities: bool = False, format: str | None = None, delimiter: str = ","
) -> Iterator[Columns]:
    """The columns to write, batch by batch, with numbers of rows from 1; one that cannot be read has empty cells.

    Parameters
    ----------
    model : estimator
        Fitted, with ``predict``.
    place : str
        A stored dataset that was ingested with the declarations of the model, or a table (CSV, Parquet) with the
        columns that the model was fitted to, in their units.
    probabilities : bool
        Whether the probability of each class is written as well.
    """
    if not hasattr(model, "predict"):
        others = [name for name in ("decision_function", "transform", "score_samples") if hasattr(model, name)]
        hint = f"; dpdist.load_run(RUN) has {', '.join(others)} of rows" if others else ""
        raise DataError(
            f"{type(model).__name__} has no predictions: it has released numbers, which are in its arrays{hint}"
        )
    if probabilities and not hasattr(model, "predict_proba"):
        raise DataError(f"{type(model).__name__} has no probabilities of classes; leave out --probabilities")
    done = 0
    wanted = ("predict", "predict_proba") if probabilities else ("predict",)
    if is_dataset(place, format):
        dataset = open_dataset(place)
        lazy = [in_turn(getattr(model, name)(dataset)) for name in wanted]
        for answers in zip(*lazy, strict=True):
            yield _columns(model, done, *answers)
            done += len(answers[0])
        return
    for rows in table_batches(place, spec_of(model, label=False), format, delimiter):
        yield _columns(model, done, *(answers_of(model, _null(rows), name) for name in wanted))
        done += len(rows.X)


def counting_unanswered(batches: Iterator[Columns], counts: list[int]) -> Iterator[Columns]:
    """The same batches; ``counts`` is given how many rows of each have no answer, as the empty cells tell."""
    for columns in batches:
        answers = list(columns.values())[1]  # beside the numbers of the rows
        counts.append(int(np.sum(answers == "" if answers.dtype.kind in "UTO" else np.isnan(answers))))
        yield columns


def scored(model: Any, place: str, *, format: str | None = None, delimiter: str = ",") -> dict[str, Any]:
    """Accuracy, or R squared and errors in the units of the table, on rows with labels: exact, so not private."""
    check_scored(model)
    if is_dataset(place, format):
        return score_of(model, open_dataset(place))
    spec = spec_of(model, label=True)
    sums: Any = 0.0
    for rows in table_batches(place, spec, format, delimiter):
        X, y = _null(rows), rows.y
        assert y is not None
        sums = sums + sums_of_scores(model, X, y.astype(str) if y.dtype.kind == "O" else y)
    return scores_of(model, sums)


def is_dataset(place: str, format: str | None = None) -> bool:
    """Whether a place is a Zarr group, or an address, rather than a table."""
    if format is not None:
        return format == "zarr"
    folder = os.path.expanduser(place)
    return "://" in place or any(os.path.exists(os.path.join(folder, mark)) for mark in ("zarr.json", ".zgroup"))


def open_dataset(place: str) -> Dataset:
    """A stored dataset, to which nothing is written."""
    try:
        group = open_to_read(place)
    except DataError:
        raise
    except Exception as error:
        problem = type(error).__name__
    else:
        return Dataset.open(group) if ATTRIBUTE in group.attrs else Dataset.open(group, dataset_id="none")
    raise DataError(f"there is no dataset at {shown(place)} ({problem}); check the path")


def spec_of(model: Any, label: bool) -> IngestionSpec:
    """What is read of a table: the columns of a model, and its label where there is one."""
    encoding, names = model._encoding, tuple(map(str, model._feature_columns))
    if encoding is None and not names:
        raise DataError(
            "the model was fitted to arrays and knows no names of columns: make the table a dataset first (dpdist "
            "ingest), with the columns in the order of the arrays, and name that"
        )
    spec = (Encoding(IngestionSpec(features=names)) if encoding is None else encoding).spec
    if label and spec.label is None:
        raise DataError("a score needs labels, and the model does not know which column has them: score a dataset")
    # labels are taken as they are: a range of the label is for fits
    ranges = {name: bounds for name, bounds in spec.ranges.items() if name != spec.label}
    spec = replace(spec, ranges=ranges, on_bad="zero")
    return spec if label else replace(spec, label=None, label_levels=())


def _null(rows: Any) -> NDArray[Any]:
    """Rows of X, bad ones as null rows."""
    X: NDArray[Any] = rows.X
    if rows.bad is not None:
        X[rows.bad] = rows.null
    return X


def _columns(model: Any, done: int, answers: NDArray[Any], shares: NDArray[Any] | None = None) -> Columns:
    named = "prediction"
    if predicts_numbers(model) and model._encoding is not None and model._encoding.label:
        named = f"predicted {model._encoding.label}"
    columns: Columns = {"row": np.arange(done + 1, done + 1 + len(answers)), named: answers}
    if shares is not None:
        columns |= {f"probability of {label}": shares[:, k] for k, label in enumerate(model.classes_)}
    return columns
