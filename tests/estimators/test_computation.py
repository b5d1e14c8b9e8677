"""A run id stands for one computation: what has no lasting name is said before the charge, and never resumed."""

from __future__ import annotations

import warnings
from contextlib import closing

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from dpdist import Dataset, Ledger, Minimizer, SampleAndAggregate
from dpdist.central import ClippedMean
from dpdist.constraints import ElasticNet, L2Ball
from dpdist.errors import LedgerError
from dpdist.identity import tagged


@pytest.fixture
def dataset(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    return Dataset.from_arrays(tmp_path / "rows.zarr", X=X, y=np.where(X[:, 0] > 0, 1.0, -1.0))


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        yield ledger


def aggregate(ledger, read):
    return SampleAndAggregate(
        Ridge(), parameters=read, combine=ClippedMean(20), radius=1.0, delta=1e-6, run_id="monday", ledger=ledger
    )


def minimizer(ledger, **parameters):
    return Minimizer("huber", row_norm=1.0, delta=1e-6, solver="gradient", run_id="monday", ledger=ledger, **parameters)


def test_a_function_without_a_name_is_warned_of_and_not_resumed(dataset, ledger):
    model = aggregate(ledger, lambda fitted: fitted.coef_)
    with pytest.warns(UserWarning, match=r"run_id='monday' cannot be resumed.*parameters has no tag") as caught:
        model.fit(dataset)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning), pytest.raises(LedgerError, match="different plan"):
        aggregate(ledger, lambda fitted: fitted.coef_).fit(dataset)


def test_a_function_with_a_tag_is_resumed(dataset, ledger):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = aggregate(ledger, tagged("coefficients")(lambda fitted: fitted.coef_)).fit(dataset)
        again = aggregate(ledger, tagged("coefficients")(lambda fitted: fitted.coef_)).fit(dataset)
    assert np.array_equal(first.estimate_, again.estimate_)
    with pytest.raises(LedgerError, match="different plan"):
        aggregate(ledger, tagged("others")(lambda fitted: fitted.coef_)).fit(dataset)


def test_a_penalty_without_a_tag_is_not_resumed(dataset, ledger):
    class Shrink:
        strong_convexity = 0.0

        def prox(self, w, step):
            return w / (1 + step)

    with pytest.warns(UserWarning, match=r"cannot be resumed.*Shrink"):
        minimizer(ledger, penalty=Shrink()).fit(dataset)
    with pytest.warns(UserWarning), pytest.raises(LedgerError, match="different plan"):
        minimizer(ledger, penalty=Shrink()).fit(dataset)


def test_equal_numbers_resume_each_other(dataset, ledger):
    first = minimizer(ledger, penalty=ElasticNet(0.5), constraint=L2Ball(1)).fit(dataset)
    again = minimizer(ledger, penalty=ElasticNet(np.float64(0.5)), constraint=L2Ball(np.float64(1.0))).fit(dataset)
    assert np.array_equal(first.coef_, again.coef_)
