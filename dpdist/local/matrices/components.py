"""Principal components, dense and sparse, from one report of every user.

============== =================================================================================
method         parameters
============== =================================================================================
pca-ldp        `PCA`
spca-ldp       `SparsePCA`; ``multiple=1.0, refit=False`` is for which columns matter
============== =================================================================================

Seed 000, Algorithms 6.1.46 and 6.1.47, with reports that are calibrated for ``x x'``.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpdist.estimators.moment_components import DenseComponents, SparseComponents
from dpdist.local.matrices.second_moment import ReportedMoments


@dataclass(eq=False, repr=False)
class PCA(DenseComponents, ReportedMoments):
    """The k principal components: eigenvectors of the mean of one report of every user.

    Attributes and methods are those of scikit-learn's ``PCA``; there is no ``mean_`` (rows are not centred: let users
    subtract a public centre), no ``score`` and no ``singular_values_``.

    Parameters
    ----------
    n_components : int, default 2
    row_norm, mechanism, unit_rows, most_columns
        Of the reports, as in `dpdist.local.SecondMoment`; a fitted one may be passed to `fit` instead.
    gap : float, optional
        Public guess of the difference of the k-th and the next eigenvalue, for the prediction of `outlook` only:
        ``s sqrt(k (p - k)) / gap`` for noise, and the error of sampling.
    epsilon, delta, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    components_ : array of shape (n_components, p)
    explained_variance_, explained_variance_ratio_ : array of shape (n_components,)
    expected_error_ : float
        Distance to be expected of the projection on them from the true one (Frobenius norm), by the eigenvalues that
        were released; that of `outlook`, before the fit, rests on ``gap``. What clipping moves is not in it.
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_, guarantee_, plan_, releases_, fidelity_
        As in `dpdist.local.SecondMoment`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50_000, 5)) * [1.0, 0.2, 0.1, 0.1, 0.1]
    >>> model = PCA(1, row_norm=1.0, unit_rows=True, epsilon=2.0, random_state=0).fit(X)
    >>> bool(model.components_[0, 0] > 0.99)
    True
    """


@dataclass(eq=False, repr=False)
class SparsePCA(SparseComponents, ReportedMoments):
    """The k principal components where few columns matter, from one report of every user.

    Fantope projection and selection on the mean of the reports, and its components within the columns that it finds.

    Parameters
    ----------
    n_components : int, default 2
    refit : bool, default True
        Components of the estimate within the support, instead of the shrunken ones of the convex program.
    multiple : float, default 0.5
        Of the penalty that theory has for finding the support: 1 for hardly any false column.
    product_std : float, optional
        Public guess of the standard deviation of a product of two columns. Default: ``row_norm^2 / p``.
    n_nonzero : int, optional
        How many columns matter, where that is public: the components within twice as many columns, those with the
        largest second moments (spca-diag; for comparison).
    row_norm, mechanism, unit_rows, most_columns
        Of the reports, as in `dpdist.local.SecondMoment`; a fitted one may be passed to `fit` instead.
    epsilon, delta, fidelity, ledger, cluster, run_id, random_state
        As in `dpdist.local.PCA`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_
        As in `PCA`; with ``refit`` exactly 0 outside the support.
    support_ : array of bool of shape (p,)
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_, guarantee_, plan_, releases_, fidelity_
        As in `dpdist.local.SecondMoment`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50_000, 12)) * 0.05
    >>> X[:, :3] += np.random.default_rng(1).normal(size=(50_000, 1)) * 0.4
    >>> model = SparsePCA(1, row_norm=1.0, epsilon=4.0, random_state=0).fit(X)
    >>> np.flatnonzero(model.support_).tolist()
    [0, 1, 2]
    """
