"""Is a deployment what the guarantee and the run need? Each check finds one thing, and says what to do about it.

Nothing here reads a private value or writes to a ledger: rows are read by the workers and forgotten there, what is
written is rolled back or deleted. `examine` looks at a cluster, `dpdist.engine.doctor_stores` at what is stored.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import dask
from distributed import Client, wait
from distributed.versions import get_versions

from dpdist.data import Dataset
from dpdist.engine.connection import Connection, Lost, new_client
from dpdist.engine.disks import is_encrypted_or_memory
from dpdist.engine.security import certificates_required
from dpdist.engine.versions import versions
from dpdist.engine.workers import SAME_IMAGE
from dpdist.errors import ClusterError, DataError

Status = Literal["ok", "warn", "fail"]
CLOCKS_AGREE = 2.0
"""Seconds. Clocks decide nothing about noise or budget, only what the records say; certificates and signed requests
to object stores fail at minutes."""
PATIENCE = 60.0
"""Seconds for a worker to read one partition, or to import dpdist."""
HARMLESS_PAGES = "distributed.http.health"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    check : str
    status : {"ok", "warn", "fail"}
        "fail": the guarantee, the account or the run is at stake.
    says : str
    fix : str
        What to do; empty where nothing has to be done.
    """

    check: str
    status: Status
    says: str
    fix: str = ""


def examine_cluster(cluster: Any, dataset: Dataset | None = None) -> list[Finding]:
    """Examine a Dask cluster, and whether its workers can read a dataset.

    Parameters
    ----------
    cluster : str, mapping, distributed.Client, cluster object or None
        As a `Coordinator` takes it. None and ``"threads"``: this process, for which there is nothing to check.
    dataset : Dataset, optional
    """
    if cluster is None or cluster == "threads":
        return [Finding("cluster", "ok", "the map stage runs in threads of this process")]
    found: list[Finding] = []
    try:
        client = cluster if isinstance(cluster, Client) else new_client(cluster)
        connection = Connection(client, owned=client is not cluster)
        try:
            found += _examine(connection, dataset)
        finally:
            connection.close()
    except (ClusterError, Lost) as error:
        found.append(Finding("cluster", "fail", str(error), "see the message"))
    return found


def _examine(connection: Connection, dataset: Dataset | None) -> Iterator[Finding]:
    workers = connection.workers()
    if not workers:
        yield Finding("workers", "fail", "the scheduler has no workers", "start some with 'dask worker ADDRESS'")
        yield _encryption(connection.address, [])
        return
    there = connection.ask_workers(versions, workers, PATIENCE)  # they may have to import it first
    yield _answers(workers, there)
    yield _encryption(connection.address, list(workers))
    same = _versions(connection, there)
    yield same
    if same.status == "fail":
        yield Finding("other checks", "warn", "not made: they run dpdist on the workers", "make the versions equal")
        return
    before = time.time()
    seen = connection.ask_workers(_look_at_worker, there)
    boss = connection.ask_scheduler(_look_at_scheduler())
    after = time.time()
    everybody = {"the scheduler": boss, **seen}
    if refused := [what for what in everybody.values() if isinstance(what, Exception)]:
        yield Finding("settings", "warn", f"cannot be asked for ({type(refused[0]).__name__})", SAME_IMAGE)
        return
    yield _pages({where: what["pages"] for where, what in everybody.items()})
    yield from clocks({where: (what["clock"], before, after) for where, what in everybody.items()})
    yield _spilling(seen)
    yield _memory_limits(seen)
    yield from _lost_workers(boss, [address for address, worker in workers.items() if worker.get("nanny")])
    if dataset is not None:
        yield _readable(connection.client, list(there), dataset)


def _answers(workers: Mapping[str, Any], there: Mapping[str, Any]) -> Finding:
    silent = [address for address in workers if address not in there]
    if silent:
        return Finding(
            "workers",
            "fail",
            f"{len(silent)} of {len(workers)} workers ({_some(silent)}) do not answer within {PATIENCE:g} s: they are "
            "stopped, cut off or overloaded, and runs do without them",
            "look at their machines and logs, and start them anew",
        )
    threads = sum(worker["nthreads"] for worker in workers.values())
    return Finding("workers", "ok", f"{len(workers)} workers with {threads} threads")


# -- who can listen, and who gets in ------------------------------------------------------------------------------


def _encryption(scheduler: str, workers: list[str]) -> Finding:
    plain = [address for address in (scheduler, *workers) if not address.startswith(("tls://", "wss://", "inproc://"))]
    if not plain:
        if scheduler.startswith("tls://") and certificates_required(scheduler) is False:
            return Finding(
                "encryption",
                "fail",
                "connections are encrypted, and the scheduler lets clients in without a certificate: anyone who "
                "reaches it can run code beside the data",
                "start scheduler and workers with --tls-ca-file, --tls-cert and --tls-key",
            )
        return Finding("encryption", "ok", "scheduler and workers speak TLS and refuse who has no certificate")
    if all(is_loopback(address) for address in plain):
        return Finding("encryption", "ok", "not encrypted, and nothing leaves this machine; its accounts are trusted")
    return Finding(
        "encryption",
        "fail",
        f"{len(plain)} of {1 + len(workers)} parties ({_some(plain)}) speak without TLS: un-noised sums pass the "
        "network readable, and anyone who reaches the scheduler can run code beside the data",
        "give all of them --tls-ca-file, --tls-cert and --tls-key, and write tls:// (see deploy/SECURITY.md)",
    )


def is_loopback(address: str) -> bool:
    """Whether an address or host can be reached from this machine only.

    Examples
    --------
    >>> is_loopback("tcp://127.0.0.1:8786"), is_loopback("tcp://10.0.0.1:8786"), is_loopback("[::1]:8787")
    (True, False, True)
    """
    host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _pages(pages: Mapping[str, Mapping[str, Any]]) -> Finding:
    open_ = [
        f"{where} at {address}"
        for where, what in pages.items()
        if what["bokeh"] or set(what["routes"]) - {HARMLESS_PAGES}
        for address in what["addresses"]
        if not is_loopback(address)
    ]
    if open_:
        return Finding(
            "dashboard",
            "fail",
            f"pages without a password show workers, tasks, logs and call stacks: {_some(open_)}",
            f"set distributed.scheduler.http.routes and distributed.worker.http.routes to [{HARMLESS_PAGES}] and start "
            "with --no-dashboard, or bind them to this machine with --dashboard-address 127.0.0.1:8787",
        )
    return Finding("dashboard", "ok", "closed, or for this machine only")


# -- one program everywhere ---------------------------------------------------------------------------------------


def _versions(connection: Connection, answers: Mapping[str, Any]) -> Finding:
    parties: dict[str, dict[str, str]] = {}
    for address, there in answers.items():
        parties[address] = dict(there) if isinstance(there, Mapping) else {"dpdist": "missing"}
    refused = {name for there in parties.values() for name, v in versions().items() if there.get(name) != v}
    others = {"the scheduler": connection.ask_scheduler(get_versions), **connection.ask_workers(get_versions, answers)}
    everybody = {"the client": get_versions(), **{w: v for w, v in others.items() if isinstance(v, Mapping)}}
    differ = {}
    for name in ("python", "dask", "distributed", "numpy", "msgpack", "cloudpickle"):
        groups = {str((party.get("packages") or {}).get(name)) for where, party in everybody.items() if party}
        if len(groups) > 1:
            differ[name] = sorted(groups)
    if refused:
        values = {n: sorted({there.get(n, "missing") for there in (versions(), *parties.values())}) for n in refused}
        text = "; ".join(f"{name}: {', '.join(values[name])}" for name in sorted(values))
        return Finding("versions", "fail", f"client and workers differ, so runs are refused ({text})", SAME_IMAGE)
    if differ:
        text = "; ".join(f"{name}: {', '.join(values)}" for name, values in differ.items())
        return Finding("versions", "warn", f"client, scheduler and workers differ ({text})", SAME_IMAGE)
    return Finding("versions", "ok", f"the same everywhere: dpdist {versions()['dpdist']}, Python, numpy, numba, Dask")


# -- settings -----------------------------------------------------------------------------------------------------


def _look_at_worker(dask_worker: Any) -> dict[str, Any]:
    memory = dask_worker.memory_manager
    return {
        "clock": time.time(),
        "limit": memory.memory_limit,
        "spills": type(memory.data) is not dict,
        "folder": dask_worker.local_directory,
        "safe": is_encrypted_or_memory(dask_worker.local_directory),
        "pages": {
            "addresses": _listening(dask_worker),
            "routes": dask.config.get("distributed.worker.http.routes"),
            "bokeh": bool(dask_worker.http_application.applications),
        },
    }


def _listening(node: Any) -> list[str]:
    if getattr(node, "http_server", None) is None:
        return []
    names = [socket.getsockname() for socket in node.http_server._sockets.values()]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port, *_ in names]


def _look_at_scheduler() -> Callable[..., Any]:
    """The scheduler need not have dpdist: a function within a function is sent as it is."""

    def look(dask_scheduler: Any) -> dict[str, Any]:
        import time

        import dask

        server = getattr(dask_scheduler, "http_server", None)
        names = [] if server is None else [s.getsockname() for s in server._sockets.values()]
        return {
            "clock": time.time(),
            "worker-ttl": dask_scheduler.worker_ttl,
            "allowed-failures": dask_scheduler.allowed_failures,
            "pages": {
                "addresses": [f"[{n[0]}]:{n[1]}" if ":" in n[0] else f"{n[0]}:{n[1]}" for n in names],
                "routes": dask.config.get("distributed.scheduler.http.routes"),
                "bokeh": bool(dask_scheduler.http_application.applications),
            },
        }

    return look


def clocks(readings: Mapping[str, tuple[float, float, float]]) -> Iterator[Finding]:
    """Compare clocks with ours: ``(theirs, ours before they were read, ours after)``.

    Only what cannot be explained by the time that the answer took counts as a difference.
    """
    off = {where: max(before - there, there - after, 0.0) for where, (there, before, after) in readings.items()}
    wrong = {where: seconds for where, seconds in off.items() if seconds > CLOCKS_AGREE}
    if wrong:
        yield Finding(
            "clocks",
            "warn",
            f"{_some(wrong)} differ from this machine's clock by up to {max(wrong.values()):.0f} s. No noise and no "
            "charge depends on a clock; times in the ledger and in logs do, and TLS and object stores fail at minutes",
            "let all machines follow one time server (chrony, systemd-timesyncd)",
        )
    else:
        yield Finding(
            "clocks", "ok", f"{', '.join(readings) if len(readings) < 3 else len(readings)} within {CLOCKS_AGREE:g} s"
        )


def _spilling(seen: Mapping[str, Mapping[str, Any]]) -> Finding:
    spilling = [where for where, what in seen.items() if what["spills"] and not what["safe"]]
    if not spilling:
        return Finding("spilling", "ok", "rows and un-noised sums stay in memory, or on an encrypted disk")
    return Finding(
        "spilling",
        "fail",
        f"{_some(spilling)} may write rows and un-noised sums to {seen[spilling[0]]['folder']}, which is not encrypted",
        "set distributed.worker.memory.target and .spill to false, or --local-directory to an encrypted or memory disk",
    )


def _memory_limits(seen: Mapping[str, Mapping[str, Any]]) -> Finding:
    without = [where for where, what in seen.items() if not what["limit"]]
    if not without:
        return Finding("memory", "ok", "every worker has a memory limit")
    return Finding(
        "memory",
        "warn",
        f"{_some(without)} have no memory limit, so how many rows they can keep is guessed from this machine",
        "start workers with --memory-limit, as large as what the container or machine gives them",
    )


def _lost_workers(boss: Mapping[str, Any], nannies: list[str]) -> Iterator[Finding]:
    ttl, failures = boss["worker-ttl"], boss["allowed-failures"]
    if not ttl or ttl > 60:
        after = "never" if not ttl else f"after {ttl:g} s"
        yield Finding(
            "lost workers",
            "warn",
            f"a worker that is cut off silently is noticed {after}; a run finds out in about a minute, and then reads "
            "all rows again",
            "set distributed.scheduler.worker-ttl to 15-20 s (longer than a worker is silent while it compiles)",
        )
    elif nannies:
        yield Finding(
            "lost workers",
            "warn",
            f"{_some(nannies)} have a nanny, which delays worker-ttl to 40 s where the whole machine is cut off",
            "start workers with --no-nanny where something else restarts them (Kubernetes, systemd)",
        )
    elif ttl < 10:
        yield Finding(
            "lost workers",
            "warn",
            f"worker-ttl is {ttl:g} s, and a worker that compiles its kernels sends no heartbeat for seconds",
            "set distributed.scheduler.worker-ttl to 15-20 s",
        )
    else:
        yield Finding("lost workers", "ok", f"noticed after {ttl:g} s, and their rows are read again by others")
    if not 1 <= failures <= 10:
        yield Finding(
            "allowed failures",
            "warn",
            f"a task is given up after {failures + 1} workers died with it",
            "set distributed.scheduler.allowed-failures to 1-3: preempted machines are forgiven, and a task that kills "
            "its workers ends soon",
        )


# -- data ---------------------------------------------------------------------------------------------------------


def _readable(client: Client, workers: list[str], dataset: Dataset) -> Finding:
    """Let every worker read the first partition of every array."""
    if dataset.in_memory:
        return Finding(
            "data", "warn", "the rows are in this process's memory, and are sent to the workers", "store them"
        )
    sources, rows = [dataset.source(name) for name in dataset.arrays], dataset.partitions[0]
    name = f"dpdist-doctor-{secrets.token_hex(8)}"
    futures = {
        address: client.submit(_read, sources, rows, key=f"{name}-{i}", workers=[address], pure=False)
        for i, address in enumerate(workers)
    }
    with contextlib.suppress(TimeoutError), client.as_current():
        wait(list(futures.values()), timeout=PATIENCE)
    done = {
        address: future.result() if future.status == "finished" else "no answer" for address, future in futures.items()
    }
    client.cancel(list(futures.values()))
    bad = {address: problem for address, problem in done.items() if problem}
    if not bad:
        return Finding("data", "ok", f"every worker reads {len(sources)} arrays of the dataset {dataset.id}")
    first = next(iter(bad))
    return Finding(
        "data",
        "fail",
        f"{len(bad)} of {len(workers)} workers ({_some(bad)}) cannot read the dataset: {bad[first]}",
        "mount the same path on all workers, or use an object store and give the workers its credentials",
    )


def _read(sources: list[Any], rows: tuple[int, int]) -> str:
    """Empty, or why not; the text of an unexpected exception may quote a value and stays on the worker."""
    try:
        for source in sources:
            source.verify(*rows)
    except DataError as error:
        return str(error)
    except Exception as error:
        return type(error).__name__
    return ""


def _some(names: Iterable[str], most: int = 3) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
