"""The answers of a user to many tasks: symbols, of which some may be missing.

=============== ======================================================================================================
``unanswered``  what becomes of a task without an answer
=============== ======================================================================================================
``"coin"``      a null answer: its report is any symbol, each as likely
``"symbol"``    a symbol of its own, which is randomised like the others
``"public"``    nothing is sent: everybody may know who answered what
=============== ======================================================================================================

A stored cell holds a whole number below ``n_classes``. NaN, a negative number and the byte 255 are a task without an
answer; anything else is a null answer, whose report says nothing. Answers of two classes may also be stored eight to a
byte (``packed``): bit ``j % 8`` of byte ``j // 8`` for task j, and behind these bytes as many again, whose bits say
which tasks were answered, where not all of them were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError, DataError
from dpdist.kernels.bit_planes import pack_words, words_of
from dpdist.kernels.symbol_counts import OPEN
from dpdist.local.survey.protocol import Block, Domain, Statistic

Unanswered = Literal["coin", "symbol", "public"]
NULL = 254
"""The code of an answer that is none of the classes."""
MOST_CLASSES = 200


@dataclass(frozen=True)
class AnswerCodes:
    """Stored cells as bytes: a class, `NULL`, or `OPEN` for a task without an answer; the row-wise map of a fit.

    Examples
    --------
    >>> AnswerCodes(3)(np.array([[0.0, 2.0, 3.0, 0.5, np.nan, -1.0, np.inf]])).tolist()
    [[0, 2, 254, 254, 255, 255, 254]]
    """

    tag: ClassVar[str] = "AnswerCodes"

    n_classes: int

    def __call__(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        if rows.dtype == np.bool_:
            rows = rows.view(np.uint8)
        if rows.dtype == np.uint8:
            known = (rows < self.n_classes) | (rows == OPEN)
            return np.where(known, rows, np.uint8(NULL))
        codes = np.full(rows.shape, NULL, np.uint8)
        missing = np.isnan(rows) if rows.dtype.kind == "f" else np.zeros(rows.shape, np.bool_)
        if rows.dtype.kind in "fi":
            missing |= (rows < 0) & np.isfinite(rows)
        codes[missing] = OPEN
        for k in range(self.n_classes):
            codes[rows == k] = k
        return codes


@dataclass(frozen=True)
class TaskAnswers(Statistic):
    """The answers of a user, as symbols.

    Parameters
    ----------
    n_tasks : int
    n_classes : int
    unanswered : {"coin", "symbol", "public"}
    packed : bool
        Whether eight answers are stored in a byte.

    Examples
    --------
    >>> TaskAnswers(3, 2, "symbol").values({"X": np.array([[0.0, np.nan, 7.0]])}).tolist()
    [[0, 2, 254]]
    """

    tag: ClassVar[str] = "TaskAnswers"

    n_tasks: int
    n_classes: int = 2
    unanswered: str = "coin"
    packed: bool = False

    domain: ClassVar[Domain] = "answers"

    def __post_init__(self) -> None:
        if self.n_tasks < 1:
            raise BudgetError(f"n_tasks must be at least 1, got {self.n_tasks!r}")
        if not 2 <= self.n_classes <= MOST_CLASSES:
            raise BudgetError(f"n_classes must be a whole number from 2 to {MOST_CLASSES}, got {self.n_classes!r}")
        if self.unanswered not in get_args(Unanswered):
            raise BudgetError(f"unanswered must be 'coin', 'symbol' or 'public', got {self.unanswered!r}")
        if self.packed and self.n_classes != 2:
            raise BudgetError(f"packed answers are bits, of two classes; n_classes={self.n_classes}: store numbers")

    @property
    def size(self) -> int:
        return self.n_tasks

    @property
    def n_symbols(self) -> int:
        """How many symbols an answer may be reported as."""
        return self.n_classes + (self.unanswered == "symbol")

    @property
    def as_bits(self) -> bool:
        """Whether answers are bits, all of which are reported."""
        return self.n_classes == 2 and self.unanswered == "coin"

    @property
    def n_columns(self) -> int:
        """Columns of a stored row of answers that are all there."""
        return -(-self.n_tasks // 8) if self.packed else self.n_tasks

    def codes(self, X: NDArray[Any]) -> NDArray[np.uint8]:
        """Stored rows as bytes, one for each task: a class, `NULL`, or `OPEN`."""
        if not self.packed:
            return AnswerCodes(self.n_classes)(np.asarray(X))
        bits = np.unpackbits(X[:, : self.n_columns], axis=1, count=self.n_tasks, bitorder="little")
        if X.shape[1] > self.n_columns:
            there = np.unpackbits(X[:, self.n_columns :], axis=1, count=self.n_tasks, bitorder="little")
            bits[there == 0] = OPEN
        return bits

    def values(self, block: Block, state: Any = None) -> NDArray[Any]:
        """Symbols as bytes, `NULL` and, where that is public, `OPEN` among them; as words where they are bits.

        The words of a row are those of its answers, with zeros where there is none, and where answers may be missing
        behind them those that say where there is one (`dpdist.kernels.bit_planes`).
        """
        X = np.asarray(block["X"])
        check_columns(self, X.shape[1], str(X.dtype))
        if not self.as_bits:
            codes = self.codes(X)
            if self.unanswered == "symbol":  # without a branch, which nobody can guess
                codes = codes ^ (codes == OPEN) * np.uint8(OPEN ^ self.n_classes)
            return codes
        if self.packed:
            spare = -self.n_tasks % 8
            here, there = X[:, : self.n_columns], X[:, self.n_columns :]
            if spare:
                here = here.copy()
                here[:, -1] &= np.uint8(0xFF >> spare)
            return words_of(here) if there.shape[1] == 0 else np.hstack([words_of(here & there), words_of(there)])
        codes = self.codes(X)
        return np.hstack([pack_words(codes == 1), pack_words(codes < 2)])


@dataclass(frozen=True)
class AnswerSigns(Statistic):
    """What a user says to a task, as 1 or -1; 0 without an answer. For reports about a few tasks, drawn at random.

    Of more than two classes, coordinate ``j n_classes + k`` is whether the answer to task j is k.

    Examples
    --------
    >>> AnswerSigns(3).values({"X": np.array([[0, 1, 7]])}).tolist()
    [[-1.0, 1.0, 0.0]]
    """

    tag: ClassVar[str] = "AnswerSigns"

    n_tasks: int
    n_classes: int = 2
    packed: bool = False

    domain: ClassVar[Domain] = "box"

    def __post_init__(self) -> None:
        _ = self.answers  # which refuses what cannot be

    @property
    def answers(self) -> TaskAnswers:
        """The answers themselves."""
        return TaskAnswers(self.n_tasks, self.n_classes, "coin", self.packed)

    @property
    def n_features(self) -> int:
        """How many columns a record has."""
        return self.answers.n_columns

    @property
    def size(self) -> int:
        return self.n_tasks if self.n_classes == 2 else self.n_tasks * self.n_classes

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        everything = np.broadcast_to(np.arange(self.size), (len(block["X"]), self.size))
        return self.values_at(block, everything)

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> NDArray[np.float64]:
        X = np.asarray(block["X"])
        check_columns(self, X.shape[1], str(X.dtype))
        task, k = (coordinates, 1) if self.n_classes == 2 else np.divmod(coordinates, self.n_classes)
        if self.packed:
            at = task // 8
            shift = (task % 8).astype(np.uint8)
            codes = np.take_along_axis(X, at, axis=1) >> shift & np.uint8(1)
            if X.shape[1] > self.n_features:
                there = np.take_along_axis(X, at + self.n_features, axis=1) >> shift & np.uint8(1)
                codes = np.where(there == 1, codes, np.uint8(OPEN))
        else:
            codes = AnswerCodes(self.n_classes)(np.take_along_axis(X, task, axis=1))
        return np.where(codes < self.n_classes, np.where(codes == k, 1.0, -1.0), 0.0)


def check_columns(statistic: TaskAnswers | AnswerSigns, n_columns: int, dtype: str) -> None:
    """Refuse an array of another shape or type than the answers of so many tasks have."""
    answers = statistic if isinstance(statistic, TaskAnswers) else statistic.answers
    if not answers.packed:
        if n_columns != answers.n_tasks:
            raise DataError(
                f"n_tasks is {answers.n_tasks}, and the records have {n_columns} columns, one for each task"
            )
        return
    if dtype != "uint8":
        raise DataError(f"packed answers are bytes (uint8), eight answers in each, and X holds {dtype}: layout='cells'")
    if n_columns not in (answers.n_columns, 2 * answers.n_columns):
        raise DataError(
            f"the packed answers to {answers.n_tasks} tasks are {answers.n_columns} bytes in a row, or "
            f"{2 * answers.n_columns} with those that say which were answered; X has {n_columns} columns"
        )
