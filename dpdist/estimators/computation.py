"""What a run computes besides its releases, as a name: a ``run_id`` that is repeated has to stand for the same."""

from __future__ import annotations

import secrets
from typing import Any

from dpdist.errors import warn_caller
from dpdist.identity import NotNamed, text


def computation_of(value: Any, run_id: str | None, nameless: str = "") -> str:
    """The name of a computation; one with a part that has no lasting name is like no other, and cannot be resumed.

    Parameters
    ----------
    value : object
        Everything public that decides what is asked and what becomes of the answers.
    run_id : str or None
        What the caller named the run: whoever names one wants to resume it, and is warned if that will not do.
    nameless : str
        A part that is known to have no lasting name.
    """
    try:
        name = text(value)
    except NotNamed as problem:
        name, nameless = "", str(problem)
    if nameless and run_id is not None:
        warn_caller(
            f"run_id={run_id!r} cannot be resumed after a crash, because another process could not tell whether it "
            f"does the same: {nameless}"
        )
    return name + secrets.token_hex(16) if nameless else name
