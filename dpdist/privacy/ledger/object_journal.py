"""A journal in an object store: released values and fencing that rest on put-if-absent.

Every opening of a run adds the object ``epoch-N`` with the next free number; a value is an object that can be made
only once. So of two coordinators with one run id the newest goes on, the older sees a newer epoch before it draws
noise, and if both drew, the first value that was stored is the one that both go on with.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from dpdist.errors import Fenced, LedgerError, LedgerUnavailable
from dpdist.objects import Objects, StoreError, StoreUnavailable
from dpdist.privacy.ledger.heads import Head
from dpdist.privacy.ledger.journal import decoded, encoded
from dpdist.privacy.tracebacks import forgetful

_DIGITS = 10
_RECEIPT = "receipt"
_ID, _LEDGERS = "journal=id", "ledgers="  # no run is called so: its name would be quoted


def creates_once(url: str) -> bool:
    """Whether the store at an address enforces put-if-absent; a trial object is made, and deleted again.

    Raises `StoreError` when the store cannot be used, and `DataError` where the address means nothing.
    """
    return Objects(url).creates_once()


class ObjectJournal:
    """The released values of any number of runs below one address.

    Parameters
    ----------
    url : str
        ``s3://bucket/prefix`` or the like (`dpdist.objects`); the store must enforce put-if-absent, which is tried out
        once per opening of a run.
    """

    def __init__(self, url: str) -> None:
        self.path = url
        self._objects = Objects(url)

    @functools.cached_property
    def id(self) -> str:
        """Its random name, made with it: the ledger writes down which journal keeps the values of a run."""
        with _explained(self.path):
            self._objects.create(_ID, secrets.token_hex(16).encode())
            return (self._objects.get(_ID) or b"").decode()

    def remembered(self, ledger: str) -> Head | None:
        """Return the newest head that it was told of a ledger."""
        with _explained(self.path):
            return self._newest(self._objects.listed(f"{_LEDGERS}/{ledger}"))

    def other(self, ledger: str) -> Head | None:
        """Return a head of another ledger than this one, if it was told of any."""
        with _explained(self.path):
            names = self._objects.listed(_LEDGERS)
            return self._newest(name for name in names if not name.startswith(f"{_LEDGERS}/{ledger}/"))

    def _newest(self, keys: Iterable[str]) -> Head | None:
        key = max(keys, default=None)
        token = None if key is None else self._objects.get(key)
        if key is None or token is None:
            return None
        _, ledger, number = key.rsplit("/", 2)
        return Head(ledger, int(number), token.decode())

    def remember(self, head: Head, receipt: Mapping[str, Any] | None = None) -> None:
        """Keep a head, unless a newer one of that ledger is known; an object each, as many are told at once.

        And what was charged for a run.
        """
        folder = f"{_LEDGERS}/{head.ledger}"
        key = f"{folder}/{head.number:0{_DIGITS}d}"
        with _explained(self.path):
            self._objects.create(key, head.token.encode())
            self._objects.delete([older for older in self._objects.listed(folder) if older < key])
            if receipt is not None:
                self._objects.put(f"{quote(str(receipt['run_id']), safe='')}/{_RECEIPT}", json.dumps(receipt).encode())

    def charged(self) -> dict[str, dict[str, Any] | None]:
        """Return the runs that it keeps something of, with what was charged for each; None: it was not told."""
        found: dict[str, dict[str, Any] | None] = {}
        with _explained(self.path):
            for key in self._objects.listed():
                folder, _, name = key.rpartition("/")
                if name == _RECEIPT:
                    found[unquote(folder)] = json.loads(self._objects.get(key) or b"null")
                elif name.startswith("value-"):
                    found.setdefault(unquote(folder))
        return found

    @property
    def called(self) -> str:
        """For messages."""
        return f"the journal {self.path}"

    def knows(self, run_id: str) -> bool:
        """Whether the run was ever opened in it."""
        return self._has(run_id, "epoch-")

    def holds(self, run_id: str) -> bool:
        """Whether it has a value of the run."""
        return self._has(run_id, "value-")

    def _has(self, run_id: str, kind: str) -> bool:
        with _explained(self.path):
            keys = self._objects.listed(quote(run_id, safe=""))
            return any(key.rpartition("/")[2].startswith(kind) for key in keys)

    def open(self, run_id: str) -> ObjectRun:
        """Take the run over: from now on every earlier opener of it is fenced off."""
        run = ObjectRun(self._objects, self.path, run_id)
        run.take_over()
        return run

    def close(self) -> None:
        """Nothing is kept open."""


class ObjectRun:
    """One writer's view of one run; made by `ObjectJournal.open`. ``epoch`` counts the openers of the run."""

    def __init__(self, objects: Objects, url: str, run_id: str) -> None:
        self._objects = objects
        self._url = url
        self.run_id = run_id
        self.epoch = 0
        self._folder = quote(run_id, safe="")
        self._closed = False

    def take_over(self) -> None:
        """Add the next epoch."""
        number = max(self._epochs(after=0), default=0) + 1
        with _explained(self._url):
            while not self._objects.claim(self._epoch_key(number), b""):
                number += 1
        self.epoch = number

    def close(self) -> None:
        """Give up writing this run."""
        self._closed = True

    def check(self) -> None:
        """Raise `Fenced` if another opener has taken the run over; call it before noise is drawn."""
        if self._closed:
            raise LedgerError(f"run {self.run_id!r} was closed here: open it again to go on")
        newer = max(self._epochs(after=self.epoch), default=0)
        if newer:
            raise Fenced(
                f"run {self.run_id!r} was taken over by a newer process (epoch {newer}, this one has {self.epoch}): "
                "stop this one"
            )

    def get(self, release_id: str) -> np.ndarray | None:
        """Return the stored value, None if the release has not been stored."""
        with _explained(self._url):
            data = self._objects.get(self._value_key(release_id))
        if data is None:
            return None
        head, _, body = data.partition(b"\n")
        try:
            dtype, shape, digest = json.loads(head)
        except ValueError:
            dtype, shape, digest = "", "", ""
        if hashlib.sha256(body).hexdigest() != digest:
            raise LedgerError(
                f"the value of a release of run {self.run_id!r} in {self._url} is damaged: restore the object "
                f"{self._value_key(release_id)!r} from a copy"
            )
        return decoded(dtype, shape, body)

    @forgetful
    def put(self, release_id: str, value: np.ndarray) -> np.ndarray:
        """Store a value and return the one that counts; only what is returned may be used.

        Raises
        ------
        Fenced
            If another opener has taken the run over; nothing is stored.
        LedgerError
            If the store cannot be reached, or keeps something else under that name.
        """
        dtype, shape, body = encoded(value)
        self.check()
        head = json.dumps([dtype, shape, hashlib.sha256(body).hexdigest()]).encode()
        with _explained(self._url):
            self._objects.create(self._value_key(release_id), head + b"\n" + body)
        stored = self.get(release_id)
        assert stored is not None, "it is there, or getting it raised"
        return stored

    def _epochs(self, after: int) -> list[int]:
        """The numbers of the openings later than ``after``."""
        with _explained(self._url):
            names = [key.rpartition("/")[2] for key in self._objects.listed(self._folder, after=self._epoch_key(after))]
        return [int(name[-_DIGITS:]) for name in names if name.startswith("epoch-")]

    def _epoch_key(self, number: int) -> str:
        return f"{self._folder}/epoch-{number:0{_DIGITS}d}"

    def _value_key(self, release_id: str) -> str:
        return f"{self._folder}/value-{quote(release_id, safe='')}"


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        kind = LedgerUnavailable if isinstance(error, StoreUnavailable) else LedgerError
        raise kind(
            f"the journal {url} cannot be used ({error.why}): {error.fix}. Nothing may be released; starting the same "
            "run again never charges twice"
        ) from None
