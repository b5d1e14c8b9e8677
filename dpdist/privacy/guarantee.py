"""What holds after a run, in one sentence that can be checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Literal

from dpdist.html import card, escape, percent, warning
from dpdist.privacy.budget import Neighbours

_WHY = {
    "gdp": "closed-form Gaussian DP",
    "pure": "adding their epsilons",
    "gdp+pure": "closed-form Gaussian DP for the Gaussian ones and adding the epsilons of the others",
    "basic": "adding their epsilons and deltas, with closed-form Gaussian DP for Gaussian ones",
    "zcdp": "zero-concentrated DP (tight conversion)",
    "rdp": "Renyi DP (best order)",
    "pld": "privacy loss distributions (rounded up)",
}

_LEDGER_ALONE = (
    " That the account stays within its limit over all runs rests on the ledger alone: the dataset could not be "
    "written, so another ledger, or an older copy of it, may go unnoticed."
)


def rounded_up(number: float) -> str:
    """Six digits, rounded up: what is written must not promise more than the accountant.

    Examples
    --------
    >>> rounded_up(0.99999991), rounded_up(1e-6)
    ('1', '1e-06')
    """
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(Decimal(repr(float(number))))):.6g}"


def best_guess(epsilon: float, delta: float = 0.0) -> float:
    """Largest chance of telling two equally likely neighbours apart, by anybody who sees everything released.

    ``(e^epsilon + delta) / (1 + e^epsilon)``: half of one plus the largest total variation distance that
    (epsilon, delta) allows (Kairouz, Oh and Viswanath 2015). For ``delta = 0`` it is also what a suspicion of 50 % can
    become at most.

    Examples
    --------
    >>> round(best_guess(1.0), 4), best_guess(1000.0, 1e-6), best_guess(0.0)
    (0.7311, 1.0, 0.5)
    """
    doubt = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return min(1.0, 1 - doubt + delta * doubt)


def suspicion(epsilon: float, delta: float = 0.0) -> tuple[float, float]:
    """Where a suspicion of 50 % can end at most, and the chance of an outcome that moves it further.

    Without delta: ``e^epsilon / (1 + e^epsilon)``, always. With it: the odds stay below ``e^epsilon / 0.9`` but with a
    chance of at most ``10 delta``. On the event B that they don't, ``Q(B) < 0.9 e^-epsilon P(B)``, and
    ``P(B) <= e^epsilon Q(B) + delta < 0.9 P(B) + delta``.

    Examples
    --------
    >>> [round(v, 4) for v in (*suspicion(1.0), *suspicion(1.0, 1e-6))]
    [0.7311, 0.0, 0.7513, 0.0]
    """
    return (best_guess(epsilon - math.log(0.9)), min(1.0, 10 * delta)) if delta > 0 else (best_guess(epsilon), 0.0)


@dataclass(frozen=True)
class Guarantee:
    """The differential-privacy guarantee of what was released.

    Parameters
    ----------
    epsilon, delta : float
        ``P(M(D) in S) <= e^epsilon P(M(D') in S) + delta`` for all neighbours D, D' and all S.
    neighbours : Neighbours
    accountant : str
        How the releases were composed (`dpdist.privacy.accounting.composition`).
    simulation : bool
        True when noise came from a seed; then nothing holds, and the numbers say what would.
    unit : str
        Whose data one neighbour differs in: "row", "user", ...
    mechanisms : str
        Summary of what was released, e.g. "31 Gaussian releases".
    n_releases : int
    mu : float, optional
        Total mu when everything is Gaussian.
    model : {"central", "local"}
        Whether it holds for what leaves a trusted place, or already for every single report.
    protects : str
        What of a unit may be anything: "all data", unless a part of it counts as public.
    rows_per_unit : int
        How many rows of the dataset a unit can have, at most.
    ledger_alone : bool
        Whether the account has a limit that only the ledger knows, because the dataset could not be written.
    parts : int
        How many of what it protects a unit has; all of them together have so many times epsilon.

    Notes
    -----
    An outcome is what was released and whatever else a run shows, logs or writes outside the store. How many bytes the
    chunks of a store take is no part of it (they tell counts), nor are tracebacks and times: these are not public.

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
    model: Literal["central", "local"] = "central"
    protects: str = "all data"
    rows_per_unit: int = 1
    ledger_alone: bool = False
    parts: int = 1

    @property
    def text(self) -> str:
        """What holds, and why."""
        rows = "" if self.rows_per_unit == 1 else f" (at most {self.rows_per_unit} rows, as they are stored)"
        if self.neighbours is Neighbours.REPLACE_ONE:
            change = f"Replacing {self.protects} of any one {self.unit}{rows} by any other"
        else:
            change = f"Adding or removing {self.protects} of any one {self.unit}{rows}"
        # beyond e^709 the factor overflows a float; the exponent alone says enough
        factor = f"e^{rounded_up(self.epsilon)}" + (f" = {math.exp(self.epsilon):.4g}" if self.epsilon < 700 else "")
        if self.parts > 1:
            factor += f" (replacing all {self.parts} of them: e^{rounded_up(self.parts * self.epsilon)})"
        slack = f", up to {rounded_up(self.delta)}" if self.delta > 0 else ""
        if self.model == "local":
            return self._marked(
                f"In the local model: {change[0].lower()}{change[1:]} changes the probability of any report by at most "
                f"a factor {factor}{slack}, so it holds against everybody, whoever collects the reports included. "
                f"Every {self.unit} reports once."
            )
        how = _WHY.get(self.accountant, self.accountant)
        if self.mu is None:
            how = f", composed by {how}"
        else:
            how = f" compose{'s' * (self.n_releases == 1)} to mu = {self.mu:.4g} ({how})"
        return self._marked(
            f"{change} changes the probability of any outcome by at most a factor {factor}{slack}: {self.mechanisms} "
            f"with exactly bounded sensitivity{how}."
        )

    def _marked(self, sentence: str) -> str:
        if not self.simulation:
            return sentence + (_LEDGER_ALONE if self.ledger_alone else "")
        return (
            "This is a simulation: its noise came from a seed, so that it can be removed again, and NO guarantee "
            f"holds. With secret noise this would hold: {sentence}"
        )

    def __str__(self) -> str:
        return self.text

    def summary_html(self) -> str:
        """The sentence and what it means for a single person, as HTML (escaped)."""
        note = warning("Simulation.", "The noise came from a seed: no guarantee holds.") if self.simulation else ""
        chance = best_guess(self.epsilon, self.delta)
        meaning = (
            f"Whoever suspects something about one {self.unit}, with a chance of 50 %, and sees everything released, "
            f"guesses right at most {percent(chance)} of the time."
        )
        hypothetical = "With secret noise: " if self.simulation else ""
        return f'{note}<p>{escape(self.text)}</p><p class="soft">{escape(hypothetical + meaning)}</p>'

    def _repr_html_(self) -> str:
        title = f"Guarantee: epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)}"
        return card(title, self.summary_html())

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
            "model": self.model,
            "protects": self.protects,
            "text": self.text,
        }
