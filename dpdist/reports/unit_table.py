"""What a run says in the units of its table, for the report and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class UnitTable:
    """Rows of (name, value, lower end, upper end), what they are, and why there are no intervals if there are none.

    Examples
    --------
    >>> told = {"label": "late", "names": ["hour", "intercept"], "coefficients": [[0.1, -2.0]]}
    >>> asked = {"params": {"classes": ["no", "yes"]}}
    >>> run = {"original_units": told, "estimator": "LogisticRegression", "asked": asked, "inference": {"none": "why"}}
    >>> found = UnitTable.of(run)
    >>> found.caption
    "Change of the log-odds of late = 'yes' for one unit of each column"
    >>> found.rows[0], found.missing
    (('hour', 0.1, None, None), 'No intervals: why.')
    """

    caption: str
    value: str
    rows: list[tuple[Any, ...]]
    missing: str = ""

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> UnitTable | None:
        """None where the run knows no units of a table."""
        found = run.get("original_units")
        if not found:
            return None
        classes = ((run.get("asked") or {}).get("params") or {}).get("classes") or ()
        several = len(found["coefficients"]) > 1
        owners = [f"{one}: " for one in classes] if several and len(classes) == len(found["coefficients"]) else []
        ends = found.get("intervals") or [[(None, None)] * len(found["names"]) for _ in found["coefficients"]]
        rows = [
            (f"{owner}{name}", value, *interval)
            for owner, one, sure in zip(owners or [""] * len(ends), found["coefficients"], ends, strict=True)
            for name, value, interval in zip(found["names"], one, sure, strict=True)
        ]
        means = "mean" in ((run.get("released") or {}).get("arrays") or {})
        caption = "Means of the columns" if means else f"Change of {_of_what(run, found)} for one unit of each column"
        sure = f", with intervals of {100 * found['level']:g} %" if "intervals" in found else ""
        reason = (run.get("inference") or {}).get("none")
        missing = f"No intervals: {reason}." if not sure and reason else ""
        return cls(caption + sure, "mean" if means else "coefficient", rows, missing)


def _of_what(run: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """What the coefficients change: the label, or the log-odds or the score of a class."""
    label, classes = found["label"] or "the label", ((run.get("asked") or {}).get("params") or {}).get("classes")
    if not classes:
        return str(label)
    score = "log-odds" if str(run.get("estimator")).endswith("LogisticRegression") else "score"
    return f"the {score} of {label} = {classes[1]!r}" if len(classes) == 2 else f"the {score} of each {label}"
