"""Where a ledger stands: a chain of random heads that others remember, so that an older copy of it is noticed.

Every write that charges, commits or sets a limit adds one head: the next number, and a random token that is derived
from nothing. Whoever was told a head (a journal, a run's record, a dataset) can tell later that a ledger is another
one, that it is older than what was seen of it, or that it went on from an older copy: then its token of that number is
another one. A head says nothing about the data, nor about what was charged.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dpdist.errors import Forgotten
from dpdist.privacy.ledger.sqlite import utc_now
from dpdist.privacy.ledger.transaction import Transaction

_LEDGER = "SELECT id FROM dpdist_ledger"
_HEAD = "SELECT id, number, token FROM dpdist_ledger CROSS JOIN dpdist_heads ORDER BY number DESC LIMIT 1"
_TOKEN = "SELECT token FROM dpdist_heads WHERE number = ?"
_RECALLED = "SELECT 1 FROM dpdist_recalled WHERE number = ? AND token = ?"
_ADD_RECALLED = "INSERT INTO dpdist_recalled (number, token) VALUES (?, ?) ON CONFLICT DO NOTHING"
_ORIGIN = "SELECT 1 FROM dpdist_origins WHERE account = ? AND ledger = ?"
_ADD_TAKEN = "INSERT INTO dpdist_taken (ledger, number, token) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_TAKEN = "SELECT 1 FROM dpdist_taken WHERE ledger = ? AND number = ? AND token = ?"
_CHARGES = """SELECT head.number, head.token FROM dpdist_heads AS head JOIN dpdist_runs AS run
    ON run.number = head.number WHERE run.account = ? AND run.number <= ? ORDER BY run.number DESC LIMIT ?"""
_FIRST = "SELECT number, token FROM dpdist_heads ORDER BY number LIMIT 1"
_ALL_OF = 32
"""As many charges back a fork of the past is found exactly, and farther back to within its distance."""
_ADD_HEAD = "INSERT INTO dpdist_heads (number, token, what, subject, written_at) VALUES (?, ?, ?, ?, ?)"
_MOST = 2**62
"""The largest number that is believed: a database keeps one more bit, so that it goes on from whatever is restored."""
_ADD_LEDGER = "INSERT INTO dpdist_ledger (id) VALUES (?)"


@dataclass(frozen=True)
class Head:
    """What somebody remembers of a ledger.

    Attributes
    ----------
    ledger : str
        Its random id.
    number : int
        How many writes it had seen that charge, commit or set a limit.
    token : str
        The random word of that write.
    """

    ledger: str
    number: int
    token: str

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Head:
        """The head that `to_dict` wrote down; raises ValueError, KeyError or TypeError where it did not."""
        number = int(values["number"])
        if not 0 <= number <= _MOST:
            raise ValueError(f"a head has a number from 0 to {_MOST}, got {number}")
        return cls(str(values["ledger"]), number, str(values["token"]))


class Witness(Protocol):
    """Who remembers where a ledger stood: a journal elsewhere, the record of a run, a dataset."""

    @property
    def called(self) -> str:
        """For messages: ``"the journal s3://bucket/journal"``."""

    def remembered(self, ledger: str) -> Head | None:
        """The newest head that it was told of this ledger; of another one, where it may have no other."""

    def remember(self, head: Head, receipt: Mapping[str, Any] | None = None) -> None:
        """Keep a head durably, unless a newer one of that ledger is known; and what was just charged for a run."""


def begin(db: Transaction, number: int) -> None:
    """Give a ledger its id and its first head, which is numbered as if ``number`` writes had been counted."""
    db.execute(_ADD_LEDGER, (secrets.token_hex(16),))
    db.execute(_ADD_HEAD, (number, secrets.token_hex(16), "begin", "", utc_now()))


def adopt(db: Transaction, ledger: str) -> None:
    """Give a new ledger the id of one that was lost, in whose place it is made."""
    db.execute("UPDATE dpdist_ledger SET id = ?", (ledger,))


def read_head(db: Transaction) -> Head:
    """The newest head."""
    return Head(*db.execute(_HEAD).fetchone())


def read_id(db: Transaction) -> str:
    """The random id of the ledger."""
    return str(db.execute(_LEDGER).fetchone()[0])


def read_past(db: Transaction, account: str, until: int) -> list[tuple[int, str]]:
    """Heads of charges on an account up to a number, all of the last ones and ever fewer of those before.

    Whoever remembers them can tell later from where on a ledger has gone another way.
    """
    found = db.execute(_CHARGES, (account, until, _ALL_OF)).fetchall()
    for power in range(until.bit_length()):
        found += db.execute(_CHARGES, (account, until - 2**power, 1)).fetchall()
    found += db.execute(_FIRST).fetchall()
    return sorted({(int(number), str(token)) for number, token in found})


def common_until(db: Transaction, past: Sequence[tuple[int, str]]) -> int:
    """The newest of these heads that the ledger has, -1 for none: up to there it has the same past."""
    known = (number for number, token in past if db.execute(_TOKEN, (number,)).fetchone() == (token,))
    return max(known, default=-1)


def advance(db: Transaction, what: str, subject: str, past: int = 0) -> Head:
    """Add a head, in the transaction that does what it stands for; its number is above ``past``, too."""
    before = read_head(db)
    head = Head(before.ledger, max(before.number, past) + 1, secrets.token_hex(16))
    db.execute(_ADD_HEAD, (head.number, head.token, what, subject, utc_now()))
    return head


def check_head(db: Transaction, path: str, remembered: Head, by: str, account: str | None = None) -> None:
    """Refuse a ledger that is not the one that was seen before, or has lost what it held then.

    Parameters
    ----------
    db : transaction
    path : str
        Of the ledger, for the message.
    remembered : Head
    by : str
        Who remembers it, for the message: ``"the journal /srv/journal.sqlite"``.
    account : str, optional
        Which account is to be charged: the ledgers that it was moved from (`dpdist.privacy.ledger.moving`) are its
        past.
    """
    now = read_head(db)
    if now == remembered:  # as in most rounds of most runs: nobody else has written
        return
    lost = "If that is lost, charge again what is remembered of it: 'dpdist budget restore --help'"
    comes_from = account is not None and came_from(db, account, remembered.ledger)
    if remembered.ledger != now.ledger and not comes_from:
        raise Forgotten(
            f"{by} belongs to the ledger with the id {remembered.ledger}, and {path} is another one ({now.ledger}): "
            "name the ledger that was used before, or restore it from its newest copy; to go on in another one, move "
            f"the account there ('dpdist budget move --help'). Nothing was charged or drawn"
        )
    if stands_on(db, remembered):
        return
    if remembered.ledger != now.ledger:
        raise Forgotten(
            f"the account {account!r} was moved to {path} from a ledger with another past than what {by} remembers of "
            f"it (entry {remembered.number}): it had been restored from a copy that has forgotten charges. {lost}. "
            "Nothing was charged or drawn"
        )
    if now.number < remembered.number:
        raise Forgotten(
            f"the ledger {path} is older than what {by} remembers of it (entry {now.number}, and entry "
            f"{remembered.number} was seen): it was restored from a copy that has forgotten charges. Restore its "
            f"newest state, the write-ahead log included. {lost}. Nothing was charged or drawn"
        )
    raise Forgotten(
        f"the ledger {path} has another history than what {by} remembers of it (they differ at or before entry "
        f"{remembered.number}): it was restored from an older copy and written to since, or two copies of it are "
        f"in use. Put back the one that was used before. {lost}. Nothing was charged or drawn"
    )


def stands_on(db: Transaction, remembered: Head) -> bool:
    """Whether a ledger has all that it had charged up to a head of it, or has charged it again since it lost it."""
    if remembered.ledger != read_id(db):
        return db.execute(_TAKEN, (remembered.ledger, remembered.number, remembered.token)).fetchone() is not None
    row = db.execute(_TOKEN, (remembered.number,)).fetchone()
    known = row is not None and row[0] == remembered.token
    return known or db.execute(_RECALLED, (remembered.number, remembered.token)).fetchone() is not None


def came_from(db: Transaction, account: str, ledger: str) -> bool:
    """Whether an account was charged in another ledger before it was moved here."""
    return db.execute(_ORIGIN, (account, ledger)).fetchone() is not None


def mark_recalled(db: Transaction, remembered: Head) -> None:
    """Write down that it has been."""
    if remembered.ledger == read_id(db):
        db.execute(_ADD_RECALLED, (remembered.number, remembered.token))
    else:
        db.execute(_ADD_TAKEN, (remembered.ledger, remembered.number, remembered.token))
