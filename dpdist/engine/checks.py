"""What a coordinator refuses: releases that would be accounted for something else than what is done."""

from __future__ import annotations

import dataclasses

import numpy as np

from dpdist.data import Units
from dpdist.data.folds import Fold, check_disjoint
from dpdist.engine.query import Query
from dpdist.errors import BudgetError
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import name_of
from dpdist.privacy.protected_units import Protected


def check_plannable(item: Item, units: Units, neighbours: Neighbours) -> None:
    """Refuse what would be accounted for something else than what is done."""
    if not isinstance(item.sampling, Poisson | None):
        raise BudgetError(
            f"item {item.name!r}: batches are drawn row by row, so they are Poisson(rate); "
            f"{item.sampling!r} would be accounted for another draw than the one that is made"
        )
    if item.sampling is not None:
        units.need_counted(f"item {item.name!r} is asked of a sample, in which rows of one {units.name} stay together")
    if item.fold is not None:
        units.need_counted(f"item {item.name!r} is asked of a fold, which holds all rows of a {units.name} or none")
        check_disjoint(neighbours)
    if units.max_rows == 1:
        return
    if item.mechanism.reported is not None:
        check_one_report(units)
    if item.mechanism.one_row_only:
        raise BudgetError(
            f"item {item.name!r}: one {units.name} may own several rows of this dataset, and "
            f"{item.mechanism.one_row_only}, or keep one row per {units.name} (dpdist ingest --max-rows 1)"
        )


def check_asked(
    item: Item, query: Query, neighbours: Neighbours, units: Units, protects: Protected, align: int, n_rows: int | None
) -> float:
    """The query's sensitivity, if it is such that a calibrated line of a plan pays for it."""
    check_numbers(query)
    query.check_rows(n_rows)
    sensitivity = sensitivity_of(item, query, neighbours, units)
    check_smooth(item, query, neighbours)
    check_reported(item, query, protects)
    check_aligned(query, align)
    check_path(item, query, units)
    return sensitivity


def check_numbers(query: Query) -> None:
    """Refuse bounds whose arithmetic wraps or rounds: the square of ``np.uint8(200)`` is 64, and noise too small."""
    if not dataclasses.is_dataclass(query):
        return
    for field in dataclasses.fields(query):
        value = getattr(query, field.name)
        if "float" in str(field.type) and isinstance(value, np.generic) and not isinstance(value, float):
            raise BudgetError(
                f"{field.name}={value!r} is a number of {value.dtype.itemsize * 8} bits that overflows or rounds where "
                f"a sensitivity is computed from it: pass {field.name}=float(...)"
            )


def check_one_report(units: Units) -> None:
    """Refuse users who would report once for each of their rows."""
    if units.max_rows > 1:
        raise BudgetError(
            f"in the local model every row sends a report, and one {units.name} may own several rows of this dataset: "
            f"keep one row per {units.name} (dpdist ingest --max-rows 1)"
        )


def check_reported(item: Item, query: Query, protects: Protected) -> None:
    """A sum may leave without noise only if every row was randomised, at the cost that the plan charged for it."""
    if query.protects != protects:
        raise BudgetError(
            f"item {item.name!r} is charged for {protects.what}, and {type(query).__name__} protects "
            f"{query.protects.what}: name that as what the run protects"
        )
    paid = item.mechanism.reported
    if query.reported != paid:
        raise BudgetError(
            f"item {item.name!r} pays for {paid or 'noise on an exact sum'}, and {type(query).__name__} brings "
            f"{query.reported or 'an exact sum'}: a query of reports and a mechanism of its cost belong together"
        )


def sensitivity_of(item: Item, query: Query, neighbours: Neighbours, units: Units) -> float:
    """The query's sensitivity to one unit in the norm of the mechanism, if it is what the accounting rests on."""
    norm = item.mechanism.norm
    if not query.knows(norm):
        raise BudgetError(
            f"item {item.name!r}: {type(item.mechanism).__name__} needs a bound of {name_of(norm)}, and "
            f"{type(query).__name__} bounds {name_of(query.norm)}: use a mechanism for what the query bounds"
        )
    sensitivity = query.unit_sensitivity(neighbours, norm, units)
    if item.sampling is not None and not (
        query.is_sum and sensitivity >= neighbours.sum_factor * query.plain_bound(norm) * units.max_rows
    ):
        raise BudgetError(
            f"item {item.name!r}: {type(query).__name__} is not a sum with {neighbours.sum_factor} times the bound of "
            "a row as its sensitivity; amplification by sampling is proved for such sums only. Release it on all rows, "
            "or with sampled=True where the query has that"
        )
    if item.mechanism.one_change_only and query.steps(units) > 1:
        raise BudgetError(
            f"one {units.name} may change several of the values that {type(query).__name__} gives, and "
            f"{item.mechanism.one_change_only}"
        )
    return sensitivity


def check_smooth(item: Item, query: Query, neighbours: Neighbours) -> None:
    """Refuse noise that follows the data unless the query's bound is as smooth as the mechanism's proof needs."""
    kind, proved = type(item.mechanism).__name__, item.mechanism.smoothness
    if item.mechanism.replace_one_only and neighbours is not Neighbours.REPLACE_ONE:
        raise BudgetError(
            f"{kind} is proved where neighbours differ in one row of a public number of rows: use "
            "neighbours='replace-one'"
        )
    if proved is None and query.smoothness is None:
        return
    if proved is None or query.smoothness is None or query.smoothness > proved:
        raise BudgetError(
            f"{type(query).__name__} has a smooth bound for t = {query.smoothness}, {kind} needs t <= {proved}: "
            "use the two that belong together"
        )


def check_aligned(query: Query, align: int) -> None:
    """Refuse ranges that would part rows which a query reads together."""
    if align % query.align:
        raise BudgetError(
            f"{type(query).__name__} reads {query.align} rows together, and ranges begin at multiples of {align}: use "
            f"Coordinator(align={query.align}) or a multiple of it"
        )


def check_fold(query: Query, fold: Fold) -> None:
    """Refuse a fold that parts rows which a query reads together, or has too few of them."""
    if query.whole_blocks and (fold.start % query.align or fold.stop - fold.start < query.align):
        raise BudgetError(
            f"{type(query).__name__} reads {query.align} rows together, from the first row on, and fold {fold.index} "
            f"has the rows {fold.start} to {fold.stop}: ask all rows"
        )


def check_path(item: Item, query: Query, units: Units) -> None:
    """Refuse a stream whose rows pay by another path than the plan charged."""
    if query.path != item.path:
        raise BudgetError(
            f"item {item.name!r} is charged by {item.path or 'a full release of every row'}, and "
            f"{type(query).__name__} reads {query.path or 'all rows alike'}: a path and its query belong together"
        )
    if item.path is not None and units.max_rows > 1:
        raise BudgetError(
            f"item {item.name!r}: one {units.name} may own several rows, which could be in several blocks of a stream "
            f"and pay more than one row does: keep one row per {units.name} (dpdist ingest --max-rows 1)"
        )
