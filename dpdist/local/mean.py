"""Means of columns, of which every user reports what a chosen epsilon allows.

=================== ================================================ ==================== ============================
domain              methods (the first is "auto")                    parameters           ids
=================== ================================================ ==================== ============================
``"interval"``      ``"hybrid"``, ``"one-bit"``, ``"piecewise"``,    ``low, high``        ldp-avg-1d, duchi-1d,
                    ``"laplace"``, ``"gaussian"``                                         piecewise, hybrid
``"box"``           ``"sample-coordinates"``, ``"one-bit"``          ``low, high``        ldp-avg-vec, coord-sampling
``"l2"``            ``"privunitg"`` or ``"privunit"``,               ``radius``           ldp-vec-privunit, privunit,
                    ``"hemisphere"``, ``"gaussian"``                                      privunitg, ldp-vec-duchi,
                                                                                          duchi-l2, ldp-vec-gauss,
                                                                                          ldp-gauss
``"l1"``            ``"direct"``, ``"projected"``,                   ``radius``,          l1-mean-direct, l1-mean-proj,
                    ``"projected-gaussian"``                         ``l1_radius``        l1-recover, mom-select
``"heavy-tailed"``  ``"hybrid"``, ``"one-bit"``, ``"gaussian"``      ``second_moment``    mean-ldp-pure, mean-ldp-gauss
=================== ================================================ ==================== ============================

Gaussian methods have an (epsilon, delta) guarantee, all others a pure one. Seed 000, sections 5.1 and 7.2, and seed
001, sections 3 and 4, as corrected there and here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.fitting.columns import features, targets
from dpdist.fitting.inputs import as_dataset
from dpdist.fitting.parameters import BOUNDS, check_between, check_bound, check_count, choice
from dpdist.identity import text
from dpdist.local.coordinates import SampleCoordinates
from dpdist.local.entries import Ball, Box, Truncated, TruncatedVector
from dpdist.local.estimator import LocalEstimator
from dpdist.local.l1_mean import Projected, denoise, n_projections
from dpdist.local.levels import Leveled, Levels, check_levels
from dpdist.local.protocol import LocalProtocol, Randomiser, Statistic
from dpdist.local.scalars import GaussianScalar, Hybrid, LaplaceScalar, OneBit, Piecewise
from dpdist.local.vectors import GaussianVector, Hemisphere, PrivUnit, PrivUnitG, best_vector
from dpdist.privacy.budget import Budget
from dpdist.solvers.robust import median_select

METHODS = {
    "interval": ("hybrid", "one-bit", "piecewise", "laplace", "gaussian"),
    "box": ("sample-coordinates", "one-bit"),
    "l2": ("privunitg", "privunit", "hemisphere", "gaussian"),
    "l1": ("direct", "projected", "projected-gaussian"),
    "heavy-tailed": ("hybrid", "one-bit", "gaussian"),
}
SCALARS: dict[str, Callable[[int, float], Randomiser]] = {
    "hybrid": Hybrid,
    "one-bit": OneBit,
    "piecewise": Piecewise,
    "laplace": LaplaceScalar,
}
VECTORS: dict[str, Callable[[int, float], Randomiser]] = {
    "privunit": PrivUnit,
    "privunitg": PrivUnitG,
    "hemisphere": Hemisphere,
}
RANGE = "pass the public range of a feature; what lies outside is moved to its ends"
RADIUS = "pass a public bound of the l2 norm of a record; longer ones are scaled down to it"


class Mean(LocalEstimator):
    """The mean of every column, from one report of every user.

    Parameters
    ----------
    domain : {"interval", "box", "l2", "l1", "heavy-tailed"}
        What is known of a record: one number in ``[low, high]``; several such numbers; a vector of norm at most
        ``radius``; the same, where the mean has an l1 norm of at most ``l1_radius``; or only how large the mean square
        of an entry is about.
    method : str
        Law of the reports, see the table of this module; "auto" takes the one with the least noise.
    low, high : float, optional
        For intervals and boxes.
    radius : float, optional
        For "l2" and "l1".
    l1_radius : float, optional
        For "l1"; where it is not known, what does not stick out of the noise is set to 0 ("direct" only).
    second_moment : float, optional
        For "heavy-tailed": public guess of the mean square of an entry; it sets the scale, and a factor of 10 in it
        costs a factor of 2 in the error.
    scale : float, optional
        For "heavy-tailed": public scale of the truncation, in place of what ``second_moment`` gives.
    n_sampled : int or "auto"
        For "box" and "heavy-tailed": how many coordinates a user reports.
    n_projections : int, optional
        For the projected methods; default ``epsilon sqrt(n_rows) l1_radius / radius``.
    projection_seed : int, default 0
        Public.
    n_groups : int, default 1
        Take the mean of that many groups of users, and of these the one in the middle (`median_select`). For groups
        that might be corrupted as a whole; otherwise one group is better.
    epsilon_levels : sequence of float, optional
        Public levels of privacy, in place of ``epsilon``, for intervals and "l2": ``fit(X, y)`` then takes every user's
        own epsilon as y, a public number that must not depend on the record, and each reports at the largest level that
        is not above it. The means of the levels are weighted by the inverse of their variances.
    epsilon, delta, fidelity
        As in `dpdist.local.estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state, verbose
        As in `dpdist.central.minimizer.Minimizer`.

    Attributes
    ----------
    mean_ : array of shape (n_features,)
    standard_error_ : float
        Of an entry of the mean of the reports (before an l1 norm is used), at the worst records; public. What is lost
        by a truncation is not in it.
    method_, method_reason_ : str
        What "auto" chose, and why.
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.minimizer.Minimizer`.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(20, 60, size=(50_000, 1))
    >>> model = Mean("interval", low=0.0, high=100.0, epsilon=1.0, random_state=0).fit(X)
    >>> bool(abs(model.mean_[0] - 40) < 5 * model.standard_error_), model.method_
    (True, 'hybrid')
    """

    def __init__(
        self,
        domain: str = "box",
        method: str = "auto",
        *,
        low: float | None = None,
        high: float | None = None,
        radius: float | None = None,
        l1_radius: float | None = None,
        second_moment: float | None = None,
        scale: float | None = None,
        n_sampled: int | str = "auto",
        n_projections: int | None = None,
        projection_seed: int = 0,
        n_groups: int = 1,
        epsilon_levels: Sequence[float] | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        fidelity: str = "report",
        ledger: Any = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.domain = domain
        self.method = method
        self.low = low
        self.high = high
        self.radius = radius
        self.l1_radius = l1_radius
        self.second_moment = second_moment
        self.scale = scale
        self.n_sampled = n_sampled
        self.n_projections = n_projections
        self.projection_seed = projection_seed
        self.n_groups = n_groups
        self.epsilon_levels = epsilon_levels
        self.epsilon = epsilon
        self.delta = delta
        self.fidelity = fidelity  # type: ignore[assignment]  # checked when it is used
        self.ledger = ledger
        self.cluster = cluster
        self.run_id = run_id
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Mean:
        """Fit to an array (``fit(X)``) or to the array X of a stored dataset (``fit(dataset)``).

        y is ignored, unless there are ``epsilon_levels``: then it is (or the dataset's array y) every user's epsilon.
        """
        self._check_parameters()
        arrays: dict[str, Prepare] = {"X": features}
        if self.epsilon_levels is not None:
            arrays["y"] = targets
        dataset = as_dataset(self, X, y, labels="y" in arrays).select(**{name: name for name in arrays})
        protocols = self._protocols(dataset.n_rows, self.n_features_in_)
        if protocols[0].randomiser.delta:
            self._budget.warn_if_delta_is_large(dataset.n_rows)
        with self._questions(dataset, arrays, protocols, text((self.l1_radius, self.n_groups))) as questions:
            totals = [questions.total(group) for group in range(len(protocols))]
            sizes = questions.sizes
        means = np.array([p.estimate(total, n) for p, total, n in zip(protocols, totals, sizes, strict=True)])
        mean = means[0] if len(means) == 1 else median_select(means)
        statistic: Any = protocols[0].statistic
        statistic = statistic.statistic if isinstance(statistic, Leveled) else statistic
        unit = statistic.unit if isinstance(statistic, Projected) else statistic.radius
        self.standard_error_ = unit * _noise(protocols[0], totals[0], min(sizes))
        self.method_, self.method_reason_ = self._choice(self.n_features_in_)
        self.mean_ = self._finish(mean, statistic)
        return self

    def _finish(self, mean: NDArray[np.float64], statistic: Statistic) -> NDArray[np.float64]:
        """What is known of the mean, used: post-processing of reports."""
        if isinstance(statistic, Projected):
            return statistic.recover(mean, self._need("l1_radius"))
        if self.domain == "l1":
            return denoise(mean, self.l1_radius, self.standard_error_)
        if isinstance(statistic, Box):
            return np.clip(mean, statistic.low, statistic.high)
        return mean

    def _protocols(self, n_rows: int, n_features: int) -> Sequence[LocalProtocol]:
        if self.domain == "interval" and n_features != 1:
            raise DataError(f"domain='interval' is for one number per user, got {n_features} columns; use domain='box'")
        check_between("n_groups", self.n_groups, 1, n_rows)
        method, _ = self._choice(n_features)
        statistic = self._statistic(method, n_rows // self.n_groups, n_features)
        if self.epsilon_levels is not None:
            levels = tuple(float(level) for level in self.epsilon_levels)
            leveled = Levels((SCALARS | VECTORS)[method](statistic.size, levels[-1]), levels)
            return [LocalProtocol(Leveled(statistic, levels), leveled)] * self.n_groups
        return [LocalProtocol(statistic, self._randomiser(method, statistic))] * self.n_groups

    def _choice(self, n_features: int) -> tuple[str, str]:
        """The method, and why it is that one."""
        if self.method != "auto":
            return self.method, "as asked for"
        if self.domain == "l2":
            if n_features == 1:
                return "hybrid", "a vector of one coordinate is a number, and no law of numbers has less noise"
            best = best_vector(n_features, self.epsilon)
            return best.name, "no other pure report of a vector has less noise; which of the two depends on its size"
        if self.domain == "heavy-tailed" and n_features > 1:
            return "hybrid", "the least noise of all reports about sampled coordinates, without a delta"
        reasons = {
            "sample-coordinates": "a few coordinates with much epsilon have less noise than all with little",
            "direct": "a report of all coordinates is more exact than one of projections, for the same guarantee",
        }
        method = METHODS[self.domain][0]
        return method, reasons.get(method, "the least noise in the worst case, without a delta")

    def _statistic(self, method: str, n_rows: int, n_features: int) -> Statistic:
        if self.domain in ("interval", "box"):
            return Box(n_features, self._need("low"), self._need("high"))
        if self.domain == "heavy-tailed":
            kind = TruncatedVector if method == "gaussian" else Truncated
            return kind(n_features, self._scale(kind(n_features), method, n_rows))
        radius = self._need("radius")
        if method.startswith("projected"):
            p = n_projections(n_rows, n_features, self._need("l1_radius") / radius, self.epsilon)
            p = p if self.n_projections is None else min(self.n_projections, n_features)
            if p < n_features:
                return Projected(n_features, p, radius, self.projection_seed)
        return Box(n_features, -radius, radius) if method == "hybrid" else Ball(n_features, radius)

    def _scale(self, statistic: Truncated, method: str, n_rows: int) -> float:
        """Where bias ``E x^2 / (2 s)`` and noise, which grows with s, are equal."""
        if self.scale is not None:
            return self.scale
        noise = statistic.radius * self._randomiser(method, statistic).noise_std / math.sqrt(n_rows)
        return math.sqrt(self._need("second_moment") / (2 * noise))

    def _randomiser(self, method: str, statistic: Statistic) -> Randomiser:
        size, epsilon = statistic.size, self.epsilon
        if method in ("gaussian", "projected-gaussian"):
            if not self.delta:
                raise BudgetError(f"method={method!r} needs delta > 0: pass delta, far below 1/n_rows")
            kind = GaussianVector if statistic.domain == "ball" else GaussianScalar
            return kind(size, epsilon, self.delta)
        if statistic.domain == "ball":
            return VECTORS[method](size, epsilon) if method in VECTORS else best_vector(size, epsilon)
        if size == 1 and method != "sample-coordinates":
            return SCALARS[method](size, epsilon)
        reporter: Any = "one-bit" if method == "one-bit" else "hybrid"
        n_sampled: Any = self.n_sampled
        return SampleCoordinates(size, epsilon, n_sampled, reporter)

    def _need(self, name: str) -> float:
        value = getattr(self, name)
        if value is None:
            raise MissingBound(f"{name} is missing: {HELP[name]}")
        return float(value)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        Budget(self.epsilon, self.delta or 0.0)
        choice("domain", self.domain, tuple(METHODS))
        choice("method", self.method, ("auto", *METHODS[self.domain]))
        for name in ("low", "high"):
            if getattr(self, name) is not None:
                check_between(name, getattr(self, name), -1e60, 1e60)
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise MissingBound(f"low must lie below high, got low={self.low!r} and high={self.high!r}")
        for name in ("radius", "l1_radius", "second_moment", "scale"):
            if getattr(self, name) is not None:
                check_bound(name, getattr(self, name))
        for name in ("n_sampled", "n_projections"):
            if getattr(self, name) not in ("auto", None):
                check_count(name, getattr(self, name))
        if self.epsilon_levels is not None:
            self._check_levels(self.epsilon_levels)
        check_count("n_groups", self.n_groups)
        check_count("projection_seed", self.projection_seed, low=0)

    def _check_levels(self, levels: Sequence[float]) -> None:
        if self.domain not in ("interval", "l2") or self.method == "gaussian":
            raise BudgetError("epsilon_levels are for domain='interval' and domain='l2', with methods without a delta")
        check_levels(levels)


def _noise(protocol: LocalProtocol, total: NDArray[np.float64], n_rows: int) -> float:
    """Standard error of a value of the mean, at the worst records."""
    if isinstance(protocol.randomiser, Levels):
        return float(1 / math.sqrt(max(protocol.randomiser.weights(total).sum(), 1e-300)))
    return protocol.noise_std / math.sqrt(n_rows)


HELP = {
    "low": RANGE,
    "high": RANGE,
    "radius": RADIUS,
    "l1_radius": "pass a public bound of the l1 norm of the mean",
    "second_moment": BOUNDS["second_moment"],
}
"""What each public number is, for whoever forgot it."""
