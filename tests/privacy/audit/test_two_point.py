"""The audits find what is broken, do not contradict what is sound, and reproduce known numbers.

Seeds are fixed; where a sound mechanism is audited the bound is exceeded with probability 0.05 per audit over seeds, so
those tests assert the fixed outcome, not luck.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpdist.privacy.audit.sensitivity_fuzz import SensitivityViolation, adversarial_rows, sensitivity_fuzz
from dpdist.privacy.audit.two_point import (
    audit_one_run,
    audit_two_point,
    clopper_pearson,
    event_bound,
    one_run_bound,
    two_point_bound,
)
from dpdist.privacy.budget import Neighbours

SIGMA = 4.2247  # Gaussian noise for (1, 1e-6), sensitivity 1
REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE


def gaussian_scores(seed: int, sigma: float, n: int = 25_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(1, sigma, n), rng.normal(0, sigma, n)


# -- two points ---------------------------------------------------------------------------------------------------


def test_clopper_pearson_inverts_the_binomial_tails() -> None:
    def at_least(k: int, n: int, p: float) -> float:
        return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))

    for k, n in ((1, 10), (7, 10), (10, 10), (30, 100)):
        low, high = clopper_pearson(k, n, 0.01)
        assert at_least(k, n, low) == pytest.approx(0.01)
        if k < n:
            assert 1 - at_least(k + 1, n, high) == pytest.approx(0.01)
    assert clopper_pearson(0, 10, 0.01)[0] == 0 and clopper_pearson(10, 10, 0.01)[1] == 1


def test_the_ceiling_of_a_perfect_attack() -> None:
    for n, ceiling in ((1_000, 5.60), (10_000, 7.90), (100_000, 10.2)):
        assert event_bound(n, 0, n, 1e-6)[0] == pytest.approx(ceiling, abs=0.011)


def test_the_complement_counts_too() -> None:
    # S happens always under D and mostly under D': the information is in the complement, from D' to D.
    direct = math.log(clopper_pearson(1000, 1000, 0.025)[0] / clopper_pearson(600, 1000, 0.025)[1])
    assert event_bound(1000, 600, 1000, 0.0)[0] > direct + 3
    assert event_bound(1000, 600, 1000, 0.5)[0] == 0  # delta covers it
    assert event_bound(500, 500, 1000, 0.0) == (0.0, 0.0)


def test_gaussian_noise_for_epsilon_one() -> None:
    result = two_point_bound(*gaussian_scores(0, SIGMA), delta=1e-6)
    assert result.n_runs == 20_000
    assert 0.16 < result.mu_lower < 1 / SIGMA  # about .20, and never above the truth .2367
    assert 0.2 < result.epsilon_lower < 1


def test_half_the_noise_is_caught_by_the_mu_audit_and_missed_by_epsilon() -> None:
    result = two_point_bound(*gaussian_scores(0, SIGMA / 2), delta=1e-6)
    assert result.mu_lower > 1.4 / SIGMA
    assert result.epsilon_lower < 1  # at one threshold epsilon does not show it: hence the mu audit


def test_bounds_are_wrong_no_more_often_than_stated() -> None:
    # 150 audits at confidence .8: each bound may exceed the truth in 20 % of them. Sixty or more would happen with
    # probability below 1e-7 were it exactly 20 %.
    rng = np.random.default_rng(3)
    wrong = np.zeros(2)
    for _ in range(150):
        shift = rng.laplace(1, 1, 800), rng.laplace(0, 1, 800)
        wrong[0] += two_point_bound(*shift, delta=0.0, confidence=0.8).epsilon_lower > 1
        normal = rng.normal(0.5, 1, 800), rng.normal(0, 1, 800)
        wrong[1] += two_point_bound(*normal, delta=0.0, confidence=0.8).mu_lower > 0.5
    assert wrong.max() < 60


def test_identical_laws_give_nothing_to_the_audit() -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(2, 20_000))
    result = two_point_bound(*scores, delta=0.0)
    assert result.epsilon_lower < 0.1 and result.mu_lower < 0.05


def test_either_dataset_may_score_higher_and_outputs_may_be_discrete() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((2, 20_000)) < np.array([[0.25], [0.75]])  # randomised response with epsilon = ln 3
    for pair in ((a, b), (b, a)):
        assert 0.9 < two_point_bound(*pair, delta=0.0).epsilon_lower < math.log(3)
    nan = np.full(1000, np.nan)
    assert two_point_bound(nan, nan, delta=0.0).epsilon_lower == 0
    assert two_point_bound(nan, a[:1000], delta=0.0).epsilon_lower > 5  # not-a-number gives D away


def test_audit_two_point_projects_and_runs_as_often_as_said() -> None:
    rng = np.random.default_rng(6)
    centre = np.array([[3.0, 0.0], [0.0, 4.0]])  # distance 5, sigma 2.5: mu = 2
    calls = [0, 0]

    def run(which: int) -> np.ndarray:
        calls[which] += 1
        return (which == 0) * centre + rng.normal(0, 2.5, (2, 2))

    result = audit_two_point(lambda: run(0), lambda: run(1), 4000, 1e-6, projection=centre)
    assert calls == [5000, 5000] and result.n_runs == 4000
    assert 1.8 < result.mu_lower < 2
    with pytest.raises(ValueError, match="equally many"):
        two_point_bound(np.zeros(10), np.zeros(9), 0.0)
    with pytest.raises(ValueError, match="too few"):
        two_point_bound(np.zeros(3), np.zeros(3), 0.0)


# -- one run ------------------------------------------------------------------------------------------------------


def test_one_run_numbers() -> None:
    assert one_run_bound(1000, 1000, 1000, 0.0) == pytest.approx(5.81, abs=0.005)
    assert one_run_bound(600, 1000, 1000, 0.0) == pytest.approx(0.297, abs=0.0005)
    assert one_run_bound(500, 1000, 1000, 0.0) == 0
    assert one_run_bound(0, 0, 1000, 0.0) == 0
    assert one_run_bound(600, 1000, 1000, 1e-5) < one_run_bound(600, 1000, 1000, 0.0)
    with pytest.raises(ValueError, match="correct <= guesses"):
        one_run_bound(11, 10, 1000, 0.0)


def test_one_run_p_value_matches_the_definition() -> None:
    r, v, m, delta = 12, 11, 40, 1e-4
    bound = one_run_bound(v, r, m, delta)

    def pmf(k: int) -> float:
        q = 1 / (1 + math.exp(-bound))
        return math.comb(r, k) * q**k * (1 - q) ** (r - k)

    beta = sum(pmf(k) for k in range(v, r + 1))
    alpha = max(sum(pmf(v - j) for j in range(1, i + 1)) / i for i in range(1, v + 1))
    assert beta + 2 * m * delta * alpha == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(("sigma", "low", "truth"), [(0.5, 2.2, 10.0), (1.0, 0.8, 4.38), (2.0, 0.0, 1.99)])
def test_one_run_on_gaussian_canaries(sigma: float, low: float, truth: float) -> None:
    rng = np.random.default_rng(7)
    included = rng.random(1000) < 0.5
    scores = included + rng.normal(0, sigma, 1000)
    assert low <= audit_one_run(scores, included, (50, 100, 200, 400), 1e-5).epsilon_lower < truth


def test_one_run_catches_an_output_without_noise() -> None:
    included = np.random.default_rng(8).random(1000) < 0.5
    assert audit_one_run(included.astype(float), included, 800, 1e-5).epsilon_lower > 4
    assert audit_one_run(np.random.default_rng(9).normal(size=1000), included, 800, 1e-5).epsilon_lower < 0.5
    with pytest.raises(ValueError, match="one coin per canary"):
        audit_one_run(np.zeros(3), np.zeros(4, bool), 2, 0.0)


# -- sensitivity --------------------------------------------------------------------------------------------------

GRID = 2.0**-20
BOUNDS = {ADD: 2**20, REPLACE: 2**21}  # contributions of l2 norm at most 1


def clipped(row: np.ndarray) -> np.ndarray:
    """A correct contribution: sanitised, clipped to norm 1 without overflow, truncated toward zero."""
    row = row.astype(np.float64)
    if not np.isfinite(row).all():
        return np.zeros(row.size, dtype=np.int64)
    top = np.abs(row).max()
    if not top:
        return np.zeros(row.size, dtype=np.int64)
    direction = row / top / np.linalg.norm(row / top)
    with np.errstate(over="ignore"):
        length = min(top * np.linalg.norm(row / top), 1 - 1e-12)
    return np.trunc(direction * length / GRID).astype(np.int64)


def rows(dtype: type = np.float64) -> list:
    return list(adversarial_rows(4, dtype, np.random.default_rng(10)))


def fuzz(contribution, pool: list | None = None, bounds: dict = BOUNDS, norm=2) -> dict:  # type: ignore[no-untyped-def]
    def query_sum(some_rows: list) -> np.ndarray:
        return np.sum([contribution(row) for row in some_rows], axis=0)

    return sensitivity_fuzz(query_sum, pool or rows(), bounds, norm, np.random.default_rng(11))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_correct_query_passes_and_its_bound_is_attained(dtype: type) -> None:
    worst = fuzz(clipped, rows(dtype))
    assert all(0.99999 < ratio <= 1 for ratio in worst.values())


def kinds_of(error: pytest.ExceptionInfo[SensitivityViolation]) -> str:
    return " ".join(kind for violation in error.value.violations for kind in violation.kinds)


def test_the_catalogue_is_complete() -> None:
    pool = rows()
    values = np.array([row for _, row in pool])
    assert np.isnan(values).any() and np.isposinf(values).any() and np.isneginf(values).any()
    for value in (1e308, -1e308, 5e-324, -5e-324, 0.0, 1e39, np.finfo(np.float64).max):
        assert (values == value).any()
    assert np.signbit(values[values == 0]).any()
    assert len({kind for kind, _ in pool}) == len(pool)
    assert all(row.dtype == np.float32 for _, row in rows(np.float32))


def test_broken_queries_are_caught() -> None:
    def unsanitised(row: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            norm = np.linalg.norm(row)
            return np.trunc(row * min(1.0, 1 / norm if norm else 1.0) / GRID).astype(object)

    def rounded_away(row: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.sign(clipped(row)) + clipped(row)

    def in_float32(row: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            row = np.nan_to_num(row.astype(np.float32))
            norm = float(np.linalg.norm(row))  # overflows for finite rows
            return np.trunc(row.astype(np.float64) * (1 / norm if 1 < norm < math.inf else 1.0) / GRID)

    def raises(row: np.ndarray) -> np.ndarray:
        if np.isnan(row).any():
            raise ValueError("bad row")
        return clipped(row)

    def off_grid(row: np.ndarray) -> np.ndarray:
        return clipped(row) * 0.5

    def drops(row: np.ndarray) -> np.ndarray:
        return clipped(row) if np.isfinite(row).all() else np.zeros(5)

    for broken, culprit in (
        (unsanitised, "nan"),
        (rounded_away, "huge and tiny"),
        (in_float32, "1e+39"),
        (raises, "nan"),
        (off_grid, ""),
        (drops, "inf"),
    ):
        with pytest.raises(SensitivityViolation) as error:
            fuzz(broken)
        assert culprit in kinds_of(error), broken.__name__
        ratios = [violation.ratio for violation in error.value.violations]
        assert ratios == sorted(ratios, reverse=True) and ratios[0] > 1


def test_a_sum_that_is_not_exact_is_caught() -> None:
    # One unit lost by rounding in float32 accumulation: the distance exceeds the bound by it.
    def query_sum(some_rows: list[int]) -> list[int]:
        total = np.float32(0)
        for row in some_rows:
            total += np.float32(row)
        return [int(total)]

    pool = [("big", 2**24), ("one", 1), ("minus one", -1), ("two", 2)]
    with pytest.raises(SensitivityViolation):
        sensitivity_fuzz(
            query_sum,
            pool[1:] + pool[:1] * 3,
            {ADD: 2**24, REPLACE: 2**24 + 1},
            1,
            np.random.default_rng(0),
            n_bases=10,
        )


def test_the_comparison_is_exact() -> None:
    pool = [("zero", 0), ("unit", 2**60 + 1)]
    one = sensitivity_fuzz(lambda some: [sum(some)], pool, {ADD: 2**60 + 1}, 2, np.random.default_rng(0))
    assert one == {ADD: 1.0}
    with pytest.raises(SensitivityViolation) as error:  # less than one ulp of float64 over the bound
        sensitivity_fuzz(lambda some: [sum(some)], pool, {ADD: 2**60}, 2, np.random.default_rng(0))
    assert {violation.kinds[1] for violation in error.value.violations} == {"unit"}
    third = {ADD: Fraction(2**60 + 1) - Fraction(1, 3)}
    with pytest.raises(SensitivityViolation):
        sensitivity_fuzz(lambda some: [sum(some)], pool, third, "inf", np.random.default_rng(0))


def test_norms_and_relations() -> None:
    pool = [("right", np.array([1, 0])), ("up", np.array([0, 1])), ("left", np.array([-1, 0]))]
    rng = np.random.default_rng

    def total(some: list) -> np.ndarray:
        return np.sum(some, axis=0)

    for norm, replace_bound in ((1, 2), (2, 2), ("inf", 2)):
        assert sensitivity_fuzz(total, pool, {ADD: 1, REPLACE: replace_bound}, norm, rng(1)) == {ADD: 1, REPLACE: 1}
    quarter = pool[:2]  # right against up: l1 distance 2, l2 distance sqrt 2, linf distance 1
    assert sensitivity_fuzz(total, quarter, {REPLACE: 1}, "inf", rng(1)) == {REPLACE: 1}
    with pytest.raises(SensitivityViolation):
        sensitivity_fuzz(total, quarter, {REPLACE: Fraction(14142, 10000)}, 2, rng(1))
    worst = sensitivity_fuzz(total, quarter, {REPLACE: Fraction(14143, 10000)}, 2, rng(1))
    assert worst[REPLACE] == pytest.approx(1, abs=1e-4)
