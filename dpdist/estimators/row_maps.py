"""The public row-wise maps that turn stored arrays into what the kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.identity import tagged

ONE_BYTE = (np.bool_, np.uint8, np.int8)


@tagged("features")
def features(rows: NDArray[Any]) -> NDArray[Any]:
    """C-contiguous float32 (kept) or float64 (everything else); no copy where none is needed."""
    dtype = np.float32 if rows.dtype == np.float32 else np.float64
    return np.ascontiguousarray(rows, dtype=dtype)


@tagged("small features")
def small_features(rows: NDArray[Any]) -> NDArray[Any]:
    """`features`, but values that are stored in a byte stay in one: as float64 they would fill eight."""
    return np.ascontiguousarray(rows) if rows.dtype in ONE_BYTE else features(rows)


@tagged("targets")
def targets(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Real-valued labels as float64."""
    return np.ascontiguousarray(rows, dtype=np.float64).reshape(len(rows))


@dataclass(frozen=True)
class ClassCodes:
    """Labels as numbers: -1/+1 for two classes, 0, 1, ... for more; a label outside the public list becomes NaN.

    A NaN label makes its row a null row (it contributes nothing), so an undeclared label changes no error and no
    count.
    """

    tag: ClassVar[str] = "ClassCodes"

    classes: tuple[Any, ...]

    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        rows = rows.reshape(len(rows))
        numbers = (-1.0, 1.0) if len(self.classes) == 2 else range(len(self.classes))
        which = np.zeros(len(rows), np.min_scalar_type(len(self.classes)))  # 0: none of them
        for i, label in enumerate(self.classes, 1):
            np.maximum(which, np.multiply(rows == label, i, dtype=which.dtype), out=which)
        return np.array([np.nan, *numbers]).take(which)

    def check_dtype(self, stored: str) -> None:
        """Refuse labels of another kind than the declared ones: every row would be null."""
        declared = np.asarray(self.classes)
        textual = {"U", "S", "O", "T"}
        if (declared.dtype.kind in textual) != (np.dtype(stored).kind in textual):
            raise DataError(
                f"the labels are stored as {stored}, but classes={list(self.classes)!r} are {declared.dtype}: no label "
                "could ever match. Declare the classes as the values that are stored."
            )


@dataclass(frozen=True)
class AboveThreshold:
    """Real labels as +1 above a public threshold and -1 elsewhere; one that is not finite becomes NaN, a null row."""

    tag: ClassVar[str] = "AboveThreshold"

    threshold: float

    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        labels = targets(rows)
        return np.where(np.isfinite(labels), np.where(labels > self.threshold, 1.0, -1.0), np.nan)
