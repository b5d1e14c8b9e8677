"""Object stores by address: ``s3://bucket/prefix``, ``gs://...``, ``az://...``, all through obstore.

Who may read is said by the environment, as with every tool of the cloud (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, a role of the machine ...), or by ``storage_options``. A request that fails for a moment (503, a
dropped connection, a slow answer) is sent again; see `RETRIES` for how long.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from dpdist.errors import DataError, DpdistError

SCHEMES = ("s3://", "gs://", "az://")
RETRIES: dict[str, Any] = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
}
CLIENT: dict[str, Any] = {"timeout": timedelta(seconds=30), "connect_timeout": timedelta(seconds=5)}


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


def zarr_objects(url: str, options: dict[str, Any] | None = None) -> Any:
    """The same as a Zarr store."""
    from zarr.storage import ObjectStore

    return ObjectStore(object_store(url, options))


class StoreError(DpdistError):
    """A store that cannot be used: in words why and what to do, without what the store said, which may quote secrets.

    Attributes
    ----------
    why, fix : str
    """

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(f"{why}: {fix}")
        self.why, self.fix = why, fix


class Objects:
    """The objects below one address, each read and written as a whole.

    Every method raises `StoreError` when the store cannot be used.

    Parameters
    ----------
    url : str
    """

    def __init__(self, url: str) -> None:
        self._store = object_store(url)

    def get(self, key: str) -> bytes | None:
        """What an object holds; None if there is none."""
        with _explained():
            try:
                return bytes(self._store.get(key).bytes())
            except FileNotFoundError:
                return None

    def put(self, key: str, data: bytes) -> None:
        """Make an object, or replace it: a reader finds the old one or the new one."""
        with _explained():
            self._store.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Make an object unless there is one; whether it was made."""
        with _explained():
            try:
                self._store.put(key, data, mode="create")
            except Exception as error:
                if type(error).__name__ == "AlreadyExistsError":
                    return False
                raise
            return True

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

    def listed(self, folder: str | None = None, after: str | None = None) -> Iterator[str]:
        """The keys below a folder, in order, and after a key; page by page."""
        with _explained():
            for page in self._store.list(folder, offset=after):
                yield from (entry["path"] for entry in page)

    def delete(self, keys: list[str]) -> None:
        """Delete objects; one that is not there is no error."""
        with _explained():
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    self._store.delete(key)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
        return
    except Exception as error:
        why, fix = _problem(error)
    raise StoreError(why, fix)


def _problem(error: Exception) -> tuple[str, str]:
    """Why and what to do, for what obstore raised; listing has no kinds of errors, only the server's status."""
    kind, status = type(error).__name__, re.search(r"status code: (\d{3})", str(error))
    code = "" if status is None else status[1]
    if code in ("401", "403") or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return "access was refused", (
            "check the credentials in the environment, and that they may get, put, list and delete objects there"
        )
    if code == "404" or isinstance(error, FileNotFoundError):
        return "there is no such bucket", "check the address, or make the bucket first"
    return f"the store does not answer as it should ({kind}{code and f', status {code}'})", (
        "check the address, the endpoint in the environment and that the store can be reached"
    )


def _scheme(url: str) -> str:
    return url.partition("://")[0] + "://"
