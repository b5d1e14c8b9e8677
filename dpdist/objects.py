"""Object stores by address: ``s3://bucket/prefix``, ``gs://...``, ``az://...``, all through obstore.

Who may read is said by the environment, as with every tool of the cloud (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, a role of the machine ...), or by ``storage_options``. A request that fails for a moment (503, a
dropped connection, a slow answer) is sent again; see `RETRIES` for how long.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from dpdist.errors import DataError

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


def _scheme(url: str) -> str:
    return url.partition("://")[0] + "://"
