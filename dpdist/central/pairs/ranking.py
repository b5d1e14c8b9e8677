"""`PairwiseRanker`: coefficients whose scores rank positive rows before negative ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.central.pairs.ranking_gradient import PairGradient
from dpdist.central.pairs.ranking_method import RankingMethod, RankingStatement
from dpdist.central.pairs.ranking_online import PairChains, PairOnline
from dpdist.central.pairs.ranking_output import PairOutput
from dpdist.central.pairs.ranking_preconditioned import PreconditionedPairs
from dpdist.central.pairs.ranking_stream import PairStream
from dpdist.data import ROWS, ArraySpec, Units
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.estimator import Estimator
from dpdist.estimators.inputs import label_array
from dpdist.estimators.outlook import somebody_asks
from dpdist.estimators.parameters import check_between, check_bound, check_classes, check_count, need_bound
from dpdist.estimators.row_maps import AboveThreshold, ClassCodes, features
from dpdist.kernels.clip import clip_l2
from dpdist.method import Method, Public, Vector, by_name
from dpdist.privacy.audit.worst_neighbours import Pair, labelled_rows, one_against_others

SOLVERS = by_name(PairGradient, PreconditionedPairs, PairOutput, PairStream, PairOnline, PairChains)
LONGEST = 10.0
"""``row_norm`` times the default radius: the largest score, beyond which pairs hardly count."""


def _is_stream(model: PairwiseRanker) -> bool:
    """Whether there are pieces to go on with; scikit-learn takes what is raised for its reason."""
    if model.solver == PairStream.name or isinstance(model.solver, PairStream):
        return True
    raise AttributeError("partial_fit is for streams: use solver=PairStream(stream_rows=...)")


@dataclass(eq=False, repr=False)
class PairwiseRanker(Estimator):
    """A linear ranking: positive rows before negative ones, by the mean logistic loss of all pairs of rows.

    What is minimised stands for 1 - AUC. It does not depend on how frequent the classes are, and needs no intercept.

    Parameters
    ----------
    solver : {"auto", "gradient", "preconditioned", "output", "stream", "online", "giga"} or RankingMethod
        The private algorithm; ``"auto"`` is ``"preconditioned"``, for columns that are correlated, rarely not 0, or of
        different scales, where there are rows enough for its second moment, else ``"gradient"``. ``"output"`` releases
        one minimiser with a ridge penalty (`dpdist.central.pairs.ranking_output`). ``"stream"`` reads the rows in their
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
    next_row_ : int
        Of `partial_fit`: the first row that the next piece of the stream has to have.
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
            self.radius is not None,
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
        check_classes(self.classes, "classes must be two different labels, the negative and the positive one", most=2)

    @available_if(_is_stream)
    def partial_fit(self, X: Any, y: Any = None, *, first: int) -> Self:
        """Go on with a stream as far as these rows allow; only with ``solver=PairStream(stream_rows=...)``.

        The whole stream is charged with its first piece, once. Where it stands is what ledger and journal say, for this
        object as for another process: a release that was made is not made again. A piece has to have the rows of the
        steps to come, and the block before them (`next_row_`); rows that were passed before do no harm.

        Parameters
        ----------
        X, y
            As in `fit`; with the name of the stream, so a stored dataset, or ``Dataset.from_arrays(X=X, y=y,
            dataset_id="clicks")``.
        first : int
            The number of the first of these rows in the stream, from 0. A row keeps its number: one that is passed
            under two of them would be two rows, and what it pays is for one.
        """
        n_rows = self._declared_rows()
        check_count("first", first, low=0)
        dataset = self._dataset(X, y)
        if dataset.anonymous:
            raise BudgetError(
                "the pieces of a stream are known by its name, and these arrays have none: pass "
                "Dataset.from_arrays(X=X, y=y, dataset_id='clicks'), with the same name for all pieces"
            )
        method = self._method(n_rows, self.n_features_in_, dataset.schema.units)
        assert isinstance(method, PairStream)
        stop = first + dataset.n_rows
        if stop > n_rows:
            raise BudgetError(
                f"the stream was declared to have {n_rows} rows, and its budget is spent behind them: rows "
                f"{first} to {stop} do not belong to it. Declare a longer one beforehand, or begin another, with a "
                "budget and a run_id of its own"
            )
        releases = method.releases_in(stop)
        if not releases:
            raise BudgetError(
                f"the first release of this stream reads the rows 0 to {method.first_window}, and those to {stop} are "
                "here: wait for more, and pass them together"
            )
        if somebody_asks():
            self._warn(method)
        self._feature_columns, self._encoding = dataset.schema.columns.get("X", ()), dataset.schema.encoding
        with self._run(dataset.stretch(first, n_rows), self._prepare(dataset.arrays), method) as oracle:
            coef, steps = method.followed(oracle, releases)
        self._finish(method, {"coef": coef})
        self.n_iter_, self.next_row_ = steps, method.next_row(steps)
        return self

    def _declared_rows(self) -> int:
        """How long the stream will be that pieces are passed of."""
        self._check_parameters()
        solver = self.solver
        if not isinstance(solver, PairStream) or solver.stream_rows is None:
            raise MissingBound(
                "stream_rows is missing: what rows pay depends on how long the stream will be, which is public; "
                "declare it beforehand, solver=PairStream(stream_rows=1_000_000)"
            )
        if self.run_id is None:
            raise MissingBound(
                "run_id is missing: it names the stream whose releases a next piece, or another process, goes on with"
            )
        return solver.stream_rows

    def _method(self, n_rows: int, n_features: int, units: Units = ROWS, **beside: Any) -> Method:
        if isinstance(self.solver, PairStream) and self.solver.stream_rows not in (None, n_rows):
            raise BudgetError(
                f"the stream was declared to have {self.solver.stream_rows} rows, and there are {n_rows}: pass pieces "
                "of it to partial_fit, or leave out stream_rows"
            )
        return super()._method(n_rows, n_features, units, **beside)

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
        labels = label_array(y, self.classes)
        codes = self._labels_of(labels.dtype.name if labels.dtype.kind in "biuf" else "str")(labels)
        scores, positive, negative = self.decision_function(X), codes == 1, codes == -1
        if len(scores) != len(codes):
            raise DataError(f"score(X, y) needs one label per row, got {len(codes)} labels and {len(scores)} rows")
        if not (positive.any() and negative.any()):
            raise BudgetError("the AUC needs rows of both classes")
        from scipy.stats import rankdata  # which takes longer to import than all else here

        ranks, n = rankdata(scores[positive | negative])[codes[positive | negative] == 1], int(positive.sum())
        return float((ranks.sum() - n * (n + 1) / 2) / (n * int(negative.sum())))

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        assert isinstance(method, RankingMethod)
        self.n_iter_ = method.rounds
