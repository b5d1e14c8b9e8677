"""What holds after a run, in one sentence that can be checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from dpdist.privacy.budget import Neighbours

_WHY = {
    "gdp": "closed-form Gaussian DP",
    "pure": "adding their epsilons",
    "gdp+pure": "closed-form Gaussian DP for the Gaussian ones and adding the epsilons of the others",
    "zcdp": "zero-concentrated DP (tight conversion)",
    "rdp": "Renyi DP (best order)",
    "pld": "privacy loss distributions (rounded up)",
}


def _up(number: float) -> str:
    """Six digits, rounded up: the sentence must not promise more than the accountant."""
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(Decimal(repr(float(number))))):.6g}"


@dataclass(frozen=True)
class Guarantee:
    """The differential-privacy guarantee of what was released.

    Parameters
    ----------
    epsilon, delta : float
        ``P(M(D) in S) <= e^epsilon P(M(D') in S) + delta`` for all neighbours D, D' and all S.
    neighbours : Neighbours
    accountant : str
        How the releases were composed (`dpdist.privacy.composition`).
    simulation : bool
        True when noise came from a seed; then nothing holds, and the numbers say what would.
    unit : str
        Whose data one neighbour differs in: "row", "user", ...
    mechanisms : str
        Summary of what was released, e.g. "31 Gaussian releases".
    n_releases : int
    mu : float, optional
        Total mu when everything is Gaussian.

    Examples
    --------
    >>> print(Guarantee(1.0, 1e-6, Neighbours.REPLACE_ONE, "gdp", False, "row", "31 Gaussian releases", 31, 0.237).text)
    Replacing all data of any one row by any other changes the probability of any outcome by at most a factor \
e^1 = 2.718, up to 1e-06: 31 Gaussian releases with exactly bounded sensitivity compose to mu = 0.237 \
(closed-form Gaussian DP).
    """

    epsilon: float
    delta: float
    neighbours: Neighbours
    accountant: str
    simulation: bool
    unit: str = "row"
    mechanisms: str = "releases"
    n_releases: int = 1
    mu: float | None = None

    @property
    def text(self) -> str:
        """What holds, and why."""
        if self.neighbours is Neighbours.REPLACE_ONE:
            change = f"Replacing all data of any one {self.unit} by any other"
        else:
            change = f"Adding or removing all data of any one {self.unit}"
        # beyond e^709 the factor overflows a float; the exponent alone says enough
        factor = f"e^{_up(self.epsilon)}" + (f" = {math.exp(self.epsilon):.4g}" if self.epsilon < 700 else "")
        slack = f", up to {_up(self.delta)}" if self.delta > 0 else ""
        how = _WHY.get(self.accountant, self.accountant)
        if self.mu is None:
            how = f", composed by {how}"
        else:
            how = f" compose{'s' * (self.n_releases == 1)} to mu = {self.mu:.4g} ({how})"
        sentence = (
            f"{change} changes the probability of any outcome by at most a factor {factor}{slack}: {self.mechanisms} "
            f"with exactly bounded sensitivity{how}."
        )
        if not self.simulation:
            return sentence
        return (
            "This is a simulation: its noise came from a seed, so that it can be removed again, and NO guarantee "
            f"holds. With secret noise this would hold: {sentence}"
        )

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """The same for a report, as plain JSON values."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "relation": self.neighbours.value,
            "unit": self.unit,
            "accountant": self.accountant,
            "mechanisms": self.mechanisms,
            "n_releases": int(self.n_releases),
            "simulation": bool(self.simulation),
            "text": self.text,
        }
