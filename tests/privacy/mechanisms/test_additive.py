"""Additive mechanisms: cost and noise tied together, no overflow, scale never too small."""

import math
import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed

ALL: list[type[Mechanism]] = [Gaussian, DiscreteGaussian, Laplace, DiscreteLaplace]
ALPHA = 1e-7


def bits(name: str, **params: object) -> StreamBits:
    return StreamBits(Stream(run_key_from_seed(30), name, **params))


def test_costs() -> None:
    assert Gaussian().at(0.3).cost == Cost("gaussian", 0.3)
    assert DiscreteGaussian().at(0.3).cost == Cost("zcdp", 0.3**2 / 2)
    assert Laplace().at(0.3).cost == Cost("laplace", 0.3)
    assert DiscreteLaplace().at(0.3).cost == Cost("pure", 0.3)
    assert [kind.norm for kind in ALL] == [2, 2, 1, 1]


@pytest.mark.parametrize("kind", ALL)
def test_a_mechanism_is_a_frozen_value(kind: type[Mechanism]) -> None:
    mechanism = kind().at(0.5)
    assert mechanism == kind(strength=0.5) == pickle.loads(pickle.dumps(mechanism)) != kind()
    assert mechanism.at(2.0).strength == 2.0 and mechanism.strength == 0.5
    assert type(mechanism.at(2.0)) is kind
    with pytest.raises(FrozenInstanceError):
        mechanism.strength = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("kind", ALL)
def test_an_uncalibrated_mechanism_refuses(kind: type[Mechanism]) -> None:
    for attempt in (
        lambda: kind().cost,
        lambda: kind().noise_std(1.0),
        lambda: kind().release(np.array([1]), 1.0, SystemBits()),
    ):
        with pytest.raises(BudgetError, match="no strength"):
            attempt()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_impossible_numbers_are_refused(kind: type[Mechanism], bad: float) -> None:
    with pytest.raises(BudgetError, match="strength"):
        kind().at(bad)
    with pytest.raises(BudgetError, match="sensitivity"):
        kind().at(1.0).release(np.array([1]), bad, SystemBits())


@pytest.mark.parametrize("kind", ALL)
def test_only_integers_are_released(kind: type[Mechanism]) -> None:
    for units in (np.array([0.5]), np.array([True]), np.array(["1"])):
        with pytest.raises(TypeError, match="integers"):
            kind().at(1.0).release(units, 1.0, SystemBits())


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("sensitivity, strength", [(3.0, 0.7), (2.0**33 * 1.1, 0.013), (2.0**55, 0.01)])
def test_noise_has_the_promised_size(kind: type[Mechanism], sensitivity: float, strength: float) -> None:
    """Standardised by ``noise_std`` the noise is standard normal or Laplace; 10 % less or more noise is detected."""
    mechanism = kind().at(strength)
    units = np.full(40_000, 17, dtype=np.int64)
    draws = bits("size", kind=kind.__name__, sensitivity=sensitivity)
    noise = (mechanism.release(units, sensitivity, draws) - 17).astype(float)
    jitter = np.random.default_rng(0).uniform(-0.5, 0.5, noise.size)  # makes small integers continuous
    noise = (noise + jitter) / mechanism.noise_std(sensitivity)
    law = stats.norm() if kind.norm == 2 else stats.laplace(scale=math.sqrt(0.5))
    assert stats.kstest(noise, law.cdf).pvalue > ALPHA
    for factor in (0.9, 1.1):
        assert stats.kstest(factor * noise, law.cdf).pvalue < ALPHA


@pytest.mark.parametrize("kind", ALL)
def test_the_scale_is_never_rounded_down(kind: type[Mechanism], monkeypatch: pytest.MonkeyPatch) -> None:
    scales: list[Fraction] = []

    def spy(self: Mechanism, scale: Fraction, shape: tuple[int, ...], bits: object) -> np.ndarray:
        scales.append(scale)
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(kind, "_noise", spy)
    rng = np.random.default_rng(2)
    for _ in range(200):
        sensitivity, strength = (float(2.0 ** rng.uniform(-40, 60)) for _ in range(2))
        kind().at(strength).release(np.array([0]), sensitivity, SystemBits())
        exact = Fraction(sensitivity) / Fraction(strength)
        assert exact <= scales[-1] <= exact * (1 + Fraction(1, 2**40))


def test_coordinates_get_independent_noise_of_one_draw() -> None:
    noise = Gaussian().at(1.0).release(np.zeros((20_000, 2), dtype=np.int64), 100.0, bits("independent")).astype(float)
    assert abs(stats.pearsonr(noise[:, 0], noise[:, 1]).statistic) < 5.5 / math.sqrt(20_000)  # 4e-8
    assert abs(stats.pearsonr(noise[1:, 0], noise[:-1, 0]).statistic) < 5.5 / math.sqrt(20_000)


@pytest.mark.parametrize("kind", ALL)
def test_the_same_bits_give_the_same_release_and_fresh_bits_another(kind: type[Mechanism]) -> None:
    units = np.arange(50)
    first, again = (kind().at(0.01).release(units, 2.0**20, bits("again")) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    system = [kind().at(0.01).release(units, 2.0**20, SystemBits()) for _ in range(2)]
    assert np.any(system[0] != system[1])


@pytest.mark.parametrize("kind", ALL)
def test_noise_does_not_depend_on_the_units(kind: type[Mechanism]) -> None:
    """Same bits, other units: the difference of the releases is exactly that of the units, on every dtype path."""
    mechanism = kind().at(0.5)
    base = np.array([0, 1, -5, 12])
    reference = mechanism.release(base, 2.0**30, bits("shift")).astype(object) - base.astype(object)
    extremes = [2**63 - 1, -(2**63), 2**62, -(2**62)]
    for units in (np.array(extremes), np.array(extremes, dtype=object), np.array([10**40, -(10**30), 0, 1], object)):
        released = mechanism.release(units, 2.0**30, bits("shift"))
        assert released.astype(object).tolist() == (units.astype(object) + reference).tolist()


@pytest.mark.parametrize("kind", ALL)
def test_nothing_wraps_around(kind: type[Mechanism]) -> None:
    top = 2**63 - 1
    for sensitivity in (1.0, 2.0**61, 2.0**62, 2.0**200):
        released = kind().at(1.0).release(np.array([top, -top, 0]), sensitivity, SystemBits())
        scale = sensitivity * 60  # beyond 60 scales with probability below 1e-25
        assert all(abs(int(r) - u) <= scale for r, u in zip(released, (top, -top, 0), strict=True))
        fits = all(abs(int(r)) < 2**62 for r in released)
        assert released.dtype == (np.int64 if fits else object)
        assert all(type(r) is int for r in released.tolist())


def test_the_type_depends_on_the_released_values_only() -> None:
    """An int64 of small numbers and the same numbers as Python integers are released alike."""
    units = np.array([3, -4])
    one = Gaussian().at(1.0).release(units, 10.0, bits("dtype"))
    two = Gaussian().at(1.0).release(units.astype(object), 10.0, bits("dtype"))
    assert one.dtype == two.dtype == np.int64
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", ALL)
def test_shapes_are_kept_and_inputs_untouched(kind: type[Mechanism]) -> None:
    for shape in ((), (0,), (3,), (2, 3)):
        units = np.zeros(shape, dtype=np.int64)
        assert kind().at(1.0).release(units, 1e6, SystemBits()).shape == shape
        assert not units.any()
    assert kind().at(1.0).release(np.array(2**80, dtype=object), 1.0, SystemBits()).shape == ()
    assert kind().at(1.0).release(np.zeros(2, dtype=np.int32), 1.0, SystemBits()).dtype == np.int64


def test_pure_epsilon_of_the_laplace_laws_by_enumeration() -> None:
    """Worst likelihood ratio of integer neighbours, from the exact laws: attained, never exceeded."""
    eps, sensitivity = 0.8, 3
    b = sensitivity / eps
    x = np.arange(-60, 61)
    discrete = np.exp(-np.abs(x) / b)
    rounded = np.where(x == 0, 1 - np.exp(-0.5 / b), np.sinh(0.5 / b) * np.exp(-np.abs(x) / b))
    for law in (discrete, rounded):
        for shift in range(1, sensitivity + 1):
            loss = np.abs(np.log(law[shift:] / law[:-shift])).max()
            assert loss <= eps + 1e-12
        assert loss >= 0.999 * eps


def test_the_rounded_gaussian_is_gdp_and_the_discrete_one_is_not() -> None:
    """delta(eps) of integer neighbours against the GDP formula: why the two laws are charged differently."""
    x = np.arange(-80, 81)
    for s, shift in ((2.0, 1), (3.0, 3)):
        mu = shift / s
        size = np.abs(x)
        rounded = np.where(x == 0, 1 - 2 * stats.norm.sf(0.5 / s), 0) + np.where(
            x != 0, stats.norm.sf((size - 0.5) / s) - stats.norm.sf((size + 0.5) / s), 0
        )
        discrete = np.exp(-(x**2) / (2 * s**2))
        discrete /= discrete.sum()
        excess = {}
        for name, law in (("rounded", rounded), ("discrete", discrete)):
            p, q = law[:-shift], law[shift:]
            eps = np.linspace(0.05, 8, 400) * mu
            delta = np.maximum(p - np.exp(eps)[:, None] * q, 0).sum(axis=1)
            gdp = stats.norm.cdf(mu / 2 - eps / mu) - np.exp(eps) * stats.norm.cdf(-mu / 2 - eps / mu)
            excess[name] = (delta / gdp)[gdp > 1e-7].max()
        assert excess["rounded"] <= 1 + 1e-6
        assert excess["discrete"] > 1.05


def test_messages_show_no_private_value() -> None:
    for kind in ALL:
        with pytest.raises(TypeError) as caught:
            kind().at(1.0).release(np.array([123456.5]), 1.0, SystemBits())
        assert "123456" not in str(caught.value)
