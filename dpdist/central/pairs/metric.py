"""`MetricLearner`: a distance by which rows of one class are near each other, and others far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from dpdist.central.pairs.metric_gradient import MetricGradient, MetricStatement, metric_root
from dpdist.data import ArraySpec
from dpdist.engine.shards import Prepare
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator
from dpdist.estimators.parameters import check_bound, check_classes, need_bound
from dpdist.estimators.row_maps import ClassCodes, features
from dpdist.kernels.clip import clip_l2
from dpdist.method import Method, Public, Vector, by_name
from dpdist.privacy.audit.worst_neighbours import Pair, labelled_rows, one_against_others

SOLVERS = by_name(MetricGradient)


@dataclass(eq=False, repr=False)
class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """A Mahalanobis metric: ``(x - x')' W (x - x')`` below 1 for rows of one class, above for rows of two.

    Only W is private. A nearest-neighbour classifier in the new space shows the rows that it holds: use public ones.

    Parameters
    ----------
    solver : {"gradient"} or MetricGradient
    classes : sequence
        The public list of labels; rows with another one count as empty. Required.
    row_norm : float
        Public bound of the l2 norm of a row; longer rows are scaled down to it, in fit and ``transform``. Required.
    radius : float, optional
        Public bound of the Frobenius norm of W. Default: ``1 / row_norm^2``.
    epsilon, delta, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`. The guarantee is for replace-one.

    Attributes
    ----------
    metric_ : array of shape (n_features, n_features)
        W, positive semidefinite.
    guarantee_, plan_, releases_, history_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=40_000)
    >>> X = rng.normal(size=(40_000, 3)) * [0.1, 0.3, 0.3] + np.outer(y - 0.5, [0.7, 0.0, 0.0])
    >>> model = MetricLearner(classes=[0, 1], row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X, y)
    >>> int(model.metric_.diagonal().argmax()), model.transform(X[:2]).shape
    (0, (2, 3))
    """

    answers = (Answer.METRIC,)
    offers: ClassVar[Mapping[str, Offered]] = {"solver": SOLVERS}

    solver: str | MetricGradient = "gradient"
    _: KW_ONLY
    classes: Sequence[Any] | None = None
    row_norm: float | None = None
    radius: float | None = None

    def _decided(self, public: Public, **beside: Any) -> Method:
        assert self.classes is not None
        row_norm = float(self.row_norm or 1.0)
        statement = MetricStatement(row_norm, float(self.radius or row_norm**-2), tuple(self.classes))
        found: Method = chosen("solver", self.solver, SOLVERS, auto=False).decide(public, statement)
        return found

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("solver", self.solver, SOLVERS, auto=False)
        need_bound("row_norm", self.row_norm)
        if self.radius is not None:
            check_bound("radius", self.radius)
        check_classes(
            self.classes,
            "classes must be a public list of at least two different labels, for example classes=[0, 1] (reading it "
            "off the data would tell whether a rare label is there)",
        )

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        assert self.classes is not None
        codes = ClassCodes(tuple(self.classes))
        codes.check_dtype(arrays["y"].dtype)
        return {"X": features, "y": codes}

    def _extreme_labels(self) -> tuple[Any, Any]:
        assert self.classes is not None
        return self.classes[0], self.classes[1]

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """A row of a class of its own, here or there; and rows whose label changes."""
        labels = self._extreme_labels()
        return one_against_others(n_rows, n_features, labels) | labelled_rows(n_rows, n_features, labels)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Rows in the space where the metric is Euclidean."""
        check_is_fitted(self, "metric_")
        return self._mapped(np.asarray(validate_data(self, X, reset=False, dtype=np.float64)))

    @property
    def _n_features_out(self) -> int:
        """So many columns `transform` has, which scikit-learn names metriclearner0, metriclearner1 ..."""
        return len(self.metric_)

    def score_pairs(self, pairs: Any) -> Vector:
        """Distances ``sqrt((x - x')' W (x - x'))`` of pairs, an array of shape (n, 2, n_features)."""
        check_is_fitted(self, "metric_")
        pairs = np.asarray(pairs)
        if pairs.dtype.kind not in "biuf" or pairs.ndim != 3 or pairs.shape[1:] != (2, self.n_features_in_):
            got = f"{pairs.dtype.name} of shape {pairs.shape}"
            raise DataError(f"pairs must be numbers of shape (n, 2, {self.n_features_in_}), got {got}")
        pairs = check_array(pairs, dtype=np.float64, allow_nd=True, ensure_min_samples=0, input_name="pairs")
        distances: Vector = np.linalg.norm(self._mapped(pairs[:, 0]) - self._mapped(pairs[:, 1]), axis=1)
        return distances

    def _mapped(self, X: Vector) -> NDArray[np.float64]:
        assert self.row_norm is not None
        return np.asarray(clip_l2(X, self.row_norm) @ metric_root(self.metric_))

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        assert isinstance(method, MetricGradient)
        self.n_iter_ = method.n_rounds
