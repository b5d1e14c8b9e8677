"""What an ingestion makes of a source: public decisions, checked and resolved by names alone, never by values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, Self, get_args

import numpy as np

from dpdist.errors import DataError, MissingBound, did_you_mean

OnBad = Literal["stop", "drop", "zero"]
LabelType = Literal["float", "str"]
FeatureType = Literal["float64", "float32"]
KEEP, LEVEL, INDICATOR = "keep", "level", "indicator"
"""What can be made of an empty cell of a feature, where no value takes its place."""
_SHOWN_NAMES = 20


@dataclass(frozen=True)
class IngestionSpec:
    """The public decisions of an ingestion.

    Parameters
    ----------
    features : tuple of str
        Columns of ``X`` by name or shell pattern (``"x*"``), in this order; of an array source the name of the 2-d
        array (default ``"X"``); of sparse lines how many there are (``("54",)``).
    label : str or None
        Column (or 1-d array) that becomes ``y``.
    label_type : {"float", "str"}
    label_levels : tuple of str
        The allowed labels; implies text.
    levels : mapping of str to tuple of str
        Allowed values of a categorical column, which becomes one 0/1 column ``name=level`` for each.
    reference : mapping of str to str
        The level of a category that has no column: a row of it is 0 in the columns of the others, whose coefficients
        are then differences to it. The columns of all levels add up to the constant, so that with an intercept, or with
        a second category, nobody can tell how sure one of their coefficients is.
    ranges : mapping of str to (float, float)
        Public bounds ``(lo, hi)`` of a column, mapped to ``2 (v - lo) / (hi - lo) - 1``, that is to [-1, 1].
    clip : bool
        Whether values outside of their range are moved to its nearer end; else they leave [-1, 1].
    missing : mapping of str to str
        What an empty cell of a feature stands for: ``"indicator"`` (numbers: the middle of the range, or 0) and
        ``"level"`` (categories: none of the levels) add a column ``name is missing`` of 0 and 1; ``"keep"`` keeps it as
        NaN, which the schema of the dataset then says (`dpdist.data.dataset_schema.Schema.missing`); anything else is
        the number, or the level, that takes its place.
    unit, max_rows : str, int
        The column that names the owner of a row, and how many rows each owner has in what is written.
    on_bad : {"stop", "drop", "zero"}
    dtype : {"float64", "float32"}
        Of ``X``.
    """

    features: tuple[str, ...] = ()
    label: str | None = None
    label_type: LabelType = "float"
    label_levels: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reference: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    clip: bool = True
    missing: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    max_rows: int | None = None
    on_bad: OnBad = "stop"
    dtype: FeatureType = "float64"

    def __post_init__(self) -> None:
        for name, value, allowed in [
            ("on_bad", self.on_bad, get_args(OnBad)),
            ("label_type", self.label_type, get_args(LabelType)),
            ("dtype", self.dtype, get_args(FeatureType)),
        ]:
            if value not in allowed:
                raise DataError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        if not isinstance(self.clip, bool):
            raise DataError(f"clip must be True or False, got {self.clip!r}")
        for name, levels in [*self.levels.items(), *([("the label", self.label_levels)] if self.label_levels else [])]:
            if not levels or len(set(levels)) < len(levels) or "" in levels:
                raise DataError(f"the levels of {name} must be a list of different, non-empty texts")
        for name, level in self.reference.items():
            if name not in self.levels:
                raise DataError(
                    f"a reference level was given for {name!r}, which has no declared levels"
                    f"{near(name, [*self.levels])}: declare them with --levels {name}={level},... (levels=)"
                )
            if level not in self.levels[name] or len(self.levels[name]) < 2:
                raise DataError(
                    f"--reference {name}={level}: expected one of the at least two declared levels of {name}, "
                    f"{', '.join(self.levels[name])}"
                )
        for name, (low, high) in self.ranges.items():
            if not (low < high and math.isfinite(low) and math.isfinite(high - low)):
                raise DataError(f"the range of {name!r} must be two finite numbers lo < hi, got {low}:{high}")
        if self.label is None and self.label_levels:
            raise DataError("levels of the label were given, but no label; name its column with --label")
        if self.unit is not None and self.max_rows is None:
            raise MissingBound(
                f"{self.unit!r} may own several rows: declare how many are kept of each with --max-rows (max_rows=). "
                "So many are stored for each, so choose a small number, and do not read it off the data."
            )
        if self.max_rows is not None and (self.unit is None or type(self.max_rows) is not int or self.max_rows < 1):
            raise DataError(
                "--max-rows is a whole number >= 1 and goes with --unit, the column of the owners of the rows"
            )

    def layout(self, available: Sequence[str], where: str) -> Layout:
        """Resolve the names against the columns of a table."""
        if not self.features and not self.levels:
            raise DataError(
                f"which columns are features is a public decision: name them with --features (features=). {where} has "
                + listed(available)
            )
        numbers: list[tuple[str, int]] = []
        categories: list[tuple[str, int, tuple[str, ...]]] = []
        names: list[str] = []
        indicators: dict[str, int] = {}
        wanted = [name for pattern in self.features for name in self._expand(pattern, available, where)]
        for name in [*wanted, *(name for name in self.levels if name not in wanted)]:
            _check_column(name, available, where)
            if name in self.levels:
                own = tuple(level for level in self.levels[name] if level != self.reference.get(name))
                without = (self.reference[name],) if name in self.reference else ()
                categories.append((name, len(names), (*own, *without)))
                names += [f"{name}={level}" for level in own]
            else:
                numbers.append((name, len(names)))
                names.append(name)
            if self.missing.get(name) in (LEVEL, INDICATOR):
                indicators[name] = len(names)
                names.append(f"{name} is missing")
        layout = Layout(self, tuple(names), tuple(numbers), tuple(categories), self.label, indicators)
        for owner in (self.label, self.unit):
            if owner is not None:
                _check_column(owner, available, where)
        used = [*wanted, *(name for name in self.levels if name not in wanted), self.label, self.unit]
        twice = sorted({name for name in used if name is not None and used.count(name) > 1})
        if twice:
            raise DataError(f"{', '.join(map(repr, twice))}: a column can be used once, as a feature, label or unit")
        layout.check_ranges()
        layout.check_missing()
        return layout

    def _expand(self, pattern: str, available: Sequence[str], where: str) -> list[str]:
        if pattern in available or not any(sign in pattern for sign in "*?["):
            return [pattern]
        taken = {self.label, self.unit}
        found = [name for name in available if fnmatchcase(name, pattern) and name not in taken]
        if not found:
            raise DataError(f"no column of {where} matches {pattern!r}; it has {listed(available)}")
        return found

    def array_layout(self, width: int, names: tuple[str, ...], label: str | None) -> Layout:
        """Columns of an array source: by their names where it has any, else by their numbers 0, 1, ..."""
        if self.levels or set(self.missing.values()) - {KEEP}:
            option = "--levels" if self.levels else "--missing COLUMN=level, indicator or a value"
            raise DataError(f"{option} is for tables (CSV, Parquet); an array holds numbers already")
        columns = names or tuple(map(str, range(width)))
        layout = Layout(self, columns, tuple((name, j) for j, name in enumerate(columns)), (), label)
        layout.check_ranges()
        layout.check_missing()
        return layout

    def to_attributes(self) -> dict[str, Any]:
        """Plain JSON, the same for the same decisions."""
        return {
            "features": list(self.features),
            "label": self.label,
            "label_type": self.label_type,
            "label_levels": list(self.label_levels),
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            **({"reference": dict(self.reference)} if self.reference else {}),
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
            "clip": self.clip,
            "missing": dict(self.missing),
            "unit": self.unit,
            "max_rows": self.max_rows,
            "on_bad": self.on_bad,
            "dtype": self.dtype,
        }

    @classmethod
    def from_attributes(cls, stored: Mapping[str, Any]) -> Self:
        """Read back what `to_attributes` wrote."""
        return cls(
            features=tuple(stored["features"]),
            label=stored["label"],
            label_type=stored["label_type"],
            label_levels=tuple(stored["label_levels"]),
            levels={name: tuple(levels) for name, levels in stored["levels"].items()},
            reference=dict(stored.get("reference", {})),
            ranges={name: (float(low), float(high)) for name, (low, high) in stored["ranges"].items()},
            clip=bool(stored["clip"]),
            missing=dict(stored["missing"]),
            unit=stored["unit"],
            max_rows=stored["max_rows"],
            on_bad=stored["on_bad"],
            dtype=stored["dtype"],
        )


@dataclass(frozen=True)
class Layout:
    """A `IngestionSpec` resolved against the columns of a source.

    Attributes
    ----------
    names : tuple of str
        Of the columns of ``X``.
    numbers : tuple of (name, column of X)
    categories : tuple of (name, first column of X, levels)
        The reference, which has no column, is the last of the levels.
    label : str or None
    indicators : mapping of str to int
        The column of X that says whether a cell was empty.
    """

    spec: IngestionSpec
    names: tuple[str, ...]
    numbers: tuple[tuple[str, int], ...]
    categories: tuple[tuple[str, int, tuple[str, ...]], ...]
    label: str | None
    indicators: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the table, in the order in which they stand in ``X``."""
        places = [*self.numbers, *((name, first) for name, first, _ in self.categories)]
        return tuple(name for name, _ in sorted(places, key=lambda place: place[1]))

    @property
    def kept(self) -> tuple[str, ...]:
        """Columns of ``X`` whose missing cells are kept."""
        return tuple(name for name, _ in self.numbers if self.spec.missing.get(name) == KEEP)

    @property
    def width(self) -> int:
        """Columns of ``X``."""
        return len(self.names)

    @property
    def row_bytes(self) -> int:
        """Of a row of ``X`` as it is stored."""
        return np.dtype(self.spec.dtype).itemsize * self.width

    @property
    def text_label(self) -> bool:
        """Whether ``y`` holds strings."""
        return self.spec.label_type == "str" or bool(self.spec.label_levels)

    @property
    def kinds(self) -> dict[str, Literal["number", "text"]]:
        """The columns of the table to read, and as what."""
        kinds: dict[str, Literal["number", "text"]] = {name: "number" for name, _ in self.numbers}
        kinds.update((name, "text") for name, _, _ in self.categories)
        if self.label is not None:
            kinds[self.label] = "text" if self.text_label else "number"
        if self.spec.unit is not None:
            kinds[self.spec.unit] = "text"
        return kinds

    def check_ranges(self) -> None:
        """Refuse a range of a column that is not a number in the output."""
        scalable = [name for name, _ in self.numbers]
        if self.label is not None and not self.text_label:
            scalable.append(self.label)
        for name in self.spec.ranges:
            if name not in scalable:
                hint = near(name, scalable)
                raise DataError(f"a range was given for {name!r}, which is no numeric feature or label{hint}")

    def filled(self, name: str) -> float | None:
        """The number that takes the place of an empty cell of a numeric feature, in the units of the table."""
        stands_for = self.spec.missing.get(name)
        if stands_for in (None, KEEP):
            return None
        if stands_for != INDICATOR:
            return float(str(stands_for))
        low, high = self.spec.ranges.get(name, (0.0, 0.0))
        return (low + high) / 2

    def check_missing(self) -> None:
        """Refuse what an empty cell can't stand for."""
        levels = {name: allowed for name, _, allowed in self.categories}
        numeric = [name for name, _ in self.numbers]
        for name, stands_for in self.spec.missing.items():
            if name not in levels and name not in numeric:
                raise DataError(
                    f"missing cells of {name!r} cannot be kept, which is no feature{near(name, [*numeric, *levels])}: "
                    "a label or an owner has to be there; of rows without one say --on-bad drop or zero"
                )
            if name in levels and stands_for not in (LEVEL, INDICATOR, *levels[name]):
                raise DataError(
                    f"--missing {name}={stands_for}: expected level (a level of its own for empty cells), or one of "
                    f"the declared levels {', '.join(levels[name])}"
                )
            if name in numeric and stands_for not in (KEEP, INDICATOR) and not _is_number(stands_for):
                raise DataError(
                    f"--missing {name}={stands_for}: expected indicator (a column of its own for empty cells, which "
                    "become the middle of the range), keep, or a number that takes their place"
                )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _check_column(name: str, available: Sequence[str], where: str) -> None:
    count = list(available).count(name)
    if count == 0:
        between = next((mark for mark in ";\t|" if len(available) == 1 and mark in available[0]), None)
        hint = "" if between is None else f": if {between!r} stands between the values, say so with --delimiter"
        raise DataError(
            f"there is no column {name!r} in {where}{near(name, available)}; it has {listed(available)}{hint}"
        )
    if count > 1:
        raise DataError(f"{where} has {count} columns called {name!r}; rename them, so that the name says which")


def texts(what: str, given: Any, example: str) -> tuple[str, ...]:
    """A list of texts. One text alone would be taken letter by letter.

    >>> texts("features", ["age"], "")
    ('age',)
    >>> texts("features", "age,income", '["age", "income"]')
    Traceback (most recent call last):
    dpdist.errors.DataError: features must be a list of texts such as ["age", "income"], got 'age,income'
    """
    plural = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    found = tuple(given) if plural else ()
    if not plural or not all(isinstance(text, str) for text in found):
        raise DataError(f"{what} must be a list of texts such as {example}, got {given!r}")
    return found


def by_column(what: str, given: Any, example: str) -> Mapping[str, Any]:
    """A mapping from names of columns; None is one of none."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise DataError(f"{what} must be a mapping from columns such as {example}, got {given!r}")
    return given


def bounds(name: str, given: Any) -> tuple[float, float]:
    """The two ends of the range of a column."""
    try:
        low, high = given
        return float(low), float(high)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"the range of {name!r} must be two numbers such as (0, 100), got {given!r}") from None


def near(name: str, available: Sequence[str]) -> str:
    """`did_you_mean`, in the middle of a sentence."""
    found = did_you_mean(name, available)
    return f" ({found})" if found else ""


def listed(names: Sequence[str]) -> str:
    """Name columns in a message, the first 20 of them."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return "the columns " + ", ".join(map(repr, names[:_SHOWN_NAMES])) + more
