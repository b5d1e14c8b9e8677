"""Object stores by address: ``s3://bucket/prefix``, ``gs://...``, ``az://...``, all through obstore.

Who may read is said by the environment, as with every tool of the cloud (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, a role of the machine ...), or by ``storage_options``. obstore sends a request again for a moment
(`RETRIES`); a store that stays away (refused connections, 503, answers that are cut off) is waited for by `patiently`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

from dpdist.errors import DataError, DpdistError, Unavailable
from dpdist.patience import Patience

Result = TypeVar("Result")

SCHEMES = ("s3://", "gs://", "az://")
RETRIES: dict[str, Any] = {
    "max_retries": 1000,  # that is, until the time is over
    "retry_timeout": timedelta(seconds=3),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=1), "base": 2},
}
CLIENT: dict[str, Any] = {
    "timeout": timedelta(minutes=10),  # of a whole answer, which may be a large chunk on a slow line
    "read_timeout": timedelta(seconds=10),  # without a word
    "connect_timeout": timedelta(seconds=3),
}
PAGE = 1000
"""So many keys are listed at a time."""
_METADATA = "169.254."
"""Where a machine of a cloud finds its role; obstore asks there when it was given nothing else."""


def is_object_store(location: object) -> bool:
    """Whether a location is the address of an object store."""
    return isinstance(location, str) and location.startswith(SCHEMES)


def object_store(url: str, options: dict[str, Any] | None = None) -> Any:
    """The obstore store at an address.

    Parameters
    ----------
    url : str
    options : dict, optional
        What obstore's stores take (``endpoint``, ``region``, ``access_key_id``, ``skip_signature`` ...), in place of
        the environment's. ``allow_http`` (or ``AWS_ALLOW_HTTP``) is for servers without TLS.

    Raises
    ------
    DataError
        Where obstore is missing, or makes nothing of the address or the options; never quotes an option's value.
    """
    try:
        from obstore.store import from_url
    except ImportError:
        raise DataError(f"{_scheme(url)} needs the package obstore: pip install 'dpdist[s3]'") from None
    make: Any = from_url
    options = dict(options or {})
    plain = options.pop("allow_http", os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"))
    client = CLIENT | {"allow_http": bool(plain)}
    try:
        return make(url, retry_config=RETRIES, client_options=client, **options)
    except Exception as error:
        problem = type(error).__name__
    raise DataError(
        f"the address {_scheme(url)}... or its storage_options ({', '.join(sorted(options)) or 'none'}) are not "
        f"understood ({problem}); expected for example s3://bucket/prefix, with options that obstore knows"
    )


class StoreError(DpdistError):
    """A store that cannot be used: in words why and what to do, without what the store said, which may quote secrets.

    Attributes
    ----------
    why, fix : str
    """

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(f"{why}: {fix}")
        self.why, self.fix = why, fix


class StoreUnavailable(StoreError, Unavailable):
    """A store that was away for longer than it is waited for."""


class Interposed(Exception):
    """Something between here and the store answered in its place, such as a page that asks to log in to a network."""


def from_the_store(key: str, answer: Any) -> Any:
    """An answer of obstore to a request for an object, if it is one of a store.

    Every store says an object's tag or when it was made, and none calls what is no page ``text/html``.
    """
    untagged = answer.meta["e_tag"] is None and answer.meta["last_modified"].timestamp() == 0
    kind = str(answer.attributes.get("Content-Type", ""))
    if untagged or (kind.startswith("text/html") and not key.endswith(".html")):
        raise Interposed
    return answer


def patiently(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, which asks an object store, and ask again while the store is away.

    Raises
    ------
    StoreUnavailable
        Where it stays away.
    StoreError
        Where it refuses. All else that `work` raises passes, a missing object too.
    """
    patience = Patience(since=time.monotonic())
    while True:
        try:
            return work()
        except Exception as error:
            problem = _problem(error)
            if problem is None:
                raise
        if not isinstance(problem, StoreUnavailable) or not patience.wait():
            raise problem


class Objects:
    """The objects below one address, each read and written as a whole.

    Every method raises `StoreError` when the store cannot be used.

    Parameters
    ----------
    url : str
    options : dict, optional
        As of `object_store`.
    """

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        self._store = object_store(url, options)

    def get(self, key: str) -> bytes | None:
        """What an object holds; None if there is none."""
        try:
            return patiently(lambda: bytes(from_the_store(key, self._store.get(key)).bytes()))
        except FileNotFoundError:
            return None

    def put(self, key: str, data: bytes) -> None:
        """Make an object, or replace it: a reader finds the old one or the new one."""
        _in_bucket(lambda: self._store.put(key, data))

    def create(self, key: str, data: bytes) -> bool:
        """Make an object unless there is one; whether it was made, as far as the store's answers came through."""

        def create() -> bool:
            try:
                self._store.put(key, data, mode="create")
            except Exception as error:
                if type(error).__name__ == "AlreadyExistsError":
                    return False
                raise
            return True

        return _in_bucket(create)

    def claim(self, key: str, data: bytes) -> bool:
        """The same, where all depends on it: a store that would make the object twice is refused."""
        made = self.create(key, data)
        if made and self.create(key, data):
            with contextlib.suppress(StoreError):
                self.delete([key])
            raise StoreError(
                "it does not enforce put-if-absent, so two processes could both go on with one run",
                "use a store that does (Amazon S3, Google Cloud Storage, Azure, MinIO)",
            )
        return made

    def creates_once(self) -> bool:
        """Whether the store enforces put-if-absent; a trial object is made, and deleted again."""
        key = f"trial-{secrets.token_hex(8)}"
        try:
            self.create(key, b"")
            return not self.create(key, b"")
        finally:
            with contextlib.suppress(StoreError):
                self.delete([key])

    def listed(self, folder: str | None = None, after: str | None = None, most: int | None = None) -> list[str]:
        """The keys below a folder, in order, and after a key: all, or the first ones."""

        def keys() -> list[str]:
            pages = self._store.list(folder, offset=after)
            found = list(islice((entry["path"] for page in pages for entry in page), most))
            if len(found) % PAGE == 0 and len(found) != most:
                # a page of something else would pass for an empty one: a store does not have what nobody made
                with contextlib.suppress(FileNotFoundError):
                    self._store.head(f"nothing-{secrets.token_hex(8)}")
                    raise Interposed
            return found

        return _in_bucket(keys)

    def delete(self, keys: list[str]) -> None:
        """Delete objects; one that is not there is no error."""

        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                patiently(functools.partial(self._store.delete, key))


def _in_bucket(work: Callable[[], Result]) -> Result:
    """The same as `patiently`, for requests that miss nothing but a bucket."""
    try:
        return patiently(work)
    except FileNotFoundError:
        pass
    raise _no_bucket()


def _no_bucket() -> StoreError:
    return StoreError("there is no such bucket", "check the address, or make the bucket first")


def _problem(error: Exception) -> StoreError | None:
    """In words, what obstore raised; listing has no kinds of errors, only the server's status."""
    if isinstance(error, Interposed):
        return StoreUnavailable(
            "something else answers in place of the store",
            "check the endpoint in the environment, and whether the network asks to log in",
        )
    if isinstance(error, FileNotFoundError) or not type(error).__module__.startswith("obstore"):
        return None
    kind, said = type(error).__name__, str(error)
    found = re.search(r"status code: (\d{3})", said)
    status = int(found[1]) if found else None
    if status is None:  # the others: something else came as the rest of an answer, or in place of one
        strange = ("Content-Range header not present", "Header missing from response", "Got invalid")
        transient = "HTTP error:" in said or any(words in said for words in strange)
    else:  # those of 520 and more are what networks in front of a store say when they do not reach it
        transient = status in (408, 425, 429, 500, 502, 503, 504) or status >= 520
    if _METADATA in said and not (transient and status):
        return StoreError(
            "no credentials were found", "set them in the environment, for example AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or run where the machine has a role",
        )  # fmt: skip
    if "builder error" in said:
        return StoreError(
            "the endpoint cannot be used", "check its address; one without TLS (http://) needs AWS_ALLOW_HTTP=true"
        )
    if status in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return StoreError(
            "access was refused",
            "check the credentials in the environment, that they may get, put, list and delete objects there, and the "
            "clock of this machine",
        )
    if status == 404:
        return _no_bucket()
    if status == 507:
        return StoreError("the store is full (status 507)", "make room and start the same run again")
    what = f"({kind}{f', status {status}' if status else ''})"
    if transient:
        return StoreUnavailable(
            f"the store cannot be reached, or does not answer as it should {what}",
            "check the address, the endpoint in the environment and that the store can be reached",
        )
    return StoreError(f"the store refuses the request {what}", "check the address, the region and the options")


def _scheme(url: str) -> str:
    return url.partition("://")[0] + "://"
