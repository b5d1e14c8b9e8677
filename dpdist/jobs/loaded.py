"""`load_run`: a finished run is a fitted estimator again, which predicts, explains itself and charges nothing.

It is made of ``run.json`` and ``released.zarr`` alone: neither the rows nor the ledger is needed, and nothing is run
that somebody put into these files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from dpdist.data.encoding import Encoding
from dpdist.estimators.inference import Inferred
from dpdist.jobs.job import job_of, make_estimator
from dpdist.jobs.yaml_lines import parse
from dpdist.runs.directory import ARRAYS, RECORD, OutputError, read_arrays, read_finished_run
from dpdist.runs.fitted import GROUP, attributes_of, fitted_state
from dpdist.runs.storage import result_store

_INFERRED = "inferred."
_MOST_ENTRIES = 2_000_000
"""Of a covariance that is kept."""


class RecordedPlan:
    """The plan of a run, as its record has it: for showing."""

    def __init__(self, accountant: str, items: Sequence[Mapping[str, Any]]) -> None:
        self.accountant, self._items = accountant, [dict(item) for item in items]

    def describe(self) -> list[dict[str, Any]]:
        """Its lines."""
        return self._items

    def __repr__(self) -> str:
        return f"{len(self._items)} lines, added up by {self.accountant}"


def recorded_model(model: Any, released: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What `load_run` needs beside the released arrays, as plain JSON and as arrays."""
    state, arrays = fitted_state(model, released)
    known = getattr(model, "_inferred", None)
    if isinstance(known, Inferred) and known.covariance.size <= _MOST_ENTRIES:
        plain = {"basis": known.basis, "alone": known.alone, "together": known.together}
        state["inferred"] = {"names": list(known.names), **plain}
        for name in ("values", "covariance", "noise", "main"):
            arrays[f"{_INFERRED}{name}"] = np.asarray(getattr(known, name))
    elif known is not None:
        state["inferred"] = known if isinstance(known, str) else "the covariance was too large to be kept"
    state["arrays"] = sorted(arrays)
    return state, {f"{GROUP}/{name}": array for name, array in arrays.items()}


def load_run(place: str | os.PathLike[str]) -> Any:
    """The fitted estimator of a run: to predict, for its coefficients and intervals, in the units of the table too.

    Parameters
    ----------
    place : path or address
        The output of ``dpdist run``, a directory or one in an object store.

    Returns
    -------
    Estimator
        With the parameters of the job and the fitted attributes of the run, but for ``releases_``. It has no ledger and
        no cluster; to fit it again is another fit, which is charged anew.

    Raises
    ------
    OutputError
        If there is no finished run, or one whose estimator is made of more than numbers and texts.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dpdist.jobs.job import load_job
    >>> from dpdist.jobs.run import run_job
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "run"
    >>> small = ["data.n=2000", "data.d=3", "params.random_state=0", f"output={place}", f"ledger={place}.sqlite"]
    >>> _ = run_job(load_job("dp-gd", small))
    >>> model = load_run(place)
    >>> model.predict(np.zeros((2, 3))).shape, model.guarantee_.simulation
    ((2,), True)
    """
    record, store = read_finished_run(place), result_store(place)
    where = store.shown(RECORD)
    state = record.get("fitted")
    if state is None:
        raise OutputError(
            f"{where} is of an earlier version, which did not keep what a fitted model is made of: dpdist run JOB "
            "--resume writes it again, and costs nothing"
        )
    if state["left_out"]:
        raise OutputError(
            f"{record['estimator']} cannot be made of its record: {', '.join(state['left_out'])} are no numbers. Its "
            f"released arrays are in {store.shown(ARRAYS)}; in Python, fit with the run_id of the run gives the "
            "estimator again, and costs nothing"
        )
    arrays = read_arrays(store, ARRAYS)
    kept = read_arrays(store, f"{ARRAYS}/{GROUP}") if state["arrays"] else {}
    try:
        return _model(record, state, arrays, kept, str(where))
    except (KeyError, TypeError, AttributeError) as error:
        raise OutputError(f"{where} is damaged ({type(error).__name__}): write it again with --resume") from None


def _model(record: Mapping[str, Any], state: Any, arrays: Any, kept: Any, where: str) -> Any:
    asked = {**record["asked"], "method": record["id"]}
    for key in ("ledger", "journal", "cluster", "output", "then"):
        asked.pop(key, None)
    model = make_estimator(job_of(parse(yaml.safe_dump(json.loads(json.dumps(asked))), where, []), where, []))
    history = arrays.pop("history", None)
    model.history_ = [] if history is None else list(history)
    for name, value in arrays.items():
        setattr(model, f"{name}_", value[()] if value.ndim == 0 else value)
    parts = {name.removeprefix(_INFERRED): kept.pop(name) for name in list(kept) if name.startswith(_INFERRED)}
    for name, value in attributes_of(state, kept).items():
        setattr(model, name, value)
    inferred = state.get("inferred", "this run keeps no covariance")
    if isinstance(inferred, dict):
        inferred = Inferred(
            tuple(inferred["names"]),
            **{name: parts[name] for name in ("values", "covariance", "noise", "main")},
            basis=inferred["basis"],
            alone=inferred["alone"],
            together=int(inferred.get("together", 1)),
        )
    model._inferred = inferred
    dataset = record["dataset"]
    model._rows_fitted = int(dataset["n_rows"] or model.n_public), int(dataset["max_rows_per_unit"] or 1)
    model._feature_columns = tuple(dataset["columns"].get("X", ()))
    model._encoding = Encoding.from_attributes(dataset["encoding"]) if dataset.get("encoding") else None
    model.plan_ = RecordedPlan(record["plan"]["accountant"], record["plan"]["items"])
    return model
