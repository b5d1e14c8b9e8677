"""Names of releases, plans and streams: the tags that stored runs know never change, and equal numbers are one."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import dpdist
from dpdist.constraints import ElasticNet, L1Ball, L2Ball
from dpdist.identity import ADDED, NotNamed, coerced, plain, stored_name, tagged, text
from dpdist.losses import Huber
from dpdist.privacy.budget import Neighbours

TABLE = Path(__file__).parent / "tags.json"
"""What stored runs, surveys and seeds know: a line may be added; one that is there stays."""


def named_classes():
    """Every class of the library with a tag of its own."""
    found = set()
    for module in pkgutil.walk_packages(dpdist.__path__, "dpdist."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value.__module__.startswith("dpdist.") and "tag" in vars(value):
                found.add(value)
    return found


def table():
    """Class by class: its tag, and the names of its parameters; those that count only where they are set, apart."""
    rows = {}
    for kind in named_classes():
        if hasattr(kind, "named_by"):
            names = ["named_by"]
        else:
            fields = [f for f in dataclasses.fields(kind) if f.init and f.metadata.get("named", True)]
            names = [stored_name(f) for f in fields if not f.metadata.get("added")]
            if added := [stored_name(f) for f in fields if f.metadata.get("added")]:
                rows.setdefault(f"{kind.tag}, if set", []).append(added)
        rows.setdefault(kind.tag, []).append(names)
    return {tag: sorted(names) for tag, names in sorted(rows.items())}


def test_tags_and_stored_names_are_what_they_were():
    there, here = json.loads(TABLE.read_text()), table()
    changed = {tag: names for tag, names in there.items() if here.get(tag) != names}
    assert not changed, (
        "stored runs know these tags and parameters: keep the tag of a class that is renamed, and the name of a field "
        f'with field(metadata={{"stored": "old name"}}): {changed}'
    )
    assert not set(here) - set(there), f"new tags: add them to {TABLE.name} with `python -m tests.test_identity`"


def test_two_classes_of_one_kind_never_share_a_tag():
    for kind in named_classes():
        parents = {parent for parent in kind.__mro__[1:] if parent.__module__.startswith("dpdist.")}
        alike = [
            other
            for other in named_classes()
            if other is not kind and other.tag == kind.tag and parents & set(other.__mro__)
        ]
        assert not alike, (kind, alike)


def test_everything_that_names_a_release_has_a_tag_of_its_own():
    from dpdist.engine.query import Query
    from dpdist.local.survey.protocol import LocalProtocol, Randomiser, Statistic
    from dpdist.losses import Loss

    def below(kind):
        return {kind} | {leaf for child in kind.__subclasses__() for leaf in below(child)}

    named = named_classes()
    for root in (Query, LocalProtocol, Statistic, Randomiser, Loss):
        ours = {kind for kind in below(root) if kind.__module__.startswith("dpdist.") and kind.__name__[0] != "_"}
        leaves = {kind for kind in ours if not kind.__subclasses__()}
        assert leaves <= named, leaves - named


@pytest.mark.parametrize("write", [text, lambda value: json.dumps(plain(value))])
@pytest.mark.parametrize("one", [1, 1.0, np.float64(1), np.int64(1), np.float32(1)])
def test_equal_numbers_have_one_name(write, one):
    assert write(L2Ball(one)) == write(L2Ball(1.0))
    assert write((L1Ball(one), ElasticNet(one))) == write((L1Ball(1.0), ElasticNet(1.0)))


def test_names_do_not_look_at_classes_or_reprs():
    @dataclass(frozen=True)
    class Renamed:
        tag: ClassVar[str] = "Original"

        longer: float = field(metadata={"stored": "length"})
        seen: float = field(default=0.0, metadata={"named": False})

        def __repr__(self):
            raise AssertionError("nobody asks")

    assert text(Renamed(2)) == "Original(length=2.0)"
    assert plain(Renamed(2)) == {"type": "Original", "length": (2.0).hex()}
    assert text(Renamed(2, seen=1.0)) == text(Renamed(2))


def test_a_field_that_was_added_is_named_where_it_is_set():
    @dataclass(frozen=True)
    class Older:
        tag: ClassVar[str] = "Grown"

        length: float

    @dataclass(frozen=True)
    class Newer(Older):
        tag: ClassVar[str] = "Grown"

        start: tuple[float, ...] | None = field(default=None, metadata=ADDED)

    assert text(Newer(1)) == text(Older(1)) and plain(Newer(1)) == plain(Older(1))
    assert text(Newer(1, (0, 2))) == "Grown(length=1.0, start=(0.0, 2.0))"
    assert plain(Newer(1, (0,))) != plain(Newer(1, (0, 0))) != plain(Newer(1))


def test_a_tag_is_not_inherited():
    @dataclass(frozen=True)
    class Child(Huber):
        pass

    with pytest.raises(NotNamed, match="Child has no tag of its own"):
        text(Child(1.0))


def test_arrays_count_by_type_shape_and_bytes():
    row = np.arange(3.0)
    assert plain(row) == plain(row.copy()) != plain(row[:, None])
    assert plain(row) != plain(row.astype(np.float32)) != plain(row + 1)
    assert text(row.reshape(3, 1)) != text(row)
    with pytest.raises(NotNamed, match="Python objects"):
        plain(np.array([object()]))


def test_functions_need_a_tag():
    def first(model):
        return model.coef_[:1]

    with pytest.raises(NotNamed, match="first has no tag"):
        text(first)
    assert text(tagged("first")(first)) == "tagged('first')"
    assert plain(first) == {"type": "tagged", "tag": "first"}


@pytest.mark.parametrize("value", [object(), Fraction(1, 3), {"a": 1}, 1j, b"bytes"])
def test_what_has_no_lasting_name_is_refused(value):
    for write in (text, plain):
        with pytest.raises(NotNamed):
            write(value)


def test_names_of_plain_values():
    values = (None, True, "it's", 3, 2.5, ("a",), [1, 2.0], Neighbours.REPLACE_ONE)
    assert text(values) == repr(values)
    assert text((np.str_("a"), np.bool_(True))) == "('a', True)"
    assert coerced((1, 2), "tuple[float, ...]") == (1.0, 2.0)


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), indent=1) + "\n")
