"""Coefficients and means in the units of the table: dollars per year, not 1 per half of a declared range.

An ingestion maps a column v with a range to ``x = a v + c`` and a label t to ``y = s t + r``, all public. A model
``y = <w, x> + b`` then says ``t = <w a / s, v> + (b + <w, c> - r) / s``: a linear map of what was released, so that
covariance and intervals follow, and nothing is charged. The mean of a column is ``(m - c) / a``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data.encoding import Encoding
from dpdist.errors import DataError, NoIntervals
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.inference import LEVEL, Inference, Inferred, Summary
from dpdist.estimators.predicting import predicts_numbers
from dpdist.html import number

Vector = NDArray[np.float64]


class _InUnits(Inference):
    """Estimates in the units of the table, which show themselves as a summary where there are intervals."""

    label: str | None = None
    _of: str
    _inferred: Inferred | str

    def _known(self) -> Inferred:
        if isinstance(self._inferred, str):
            raise NoIntervals(self._inferred)
        return self._inferred

    def _title(self) -> str:
        return f"{self._of}, in the units of the table" + (f" ({self.label})" if self.label else "")

    def _rows(self) -> tuple[list[str], Vector]:
        """Names of what is told of every class, and the values, one row for each class."""
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            return str(self.summary())
        except NoIntervals as reason:
            names, values = self._rows()
            shown = [
                f"  {name}: {', '.join(number(v) for v in value)}" for name, value in zip(names, values.T, strict=True)
            ]
            return "\n".join([self._title(), *shown, f"no intervals: {reason}"])

    def _repr_html_(self) -> str:
        try:
            return self.summary()._repr_html_()
        except NoIntervals:
            return f"<pre>{self!r}</pre>"


class OriginalUnits(_InUnits):
    """What a linear model says in the units of the table that it was fitted to.

    It has ``summary()``, ``confidence_intervals()``, ``standard_errors_`` and ``wald_test()`` of the model, in these
    units.

    Attributes
    ----------
    coef_ : array
        In the shape of the model's: change of the prediction (of classes: of the log-odds or the margin) for one unit
        of a column.
    intercept_ : array or float
        The prediction where all columns are 0.
    feature_names_in_ : array of str

    Examples
    --------
    >>> import pyarrow as pa
    >>> from dpdist.data.ingestion_spec import IngestionSpec
    >>> spec = IngestionSpec(features=("age",), ranges={"age": (0.0, 100.0), "price": (0.0, 50.0)}, label="price")
    >>> found = OriginalUnits("LinearRegression", np.array([0.5]), 0.25, Encoding(spec), "not asked for")
    >>> found.coef_.tolist(), found.intercept_  # y = x/2 + 1/4 is price = age/4 + 18.75
    ([0.25], 18.75)
    """

    def __init__(
        self, title: str, coef: Any, intercept: Any, encoding: Encoding, inferred: Inferred | str, numbers: bool = True
    ) -> None:
        scale, shift = encoding.to_original
        slope, start = encoding.label_scale if numbers else (1.0, 0.0)
        w = np.asarray(coef, dtype=np.float64)
        self.coef_: Vector = w * scale / slope
        self.intercept_: Any = (np.asarray(intercept, dtype=np.float64) + w @ shift - start) / slope
        if w.ndim == 1:
            self.intercept_ = float(self.intercept_)
        self.feature_names_in_ = np.array(encoding.names, dtype=object)
        self.label = encoding.label
        self._of = title
        self._inferred = inferred if isinstance(inferred, str) else self._mapped(inferred, scale, shift, slope)

    def _mapped(self, known: Inferred, scale: Vector, shift: Vector, slope: float) -> Inferred | str:
        coefs = np.atleast_2d(self.coef_)
        n, d = coefs.shape
        size = len(known.values) // n
        if known.alone and known.together != size:
            return f"in the units of the table intervals need how the coefficients vary together: {known.alone}"
        map_one = np.zeros((d + 1, size))
        map_one[np.arange(d), np.arange(d)] = scale / slope
        map_one[d, :d] = shift / slope
        if size > d:
            map_one[d, d] = 1.0 / slope
        whole = np.kron(np.eye(n), map_one)
        names = [*map(str, self.feature_names_in_), "intercept"]
        if n > 1:
            labels = [known.names[i * size].rpartition(": ")[0] for i in range(n)]
            names = [f"{label}: {name}" for label in labels for name in names]
        covariance = whole @ known.covariance @ whole.T
        # how much of the variance is due to noise is known of single parameters only, not of what the intercept mixes
        noise = np.full((n, d + 1), np.nan)
        noise[:, :d] = known.noise.reshape(n, size)[:, :d] * np.square(scale / slope)
        values = np.column_stack([coefs, np.atleast_1d(self.intercept_)]).ravel()
        return replace(
            known,
            names=tuple(names),
            values=values,
            covariance=covariance,
            noise=noise.ravel(),
            together=d + 1 if known.alone else known.together,
            main=(np.arange(n)[:, None] * (d + 1) + np.arange(d)).reshape(np.shape(self.coef_)),
        )

    def _rows(self) -> tuple[list[str], Vector]:
        values = np.column_stack([np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)])
        return [*map(str, self.feature_names_in_), "intercept"], values


class OriginalMeans(_InUnits):
    """Means of columns in the units of the table that they are means of: years, and shares of the levels.

    Of a column whose empty cells have a column of their own, these cells count as the middle of the range.

    Attributes
    ----------
    mean_ : array of shape (n_columns,)
    feature_names_in_ : array of str

    Examples
    --------
    >>> from dpdist.data.ingestion_spec import IngestionSpec
    >>> spec = IngestionSpec(features=("age", "town"), ranges={"age": (0.0, 100.0)}, levels={"town": ("A", "B")})
    >>> found = OriginalMeans("Mean", np.array([-0.2, 0.3, 0.7]), Encoding(spec), "not asked for")
    >>> dict(zip(found.feature_names_in_.tolist(), found.mean_.tolist()))
    {'age': 40.0, 'town=A': 0.3, 'town=B': 0.7}
    """

    def __init__(self, title: str, mean: Any, encoding: Encoding, inferred: Inferred | str) -> None:
        scale, shift = encoding.to_original
        self.mean_: Vector = (np.asarray(mean, dtype=np.float64) - shift) / scale
        self.feature_names_in_ = np.array(encoding.names, dtype=object)
        self._of = title
        self._inferred = inferred
        if not isinstance(inferred, str):
            squared = np.square(scale) if inferred.covariance.ndim == 1 else np.outer(scale, scale)
            self._inferred = replace(
                inferred,
                values=(inferred.values - shift) / scale,
                covariance=inferred.covariance / squared,
                noise=inferred.noise / np.square(scale),
            )

    def _rows(self) -> tuple[list[str], Vector]:
        return [*map(str, self.feature_names_in_)], self.mean_[None, :]


def original_units(model: Any) -> OriginalUnits | OriginalMeans:
    """The coefficients of a fitted linear model, or the means of columns, in the units of the table.

    A model without an intercept has 0 there.

    Raises
    ------
    DataError
        Of a model that was not fitted to a table with ranges, or has no coefficients, or only up to their sign.
    """
    encoding, coef = model._encoding, getattr(model, "coef_", None)
    inferred = getattr(model, "_inferred", "of a model that was loaded, intervals are in its record")
    title = type(model).__name__
    if encoding is not None and Answer.MEANS in model.answers and np.shape(model.mean_) == (len(encoding.names),):
        return OriginalMeans(title, model.mean_, encoding, inferred)
    linear = hasattr(model, "intercept_") or {Answer.COEFFICIENTS, Answer.RANKING, Answer.UP_TO_SIGN} & {*model.answers}
    if encoding is None or coef is None or not linear or np.shape(coef)[-1:] != (len(encoding.names),):
        raise DataError(
            "only a linear model, or a mean, of a dataset that 'dpdist ingest' made of a table knows the units of its "
            "columns: coefficients and means of rows that were passed as arrays are in the units of the arrays"
        )
    if Answer.UP_TO_SIGN in model.answers:
        raise DataError(
            f"{type(model).__name__} knows its coefficients up to their sign only, so that in the units of the table "
            "there would be two lines: coef_ has them in the units of the dataset"
        )
    return OriginalUnits(title, coef, getattr(model, "intercept_", 0.0), encoding, inferred, predicts_numbers(model))


def original_record(model: Any, level: float = LEVEL) -> dict[str, Any] | None:
    """Coefficients, or means, in the units of the table for a report, as plain JSON; None where there are none."""
    try:
        found = original_units(model)
    except DataError:
        return None
    names, coefs = found._rows()
    record: dict[str, Any] = {"label": found.label, "names": names, "coefficients": coefs.tolist()}
    try:
        known: Summary = found.summary(level)
    except NoIntervals:
        return record
    ends = [(row["low"], row["high"]) for row in known.rows]
    return {**record, "level": level, "intervals": np.reshape(ends, (*coefs.shape, 2)).tolist()}
