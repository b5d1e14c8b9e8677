"""Encrypted connections to a cluster: certificates from files, and one clear error where they do not open the door.

Dask's TLS is mutual: scheduler, workers and clients all show a certificate, and each trusts whatever the authority in
``ca_file`` has signed. There is no check of host names and no difference between the roles, so the authority has to be
one of this cluster's own: whoever holds a certificate of it can run code beside the data.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distributed.security import Security

from dpdist.engine.addresses import ADDRESS
from dpdist.errors import ClusterError, ClusterUnavailable

FILES = {"ca_file": "tls_ca_file", "cert_file": "tls_client_cert", "key_file": "tls_client_key"}
"""Our names of the three files, and Dask's."""
KEYS = ("address", *FILES)


def is_remote(cluster: object) -> bool:
    """Whether ``cluster`` is the mapping that names a scheduler (and not one that asks for worker processes)."""
    return isinstance(cluster, Mapping) and "address" in cluster


def scheduler_credentials(cluster: str | Mapping[str, Any]) -> tuple[str, Security]:
    """Address and credentials of a scheduler.

    Parameters
    ----------
    cluster : str or mapping
        An address, or ``{address: "tls://host:8786", ca_file, cert_file, key_file}``. Files that are not named are
        taken from Dask's configuration (``distributed.comm.tls.ca-file``, ``.client.cert``, ``.client.key``, or
        ``DASK_DISTRIBUTED__COMM__TLS__CA_FILE`` and so on).

    Raises
    ------
    ClusterError
        When the address is none, a file is missing or is not what it should be, or the three do not belong together.
        Nobody was asked yet.
    """
    given: Mapping[str, Any] = {"address": cluster} if isinstance(cluster, str) else cluster
    if unknown := sorted(set(given) - set(KEYS)):
        raise ClusterError(f"cluster has no key {unknown[0]!r}; expected {', '.join(KEYS)}")
    address = str(given["address"])
    if not re.fullmatch(ADDRESS, address):
        raise ClusterError(
            f"{address!r} is not the address of a scheduler: expected tcp://HOST:PORT or tls://HOST:PORT. Nothing was "
            "charged"
        )
    named = {theirs: str(given[ours]) for ours, theirs in FILES.items() if given.get(ours)}
    encrypted = address.startswith(("tls://", "wss://"))
    if named and not encrypted:
        raise ClusterError(
            f"cluster.address is {address!r}, which is not encrypted, but certificates are given: write tls://HOST:PORT"
        )
    try:
        security = Security(**named, **({"require_encryption": True} if encrypted else {}))
    except ValueError as error:
        raise ClusterError(f"Dask's configuration of TLS is wrong: {error}") from None
    if encrypted:
        _check(address, security)
    return address, security


def _check(address: str, security: Security) -> None:
    """Dask explains none of these: it fails with a TypeError, or waits."""
    files = {ours: getattr(security, theirs) for ours, theirs in FILES.items()}
    lacking = [name for name in ("ca_file", "cert_file") if not files[name]]
    if lacking:
        raise ClusterError(
            f"{address} is encrypted and asks its clients for a certificate, and {' and '.join(lacking)} "
            f"{'is' if len(lacking) == 1 else 'are'} not given: write cluster: {{address: {address}, ca_file: ..., "
            "cert_file: ..., key_file: ...}, or set distributed.comm.tls in Dask's configuration. Nothing was charged"
        )
    for name, text in files.items():
        if text and "\n" not in text:  # else it is the certificate itself
            _readable(name, text)
    try:
        security.get_connection_args("client")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ClusterError(
            "the TLS files do not belong together or are not PEM files "
            f"({type(error).__name__}: {getattr(error, 'reason', None) or 'not understood'}): cert_file "
            f"{files['cert_file']!r} has to be the certificate of the key {files['key_file']!r}. Nothing was charged"
        ) from None


def _readable(name: str, path: str) -> None:
    try:
        content = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ClusterError(
            f"cluster.{name} {path!r} cannot be read ({error.strerror}): check the path and the rights of this "
            "account. Nothing was charged"
        ) from None
    if name == "key_file" and "ENCRYPTED" in content:  # it would be asked for on the terminal, in the middle of a run
        raise ClusterError(
            f"the key in {path!r} is locked with a passphrase, which Dask cannot be given: make a copy without one "
            "(openssl pkey -in KEY -out NEW) that only this account can read"
        )


def refusal(address: str, security: Security) -> tuple[type[ClusterError], str]:
    """Why a scheduler does not let us in, after `distributed.Client` failed; asks the network once more.

    `ClusterError` is what waiting does not change.
    """
    where = urlsplit(address)
    try:
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=3.0) as plain:
            if where.scheme != "tls":
                return ClusterUnavailable, _what_answers(plain)
            context = security.get_connection_args("client")["ssl_context"]
            with context.wrap_socket(plain) as tls:
                tls.recv(1)  # a server that does not like our certificate says so after the handshake (TLS 1.3)
    except ssl.SSLCertVerificationError as error:
        return ClusterError, (
            f"its certificate was not signed by the authority in ca_file ({error.verify_message}): this is another "
            "cluster, or a wrong ca_file"
        )
    except (TimeoutError, socket.gaierror, ValueError, ConnectionRefusedError) as error:
        what = f"nothing answers there ({type(error).__name__}): check the address, and that the scheduler runs"
        return ClusterUnavailable, what
    except OSError as error:
        return _why_closed(error)
    return ClusterUnavailable, _NO_SCHEDULER


_NO_SCHEDULER = "it answers, but not as a Dask scheduler does: compare the versions of dask and distributed"


def _why_closed(error: OSError) -> tuple[type[ClusterError], str]:
    said = str(getattr(error, "reason", None) or type(error).__name__)
    if "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER" in said:
        what = "it does not speak TLS: start it with --tls-ca-file, --tls-cert and --tls-key, or write tcp://"
        return ClusterError, what
    if "ALERT" in said:  # it says so itself; a connection that only ends may be that of a scheduler that ends
        return ClusterError, f"it refused our certificate ({said}): it has to be signed by the authority that it trusts"
    return ClusterUnavailable, f"the connection was closed ({said}): check the address and the TLS settings"


def _what_answers(plain: socket.socket) -> str:
    """A plain connection: a Dask scheduler greets first; one with TLS waits for us and hangs up on what it gets."""
    plain.settimeout(1.0)
    with contextlib.suppress(OSError):
        if plain.recv(1):
            return _NO_SCHEDULER
    return "it answers nothing to a connection without TLS: if it is encrypted, write tls:// and give the certificates"


def certificates_required(address: str) -> bool | None:
    """Whether a scheduler hangs up on a client without a certificate; None where that cannot be found out."""
    where = urlsplit(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # this is about what it asks of us
    try:
        with (
            socket.create_connection((where.hostname or "", where.port or 0), timeout=5.0) as plain,
            context.wrap_socket(plain) as tls,
        ):
            return not tls.recv(1)  # a scheduler that lets us in greets us
    except ssl.SSLError:
        return True
    except TimeoutError:
        return None
    except OSError:
        return True
