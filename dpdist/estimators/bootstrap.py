"""How sure an answer is where there is no formula: the same fit again and again, to rows of the law that it released.

A fitted model that says how rows come about (components, lines, classes given features) can be asked for rows. The plan
of the fit is carried out on such rows with fresh noise, `n_fits` times, and the answers differ from the parameters that
the rows were drawn with as the released answer differs from the truth: by noise, by rows, and by what clipping and
unfinished steps move (the parametric bootstrap, Efron and Tibshirani 1993, chapter 6). All of it is made of released
and public numbers, so that it costs no budget and reads no row of the data.

    m_k = mean of the answers to rows of theta_k, C_k their covariance; theta_0 = theta is what was released,
    theta_{k+1} = theta_k - (m_k - theta),
    estimate theta_{k+1}, covariance max(1, |theta_k| / |theta|)^2 (1 + 1 / n_fits) C_k for the last k.

Rows of the corrected point have to lead back to what was released: the last k is the first from 1 on where they do,
within `BIASED` standard errors and the chance of finitely many fits. If there is none up to `MOST_STEPS`, the bias is
not one that can be undone, and there are no intervals. A method that gives a share of the parameters varies by that
share of what its corrected answer does, which is the factor of the covariance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_array, check_is_fitted

from dpdist.errors import BudgetError, DataError, NoIntervals
from dpdist.estimators.fitted_law import FittedLaw, Matrix, Vector
from dpdist.estimators.inference import Inference, Inferred
from dpdist.estimators.outlook import nobody_asks
from dpdist.estimators.parameters import check_count
from dpdist.solvers.standard_errors import BIASED, SHRUNK

FEWEST = 50
"""Fits that say a standard error to 10 %."""
PUBLIC_ROWS = 20
"""For every feature: fewer do not show how features vary."""
CHANCE = 4.5
"""Standard errors of a mean that are not yet a difference: exceeded by one of 150,000."""
FAR = 8.0
"""Standard deviations, by quartiles, from the median: nobody of a normal law."""
ELSEWHERE = 0.02
"""The share of fits that may be so far off: intervals of 95 % then cover 93 %."""
MOST_STEPS = 4
"""Corrections."""
ROUNDING = 1e-12
"""What is not a bias, where nothing varies."""
JOINT = 5
"""Fits for every parameter that its covariance with the others needs."""
KEY = 0x626F6F74
"""Of the seeds, so that no simulated noise is that of the fit itself, whatever its ``random_state`` was."""


class Bootstrapped(Inference):
    """How sure a fit is, by fits to rows of its own law: `Inference`, of parameters that are corrected for their bias.

    Attributes
    ----------
    estimate_ : array
        The parameters without the bias of the method, in the shape of the fitted attribute.
    bias_ : array
        What was taken off.
    """

    _inferred: Inferred

    def __init__(self, title: str, inferred: Inferred, bias: Vector) -> None:
        self._inferred, self._of = inferred, title
        self.estimate_: Vector = inferred.values[inferred.main]
        self.bias_: Vector = bias[inferred.main]

    def _known(self) -> Inferred:
        return self._inferred

    def _title(self) -> str:
        return f"{self._of}, by fits to rows of its own law"

    def _notes(self) -> list[str]:
        return [self._inferred.basis]

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def fit_again(model: Any, X: Matrix, y: NDArray[Any] | None, seed: int) -> Any:
    """The same fit of other rows, as a simulation that charges nobody."""
    again = clone(model).set_params(random_state=seed, ledger=None, run_id=None, cluster="threads")
    with nobody_asks():
        return again.fit(X, y)


def bootstrapped(
    model: Any,
    n_fits: int,
    public_X: ArrayLike | None,
    random_state: int,
    fit: Callable[[Any, Matrix, NDArray[Any] | None, int], Any] = fit_again,
) -> Bootstrapped:
    """What `dpdist.estimators.estimator.Estimator.bootstrap` returns, with fits by ``fit(model, X, y, seed)``."""
    check_is_fitted(model, "_rows_fitted")
    check_count("n_fits", n_fits, low=FEWEST)
    check_count("random_state", random_state, low=0)
    law, d = model._fitted_law(), model.n_features_in_
    n_rows, rows_of_one = model._rows_fitted
    if isinstance(law, str):
        raise NoIntervals(law)
    if rows_of_one > 1:
        raise NoIntervals(
            "rows of one owner may be alike, and rows that are drawn from the fitted law are not: no interval is known "
            "to be valid"
        )
    features = _features(law, d, public_X)

    def answers(values: Vector, stage: int) -> Matrix:
        found = []
        for k in range(n_fits):
            rng = np.random.default_rng([KEY, random_state, stage, k])
            if features is None:
                X = rng.standard_normal((n_rows, d))
            else:
                X = features[rng.integers(len(features), size=n_rows)]
            rows, labels = law.draw(values, X, rng)
            found.append(law.read(fit(model, rows, labels, int(rng.integers(2**31)))))
        return np.array(found)

    point = law.values
    for stage in range(1 + MOST_STEPS):
        drawn = _near(answers(point, stage))
        off = drawn.mean(axis=0) - law.values
        covariance = np.cov(drawn, rowvar=False).reshape(len(off), len(off))
        errors = np.sqrt(np.diag(covariance))
        values = point - off
        if not np.isfinite(values).all():
            raise NoIntervals("a fit to rows of the fitted law ended in numbers that are not finite")
        if stage and (np.abs(off) <= np.maximum((BIASED + CHANCE / math.sqrt(n_fits)) * errors, ROUNDING)).all():
            break
        point = values
    else:
        worst = int(np.argmax(np.abs(off) / np.maximum(errors, np.finfo(float).tiny)))
        raise NoIntervals(
            f"fits to rows of the corrected law do not lead back to what was released ({law.names[worst]} is "
            f"{off[worst]:.2g} off, with a standard error of {errors[worst]:.2g}): noise or bounds move the answer by "
            "more than can be undone. With more rows, a larger epsilon or wider bounds there would be intervals"
        )
    grown = max(1.0, _size(point, law) / max(_size(law.values, law), np.finfo(float).tiny))
    if grown * (1 - SHRUNK) > 1:
        raise NoIntervals(
            f"the answer is {1 - 1 / grown:.0%} shorter than what rows have to be drawn with to lead to it: it was "
            "left near where the fit began. With more rounds or rows, or a larger epsilon, there would be intervals"
        )
    alone = "" if n_fits >= JOINT * len(off) else (
        f"{n_fits} fits do not tell how {len(off)} parameters vary together: test them one by one, or take "
        f"n_fits={JOINT * len(off)}"
    )  # fmt: skip
    known = Inferred(
        law.names,
        values,
        covariance * grown**2 * (1 + 1 / n_fits),
        np.full(len(off), np.nan),
        law.main,
        f"{law.basis} Of {1 + stage} times {n_fits} fits.",
        alone,
    )
    return Bootstrapped(type(model).__name__, known, law.values - values)


def _features(law: FittedLaw, n_features: int, public_X: ArrayLike | None) -> Matrix | None:
    """Public rows to draw features from; None where the model draws them itself."""
    if public_X is None:
        if law.needs_features:
            raise NoIntervals(
                "how features vary is not released: pass public_X (--public), public rows of the same law, from which "
                "those of the simulated fits are drawn"
            )
        return None
    if not law.takes_features:
        raise BudgetError(
            "public_X (--public) has nobody to read it: the fitted law says how all columns vary. Leave it out"
        )
    try:
        rows: Matrix = check_array(public_X, dtype=np.float64, input_name="public_X", ensure_min_samples=0)
    except (TypeError, ValueError) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        raise DataError(
            f"public_X (--public) must be rows of finite numbers, one for each public record: {said}"
        ) from None
    if rows.shape[1] != n_features:
        raise DataError(f"public_X (--public) has {rows.shape[1]} columns, and the model was fitted to {n_features}")
    if len(rows) < PUBLIC_ROWS * n_features:
        raise DataError(
            f"public_X (--public) has {len(rows)} rows, too few to show how {n_features} features vary: pass "
            f"{PUBLIC_ROWS * n_features} or more"
        )
    return rows


def _near(drawn: Matrix) -> Matrix:
    """The answers but for at most one in fifty that ended elsewhere, by which no standard error is one."""
    low, middle, high = np.quantile(drawn, (0.25, 0.5, 0.75), axis=0)
    far = (np.abs(drawn - middle) > FAR * (high - low) / 1.349 + ROUNDING).any(axis=1)
    if far.sum() > ELSEWHERE * len(drawn):
        raise NoIntervals(
            f"{far.sum()} of {len(drawn)} fits to rows of the fitted law ended far from the others, so that one fit "
            "does not tell where the next will end. With more rows, a larger epsilon, fewer parts or a nearer start "
            "there would be intervals"
        )
    kept: Matrix = drawn[~far]
    return kept


def _size(values: Vector, law: FittedLaw) -> float:
    return float(np.linalg.norm(values[law.main.ravel()]))
