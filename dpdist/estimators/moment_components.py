"""Principal components, dense and sparse, of a released second moment: post-processing, alike for both models of trust.

`dpdist.central.matrices.components` and its twin in the local model join it with a release. All that is set here
follows from public numbers and from the release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpdist.errors import BudgetError, DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.estimator import planned
from dpdist.estimators.moment_release import FromMoment, Matrix, MomentNoise
from dpdist.estimators.outlook import Outlook
from dpdist.estimators.parameters import check_bound, check_count
from dpdist.method import Method
from dpdist.solvers.subspaces import (
    chance_error,
    eigenspace_within,
    expected_subspace_error,
    largest_diagonal,
    predicted_subspace_error,
    sparse_eigenspace,
    top_eigenspace,
)

HALF_OF_THEORY = 0.5
"""Multiple of the penalty that theory asks for to find a support: smaller ones give better subspaces."""


@dataclass(eq=False, repr=False)
class Components(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FromMoment):
    """The k principal components: attributes and methods of scikit-learn's ``PCA``.

    Parameters
    ----------
    n_components : int

    Attributes
    ----------
    components_ : array of shape (n_components, p)
        Eigenvectors of the algebraically largest eigenvalues of the release.
    explained_variance_ : array of shape (n_components,)
        These eigenvalues, at least 0: mean squares along the components, about 0 (the rows are not centred, unless
        ``centre="pairs"``).
    explained_variance_ratio_ : array of shape (n_components,)
        Of the trace of the release.
    """

    answers: ClassVar[tuple[Answer, ...]] = (Answer.SUBSPACE,)

    of_answer: ClassVar[tuple[str, ...]] = ("n_components",)

    n_components: int = 2

    def transform(self, X: Any) -> Matrix:
        """Coordinates of rows along the components. Not private: the rows are looked at. They are not centred.

        So is ``fit_transform(X)``: what it gives is about the rows that were fitted.
        """
        check_is_fitted(self, "components_")
        rows = validate_data(self, X, reset=False)
        return np.asarray(rows @ self.components_.T, dtype=np.float64)

    def inverse_transform(self, X: Any) -> Matrix:
        """Rows of the subspace from their coordinates."""
        check_is_fitted(self, "components_")
        coordinates, k = np.asarray(X, dtype=np.float64), len(self.components_)
        if coordinates.ndim != 2 or coordinates.shape[1] != k:
            raise DataError(
                f"inverse_transform takes coordinates along {k} components, as transform gives them, of shape "
                f"(n_rows, {k}); got shape {coordinates.shape}"
            )
        return np.asarray(coordinates @ self.components_)

    @property
    def _n_features_out(self) -> int:
        """So many columns `transform` has, which scikit-learn names pca0, pca1 ..."""
        return len(self.components_)

    def _found(self, matrix: Matrix, noise: MomentNoise) -> tuple[Matrix, Matrix, Mapping[str, Any]]:
        """Eigenvalues, eigenvectors, and whatever else there is."""
        values, vectors = top_eigenspace(matrix, self.n_components)
        return values, vectors, {}

    def _answer(self, matrix: Matrix, noise: MomentNoise) -> Mapping[str, Any]:
        values, vectors, others = self._found(matrix, noise)
        variances, total = np.maximum(values, 0.0), float(np.trace(matrix))
        shares = np.minimum(variances / total, 1.0) if total > 0 else np.full(len(values), np.nan)
        return {
            "components": vectors.T,
            "explained_variance": variances,
            "explained_variance_ratio": shares,
            **others,
        }

    def _check_answer(self, n_features: int) -> None:
        _check_columns("n_components", self.n_components, n_features)

    def _check_own(self) -> None:
        super()._check_own()
        check_count("n_components", self.n_components)


@dataclass(eq=False, repr=False)
class DenseComponents(Components):
    """The k principal components of all columns.

    Parameters
    ----------
    n_components : int
        k, public.
    gap : float, optional
        Public guess of the difference of the k-th and the next eigenvalue of the second moment, for the prediction of
        `outlook` and a warning; nothing else reads it.

    Attributes
    ----------
    expected_error_ : float
        Distance to be expected of the projection on the components from the true one, by the eigenvalues that were
        released, for normal rows: nothing has to be guessed. What clipping to ``row_norm`` moves is not in it.
    """

    of_answer: ClassVar[tuple[str, ...]] = ("n_components", "gap")

    _: KW_ONLY
    gap: float | None = None

    def _found(self, matrix: Matrix, noise: MomentNoise) -> tuple[Matrix, Matrix, Mapping[str, Any]]:
        values, vectors, others = super()._found(matrix, noise)
        expected = expected_subspace_error(
            matrix, self.n_components, noise.off_diagonal_std, noise.diagonal_std, noise.n_rows
        )
        return values, vectors, {**others, "expected_error": expected}

    def _check_own(self) -> None:
        super()._check_own()
        if self.gap is not None:
            check_bound("gap", self.gap)

    def _said(self, noise: MomentNoise) -> Sequence[str]:
        foreseen, chance = self._foreseen(noise), chance_error(noise.n_features, self.n_components)
        if foreseen is None or foreseen < chance:
            return ()
        return [
            f"the noise is as large as the guessed gap, {self.gap:.2g}, or larger: the components will be about random "
            f"(distance {chance:.2g}). Take more rows, a larger epsilon or fewer columns"
        ]

    def _foreseen(self, noise: MomentNoise) -> float | None:
        """From noise alone, where the gap is guessed: what it takes more rows or a larger epsilon for."""
        if self.gap is None:
            return None
        s = math.sqrt(2) * noise.off_diagonal_std
        return predicted_subspace_error(s, noise.n_features, self.n_components, self.gap)

    def _foreseen_in_all(self, noise: MomentNoise) -> float | None:
        """Where the trace is at its bound and what the gap leaves of it is spread evenly; no more than by chance."""
        drawn = self._foreseen(noise)
        if drawn is None or self.gap is None:
            return None
        p, k, gap = noise.n_features, self.n_components, self.gap
        rest = max(noise.row_norm**2 - k * gap, 0.0) / p
        sampled = math.sqrt(2 * k * (p - k) * rest * (rest + gap) / noise.n_rows) / gap
        return min(math.hypot(drawn, sampled), chance_error(p, k))

    def _outlook(self, first: Method, **beside: Any) -> Outlook:
        found = super()._outlook(first, **beside)  # its warning and its advice are of noise
        alike = first.one_row_each()
        return replace(found, predicted_error=self._foreseen_in_all(self._noise(alike, planned(alike))))

    def _measures(self, method: Method) -> str:
        return (
            "expected distance of the projection on the components from the true one (Frobenius norm), for normal rows "
            "as long as row_norm, with the gap that was guessed and all other eigenvalues alike; less where rows are "
            "shorter or eigenvalues lie further apart"
        )

    def _trivial_error(self, method: Method) -> float | None:
        return None if self.gap is None else chance_error(method.public.n_features, self.n_components)


@dataclass(eq=False, repr=False)
class SparseComponents(Components):
    """The k principal components where few columns matter: Fantope projection and selection.

    Parameters
    ----------
    n_components : int
        k, public.
    refit : bool, default True
        The components of the release within the support that was found, instead of the shrunken ones.
    multiple : float, default 0.5
        Of the penalty that theory has for finding the support: 1 gives hardly any false column and misses some.
    product_std : float, optional
        Public guess of the standard deviation of a product of two columns. Default: ``row_norm^2 / p``, that of rows
        which are spread over all columns.
    n_nonzero : int, optional
        How many columns matter, where that is public: the components within twice as many columns, those with the
        largest second moments, in place of the convex program (spca-diag; for comparison).

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_
        As in `Components`; with ``refit`` exactly 0 outside the support.
    support_ : array of bool of shape (p,)
        The columns that matter.
    """

    of_answer: ClassVar[tuple[str, ...]] = ("n_components", "refit", "multiple", "product_std", "n_nonzero")

    _: KW_ONLY
    refit: bool = True
    multiple: float = HALF_OF_THEORY
    product_std: float | None = None
    n_nonzero: int | None = None

    def _found(self, matrix: Matrix, noise: MomentNoise) -> tuple[Matrix, Matrix, Mapping[str, Any]]:
        if self.n_nonzero is not None:
            support = largest_diagonal(matrix, 2 * self.n_nonzero)
            values, vectors = eigenspace_within(matrix, self.n_components, support)
            return values, vectors, {"support": support}
        values, vectors, support = sparse_eigenspace(matrix, self.n_components, self._penalty(noise), self.refit)
        return values, vectors, {"support": support}

    def _penalty(self, noise: MomentNoise) -> float:
        """``multiple sqrt(2 log(p (p + 1) / 2)) sqrt(s^2 + v^2 / n)``: the largest of so many entries of noise."""
        p = noise.n_features
        product_std = noise.row_norm**2 / p if self.product_std is None else self.product_std
        spread = math.sqrt(noise.off_diagonal_std**2 + product_std**2 / noise.n_rows)
        return self.multiple * math.sqrt(2 * math.log(p * (p + 1) / 2)) * spread

    def _check_answer(self, n_features: int) -> None:
        super()._check_answer(n_features)
        if self.n_nonzero is not None:
            _check_columns("n_nonzero", self.n_nonzero, n_features)

    def _check_own(self) -> None:
        super()._check_own()
        check_bound("multiple", self.multiple)
        if self.product_std is not None:
            check_bound("product_std", self.product_std)
        if self.n_nonzero is not None:
            check_count("n_nonzero", self.n_nonzero)
            if 2 * self.n_nonzero < self.n_components:
                raise BudgetError(f"n_nonzero={self.n_nonzero} columns cannot hold n_components={self.n_components}")
        if not isinstance(self.refit, bool | np.bool_):
            raise BudgetError(f"refit must be True or False, got {self.refit!r}")
        unread = {"multiple": self.multiple != HALF_OF_THEORY, "product_std": self.product_std is not None}
        asked = [name for name, asked in {**unread, "refit": not self.refit}.items() if asked]
        if self.n_nonzero is not None and asked:
            said = ", ".join(f"{name}={getattr(self, name)!r}" for name in asked)
            raise BudgetError(
                f"{said} has nobody to read it with n_nonzero={self.n_nonzero}, which takes the columns with the "
                "largest second moments and needs no penalty: leave one of them out"
            )

    def _foreseen(self, noise: MomentNoise) -> float | None:
        return self._penalty(noise) / self.multiple

    def _measures(self, method: Method) -> str:
        return "size from which an entry of the second moment stands out of noise and sampling"

    def _said(self, noise: MomentNoise) -> Sequence[str]:
        if self.n_nonzero is not None:  # there is no penalty
            return ()
        penalty, limit = self._penalty(noise), noise.row_norm**2 / self.n_components
        if penalty < limit:
            return ()
        return [
            f"the penalty, {penalty:.2g}, is above the largest eigenvalue that {self.n_components} components of rows "
            f"of norm {noise.row_norm:g} can share, {limit:.2g}: no column can stand out of the noise. Take more rows "
            "or a larger epsilon"
        ]


def _check_columns(name: str, count: int, n_features: int) -> None:
    if count > n_features:
        raise BudgetError(f"{name}={count} exceeds the number of columns, {n_features}: choose {n_features} or less")
