"""The table of exhibits: what was printed, and audits of it and of what dpdist does in its place.

Every audit runs a mechanism on two neighbours and bounds epsilon from below, for the delta that was claimed; a bound is
wrong with a chance of at most 1e-6. The printed versions have to exceed their claim, ours must not.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpdist import Ledger, Minimizer
from dpdist.central import SVRG, AcceleratedMirror, Katyusha
from dpdist.central.linear.linear_method import LinearMethod
from dpdist.constraints import Constraint, L2Ball
from dpdist.kernels.truncation import SoftTruncation
from dpdist.privacy.accounting.closed_forms import eps_for_rho, gdp_mu
from dpdist.privacy.audit.black_box import CONFIDENCE
from dpdist.privacy.audit.two_point import event_bound
from dpdist.privacy.mechanisms.objective_perturbation import ObjectivePerturbation
from dpdist.privacy.mechanisms.peeling import peel
from dpdist.privacy.mechanisms.selection import select
from dpdist.privacy.mechanisms.smooth_sensitivity import SMOOTH_BITS, ArsinhNormal
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.discrete import rounded_gaussian
from dpdist.queries.robust_sums import ColumnSum, TrimmedColumnSum
from tests.privacy.exhibits import additive, convex, latent, local_labels, local_means, matrices, pairs
from tests.privacy.exhibits.heavy_tailed import printed_catoni_std, printed_trimmed_scale
from tests.privacy.exhibits.high_dimensional import peel_with_repeats, printed_lasso_range
from tests.privacy.exhibits.perturbation import QuotedPerturbation

WRONG = 1 - CONFIDENCE
Run = Callable[[int], np.ndarray]
"""Scores of many runs on the neighbour 0 or 1."""


@dataclass(frozen=True)
class Exhibit:
    """A method, where a version of it was printed that is not private, why, its claim, and both versions to audit."""

    id: str
    source: str
    what: str
    epsilon: float
    delta: float
    printed: Run
    ours: Run


def epsilon_bound(one: np.ndarray, other: np.ndarray, delta: float) -> float:
    """As `dpdist.privacy.audit.two_point.two_point_bound`, but the pilot chooses by even odds.

    At the confidence of the result a short pilot finds nothing at all, and so would choose no event.
    """
    n_pilot = len(one) // 4
    best = (-1.0, 0.0, 1.0)
    for threshold in np.quantile(np.concatenate([one[:n_pilot], other[:n_pilot]]), np.linspace(0.02, 0.98, 97)):
        for side in (1.0, -1.0):
            hits = [int(np.count_nonzero(side * (each[:n_pilot] - threshold) >= 0)) for each in (one, other)]
            best = max(best, (event_bound(hits[0], hits[1], n_pilot, delta, 0.5)[0], float(threshold), side))
    _, threshold, side = best
    hits = [int(np.count_nonzero(side * (each[n_pilot:] - threshold) >= 0)) for each in (one, other)]
    return event_bound(hits[0], hits[1], len(one) - n_pilot, delta, CONFIDENCE)[0]


def audit(exhibit: Exhibit) -> dict[str, Any]:
    """The row of an exhibit: lower bounds on epsilon of the printed version and of ours."""

    def bound(run: Run) -> float:
        scores = run(0), run(1)
        return epsilon_bound(*scores, exhibit.delta)

    found = {"printed": bound(exhibit.printed), "ours": bound(exhibit.ours)}
    return {**{name: getattr(exhibit, name) for name in ("id", "source", "what", "epsilon", "delta")}, **found}


# -- convex ------------------------------------------------------------------------------------------------------------
# One row is (1, 1)/sqrt(2) or (1, -1)/sqrt(2), all others are (1, 0): the second coordinate speaks of that row only.
N_ROWS, CONVEX = 1000, (1.0, 1e-3)


def _rows(which: int) -> np.ndarray:
    X = np.zeros((N_ROWS, 2))
    X[:, 0] = 1.0
    X[0] = np.array([1.0, 1 - 2 * which]) / np.sqrt(2)
    return X


def _printed_svrg(which: int) -> np.ndarray:
    rng = np.random.default_rng(which)
    seen = convex.printed_svrg(_rows(which), *CONVEX, 2000, n_epochs=1, n_inner=500, rng=rng)[..., 1]
    return np.take_along_axis(seen, np.abs(seen).argmax(axis=1)[:, None], axis=1)[:, 0]


def _printed_katyusha(which: int) -> np.ndarray:
    return convex.printed_katyusha(_rows(which), 2000, 100, np.random.default_rng(which))[:, 1]


def _printed_mirror(which: int) -> np.ndarray:
    return convex.printed_accelerated_mirror(_rows(which), *CONVEX, 2000, np.random.default_rng(which))[:, 1]


def _fits(solver: LinearMethod, constraint: Constraint | None = None) -> Run:
    """The sum of the second coordinates of all releases, in units of their noise."""

    def run(which: int) -> np.ndarray:
        scores = []
        for _ in range(150):
            model = Minimizer(
                "logistic", constraint=constraint, solver=solver, epsilon=CONVEX[0], delta=CONVEX[1], row_norm=1.0,
                fit_intercept=False, cluster="threads", ledger=Ledger(":memory:"),
            )  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the delta is large for the number of rows
                model.fit(_rows(which), np.ones(N_ROWS))
            scores.append(sum(release.value[1] / release.noise_std for release in model.releases_))
        return np.array(scores)

    return run


# -- heavy tails -------------------------------------------------------------------------------------------------------
TRIM = {"t": 0.1, "m": 40, "strength": 0.2}
TRIM_DELTA = 1e-3
TRIM_EPSILON = TRIM["strength"] ** 2 / 2 + 2 * math.sqrt(TRIM["strength"] ** 2 / 2 * math.log(1 / TRIM_DELTA))


def _sample(which: int) -> np.ndarray:
    """A thousand normal numbers; in one of the neighbours one of them lies far out."""
    x = np.random.default_rng(2).normal(size=1000)
    return x if which else np.append(x[:-1], 1e9)


def _trimmed(printed: bool) -> Run:
    """Sizes of what is released: a trimmed sum, with noise by the smooth bound or by the printed scale."""

    def run(which: int) -> np.ndarray:
        x, m, t = _sample(which), int(TRIM["m"]), TRIM["t"]
        query = TrimmedColumnSum(x.size, m, 2e9, t, 1)
        units = query.statistic(query.summarise({"X": x[:, None]}, None, None))[0]
        if printed:
            scale = printed_trimmed_scale(x, m, t, 2.0) * (x.size - 2 * m) / query.grid
            units = np.array([[units[0][0]], [int(scale * 2**SMOOTH_BITS)]], dtype=object)
        mechanism, bits = ArsinhNormal().at(TRIM["strength"]), SystemBits()
        return np.array([abs(float(mechanism.release(units, 1.0, bits)[0])) for _ in range(600)]) * query.grid

    return run


CATONI = (0.5, 1e-3)
_CATONI_ROWS, _CATONI_SCALE = 1000, 2.0


def _truncated(std: float) -> Run:
    """Mean of truncated numbers with Gaussian noise; one of them is as large as can be, of either sign."""
    query = ColumnSum(SoftTruncation(_CATONI_SCALE), 1)

    def run(which: int) -> np.ndarray:
        value = int(query.summarise({"X": np.array([[1e300 * (1 - 2 * which)]])}, None, None)[0])
        noise = rounded_gaussian(Fraction(std * _CATONI_ROWS / query.grid), 100_000, SystemBits())
        return (value + noise).astype(float)

    return run


_CATONI_STEP = 2 * SoftTruncation(_CATONI_SCALE).bound / _CATONI_ROWS

# -- high dimension ----------------------------------------------------------------------------------------------------
_UNIT, PEEL_K, PEEL_RHO, PEEL_DELTA = 1 << 20, 64, 0.1, 1e-2
PEEL_EPSILON = eps_for_rho(PEEL_RHO, PEEL_DELTA)


def _leading(which: int) -> np.ndarray:
    """A vector whose first coordinate leads so far that it is always chosen; it moves by the l2 sensitivity."""
    v = np.zeros(PEEL_K + 4, dtype=np.int64)
    v[0] = (1000 + which) * _UNIT
    return v


def _printed_peeling(which: int) -> np.ndarray:
    bits, v = SystemBits(), _leading(which)
    unit = float(_UNIT)
    runs = [peel_with_repeats(v, PEEL_K, unit, PEEL_RHO, bits, l2_sensitivity=unit)[1] for _ in range(1000)]
    return np.mean(np.array(runs, dtype=float), axis=1) / _UNIT


def _peeling(which: int) -> np.ndarray:
    bits, v = SystemBits(), _leading(which)
    runs = [peel(v, PEEL_K, float(_UNIT), PEEL_RHO, bits, l2_sensitivity=float(_UNIT))[0] for _ in range(1000)]
    return np.array(runs, dtype=float) / _UNIT


RADIUS, GRID = 20.0, 2.0**-20


def _lasso(range_sensitivity: float) -> Run:
    """The vertex chosen, of two whose scores swap: as far as full squared losses can move over that ball."""

    def run(which: int) -> np.ndarray:
        g = 2 * (RADIUS + 1) * (1 - 2 * which)
        scores = np.rint(RADIUS * np.array([g, -g]) / GRID).astype(np.int64)
        bits = SystemBits()
        return np.array([select(scores, range_sensitivity / GRID, 1.0, bits) for _ in range(2000)], dtype=float)

    return run


# -- perturbation ------------------------------------------------------------------------------------------------------
OBJECTIVE = (4.0, 1e-2)


def _minimisers(kind: type[ObjectivePerturbation]) -> Run:
    """Minimisers of ``slope w + D/2 w^2 + b w``: one row, far on the wrong side of its label, or on the other."""

    def run(which: int) -> np.ndarray:
        mechanism = kind(OBJECTIVE[1], 1.0, 1.0, 0.0).at(OBJECTIVE[0])
        bits = StreamBits(np.random.Generator(np.random.Philox(which + 1)))
        return -(mechanism.linear_term(100_000, bits) + 2 * which - 1) / mechanism.regularisation

    return run


EXHIBITS = (
    Exhibit(
        "gaussian-classical", "textbooks", "a formula for epsilon up to 1 is used beyond", *additive.CLASSICAL,
        additive.printed_gaussian, additive.our_gaussian,
    ),
    Exhibit(
        "snapping", "textbooks", "noise in floats: a value reaches floats that its neighbour does not", 1.0, 0.0,
        additive.float_laplace, additive.grid_laplace,
    ),
    Exhibit(
        "dp-svrg", "seed 000, Algorithm 3.1.1", "a step reads one row, with the noise of a mean over all", *CONVEX,
        _printed_svrg, _fits(SVRG(n_rounds=2, n_inner=3, batch_rate=0.1, step_size=1.0)),
    ),
    Exhibit(
        "dp-katyusha", "seed 000, Algorithm 3.1.2", "no noise at all", *CONVEX,
        _printed_katyusha, _fits(Katyusha(n_rounds=1, n_inner=4, batch_rate=0.1, step_size=1.0)),
    ),
    Exhibit(
        "dp-accmd", "seed 000, Algorithm 3.1.4", "returns a point made of exact gradients", *CONVEX,
        _printed_mirror, _fits(AcceleratedMirror(n_rounds=3, step_size=1.0), constraint=L2Ball(1.0)),
    ),
    Exhibit(
        "trim-mean-ss", "seed 000, Algorithm 3.2.6", "the scale of the noise follows the range of all entries",
        TRIM_EPSILON, TRIM_DELTA,
        _trimmed(printed=True), _trimmed(printed=False),
    ),
    Exhibit(
        "rgd-catoni", "seed 000, Algorithm 3.2.8", "the square of epsilon' is missing", *CATONI,
        _truncated(printed_catoni_std(_CATONI_SCALE, _CATONI_ROWS, *CATONI, 1)),
        _truncated(_CATONI_STEP / gdp_mu(*CATONI)),
    ),
    Exhibit(
        "peeling", "seed 003, Algorithm 4", "an index can be picked again, with noise for different ones",
        PEEL_EPSILON, PEEL_DELTA, _printed_peeling, _peeling,
    ),
    Exhibit(
        "ht-private-lasso", "seed 003, Algorithm 2", "scores are taken to grow linearly with the radius", 1.0, 0.0,
        _lasso(printed_lasso_range(1.0, RADIUS)), _lasso(8 * RADIUS * (RADIUS + 1)),
    ),
    Exhibit(
        "fb-on-pair-strc", "seed 000, Algorithm 3.3.12", "a record in a buffer is taken to move points as one of all",
        *pairs.BUFFERED, pairs.printed_buffer, pairs.our_buffer,
    ),
    Exhibit(
        "obj-pert", "as often quoted", "noise for a row added, where one is replaced", *OBJECTIVE,
        _minimisers(QuotedPerturbation), _minimisers(ObjectivePerturbation),
    ),
    Exhibit(
        "local-bernstein-genprot", "spec 04, section 5", "the sum of the weights changes as well",
        local_means.CODING, 0.0, local_means.coding(1.0), local_means.coding(0.5),
    ),
    Exhibit(
        "smooth-query-trig", "seed 000, Algorithm 5.1.36", "cosines have the range 2",
        local_means.BIT, 0.0, local_means.printed_cosines, local_means.our_cosines,
    ),
    Exhibit(
        "kway-cheb", "seed 000, Algorithm 5.1.35", "all of epsilon is spent on every coefficient",
        2 * local_means.BIT, 0.0, local_means.every_coefficient, local_means.one_coefficient,
    ),
    Exhibit(
        "m2-two-sided-wishart", "seed 000, Theorem 6.3.4", "noise that is never negative rules a neighbour out",
        1.0, 0.0, partial(matrices.one_sided, 1.0, n=20_000), partial(matrices.two_sided, 1.0, n=20_000),
    ),
    Exhibit(
        "dp-adassp", "diffprivlib 0.6.6, LinearRegression", "squares of columns in [0, 1] get no noise at all",
        *matrices.SQUARES, partial(matrices.squares_by_one_end, n=20_000), partial(matrices.squares_by_norm, n=20_000),
    ),
    Exhibit(
        "dp-gem-clip", "seed 000, Algorithm 7.2.55", "noise for C, where replacing a row moves a sum by 2 C",
        *latent.BUDGET, latent.clipped(1.0), latent.clipped(2.0),
    ),
    Exhibit(
        "dp-gem-full", "seed 002, Algorithm 2", "a root is of a part of its sum: epsilon itself is the budget",
        *latent.BUDGET, latent.truncated(printed=True), latent.truncated(printed=False),
    ),
    Exhibit(
        "dp-gem-split", "seed 002, (23)", "two halves of a truncation are averaged over different rows",
        *latent.BUDGET, latent.parts(printed=True), latent.parts(printed=False),
    ),
    Exhibit(
        "local-bernstein-1bit", "seed 000, Algorithm 5.1.32", "a bit can rule out the other end of the range",
        local_means.BIT, 0.0, local_means.printed_bit, local_means.our_bit,
    ),
    Exhibit(
        "ldp-vec-gauss", "seed 001, Algorithm 1", "two vectors of the unit ball can be 2 apart, not 1",
        *local_means.VECTOR, local_means.printed_vector, local_means.our_vector,
    ),
    Exhibit(
        "l1-mean-proj", "seed 001, Algorithm 2", "a projected vector can be longer than it was", *local_means.PROJECTED,
        local_means.projected(clipped=False), local_means.projected(clipped=True),
    ),
    Exhibit(
        "label-ldp-iht", "seed 000, Algorithm 5.3.42", "labels are not clipped, and differ by more than 4 C",
        *local_labels.BUDGET, local_labels.printed_label, local_labels.our_label,
    ),
)  # fmt: skip
