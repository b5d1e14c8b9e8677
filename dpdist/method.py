"""The shape of every method: public choices, the lines of a plan, and a solution made of releases.

=========== ==========================================================================================================
`Public`    what every fit knows before a row is read: rows, features, budget, relation, rows per unit
`Line`      one line of a plan: the query, the mechanism, how often, for which share, on which rows. What is planned,
            shown, asked and charged is this one object
`Choice`    what a user chooses by name or as an object with parameters of its own
`Method`    a choice that can be fitted: `Method.decide` replaces every None, from public numbers only; then its lines
            are what will be released, and `Method.solve` makes fitted attributes of the releases
`Oracle`    the only access to the rows: answers with the releases that the lines paid for, and with nothing else
=========== ==========================================================================================================

A method is written in one module of its family; `dpdist.estimators.estimator` is written once, on top of it.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpdist.data import ROWS, Fold, Units
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.query import Query
from dpdist.errors import did_you_mean
from dpdist.identity import plain
from dpdist.privacy.accounting.plan import Item, Plan
from dpdist.privacy.accounting.releases import Sampling
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.protected_units import ALL_DATA, Protected

Vector = NDArray[np.float64]
C = TypeVar("C", bound="Choice")


@dataclass(frozen=True)
class Expected:
    """The error to expect of a fit, from public numbers: a range over what is not public.

    Attributes
    ----------
    low, typical, high : float
    unknown : str
        What makes the range wide, more than anything else.
    least_share, typical_share : float
        The error relative to what ignoring the data costs, in the most favourable case and in a middle one.
    """

    low: float
    typical: float
    high: float
    unknown: str
    least_share: float
    typical_share: float


UNNAMED: Mapping[str, Any] = MappingProxyType({"named": False})
"""Metadata of a field that the id of the dataset stands for."""


@dataclass(frozen=True)
class Public:
    """What every fit knows beforehand.

    Attributes
    ----------
    n_rows : int
        The number that sums over all rows are divided by; where the true one is private, the declared one.
    n_features : int
    budget : Budget
    neighbours : Neighbours
    units : Units
        Whose rows they are.
    counted : bool
        Whether the true number of rows is public.
    """

    tag: ClassVar[str] = "Public"

    n_rows: int
    n_features: int
    budget: Budget
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    units: Units = field(default=ROWS, metadata=UNNAMED)
    counted: bool = field(default=True, metadata=UNNAMED)

    @property
    def n_units(self) -> int:
        """Whose rows there are: as many as rows, unless a unit has several."""
        return self.n_rows // self.units.max_rows

    def one_row_each(self) -> Public:
        """The numbers by which rounds, steps and scales are decided, and errors predicted.

        k rows of each unit in a sum with k times the noise are as good as one in a sum with the noise of one.
        """
        return replace(self, n_rows=max(1, self.n_units), units=ROWS)


@dataclass(frozen=True)
class Line:
    """One line of a plan, with what it asks.

    Attributes
    ----------
    name : str
    mechanism : Mechanism
    query : Query or None
        None where it follows from earlier releases; it is given to `Oracle.ask` then.
    count, share, sampling, fold, passes, path
        As in `dpdist.privacy.accounting.plan.Item`.
    """

    name: str
    mechanism: Mechanism
    query: Query | None = None
    count: int = 1
    share: float = 1.0
    sampling: Sampling | None = None
    fold: tuple[Hashable, int] | None = None
    passes: int = 1
    path: StreamPath | None = None

    @property
    def item(self) -> Item:
        """What is calibrated and charged."""
        return Item(self.name, self.mechanism, self.count, self.share, self.sampling, self.fold, self.passes, self.path)


_NOTES: ContextVar[set[tuple[type, str]] | None] = ContextVar("notes", default=None)


class Noted:
    """An object whose attributes are noted when they are read, so that what nobody reads can be refused."""

    def __getattribute__(self, name: str) -> Any:
        notes = _NOTES.get()
        # a copy by dataclasses.replace reads every field, and uses none
        if notes is not None and sys._getframe(1).f_globals.get("__name__") != "dataclasses":
            notes.add((type(self), name))
        return super().__getattribute__(name)


@contextmanager
def noting() -> Iterator[set[tuple[type, str]]]:
    """The attributes of `Noted` objects that are read meanwhile, each with the class of its object."""
    notes: set[tuple[type, str]] = set()
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


DECIDED: Mapping[str, Any] = MappingProxyType({"decided": True})
"""Metadata of a field that `Method.decide` fills in, and that no user sets."""


@dataclass(frozen=True)
class Choice:
    """What a user chooses: by ``name``, with defaults, or as an object.

    A frozen dataclass; its fields are its parameters, None = decide for me.
    """

    tag: ClassVar[str]
    name: ClassVar[str]
    parameter: ClassVar[str] = ""
    """That of an estimator which takes it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse a parameter that is another one's in words that say so."""
        for name in kwargs:
            if name not in cls.__dataclass_fields__:
                raise TypeError(cls.lacks(name))
        return super().__new__(cls)

    @classmethod
    def lacks(cls, name: str) -> str:
        """That there is no parameter of that name, whose it is, and what there is."""
        own = list(cls.parameters())
        families = [family for family in _FAMILIES if cls in family.values()]
        known = sorted({k.__name__ for family in families for k in family.values() if name in k.parameters()})
        hint = f"it belongs to {', '.join(known)}." if known else did_you_mean(name, own)
        end = f"; {hint}" if hint else "."
        return f"{cls.__name__} has no parameter {name!r}{end} It has {', '.join(own) or 'none'}"

    @classmethod
    @functools.cache  # every fit asks all classes of a family
    def parameters(cls) -> Mapping[str, dataclasses.Field[Any]]:
        """The fields that a user may set, by name."""
        found = {f.name: f for f in dataclasses.fields(cls) if f.init and not f.metadata.get("decided")}
        return MappingProxyType(found)


_FAMILIES: list[Mapping[str, type[Choice]]] = []


def by_name(*kinds: type[C]) -> Mapping[str, type[C]]:
    """What a parameter may be, by name."""
    family = MappingProxyType({kind.name: kind for kind in kinds})
    _FAMILIES.append(family)
    return family


@dataclass(frozen=True)
class Method(Choice, ABC):
    """A choice that can be fitted.

    Attributes
    ----------
    public : Public
        Once it is decided.
    statement : object
        What the user states about the problem and the data (loss, bounds ...), as its family defines it.
    reason : str
        Why it is this one.
    """

    public: Public = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    statement: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    reason: str = field(default="as asked for", kw_only=True, repr=False, metadata={**DECIDED, "named": False})

    measures: ClassVar[str] = ""
    """What `expected_error` is the error of, and under which assumptions."""
    solves_with: ClassVar[tuple[str, ...]] = ()
    """Fields of the statement that need not be read for the plan: `solve` reads them, or the estimator alone."""

    unsure: ClassVar[str] = ""
    """Why no interval is valid where `solve` says nothing of its error, and what would have one."""

    @property
    def no_intervals(self) -> str:
        """The same, where it depends on what was chosen."""
        return self.unsure or f"no standard errors are known of {self.parameter}={self.name!r}"

    @abstractmethod
    def decide(self, public: Public, statement: Any) -> Method:
        """The method with every None replaced, from public numbers only; refuses what it cannot do."""

    @abstractmethod
    def lines(self) -> Sequence[Line]:
        """What will be released."""

    @abstractmethod
    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        """Fitted attributes (without the underscore at the end), from releases."""

    def one_row_each(self) -> Self:
        """The method as it was decided on: its errors are those of one row of each unit."""
        return replace(self, public=self.public.one_row_each())

    def expected_error(self, plan: Plan) -> float | None:
        """What to expect from public numbers; None where no formula is known."""
        return None

    @property
    def foresees(self) -> bool:
        """Whether `expected` knows a range, before anything is planned."""
        return False

    def expected(self, plan: Plan) -> Expected:
        """A range that does not rest on assumptions about the rows."""
        raise NotImplementedError

    def warnings(self) -> Sequence[str]:
        """What to say before anything is charged."""
        return ()

    @property
    def protects(self) -> Protected:
        """What of a row the guarantee covers."""
        return ALL_DATA

    @property
    def align(self) -> int:
        """Rows that have to be read together."""
        return 1

    @property
    def budget(self) -> Budget:
        """What the lines may cost together."""
        return self.public.budget

    def identity(self) -> Any:
        """What a ``run_id`` stands for: tag and parameters in canonical form, see `dpdist.identity`."""
        return plain(self)

    def _with(self, public: Public, statement: Any, **choices: Any) -> Self:
        """This method for these numbers, with these choices made."""
        return replace(self, public=public, statement=statement, **choices)


class Oracle:
    """Answers with the releases that the lines of a method paid for; keeps the points at which they were asked."""

    def __init__(self, coordinator: Coordinator, plan: Plan, lines: Sequence[Line]) -> None:
        self.plan = plan
        self.history: list[Vector] = []
        self._coordinator = coordinator
        self._lines = {line.name: line for line in lines}
        self._shared: dict[str, Any] = {}

    def ask(self, name: str, state: Any = None, query: Query | None = None) -> Vector:
        """The private value of a line, at public values that its query needs.

        Parameters
        ----------
        name : str
            Of the line.
        state : object
        query : Query, optional
            Where it follows from earlier releases, or is one of several that the line pays for alike.
        """
        item, query = self.plan[name], query or self._lines[name].query
        assert query is not None, f"the line {name!r} has no query of its own"
        return self._coordinator.release(query, item, state, self._fold(item))

    def was_released(self, name: str, query: Query) -> bool:
        """Whether the value that `ask` would give is one that was released before, by this run in an earlier life."""
        return self._coordinator.was_released(query, self.plan[name])

    def visit(self, point: Vector) -> Vector:
        """Keep a point in the history of the fit; returns it."""
        self.history.append(point)
        return point

    def once(self, name: str, find: Callable[[], Any]) -> Any:
        """A value that several parts of a solution share: found by the first of them."""
        if name not in self._shared:
            self._shared[name] = find()
        return self._shared[name]

    def drawn(self, name: str, n: int) -> int:
        """A number from 0 to ``n - 1`` that has nothing to do with the rows, the same for a run that is resumed."""
        return self._coordinator.drawn(name, n)

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that is public."""
        return self._coordinator.n_rows

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in the latest release."""
        return self._coordinator.releases[-1].noise_std

    def size(self, name: str) -> int:
        """Rows that a line reads (public)."""
        fold = self._fold(self.plan[name])
        return self._coordinator.dataset.n_rows if fold is None else fold.n_rows

    def _fold(self, item: Item) -> Fold | None:
        if item.fold is None:
            return None
        split, index = item.fold
        folds = self._coordinator.dataset.split(int(str(split).rpartition("-")[2]), self._coordinator.neighbours)
        return folds[index]
