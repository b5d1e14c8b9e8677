"""What is fitted to each block of rows in sample-and-aggregate: any estimator, without privacy.

Nothing about a block leaves the map stage but its parameters, as many as is public, and those only after they are
clipped. A fit that fails has parameters that are NaN.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier

from dpdist.engine.muted import muted
from dpdist.engine.query import Block
from dpdist.errors import BudgetError
from dpdist.identity import NotNamed, text
from dpdist.kernels.blocks import least_squares_blocks, logistic_blocks

REHEARSAL_ROWS = 20
"""Rows per feature of the generated block on which an estimator is tried."""

Read = Callable[[Any], Any]
"""A fitted estimator to its parameters."""


class BlockFit(ABC):
    """A non-private estimator of one block."""

    classifies: bool
    intercept: bool
    nameless: str = ""
    rows_per_parameter: int
    """The least size of a block, from which on the bias of small blocks is small."""
    kind: str
    """What it is called where it is spoken of."""

    @property
    def unbiased(self) -> bool:
        """Whether a mean of blocks has no bias, however small they are, where the model holds."""
        return False

    @abstractmethod
    def n_parameters(self, n_features: int) -> int:
        """How many numbers a fit gives; public."""

    @abstractmethod
    def fit(self, block: Block, size: int, n_parameters: int) -> NDArray[np.float64]:
        """The parameters of every ``size`` consecutive rows, NaN where there are none."""


@dataclass(frozen=True)
class LeastSquares(BlockFit):
    """Ridge regression in closed form."""

    tag: ClassVar[str] = "LeastSquares"

    alpha: float
    intercept: bool

    classifies = False
    rows_per_parameter = 10
    kind = "least squares with a penalty"

    @property
    def unbiased(self) -> bool:
        return self.alpha == 0

    def n_parameters(self, n_features: int) -> int:
        return n_features + self.intercept

    def fit(self, block: Block, size: int, n_parameters: int) -> NDArray[np.float64]:
        return least_squares_blocks(block["X"], block["y"], size, alpha=self.alpha, intercept=self.intercept)


@dataclass(frozen=True)
class Logistic(BlockFit):
    """Logistic regression by Newton steps, labels -1 and +1."""

    tag: ClassVar[str] = "Logistic"

    alpha: float
    intercept: bool

    classifies = True
    rows_per_parameter = 20
    kind = "logistic regression"

    def n_parameters(self, n_features: int) -> int:
        return n_features + self.intercept

    def fit(self, block: Block, size: int, n_parameters: int) -> NDArray[np.float64]:
        return logistic_blocks(block["X"], block["y"], size, alpha=self.alpha, intercept=self.intercept)


BUILT_IN: dict[str, type[LeastSquares | Logistic]] = {"least-squares": LeastSquares, "logistic": Logistic}


@dataclass(frozen=True)
class Estimator(BlockFit):
    """A clone of a scikit-learn estimator per block.

    Parameters
    ----------
    estimator : estimator
    read : callable, optional
        Default: ``coef_``, and ``intercept_`` if the estimator fits one.
    """

    tag: ClassVar[str] = "Estimator"

    estimator: Any
    read: Read | None = None

    def named_by(self) -> Iterator[tuple[str, Any]]:
        """Class and parameters of the estimator, and what reads it; functions by their tag, else by their name."""
        yield "estimator", _kind(self.estimator)
        for name, value in sorted(self.estimator.get_params().items()):
            yield name, _named(value)
        yield "read", _named(self.read)

    @functools.cached_property
    def nameless(self) -> str:  # type: ignore[override]
        """A function or object among the parameters that no other process could tell from another; else empty."""
        values = {**self.estimator.get_params(), "parameters": self.read}
        name = next((name for name, value in values.items() if _is_nameless(value)), "")
        return name and f"{name} has no tag; name the function with @dpdist.identity.tagged('a-name-that-stays')"

    @property
    def classifies(self) -> bool:  # type: ignore[override]
        return bool(is_classifier(self.estimator))

    @property
    def intercept(self) -> bool:  # type: ignore[override]
        return self.read is None and bool(self.estimator.get_params().get("fit_intercept", False))

    @property
    def kind(self) -> str:  # type: ignore[override]
        return type(self.estimator).__name__

    @property
    def rows_per_parameter(self) -> int:  # type: ignore[override]
        return 20 if self.classifies else 10

    def n_parameters(self, n_features: int) -> int:
        """Of a rehearsal on generated rows: what an estimator gives does not have to be declared."""
        rng = np.random.default_rng(0)
        X = rng.standard_normal((REHEARSAL_ROWS * (n_features + 2), n_features))
        y = X.sum(axis=1) + rng.standard_normal(len(X))
        problem = None
        try:
            with muted():
                values = self._parameters(X, np.where(y > 0, 1.0, -1.0) if self.classifies else y)
        except Exception as error:  # the rows are generated, so all may be told
            problem = f"fails on generated rows ({type(error).__name__}: {error})"
        else:
            if not values.size or not np.isfinite(values).all():
                problem = f"gives parameters {values!r} on generated rows"
        if problem:
            raise BudgetError(
                f"the block estimator {type(self.estimator).__name__} {problem}. It needs fit(X, y) on real labels "
                "(-1 and +1 for a classifier) and finite parameters: coef_, or what parameters=callable reads off it"
            )
        return int(values.size)

    def fit(self, block: Block, size: int, n_parameters: int) -> NDArray[np.float64]:
        X, y = np.asarray(block["X"]), np.asarray(block["y"])
        good = np.isfinite(X).all(axis=1) & np.isfinite(y)
        out = np.full((len(y) // size, n_parameters), np.nan)
        with muted():
            for i in range(len(out)):
                rows = slice(i * size, (i + 1) * size)
                try:
                    values = self._parameters(X[rows][good[rows]], y[rows][good[rows]])
                except (Exception, SystemExit):  # whether it fails depends on the rows
                    continue
                if values.size == n_parameters:
                    out[i] = values
        return out

    def _parameters(self, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        fitted = clone(self.estimator).fit(X, y)
        if self.read is not None:
            return np.asarray(self.read(fitted), dtype=np.float64).ravel()
        parts = [fitted.coef_, fitted.intercept_] if self.intercept else [fitted.coef_]
        return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _named(value: Any) -> Any:
    """A parameter of somebody else's estimator, as something that has a name."""
    if isinstance(value, tuple | list):
        return tuple(_named(below) for below in value)
    if not _is_nameless(value) and not isinstance(value, BaseEstimator):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _kind(value)


def _is_nameless(value: Any) -> bool:
    """Whether a parameter has no name that another process would give it as well."""
    if isinstance(value, BaseEstimator):  # its own parameters are among those of the whole
        return False
    if isinstance(value, tuple | list):
        return any(map(_is_nameless, value))
    try:
        text(value)
    except NotNamed:
        return True
    return False


def block_fit(estimator: Any, read: Read | None) -> Estimator:
    """The fit of a scikit-learn estimator."""
    if not isinstance(estimator, BaseEstimator) or not hasattr(estimator, "fit"):
        raise BudgetError(
            f"estimator must be {' or '.join(map(repr, BUILT_IN))} or a scikit-learn estimator (a BaseEstimator with "
            f"fit), got {estimator!r}"
        )
    loud = [name for name, value in estimator.get_params().items() if name.split("__")[-1] == "verbose" and value]
    if loud:
        raise BudgetError(
            f"the block estimator has {loud[0]} set: what it would print depends on the rows; set it to 0"
        )
    if read is not None and not callable(read):
        raise BudgetError(f"parameters must be a callable that reads a fitted estimator, got {read!r}")
    return Estimator(estimator, read)
