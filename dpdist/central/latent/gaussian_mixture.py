"""Normal mixtures of several components, with weights and variances that are not known, from private sums (dp-em-kgmm).

A round of the EM algorithm asks for ``sum_i r_ik (1, y_i / R, (y_i / R)^2)`` of all components together, r the
responsibilities at a public point, and takes weights, means and variances of what is released. Spec 07, section 6.7,
for the open problem of seed 002, section 7; prior art: Park, Foulds, Chaudhuri and Welling (2017).

Why it is private: rows are clipped to a public norm R, responsibilities are not negative and add up to 1, and both are
truncated as factors, so that replacing a row moves all sums together by ``sqrt(6)`` at most
(`dpdist.queries.mixture_sums`). Everything else is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator, planned
from dpdist.estimators.fitted_law import FittedLaw
from dpdist.estimators.inference import feature_names
from dpdist.estimators.parameters import BOUNDS, check_bound, check_count, choice, need_delta, public_vector
from dpdist.kernels.mixture_shares import Components
from dpdist.method import DECIDED, Line, Method, Noted, Oracle, Public, Vector, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.mixture_sums import MixtureSums

ROUNDS = 10
FLOOR = 0.1
"""Least standard deviation of a column of a component, over the stated one."""
COVARIANCES = ("diag", "spherical")


@dataclass(frozen=True)
class MixtureStatement(Noted):
    """What a fit was asked for."""

    tag: ClassVar[str] = "MixtureStatement"

    n_components: int
    row_norm: float
    noise_std: float
    covariance_type: str
    start: tuple[float, ...]


@dataclass(frozen=True)
class MixtureEM(Method):
    """Rounds of sums for all components at once.

    Parameters
    ----------
    n_rounds : int, default 10
        Public number of rounds.

    Attributes
    ----------
    query : MixtureSums
        Decided.

    Examples
    --------
    >>> from dpdist import GaussianMixture
    >>> from dpdist.problems.latent_problems import mixture
    >>> data, truth = mixture(50_000, 2, n_components=3, snr=4.0, random_state=0)
    >>> model = GaussianMixture(3, row_norm=7.0, noise_std=1.0, method=MixtureEM(n_rounds=8), start=truth.ravel(),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).means_.round(1).tolist(), truth.round(1).tolist()
    ([[-0.5, -4.0], [-3.2, 2.4], [3.7, 1.6]], [[-0.5, -4.0], [-3.2, 2.4], [3.7, 1.6]])
    """

    tag, name = "MixtureEM", "em"
    parameter = "method"
    unsure: ClassVar[str] = (
        "no information matrix is released at the solution of an EM algorithm, by which noise and data would move it. "
        "bootstrap() has intervals, by fits to rows of the mixture that was found"
    )
    measures: ClassVar[str] = (
        "expected distance of a centre to the truth, noise of the last round and sampling, for components of equal "
        "weight that do not overlap"
    )
    solves_with = ("covariance_type", "start")

    statement: MixtureStatement = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    n_rounds: int = ROUNDS

    def __post_init__(self) -> None:
        check_count("n_rounds", self.n_rounds)

    def decide(self, public: Public, statement: MixtureStatement) -> Self:
        need_delta(public.budget.delta, "sums")
        wanted = statement.n_components * public.n_features
        if len(statement.start) != wanted:
            raise BudgetError(
                f"start must have {wanted} numbers, {public.n_features} for each of the {statement.n_components} "
                f"centres, got {len(statement.start)}"
            )
        centres = np.reshape(statement.start, (statement.n_components, -1))
        norms = np.linalg.norm(centres, axis=1)
        if not norms.max() <= statement.row_norm:
            raise BudgetError(
                f"start has a centre of norm {norms.max():.6g}, and rows are shortened to row_norm="
                f"{statement.row_norm:g}: begin inside, or declare a larger row_norm"
            )
        if len({tuple(centre) for centre in centres}) < len(centres):
            raise BudgetError("start has two centres in one place, which would never part: pass different ones")
        query = MixtureSums(statement.n_components, public.n_features, statement.row_norm)
        return self._with(public, statement, query=query)

    def lines(self) -> Sequence[Line]:
        return [Line("sums", Gaussian(), self.query, count=self.n_rounds)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        statement, d = self.statement, self.public.n_features
        k = statement.n_components
        point = Components(
            np.full(k, 1 / k), np.reshape(statement.start, (k, d)), np.full((k, d), statement.noise_std**2)
        )
        for _ in range(self.n_rounds):
            oracle.visit(point.means.ravel())
            point = self._next(oracle.ask("sums", point).reshape(k, 2 * d + 1))
        return {"weights": point.weights, "means": point.means, "covariances": point.variances}

    def _next(self, sums: Vector) -> Components:
        """Weights, means and variances of noisy sums, in their public ranges."""
        statement, d, R = self.statement, self.public.n_features, self.statement.row_norm
        counts = np.maximum(sums[:, 0], 1.0)
        means = sums[:, 1 : d + 1] / counts[:, None] * R
        means *= np.minimum(1.0, R / np.maximum(np.linalg.norm(means, axis=1), R * 1e-9))[:, None]
        variances = sums[:, d + 1 :] / counts[:, None] * R**2 - means**2
        if statement.covariance_type == "spherical":
            variances = np.repeat(variances.mean(axis=1)[:, None], d, axis=1)
        variances = np.clip(variances, (FLOOR * statement.noise_std) ** 2, R**2)
        return Components(counts / counts.sum(), means, variances)

    def expected_error(self, plan: Plan) -> float | None:
        public, statement, d = self.public, self.statement, self.public.n_features
        sensitivity = self.query.unit_sensitivity(public.neighbours, 2, public.units)
        noise = plan["sums"].mechanism.noise_std(sensitivity) * statement.row_norm
        rows = public.n_rows / statement.n_components
        sampled = statement.noise_std * math.sqrt(d * public.units.max_rows / rows)
        return math.hypot(noise * math.sqrt(d + 1) / rows, sampled)

    def warnings(self) -> Sequence[str]:
        """Whether there are more components than the noise allows."""
        statement, public = self.statement, self.public
        found = self.expected_error(planned(self))
        if found is None or found < statement.noise_std:
            return ()
        n = math.ceil(float(f"{public.n_rows * (found / statement.noise_std):.2g}"))
        return (
            f"n_components={statement.n_components} is more than the noise allows: centres are expected to move by "
            f"{found:.3g}, more than noise_std={statement.noise_std:g}; take about {n:,} rows or more, fewer "
            "components, or a larger epsilon",
        )


METHODS = by_name(MixtureEM)


@dataclass(eq=False, repr=False)
class GaussianMixture(Estimator):
    """A mixture of normal components with independent columns: weights, means and variances.

    For components that stand apart, from a start near each of them. Of two components with a known variance,
    `TwoComponentMixture` is far more exact.

    Parameters
    ----------
    n_components : int, default 2
        How many; with more, each has fewer rows to stand out of the noise.
    method : {"em"} or MixtureEM
        The private algorithm; an object sets the number of its rounds.
    row_norm : float
        Public bound R of the norm of a row, enforced by clipping. Required; the noise of a mean grows with it, so
        centre the rows by public numbers.
    noise_std : float
        Public guess of the standard deviation of a column within a component, where variances begin; none falls below a
        tenth of it. Required.
    start : sequence of float
        Public centres to begin with, one after another: ``n_components * n_features`` numbers, or an array of that many
        rows. Required; never taken from the rows.
    covariance_type : {"diag", "spherical"}
        One variance for every column of a component, or one for all of them.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    means_, covariances_ : array of shape (n_components, n_features)
    weights_ : array of shape (n_components,)
        How sure all of them are says ``bootstrap()``.
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> centres = np.array([[3.0, 0.0], [-3.0, 2.0], [0.0, -3.0]])
    >>> X = centres[rng.integers(3, size=50_000)] + rng.normal(size=(50_000, 2))
    >>> model = GaussianMixture(
    ...     3, row_norm=6.0, noise_std=1.0, start=[2, 1, -2, 1, 1, -2], epsilon=1.0, delta=1e-6, random_state=0
    ... ).fit(X)
    >>> bool(abs(model.means_ - centres).max() < 0.15), bool(abs(model.weights_ - 1 / 3).max() < 0.02)
    (True, True)
    """

    labelled = False
    answers = (Answer.CENTRES,)
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    n_components: int = 2
    method: str | MixtureEM = "em"
    _: KW_ONLY
    row_norm: float | None = None
    noise_std: float | None = None
    start: Sequence[float] | None = None
    covariance_type: str = "diag"
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]

    def _decided(self, public: Public, **beside: Any) -> Method:
        method = chosen("method", self.method, METHODS, auto=False)
        statement = MixtureStatement(
            self.n_components, float(self.row_norm or 0.0), float(self.noise_std or 0.0), self.covariance_type,
            self._flat(),
        )  # fmt: skip
        found: Method = method.decide(public, statement)
        return found

    def _flat(self) -> tuple[float, ...]:
        start: Any = self.start
        shaped = getattr(start, "ndim", 1) == 2
        return public_vector("start", np.ravel(start) if shaped else start)

    def _trivial_error(self, method: Method) -> float | None:
        return float(self.row_norm or 0.0)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("n_components", self.n_components)
        chosen("method", self.method, METHODS, auto=False)
        choice("covariance_type", self.covariance_type, COVARIANCES)
        meanings = {
            "row_norm": BOUNDS["row_norm"],
            "noise_std": "pass a public guess of the standard deviation of a column within a component",
        }
        for name, meaning in meanings.items():
            if getattr(self, name) is None:
                raise MissingBound(f"{name} is missing: {meaning}")
            check_bound(name, getattr(self, name))
        if self.start is None:
            raise MissingBound(
                "start is missing: pass public centres, n_components * n_features numbers. They are never taken from "
                "the rows (k-means++ would show some of them)"
            )
        self._flat()

    def _fitted_law(self) -> FittedLaw:
        k, d = self.means_.shape
        names, groups = feature_names(self, d), [f"component {i}" for i in range(k)]
        return FittedLaw(
            _flattened(self),
            (
                *(f"weight of {group}" for group in groups),
                *(f"{what} of {name}, {group}" for what in ("mean", "variance") for group in groups for name in names),
            ),
            k + np.arange(k * d).reshape(k, d),
            self._drawn,
            _flattened,
            "Rests on the model: normal components with independent columns, as many as were asked for.",
        )

    def _drawn(self, values: Vector, X: Vector, rng: np.random.Generator) -> tuple[Vector, None]:
        k, d = self.means_.shape
        weights = np.maximum(values[:k], 0.0)
        means, variances = values[k:].reshape(2, k, d)
        which = rng.choice(k, size=len(X), p=weights / weights.sum())
        return means[which] + np.sqrt(np.maximum(variances, 0.0))[which] * X, None

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probabilities of the components, given a row."""
        levels = self._levels(X)
        return np.asarray(np.exp(levels - logsumexp(levels, axis=1, keepdims=True)))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The most probable component of every row."""
        return np.asarray(self._levels(X).argmax(axis=1), dtype=np.int64)

    def score_samples(self, X: Any) -> Vector:
        """The logarithm of the density at every row."""
        return np.asarray(logsumexp(self._levels(X), axis=1))

    def _levels(self, X: Any) -> Vector:
        check_is_fitted(self, "means_")
        X = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        return Components(self.weights_, self.means_, self.covariances_).log_densities(X)


def _flattened(model: Any) -> Vector:
    """Weights, means and variances of a fitted mixture, one after another."""
    return np.concatenate([model.weights_, model.means_.ravel(), model.covariances_.ravel()])
