"""One private release of a second moment, and the answers that are made of it at no further cost.

`MomentEstimator` is what every estimator shares that releases ``(1/n) sum x x'`` of bounded rows, central or local;
`FromMoment` what those share that make something of it: they take rows, and release a second moment of their own, or a
fitted second moment, whose guarantee and plan they keep.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpdist.data.units import ROWS, Units
from dpdist.errors import BudgetError, DataError, MissingBound, warn_caller
from dpdist.estimators.estimator import Estimator, planned
from dpdist.estimators.inference import Inferred, feature_names
from dpdist.estimators.outlook import Outlook
from dpdist.estimators.parameters import BOUNDS, check_bound, check_count
from dpdist.estimators.unread import refuse_beside
from dpdist.method import Method, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.covariances import largest_of

Matrix = NDArray[np.float64]

WIDEST = 5000
"""More columns have to be asked for."""
MOST_NAMED = 300
"""Columns up to which every product has a line of the table."""
BASIS = (
    "Of the law of the rows as they are clipped. Rests on the noise, which is known, and on rows that vary as much as "
    "their norm allows: rather too wide where noise is the smaller part, and the more columns there are."
)
ALONE = (
    "how products of several pairs of columns vary together is not released: test them one by one, at a level divided "
    "by their number"
)
MADE_OF = (
    "what is made of a second moment turns, cuts or inverts it, and no law of that is known. The second moment itself "
    "has intervals: those of SecondMoment, which this can be fitted to at no further cost"
)


@dataclass(frozen=True)
class MomentNoise:
    """What is public of a released second moment.

    Attributes
    ----------
    n_rows : float
        How many rows (or pairs of rows) the mean is of.
    n_features : int
    row_norm : float
        r: the trace is at most ``r^2``.
    diagonal_std, off_diagonal_std : float
        Of the noise in an entry.
    """

    n_rows: float
    n_features: int
    row_norm: float
    diagonal_std: float
    off_diagonal_std: float

    @property
    def frobenius(self) -> float:
        """The norm of the noise, root mean square."""
        p = self.n_features
        return math.sqrt(p * self.diagonal_std**2 + p * (p - 1) * self.off_diagonal_std**2)

    def entry_variances(self, matrix: Matrix) -> tuple[Matrix, Matrix]:
        """Of the entries of a released second moment: noise, and how much other rows of the same law may differ.

        With ``|x| <= r`` a square x_i^2 has a mean square of at most ``r^2 S_ii``. Where i is not j, ``x_i^2 x_j^2 <=
        x_i^2 (r^2 - x_i^2)`` has a mean of at most ``S_ii (r^2 - S_ii)``, and of r^4 / 4. So every entry varies by at
        most the smaller one of ``S_ii (r^2 - S_ii)`` and ``S_jj (r^2 - S_jj)``, less ``S_ij^2`` where i is not j.
        """
        r2 = self.row_norm**2
        diagonal = np.clip(np.diag(matrix), 0.0, r2)
        own = diagonal * (r2 - diagonal)
        drawn = np.minimum(own[:, None], own[None, :])
        noise = np.full(matrix.shape, self.off_diagonal_std**2)
        off = ~np.eye(len(matrix), dtype=bool)
        drawn[off] = np.maximum(drawn - np.square(matrix), 0.0)[off]
        np.fill_diagonal(noise, self.diagonal_std**2)
        return noise, drawn / self.n_rows

    def detection_level(self, multiple: float = 1.0) -> float:
        """The size from which an entry off the diagonal stands out: ``sqrt(2 log(p (p - 1))) sqrt(v^2 / n + s^2)``.

        v is the variance of a column where the trace is spread evenly and at its bound, ``r^2 / p``.
        """
        p = self.n_features
        spread = math.hypot(self.row_norm**2 / p / math.sqrt(self.n_rows), self.off_diagonal_std)
        return multiple * largest_of(p) * spread


@dataclass(eq=False, repr=False)
class MomentEstimator(Estimator):
    """An estimator that releases the second moment of bounded rows.

    Subclasses say who is trusted, and of which rows the mean is.

    Parameters
    ----------
    row_norm : float
        Public bound of the norm of a row, enforced by clipping. Required.
    most_columns : int, default 5000
        More columns are refused: the released matrix, and every task's sum, have p (p + 1) / 2 numbers.

    Attributes
    ----------
    second_moment_ : array of shape (p, p)
        ``(1/n) sum x x'`` with noise: symmetric, with negative eigenvalues where the noise is larger than the signal.
    off_diagonal_std_, diagonal_std_ : float
        Standard deviation of the noise in an entry; public.
    n_samples_, row_norm_ : float
        How many rows the mean is of, and the bound of their norm; public.
    """

    trust: ClassVar[Literal["central", "local"]]
    labelled: ClassVar[bool] = False

    _: KW_ONLY
    row_norm: float | None = None
    most_columns: int = WIDEST

    @abstractmethod
    def _noise(self, method: Method, plan: Plan) -> MomentNoise:
        """What is public of the release."""

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        noise = self._noise(method, self.plan_)
        self._keep(np.asarray(fitted["second_moment"]), noise)

    def _keep(self, matrix: Matrix, noise: MomentNoise) -> None:
        """Set the fitted attributes."""
        self.second_moment_ = matrix
        self.off_diagonal_std_, self.diagonal_std_ = noise.off_diagonal_std, noise.diagonal_std
        self.n_samples_, self.row_norm_ = noise.n_rows, float(noise.row_norm)

    def _finish(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._finish(method, fitted)
        if method.public.units.max_rows > 1:
            self._inferred = (
                "rows of one owner may be alike, so that other rows might differ by more than independent ones. With "
                "one row for each owner there would be intervals"
            )
        else:
            self._inferred = self._entries()

    def _entries(self) -> Inferred | str:
        """The entries of the released matrix, one of each pair that is alike, and how much they vary."""
        matrix = self.second_moment_
        noise = self._public_noise()
        if len(matrix) > MOST_NAMED:
            return (
                f"{len(matrix)} columns have too many products for a table. off_diagonal_std_ and diagonal_std_ are "
                f"the noise of all of them; up to {MOST_NAMED} columns have intervals"
            )
        upper = np.triu_indices(len(matrix))
        noises, drawn = noise.entry_variances(matrix)
        names = feature_names(self, len(matrix))
        places = np.zeros(matrix.shape, dtype=np.int64)
        places[upper] = places.T[upper] = np.arange(len(upper[0]))
        return Inferred(
            tuple(f"{names[i]} {names[j]}" for i, j in zip(*upper, strict=True)),
            matrix[upper], (noises + drawn)[upper], noises[upper], places, BASIS, ALONE,
        )  # fmt: skip

    def _public_noise(self) -> MomentNoise:
        """What is public of the release of a fitted moment."""
        return MomentNoise(
            self.n_samples_, len(self.second_moment_), self.row_norm_, self.diagonal_std_, self.off_diagonal_std_
        )

    def _check_columns(self, n_features: int) -> None:
        """Refuse what is no matrix, or a very large one."""
        if n_features < 2:
            raise DataError(
                "a second moment of one column (n_features=1) is a single number: pass rows of two columns or more, or "
                "take Mean of the squares"
            )
        if n_features > self.most_columns:
            size = n_features * (n_features + 1) * 4 / 1e9
            raise DataError(
                f"{n_features} columns have a second moment of {size:.1g} GB, for each task as well: leave columns "
                f"out, or pass most_columns={n_features} if that is wanted"
            )

    def _public(self, n_rows: int, n_features: int, *rest: Any, **named: Any) -> Public:
        self._check_columns(n_features)
        return super()._public(n_rows, n_features, *rest, **named)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.row_norm is None:
            raise MissingBound(f"row_norm is missing: {BOUNDS['row_norm']}")
        check_bound("row_norm", self.row_norm)
        check_count("most_columns", self.most_columns, 2)


@dataclass(eq=False, repr=False)
class FromMoment(MomentEstimator):
    """What is made of a second moment: of one that it releases itself, or of a fitted one.

    ``fit(X)`` and ``fit(dataset)`` release a second moment, with the parameters of `MomentEstimator`;
    ``fit(moment)`` takes a fitted one (or what was made of one): no row is read and nothing is charged, and the
    guarantee is that of the moment. Parameters of the release may then be left out, and are refused where they differ.

    Attributes
    ----------
    of_answer : tuple of str
        The parameters of the answer; all others are of the release.
    """

    of_answer: ClassVar[tuple[str, ...]] = ()

    def fit(self, X: Any, y: Any = None, **others: Any) -> Self:
        """Fit to rows, or to a fitted second moment, which costs nothing more.

        Parameters
        ----------
        X : array, Dataset or fitted estimator
            Rows, or a fitted second moment of the same model of trust.
        y : ignored
        """
        refuse_beside(self, others)
        return self._take(X) if isinstance(X, MomentEstimator) else self._fit(X, y)

    @abstractmethod
    def _answer(self, matrix: Matrix, noise: MomentNoise) -> Mapping[str, Any]:
        """Fitted attributes, without the underscore at the end."""

    @abstractmethod
    def _check_answer(self, n_features: int) -> None:
        """Refuse parameters of the answer that do not go with so many columns, which are public."""

    def _entries(self) -> Inferred | str:
        return MADE_OF

    def _check_own(self) -> None:
        """Refuse wrong parameters of the answer, whatever it is made of."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_own()

    def _said(self, noise: MomentNoise) -> Sequence[str]:
        """Warnings, from public numbers."""
        return ()

    def _foreseen(self, noise: MomentNoise) -> float | None:
        """The error to expect of the answer."""
        return None

    def _foreseen_in_all(self, noise: MomentNoise) -> float | None:
        """The same with sampling, where `_foreseen` is of noise alone."""
        return self._foreseen(noise)

    def _trivial_error(self, method: Method) -> float | None:
        return None

    # -- of rows ------------------------------------------------------------------------------------------------------

    def _check_columns(self, n_features: int) -> None:
        super()._check_columns(n_features)
        self._check_answer(n_features)

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self._set_answer(self._noise(method, self.plan_))

    def _warnings(self, method: Method) -> Sequence[str]:
        for name in self.of_answer:  # every answer reads all of them, whatever was released
            getattr(self, name)
        return [*super()._warnings(method), *self._said(self._noise(method, planned(method)))]

    def _expected_error(self, method: Method, plan: Plan) -> float | None:
        return self._foreseen(self._noise(method, plan))

    # -- of a fitted moment -------------------------------------------------------------------------------------------

    def outlook_of(self, moment: MomentEstimator, n_rows: int, n_features: int, units: Units = ROWS) -> Outlook:
        """What to expect of a fit to a second moment that is not fitted yet: its rows and columns are known."""
        self._check_takes(moment, n_features)
        method = moment.decided(n_rows, n_features, units)
        noise = moment._noise(method, planned(method))
        return Outlook(self._foreseen_in_all(noise), None, self._measures(method), warnings=tuple(self._said(noise)))

    def _take(self, moment: MomentEstimator) -> Self:
        check_is_fitted(moment, "second_moment_")
        n_features = len(moment.second_moment_)
        self._check_takes(moment, n_features)
        noise = moment._public_noise()
        for warning in self._said(noise):
            warn_caller(warning)
        for name in ("guarantee_", "plan_", "releases_", "history_", "n_features_in_"):
            setattr(self, name, getattr(moment, name))
        for name in ("feature_names_in_", "fidelity_", "mechanism_", "mechanism_reason_"):
            if hasattr(moment, name):
                setattr(self, name, getattr(moment, name))
            elif hasattr(self, name):
                delattr(self, name)
        self._keep(moment.second_moment_, noise)
        self._inferred = self._entries()
        self._set_answer(noise)
        return self

    def _check_takes(self, moment: MomentEstimator, n_features: int) -> None:
        """Refuse what cannot be made of a second moment of so many columns, fitted or still to be fitted."""
        if moment.trust != self.trust:
            raise BudgetError(
                f"{type(self).__name__} of the {self.trust} model got a second moment of the {moment.trust} model: use "
                f"the {type(self).__name__} of {'dpdist.local' if moment.trust == 'local' else 'dpdist.central'}"
            )
        self._check_own()
        self._check_alike(moment)
        self._check_answer(n_features)

    def _check_alike(self, moment: MomentEstimator) -> None:
        """Refuse parameters of a release that are set here and are not those of the moment that was passed."""
        own, theirs = self.get_params(deep=False), moment.get_params(deep=False)
        theirs["row_norm"] = getattr(moment, "row_norm_", moment.row_norm)
        for field in dataclasses.fields(type(self)):
            name = field.name
            released = name in own and name in theirs and name not in self.of_answer
            if not released or own[name] is field.default or own[name] == field.default:
                continue
            if name in self.common or own[name] != theirs[name]:
                had = "" if name in self.common else f", whose {name} is {theirs[name]!r}"
                raise BudgetError(
                    f"{name}={own[name]!r} has nobody to read it: fit was given a fitted {type(moment).__name__}"
                    f"{had}. Leave {name} out, or fit to rows"
                )

    def _set_answer(self, noise: MomentNoise) -> None:
        for name, value in self._answer(self.second_moment_, noise).items():
            setattr(self, f"{name}_", value)
