"""What may be spent, and between which datasets the guarantee holds."""

from __future__ import annotations

import enum
import math
import numbers
from dataclasses import dataclass
from typing import ClassVar
from unicodedata import is_normalized

import numpy as np

from dpdist.errors import BudgetError, warn_caller


class Neighbours(enum.Enum):
    """Which two datasets count as neighbours (spec README, section 1.2).

    Examples
    --------
    >>> Neighbours("replace-one").sum_factor, Neighbours("add-or-remove-one").sum_factor
    (2, 1)
    >>> from dpdist import Mean
    >>> model = Mean(second_moment=5.0, neighbours="add-or-remove-one", n_public=20_000, epsilon=1.0, delta=1e-6)
    >>> model.plan(20_000, 4)
    Plan: (1, 1e-06)-DP of (1, 1e-06), add-or-remove-one, by gdp
    name  mechanism  count  strength  cost      sampling  fold
    sum   Gaussian   1      0.236704  gaussian
    """

    REPLACE_ONE = "replace-one"
    """The number of units is public; all rows of one of them are replaced by any others. The default."""
    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    """It is private; one privacy unit is added or removed. Divisors are declared constants."""

    @classmethod
    def _missing_(cls, value: object) -> Neighbours:
        raise BudgetError(f"neighbours={value!r} is not known; choose 'replace-one' or 'add-or-remove-one'")

    @property
    def sum_factor(self) -> int:
        """Sensitivity of a sum of contributions of norm at most C, in units of C."""
        return 2 if self is Neighbours.REPLACE_ONE else 1


_LONGEST_NAME = 200


def check_account(name: object) -> str:
    """Return the name of an account; `BudgetError` if it is none.

    Names are read by people and stand beside paths in commands: one line of text, without slashes. Accents are one
    character with their letter (Unicode's NFC): names that look the same would be two accounts, each with a limit.

    Examples
    --------
    >>> check_account("survey-2026")
    'survey-2026'
    >>> check_account("data/survey.zarr")
    Traceback (most recent call last):
    dpdist.errors.BudgetError: 'data/survey.zarr' cannot be the name of an account: expected one line of 1 to 200 \
characters without slashes, with no blank at either end and accents composed (NFC), such as survey-2026
    """
    plain = isinstance(name, str) and name.isprintable() and name == name.strip() and 0 < len(name) <= _LONGEST_NAME
    if not plain or not isinstance(name, str) or set(name) & set("/\\") or not is_normalized("NFC", name):
        raise BudgetError(
            f"{name!r} cannot be the name of an account: expected one line of 1 to {_LONGEST_NAME} characters without "
            "slashes, with no blank at either end and accents composed (NFC), such as survey-2026"
        )
    return name


@dataclass(frozen=True)
class Budget:
    """What may be spent: (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float, default 0
        In [0, 1). There is no silent default above 0: Gaussian noise needs ``delta > 0``, and it should be far
        below one over the number of rows.

    Examples
    --------
    >>> Budget(1.0, 1e-6)
    Budget(epsilon=1.0, delta=1e-06)
    """

    tag: ClassVar[str] = "Budget"

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if not isinstance(value, numbers.Real) or isinstance(value, bool):
                raise BudgetError(f"{name} must be a number, got {value!r}")
            if isinstance(value, np.generic):  # comparisons with one are no Python truth, and few bits round
                object.__setattr__(self, name, value.item())
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise BudgetError(f"epsilon must be a positive finite number, got {self.epsilon!r}; try epsilon=1.0")
        if not 0 <= self.delta < 1:
            raise BudgetError(f"delta must lie in [0, 1), got {self.delta!r}; try delta=1e-6, far below 1/n_rows")

    def warn_if_delta_is_large(self, n_rows: int) -> None:
        """Warn when ``delta >= 1/n_rows``: releasing one row at random would already satisfy such a delta."""
        if self.delta * n_rows >= 1:
            warn_caller(
                f"delta = {self.delta:g} is not below 1/n_rows = {1 / n_rows:g}: a mechanism that publishes one "
                "random row would satisfy it. Choose a delta far below 1/n_rows."
            )
