"""Generated problems for the local model: what they are called, which keys they have, how a model is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dpdist.errors import DataError
from dpdist.local.linear.links import LINKS
from dpdist.problems import frequency_problems, mean_problems, smooth_problems
from dpdist.problems.metrics import Array, Excess, MeanDistance, Yardstick
from dpdist.problems.metrics_local import Frequencies, Function, LinkedDistance, Missed
from dpdist.problems.sparse_problems import hard_instance, sparse_design, sphere_l1

Keys = Mapping[str, Any]

ASKED_FOR: Mapping[str, str] = MappingProxyType({"categories": "n_categories", "codes": "n_bits", "columns": ""})
"""What problems without labels tell, and the parameter that an estimator of it has in common with the problem."""
_WANTED = {"categories": "frequencies of categories", "codes": "frequent codes", "columns": "means of columns"}


def check_unlabelled(problem: str, task: str, values: Keys, estimator: Any) -> None:
    """Refuse an estimator of something else than what a problem without labels tells."""
    parameters, name = estimator.get_params(), type(estimator).__name__
    wanted = next((wanted for wanted, parameter in ASKED_FOR.items() if parameter in parameters), "columns")
    if wanted != task:
        raise DataError(f"{name} estimates {_WANTED[wanted]}, and the problem {problem!r} tells {_WANTED[task]}")
    key = ASKED_FOR[task]
    if parameters.get(key) != values.get(key):
        raise DataError(f"params.{key} is {parameters[key]}, but the problem {problem!r} has {values[key]}")


class Entry(NamedTuple):
    """The arguments of a `dpdist.problems.generated.Problem`."""

    name: str
    title: str
    keys: Keys
    task: str
    sample: Callable[..., Any]
    judge: Callable[[Array, Array, Keys], Callable[[Any], Yardstick]]


def _keys(**keys: Any) -> Keys:
    return MappingProxyType({"n": 100_000, "d": 1, "random_state": 0, **keys, "dtype": "float64", "store": None})


def _frequencies(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: Frequencies(truth)


def _missed(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: Missed(truth)


def _mean(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: MeanDistance(truth)


def _coefficients(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: LinkedDistance(truth, LINKS[values.get("link", "identity")].inverse)


def _excess(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: Excess(X, truth)


def _wave(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: Function(X, smooth_problems.wave(X))


LOCAL_PROBLEMS: tuple[Entry, ...] = (
    Entry(
        "categories",
        "frequencies: one category per row, Zipf frequencies",
        _keys(n_categories=100, exponent=1.0),
        "categories",
        frequency_problems.categories,
        _frequencies,
    ),
    Entry(
        "codes",
        "frequent values: one code per row, below 2**n_bits, of which few are frequent",
        _keys(n_bits=32, n_codes=1000, exponent=1.5),
        "codes",
        frequency_problems.codes,
        _missed,
    ),
    Entry("box", "means: columns of numbers in [-1, 1]", _keys(), "columns", mean_problems.box, _mean),
    Entry(
        "ball",
        "means: vectors of norm 1 at most, with a dense or a sparse mean",
        _keys(d=20, signal=0.5, n_nonzero=0),
        "columns",
        mean_problems.ball,
        _mean,
    ),
    Entry(
        "sphere-l1",
        "regression: x uniform on the unit sphere, y = <x, truth> + noise, few coefficients",
        _keys(d=50, signal=4.0, n_nonzero=4, noise_std=0.1, public_rows=0),
        "numbers",
        sphere_l1,
        _excess,
    ),
    Entry(
        "waves",
        "regression: x uniform on a cube, y a smooth function of x + noise",
        _keys(noise_std=0.1, public_rows=0),
        "numbers",
        smooth_problems.waves,
        _wave,
    ),
    Entry(
        "sparse-design",
        "sparse regression: features that are signs or (correlated) normal, bounded or heavy-tailed noise",
        _keys(
            d=32,
            n_nonzero=2,
            design="sign",
            correlation=0.0,
            noise="uniform",
            noise_std=0.05,
            norm="l2",
            signal=1.0,
            link="identity",
            public_rows=0,
        ),
        "numbers",
        sparse_design,
        _coefficients,
    ),
    Entry(
        "hard-instance",
        "sparse regression of the lower bounds: features are signs, and labels are 1 or -1",
        _keys(d=64, n_nonzero=4, signal=1.0),
        "numbers",
        hard_instance,
        _coefficients,
    ),
)
"""Entries of `dpdist.problems.catalog.PROBLEMS`."""
