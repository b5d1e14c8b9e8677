"""How long a round takes on a cluster: a small cost model, and what it suggests for partitions and workers.

One round of T worker threads over n rows of b bytes in P partitions, whose state and summary have k numbers each, takes

    round = latency + k * draw + T * (task + 16 k / link) + ceil(P / T) * block + n b / (T * rate)

where rate is that of memory when the rows stay there, and that of the store when they are read again. What T
multiplies grows because one scheduler and one coordinator serve all threads; the last two terms shrink. So there is a
best T, about ``sqrt(n b / rate / (task + 16 k / link))``, and more threads than that make a round slower.

Assumptions
-----------
- Threads are alike, have what they need at the rates given here, and partitions are dealt evenly (they are: in turn).
- The store serves all threads at once. One disk does not: then ``store`` is its rate divided by the threads.
- State and summary travel once per thread and round, through one link at the coordinator.
- Loading reads everything once, with all checks, and each partition costs ``open`` beside its bytes.
- Rows that stay take at most half of the workers' memory (`dpdist.engine.coordinator.RESIDENT_SHARE`).
- Sums of more than about 2**31 rows need more than 64 bits: partial sums are then Python integers, which adds
  ``wide`` per number and partition.
- Nothing waits for a compiler, a full network or another user.

The constants were measured on two cores of one machine, workers as processes on loopback (``python -m tests.benchmarks
scale`` measures them again and draws them beside the model). What the model says about hundreds of workers is an
extrapolation: the terms per task have been seen up to 32 worker processes, where the model is off by up to 1.4 times.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dpdist.engine.shards import streamed_bytes

GOOD_PARTITION = 32 * 2**20
"""Bytes. Between 16 and 64 MiB a partition takes long enough to be worth a request, and two of them fit anywhere."""
SMALL_PARTITION, LARGE_PARTITION = 4 * 2**20, 256 * 2**20
WORTH_IT = 1.25
"""More threads are suggested only as long as a round is this much longer than the shortest possible one."""
WIDE_ROWS = 2**31


@dataclass(frozen=True)
class Machine:
    """What a cluster is made of; the defaults are those measured, rounded to the slow side.

    Attributes
    ----------
    latency : float
        Seconds of a round without rows: coordinator, ledger, noise, journal.
    draw : float
        Seconds per number of a release: exact noise, and the journal.
    task : float
        Seconds of scheduler and coordinator per task.
    link : float
        Bytes per second between the coordinator and all workers together.
    block : float
        Seconds per partition and round beside its bytes.
    memory, store : float
        Bytes per second of one thread, over rows in memory and from the store.
    open : float
        Seconds to begin reading a partition, once per array.
    wide : float
        Seconds per number and partition where sums need more than 64 bits.
    thread_memory : float
        Bytes of memory of one worker thread.
    """

    latency: float = 0.02
    draw: float = 4e-6
    task: float = 0.002
    link: float = 0.2e9
    block: float = 1e-4
    memory: float = 4e9
    store: float = 0.4e9
    open: float = 2e-3
    wide: float = 1e-7
    thread_memory: float = 4 * 2**30


@dataclass(frozen=True)
class Work:
    """What a run asks for; public numbers.

    Attributes
    ----------
    n_rows, nbytes, partitions : int
        Of the data, decoded.
    size : int
        Numbers in a state and in a summary; the number of features for a gradient.
    rounds : float
        Passes over the data.
    """

    n_rows: int
    nbytes: int
    partitions: int
    size: int
    rounds: float = 1.0


def is_resident(work: Work, threads: int, machine: Machine) -> bool:
    """Whether the rows stay in the workers' memory."""
    return 2 * work.nbytes <= threads * machine.thread_memory


def overhead(work: Work, machine: Machine) -> float:
    """Seconds that each thread adds to a round."""
    return machine.task + 16 * work.size / machine.link


def round_seconds(work: Work, threads: int, machine: Machine = Machine(), resident: bool | None = None) -> float:
    """Seconds of one round.

    Examples
    --------
    >>> work = Work(n_rows=10**9, nbytes=400 * 10**9, partitions=12_000, size=50)
    >>> [round(round_seconds(work, threads), 1) for threads in (10, 100, 1000)]
    [102.6, 10.5, 2.1]
    """
    stay = is_resident(work, threads, machine) if resident is None else resident
    used = min(threads, work.partitions)
    each = -(-work.partitions // used)
    wide = machine.wide * work.size if work.n_rows > WIDE_ROWS else 0.0
    shared = machine.latency + machine.draw * work.size + used * (overhead(work, machine) + wide)
    alone = each * (machine.block + wide) + work.nbytes / (used * (machine.memory if stay else machine.store))
    return shared + alone + (0.0 if stay else each * machine.open)


def load_seconds(work: Work, threads: int, machine: Machine = Machine()) -> float:
    """Seconds until all rows were read once, before anything is charged."""
    used = min(threads, work.partitions)
    each = -(-work.partitions // used)
    return machine.latency + used * machine.task + each * machine.open + work.nbytes / (used * machine.store)


def run_seconds(work: Work, threads: int, machine: Machine = Machine()) -> float:
    """Seconds of loading and all rounds."""
    return load_seconds(work, threads, machine) + work.rounds * round_seconds(work, threads, machine)


def suggested_threads(work: Work, machine: Machine = Machine()) -> int:
    """The fewest worker threads, in powers of two, with which a run takes at most 1.25 times the shortest it can take.

    Examples
    --------
    >>> suggested_threads(Work(n_rows=10**5, nbytes=8 * 10**6, partitions=8, size=10, rounds=30))
    1
    >>> suggested_threads(Work(n_rows=10**9, nbytes=400 * 10**9, partitions=12_000, size=50, rounds=30))
    256
    """
    most = max(1, work.partitions)
    choices = [2**i for i in range(most.bit_length())]
    times = {threads: run_seconds(work, threads, machine) for threads in choices}
    return min(threads for threads in choices if times[threads] <= WORTH_IT * min(times.values()))


def suggested_partition_rows(n_rows: int, nbytes: int) -> int:
    """Rows of a partition of about 32 MiB, less where there would not be 2 for each of a few threads.

    Examples
    --------
    >>> suggested_partition_rows(10**9, 400 * 10**9), suggested_partition_rows(1000, 80_000)
    (83886, 1000)
    """
    row = max(1.0, nbytes / n_rows)
    good = min(GOOD_PARTITION, max(SMALL_PARTITION, nbytes / 16))
    return max(1, min(n_rows, int(good / row)))


def suggestion(
    n_rows: int, nbytes: int, size: int, rounds: float, partition_bytes: int | None = None
) -> dict[str, Any]:
    """What ``dpdist plan`` says about partitions, workers and time.

    Parameters
    ----------
    n_rows, nbytes, size, rounds
        See `Work`.
    partition_bytes : int, optional
        Of the data, if they are partitioned already.

    Returns
    -------
    dict
        ``partition_rows`` (suggested), ``partitions_are`` ("good", "small", "large", or None where there are none),
        ``threads``, ``bytes_per_thread``, ``resident``, ``load_seconds``, ``round_seconds``, ``run_seconds``.
    """
    rows = suggested_partition_rows(n_rows, nbytes)
    bytes_now = partition_bytes or rows * nbytes / n_rows
    work = Work(n_rows, nbytes, max(1, math.ceil(nbytes / bytes_now)), size, rounds)
    machine = Machine()
    threads = suggested_threads(work, machine)
    resident = is_resident(work, threads, machine)
    verdict = None
    if partition_bytes is not None:
        small = partition_bytes < SMALL_PARTITION and work.partitions > 16
        verdict = "small" if small else "large" if partition_bytes > LARGE_PARTITION else "good"
    return {
        "partition_rows": rows,
        "partitions_are": verdict,
        "threads": threads,
        "bytes_per_thread": int(2 * (nbytes / threads if resident else streamed_bytes(int(bytes_now), remote=True))),
        "resident": resident,
        "load_seconds": load_seconds(work, threads, machine),
        "round_seconds": round_seconds(work, threads, machine),
        "run_seconds": run_seconds(work, threads, machine),
        "assumed": asdict(machine),
    }
