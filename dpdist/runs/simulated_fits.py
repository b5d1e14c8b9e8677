"""``bootstrap.json``: how sure a finished run is by fits to rows of its own law, kept beside the record of the run.

The record itself says what a run was, and stays as it is. What is made of its releases later, at no cost, stands here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from dpdist.runs.directory import OutputError, output_error
from dpdist.runs.storage import ResultStoreError, as_json, result_store

FORMAT = "dpdist-bootstrap/1"
SIMULATED = "bootstrap.json"


def keep_simulated(location: str | os.PathLike[str], run: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Put what was found beside the record of a run; what was found before is replaced."""
    store = result_store(location)
    try:
        store.replace(SIMULATED, as_json({"format": FORMAT, "run_id": run["run_id"], **found}))
    except ResultStoreError as error:
        fix = error.fix or "make room, or make the directory writable"
        raise output_error(error, f"{store.shown(SIMULATED)} cannot be written ({error.why}): {fix}") from None


def with_simulated(location: str | os.PathLike[str], run: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a run, and as its ``bootstrap`` what was kept beside it, if anything was.

    Raises
    ------
    OutputError
        If that is damaged, or is of another run.
    """
    store = result_store(location)
    try:
        text = store.read(SIMULATED)
    except ResultStoreError as error:
        raise output_error(error, f"{store.shown(SIMULATED)} cannot be read ({error.why})") from None
    if text is None:
        return dict(run)
    try:
        found = json.loads(text)
        if found["format"] != FORMAT or found["run_id"] != run["run_id"] or "rows" not in found["inference"]:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):  # the last of thousands of brackets
        raise OutputError(
            f"{store.shown(SIMULATED)} is damaged or of another run: remove it, or write it again with dpdist "
            "bootstrap, which costs nothing"
        ) from None
    return {**run, "bootstrap": found}
