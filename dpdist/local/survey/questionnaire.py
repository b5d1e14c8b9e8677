"""What is published to the users: the question, and the law of the answers, as a file that devices and server share.

The description names classes and their parameters, nothing else. Only classes of the table `PARTS` are ever made from
it, so that a file from elsewhere cannot run code, and whatever is unknown is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError, DpdistError, did_you_mean
from dpdist.identity import coerced, parameters, stored_name
from dpdist.local.survey.protocol import LocalProtocol

FORMAT = "dpdist-survey/1"

_MODULES = {
    "dpdist.kernels.latent": ("MissingCells", "MixedLines", "TwoComponents"),
    "dpdist.local.survey.protocol": ("LocalProtocol",),
    "dpdist.local.crowd.answer_protocol": ("AnswerProtocol",),
    "dpdist.local.randomisers.answer_responses": ("BitResponses", "SymbolResponses"),
    "dpdist.local.statistics.task_answers": ("AnswerSigns", "TaskAnswers"),
    "dpdist.local.statistics.categories": ("Category", "Labelled"),
    "dpdist.local.statistics.bit_sets": ("Conjunctions", "Parities"),
    "dpdist.local.statistics.bounded_values": ("Ball", "Box", "Truncated", "TruncatedVector"),
    "dpdist.local.statistics.cosines": ("Cosines",),
    "dpdist.local.statistics.latent_gradients": ("BallGradients", "BoxGradients", "TruncatedGradients"),
    "dpdist.local.statistics.loss_cells": ("LossCells",),
    "dpdist.local.surfaces.surface_losses": ("AbsoluteLoss", "LogisticSurface", "QuantileLoss", "WelschLocation"),
    "dpdist.local.statistics.feature_maps": ("Fourier", "Mapped", "Projection"),
    "dpdist.local.linear.glm_copies": ("Copies", "CopiesProtocol", "LabelledCopies"),
    "dpdist.local.randomisers.coordinates": ("SampleCoordinates",),
    "dpdist.local.randomisers.products": ("LaplaceProducts",),
    "dpdist.local.randomisers.frequency": ("KRR", "OUE", "SUE", "UE"),
    "dpdist.local.randomisers.hadamard": ("Hadamard",),
    "dpdist.local.randomisers.public_strings": ("RandomCoding", "TransformedBit"),
    "dpdist.local.randomisers.hashing": ("OLH",),
    "dpdist.local.linear.glm_direction": ("Whitened",),
    "dpdist.local.linear.glm_public": ("Standardised",),
    "dpdist.local.mean.small_l1_norm": ("Projected",),
    "dpdist.local.linear.label_private": ("Label", "LabelReports"),
    "dpdist.local.statistics.labelled": ("LabelledMoments", "LabelledRow", "RowAndLabel"),
    "dpdist.local.survey.levels": ("Leveled", "Levels"),
    "dpdist.local.linear.links": ("Identity", "Wave"),
    "dpdist.local.linear.noisy_moments": ("GaussianMeanAndMoments", "GaussianMoments"),
    "dpdist.local.statistics.prefixes": ("CandidateProtocol", "Prefix"),
    "dpdist.local.statistics.residuals": ("BallResiduals", "BoxResiduals", "Selected"),
    "dpdist.local.randomisers.scalars": (
        "GaussianScalar",
        "Hybrid",
        "LaplaceBox",
        "LaplaceScalar",
        "OneBit",
        "Piecewise",
    ),
    "dpdist.local.statistics.second_moments": ("JointStatistics", "Products"),
    "dpdist.local.randomisers.subset_selection": ("SubsetSelection",),
    "dpdist.local.randomisers.vectors": ("GaussianVector", "Hemisphere", "PrivUnit", "PrivUnitG"),
}
PARTS = MappingProxyType({name: module for module, names in _MODULES.items() for name in names})
"""The module of every protocol, statistic and randomiser that a description can name."""

_LARGEST = 2**31
"""Of a size: more categories or coordinates than that are a slip."""
_WIDEST = 2**24
"""Of a record, which a device holds in memory: more numbers, or answers, than that are a slip."""
_DEEPEST = 50
"""Of parts within parts: no question has ten."""


@dataclass(frozen=True)
class Survey:
    """A question as it is published.

    Parameters
    ----------
    protocol : LocalProtocol
    round : int
        Number of the round, for questions that are asked again of other users; reports of other rounds are refused.
    labels : sequence of str
        Public names of the categories, in order; or of the two classes that the ``y`` of a record can be.
    state : nested sequences of float, optional
        Public values that the question depends on (the current parameter).

    Examples
    --------
    >>> from dpdist.local.statistics.categories import Category
    >>> from dpdist.local.randomisers.frequency import KRR
    >>> survey = Survey(LocalProtocol(Category(3), KRR(3, epsilon=1.0)), labels=("no", "yes", "do not know"))
    >>> Survey.from_json(survey.to_json()) == survey
    True
    >>> survey.fingerprint[:16]
    'c1748a07bc532e30'
    """

    protocol: LocalProtocol
    round: int = 0
    labels: tuple[str, ...] = ()
    state: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.protocol, LocalProtocol):
            raise DataError(
                f"a survey asks by a LocalProtocol, such as Histogram(...).protocol(n_users, 1), got "
                f"{self.protocol!r:.60}; Survey.read(path) opens a file that dpdist question wrote"
            )
        if isinstance(self.labels, str):
            raise DataError(f"labels must be a list of texts such as ['no', 'yes'], got {self.labels!r}")
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "state", None if self.state is None else _numbers(self.state))
        size, domain = self.protocol.statistic.size, self.protocol.statistic.domain
        if self.width is not None and self.width > _WIDEST:
            raise DataError(f"a record has at most 2**24 numbers or answers, and the question asks for {self.width}")
        if not (type(self.round) is int and 0 <= self.round < 2**32):
            raise DataError(f"round must be an integer in [0, 2**32), got {self.round!r}")
        if not all(isinstance(label, str) and label for label in self.labels):
            raise DataError("labels must be texts that are not empty")
        if self.labels and domain != "category":
            if "y" not in self.protocol.arrays:
                raise DataError("labels name the categories of a question, and this one has none")
            size = 2
        if twice := [label for i, label in enumerate(self.labels) if label in self.labels[:i]]:
            raise DataError(f"labels must be different names, and {twice[0]!r} is there twice")
        if self.labels and len(self.labels) != size:
            raise DataError(f"labels must be {size} different names, got {len(self.labels)}")

    @property
    def width(self) -> int | None:
        """How many numbers, or answers, the ``X`` of a record has; None for a category."""
        statistic = self.protocol.statistic
        return None if statistic.domain == "category" else int(getattr(statistic, "n_features", statistic.size))

    @property
    def public(self) -> NDArray[np.float64] | None:
        """The state as an array."""
        return None if self.state is None else np.array(self.state, dtype=np.float64)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what a report means, but for the number of the round; 64 hex digits."""
        described = self._described()
        del described["round"]
        text = json.dumps(described, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def to_json(self) -> str:
        """The description, as indented JSON."""
        return json.dumps(self._described(), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Survey:
        """The survey of a description.

        Raises
        ------
        DataError
            Names what is unknown, missing or out of range.
        """
        try:
            described = json.loads(text, object_pairs_hook=_once)
        except DataError:
            raise
        except (ValueError, RecursionError):
            raise DataError(
                "this is no description of a survey: expected the JSON that dpdist question writes"
            ) from None
        if not isinstance(described, dict) or described.get("format") != FORMAT:
            found = described.get("format") if isinstance(described, dict) else None
            raise DataError(
                f"this is no description of a survey that this version of dpdist reads: expected the format "
                f"{FORMAT!r}, got {str(found)[:40]!r}. Use the version that wrote it, or write it again"
            )
        _same_keys("the survey", described, {"format", "protocol", "round", "labels", "state"})
        _check_depth(described)
        protocol = _made(described["protocol"], "protocol")
        if not isinstance(protocol, LocalProtocol):
            raise DataError(f"protocol must be a LocalProtocol, got a {type(protocol).__name__}")
        labels = described["labels"]
        if not isinstance(labels, list):
            raise DataError("labels must be a list of names (empty, if the categories have none)")
        return cls(_checked(protocol), described["round"], tuple(labels), described["state"])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Survey:
        """`from_json` of a file."""
        try:
            return cls.from_json(Path(path).read_bytes())
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    def _described(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "protocol": _plain(self.protocol),
            "round": self.round,
            "labels": list(self.labels),
            "state": self.state,
        }


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are different: of two epsilons a reader may see one, and a device answer by the other.

    >>> _once([("epsilon", 1.0), ("epsilon", 50.0)])
    Traceback (most recent call last):
    dpdist.errors.DataError: the description has 'epsilon' twice in one place: expected what dpdist question writes
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise DataError(f"the description has {twice[:40]!r} twice in one place: expected what dpdist question writes")
    return found


def _check_depth(described: Any) -> None:
    """Refuse parts within parts without end, before anything follows them."""
    level = [described]
    for _ in range(_DEEPEST):
        inner = (value.values() if isinstance(value, dict) else value for value in level)
        level = [below for values in inner for below in values if isinstance(below, dict | list)]
        if not level:
            return
    raise DataError(f"the description has lists or parts within each other {_DEEPEST} times: no question has")


def _numbers(state: Any) -> Any:
    """Nested tuples of finite numbers."""
    try:
        array = np.array(state, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError("state must be an array of numbers") from None
    if not np.isfinite(array).all():
        raise DataError("state must be an array of finite numbers")

    def tuples(values: Any) -> Any:
        return tuple(map(tuples, values)) if isinstance(values, list) else values

    return tuples(array.tolist())


def _plain(value: Any) -> Any:
    """A part, or a parameter of one, as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = str(vars(type(value)).get("tag", type(value).__name__))
        if PARTS.get(name) != type(value).__module__:
            raise DataError(f"{name} is none of the classes that a survey can name: {', '.join(sorted(PARTS))}")
        return {"type": name, **{key: _plain(below) for key, below in parameters(value)}}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise DataError(f"a {type(value).__name__} cannot be a parameter of a survey: expected finite numbers and texts")


def _made(described: Any, where: str) -> Any:
    """A parameter, with the parts in it made of their descriptions."""
    if isinstance(described, list):
        return tuple(_made(below, where) for below in described)
    if not isinstance(described, dict):
        return described
    name = described.get("type")
    if not isinstance(name, str) or name not in PARTS:
        hint = did_you_mean(str(name), PARTS) or f"there are: {', '.join(sorted(PARTS))}"
        raise DataError(f"{where}: unknown type {str(name)[:40]!r}; {hint}")
    cls = _class_of(name)
    fields = {stored_name(f): f for f in dataclasses.fields(cls) if f.init}
    _same_keys(f"{where} ({name})", described, {"type", *fields})
    try:
        values = {key: coerced(_made(described[key], f"{where}.{key}"), str(f.type)) for key, f in fields.items()}
    except OverflowError:
        raise DataError(f"{where}: a parameter of {name} is no number that fits") from None
    for key, field in fields.items():
        _check(f"{where}.{key}", values[key], str(field.type))
    try:
        return cls(**{field.name: values[key] for key, field in fields.items()})
    except DpdistError as error:
        raise DataError(f"{where}: {error}") from None
    except Exception as error:
        raise DataError(f"{where}: these cannot be parameters of {name} ({type(error).__name__})") from None


def _class_of(tag: str) -> Any:
    """The class with that tag, in the module that the table names."""
    module = vars(importlib.import_module(PARTS[tag]))
    return next(c for c in module.values() if isinstance(c, type) and vars(c).get("tag") == tag)


def _same_keys(where: str, described: Mapping[str, Any], expected: Iterable[str]) -> None:
    unknown, missing = sorted(set(described) - set(expected)), sorted(set(expected) - set(described))
    if unknown:
        raise DataError(f"{where} has no parameter {unknown[0][:40]!r}; expected {', '.join(sorted(expected))}")
    if missing:
        raise DataError(f"{where} lacks {missing[0]!r}; expected {', '.join(sorted(expected))}")


def _check(where: str, value: Any, annotation: str) -> None:
    kinds = {"int": int, "float": float, "str": str, "bool": bool}
    if annotation in kinds and type(value) is not kinds[annotation]:
        raise DataError(f"{where} must be of type {annotation}, got {str(value)[:40]!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where} must be a finite number")
    if where.endswith(".epsilon") and not value > 0:
        raise DataError(f"{where} must be positive, got {value!r}")
    if where.endswith((".size", ".n_categories", ".n_features", ".n_tasks")) and not 1 <= value < _LARGEST:
        raise DataError(f"{where} must be an integer in [1, 2**31), got {value!r}")


def _checked(protocol: LocalProtocol) -> LocalProtocol:
    """The protocol, if its reports can be told from its parameters."""
    randomiser = protocol.randomiser
    try:
        sound = randomiser.report.itemsize > 0 and randomiser.units > 0 and math.isfinite(randomiser.influence)
    except Exception:
        sound = False
    if not sound:
        raise DataError(f"protocol: {randomiser.name!r} cannot work with these parameters: {randomiser!r}")
    return protocol
