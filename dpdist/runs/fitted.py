"""What a fitted model is made of, as plain JSON and arrays: so that a run can be a model again, without any pickle.

Fitted attributes hold nothing but what is public or was released (`dpdist.estimators.representation`), so a record of
them tells no more than the run did. What is of another kind (a map of random features, a table of polynomials) is named
among ``left_out``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.budget import Neighbours
from dpdist.privacy.guarantee import Guarantee

GROUP = "fitted"
"""Where the arrays are, beside those that the method releases."""
_ELSEWHERE = {"guarantee_", "plan_", "releases_", "history_"}
_KNOWN = {"_feature_columns", "_encoding", "_inferred", "_rows_fitted"}
_TEXT = "UT"

Arrays = dict[str, NDArray[Any]]


def fitted_state(model: Any, released: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """The fitted attributes of a model that are not among the ``released`` ones: plain JSON, and arrays.

    Examples
    --------
    >>> class Fitted:
    ...     pass
    >>> model = Fitted()
    >>> model.coef_, model.solver_, model.gap_, model.table_ = np.ones(2), "newton", float("nan"), {1: 2}
    >>> model.means_ = np.zeros((2, 3))
    >>> state, arrays = fitted_state(model, {"coef": model.coef_})
    >>> state["attributes"], state["left_out"], list(arrays)
    ({'solver_': 'newton', 'gap_': {'float': 'nan'}}, ['table_'], ['means_'])
    """
    attributes: dict[str, Any] = {}
    arrays: Arrays = {}
    left_out = []
    for name, value in vars(model).items():
        if name.startswith("_"):
            if name not in _KNOWN:
                left_out.append(name)
        elif _is_kept(name) and name.rstrip("_") not in released:
            array = np.asarray(value) if isinstance(value, np.ndarray) else None
            if array is not None and array.dtype.kind in "biuf":
                arrays[name] = array
            elif array is not None and array.ndim == 1 and array.dtype.kind in _TEXT + "O":
                attributes[name] = {"texts": [str(text) for text in array], "dtype": array.dtype.kind}
            elif value is None or isinstance(value, bool | int | float | str | np.generic):
                attributes[name] = _plain(value.item() if isinstance(value, np.generic) else value)
            else:
                left_out.append(name)
    state: dict[str, Any] = {"attributes": attributes, "left_out": sorted(left_out)}
    guarantee = getattr(model, "guarantee_", None)
    if guarantee is not None:
        state["guarantee"] = {f.name: _json(getattr(guarantee, f.name)) for f in fields(guarantee)}
    return state, arrays


def _is_kept(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and name not in _ELSEWHERE


def attributes_of(state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Read back what `fitted_state` wrote; a name that it would not write is a ``KeyError``, so that no record sets a
    ledger, a cluster or a method of the model."""
    found = {name: _value(value) for name, value in state["attributes"].items()}
    found |= dict(arrays)
    for name in found:
        if not _is_kept(name):
            raise KeyError(name)
    if "guarantee" in state:
        kept = dict(state["guarantee"])
        found["guarantee_"] = Guarantee(**{**kept, "neighbours": Neighbours(kept["neighbours"])})
    return found


def _plain(value: Any) -> Any:
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _value(stored: Any) -> Any:
    if not isinstance(stored, dict):
        return stored
    if "float" in stored:
        return float(stored["float"])
    return np.array(stored["texts"], dtype=object if stored["dtype"] == "O" else str)


def _json(value: Any) -> Any:
    return value.value if isinstance(value, Neighbours) else value
