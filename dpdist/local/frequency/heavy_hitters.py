"""The most frequent of very many values: extending their prefixes, a group of users for each length.

A code of 32 bits has too many values to look at every one. But a frequent code has frequent prefixes: one group of
users reports short prefixes, of which there are few enough; those that stick out of the noise are extended by some bits
in all ways, and the next group tells which of these candidates are frequent; and so on to the full length (the prefix
extending method of Wang, Li and Jha 2021).

A user is in one group and reports once, on a prefix of a length that is fixed beforehand, by local hashing (`OLH`), so
every report is epsilon-LDP. The candidates are functions of earlier groups' reports: post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpdist.data import ArraySpec, Dataset
from dpdist.engine.shards import Prepare
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.parameters import check_between, check_count
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.local_method import LocalMethod, line_of
from dpdist.local.randomisers.hashing import OLH
from dpdist.local.statistics.prefixes import CandidateProtocol, Prefix
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.user_values import as_given, one_column
from dpdist.method import Oracle, Public
from dpdist.privacy.accounting.plan import Plan

LONGEST = 60


def prefix_lengths(n_bits: int, step_bits: int, n_kept: int) -> list[int]:
    """How long the prefixes of each group are: at most ``n_kept 2**step_bits`` candidates at a time.

    >>> prefix_lengths(32, 8, 32), prefix_lengths(10, 8, 32)
    ([13, 21, 29, 32], [10])
    """
    first = step_bits + n_kept.bit_length() - 1
    return [*range(first, n_bits, step_bits), n_bits]


@dataclass(frozen=True)
class PrefixSearch(LocalMethod):
    """Longer and longer prefixes of the codes, each group of users asked about those that the one before left."""

    tag, name = "PrefixSearch", "prefix-search"
    unsure: ClassVar[str] = (
        "the codes were chosen by their frequency among many noisy ones, which are larger than they are by then. "
        "standard_error_ is that of a code that was not chosen; Histogram of the codes that were found, from other "
        "users, has intervals"
    )
    measures: ClassVar[str] = "standard error of the frequency of a rare code"

    n_bits: int = 32
    n_kept: int = 32
    step_bits: int = 8
    failure: float = 0.05

    def decide(self, public: Public, statement: None) -> Self:
        if public.n_rows < len(self.lengths):
            raise DataError(f"there are {len(self.lengths)} groups to ask and {public.n_rows} users: raise step_bits")
        return self._with(public, statement)

    @property
    def lengths(self) -> list[int]:
        """Of the prefixes that each group is asked about."""
        return prefix_lengths(self.n_bits, self.step_bits, self.n_kept)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        epsilon = float(self.public.budget.epsilon)
        return [CandidateProtocol(Prefix(self.n_bits, t), OLH(1 << t, epsilon)) for t in self.lengths]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        found, frequencies, known = np.zeros(1, dtype=np.int64), np.ones(1), 0
        fitted: dict[str, Any] = {}
        for group, length in enumerate(self.lengths):
            if not len(found):
                break
            candidates = _extended(found, length - known)
            estimates = self.estimate(oracle, group, candidates)
            error = math.sqrt(_rare(self.protocols[group]) / oracle.size(line_of(group)))
            threshold = float(error * -ndtri(self.failure / len(candidates)))
            fitted = {"threshold": threshold, "standard_error": float(error)}
            order = np.argsort(-estimates, kind="stable")[: self.n_kept]
            kept = order[estimates[order] > threshold]
            found, frequencies, known = candidates[kept], estimates[kept], length
        return {**fitted, "found": found, "frequencies": frequencies}

    def expected_error(self, plan: Plan) -> float:
        users = self.public.n_rows // len(self.lengths)
        return math.sqrt(_rare(self.protocols[-1]) / users)


@dataclass(eq=False, repr=False)
class HeavyHitters(LocalEstimator):
    """The codes that are frequent enough to stick out of the noise, among up to ``2**60``.

    Parameters
    ----------
    n_bits : int
        Records are whole numbers below ``2**n_bits``, or strings, which count by a hash of that length
        (`dpdist.local.statistics.prefixes.text_codes`); anything else is a null record.
    n_kept : int
        At most that many prefixes are extended, and as many codes are found.
    step_bits : int
        Bits by which prefixes grow. More bits: fewer and larger groups of users, but more candidates.
    failure : float
        About the chance that a code is found (or, in a step, a prefix is extended) that nobody has.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; the guarantee is pure, delta is not used.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    found_ : array of int64
        Codes, the most frequent first.
    frequencies_ : array
        Their estimated frequencies. The noise has a part in which codes are found, so those that only just were are
        estimated too high on average.
    standard_error_ : float
        Of a frequency, at small ones.
    threshold_ : float
        What a frequency must exceed to be found.
    guarantee_, plan_, releases_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Notes
    -----
    A code of frequency f is found with high probability if f is above twice ``threshold_``, which is about
    ``5 sqrt(4 e^epsilon / (e^epsilon - 1)^2 g / n)`` with g groups of n users together.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = np.where(rng.random(40_000) < 0.5, 123_456, rng.integers(0, 2**20, 40_000))
    >>> HeavyHitters(20, epsilon=2.0, random_state=0).fit(codes).found_.tolist()
    [123456]
    """

    answers = (Answer.CODES,)

    n_bits: int = 32
    _: KW_ONLY
    n_kept: int = 32
    step_bits: int = 8
    failure: float = 0.05

    def _dataset(self, X: Any, y: Any) -> Dataset:
        self.n_features_in_ = 1
        return one_column(X)

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        return {"X": as_given}

    def _chosen(self, public: Public, **beside: Any) -> PrefixSearch:
        search = PrefixSearch(int(self.n_bits), int(self.n_kept), int(self.step_bits), float(self.failure))
        return search.decide(public, None)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_bits", "n_kept", "step_bits"):
            check_count(name, getattr(self, name))
        check_between("n_bits", self.n_bits, 1, LONGEST)
        check_between("n_kept", self.n_kept, 1, 1 << 12)
        check_between("step_bits", self.step_bits, 1, 12)
        check_between("failure", self.failure, 1e-12, 0.5)
        check_between("epsilon", self.epsilon, 1e-6, 100)


def _extended(prefixes: NDArray[np.int64], n_bits: int) -> NDArray[np.int64]:
    """Every prefix, followed by ``n_bits`` more bits in all ways."""
    return (prefixes[:, None] << n_bits | np.arange(1 << n_bits, dtype=np.int64)).ravel()


def _rare(protocol: LocalProtocol) -> float:
    """``n`` times the variance of the frequency of a code that nobody has."""
    randomiser: Any = protocol.randomiser
    return float(randomiser.variance(np.zeros(1))[0])
