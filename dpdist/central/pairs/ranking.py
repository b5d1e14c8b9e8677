"""`PairwiseRanker`: coefficients whose scores rank positive rows before negative ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.pairs.ranking_gradient import PairGradient
from dpdist.central.pairs.ranking_method import RankingMethod, RankingStatement
from dpdist.central.pairs.ranking_online import PairChains, PairOnline
from dpdist.central.pairs.ranking_output import PairOutput
from dpdist.central.pairs.ranking_preconditioned import PreconditionedPairs
from dpdist.central.pairs.ranking_stream import PairStream
from dpdist.data import ArraySpec
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator
from dpdist.estimators.parameters import check_between, check_bound, need_bound
from dpdist.estimators.row_maps import AboveThreshold, ClassCodes, features
from dpdist.kernels.clip import clip_l2
from dpdist.method import Method, Public, Vector, by_name
from dpdist.privacy.audit.worst_neighbours import Pair, labelled_rows, one_against_others

SOLVERS = by_name(PairGradient, PreconditionedPairs, PairOutput, PairStream, PairOnline, PairChains)
LONGEST = 10.0
"""``row_norm`` times the default radius: the largest score, beyond which pairs hardly count."""


@dataclass(eq=False, repr=False)
class PairwiseRanker(Estimator):
    """A linear ranking: positive rows before negative ones, by the mean logistic loss of all pairs of rows.

    What is minimised stands for 1 - AUC. It does not depend on how frequent the classes are, and needs no intercept.

    Parameters
    ----------
    solver : {"auto", "gradient", "preconditioned", "output", "stream", "online", "giga"} or RankingMethod
        The private algorithm; ``"auto"`` is ``"preconditioned"``, for columns that are correlated or of different
        scales, where there are rows enough for its second moment, else ``"gradient"``. ``"output"`` releases one
        minimiser with a ridge penalty (`dpdist.central.pairs.ranking_output`). ``"stream"`` reads the rows in their
        order, in blocks, each once as new (`dpdist.central.pairs.ranking_stream`). ``"online"`` and ``"giga"`` are the
        methods of the source (`dpdist.central.pairs.ranking_online`).
    classes : sequence of two
        The negative and the positive label. Public; rows with another label count as empty. Required, unless there is
        a ``threshold``.
    threshold : float, optional
        Public, for labels that are numbers: rows above it are positive.
    row_norm : float
        Public bound of the l2 norm of a row; longer rows are scaled down to it, in fit and scores. Required.
    radius : float, optional
        Public bound of the norm of the coefficients. Default: ``10 / row_norm``; columns that
        hardly vary, and matter, need more.
    epsilon, delta, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`. The guarantee is for replace-one.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    iterates_ : array of shape (n_points, n_features)
        Of ``"online"``: the ranking behind every row, from the first step on.
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3)) / 3
    >>> y = X @ [3.0, -2.0, 0.0] + rng.logistic(size=20_000) / 2 > 2.0  # a few
    >>> model = PairwiseRanker(classes=[False, True], row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    answers = (Answer.RANKING,)
    offers: ClassVar[Mapping[str, Offered]] = {"solver": SOLVERS}

    solver: str | RankingMethod = "auto"
    _: KW_ONLY
    classes: Sequence[Any] | None = None
    threshold: float | None = None
    row_norm: float | None = None
    radius: float | None = None

    def _decided(self, public: Public, **beside: Any) -> RankingMethod:
        solver = chosen("solver", self.solver, SOLVERS)
        row_norm = float(self.row_norm or 1.0)
        statement = RankingStatement(
            row_norm,
            float(self.radius or LONGEST / row_norm),
            () if self.classes is None else tuple(self.classes),
            self.threshold,
        )
        if solver != "auto":
            found: RankingMethod = solver.decide(public, statement)
            return found
        if PreconditionedPairs.worth(public):
            why = "a released second moment stands out of its noise, and steps by it come as far for correlated columns"
            return replace(PreconditionedPairs().decide(public, statement), reason=why)
        why = "there are too few rows for a second moment to precondition by"
        return replace(PairGradient().decide(public, statement), reason=why)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("solver", self.solver, SOLVERS)
        need_bound("row_norm", self.row_norm)
        if self.radius is not None:
            check_bound("radius", self.radius)
        if self.classes is not None and self.threshold is not None:
            raise BudgetError(
                "classes and threshold both say which rows are positive: pass classes, the negative and the positive "
                "label, or a threshold for labels that are numbers, one of the two"
            )
        if self.classes is None and self.threshold is None:
            raise MissingBound(
                "classes is missing: pass the negative and the positive label, for example classes=[0, 1], or a "
                "threshold for labels that are numbers. It is public; reading it off the data would "
                "tell whether a rare label is there"
            )
        if self.threshold is not None:
            check_between("threshold", self.threshold, -np.inf)
            return
        labels = [] if isinstance(self.classes, str) or not np.iterable(self.classes) else list(self.classes)
        if len(labels) != 2 or not all(isinstance(k, Hashable) for k in labels) or labels[0] == labels[1]:
            raise MissingBound(
                f"classes must be two different labels, the negative and the positive one, got {self.classes!r}"
            )

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        return {"X": features, "y": self._labels_of(arrays["y"].dtype)}

    def _labels_of(self, stored: str) -> Prepare:
        """The map of labels to -1 and +1; refuses labels of another kind than the declared ones."""
        if self.threshold is None:
            assert self.classes is not None
            codes = ClassCodes(tuple(self.classes))
            codes.check_dtype(stored)
            return codes
        if np.dtype("U" if stored == "str" else stored).kind not in "biuf":
            raise DataError(f"the labels are stored as {stored}, and threshold={self.threshold!r} is for numbers")
        return AboveThreshold(float(self.threshold))

    def _extreme_labels(self) -> tuple[Any, Any]:
        if self.threshold is not None:
            return self.threshold - 1, self.threshold + 1
        assert self.classes is not None
        return self.classes[0], self.classes[1]

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """A positive row among negative ones, here or there; and rows whose label changes."""
        labels = self._extreme_labels()
        return one_against_others(n_rows, n_features, labels) | labelled_rows(n_rows, n_features, labels)

    def decision_function(self, X: Any) -> Vector:
        """Scores: the higher, the more likely positive."""
        check_is_fitted(self, "coef_")
        X = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        assert self.row_norm is not None
        scores: Vector = clip_l2(X, self.row_norm) @ self.coef_
        return scores

    def score(self, X: Any, y: Any) -> float:
        """The AUC: the part of pairs that is ranked the right way, equal scores half. Not private."""
        labels = np.asarray(y)
        codes = self._labels_of(labels.dtype.name if labels.dtype.kind not in "USO" else "str")(labels)
        scores, positive, negative = self.decision_function(X), codes == 1, codes == -1
        if not (positive.any() and negative.any()):
            raise BudgetError("the AUC needs rows of both classes")
        from scipy.stats import rankdata  # which takes longer to import than all else here

        ranks, n = rankdata(scores[positive | negative])[codes[positive | negative] == 1], int(positive.sum())
        return float((ranks.sum() - n * (n + 1) / 2) / (n * int(negative.sum())))

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        assert isinstance(method, RankingMethod)
        self.n_iter_ = method.rounds
