"""How many simulated users report per second, one by one: against other packages, or drawing random numbers."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpdist.local import DensityQueries, Marginals, RiskSurface
from dpdist.local.crowd.answer_passes import AnswerPasses
from dpdist.local.crowd.answer_protocol import AnswerProtocol, Weighted, in_units, law_of
from dpdist.local.density.density_queries import TrigonometricQueries
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.randomisers.frequency import OUE
from dpdist.local.randomisers.vectors import PrivUnitG, best_vector
from dpdist.local.statistics import bit_sets
from dpdist.local.statistics.bounded_values import Ball, Box
from dpdist.local.statistics.second_moments import JointStatistics
from dpdist.local.statistics.task_answers import TaskAnswers
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.reports import Reports
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


def _users_against_words(name: str, protocol: LocalProtocol, blocks: dict[str, np.ndarray]) -> tuple[float, str]:
    """The time of all reports over that of drawing two random words for each user, which a sampled report needs.

    On the machine that the goals are from, 1.5e8 users a second get such words: 30 is 5e6 users, 75 is 2e6.
    """
    n = len(blocks["X"])
    reports = Reports(protocol)

    def run() -> None:
        reports.summarise_at(0, blocks, (b"0" * 32, None), None)

    def words() -> None:
        rng = _generator()
        for _ in range(n // BLOCK):
            rng.integers(0, 2**64, 2 * BLOCK, np.uint64)

    draw, ours = best_of(words, run)
    return ours / draw, f"{n / ours / 1e6:.2f}e6 users/s with {name}, against two random words for each"


@benchmark("cell-users", "<= 30")
def cell_users() -> tuple[float, str]:
    X = _generator().random((64 * BLOCK, 3))
    method = RiskSurface(low=0.0, high=1.0, degree=4, epsilon=1.0).decided(len(X), 3)
    return _users_against_words("one of 125 cells", method.protocols[0], {"X": X})


def _parity_users(d: int, order: int) -> tuple[float, str]:
    X = _generator().integers(0, 2, (64 * BLOCK, d)).astype(np.int8)
    of = bit_sets.Parities((2,) * d, order)
    law = SampleCoordinates(of.size, 1.0, reporter="one-bit")
    return _users_against_words(f"one of {len(of.sets)} parities", LocalProtocol(of, law), {"X": X})


@benchmark("parity-users", "<= 30")
def parity_users() -> tuple[float, str]:
    return _parity_users(40, 3)


@benchmark("million-parity-users", "<= 30")
def million_parity_users() -> tuple[float, str]:
    return _parity_users(64, 4)


@benchmark("cosine-users", "<= 75")
def cosine_users() -> tuple[float, str]:
    X = _generator().uniform(-1, 1, (64 * BLOCK, 3))
    method = DensityQueries(method=TrigonometricQueries(degree=4), low=-1.0, high=1.0, epsilon=1.0).decided(len(X), 3)
    return _users_against_words("one product of cosines of 3 columns", method.protocols[0], {"X": X})


@benchmark("joint-statistics-users", "<= 2")
def joint_statistics_users() -> tuple[float, str]:
    rng, d = _generator(), 20
    X, y = rng.normal(size=(8 * BLOCK, d)), rng.choice([-1.0, 1.0], 8 * BLOCK)
    of = JointStatistics(d, 5.0, 1.0, 0.6)
    protocol, room = LocalProtocol(of, best_vector(of.size, 1.0)), np.empty((BLOCK, of.size))

    def normals() -> None:
        draws = _generator()
        for _ in range(len(X) // BLOCK):
            draws.standard_normal(out=room)

    def run() -> None:
        Reports(protocol).summarise_at(0, {"X": X, "y": y}, (b"0" * 32, None), None)

    draw, ours = best_of(normals, run)
    return ours / draw, f"{len(X) / ours / 1e6:.3f}e6 users/s with all products of 20 features, against as many normals"


@benchmark("marginals-peer", "<= .5")
def marginals_peer() -> tuple[float, str]:
    """Tables of 3 of 10 bits, against unary encoding by pure-ldp of the table of one set of columns for each user."""
    from pure_ldp.frequency_oracles import UEClient, UEServer

    n, d, k = 100_000, 10, 3
    X = _generator().integers(0, 2, (n, d))
    sets = list(itertools.combinations(range(d), k))
    truth = np.array([[np.mean((X[:, own] == cell).all(axis=1)) for cell in np.ndindex(2, 2, 2)] for own in sets])

    Marginals(order=k, epsilon=EPSILON, random_state=0).fit(X)  # compiles
    began = time.process_time()
    model = Marginals(order=k, epsilon=EPSILON, random_state=0).fit(X)
    ours = time.process_time() - began
    found = np.array([model.marginal(list(own), unbiased=True).ravel() for own in sets])

    client, seen = UEClient(EPSILON, 2**k, use_oue=True), []
    began = time.process_time()
    for at, own in enumerate(sets):
        server = UEServer(EPSILON, 2**k, use_oue=True)
        rows = X[at :: len(sets), own] @ [4, 2, 1]
        for cell in rows:
            server.aggregate(client.privatise(int(cell) + 1))
        seen.append([server.estimate(cell + 1, suppress_warnings=True) / len(rows) for cell in range(2**k)])
    theirs = time.process_time() - began
    errors = [float(np.sqrt(np.mean((each - truth) ** 2))) for each in (found, np.array(seen))]
    return errors[0] / errors[1], f"rmse {errors[0]:.3f}, in 1/{theirs / ours:.0f} of the processor time"


def _pass_over_answers(n: int, m: int, answers: TaskAnswers) -> Callable[[], Any]:
    """A round of labels: every response is drawn anew, users are weighed by how they agree, and tasks added up."""
    cells = _generator().integers(0, 256 if answers.packed else 2, (n, answers.n_columns))
    X = cells.astype(np.uint8)
    query = AnswerPasses(AnswerProtocol(answers, law_of(answers, 1.0)), n_rows=n)
    labels = _generator().random(m)
    numbers, scale = in_units(np.column_stack([1 - labels, labels]))
    return lambda: query.summarise_at(0, {"X": X}, (b"0" * 32, Weighted(numbers, scale)), None)


@benchmark("crowd-answers", ">= 1")
def crowd_answers() -> tuple[float, str]:
    """On the machine that the goal is from, 3e8 random words a second are drawn: as many answers are to be read."""
    n, m = BLOCK, 10_000

    def words() -> None:
        rng = _generator()
        for _ in range(n):
            rng.integers(0, 2**64, m, np.uint64)

    symbols = _pass_over_answers(n, m, TaskAnswers(m, unanswered="symbol"))
    draw, ours, slower = best_of(words, _pass_over_answers(n, m, TaskAnswers(m, packed=True)), symbols, repeats=10)
    rate = n * m / 1e8
    return (
        draw / ours,
        f"{rate / ours:.1f}e8 answers/s and pass as bits ({rate / slower:.1f}e8 as symbols), a word each",
    )


@benchmark("crowd-peer", ">= 200")
def crowd_peer() -> tuple[float, str]:
    """Rounds of crowd-kit's Dawid-Skene, which draws nothing and is not private."""
    import pandas as pd
    from crowdkit.aggregation import DawidSkene as Theirs

    n, m, rounds = 100, 1000, 5
    answers = _generator().integers(0, 2, (n, m))
    user, task = np.indices((n, m)).reshape(2, -1)
    table = pd.DataFrame({"task": task, "worker": user, "label": answers.ravel()})

    def theirs(n_rounds: int) -> Callable[[], object]:
        return lambda: Theirs(n_iter=n_rounds, tol=-1.0).fit(table)

    size = 10 * m
    one, more, ours = best_of(theirs(1), theirs(1 + rounds), _pass_over_answers(BLOCK, size), repeats=5)
    a_round, mine = (more - one) / rounds / (n * m), ours / (BLOCK * size)
    return a_round / mine, f"{1 / mine:.2g} answers/s and round, against {1 / a_round:.2g}"
