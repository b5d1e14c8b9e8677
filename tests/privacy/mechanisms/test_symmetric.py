"""Symmetric Gaussian noise: its law, what it costs, and that it is asked only where the Frobenius norm is bounded."""

from __future__ import annotations

import gc
import math
import time
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dpdist.data import Units
from dpdist.engine.checks import sensitivity_of
from dpdist.errors import BudgetError
from dpdist.kernels.moments import second_moment, unpack_symmetric
from dpdist.kernels.packed import packed_size
from dpdist.losses import Biweight, Logistic, Loss, Sigmoid
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import gdp_epsilon
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.audit.sequential import SequentialAudit
from dpdist.privacy.audit.worst_neighbours import orthogonal_rows
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian, Laplace, SymmetricGaussian
from dpdist.privacy.mechanisms.norms import FROBENIUS, NUCLEAR
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed
from dpdist.queries.gradient_sums import GradientSum, LargestEigenvalue
from dpdist.queries.moment_sums import HessianSum, SecondMomentSum

ALPHA = 1e-7
"""The chance of each statistical test to fail by accident; seeds fix it."""
REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE


def bits(name: str) -> StreamBits:
    return StreamBits(Stream(run_key_from_seed(31), name))


def noise(d: int, n: int, s: float, name: str) -> np.ndarray:
    """n symmetric matrices of noise with standard deviation s on the diagonal."""
    mechanism, source = SymmetricGaussian().at(1.0), bits(name)
    units = np.zeros(packed_size(d), dtype=np.int64)
    return np.array([unpack_symmetric(mechanism.release(units, s, source)) for _ in range(n)], dtype=float)


def test_variances_on_and_off_the_diagonal():
    s, d, n = 2.0**30 * 1.1, 4, 4000
    Z = noise(d, n, s, "variances") / s
    rows, columns = np.triu_indices(d)
    for i, j in zip(rows, columns, strict=True):
        std = 1.0 if i == j else math.sqrt(0.5)
        assert stats.kstest(Z[:, i, j] / std, "norm").pvalue > ALPHA
        assert stats.kstest(Z[:, i, j] / std * 1.25, "norm").pvalue < ALPHA
    entries = Z[:, rows, columns]
    correlation = np.corrcoef(entries.T) - np.eye(len(rows))
    assert abs(correlation).max() < 6 / math.sqrt(n)  # 45 pairs of 2e-9
    square = (Z**2).sum(axis=(1, 2))  # s^2 d (d + 1) / 2 in the mean: chi^2 with that many degrees of freedom
    assert stats.kstest(square, stats.chi2(d * (d + 1) / 2).cdf).pvalue > ALPHA


def test_the_law_does_not_change_under_rotations():
    Z, rng = noise(3, 4000, 2.0**30, "rotations") / 2.0**30, np.random.default_rng(1)
    for _ in range(3):
        Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        turned = Q.T @ Z @ Q
        for i, j in ((0, 0), (1, 1), (0, 1), (1, 2)):
            assert stats.kstest(turned[:, i, j] * (1 if i == j else math.sqrt(2)), "norm").pvalue > ALPHA
    unequal = np.array([unpack_symmetric(z) for z in rng.normal(size=(4000, 6))])
    v = np.ones(3) / math.sqrt(3)
    assert stats.kstest(unequal @ v @ v, "norm").pvalue < ALPHA, "noise alike for all packed entries is another law"


def test_the_spectral_norm_is_about_s_root_2d():
    (Z,) = noise(150, 1, 2.0**40, "spectral") / 2.0**40
    assert abs(np.linalg.eigvalsh(Z)).max() == pytest.approx(math.sqrt(300), rel=0.1)


def test_the_scales_are_never_rounded_down(monkeypatch):
    asked = []

    def spy(s, size, source):
        asked.append((s, size))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr("dpdist.privacy.mechanisms.additive.rounded_gaussian", spy)
    rng = np.random.default_rng(2)
    for _ in range(100):
        sensitivity, strength = (float(2.0 ** rng.uniform(-40, 60)) for _ in range(2))
        asked.clear()
        SymmetricGaussian().at(strength).release(np.zeros(10, dtype=np.int64), sensitivity, SystemBits())
        exact = Fraction(sensitivity) / Fraction(strength)
        (on, n_on), (off, n_off) = asked
        assert (n_on, n_off) == (4, 6)
        assert exact <= on <= exact * (1 + Fraction(1, 2**39))
        assert exact**2 <= 2 * off**2 <= (exact * (1 + Fraction(1, 2**38))) ** 2


def test_the_diagonal_is_where_the_packed_matrix_has_it():
    released = SymmetricGaussian().at(1.0).release(np.zeros(packed_size(40), dtype=np.int64), 2.0**30, bits("places"))
    matrix = unpack_symmetric(released).astype(float) / 2.0**30
    off = matrix[np.triu_indices(40, 1)]
    assert np.mean(np.diag(matrix) ** 2) > 0.35 and abs(np.mean(off**2) - 0.5) < 0.15
    many = [
        SymmetricGaussian().at(1.0).release(np.zeros(6, dtype=np.int64), 2.0**30, SystemBits()) for _ in range(2000)
    ]
    squares = np.mean((np.array(many) / 2.0**30) ** 2, axis=0)
    np.testing.assert_allclose(squares, [1, 0.5, 0.5, 1, 0.5, 1], rtol=0.25)


def test_what_is_no_packed_matrix_is_refused():
    for n in (2, 4, 5, 7):
        with pytest.raises(ValueError, match="packed symmetric matrix"):
            SymmetricGaussian().at(1.0).release(np.zeros(n, dtype=np.int64), 1.0, SystemBits())


def test_huge_scales_and_units_do_not_wrap_around():
    for sensitivity in (1.0, 2.0**58, 2.0**62, 2.0**200):
        units = np.array([2**63 - 1, -(2**63), 10**30], dtype=object)
        released = SymmetricGaussian().at(1.0).release(units, sensitivity, SystemBits())
        assert all(abs(int(r) - u) <= 60 * sensitivity + 1 for r, u in zip(released, units.tolist(), strict=True))


def test_the_cost_is_that_of_a_gaussian_so_plans_stay_in_closed_form():
    assert SymmetricGaussian().at(0.3).cost == Cost("gaussian", 0.3) and SymmetricGaussian.norm == FROBENIUS != 2
    items = [Item("gradient", Gaussian(), count=3), Item("hessian", SymmetricGaussian(), count=2)]
    plan = calibrate(items, Budget(1.0, 1e-6))
    same = calibrate([items[0], replace(items[1], mechanism=Gaussian())], Budget(1.0, 1e-6))
    assert plan.accountant == "gdp" and plan.total_mu == same.total_mu
    assert plan["hessian"].mechanism.strength == same["hessian"].mechanism.strength
    assert plan.digest() != same.digest()


ROW = Units()
MATRICES = [SecondMomentSum(3, 1.0), HessianSum(Logistic(), 1.0)]


@pytest.mark.parametrize("query", [GradientSum(Logistic(), 1.0, 1.0), LargestEigenvalue(3, 1.0, 100)])
def test_a_matrix_mechanism_refuses_what_bounds_a_vector(query):
    with pytest.raises(BudgetError, match=r"needs a bound of the Frobenius norm .* bounds the l2 norm of a vector"):
        sensitivity_of(Item("h", SymmetricGaussian()), query, REPLACE, ROW)


@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()])
def test_a_vector_mechanism_refuses_what_bounds_a_matrix(mechanism):
    with pytest.raises(BudgetError, match=r"HessianSum bounds the Frobenius norm of a symmetric matrix"):
        sensitivity_of(Item("h", mechanism), MATRICES[1], REPLACE, ROW)
    with pytest.raises(BudgetError, match="SecondMomentSum bounds"):
        sensitivity_of(Item("h", type("Largest", (Gaussian,), {"norm": math.inf})()), MATRICES[0], REPLACE, ROW)


def test_the_sensitivities_are_those_of_the_seed():
    query, root2 = SecondMomentSum(4, 3.0), math.sqrt(2)
    expected = {FROBENIUS: (9 * root2, 9), NUCLEAR: (18, 9), 2: (9 * root2, 9), 1: ((4 / root2 + 1) * 9, 5 / 2 * 9)}
    for norm, both in expected.items():
        assert [query.sensitivity(r, norm) for r in (REPLACE, ADD)] == pytest.approx(both, rel=1e-12)
    joined = SecondMomentSum(4, 3.0, label_bound=2.0, label_scale=0.5)
    assert joined.sensitivity(REPLACE) == pytest.approx(10 * root2) and joined.n_columns == 5
    assert joined.sensitivity(REPLACE, 1) == pytest.approx((5 / root2 + 1) * 10)
    for loss, factor in ((Logistic(), 0.354), (Sigmoid(), 0.1924), (Biweight(1.0), 1.8)):
        assert HessianSum(loss, 2.0).sensitivity(REPLACE) == pytest.approx(4 * factor, rel=2e-3)
        assert HessianSum(loss, 2.0).sensitivity(ADD) == pytest.approx(4 * loss.curvature_bound)
        assert HessianSum(loss, 2.0, sampled=True).sensitivity(REPLACE) == 8 * loss.curvature_bound
    assert HessianSum(Logistic(), 3.0, intercept=4.0).sensitivity(ADD) == 25 / 4


def test_units_with_several_rows_pay_for_each():
    for query in (*MATRICES, HessianSum(Sigmoid(), 1.0)):
        item = Item("h", SymmetricGaussian())
        for units in (Units("patient", 3), Units("patient", 3, grouped=True)):
            assert sensitivity_of(item, query, REPLACE, units) == 3 * query.sensitivity(REPLACE)
            assert sensitivity_of(item, query, ADD, units) == 3 * query.sensitivity(ADD)


def test_pairs_are_for_replace_one_and_units_whose_rows_are_counted():
    query, item = SecondMomentSum(3, 1.0, paired=True), Item("m", SymmetricGaussian())
    assert sensitivity_of(item, query, REPLACE, ROW) == SecondMomentSum(3, 1.0).sensitivity(REPLACE)
    with pytest.raises(BudgetError, match=r"paired.* replace-one"):
        sensitivity_of(item, query, ADD, ROW)
    with pytest.raises(BudgetError, match=r"paired.* replace-one"):
        sensitivity_of(item, query, REPLACE, Units("patient", 3))
    grouped = Units("patient", 3, grouped=True)
    assert sensitivity_of(item, query, REPLACE, grouped) == 3 * query.sensitivity(REPLACE)


def test_samples_are_accounted_by_the_plain_bound():
    sampled = Item("h", SymmetricGaussian(), sampling=Poisson(0.1))
    for query in (*MATRICES, SecondMomentSum(3, 1.0, paired=True)):
        with pytest.raises(BudgetError, match=f"{type(query).__name__} is not a sum with 2 times the bound"):
            sensitivity_of(sampled, query, REPLACE, ROW)
    plain = HessianSum(Sigmoid(), 1.0, sampled=True)
    assert sensitivity_of(sampled, plain, REPLACE, ROW) == 2 * Sigmoid().curvature_bound
    assert sensitivity_of(sampled, MATRICES[0], ADD, ROW) == 1.0
    # in the nuclear and the l1 norm, too, it is what one row adds in that norm that counts
    nuclear, l1 = (replace(sampled, mechanism=type("M", (Gaussian,), {"norm": norm})()) for norm in (NUCLEAR, 1))
    assert sensitivity_of(nuclear, MATRICES[0], REPLACE, ROW) == 2.0
    for item, query in ((nuclear, SecondMomentSum(3, 1.0, paired=True)), (l1, MATRICES[0])):
        with pytest.raises(BudgetError, match="is not a sum"):
            sensitivity_of(item, query, REPLACE, ROW)


def test_losses_without_a_bounded_curvature_have_no_hessian():
    class Steep(Loss):
        name, labels, derivative_bound, curvature_bound = "steep", "signs", math.inf, math.inf

        def value(self, u, y):
            return np.exp(-y * u)

        def derivative(self, u, y):
            return -y * np.exp(-y * u)

    class Unsaid(Steep):
        curvature_bound = 1.0

    with pytest.raises(BudgetError, match="Hessian of the loss 'steep' has no bound"):
        HessianSum(Steep(), 1.0)
    with pytest.raises(BudgetError, match="has no second_derivative"):
        HessianSum(Unsaid(), 1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_public_bounds_that_are_none_are_refused_by_name(bad):
    for name, make in (
        ("row_norm", lambda: SecondMomentSum(3, bad)),
        ("label_bound", lambda: SecondMomentSum(3, 1.0, label_bound=bad)),
        ("label_scale", lambda: SecondMomentSum(3, 1.0, label_bound=1.0, label_scale=bad)),
        ("row_norm", lambda: HessianSum(Logistic(), bad)),
        ("intercept", lambda: HessianSum(Logistic(), 1.0, intercept=bad or -2.0)),
    ):
        with pytest.raises(ValueError, match=f"{name} must be"):
            make()


def released(sensitivity: float, which: int, n: int, source: StreamBits) -> np.ndarray:
    """Projections of releases on the difference of two neighbours, rows that are orthogonal: the worst there are."""
    pair = orthogonal_rows(1, 2)["orthogonal rows"]
    query, mechanism = SecondMomentSum(2, 1.0), SymmetricGaussian().at(1.0)
    total = second_moment(pair[which]["X"], 1.0)
    values = [mechanism.release(total, sensitivity / query.grid, source) for _ in range(n)]
    return np.array([v[0] - v[2] for v in np.array(values, dtype=float)])


@pytest.mark.parametrize(("sensitivity", "verdict"), [("right", "passed"), ("printed", "caught")])
def test_the_audit_of_orthogonal_rows_catches_sensitivity_one_in_place_of_root_two(sensitivity, verdict):
    value = SecondMomentSum(2, 1.0).sensitivity(REPLACE) if sensitivity == "right" else 1.0
    source = bits(sensitivity)
    draw = partial(released, value, source=source)
    audit = SequentialAudit(
        draw(0, 200), draw(1, 200), gdp_epsilon(1.0, 1e-6), 1e-6, mu=1.0, max_runs=5000, confidence=1 - 1e-6
    )
    while audit.verdict is None:
        audit.add(draw(0, 100), draw(1, 100))
    assert audit.verdict == verdict and audit.n_runs < 5000


def test_a_large_matrix_takes_little_memory_and_about_as_long_as_a_vector():
    n = packed_size(999)
    units, scale = np.zeros(n, dtype=np.int64), 2.0**38
    for mechanism in (SymmetricGaussian().at(1.0), Gaussian().at(1.0)):
        mechanism.release(units[:3], scale, SystemBits())
    gc.collect()
    tracemalloc.start()
    SymmetricGaussian().at(1.0).release(units, scale, SystemBits())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * n  # bytes; a release through a coordinator holds the sum and copies of it besides
    part, times = packed_size(300), {}
    for _ in range(20):
        for mechanism in (SymmetricGaussian().at(1.0), Gaussian().at(1.0)):
            started = time.thread_time()
            mechanism.release(units[:part], scale, SystemBits())
            kind = type(mechanism)
            times[kind] = min(times.get(kind, math.inf), time.thread_time() - started)
    # its pieces are gathered and put back; a vector of so many entries takes 125 ns each
    assert times[SymmetricGaussian] < 1.5 * times[Gaussian]
