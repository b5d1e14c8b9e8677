"""Records as devices have them: plain JSON values, which become the rows that a survey asks of.

What a record holds decides nothing but the report: whatever is missing, of another kind or of another size makes a
null record, which sends a report like any other. Of answers to tasks each counts by itself: what one of them holds
decides about the report of that answer only, which is what the guarantee is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.local.statistics.categories import Labelled
from dpdist.local.statistics.task_answers import AnswerSigns
from dpdist.local.survey.protocol import Statistic
from dpdist.local.survey.questionnaire import Survey


def rows_of(survey: Survey, records: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """The arrays of the survey's question, one row per record.

    Parameters
    ----------
    survey : Survey
    records : sequence
        Each a mapping of array names to a number, a list of numbers, or (for a category, or a class ``y``) its label;
        or just what belongs into ``X``.

    Examples
    --------
    >>> from dpdist.local.statistics.categories import Category
    >>> from dpdist.local.randomisers.frequency import KRR
    >>> from dpdist.local.survey.protocol import LocalProtocol
    >>> survey = Survey(LocalProtocol(Category(2), KRR(2, epsilon=1.0)), labels=("no", "yes"))
    >>> rows_of(survey, ["yes", {"X": 0}, "maybe", None])["X"]
    array([ 1.,  0., nan, nan])
    """
    statistic = survey.protocol.statistic
    width, by_answer = survey.width, _of_tasks(statistic)
    labels = {label: float(i) for i, label in enumerate(survey.labels)}
    signs = dict(zip(survey.labels, (-1.0, 1.0), strict=False)) if statistic.domain != "category" else {}
    rows: dict[str, NDArray[Any]] = {name: np.full(len(records), np.nan) for name in survey.protocol.arrays}
    if width is not None:
        rows["X"] = np.full((len(records), width), np.nan)
    elif _labelled(statistic):
        rows["X"] = np.full(len(records), None, dtype=object)
    for i, record in enumerate(records):
        fields = record if isinstance(record, Mapping) else {"X": record}
        for name, column in rows.items():
            value = fields.get(name)
            if name == "y" and signs:
                column[i] = signs.get(_named(value), np.nan)
            elif column.dtype == object:
                column[i] = value if isinstance(value, str | int | float) else None
            elif name == "X" and by_answer:
                column[i] = _answers(value, column.shape[1])
            else:
                value = labels.get(value) if isinstance(value, str) else value
                column[i] = _numbers(value, column.shape[1:])
    return rows


def check_typed(survey: Survey, value: Any) -> None:
    """Refuse what somebody mistyped who answers by hand, before anything is sent; the message does not repeat it.

    Only for the question's ``X`` alone. Numbers that are out of range are not refused: they are clipped.
    """
    statistic = survey.protocol.statistic
    if survey.protocol.arrays != ("X",):
        names = ", ".join(survey.protocol.arrays)
        raise DataError(f"the question is about the arrays {names}: give them as a record")
    rows = rows_of(survey, [value])
    if statistic.domain == "category":
        if statistic.values(rows)[0] >= 0:
            return
        labels = ", ".join(map(str, survey.labels or getattr(statistic, "labels", ())))
        expected = f"there are: {labels}" if labels else f"expected a number from 0 to {statistic.size - 1}"
        raise DataError(f"the value is no category of the question; {expected}")
    if not np.isfinite(rows["X"]).all():
        raise DataError(f"the value is not what the question asks for: expected {rows['X'].shape[1]} finite numbers")


def _named(value: Any) -> str:
    """The name of a class that is given as itself: a text, or a whole number, which devices may write as 1.0."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


def _labelled(statistic: Statistic) -> bool:
    """Whether the statistic looks its categories up by their labels."""
    return isinstance(statistic, Labelled) or isinstance(getattr(statistic, "category", None), Labelled)


def _of_tasks(statistic: Statistic) -> bool:
    """Whether a record is answers to tasks."""
    return statistic.domain == "answers" or isinstance(getattr(statistic, "statistic", statistic), AnswerSigns)


def _answers(value: Any, n_tasks: int) -> Any:
    """Each answer as a number: NaN where there is none, infinite (no class, a null answer) where it is anything else.

    A list that has not one entry for each task is no record.
    """
    given = value if isinstance(value, list | tuple) else [value]
    if len(given) != n_tasks:
        return np.nan
    if set(map(type, given)) <= {int, float, bool, type(None)}:
        try:
            return np.array(given, dtype=np.float64)
        except OverflowError:
            pass
    return [_answer(cell) for cell in given]


def _answer(cell: Any) -> float:
    try:
        return np.nan if cell is None else float(cell)
    except (TypeError, ValueError, OverflowError):
        return np.inf


def _numbers(value: Any, shape: tuple[int, ...]) -> Any:
    """A number or a list of numbers in the shape of a row; NaN where it is something else."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.nan
    if numbers.size != np.prod(shape, dtype=int) or numbers.ndim > 1:
        return np.nan
    return numbers.reshape(shape)
