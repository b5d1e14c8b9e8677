"""How many simulated users report per second, one by one: against other packages, or drawing random numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.frequency import OUE
from dpdist.local.randomisers.vectors import PrivUnitG
from dpdist.local.statistics.bounded_values import Ball, Box
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.privacy.randomness.streams import Stream
from tests.benchmarks.measure import benchmark, best_of
from tests.local.survey.parities import Parities

CATEGORIES, EPSILON, FEW = 128, 1.0, 1000


@functools.cache
def oue_seconds_per_user() -> tuple[float, float, float]:
    """Ours, pure-ldp's and multi-freq-ldpy's, randomising and adding up; in turns, on one core."""
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    values = np.random.default_rng(0).integers(0, CATEGORIES, size=4096)
    few = values[:FEW].tolist()
    oracle, stream = OUE(CATEGORIES, EPSILON), Stream(bytes(32), "benchmark")

    def ours() -> None:
        for block in range(16):
            oracle.summarise(values, StreamDraws(stream.generator(block)))

    def pure_ldp() -> None:
        same: Any = lambda value: value  # noqa: E731
        client = UEClient(EPSILON, CATEGORIES, use_oue=True, index_mapper=same)
        server = UEServer(EPSILON, CATEGORIES, use_oue=True, index_mapper=same)
        for value in few:
            server.aggregate(client.privatise(value))

    def multi_freq_ldpy() -> None:
        np.sum([UE_Client(value, CATEGORIES, EPSILON, True) for value in few], axis=0)

    for compile_first in (ours, multi_freq_ldpy):
        compile_first()
    first, second, third = best_of(ours, pure_ldp, multi_freq_ldpy, repeats=15)
    return first / (16 * 4096), second / FEW, third / FEW


def _detail(other: str, seconds: float) -> str:
    ours = oue_seconds_per_user()[0]
    return f"users/s of OUE reports, k = 128, one core: {1 / ours:.3g}; {other}: {1 / seconds:.3g}"


@benchmark("oue-users", ">= 100")
def oue_users() -> tuple[float, str]:
    ours, pure_ldp, _ = oue_seconds_per_user()
    return pure_ldp / ours, _detail("pure-ldp", pure_ldp)


@benchmark("oue-users-multi", ">= 35")
def oue_users_multi() -> tuple[float, str]:
    ours, _, multi_freq_ldpy = oue_seconds_per_user()
    return multi_freq_ldpy / ours, _detail("multi-freq-ldpy", multi_freq_ldpy)


BLOCK = 4096


def _generator() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(0))


def _reports(protocol: LocalProtocol, X: np.ndarray) -> Callable[[], None]:
    """Every report of every user, block by block, from the records to the sums."""

    def run() -> None:
        for start in range(0, len(X), BLOCK):
            protocol.summarise({"X": X[start : start + BLOCK]}, StreamDraws(_generator()))

    return run


@benchmark("coordinate-users", ">= 2")
def coordinate_users() -> tuple[float, str]:
    n, d = 32 * BLOCK, 128
    X = _generator().choice([-1.0, 1.0], size=(n, d))
    protocol = LocalProtocol(Box(d), SampleCoordinates(d, 1.0, reporter="one-bit"))
    room = np.empty((BLOCK, d))

    def uniforms() -> None:
        rng = _generator()
        for _ in range(n // BLOCK):
            rng.random(out=room)

    draw, ours = best_of(uniforms, _reports(protocol, X))
    return draw / ours, f"{n / ours / 1e6:.1f}e6 users/s with 128 signs each, against drawing 128 uniforms for each"


@benchmark("unit-vector-users", "<= 1.5")
def unit_vector_users() -> tuple[float, str]:
    n, d = 8 * BLOCK, 100
    X = _generator().normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    room = np.empty((BLOCK, d))

    def normals() -> None:
        rng = _generator()
        for _ in range(n // BLOCK):
            rng.standard_normal(out=room)

    draw, ours = best_of(normals, _reports(LocalProtocol(Ball(d), PrivUnitG(d, 1.0)), X))
    return ours / draw, f"{n / ours / 1e6:.2f}e6 users/s with PrivUnitG in 100 dimensions, against 100 normals for each"


@benchmark("sampled-coordinate-users", "<= 3")
def sampled_coordinate_users() -> tuple[float, str]:
    n, d = 32 * BLOCK, 14
    X = _generator().choice([-1.0, 1.0], size=(n, d))

    def asked(size: int) -> Callable[[], None]:
        return _reports(LocalProtocol(Parities(d, size), SampleCoordinates(size, 1.0, reporter="one-bit")), X)

    few, many = best_of(asked(10), asked(10_000))
    return many / few, f"{n / many / 1e6:.1f}e6 users/s asked for one of 10 000 parities of 14 bits, against one of 10"
