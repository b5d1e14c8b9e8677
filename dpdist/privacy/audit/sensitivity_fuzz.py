"""Is the declared sensitivity true? Exact sums on adversarial neighbours. For synthetic rows only.

The first of the audits (`dpdist.privacy.audit.two_point` has the others): it costs nothing statistically and finds most
mistakes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar

import mpmath
import numpy as np

from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import FROBENIUS, NUCLEAR, Schatten
from dpdist.privacy.randomness.discrete import MPMATH

Row = TypeVar("Row")


def adversarial_rows(
    n_features: int, dtype: np.typing.DTypeLike, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (kind, row) pairs that have broken sensitivity claims before: one pass through the catalogue.

    NaN and infinities, the largest and smallest doubles, values that overflow float32 or whose squares overflow or
    vanish, huge beside tiny, signed zeros, powers of two, the neighbours of 1 (clipping edges), random rows of many
    scales; each row also with its sign flipped.

    Examples
    --------
    >>> kinds = [kind for kind, _ in adversarial_rows(3, np.float64, np.random.default_rng(0))]
    >>> "all nan" in kinds and "one inf" in kinds and "- random 1" in kinds
    True
    """
    specials = (np.nan, np.inf, 1e308, np.finfo(np.float64).max, 1e39, 1e200, 1e-200, 5e-324, 2.0**52, 2.0**-32)

    def with_one(row: np.ndarray, value: float) -> np.ndarray:
        row[rng.integers(n_features)] = value
        return row

    def rows() -> Iterator[tuple[str, np.ndarray]]:
        yield "zero", np.zeros(n_features)
        for value in specials:
            yield f"all {value:.4g}", np.full(n_features, value)
            yield f"one {value:.4g}", with_one(np.zeros(n_features), value)
            yield f"random with {value:.4g}", with_one(rng.normal(size=n_features), value)
        yield "huge and tiny", np.where(np.arange(n_features) % 2 == 0, 1e300, 1e-300)
        yield "everything bad", np.resize([np.nan, np.inf, -np.inf, 1e308, 5e-324], n_features)
        for name, edge in (("1", 1.0), ("just below 1", math.nextafter(1, 0)), ("just above 1", math.nextafter(1, 2))):
            yield f"all {name}", np.full(n_features, edge)
            yield f"one {name}", with_one(np.zeros(n_features), edge)
        for scale in (1e-12, 1e-3, 1.0, 1e3, 1e12):
            yield f"random {scale:g}", rng.normal(scale=scale, size=n_features)
        yield "heavy tailed", rng.standard_cauchy(n_features) ** 3
        yield "random signs", rng.choice([-1.0, 1.0], n_features)

    for kind, row in rows():
        with np.errstate(over="ignore", under="ignore"):
            cast = row.astype(dtype)
        yield kind, cast
        yield f"- {kind}", -cast


@dataclass(frozen=True)
class Violation:
    """A neighbouring pair that moved the sum too far (or broke the query: ``ratio`` is infinite, ``why`` says how)."""

    relation: Neighbours
    kinds: tuple[str, str]
    ratio: float
    why: str


class SensitivityViolation(AssertionError):
    """The declared sensitivity does not hold; ``violations`` lists the kinds of rows, the worst first."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(sorted(violations, key=lambda v: -v.ratio))
        shown = "; ".join(f"{v.relation.value} {v.kinds}: {v.why}" for v in self.violations[:5])
        super().__init__(f"{len(violations)} neighbouring pairs exceed the declared sensitivity, the worst: {shown}")


def sensitivity_fuzz(
    query_sum: Callable[[list[Row]], Any],
    rows: Iterable[tuple[str, Row]],
    bounds: Mapping[Neighbours, int | Fraction],
    norm: Literal[1, 2, "inf"] | Schatten,
    rng: np.random.Generator,
    *,
    n_bases: int = 3,
) -> dict[Neighbours, float]:
    """Compare a query's exact sums on adversarial neighbours with its declared sensitivity, in exact arithmetic.

    For a few random base datasets (drawn from `rows`, with repetitions) every row of `rows` is added in turn, at a
    random place. Base against base plus row are add-or-remove-one neighbours; base plus one row against base plus
    another are replace-one neighbours, and all pairs are compared. Never use it on private rows: its errors describe
    them.

    Parameters
    ----------
    query_sum : callable
        A list of rows to the exact sum, a vector of integers in units of the grid (integer-valued floats are accepted).
        It must not raise, change its length or return anything else, whatever the rows are: that would leak as well.
    rows : iterable of (kind, row)
        For example `adversarial_rows`, zipped with labels if the query has any.
    bounds : mapping
        The declared sensitivity in units, for each relation to be tested. An irrational one: a Fraction just above it.
    norm : 1, 2, "inf", FROBENIUS or NUCLEAR
        2 is compared by squares: ``sum diff^2 <= bound^2``. In a matrix norm (`dpdist.privacy.mechanisms.norms`) the
        difference is a packed symmetric matrix: by squares as well, and by eigenvalues with as many digits as it takes.
    rng : numpy.random.Generator
        Chooses the bases.

    Returns
    -------
    dict
        The worst ratio of distance to bound per relation; close to 1 means that the test rows attain the bound.

    Raises
    ------
    SensitivityViolation
        If any pair exceeds the bound.

    Examples
    --------
    >>> def clipped_count(rows):
    ...     return [sum(max(-8, min(8, int(row))) for row in rows)]
    >>> bounds = {Neighbours.ADD_OR_REMOVE_ONE: 8, Neighbours.REPLACE_ONE: 16}
    >>> worst = sensitivity_fuzz(clipped_count, [("a", 99), ("b", -99), ("c", 3)], bounds, 1, np.random.default_rng(0))
    >>> sorted(worst.values())
    [1.0, 1.0]
    """
    pool = list(rows)
    worst = dict.fromkeys(bounds, 0.0)
    violations: list[Violation] = []

    def compare(relation: Neighbours, kinds: tuple[str, str], a: list[int] | str, b: list[int] | str) -> None:
        if isinstance(a, str) or isinstance(b, str) or len(a) != len(b):
            why = next((x for x in (a, b) if isinstance(x, str)), "the sums have different lengths")
            violations.append(Violation(relation, kinds, math.inf, why))
            return
        ratio, exceeds = distance_ratio([x - y for x, y in zip(a, b, strict=True)], bounds[relation], norm)
        worst[relation] = max(worst[relation], ratio)
        if exceeds:
            violations.append(Violation(relation, kinds, ratio, f"{ratio:.9g} times the bound"))

    for _ in range(n_bases):
        base = [pool[i][1] for i in rng.integers(len(pool), size=rng.integers(1, 9))]
        before = _exact(query_sum, base)
        sums = []
        for kind, row in pool:
            place = int(rng.integers(len(base) + 1))
            sums.append((kind, _exact(query_sum, [*base[:place], row, *base[place:]])))
        if Neighbours.ADD_OR_REMOVE_ONE in bounds:
            for kind, after in sums:
                compare(Neighbours.ADD_OR_REMOVE_ONE, ("nothing", kind), before, after)
        if Neighbours.REPLACE_ONE in bounds:
            for (kind_a, a), (kind_b, b) in itertools.combinations(sums, 2):
                compare(Neighbours.REPLACE_ONE, (kind_a, kind_b), a, b)
    if violations:
        raise SensitivityViolation(violations)
    return worst


def _exact(query_sum: Callable[[list[Row]], Any], rows: list[Row]) -> list[int] | str:
    """The sum as Python integers, or what was wrong with it."""
    try:
        values = np.asarray(query_sum(rows), dtype=object).ravel().tolist()
    except Exception as error:
        return f"the query raised {type(error).__name__}"
    try:
        integers = [int(value) for value in values]
    except (ValueError, OverflowError, TypeError):
        return "the sum is not finite"
    return integers if integers == values else "the sum is not an integer in units of the grid"


def distance_ratio(
    difference: list[int], bound: int | Fraction, norm: Literal[1, 2, "inf"] | Schatten
) -> tuple[float, bool]:
    """Distance over bound as a float for display, and the exact verdict: whether it is above 1."""
    if norm == NUCLEAR:
        return _nuclear_ratio(difference, Fraction(bound))
    above, below = int(bound.numerator), int(bound.denominator)  # integers: thousands of pairs are compared
    if norm in (2, FROBENIUS):
        square = sum(d * d for d in difference)
        if norm == FROBENIUS:
            square = 2 * square - sum(difference[i] ** 2 for i in diagonal(len(difference)))
        square, limit = square * below**2, above**2
        return math.sqrt(square / limit), square > limit
    size = (sum(map(abs, difference)) if norm == 1 else max(map(abs, difference), default=0)) * below
    return size / above, size > above


def diagonal(n_packed: int) -> list[int]:
    """Where the diagonal of a packed upper triangle of that many entries is.

    >>> diagonal(6)
    [0, 3, 5]
    """
    size = (math.isqrt(8 * n_packed + 1) - 1) // 2
    if size * (size + 1) // 2 != n_packed:
        raise ValueError(f"a packed symmetric matrix has d (d + 1) / 2 entries, got {n_packed}")
    return [i * size - i * (i - 1) // 2 for i in range(size)]


def _nuclear_ratio(difference: list[int], bound: Fraction) -> tuple[float, bool]:
    starts = diagonal(len(difference))
    size = len(starts)
    rows = [[difference[starts[min(i, j)] + abs(i - j)] for j in range(size)] for i in range(size)]
    found = math.fsum(abs(np.linalg.eigvalsh(np.array(rows, dtype=np.float64)))) if size else 0.0
    # symmetric solvers are backward stable: every eigenvalue is within a few d u of the norm
    error = Fraction(found) * size * size * Fraction(2) ** -48
    if abs(Fraction(found) - bound) > error:
        return float(Fraction(found) / bound), Fraction(found) > bound
    context = mpmath.MPContext()
    context.prec = 400
    with MPMATH:
        eigenvalues = context.eigsy(context.matrix(rows), eigvals_only=True)
        excess = context.fsum(abs(v) for v in eigenvalues) - context.mpf(bound.numerator) / bound.denominator
    return float(Fraction(found) / bound), bool(excess > context.ldexp(float(bound), -300))
