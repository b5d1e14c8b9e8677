"""Answers of a crowd, from a table with a line for each, or a wide one, to the packed rows that fits read.

The curator's side: it looks at the data and names bad lines, before any guarantee. Who the users are, which tasks there
are and what can be answered are public declarations, never read off the lines: a user without a line has a row, too.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data.dataset import Dataset
from dpdist.data.stores import Location
from dpdist.errors import DataError

OPEN = 255
"""The byte of a task without an answer."""


def pack_answers(cells: NDArray[Any]) -> NDArray[np.uint8]:
    """Answers 0 and 1, a row for each user, as bits: those of the answers, then those that say where there is one.

    Parameters
    ----------
    cells : array of shape (n, m)
        NaN or a negative number is a task without an answer.

    Examples
    --------
    >>> pack_answers(np.array([[1.0, np.nan, 0.0]])).tolist()
    [[1, 5]]
    """
    cells = np.asarray(cells)
    ones = cells == 1
    there = ones | (cells == 0)
    with np.errstate(invalid="ignore"):
        bad = ~there & ~(np.isnan(cells) | (cells < 0)) if cells.dtype.kind == "f" else ~there & ~(cells < 0)
    if bad.any():
        row, column = (int(i[0]) for i in np.nonzero(bad))
        raise DataError(
            f"row {row}, column {column} is {cells[row, column]!r}: expected 0, 1, or a missing answer (NaN)"
        )
    return np.hstack([np.packbits(part, axis=1, bitorder="little") for part in (ones, there)])


def answers_from_lines(
    lines: Iterable[Sequence[str]], *, users: Sequence[str], tasks: Sequence[str], answers: Sequence[str] = ("0", "1")
) -> NDArray[np.uint8]:
    """Rows of users from lines ``(user, task, answer)`` in any order: packed bits of two answers, bytes of more.

    Parameters
    ----------
    lines : iterable of (str, str, str)
    users, tasks, answers : sequence of str
        Public, in the order of the rows, the columns and the classes.

    Raises
    ------
    DataError
        With the number of the line, for a user, a task or an answer that was not declared, and a second answer of a
        user to a task.

    Examples
    --------
    >>> lines = [("ann", "t1", "yes"), ("bob", "t2", "no")]
    >>> answers_from_lines(lines, users=["ann", "bob"], tasks=["t1", "t2"], answers=["no", "yes"]).tolist()
    [[1, 1], [0, 2]]
    """
    places = [_places(what, names) for what, names in (("users", users), ("tasks", tasks), ("answers", answers))]
    if not 2 <= len(answers) <= 200:
        raise DataError(f"there must be 2 to 200 different answers, got {len(answers)}")
    width, packed = -(-len(tasks) // 8), len(answers) == 2
    cells = np.zeros((len(users), 2 * width), np.uint8) if packed else np.full((len(users), len(tasks)), OPEN, np.uint8)
    for number, line in enumerate(lines, 1):
        if len(line) != 3:
            raise DataError(f"line {number} has {len(line)} values; expected a user, a task and an answer")
        for what, name, known in zip(("user", "task", "answer"), line, places, strict=True):
            if name not in known:
                raise DataError(f"line {number}: the {what} {name!r} was not declared")
        user, task, answer = (known[name] for known, name in zip(places, line, strict=True))
        bit = 1 << task % 8
        there = cells[user, width + task // 8] & bit if packed else cells[user, task] != OPEN
        if there:
            raise DataError(f"line {number}: {line[0]!r} answered {line[1]!r} before; keep one answer to each task")
        if packed:
            cells[user, width + task // 8] |= bit
            cells[user, task // 8] |= bit * answer
        else:
            cells[user, task] = answer
    return cells


def _places(what: str, names: Sequence[str]) -> dict[str, int]:
    """Where each of these names stands."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"{what} must be a list of names as they stand in the lines, such as ['a', 'b']; got {str(names)[:80]!r}"
        )
    if len(set(names)) < len(names) or not len(names):
        raise DataError(f"{what} must be a list of different names, at least one")
    return {name: i for i, name in enumerate(names)}


def answers_from_csv(
    path: str | os.PathLike[str],
    store: Location | None = None,
    *,
    columns: tuple[str, str, str] = ("user", "task", "answer"),
    users: Sequence[str],
    tasks: Sequence[str],
    answers: Sequence[str] = ("0", "1"),
    unit: str = "row",
) -> Dataset:
    """A dataset of answers from a CSV file with a head, one line for each answer.

    Two answers become bits, and are fitted with ``TruthInference(layout="packed", n_tasks=len(tasks))``; more become
    bytes, for ``TruthInference(n_classes=len(answers))``. Everything is in memory while it is read, a quarter of a byte
    for each of two answers.

    Parameters
    ----------
    path : path
    store : path, URL or zarr store, optional
        Where it is written; in memory by default.
    columns : tuple of str
        Names of the columns of the user, the task and the answer.
    users, tasks, answers
        As in `answers_from_lines`.
    unit : {"row", "answer"}
        What guarantees are about, as in `Dataset.from_arrays`.
    """
    with open(path, newline="", encoding="utf-8") as file:
        table = csv.reader(file)
        head = next(table, [])
        missing = [name for name in columns if name not in head]
        if missing:
            raise DataError(f"{path} has no column {missing[0]!r}; its first line is {','.join(head)[:80]!r}")
        at = [head.index(name) for name in columns]
        short = ([line[i] if i < len(line) else "" for i in at] for line in table)
        X = answers_from_lines(short, users=users, tasks=tasks, answers=answers)
    return Dataset.from_arrays(store, X=X, unit=unit, row_order="arrival")
