"""`PROBLEMS`: the generators with a known truth, for jobs, figures, examples and tests, of all families."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dpdist.problems import (
    bounded_problems,
    crowd_problems,
    density_problems,
    frequency_problems,
    glm_lookalikes,
    glm_problems,
    label_classes,
    latent_problems,
    linear_problems,
    lookalikes,
    matrix_problems,
    mean_problems,
    nonconvex_problems,
    pair_problems,
    quadratic_problems,
    skewed_problems,
    smooth_problems,
    sparse_problems,
    surface_problems,
    table_problems,
)
from dpdist.problems.problem import Problem

FAMILIES = (
    linear_problems,
    sparse_problems,
    skewed_problems,
    lookalikes,
    smooth_problems,
    mean_problems,
    frequency_problems,
    table_problems,
    density_problems,
    surface_problems,
    glm_problems,
    glm_lookalikes,
    matrix_problems,
    crowd_problems,
    latent_problems,
    label_classes,
    nonconvex_problems,
    quadratic_problems,
    bounded_problems,
    pair_problems,
)

PROBLEMS: Mapping[str, Problem] = MappingProxyType({p.name: p for family in FAMILIES for p in family.PROBLEMS})
"""Every generator with a known truth, by the name a job uses."""


def readers(parameter: str) -> str:
    """Who reads a parameter of data, in words; empty if nobody does.

    Examples
    --------
    >>> readers("n_bits"), readers("exponent"), readers("bits")
    ('codes reads it', 'categories and codes read it', '')
    """
    found = [name for name, problem in PROBLEMS.items() if parameter in problem.parameters]
    if len(found) < 2:
        return f"{found[0]} reads it" if found else ""
    return f"{', '.join(found[:-1])} and {found[-1]} read it"
