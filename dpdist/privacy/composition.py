"""What a set of releases costs together.

`Releases` is one line of a plan: a `Cost`, how often it is paid, on which sample and on which part of the rows.
`total_epsilon` and `total_delta` compose them with the accountant that fits them (`accountants` has the rule):

================ ==================================================================================================
accountant       when, and what it does
================ ==================================================================================================
``gdp``          Gaussian releases of all rows: ``mu^2 = sum mu_i^2``, exact (Dong, Roth and Su 2022)
``pure``         everything has a pure epsilon: the epsilons add, delta is 0
``gdp+pure``     Gaussian releases and pure ones: exact Gaussian DP, then epsilons add
``zcdp``         Gaussian, discrete Gaussian, exponential mechanism, all rows: rho adds, tight conversion
``pld``          Gaussian, Laplace and pure releases, or a Poisson sample: privacy loss distributions are convolved
``rdp``          the other mixtures, and fixed-size samples (replace-one): Renyi curves add
``basic``        with (epsilon, delta) releases: epsilons and deltas add, after exact Gaussian DP of the Gaussian ones
================ ==================================================================================================

All of them are valid upper bounds for adaptive sequences whose costs are fixed in advance. Where several fit the
smallest counts.

The parts of one disjoint split have no row in common, so a row pays for what reads all rows and for one part of every
split: the total is the maximum over these choices (the parts are dealt by a rule that does not look at the data).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from dpdist.errors import BudgetError
from dpdist.privacy import accounting
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.cost import Cost

SUPPORTED = (
    "supported: any mix of all-row releases; Gaussian noise on a Poisson sample together with Gaussian, Laplace and "
    "pure all-row releases (both relations); Laplace noise on a Poisson sample (ADD_OR_REMOVE_ONE); Gaussian noise on "
    "a fixed-size sample together with any all-row releases (REPLACE_ONE)"
)
NOT_PURE = {"gaussian", "zcdp", "approximate"}
"""Kinds of releases that need delta > 0."""
_ALL_ORDERS = 1 + np.geomspace(1e-2, 1e6, 600)
_INTEGER_ORDERS = np.array([*range(2, 65), 80, 96, 128, 192, 256, 384, 512, 768, 1024], dtype=np.float64)
_MOST_COLUMNS = 256


@dataclass(frozen=True)
class Poisson:
    """Every row takes part with probability ``rate``, independently; which rows did stays secret."""

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BudgetError(f"Poisson: a sampling rate lies in (0, 1], got {self.rate!r}")


@dataclass(frozen=True)
class FixedSize:
    """``sample_size`` of ``n_rows`` rows, drawn without replacement; which rows stays secret."""

    sample_size: int
    n_rows: int

    def __post_init__(self) -> None:
        if not 1 <= operator.index(self.sample_size) <= operator.index(self.n_rows):
            raise BudgetError(
                f"FixedSize: need 1 <= sample_size <= n_rows, got {self.sample_size!r} of {self.n_rows!r}"
            )

    @property
    def rate(self) -> float:
        """``sample_size / n_rows``."""
        return self.sample_size / self.n_rows


Sampling = Poisson | FixedSize


@dataclass(frozen=True)
class Releases:
    """``count`` releases at ``cost`` each.

    Parameters
    ----------
    cost : Cost
        Of one release, in units of its sensitivity under the relation of the plan. On a Poisson sample under
        replace-one that sensitivity must be twice the norm bound of one row's contribution (a row that is not drawn
        contributes 0, so 0 and both versions of the row count), not a smaller diameter.
    count : int
    sampling : Poisson or FixedSize, optional
        None: every row takes part.
    fold : (split, index), optional
        The part of a disjoint split that is read; None: all rows.
    """

    cost: Cost
    count: int = 1
    sampling: Sampling | None = None
    fold: tuple[Hashable, int] | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost.parameter) and self.cost.parameter >= 0 and 0 <= self.cost.delta < 1):
            raise BudgetError(f"a cost is finite and at least 0 (and its delta below 1), got {self.cost!r}")
        if self.cost.delta and self.cost.kind != "approximate":
            raise BudgetError(f"only an approximate cost has a delta of its own, got {self.cost!r}")
        if operator.index(self.count) < 1:
            raise BudgetError(f"a count is at least 1, got {self.count!r}")

    @property
    def key(self) -> tuple[Cost, int, Sampling | None]:
        """Everything but the fold: equal keys cost the same."""
        return self.cost, self.count, self.sampling


class _Profile(Protocol):
    """Everything that one row has to pay, composed."""

    def epsilon(self, delta: float) -> float: ...
    def delta(self, epsilon: float) -> float: ...


# ---------------------------------------------------------------------------------------------- the accountants
@dataclass(frozen=True)
class _Sums:
    """gdp, pure, gdp+pure, basic: exact Gaussian DP of the Gaussian part, after which epsilons (and deltas) add."""

    mu: float
    pure: float
    given: float = 0.0

    def epsilon(self, delta: float) -> float:
        rest = delta - self.given
        if self.mu == 0:
            return self.pure if rest >= 0 else math.inf
        return self.pure + accounting.gdp_epsilon(self.mu, rest) if rest > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        rest = epsilon - self.pure
        if rest < 0:
            return 1.0
        return min(1.0, self.given + (accounting.gdp_delta(rest, self.mu) if self.mu > 0 else 0.0))


@dataclass(frozen=True)
class _Zcdp:
    rho: float

    def epsilon(self, delta: float) -> float:
        return accounting.eps_for_rho(self.rho, delta)

    def delta(self, epsilon: float) -> float:
        return accounting.delta_for_rho(self.rho, epsilon)


@dataclass(frozen=True)
class _Renyi:
    curve: np.ndarray
    orders: np.ndarray

    def epsilon(self, delta: float) -> float:
        return accounting.renyi_epsilon(self.curve, self.orders, delta)

    def delta(self, epsilon: float) -> float:
        return accounting.renyi_delta(self.curve, self.orders, epsilon)


def _fft_delta(releases: Sequence[Releases]) -> float:
    """Delta given away for the rounding of FFT convolutions in float64, which grows with their number.

    Measured on Gaussians against the closed form: 1e-13 after 1e4 compositions, 5e-11 after 1e6.
    """
    return 1e-12 + 1e-15 * sum(c.count for c in releases)


@dataclass(frozen=True)
class _Pld:
    distribution: Any
    rounding: float

    def epsilon(self, delta: float) -> float:
        return float(self.distribution.get_epsilon_for_delta(delta - self.rounding))

    def delta(self, epsilon: float) -> float:
        return min(1.0, float(self.distribution.get_delta_for_epsilon(epsilon)) + self.rounding)


def _pure_epsilon(release: Releases, neighbours: Neighbours) -> float:
    """Epsilon of one release, amplified where the scheme fits the relation, else as if every row took part."""
    epsilon = release.cost.parameter if release.cost.kind == "approximate" else release.cost.epsilon
    if isinstance(release.sampling, Poisson) and neighbours is Neighbours.ADD_OR_REMOVE_ONE:
        return accounting.amplify_poisson(epsilon, 0.0, release.sampling.rate, neighbours)[0]
    if isinstance(release.sampling, FixedSize) and neighbours is Neighbours.REPLACE_ONE:
        return accounting.amplify_fixed_size(epsilon, 0.0, release.sampling.rate, neighbours)[0]
    return epsilon


def _sums(column: Sequence[Releases], neighbours: Neighbours) -> _Sums:
    mus = [c.cost.parameter * math.sqrt(c.count) for c in column if c.cost.kind == "gaussian"]
    pure = [c.count * _pure_epsilon(c, neighbours) for c in column if c.cost.kind != "gaussian"]
    given = [c.count * c.cost.delta for c in column]
    return _Sums(accounting.gdp_compose(mus), math.fsum(pure), math.fsum(given))


def column_rho(column: Sequence[Releases]) -> float:
    """``sum count * rho``."""
    return math.fsum(c.count * c.cost.rho for c in column)


@lru_cache(maxsize=4096)
def _sampled_curve(mu: float, sampling: Sampling) -> np.ndarray:
    formula = accounting.poisson_rdp if isinstance(sampling, Poisson) else accounting.wor_rdp
    return np.array([formula(sampling.rate, 1 / mu, int(a)) for a in _INTEGER_ORDERS])


def _renyi(column: Sequence[Releases]) -> _Renyi:
    orders = _INTEGER_ORDERS if any(c.sampling for c in column) else _ALL_ORDERS
    curve = np.zeros_like(orders)
    for release in column:
        kind, parameter = release.cost.kind, release.cost.parameter
        if parameter == 0:
            continue
        if release.sampling is not None:
            one = _sampled_curve(parameter, release.sampling)
        elif kind == "laplace":
            one = accounting.laplace_rdp(parameter, orders)
        elif kind == "pure":
            one = accounting.pure_rdp(parameter, orders)
        else:  # min: the exponential mechanism is both bounded-range and pure
            one = np.minimum(orders * release.cost.rho, release.cost.epsilon)
        curve += release.count * one
    return _Renyi(curve, orders)


def _gaussian_pld(mu: float, sampling: Sampling | None, neighbours: Neighbours, interval: float) -> Any:
    """Privacy loss distribution of one Gaussian release; the only place where a noise multiplier is converted.

    dp_accounting reads the standard deviation under REPLACE_ONE relative to the norm bound of ONE row's contribution
    and doubles the sensitivity itself (its dominating pair is ``(1-q)N(0) + qN(1)`` against ``(1-q)N(0) + qN(-1)``),
    while ``mu`` is relative to the replace-one sensitivity, twice that bound: hence ``2/mu`` there and ``1/mu`` else.
    Its RdpAccountant reads the same event relative to the sensitivity, so the two must not share this number.
    """
    from dp_accounting import privacy_accountant
    from dp_accounting.pld import privacy_loss_distribution as pld

    relation = privacy_accountant.NeighboringRelation
    if sampling is None:  # one pair for both relations
        return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
    replace = neighbours is Neighbours.REPLACE_ONE
    return pld.from_gaussian_mechanism(
        2 / mu if replace else 1 / mu,
        sampling_prob=sampling.rate,
        neighboring_relation=relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=interval,
    )


def _pure_pld(epsilon: float, interval: float) -> Any:
    """Privacy loss distribution of randomised response, which dominates every epsilon-DP mechanism.

    Its delta is linear in ``e^x`` on [-epsilon, epsilon], so connecting the dots next to the ends loses nothing inside.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    k = math.ceil(epsilon / interval)
    cells = np.unique([-k, 1 - k, k - 1, k])
    x = cells * interval
    deltas = np.where(x <= -epsilon, -np.expm1(x), -np.expm1(np.minimum(x - epsilon, 0)) / (1 + math.exp(-epsilon)))
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, cells, deltas))


def _interval(column: Sequence[Releases], scale: float) -> float:
    """Grid of losses: 4096 cells up to ``scale``, the epsilon of interest, but no more than 5e4 in a single release.

    A rare sample with little noise has losses far above epsilon; a coarser grid is as good there, since connecting the
    dots errs by the square of the interval, and only upwards.
    """
    widest = max((c.cost.parameter * (20 + c.cost.parameter) for c in column if c.cost.kind == "gaussian"), default=0.0)
    return 2.0 ** math.floor(math.log2(max(min(max(scale, 1e-6), 4.0) / 4096, widest / 5e4)))


def _pld(column: Sequence[Releases], neighbours: Neighbours, scale: float) -> _Pld:
    """Convolve the privacy loss distributions of the column."""
    from dp_accounting.pld import privacy_loss_distribution as pld  # 0.7 s: only plans that need it pay

    interval = _interval(column, scale)
    total = pld.identity(value_discretization_interval=interval)
    whole = _sums([c for c in column if c.sampling is None and c.cost.kind == "gaussian"], neighbours).mu
    if whole > 0:
        total = total.compose(_gaussian_pld(whole, None, neighbours, interval))
    for release in column:
        kind, parameter = release.cost.kind, release.cost.parameter
        if parameter == 0 or (kind == "gaussian" and release.sampling is None):
            continue
        if kind == "gaussian":
            one = _gaussian_pld(parameter, release.sampling, neighbours, interval)
        elif kind == "laplace":
            one = pld.from_laplace_mechanism(
                1 / parameter,
                value_discretization_interval=interval,
                sampling_prob=1.0 if release.sampling is None else release.sampling.rate,
            )
        else:
            one = _pure_pld(parameter, interval)
        total = total.compose(one if release.count == 1 else one.self_compose(release.count))
    return _Pld(total, _fft_delta(column))


# ------------------------------------------------------------------------------------------------ the selection
def accountants(releases: Sequence[Releases], delta: float, neighbours: Neighbours) -> tuple[str, ...]:
    """Accountants that can compose these releases at this delta, simplest first.

    Raises
    ------
    BudgetError
        When none can; the message names what is supported.
    """
    if not releases:
        raise BudgetError("there is nothing to compose: give at least one release")
    kinds = {c.cost.kind for c in releases}
    sampled = [c for c in releases if c.sampling is not None]
    sampled_kinds = {c.cost.kind for c in sampled}
    fixed = any(isinstance(c.sampling, FixedSize) for c in sampled)
    poisson = any(isinstance(c.sampling, Poisson) for c in sampled)
    replace = neighbours is Neighbours.REPLACE_ONE
    if fixed and not replace:
        raise BudgetError(
            "a fixed-size sample needs REPLACE_ONE (n is public); use a Poisson sample under ADD_OR_REMOVE_ONE; "
            + SUPPORTED
        )
    all_pure = all(math.isfinite(c.cost.epsilon) for c in releases)
    if delta == 0:
        if all_pure:
            return ("pure",)
        raise BudgetError(
            f"delta = 0, but {' and '.join(sorted(kinds & NOT_PURE))} noise has no pure epsilon: Gaussian "
            "noise needs delta > 0 (1e-6, say); Laplace, DiscreteLaplace and the selections do not"
        )
    if "approximate" in kinds:
        return _basic(releases, kinds, delta)
    if kinds == {"gaussian"} and not sampled:
        return ("gdp",)
    found = ["pure"] if all_pure else []
    if not sampled and "gaussian" in kinds and "zcdp" not in kinds:
        found.append("gdp+pure")
    pld_kinds = {"gaussian", "laplace", "pure"} | ({"bounded-range"} if sampled else set())
    pld_samples = {"gaussian"} if replace else {"gaussian", "laplace"}
    if not sampled and not kinds & {"laplace", "pure"}:
        found.append("zcdp")
    elif kinds <= pld_kinds and sampled_kinds <= pld_samples and not fixed and delta >= 10 * _fft_delta(releases):
        found.append("pld")
    elif not sampled or (sampled_kinds == {"gaussian"} and not (poisson and replace)):
        found.append("rdp")
    if not found:
        raise BudgetError(
            f"no accountant composes {sorted(kinds)} with {sorted(sampled_kinds)} on samples under {neighbours.value} "
            f"at delta = {delta:g} (PLD needs delta >= {10 * _fft_delta(releases):.2g}); {SUPPORTED}"
        )
    return tuple(found)


def _basic(releases: Sequence[Releases], kinds: Set[str], delta: float) -> tuple[str, ...]:
    """The accountant of releases of which some are only known to be (epsilon, delta)-DP."""
    if "zcdp" in kinds or any(c.sampling is not None for c in releases):
        raise BudgetError(
            "a release that is only known to be (epsilon, delta)-DP composes with Gaussian, Laplace, pure and "
            f"bounded-range releases of all rows, not with {sorted(kinds - {'approximate'})} on samples or zCDP ones; "
            + SUPPORTED
        )
    given = max(_sums(column, Neighbours.REPLACE_ONE).given for column in columns(releases))
    if given > delta or (given == delta and "gaussian" in kinds):
        raise BudgetError(
            f"the (epsilon, delta) releases alone have a delta of {given:g}, and the budget is delta = {delta:g}: give "
            "them a smaller delta"
        )
    return ("basic",)


def columns(releases: Sequence[Releases]) -> list[list[Releases]]:
    """Every distinct set of releases that one row may have to pay: all-row releases and one part of each split."""
    whole = [c for c in releases if c.fold is None]
    splits: dict[Hashable, dict[int, list[Releases]]] = {}
    for release in releases:
        if release.fold is not None:
            split, index = release.fold
            splits.setdefault(split, {}).setdefault(index, []).append(release)
    choices = []
    for parts in splits.values():
        distinct: dict[Any, list[Releases]] = {}
        for part in parts.values():
            distinct.setdefault(tuple(sorted(repr(c.key) for c in part)), part)
        choices.append(list(distinct.values()))
    if math.prod(len(c) for c in choices) > _MOST_COLUMNS:
        raise BudgetError(
            f"the parts of the splits combine in more than {_MOST_COLUMNS} ways; give the parts of a split equal items"
        )
    return [whole + [c for part in choice for c in part] for choice in itertools.product(*choices)]


def _profile(column: Sequence[Releases], accountant: str, neighbours: Neighbours, scale: float) -> _Profile:
    if accountant == "zcdp":
        return _Zcdp(column_rho(column))
    if accountant == "rdp":
        return _renyi(column)
    if accountant == "pld":
        return _pld(column, neighbours, scale)
    return _sums(column, neighbours)


def _scale(releases: Sequence[Releases], delta: float) -> float:
    """Rough epsilon of the releases, to choose the grid of a PLD."""
    rates = [1.0 if c.sampling is None else c.sampling.rate for c in releases]
    mu = math.sqrt(sum(c.count * 2 * c.cost.rho * q**2 for c, q in zip(releases, rates, strict=True)))
    return accounting.gdp_epsilon(mu, delta) if mu > 0 else 1.0


def total_epsilon(
    releases: Sequence[Releases],
    delta: float,
    neighbours: Neighbours,
    accountant: str | None = None,
    scale: float | None = None,
) -> float:
    """Epsilon at delta of all releases together.

    Parameters
    ----------
    releases : sequence of Releases
    delta : float
    neighbours : Neighbours
    accountant : str, optional
        One of `accountants`; default: the smallest of them.
    scale : float, optional
        Epsilon of interest, which sets the grid of a PLD; default: estimated.

    Examples
    --------
    >>> round(total_epsilon([Releases(Cost("gaussian", 0.1), count=4)], 1e-6, Neighbours.REPLACE_ONE), 4)
    0.8341
    """
    names = accountants(releases, delta, neighbours) if accountant is None else (accountant,)
    if "pld" in names and scale is None:
        scale = _scale(releases, delta)
    each = columns(releases)
    return min(max(_profile(c, name, neighbours, scale or 1.0).epsilon(delta) for c in each) for name in names)


def total_delta(
    releases: Sequence[Releases], epsilon: float, neighbours: Neighbours, accountant: str | None = None
) -> float:
    """Delta at epsilon of all releases together; 0 when the pure epsilons add up to no more than epsilon."""
    # any positive delta asks `accountants` for everything that fits
    names = accountants(releases, 1e-6, neighbours) if accountant is None else (accountant,)
    each = columns(releases)
    return min(max(_profile(c, name, neighbours, epsilon).delta(epsilon) for c in each) for name in names)
