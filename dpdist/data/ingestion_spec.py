"""What an ingestion makes of a source: public decisions, checked and resolved by names alone, never by values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import numpy as np

from dpdist.errors import DataError, MissingBound, did_you_mean

OnBad = Literal["stop", "drop", "zero"]
LabelType = Literal["float", "str"]
FeatureType = Literal["float64", "float32"]
KEEP = "keep"
MISSING = (KEEP,)
"""What can be made of the missing cells of a column."""
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
    ranges : mapping of str to (float, float)
        Public bounds ``(lo, hi)`` of a column, mapped to ``2 (v - lo) / (hi - lo) - 1``, that is to [-1, 1].
    unit, max_rows : str, int
        The column that names the owner of a row, and how many rows each owner has in what is written.
    missing : mapping of str to str
        What is made of the missing cells of a column, where a row that misses it is not bad: ``"keep"`` keeps them as
        NaN, which the schema of the dataset then says (`dpdist.data.dataset_schema.Schema.missing`).
    on_bad : {"stop", "drop", "zero"}
    dtype : {"float64", "float32"}
        Of ``X``.
    """

    features: tuple[str, ...] = ()
    label: str | None = None
    label_type: LabelType = "float"
    label_levels: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unit: str | None = None
    max_rows: int | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
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
        for name, levels in [*self.levels.items(), *([("the label", self.label_levels)] if self.label_levels else [])]:
            if not levels or len(set(levels)) < len(levels) or "" in levels:
                raise DataError(f"the levels of {name} must be a list of different, non-empty texts")
        for name, (low, high) in self.ranges.items():
            if not (low < high and math.isfinite(low) and math.isfinite(high - low)):
                raise DataError(f"the range of {name!r} must be two finite numbers lo < hi, got {low}:{high}")
        for name, what in self.missing.items():
            if what not in MISSING:
                raise DataError(
                    f"missing cells of {name!r} can be treated as one of {', '.join(MISSING)}, got {what!r}"
                )
        if self.label is None and self.label_levels:
            raise DataError("levels of the label were given, but no label; name its column with --label")
        if self.unit is not None and self.max_rows is None:
            raise MissingBound(
                f"{self.unit!r} may own several rows: declare how many are kept of each with --max-rows (max_rows=). "
                "So many are stored for each, so choose a small number, and do not read it off the data."
            )
        if self.max_rows is not None and (self.unit is None or self.max_rows < 1):
            raise DataError("--max-rows is a number >= 1 and goes with --unit, the column of the owners of the rows")

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
        wanted = [name for pattern in self.features for name in self._expand(pattern, available, where)]
        for name in [*wanted, *(name for name in self.levels if name not in wanted)]:
            _check_column(name, available, where)
            if name in self.levels:
                categories.append((name, len(names), tuple(self.levels[name])))
                names += [f"{name}={level}" for level in self.levels[name]]
            else:
                numbers.append((name, len(names)))
                names.append(name)
        layout = Layout(self, tuple(names), tuple(numbers), tuple(categories), self.label)
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
        if self.levels:
            raise DataError("--levels is for tables (CSV, Parquet); an array holds numbers already")
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
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
            "unit": self.unit,
            "max_rows": self.max_rows,
            "on_bad": self.on_bad,
            "dtype": self.dtype,
            **({"missing": dict(self.missing)} if self.missing else {}),
        }


@dataclass(frozen=True)
class Layout:
    """A `IngestionSpec` resolved against the columns of a source.

    Attributes
    ----------
    names : tuple of str
        Of the columns of ``X``.
    numbers : tuple of (name, column of X)
    categories : tuple of (name, first column of X, levels)
    label : str or None
    """

    spec: IngestionSpec
    names: tuple[str, ...]
    numbers: tuple[tuple[str, int], ...]
    categories: tuple[tuple[str, int, tuple[str, ...]], ...]
    label: str | None

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

    def check_missing(self) -> None:
        """Refuse missing cells of a column that is not a number of ``X``."""
        for name in self.spec.missing:
            scalable = [name for name, _ in self.numbers]
            if name not in scalable:
                raise DataError(
                    f"missing cells of {name!r} cannot be kept, which is no numeric feature{near(name, scalable)}: a "
                    "label or an owner has to be there, and a level of its own says that a category is not"
                )

    def check_ranges(self) -> None:
        """Refuse a range of a column that is not a number in the output."""
        scalable = [name for name, _ in self.numbers]
        if self.label is not None and not self.text_label:
            scalable.append(self.label)
        for name in self.spec.ranges:
            if name not in scalable:
                hint = near(name, scalable)
                raise DataError(f"a range was given for {name!r}, which is no numeric feature or label{hint}")


def _check_column(name: str, available: Sequence[str], where: str) -> None:
    count = list(available).count(name)
    if count == 0:
        raise DataError(f"there is no column {name!r} in {where}{near(name, available)}; it has {listed(available)}")
    if count > 1:
        raise DataError(f"{where} has {count} columns called {name!r}; rename them, so that the name says which")


def near(name: str, available: Sequence[str]) -> str:
    """`did_you_mean`, in the middle of a sentence."""
    found = did_you_mean(name, available)
    return f" ({found})" if found else ""


def listed(names: Sequence[str]) -> str:
    """Name columns in a message, the first 20 of them."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return "the columns " + ", ".join(map(repr, names[:_SHOWN_NAMES])) + more
