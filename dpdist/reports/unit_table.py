"""What a run says in the units of its table, for the report and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ENDS = ["lower end", "upper end"]


@dataclass(frozen=True)
class UnitTable:
    """Rows of names and values, and of the ends of intervals where there are any.

    Examples
    --------
    >>> told = {"label": "late", "names": ["hour", "intercept"], "coefficients": [[0.1, -2.0]]}
    >>> asked = {"params": {"classes": ["no", "yes"]}}
    >>> run = {"original_units": told, "estimator": "LogisticRegression", "asked": asked}
    >>> found = UnitTable.of(run)
    >>> found.caption
    "Change of the log-odds of late = 'yes' for one unit of each column"
    >>> found.head, found.rows[0]
    (['column', 'coefficient'], ('hour', 0.1))
    """

    caption: str
    head: list[str]
    rows: list[tuple[Any, ...]]

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> UnitTable | None:
        """None where the run knows no units of a table."""
        found, again = run.get("original_units"), (run.get("bootstrap") or {}).get("original_units") or {}
        if not found:
            return None
        by_fits = "intervals" in again and "intervals" not in found
        found = again if by_fits else found
        values, sure = found["coefficients"], "intervals" in found
        ends = found["intervals"] if sure else [[()] * len(found["names"]) for _ in values]
        owners = [f"{one}: " for one in _classes(run)] if 1 < len(values) == len(_classes(run)) else [""] * len(values)
        rows = [
            (f"{owner}{name}", value, *interval)
            for owner, one, those in zip(owners, values, ends, strict=True)
            for name, value, interval in zip(found["names"], one, those, strict=True)
        ]
        means = "mean" in ((run.get("released") or {}).get("arrays") or {})
        caption = "Means of the columns" if means else f"Change of {_of_what(run)} for one unit of each column"
        head = ["column", "mean" if means else "coefficient", *(ENDS * sure)]
        if sure:
            caption += f", with intervals of {100 * found['level']:g} %"
        return cls(caption + (" (without the bias of the method)" if by_fits else ""), head, rows)


def _classes(run: Mapping[str, Any]) -> list[Any]:
    return list(((run.get("asked") or {}).get("params") or {}).get("classes") or ())


def _of_what(run: Mapping[str, Any]) -> str:
    """What the coefficients change: the label, or the log-odds or the score of a class."""
    label, classes = run["original_units"]["label"] or "the label", _classes(run)
    if not classes:
        return str(label)
    score = "log-odds" if str(run.get("estimator")).endswith("LogisticRegression") else "score"
    return f"the {score} of {label} = {classes[1]!r}" if len(classes) == 2 else f"the {score} of each {label}"
