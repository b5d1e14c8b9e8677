"""Sparse covariance and precision matrices from one report of every user.

=================== ==========================================================================================
method              parameters
=================== ==========================================================================================
cov-threshold-ldp   ``SparseCovariance(method="threshold")``
glasso-ldp          ``GraphicalLasso()``: the graphical lasso of the mean of the reports, floored
=================== ==========================================================================================

Seed 000, Algorithms 6.2.49 and 6.3.53, as corrected in spec 06, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from dpdist.estimators.choices import Offered
from dpdist.estimators.moment_covariances import COVARIANCES, CovarianceRule, Covariances
from dpdist.estimators.moment_precisions import PRECISIONS, PrecisionRule, Precisions
from dpdist.local.matrices.second_moment import MECHANISMS, MomentReports, ReportedMoments


@dataclass(eq=False, repr=False)
class SparseCovariance(Covariances, ReportedMoments):
    """A covariance matrix, most of whose entries are 0: the mean of one report of every user, thresholded.

    Parameters
    ----------
    method : {"threshold", "noisy"}, ThresholdedCovariance or NoisyCovariance
        ``"threshold"``: entries that do not stand out of noise and sampling are 0. ``"noisy"``: the estimate without
        negative eigenvalues, for comparison.
    row_norm, mechanism, unit_rows, most_columns
        Of the reports, as in `dpdist.local.SecondMoment`; a fitted one may be passed to `fit` instead.
    epsilon, delta, fidelity, ledger, cluster, run_id, random_state
        As in `dpdist.local.PCA`.

    Attributes
    ----------
    covariance_ : array of shape (p, p)
        Without negative eigenvalues.
    sparse_covariance_, support_ : arrays of shape (p, p)
        With exact zeros, and where they are not (``"threshold"`` only).
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_, guarantee_, plan_, releases_, fidelity_
        As in `dpdist.local.SecondMoment`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100_000, 6)) * 0.3
    >>> X[:, 1] = (X[:, 0] + X[:, 1]) / 1.5
    >>> model = SparseCovariance(row_norm=1.0, epsilon=4.0, random_state=0).fit(X)
    >>> [(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(model.support_, 1)))]
    [(0, 1)]
    """

    offers: ClassVar[Mapping[str, Offered]] = {"mechanism": MECHANISMS, "method": COVARIANCES}

    method: str | CovarianceRule = "threshold"
    _: KW_ONLY
    mechanism: str | MomentReports = "auto"


@dataclass(eq=False, repr=False)
class GraphicalLasso(Precisions, ReportedMoments):
    """A precision matrix, most of whose entries are 0, from one report of every user.

    Attributes are those of scikit-learn's ``GraphicalLasso``; there is no ``location_`` (the mean is taken as 0),
    and no path of the solver. Only pairs of columns are penalised, as there.

    Parameters
    ----------
    method : {"covariance"} or CovariancePerturbation
        Parameters of the penalty; nobody could put noise on the solution.
    row_norm, mechanism, unit_rows, most_columns
        Of the reports, as in `dpdist.local.SecondMoment`; a fitted one may be passed to `fit` instead. Use
        standardised columns (by public scales) and about ``sqrt(p + 2 sqrt(2 p))``.
    epsilon, delta, fidelity, ledger, cluster, run_id, random_state
        As in `dpdist.local.PCA`.

    Attributes
    ----------
    precision_, covariance_ : array of shape (p, p)
    edges_ : array of bool of shape (p, p)
    penalty_ : float
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_, guarantee_, plan_, releases_, fidelity_
        As in `dpdist.local.SecondMoment`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100_000, 4))
    >>> X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    >>> model = GraphicalLasso(row_norm=3.0, epsilon=4.0, random_state=0).fit(X)
    >>> bool(model.precision_[0, 1] < -1)
    True
    """

    offers: ClassVar[Mapping[str, Offered]] = {"mechanism": MECHANISMS, "method": PRECISIONS}

    method: str | PrecisionRule = "covariance"
    _: KW_ONLY
    mechanism: str | MomentReports = "auto"
