"""What a guarantee means to somebody who has never heard of epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.html import percent
from dpdist.privacy.guarantee import best_guess


def in_plain_words(held: Mapping[str, Any], unit: str, epsilon: float, delta: float) -> str:
    """The best guess of somebody with a suspicion, in words.

    Parameters
    ----------
    held : mapping
        `dpdist.privacy.guarantee.Guarantee.to_dict`.
    unit : str
    epsilon, delta : float

    Examples
    --------
    >>> in_plain_words({"model": "local", "relation": "replace-one"}, "user", 1.0, 0.0)[:106]
    'Somebody knows everything about the others and suspects what one user says, with a chance of 50 %. From th'
    """
    right = (
        f"they guess right at most {percent(best_guess(epsilon, delta))} of the time; a coin is right 50 % of the time."
    )
    protects = str(held.get("protects", "all data"))
    if protects != "all data":
        about = f"{protects} of one {unit}"
    elif held.get("relation") == "replace-one":
        about = f"what one {unit} says"
    else:
        about = f"whether one {unit} is in the data"
    if held.get("model") != "local":
        return (
            f"Somebody knows everything else in the data and suspects {about}, with a chance of 50 %. From all that "
            f"this run released {right}"
        )
    return (
        f"Somebody knows everything about the others and suspects {about}, with a chance of 50 %. From the report of "
        f"that {unit}, and all other reports and results, {right} This is the local model: rows were randomised one by "
        "one, as users do on their own devices, so that whoever collects the reports needs no trust. Where the rows "
        "were in one place before, as in this run, those who keep them know them all the same."
    )
