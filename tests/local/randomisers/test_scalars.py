"""Reports of a number: private to the last digit, unbiased, and with the noise that is promised."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpdist.errors import BudgetError
from dpdist.kernels import scalar_reports as laws
from dpdist.local.randomisers.scalars import (
    GaussianScalar,
    Hybrid,
    LaplaceScalar,
    OneBit,
    Piecewise,
    best_scalar,
    scalar_law,
)
from dpdist.local.statistics.bounded_values import COMPILED_FROM, Ball, Box, Truncated, TruncatedVector
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.accounting.closed_forms import gdp_delta
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws

EPSILONS = (0.1, 0.5, 1.0, 4.0, 8.0)
COUNTED = ("one-bit", "piecewise", "hybrid")
SCALARS = (OneBit, Piecewise, Hybrid, LaplaceScalar)
BAD = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0, 5e-324, -0.0])


def draws(seed: int = 0) -> StreamDraws:
    return StreamDraws(np.random.Generator(np.random.Philox(seed)))


def at_most(ratio: Fraction, epsilon: float) -> bool:
    """``ratio <= e^epsilon``, in 60 digits."""
    with mpmath.workdps(60):
        return bool(mpmath.mpf(ratio.numerator) / ratio.denominator <= mpmath.exp(mpmath.mpf(epsilon)))


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, *EPSILONS, 16.0, 30.0, 100.0])
@pytest.mark.parametrize("reporter", COUNTED)
def test_no_report_has_more_than_e_epsilon_times_the_words_of_another_value(reporter, epsilon):
    law = scalar_law(reporter, epsilon)
    assert 0 <= law.signs <= laws.WORDS
    if law.signs:
        assert 0 < law.least <= law.signs - law.least
        assert at_most(Fraction(law.signs - law.least, law.least), epsilon)
    if law.signs < laws.WORDS:
        rest = laws.CELLS - law.band
        left = laws.WORDS - law.signs - law.band * law.inside - rest * law.outside
        assert 0 <= left < rest  # these go to one cell each, so that every word has a report
        assert 0 < law.outside < law.inside
        assert at_most(Fraction(law.inside, law.outside), epsilon)
    used = law.inside / law.outside if law.outside else (law.signs - law.least) / law.least
    assert math.log(used) > min(epsilon, laws.LARGEST) * (1 - 1e-6) - 1e-7  # and hardly any of epsilon is wasted


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("reporter", COUNTED)
def test_every_word_enumerated(reporter, epsilon, monkeypatch):
    """The same code with 2**14 words and 16 cells: all words, all pairs of values, exact ratios."""
    monkeypatch.setattr(laws, "WORDS", 2**14)
    monkeypatch.setattr(laws, "CELLS", 16)
    law = scalar_law.__wrapped__(reporter, epsilon)
    words = np.arange(2**14, dtype=np.uint64) << np.uint64(2)
    values = [*np.linspace(-1, 1, 41), 1 + 1e-7, -7.0, np.nan, np.inf]
    counts = []
    for value in values:
        reports = laws.scalar_reports(np.full(len(words), value), words, law)
        assert np.abs(reports).max() <= law.units
        counts.append({int(r): int(c) for r, c in zip(*np.unique(reports, return_counts=True), strict=True)})
    assert all(set(c) == set(counts[0]) for c in counts)
    for report in counts[0]:
        numbers = [c[report] for c in counts]
        assert at_most(Fraction(max(numbers), min(numbers)), epsilon)
    for value, c in zip(values[:41], counts[:41], strict=True):
        mean = sum(r * n for r, n in c.items()) / 2**14 / law.slope
        assert abs(mean - value) < 0.12  # the cells are coarse, and so are the words


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", SCALARS)
def test_reports_are_unbiased_with_the_stated_variance(kind, epsilon):
    """Six standard errors: wrong with a chance of about 2e-9 each."""
    randomiser, n = kind(1, epsilon), 20_000
    for value in (-1.0, -0.3, 0.0, 0.7, 1.0):
        values = np.full((n, 1), value)
        reports = randomiser.randomise(values, draws(1))
        assert reports.dtype == randomiser.report.base and randomiser.valid(reports).all()
        decoded = np.array(
            [randomiser.decode(randomiser.accumulate(r[None]).astype(float), 1)[0] for r in reports[:50]]
        )
        assert np.abs(decoded).max() <= randomiser.influence * (1 + 1e-12)
        everything = reports.astype(float) * randomiser.decode(np.ones(1), 1)
        law = getattr(randomiser, "law", None)
        variance = law.variance(value) if law else randomiser.noise_std**2
        assert abs(everything.mean() - value) < 6 * math.sqrt(max(variance, 1e-12) / n) + 1e-6
        spread = everything - value
        error = math.sqrt(max((spread**4).mean() - (spread**2).mean() ** 2, 0) / n)
        assert abs((spread**2).mean() - variance) < 6 * error + 1e-5 * variance + 1e-9
        assert variance <= randomiser.noise_std**2 * (1 + 1e-12)
        total = randomiser.summarise(values, draws(1))
        assert (total == randomiser.accumulate(reports)).all()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_variances_are_those_of_the_literature(epsilon):
    c, s = 1 / math.tanh(epsilon / 2), math.exp(epsilon / 2)
    for value in (0.0, 0.6, 1.0):
        assert math.isclose(OneBit(1, epsilon).law.variance(value), c**2 - value**2, rel_tol=1e-9, abs_tol=1e-9)
        piecewise = value**2 / (s - 1) + (s + 3) / (3 * (s - 1) ** 2)
        assert math.isclose(Piecewise(1, epsilon).law.variance(value), piecewise, rel_tol=1e-4)
        if epsilon > 0.61:
            share = 1 - 1 / s
            mixed = share * piecewise + (1 - share) * (c**2 - value**2)
            assert math.isclose(Hybrid(1, epsilon).law.variance(value), mixed, rel_tol=1e-4)
    noises = [kind(1, epsilon).noise_std for kind in SCALARS]
    assert best_scalar(epsilon).noise_std <= min(noises) * (1 + 1e-9)


def test_published_numbers():
    assert abs(Hybrid(1, 1.0).noise_std ** 2 - 4.28) < 0.02 and abs(Hybrid(1, 4.0).noise_std ** 2 - 0.22) < 0.005
    assert LaplaceScalar(1, 1.0).noise_std ** 2 == pytest.approx(8.0)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1 / 3, 1.0, 8.0, 50.0])
def test_laplace_noise_is_as_wide_as_the_range_needs(epsilon):
    laplace = LaplaceScalar(1, epsilon)
    assert Fraction(2 * laplace.steps, laplace.noise_scale) <= Fraction(epsilon)
    assert laplace.units < 2**31
    reports = laplace.randomise(np.array([[np.nan], [np.inf], [-np.inf], [3.0]]), draws())
    assert laplace.valid(reports).all()
    assert not laplace.valid(np.array([laplace.units + 1], np.int64)).any()


def test_gaussian_reports_and_their_sums_have_one_law():
    """Two-sample Kolmogorov-Smirnov; wrong with a chance below 1e-6."""
    gaussian = GaussianScalar(1, 1.0, 1e-6)
    assert gdp_delta(1.0, 2 / gaussian.noise_std) <= 1e-6
    values = np.random.default_rng(0).uniform(-1, 1, (50, 1))
    reports = gaussian.randomise(np.tile(values, (3000, 1)), draws(2)).reshape(3000, 50).sum(axis=1)
    sums = [int(gaussian.draw_sum(values, np.random.default_rng(i))[0]) for i in range(3000)]
    assert ks_2samp(reports, sums).pvalue > 1e-6
    doubled = [2 * s for s in sums]
    assert ks_2samp(reports, doubled).pvalue < 1e-6  # the test has the power to see a wrong noise


@pytest.mark.parametrize("kind", SCALARS)
def test_one_record_at_a_time_on_a_device(kind):
    randomiser = kind(1, 2.0)
    protocol = LocalProtocol(Box(1, 0.0, 10.0), randomiser)
    reports = np.concatenate([protocol.randomise({"X": np.array([[x]])}, SystemDraws()) for x in (0.0, 5.0, np.nan)])
    assert randomiser.valid(reports).all()


@pytest.mark.parametrize("kind", SCALARS)
def test_wrong_parameters_are_refused(kind):
    for size, epsilon in ((2, 1.0), (1, 0.0), (1, math.inf), (1, -1.0), (1, math.nan)):
        with pytest.raises(BudgetError):
            kind(size, epsilon)
    for size, delta in ((2, 1e-6), (1, 0.0), (1, 1.0)):
        with pytest.raises(BudgetError):
            GaussianScalar(size, 1.0, delta)


def test_a_device_needs_neither_dask_nor_numba():
    code = """
import sys, numpy as np
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.statistics.bounded_values import Box
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.randomisers.scalars import GaussianScalar, Hybrid, LaplaceScalar
from dpdist.privacy.randomness.draws import SystemDraws
for r in (Hybrid(1, 1.0), LaplaceScalar(1, 1.0), GaussianScalar(1, 1.0), SampleCoordinates(3, 1.0)):
    LocalProtocol(Box(r.size), r).randomise({"X": np.zeros((1, r.size))}, SystemDraws())
sys.exit(bool({"dask", "numba"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_box_values_compiled_and_not(dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(COMPILED_FROM + 50, 5)) * 20
    X = X.astype(dtype)
    box = Box(5, -3.0, 11.0)
    compiled, plain = box.values({"X": X}), np.vstack([box.values({"X": X[i : i + 7]}) for i in range(0, len(X), 7)])
    assert compiled.dtype == np.float64 and (compiled == plain).all()
    expected = (np.clip(X.astype(float), -3.0, 11.0) - 4.0) / 7.0
    assert np.allclose(compiled, expected, atol=1e-15)


@pytest.mark.parametrize("n", [8, 800])
@pytest.mark.parametrize(
    "statistic",
    [Box(2, -1.0, 1.0), Box(2, 0.0, 1e-3), Ball(2, 1e-3), Ball(2, 2.0), Truncated(2, 1e-3), TruncatedVector(2, 3.0)],
    ids=repr,
)
def test_any_record_stays_in_the_domain(statistic, n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    for column in range(2):
        X[: len(BAD), column] = BAD
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = statistic.values({"X": X})
        size = np.abs(values).max(axis=1) if statistic.domain == "box" else np.linalg.norm(values, axis=1)
        assert np.isfinite(values).all() and size.max() <= 1.0
        assert (values[:3] == 0).all()  # null records
        X[: len(BAD)] = 0.1


def test_statistics_restore_what_they_scale():
    X = np.random.default_rng(0).uniform(0.5, 1.5, size=(100, 2))
    for statistic in (Box(2, 0.0, 2.0), Ball(2, 4.0), Truncated(2, 1e4), TruncatedVector(2, 1e4)):
        assert np.allclose(statistic.restore(statistic.values({"X": X}).mean(axis=0)), X.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("d", [1, 3, 4, 7, 100])
def test_vectors_keep_their_direction(d):
    X = np.random.default_rng(0).normal(size=(200, d)) * 10.0 ** np.random.default_rng(1).integers(-200, 300, (200, 1))
    for radius in (1.0, 0.3, 1e50):
        values = Ball(d, radius).values({"X": X})
        exact = np.array([math.fsum(Fraction(float(v)) ** 2 for v in row) for row in values])
        assert exact.max() <= 1.0
        with np.errstate(over="ignore", under="ignore"):
            size = np.abs(X).max(axis=1, keepdims=True)
            direction = X / size
            norm = size[:, 0] * np.linalg.norm(direction, axis=1) / radius
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            assert np.allclose(values, direction * np.minimum(norm, 1.0)[:, None], rtol=1e-9, atol=1e-300)
