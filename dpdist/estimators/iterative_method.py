"""Methods that take rounds: how many is public, and decided before a row is read."""

from __future__ import annotations

from dataclasses import dataclass

from dpdist.estimators.parameters import check_count
from dpdist.method import Method


@dataclass(frozen=True)
class IterativeMethod(Method):
    """A method with a public number of rounds.

    Parameters
    ----------
    n_rounds : int, optional
        Default: by the rule of the method.
    """

    n_rounds: int | None = None

    def __post_init__(self) -> None:
        if self.n_rounds is not None:
            check_count("n_rounds", self.n_rounds)

    @property
    def rounds(self) -> int:
        """The number of rounds, once it is decided."""
        assert self.n_rounds is not None
        return self.n_rounds
