"""Units: what an account is about (a row, an owner of rows, a label, an answer), and what a charge about another costs.

An account adds up guarantees, and a sum means something only if all of them are about the same unit. A charge about
another unit is counted at what it is proved to cost the account's unit, or refused before a row is read. Under
replace-one, with M the run and (epsilon, delta) its guarantee (mu where all noise is Gaussian):

owner -> row, label, answer
    the same. A change of one row of an owner is a change of that owner's data, of which the guarantee holds.
row -> label, answer
    the same. A change of the label, or of one answer, of a row is a change of that row.
answer -> row, m answers in a row
    m times, in m steps. Let D_0 and D_m differ in one row, and let D_i have its first i answers from D_m and the others
    from D_0: neighbours in one answer each. So ``P(M(D_0) in S) <= e^epsilon P(M(D_1) in S) + delta <= ... <=
    e^(m epsilon) P(M(D_m) in S) + (1 + e^epsilon + ... + e^((m-1) epsilon)) delta`` (group privacy), and mu-GDP becomes
    (m mu)-GDP (Dong, Roth and Su 2022, Theorem 3).
answer -> row, where it is public which answers there are
    none. A row with answers to other tasks is no neighbour, in however many steps.
label -> row, owner, answer; answer -> owner, label
    none. A label-level guarantee takes the features for public: it says nothing about a change of them, whatever
    epsilon is.
row -> owner
    none. What is ingested by rows has no bound on the rows of one owner. Where the bound is known (the unit of the
    dataset), the coordinator scales the noise by it, and the guarantee is about owners.
one kind of owner -> another
    none. Nobody told the ledger how patients and households overlap.

Under add-or-remove-one no charge is converted: to change a row is to remove one and to add one, another relation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.budget import Neighbours

ROW, LABEL, ANSWER = "row", "label", "answer"
"""Any other unit is an owner of rows, by its name: "patient", "household"."""
PARTS = (LABEL, ANSWER)
"""Units that are a part of a row."""


@dataclass(frozen=True)
class Protected:
    """What of a row may be anything under a guarantee.

    Attributes
    ----------
    what : str
        In words.
    part : str or None
        ``"label"`` or ``"answer"`` where it is one part of a row only.
    per_row : int
        How many such parts a row has.
    whole_row : bool
        Whether a row is nothing but its parts: then any change of it is one of some of these. It is not where something
        else of it is taken for public, such as which answers there are.
    """

    what: str
    part: str | None = None
    per_row: int = 1
    whole_row: bool = True


ALL_DATA = Protected("all data")


@dataclass(frozen=True)
class About:
    """What a charge is about.

    Attributes
    ----------
    unit : str
        That of the dataset: the owner of rows whose data the guarantee covers, at most; or what its account is about.
    protects : Protected
        What of it the run protects.

    Examples
    --------
    >>> About("patient").charged, About("answer").charged, About("patient", Protected("the label", LABEL)).charged
    ('patient', 'row', 'label')
    """

    unit: str = ROW
    protects: Protected = ALL_DATA

    @property
    def charged(self) -> str:
        """The unit of the guarantee."""
        if self.protects.part is not None:
            return self.protects.part
        return owner_in(self.unit)


ROWS = About()


def owner_in(unit: str) -> str:
    """Whose data is in a dataset of this unit: an owner's, or a row's where the unit is a part of it."""
    return ROW if unit in PARTS else unit


def unit_of_account(about: About, is_new: bool) -> str:
    """What an account is about once it is first charged, where nobody has said so: its dataset's unit.

    Only where there is neither a limit nor a charge, so that nobody has been promised anything yet, a charge about a
    label, which is worth nothing to an account about rows, makes it an account about labels. An answer is worth
    something to rows: its account is about answers only where the dataset says that they are its unit.
    """
    return about.charged if is_new and about.charged == LABEL and about.unit not in PARTS else about.unit


def counted(name: str, unit: str, charge: Charge, about: About) -> Charge:
    """What a charge costs an account about ``unit``; `BudgetError` where nothing is proved.

    Examples
    --------
    >>> counted("d", "row", Charge(0.5), About("patient"))
    Charge(epsilon=0.5, delta=0.0, neighbours=<Neighbours.REPLACE_ONE: 'replace-one'>, mu=None, split=None, fold=None)
    >>> counted("d", "row", Charge(0.5, 1e-9), About("row", Protected("one of 3 answers", ANSWER, 3))).epsilon
    1.5
    """
    own = about.charged
    if own == unit:
        return charge
    if charge.neighbours is Neighbours.REPLACE_ONE:
        if own not in PARTS and (unit in PARTS or unit == ROW):
            return charge
        if own == ANSWER and unit == ROW and about.protects.whole_row:
            return of_group(charge, group_size(unit, about))
    raise BudgetError(
        f"the account of {name!r} is about one {unit}, and the charge is about one {own}"
        f"{_reason(own, unit, charge.neighbours)}: {_alternatives(own, unit)}. Nothing was charged, and no row was read"
    )


def group_size(unit: str, about: About) -> int:
    """How many units of a charge an account about ``unit`` pays for."""
    return 1 if about.charged == unit else about.protects.per_row


def why_dear(unit: str, about: About) -> str:
    """Why a charge was counted several times, and what would be cheaper; empty where it was not.

    Examples
    --------
    >>> why_dear("row", About("row", Protected("one answer", ANSWER, 30)))[:90]
    ' It is 30 times the epsilon of the run, which protects one answer, because the account is '
    """
    size = group_size(unit, about)
    if size == 1:
        return ""
    return (
        f" It is {size} times the epsilon of the run, which protects {about.protects.what}, because the account is "
        f"about one {unit}, which has {size} of them: protect the whole {unit} with one report (unit='record'), or, if "
        f"whoever answers for the data promises no more than that one {about.charged} is protected, write the dataset "
        f"with unit={about.charged!r} and an account of its own. No row was read."
    )


def of_group(charge: Charge, size: int) -> Charge:
    """What a charge costs a group of units that change together (group privacy)."""
    if size == 1:
        return charge
    try:
        steps = math.fsum(math.exp(i * charge.epsilon) for i in range(size)) if charge.delta else 0.0
    except OverflowError:
        steps = math.inf  # no such delta: refused as one of more than 1
    return replace(
        charge,
        epsilon=size * charge.epsilon,
        delta=charge.delta * steps,
        mu=None if charge.mu is None else size * charge.mu,
    )


def _reason(own: str, unit: str, neighbours: Neighbours) -> str:
    if neighbours is not Neighbours.REPLACE_ONE:
        return f", which under {neighbours.value} neighbours cannot be converted"
    if own in PARTS:
        return f", and says nothing about the rest of a {unit}" if unit != ANSWER else ", and an answer is another part"
    return f", and nothing bounds how many {own}s one {unit} has"


def _alternatives(own: str, unit: str) -> str:
    if own in PARTS:
        return (
            f"protect whole rows (a method without private {own}s), or, if whoever answers for the data takes the rest "
            f"of a row for public, give the {own}s an account of their own (dpdist budget set NAME --new --unit {own}, "
            f"and account=NAME of the dataset)"
        )
    return (
        f"declare what one {unit} owns when the data is ingested (dpdist ingest --unit COLUMN --max-rows K, "
        f'from_arrays(unit="{unit}", max_rows_per_unit=K)), or pay from an account that is about one {own}'
    )
