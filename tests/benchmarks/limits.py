"""How far the machine allows: reading memory, decoding, drawing random words are the rulers, in CPU seconds."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import dask
import numpy as np
import zarr
from numba import njit, types
from numba.core import cgutils

from dpdist import Dataset
from dpdist.engine import coordinator as engine
from dpdist.kernels.block_pass import writable
from dpdist.kernels.block_steps import LANES, _fold, _i64, _load, _prefetch, _slots, intrinsic
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.grid import grid_for
from dpdist.local import simulate
from dpdist.local.randomisers.frequency import ORACLES
from dpdist.local.randomisers.scalars import Hybrid, LaplaceScalar, OneBit, Piecewise
from dpdist.local.statistics.categories import Category
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.losses import Logistic
from dpdist.privacy.mechanisms.selection import select
from dpdist.privacy.randomness.bits import SystemBits
from dpdist.privacy.randomness.discrete import rounded_gaussian
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.privacy.randomness.streams import Stream
from dpdist.problems import linear_problems as synthetic
from tests.benchmarks.engine import rounds
from tests.benchmarks.measure import BENCHMARKS, benchmark, best_of

AT_ONCE = 8
"""Vectors that are added to as many registers in one turn of the loop."""
FETCHED_AHEAD = 4096
"""Bytes between what is added and what is asked for."""


@intrinsic
def _add_all(typingctx: Any, values: Any) -> Any:
    """The sum of a flat array, in any order; what does not fill the last turn is left out."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        (size,) = cgutils.unpack_tuple(builder, array.shape)
        slots, turn = _slots(builder, AT_ONCE), AT_ONCE * LANES
        ahead = FETCHED_AHEAD // (8 if signature.args[0].dtype == types.float64 else 4)
        whole = builder.and_(size, _i64(-turn))
        with cgutils.for_range_slice(builder, _i64(0), whole, _i64(turn), _i64) as (start, _):
            for i, slot in enumerate(slots):
                place = builder.add(start, _i64(i * LANES))
                _prefetch(builder, array.data, builder.add(place, _i64(ahead)))
                builder.store(builder.fadd(builder.load(slot), _load(builder, array.data, place)), slot)
        folded = _fold(builder, [builder.load(slot) for slot in slots])
        return builder.extract_element(folded, _i64(0))

    return types.float64(values), codegen


@njit(nogil=True)
def _read(values):  # type: ignore[no-untyped-def]
    return _add_all(values)


def read_limit(X: np.ndarray) -> float:
    """Read an array once, as fast as one core can: vector loads that are asked for ahead, and one addition each."""
    return float(_read(writable(X).reshape(-1)))


SHARES = {
    ("float64", 10): 0.6, ("float64", 50): 0.85, ("float64", 200): 0.8, ("float64", 1000): 0.8,
    ("float64", 20_000): 0.8, ("float32", 50): 0.65, ("float32", 200): 0.65, ("float32", 1000): 0.7,
}  # fmt: skip
"""Of the speed of reading, which a clipped gradient pass is to reach."""
MATRIX_BYTES = 2**27


@functools.cache
def _rows(dtype: str, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    n = MATRIX_BYTES // (d * np.dtype(dtype).itemsize)
    return rng.normal(size=(n, d)).astype(dtype), np.where(rng.random(n) < 0.5, -1.0, 1.0), rng.normal(size=d) / d


def _gradient(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    bound = math.sqrt(X.shape[1])
    return glm_gradient(X, y, w, Logistic(), row_norm=bound, clip_norm=bound, grid=grid_for(bound))


def _share(dtype: str, d: int) -> tuple[float, str]:
    X, y, w = _rows(dtype, d)
    _gradient(X, y, w), read_limit(X)
    read, ours = best_of(lambda: read_limit(X), lambda: _gradient(X, y, w), repeats=20, clock=time.thread_time)
    few = tuple(array[: max(8, 2**22 // X[0].nbytes)] for array in (X, y))  # in a cache
    calls = 4
    (cached,) = best_of(lambda: [_gradient(*few, w) for _ in range(calls)], repeats=5, clock=time.thread_time)
    _rows.cache_clear()
    apart = len(few[0]) * calls / cached * X[0].nbytes
    return read / ours, (
        f"clipped gradient pass over {d} columns of {dtype}, one core, as a share of reading them "
        f"({X.nbytes / read / 1e9:.0f} GB/s); rows that lie in a cache already pass at {apart / 1e9:.0f} GB/s, and "
        "reading and computing overlap in part only"
        + (", and derivative, factors and labels of a row take as long as reading it" if d <= 10 else "")
    )


for (_dtype, _d), _goal in SHARES.items():
    benchmark(f"read-share-{_dtype}-{_d}", f">= {_goal}")(functools.partial(_share, _dtype, _d))


@benchmark("read-share-two-threads", ">= 0.85")
def read_share_two_threads() -> tuple[float, str]:
    X, y, w = _rows("float64", 50)
    half = len(X) // 2
    parts = [(X[:half], y[:half], w), (X[half:], y[half:], w)]
    with ThreadPoolExecutor(2) as pool:
        read, ours = best_of(
            lambda: list(pool.map(lambda part: read_limit(part[0]), parts)),
            lambda: list(pool.map(lambda part: _gradient(*part), parts)),
        )
    return read / ours, "the same over 50 columns with two threads, against reading with two, by wall time"


def _stream(compression: Any, n: int = 1_000_000, d: int = 50) -> tuple[float, float, float]:
    """CPU seconds of an epoch, of the kernel alone on a map of the same bytes, and of decoding alone."""
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/rows.zarr"
        raw, _ = synthetic.logit(n, d, store=f"{folder}/raw.zarr")
        X, y = (np.concatenate([raw.source(name).read(*r) for r in raw.partitions]) for name in ("X", "y"))
        labels, w = np.where(y > 0, 1.0, -1.0), np.zeros(d)
        X.tofile(f"{folder}/rows")
        mapped = np.memmap(f"{folder}/rows", np.float64, "r").reshape(n, d)
        dataset = Dataset.from_arrays(place, X=X, y=y, compression=compression)
        arrays: list[Any] = [zarr.open_array(f"{place}/{name}", mode="r") for name in ("X", "y")]
        times: dict[str, list[float]] = {"epoch": [], "kernel": [], "decode": []}

        def kernel(ranges: list[tuple[int, int]]) -> None:
            for rows in (slice(*edges) for edges in ranges):
                glm_gradient(mapped[rows], labels[rows], w, Logistic(), row_norm=1, clip_norm=1, grid=grid_for(1.0))

        begun = 0.0

        def between(done: int) -> None:
            nonlocal begun
            if done > 2:
                times["epoch"].append(time.process_time() - begun)
            for name, action in (
                ("kernel", lambda: list(pool.map(kernel, (dataset.partitions[::2], dataset.partitions[1::2])))),
                ("decode", lambda: [array[slice(*rows)] for rows in dataset.partitions for array in arrays] and None),
            ):
                start = time.process_time()
                action()
                times[name].append(time.process_time() - start)
            begun = time.process_time()

        with (
            ThreadPoolExecutor(2) as pool,
            mock.patch.object(engine, "RESIDENT_SHARE", 0.0),
            dask.config.set(num_workers=2),
        ):
            rounds(dataset, 20, between=between)
    return min(times["epoch"]), min(times["kernel"]), min(times["decode"])


@benchmark("stream-raw", "<= 1.5")
def stream_raw() -> tuple[float, str]:
    epoch, kernel, decode = _stream("none")
    return epoch / kernel, (
        "CPU seconds of a streamed epoch over 1e6 x 50 raw numbers in a local store, two threads, against the kernel "
        f"on a memory map of the same bytes; Zarr's reading alone: {decode / kernel:.1f}; share of the epoch outside "
        f"the kernel: {1 - kernel / epoch:.2f}. The limit: rows are compared with what they were, a second reading of "
        "all of them (.8), and mapped anew for every sum (.3)"
    )


@benchmark("stream-zstd", "<= 1.2")
def stream_zstd() -> tuple[float, str]:
    epoch, kernel, decode = _stream("zstd")
    return epoch / decode, (
        "CPU seconds of a streamed epoch over the same in zstd, against decoding alone (numcodecs by Zarr); the kernel "
        f"takes {kernel / decode:.2f} of decoding"
    )


@benchmark("gaussian-draws", ">= 5")
def gaussian_draws() -> tuple[float, str]:
    n, bits = 2**14, SystemBits()
    rounded_gaussian(2.0**38, n, bits)
    ours, numpy = best_of(
        lambda: rounded_gaussian(2.0**38, n, bits),
        lambda: np.random.default_rng(0).normal(size=n),
        repeats=40,
        clock=time.thread_time,
    )
    return (
        n / ours / 1e6,
        f"million exact rounded Gaussians a second and core; NumPy's inexact ones: {n / numpy / 1e6:.0f}",
    )


@benchmark("gaussian-share", "<= 0.1")
def gaussian_share() -> tuple[float, str]:
    d, n = 100_000, 2000
    X, y, w = np.random.default_rng(0).normal(size=(n, d)), np.ones(n), np.zeros(d)
    noise, fit = best_of(
        lambda: rounded_gaussian(2.0**38, d, SystemBits()),
        lambda: _gradient(X, y, w),
        repeats=5,
        clock=time.thread_time,
    )
    return noise / (noise + fit), f"share of noise in a round with 1e5 columns and {n} rows; less with more rows"


_words = StreamDraws.words


@benchmark("randomisers", "<= 3")
def randomisers() -> tuple[float, str]:
    rng, n = np.random.default_rng(0), 4096
    numbers = rng.uniform(-1, 1, size=(n, 1))
    cases: dict[str, tuple[Any, np.ndarray]] = {
        kind.name: (kind(1, 1.0), numbers) for kind in (OneBit, Piecewise, Hybrid, LaplaceScalar)
    }
    for name, oracle in ORACLES.items():
        for k in (64, 1024):
            cases[f"{name} {k}"] = (oracle(k, 2.0), rng.integers(0, k, n))
    stream, ratios = Stream(bytes(32), "benchmark"), {}
    for name, (randomiser, values) in cases.items():
        words: list[int] = []

        def counted(self: StreamDraws, m: int, words: list[int] = words) -> np.ndarray:
            words.append(m)
            return _words(self, m)

        with mock.patch.object(StreamDraws, "words", counted):
            randomiser.summarise(values, StreamDraws(stream.generator(0)))
        ours, alone = best_of(
            lambda r=randomiser, v=values: r.summarise(v, StreamDraws(stream.generator(0))),
            lambda words=words: StreamDraws(stream.generator(0)).words(sum(words)),
            repeats=10,
            clock=time.thread_time,
        )
        ratios[name] = ours / alone
    told = ", ".join(f"{name} {ratio:.1f}" for name, ratio in sorted(ratios.items(), key=lambda item: -item[1]))
    return max(ratios.values()), (
        f"reports and their sum, against drawing the words that they take: {told}. The limit of olh 1024: 4.2 million "
        "pairs of a user and a value, sixteen in five vector instructions, take three times as long as its words"
    )


@benchmark("counts", "<= 1")
def counts() -> tuple[float, str]:
    k, n = 1000, 8_000_000_000
    people = np.random.default_rng(0).multinomial(n, np.full(k, 1 / k))
    seconds = {}
    for name, oracle in ORACLES.items():
        if oracle.has_counts:
            protocol = LocalProtocol(Category(k), oracle(k, 1.0))
            (seconds[name],) = best_of(
                functools.partial(simulate, protocol, counts=people), repeats=3, clock=time.thread_time
            )
    told = ", ".join(f"{name} {s:.3f}" for name, s in seconds.items())
    return max(seconds.values()) / 2, f"of two CPU seconds for 8e9 users in {k} categories, given by counts: {told}"


@benchmark("billion-users", "<= 60")
def billion_users() -> tuple[float, str]:
    n, k, stream, seconds = 4096, 100, Stream(bytes(32), "benchmark"), {}
    values = np.random.default_rng(0).integers(0, k, n)
    for name, oracle in ORACLES.items():
        made = oracle(k, 2.0)
        (best,) = best_of(
            lambda o=made: o.summarise(values, StreamDraws(stream.generator(0))), repeats=20, clock=time.thread_time
        )
        seconds[name] = best / n * 1e9
    told = ", ".join(f"{name} {s:.0f}" for name, s in seconds.items())
    return max(
        seconds.values()
    ), f"CPU seconds for 1e9 users in {k} categories, all reports drawn, by {n} of them: {told}"


@benchmark("selection-time", "<= 2")
def selection_time() -> tuple[float, str]:
    flat, peaked = np.zeros(200_000, np.int64), np.zeros(200_000, np.int64)
    peaked[-1] = 10**9
    bits = SystemBits()
    easy, hard = best_of(
        lambda: select(flat, 1.0, 1.0, bits), lambda: select(peaked, 1.0, 1.0, bits), repeats=40, clock=time.thread_time
    )
    return hard / easy, (
        f"selection among 2e5 peaked scores ({1e3 * hard:.2f} ms) against flat ones ({1e3 * easy:.3f} ms): it depends "
        "on the scores, which the guarantee does not cover (deploy/SECURITY.md)"
    )


def _cpu_of(*words: str) -> float:
    """CPU seconds of a program, the least of several."""
    seconds = []
    for _ in range(4):
        before = os.times()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(seconds)


def _start(*words: str) -> tuple[float, str]:
    parts = "import dask, distributed, numba, numpy, pyarrow, scipy.special, zarr"
    ours, theirs = _cpu_of(*words), _cpu_of("-c", parts)
    return ours / theirs, f"CPU seconds {ours:.2f}, against {theirs:.2f} for the packages that it is made of"


@benchmark("first-estimator", "<= 2")
def first_estimator() -> tuple[float, str]:
    ratio, told = _start("-c", "import dpdist; dpdist.LogisticRegression()")
    return ratio, f"from the start of Python to a first estimator: {told}"


@benchmark("first-plan", "<= 2.4")
def first_plan() -> tuple[float, str]:
    ratio, told = _start("-m", "dpdist.cli", "plan", "dp-gd")
    return ratio, f"'dpdist plan dp-gd': {told}"


LIMITS = [
    name
    for name, (_, function) in BENCHMARKS.items()
    if getattr(getattr(function, "func", function), "__module__", None) == __name__
]
"""The rows of the page of the documentation."""


def processor() -> str:
    """What it calls itself."""
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'an unknown processor'}, {os.cpu_count()} cores"
