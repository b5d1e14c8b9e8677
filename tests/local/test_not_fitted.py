"""Models of the local model that are asked before they are fitted answer as those of scikit-learn do."""

from __future__ import annotations

import pytest
from sklearn.exceptions import NotFittedError

from dpdist.local import DensityQueries, GeneralizedLinearModel, LinearSVC, LogisticRegression, Marginals, RiskSurface


@pytest.mark.parametrize(
    "ask",
    [
        lambda: RiskSurface(low=0.0, high=1.0).value([[0.5]]),
        lambda: Marginals(2).marginal([0]),
        lambda: DensityQueries(low=0.0, high=1.0).query(lambda x: x),
        lambda: GeneralizedLinearModel(row_norm=1.0).predict([[0.0]]),
        lambda: LogisticRegression(classes=[0, 1]).predict([[0.0]]),
        lambda: LinearSVC(classes=[0, 1]).predict([[0.0]]),
    ],
)
def test_a_model_that_is_not_fitted_says_so(ask):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ask()
