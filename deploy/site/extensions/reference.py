"""The API reference: every public class, from the lists of public names, so that none can be forgotten."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType


def write(place: Path) -> None:
    """Write the page, in reStructuredText, which autosummary reads; only if it has changed."""
    text = "\n".join(_lines())
    if not place.exists() or place.read_text() != text:
        place.write_text(text)


def parts() -> list[tuple[ModuleType, list[str], str]]:
    """Each module of the reference, its public names, and a sentence about them."""
    import dpdist
    from dpdist import central, constraints, local, losses

    sets = [name for name, kind in vars(constraints).items()
            if inspect.isclass(kind) and kind.__module__ == constraints.__name__ and name[0] != "_"]  # fmt: skip
    found = [
        (dpdist, dpdist.__all__, "With a trusted coordinator, and what all of it needs."),
        (local, local.__all__, "Every user randomises their own row."),
        (central, set(central.__all__) - set(dpdist.__all__), "Objects for solver=, gradient=, rows= and method=."),
        (constraints, sets, "Sets and penalties."),
        (losses, {loss.__name__ for loss in losses.LOSSES.values()}, "Losses of a linear predictor."),
    ]
    return [(module, sorted(names), words) for module, names, words in found]


def _lines() -> list[str]:
    lines = ["API reference", "============="]
    for module, names, words in parts():
        name = module.__name__
        lines += ["", name, "-" * len(name), "", words, "", f".. currentmodule:: {name}", "", ".. autosummary::"]
        lines += ["   :toctree: api", "   :nosignatures:", "", *(f"   {public}" for public in names), ""]
    return lines
