"""What a set of releases costs together.

`total_epsilon` and `total_delta` compose `dpdist.privacy.accounting.releases.Releases` with the accountant that fits
them (`accountants` has the rule):

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
smallest counts. The arithmetic is in `dpdist.privacy.accounting.profiles`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

from dpdist.errors import BudgetError
from dpdist.privacy.accounting import closed_forms as accounting
from dpdist.privacy.accounting.profiles import fft_delta, profile
from dpdist.privacy.accounting.releases import FixedSize, Poisson, Releases, columns
from dpdist.privacy.budget import Neighbours

SUPPORTED = (
    "supported: any mix of all-row releases; Gaussian noise on a Poisson sample together with Gaussian, Laplace and "
    "pure all-row releases (both relations); Laplace noise on a Poisson sample (ADD_OR_REMOVE_ONE); Gaussian noise on "
    "a fixed-size sample together with any all-row releases (REPLACE_ONE)"
)
NOT_PURE = {"gaussian", "zcdp", "approximate"}
"""Kinds of releases that need delta > 0."""


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
    if any(c.paid is not None for c in releases) and any(c.cost.kind != "gaussian" or c.sampling for c in releases):
        raise BudgetError(
            "releases that rows pay for unequally compose with Gaussian releases of all rows only, by Gaussian DP"
        )
    sampled = [c for c in releases if c.sampling is not None]
    if neighbours is not Neighbours.REPLACE_ONE and any(isinstance(c.sampling, FixedSize) for c in sampled):
        raise BudgetError(
            "a fixed-size sample needs REPLACE_ONE (n is public); use a Poisson sample under ADD_OR_REMOVE_ONE; "
            + SUPPORTED
        )
    pure = all(math.isfinite(c.cost.epsilon) for c in releases)
    if delta == 0:
        return _without_delta(kinds, pure)
    if "approximate" in kinds:
        return _basic(releases, kinds, delta)
    if kinds == {"gaussian"} and not sampled:
        return ("gdp",)
    found = ["pure"] if pure else []
    if not sampled and "gaussian" in kinds and "zcdp" not in kinds:
        found.append("gdp+pure")
    if not sampled and not kinds & {"laplace", "pure"}:
        found.append("zcdp")
    elif _has_loss_distributions(releases, kinds, delta, neighbours):
        found.append("pld")
    elif not sampled or _has_renyi_curves(sampled, neighbours):
        found.append("rdp")
    if not found:
        raise BudgetError(
            f"no accountant composes {sorted(kinds)} with {sorted({c.cost.kind for c in sampled})} on samples under "
            f"{neighbours.value} at delta = {delta:g} (PLD needs delta >= {10 * fft_delta(releases):.2g}); {SUPPORTED}"
        )
    return tuple(found)


def _without_delta(kinds: Set[str], pure: bool) -> tuple[str, ...]:
    """The accountant at delta = 0."""
    if pure:
        return ("pure",)
    raise BudgetError(
        f"delta = 0, but {' and '.join(sorted(kinds & NOT_PURE))} noise has no pure epsilon: Gaussian "
        "noise needs delta > 0 (1e-6, say); Laplace, DiscreteLaplace and the selections do not"
    )


def _has_loss_distributions(
    releases: Sequence[Releases], kinds: Set[str], delta: float, neighbours: Neighbours
) -> bool:
    """Whether every release has a privacy loss distribution, and delta is above what their convolution gets wrong."""
    sampled = [c for c in releases if c.sampling is not None]
    known = {"gaussian", "laplace", "pure"} | ({"bounded-range"} if sampled else set())
    on_samples = {"gaussian"} if neighbours is Neighbours.REPLACE_ONE else {"gaussian", "laplace"}
    return (
        kinds <= known
        and {c.cost.kind for c in sampled} <= on_samples
        and not any(isinstance(c.sampling, FixedSize) for c in sampled)
        and delta >= 10 * fft_delta(releases)
    )


def _has_renyi_curves(sampled: Sequence[Releases], neighbours: Neighbours) -> bool:
    """Whether what is sampled has Renyi curves: Gaussian noise, but not on Poisson samples under replace-one."""
    poisson = any(isinstance(c.sampling, Poisson) for c in sampled)
    return {c.cost.kind for c in sampled} == {"gaussian"} and not (poisson and neighbours is Neighbours.REPLACE_ONE)


def _basic(releases: Sequence[Releases], kinds: Set[str], delta: float) -> tuple[str, ...]:
    """The accountant of releases of which some are only known to be (epsilon, delta)-DP."""
    if "zcdp" in kinds or any(c.sampling is not None for c in releases):
        raise BudgetError(
            "a release that is only known to be (epsilon, delta)-DP composes with Gaussian, Laplace, pure and "
            f"bounded-range releases of all rows, not with {sorted(kinds - {'approximate'})} on samples or zCDP ones; "
            + SUPPORTED
        )
    given = max(math.fsum(c.count * c.cost.delta for c in column) for column in columns(releases))
    if given > delta or (given == delta and "gaussian" in kinds):
        raise BudgetError(
            f"the (epsilon, delta) releases alone have a delta of {given:g}, and the budget is delta = {delta:g}: give "
            "them a smaller delta"
        )
    return ("basic",)


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
    >>> from dpdist.privacy.accounting.cost import Cost
    >>> round(total_epsilon([Releases(Cost("gaussian", 0.1), count=4)], 1e-6, Neighbours.REPLACE_ONE), 4)
    0.8341
    """
    names = accountants(releases, delta, neighbours) if accountant is None else (accountant,)
    if "pld" in names and scale is None:
        scale = _scale(releases, delta)
    each = columns(releases)
    return min(max(profile(c, name, neighbours, scale or 1.0).epsilon(delta) for c in each) for name in names)


def total_delta(releases: Sequence[Releases], epsilon: float, neighbours: Neighbours) -> float:
    """Delta at epsilon of all releases together; 0 when the pure epsilons add up to no more than epsilon."""
    # any positive delta asks `accountants` for everything that fits
    names = accountants(releases, 1e-6, neighbours)
    each = columns(releases)
    return min(max(profile(c, name, neighbours, epsilon).delta(epsilon) for c in each) for name in names)
