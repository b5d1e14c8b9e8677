"""Bad input of second moments and what is made of them: one error that says what to do, and nothing charged."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpdist import PCA, Dataset, GraphicalLasso, Ledger, SecondMoment, SparseCovariance, SparsePCA
from dpdist.central import CovariancePerturbation, OutputPerturbation, ThresholdedCovariance
from dpdist.errors import BudgetError, DataError, DpdistError, MissingBound
from dpdist.queries.moment_sums import SecondMomentSum

X = np.random.default_rng(0).normal(size=(300, 4))
GOOD = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "cluster": "threads"}
PURE = {"epsilon": 1.0, "row_norm": 1.0, "cluster": "threads"}


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: PCA(5, **GOOD), BudgetError, "n_components=5 exceeds the number of columns, 4"),
        (lambda: PCA(0, **GOOD), BudgetError, "n_components must be a whole number of at least 1"),
        (lambda: PCA(2.5, **GOOD), BudgetError, "n_components must be a whole number"),
        (lambda: PCA(2, gap=-1.0, **GOOD), MissingBound, "gap must be a positive"),
        (lambda: SecondMoment("goe", **PURE), BudgetError, "needs delta > 0.*'wishart'"),
        (lambda: SecondMoment("sulq", **PURE), BudgetError, "needs delta > 0"),
        (lambda: SecondMoment("wishart", **GOOD), BudgetError, "delta=1e-06 has nobody to read it.*'goe'"),
        (lambda: SecondMoment("wishhart", **PURE), BudgetError, "did you mean 'wishart'"),
        (lambda: SecondMoment(epsilon=1.0, delta=1e-6), MissingBound, "row_norm is missing: pass a public bound"),
        (lambda: PCA(2, **{**GOOD, "row_norm": np.inf}), MissingBound, "row_norm must be a positive finite number"),
        (lambda: SecondMoment(centre="mean", **GOOD), BudgetError, "centre='mean' is not known.*'pairs'"),
        (
            lambda: SecondMoment(centre="pairs", neighbours="add-or-remove-one", n_public=300, **GOOD),
            BudgetError,
            "neighbours='replace-one'",
        ),
        (lambda: SecondMoment(unit_rows=1, **GOOD), BudgetError, "unit_rows must be True or False"),
        (lambda: SecondMoment(most_columns=3, **GOOD), DataError, "most_columns=4"),
        (lambda: SparsePCA(1, multiple=0.0, **GOOD), MissingBound, "multiple must be a positive"),
        (lambda: SparsePCA(1, refit="yes", **GOOD), BudgetError, "refit must be True or False"),
        (lambda: SparseCovariance("hard", **GOOD), BudgetError, "'threshold', 'noisy'"),
        (lambda: SparseCovariance(CovariancePerturbation(), **GOOD), BudgetError, "ThresholdedCovariance"),
        (lambda: GraphicalLasso("output", **GOOD), MissingBound, r"OutputPerturbation\(cap=\.\.\.\)"),
        (
            lambda: GraphicalLasso(OutputPerturbation(cap=4.0), mechanism="goe", **GOOD),
            BudgetError,
            "nobody to read it",
        ),
        (lambda: GraphicalLasso(OutputPerturbation(cap=4.0), centre="pairs", **GOOD), BudgetError, "centre='pairs'"),
        (
            lambda: GraphicalLasso(OutputPerturbation(cap=4.0), neighbours="add-or-remove-one", n_public=300, **GOOD),
            BudgetError,
            "number of rows, which has to be public",
        ),
    ],
)
def test_wrong_parameters(make, error, match):
    ledger = Ledger(":memory:")
    data = Dataset.from_arrays(X=X, account="kept")
    with pytest.raises(error, match=match) as caught:
        make().set_params(ledger=ledger).fit(data)
    assert isinstance(caught.value, DpdistError) and ledger.spent(data.account).epsilon == 0


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ThresholdedCovariance(multiple=-1.0), "multiple must be a positive"),
        (lambda: CovariancePerturbation(penalty=0.0), "penalty must be a positive"),
        (lambda: OutputPerturbation(cap=-4.0), "cap must be a positive"),
        (lambda: ThresholdedCovariance(soft="no"), "soft must be True or False, got 'no'"),
        (lambda: SecondMomentSum(3, 1.0, unit=True, label_bound=1.0), "a label would stay what it is"),
    ],
)
def test_wrong_parameters_of_rules(make, match):
    with pytest.raises((MissingBound, BudgetError), match=match):
        make()


@pytest.mark.parametrize("rule", [CovariancePerturbation, OutputPerturbation])
def test_a_rule_beside_the_penalty_that_replaces_it_is_refused(rule):
    with pytest.raises(BudgetError, match=r"multiple=7\.0 has nobody to read it with penalty=0\.2"):
        rule(multiple=7.0, penalty=0.2)
    assert rule(penalty=0.2).penalty == 0.2 and rule(multiple=7.0).multiple == 7.0


def test_the_penalty_of_scikit_learn_is_found():
    with pytest.raises(TypeError, match=r"no parameter 'alpha': .*method=CovariancePerturbation\(penalty=0\.1\)"):
        GraphicalLasso(alpha=0.1, **GOOD)


def test_one_column_is_no_matrix():
    with pytest.raises(DataError, match=r"one column .*is a single number"):
        SecondMoment(**GOOD).fit(X[:, :1])


def test_many_columns_have_to_be_asked_for():
    with pytest.raises(DataError, match="most_columns=6000"):
        PCA(2, **GOOD).plan(1000, 6000)
    assert PCA(2, most_columns=6000, **GOOD).plan(1000, 6000).n_releases == 1


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (PCA("3"), "n_components must be a whole number of at least 1, got '3'"),
        (PCA(0), "n_components must be a whole number of at least 1, got 0"),
        (PCA(1.5), "n_components must be a whole number"),
        (PCA(5), "n_components=5 exceeds the number of columns, 4: choose 4 or less"),
        (PCA(2, gap=-1.0), "gap must be a positive"),
        (SparsePCA(1, multiple=-1.0), "multiple must be a positive"),
        (SparsePCA(1, product_std=0.0), "product_std must be a positive"),
        (SparsePCA(1, refit="no"), "refit must be True or False, got 'no'"),
        (SparsePCA(1, n_nonzero=0), "n_nonzero must be a whole number"),
        (SparsePCA(4, n_nonzero=1), "cannot hold n_components=4"),
        (SparsePCA(1, n_nonzero=9), "n_nonzero=9 exceeds the number of columns, 4"),
        (SparsePCA(1, n_nonzero=2, multiple=2.0), r"multiple=2\.0 has nobody to read it with n_nonzero=2"),
        (SparsePCA(1, n_nonzero=2, refit=False), "refit=False has nobody to read it with n_nonzero=2"),
        (SparsePCA(1, n_nonzero=2, product_std=9.0), r"product_std=9\.0 has nobody to read it with n_nonzero=2"),
        (SparseCovariance("hard"), "'threshold', 'noisy'"),
        (GraphicalLasso("cov"), "'covariance', 'output'"),
    ],
)
def test_wrong_parameters_of_an_answer_are_refused_whatever_it_is_made_of(made, match):
    for data in (SecondMoment(random_state=0, **GOOD).fit(X), X):
        own = {} if isinstance(data, SecondMoment) else GOOD
        with pytest.raises(DpdistError, match=match):
            clone(made).set_params(**own).fit(data)


def test_a_moment_that_does_not_fit():
    moment = SecondMoment(**GOOD).fit(X)
    with pytest.raises(NotFittedError):
        PCA(2).fit(SecondMoment(**GOOD))
    with pytest.raises(BudgetError, match="n_components=5 exceeds"):
        PCA(5).fit(moment)
    with pytest.raises(BudgetError, match=r"row_norm=2\.0 .* row_norm is 1\.0"):
        PCA(2, row_norm=2.0).fit(moment)
    with pytest.raises(BudgetError, match=r"unit_rows=True .* unit_rows is False"):
        SparseCovariance(unit_rows=True).fit(moment)
    with pytest.raises(BudgetError, match=r"epsilon=2.0"):
        PCA(2, epsilon=2.0).fit(moment)
    with pytest.raises(BudgetError, match="random_state=1 has nobody to read it"):
        PCA(2, random_state=1).fit(moment)
    with pytest.raises(BudgetError, match="fit to rows, or choose method='covariance'"):
        GraphicalLasso(OutputPerturbation(cap=4.0)).fit(moment)
    assert PCA(2, row_norm=1.0, delta=1e-6).fit(moment).guarantee_ is moment.guarantee_

    class Elsewhere(SecondMoment):
        trust = "local"

    with pytest.raises(BudgetError, match="of the central model got a second moment of the local model"):
        PCA(2).fit(Elsewhere(**GOOD).fit(X))
    other = PCA(2).fit(moment)
    with pytest.raises(ValueError, match="3 features"):
        other.transform(X[:, :3])
    for rows in (X, X[0, :2]):
        with pytest.raises(DataError, match=r"coordinates along 2 components.*got shape \("):
            other.inverse_transform(rows)
