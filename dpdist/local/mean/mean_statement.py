"""What a user of means in the local model states about the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpdist.errors import MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.method import Noted

DOMAINS = ("interval", "box", "l2", "l1", "heavy-tailed")
RANGE = "pass the public range of a feature; what lies outside is moved to its ends"
RADIUS = "pass a public bound of the l2 norm of a record; longer ones are scaled down to it"
HELP = {
    "low": RANGE,
    "high": RANGE,
    "radius": RADIUS,
    "l1_radius": "pass a public bound of the l1 norm of the mean",
    "second_moment": BOUNDS["second_moment"],
}
"""What each public number is, for whoever forgot it."""


@dataclass(frozen=True)
class Records(Noted):
    """What a user of `Mean` states about the records; see there.

    ``method`` is not part of it, the rest is.
    """

    tag: ClassVar[str] = "Records"

    domain: str
    low: float | None = None
    high: float | None = None
    radius: float | None = None
    l1_radius: float | None = None
    second_moment: float | None = None
    n_groups: int = 1
    levels: tuple[float, ...] = ()

    def need(self, name: str) -> float:
        """A bound that has to be given."""
        value = getattr(self, name)
        if value is None:
            raise MissingBound(f"{name} is missing: {HELP[name]}")
        return float(value)
