"""Problems with known answers: what is drawn, the public bounds that are stated, and which rules were chosen on it.

Plain NumPy: the environment that records diffprivlib draws the same rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

HELD_OUT = 20_000
LABEL_BOUND = 4.0
"""Of generated labels for least squares, whose standard deviation is 1 around a mean of 0.5."""

NEWTON, STATISTICS, PURSUIT = "dp-newton", "dp-adassp", "dp-htp"
RULE_OF = {
    "logistic": NEWTON, "squared": STATISTICS, "robust": "robust gradients", "sparse": PURSUIT,
    "sparse classes": PURSUIT, "hinge": "accelerated gradients", "four classes": NEWTON,
}  # fmt: skip
"""What the default of a family rests on."""


@dataclass(frozen=True)
class Split:
    """Rows to fit on and rows to judge by; ``truth`` is the expectation of the latter's labels, where it is known."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class Problem:
    """What is fitted.

    ``bounds`` are the public numbers that a user would state, ``chosen_for`` the methods whose rules were chosen on
    this law or table: for these it is shown and does not count.
    """

    family: str
    law: str
    n_rows: int
    n_features: int
    bounds: Mapping[str, float] = field(compare=False)
    chosen_for: frozenset[str]
    draw: Callable[[int], Split] = field(compare=False)
    separable: bool = False
    real: bool = False

    @property
    def name(self) -> str:
        return f"{self.family} {self.law} {self.n_rows}x{self.n_features}"

    @property
    def counts(self) -> bool:
        """Whether it is part of the gate."""
        return RULE_OF[self.family] not in self.chosen_for


Rows = Callable[[np.random.Generator, int, int], np.ndarray]


@dataclass(frozen=True)
class Law:
    """Rows with mean square length 1, unless said otherwise, and how far they are from the boundary."""

    rows: Rows
    margin: float = 2.0
    """Standard deviation of the log-odds."""
    positives: float | None = None
    """Their share; None for an intercept of 0.5."""
    row_norm: float = 1.0
    chosen_for: frozenset[str] = frozenset()


def _ar(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    return X / d**0.5


def _spectrum(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    variances = 1 / np.arange(1, d + 1)
    return rng.normal(size=(n, d)) * np.sqrt(variances / variances.sum())


def _factors(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    common = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d))
    return (common / 2 + rng.normal(size=(n, d)) / 2) / d**0.5


def _blocks(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    common = np.repeat(rng.normal(size=(n, -(-d // 5))), 5, axis=1)[:, :d]
    return (0.95 * common + 0.3 * rng.normal(size=(n, d))) / d**0.5


def _lengths(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = rng.normal(size=(n, d))
    return X * (rng.random((n, 1)) ** 2 / np.linalg.norm(X, axis=1, keepdims=True))


def _counts(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    rates = np.geomspace(0.05, 3.0, d)
    return np.minimum(rng.poisson(rates, size=(n, d)), 5) / 5 / d**0.5


def _units(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) * np.geomspace(1 / 3, 3.0, d)[rng.permutation(d)] / d**0.5


def _peaked(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.laplace(size=(n, d)) / (2 * d) ** 0.5


def _heavy(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_t(4, size=(n, d)) / (2 * d) ** 0.5


CHOSEN = frozenset({NEWTON, STATISTICS})
LAWS: dict[str, Law] = {
    # the laws that the constants of Newton steps and of sufficient statistics were chosen on
    "isotropic": Law(lambda rng, n, d: rng.normal(size=(n, d)) / d**0.5, chosen_for=CHOSEN),
    "spectrum 1/j": Law(_spectrum, chosen_for=CHOSEN),
    "AR(.8)": Law(_ar, chosen_for=CHOSEN),
    "8 % positives": Law(_ar, positives=0.08, chosen_for=CHOSEN),
    "0/1 columns": Law(lambda rng, n, d: (rng.random((n, d)) < 0.3) / d**0.5, chosen_for=CHOSEN),
    "scaled by 3": Law(lambda rng, n, d: 3 * rng.normal(size=(n, d)) / d**0.5, chosen_for=CHOSEN),
    # laws that no rule was chosen on
    "three factors": Law(_factors, margin=2.5),
    "blocks of five": Law(_blocks, margin=1.5),
    "uneven lengths": Law(_lengths, margin=2.0),
    "3 % positives": Law(_peaked, margin=1.5, positives=0.03),
    "counts": Law(_counts, margin=1.0),
    "mixed units": Law(_units, margin=3.0),
    "steep margins": Law(_heavy, margin=8.0),
}
"""By name; each is drawn for a loss, so that one law is up to two problems."""
GUESSES = (0.1, 1.0, 10.0)
"""Of the second moment of robust features, which is 1 at most; what wrong ones cost is measured on one law."""
ROBUST_LAWS = ("AR(.8)", "0/1 columns", "three factors", "blocks of five", "counts", "mixed units")
CHOSEN_ROBUST = ("AR(.8)", "0/1 columns")


def _texts(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """About six words in a text, some of them in most texts, none as long as 1."""
    return (rng.random((n, d)) < np.minimum(0.5, 2.5 / np.arange(2, d + 2))) * rng.uniform(0.1, 1.0, size=(n, d))


def _levels(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Factors of five levels each, of which one is there: five columns that add up to 1."""
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05]).cumsum()
    level = np.searchsorted(shares, rng.random((n, -(-d // 5))))
    return np.eye(5)[np.minimum(level, 4)].reshape(n, -1)[:, :d]


def _moving(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    noise = rng.normal(size=(n, d + 3))
    return (noise[:, 3:] + noise[:, 2:-1] + noise[:, 1:-2] + noise[:, :-3]) / 2


SPARSE_LAWS: dict[str, tuple[Rows, float, bool]] = {
    "AR(.8)": (lambda rng, n, d: _ar(rng, n, d) * d**0.5, 3.0, True),
    "0/1 columns": (lambda rng, n, d: (rng.random((n, d)) < 0.3) * 1.0, 1.0, True),
    "counts": (lambda rng, n, d: _counts(rng, n, d) * d**0.5, 1.0, True),
    "texts": (_texts, 1.0, False),
    "levels": (_levels, 1.0, False),
    "moving averages": (_moving, 3.0, False),
    "peaked": (lambda rng, n, d: _peaked(rng, n, d) * d**0.5, 4.0, False),
}
"""By name: features, a public bound of each, and whether the rules for few coefficients were chosen on such rows."""
N_NONZERO = 8
"""What is stated; five coefficients differ from 0."""
L1_RADIUS, RESIDUAL_BOUND = 20.0, 2.5
MOST_NUMBERS = 5_000_000
"""Rows times columns up to which laws are drawn that some rule was chosen on; the others are drawn at all sizes."""
SIZES = {
    "logistic": [(n, d) for d in (10, 50, 200, 2500) for n in (10_000, 100_000)] + [(1_000_000, 10), (1_000_000, 50)],
    "squared": [(10_000, 10), (10_000, 50), (100_000, 10), (100_000, 50), (100_000, 200)],
    "robust": [(20_000, 10), (100_000, 50)],
    "sparse": [(10_000, 50), (20_000, 300), (100_000, 50)],
    "sparse classes": [(20_000, 50)],
    "hinge": [(10_000, 10), (10_000, 50), (100_000, 10)],
    "four classes": [(10_000, 10), (100_000, 10)],
}


def _generator(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(name.encode()), seed])


def _log_odds(law: Law, rng: np.random.Generator, X: np.ndarray, spread: float) -> np.ndarray:
    """A few large coefficients and many small ones, scaled so that the linear predictor has that deviation."""
    u = X @ rng.laplace(size=X.shape[1])
    return (u - u.mean()) * (spread / u.std())


def _logistic(name: str, law: Law, n: int, d: int, seed: int) -> Split:
    rng = _generator(name, seed)
    X = law.rows(rng, n + HELD_OUT, d)
    u = _log_odds(law, rng, X, law.margin)
    constant = 0.5
    if law.positives is not None:
        wanted = law.positives
        constant = float(brentq(lambda b: expit(u[:20_000] + b).mean() - wanted, -30, 30))
    y = (rng.random(len(X)) < expit(u + constant)).astype(int)
    return Split(X[:n], y[:n], X[n:], y[n:])


def _squared(name: str, law: Law, n: int, d: int, seed: int) -> Split:
    rng = _generator(name, seed)
    X = law.rows(rng, n + HELD_OUT, d)
    y = 0.5 + _log_odds(law, rng, X, 0.8) + 0.6 * rng.normal(size=len(X))
    return Split(X[:n], y[:n], X[n:], y[n:])


def _robust(name: str, law: Law, n: int, d: int, seed: int) -> Split:
    """Coordinates of mean square 1 at most, errors without a variance to speak of, no intercept."""
    rng = _generator(name, seed)
    X = law.rows(rng, n + HELD_OUT, d) * d**0.5
    w = rng.laplace(size=d)
    u = X @ (w / np.sqrt(np.mean((X[:20_000] @ w) ** 2)))
    y = u + rng.standard_t(2.2, size=len(X))
    return Split(X[:n], y[:n], X[n:], y[n:], u[n:])


def _sparse(name: str, n: int, d: int, classes: bool, seed: int) -> Split:
    """Five coefficients of similar size; of real labels the expectation is what is to be found."""
    rng = _generator(name, seed)
    X = SPARSE_LAWS[name][0](rng, n + HELD_OUT, d)
    w = np.zeros(d)
    w[rng.choice(d, 5, replace=False)] = rng.choice([-1.0, 1.0], 5) * rng.uniform(0.7, 1.3, 5)
    u = X @ w
    u = (u - u.mean()) / u.std() + 0.5
    if classes:
        y = (rng.random(len(u)) < expit(2 * u)).astype(int)
        return Split(X[:n], y[:n], X[n:], y[n:])
    y = u + 0.5 * rng.normal(size=len(u))
    return Split(X[:n], y[:n], X[n:], y[n:], u[n:])


def _four(name: str, law: Law, n: int, d: int, seed: int) -> Split:
    """Four classes, of which the largest score with Gumbel noise is the label."""
    rng = _generator(name, seed)
    X = law.rows(rng, n + HELD_OUT, d)
    scores = np.column_stack([_log_odds(law, rng, X, law.margin) for _ in range(4)]) + np.array([0.5, 0, 0, -0.5])
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    return Split(X[:n], y[:n], X[n:], y[n:])


def _others() -> Iterator[Problem]:
    """Few coefficients, support vectors and four classes."""
    for name, (_, bound, chosen) in SPARSE_LAWS.items():
        for family, classes in (("sparse", False), ("sparse classes", True)):
            for n, d in SIZES[family]:

                def few(seed: int, name=name, n=n, d=d, classes=classes) -> Split:
                    return _sparse(name, n, d, classes, seed)

                chosen_for = frozenset({PURSUIT}) if chosen else frozenset()
                yield Problem(family, name, n, d, {"feature_bound": bound}, chosen_for, few)
    for name in ("three factors", "counts", "mixed units"):
        law = LAWS[name]
        for family, drawn in (("hinge", _logistic), ("four classes", _four)):
            for n, d in SIZES[family]:

                def draw(seed: int, name=name, law=law, n=n, d=d, drawn=drawn) -> Split:
                    return drawn(name, law, n, d, seed)

                yield Problem(family, name, n, d, {"row_norm": law.row_norm}, law.chosen_for, draw)


def generated() -> Iterator[Problem]:
    """All of them."""
    for law_name, law in LAWS.items():
        for family, drawn in (("logistic", _logistic), ("squared", _squared)):
            if family == "squared" and (law.positives is not None or law_name == "steep margins"):
                continue  # a property of the classes
            bounds = {"row_norm": law.row_norm} | ({"label_bound": LABEL_BOUND} if family == "squared" else {})
            for n, d in SIZES[family]:
                if law.chosen_for and n * d > MOST_NUMBERS:
                    continue

                def draw(seed: int, drawn=drawn, name=law_name, law=law, n=n, d=d) -> Split:
                    return drawn(name, law, n, d, seed)

                separable = law_name == "steep margins"
                yield Problem(family, law_name, n, d, bounds, law.chosen_for, draw, separable=separable)
    for law_name in ROBUST_LAWS:
        for n, d in SIZES["robust"]:

            def draw(seed: int, name=law_name, n=n, d=d) -> Split:
                return _robust(name, LAWS[name], n, d, seed)

            chosen = frozenset({RULE_OF["robust"]}) if law_name in CHOSEN_ROBUST else frozenset()
            for guess in GUESSES if (law_name, d) == ("three factors", 10) else (1.0,):
                label = law_name if guess == 1 else f"{law_name}, guess {guess:g}"
                yield Problem("robust", label, n, d, {"second_moment": guess}, chosen, draw)
    yield from _others()
