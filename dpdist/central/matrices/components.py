"""Principal components, dense and sparse, of rows that a trusted coordinator may see: one released second moment.

============== =================================================================================
method         parameters
============== =================================================================================
pca-central    `PCA`
spca-fps       `SparsePCA`
spca-support   ``SparsePCA(multiple=1.0, refit=False)``: which columns matter
============== =================================================================================

Seed 000, Algorithms 6.1.46 and 6.1.47, with central noise.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from dpdist.central.matrices.second_moment import Moments
from dpdist.estimators.moment_components import DenseComponents, SparseComponents


@dataclass(eq=False, repr=False)
class PCA(DenseComponents, Moments):
    """The k principal components of bounded rows: eigenvectors of one released second moment.

    Attributes and methods are those of scikit-learn's ``PCA``; there is no ``mean_`` (rows are not centred, but for
    ``centre="pairs"``), no ``score`` and no ``singular_values_``, which are those of the rows.

    Parameters
    ----------
    n_components : int, default 2
    row_norm, mechanism, unit_rows, centre, most_columns
        Of the release, as in `dpdist.central.SecondMoment`; a fitted one may be passed to `fit` instead.
    gap : float, optional
        Public guess of the difference of the k-th and the next eigenvalue, for the prediction of `outlook` only:
        ``s sqrt(k (p - k)) / gap`` for noise, and the error of sampling.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    components_ : array of shape (n_components, p)
    explained_variance_, explained_variance_ratio_ : array of shape (n_components,)
    expected_error_ : float
        Distance to be expected of the projection on them from the true one (Frobenius norm), by the eigenvalues that
        were released; that of `outlook`, before the fit, rests on ``gap``. What clipping moves is not in it.
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_, mechanism_, mechanism_reason_
        As in `dpdist.central.SecondMoment`.
    guarantee_, plan_, releases_, n_features_in_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5)) * [1.0, 0.2, 0.1, 0.1, 0.1]
    >>> model = PCA(1, row_norm=2.5, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> bool(model.components_[0, 0] > 0.99)
    True
    """

    _: KW_ONLY
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]


@dataclass(eq=False, repr=False)
class SparsePCA(SparseComponents, Moments):
    """The k principal components of bounded rows where few columns matter.

    Fantope projection and selection on one released second moment, and the components within the columns that it finds.

    Parameters
    ----------
    n_components : int, default 2
    refit : bool, default True
        Components of the release within the support, instead of the shrunken ones of the convex program.
    multiple : float, default 0.5
        Of the penalty that theory has for finding the support: 1 for hardly any false column.
    product_std : float, optional
        Public guess of the standard deviation of a product of two columns. Default: ``row_norm^2 / p``.
    n_nonzero : int, optional
        How many columns matter, where that is public: the components within twice as many columns, those with the
        largest second moments (spca-diag; for comparison).
    row_norm, mechanism, unit_rows, centre, most_columns
        Of the release, as in `dpdist.central.SecondMoment`; a fitted one may be passed to `fit` instead.
    epsilon, delta, neighbours, n_public, ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_
        As in `PCA`; with ``refit`` exactly 0 outside the support.
    support_ : array of bool of shape (p,)
    second_moment_, off_diagonal_std_, diagonal_std_, n_samples_, guarantee_, plan_, releases_, n_features_in_
        As in `PCA`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(20_000, 30)) * 0.05
    >>> X[:, :3] += np.random.default_rng(1).normal(size=(20_000, 1)) * 0.4
    >>> model = SparsePCA(1, row_norm=1.0, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
    >>> np.flatnonzero(model.support_).tolist()
    [0, 1, 2]
    """

    _: KW_ONLY
    neighbours: str = "replace-one"  # type: ignore[misc]
    n_public: int | None = None  # type: ignore[misc]
