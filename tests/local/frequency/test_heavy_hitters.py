"""The frequent ones among 2**32 and more codes, and among strings."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dpdist.data import Dataset
from dpdist.errors import BudgetError, DataError
from dpdist.local.frequency import heavy_hitters
from dpdist.local.frequency.heavy_hitters import HeavyHitters, prefix_lengths
from dpdist.local.randomisers.hashing import OLH
from dpdist.local.statistics.prefixes import CandidateProtocol, Prefix, text_codes
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws
from dpdist.privacy.randomness.streams import Stream

HEAVY = np.array([3_653_403_231, 7, 2**32 - 1, 2_195_314_465], dtype=np.int64)


def population(n, seed, n_bits=32, shares=(0.2, 0.15, 0.1, 0.08)):
    rng = np.random.default_rng(seed)
    which = rng.choice(len(shares) + 1, size=n, p=[*shares, 1 - sum(shares)])
    return np.where(which < len(shares), HEAVY[np.minimum(which, 3)], rng.integers(0, 2**n_bits, size=n))


@pytest.mark.parametrize("seed", range(5))
def test_codes_of_32_bits_are_found(seed):
    codes = population(60_000, seed)
    model = HeavyHitters(32, epsilon=3.0, random_state=seed).fit(codes)
    # all that are twice above the threshold, and (in all but one of 20 fits) nothing that nobody has
    found = dict(zip(model.found_.tolist(), model.frequencies_, strict=True))
    for code in HEAVY.tolist():
        share = (codes == code).mean()
        assert share < 2 * model.threshold_ or abs(found[code] - share) < 6 * model.standard_error_
    assert 2 * model.threshold_ < 0.1
    assert set(found) <= set(HEAVY.tolist())
    assert (np.diff(model.frequencies_) <= 0).all() and (model.frequencies_ > model.threshold_).all()
    assert model.guarantee_.epsilon == 3.0 and model.guarantee_.delta == 0 and model.guarantee_.model == "local"
    assert len(model.history_) == 4


def test_noise_is_not_found():
    """Uniform codes: about one fit in 20 would report something in a step."""
    wrong = 0
    for seed in range(20):
        codes = np.random.default_rng(seed).integers(0, 2**32, size=3000)
        wrong += len(HeavyHitters(32, random_state=seed).fit(codes).found_)
    assert wrong <= 3


def test_without_the_threshold_noise_would_be_found(monkeypatch):
    """The broken control: whatever is estimated above 0 counts."""
    monkeypatch.setattr(heavy_hitters, "ndtri", lambda p: 0.0)
    codes = np.random.default_rng(0).integers(0, 2**32, size=3000)
    assert len(HeavyHitters(32, random_state=0).fit(codes).found_) == 32


def test_strings_are_found_by_their_hash():
    rng = np.random.default_rng(1)
    words = np.array(["apple", "pear", *(f"word {i}" for i in range(5000))])
    said = rng.choice(words, size=40_000, p=[0.3, 0.2, *np.full(5000, 0.5 / 5000)])
    model = HeavyHitters(24, epsilon=3.0, random_state=1).fit(said)
    assert model.found_.tolist() == text_codes(words[:2], 24).tolist()
    assert model.frequencies_ == pytest.approx([0.3, 0.2], abs=6 * model.standard_error_)


def test_bad_records_are_null_records():
    x = np.array([np.nan, np.inf, -1.0, 2.0**40, 0.5, 2.0**32, 5.0])
    assert Prefix(32, 8).values({"X": x}).tolist() == [-1] * 6 + [0]
    texts = np.array(["a", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan))
    assert (Prefix(32, 8).values({"X": texts}) >= 0).tolist() == [True, False]
    codes = population(60_000, 3).astype(float)
    codes[::2] = np.resize(x[:6], 30_000)
    model = HeavyHitters(32, epsilon=3.0, random_state=0).fit(codes)
    assert model.found_[0] == HEAVY[0] and model.frequencies_[0] == pytest.approx(0.1, abs=6 * model.standard_error_)


def test_partitions_change_nothing():
    codes = population(30_000, 0)
    models = [
        HeavyHitters(32, epsilon=3.0, random_state=1).fit(Dataset.from_arrays(partition_rows=rows, X=codes))
        for rows in (30_000, 4096, 700)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.found_, models[0].found_)
        np.testing.assert_array_equal(model.frequencies_, models[0].frequencies_)


@pytest.mark.parametrize("length", [13, 45, 60])
def test_candidates_are_estimated_without_bias(length):
    """Short and long prefixes (of one and of two digits of the hash): mean and variance."""
    rng = np.random.default_rng(length)
    candidates = np.concatenate([[0, 2**length - 1], rng.integers(0, 2**length, size=6)])
    codes = candidates[np.arange(100) % 3]
    codes[90:] = -1
    protocol = CandidateProtocol(Prefix(length, length), OLH(2**length, 2.0))
    stream = Stream(bytes(32), "test")
    found = np.array(
        [
            protocol.estimate(
                protocol.summarise({"X": codes}, StreamDraws(stream.generator(b)), candidates).astype(float), 100
            )
            for b in range(2000)
        ]
    )
    truth = np.array([(codes == c).mean() for c in candidates])
    variance = protocol.randomiser.variance(truth) / 100
    assert (np.abs(found.mean(axis=0) - truth) < 5.5 * np.sqrt(variance / 2000)).all()
    # null records have the variance of rare ones
    np.testing.assert_allclose(found.var(axis=0), variance, rtol=6 * math.sqrt(2.5 / 2000))


def test_a_device_sends_what_the_server_reads():
    protocol = HeavyHitters(32, epsilon=8.0).protocol(4000, 1, group=3)
    # every second one is right: half of 10,000 coins, so that 0.1 is ten standard deviations
    reports = protocol.randomise({"X": np.full(10_000, 123_456)}, SystemDraws())
    estimate = protocol.estimate(protocol.accumulate(reports, np.array([123_456, 99])).astype(float), 10_000)
    assert abs(estimate[0] - 1) < 0.1 and abs(estimate[1]) < 0.1


def test_all_values_of_a_large_domain_are_refused():
    protocol = LocalProtocol(Prefix(40, 40), OLH(2**40, 1.0))
    with pytest.raises(BudgetError, match="candidates"):
        protocol.accumulate(protocol.randomise({"X": np.zeros(3)}, SystemDraws()))


@pytest.mark.parametrize("n_bits", [1, 5, 13, 14, 32, 60])
@pytest.mark.parametrize("step_bits", [1, 8, 12])
@pytest.mark.parametrize("n_kept", [1, 32, 100])
def test_lengths_grow_to_the_end(n_bits, step_bits, n_kept):
    lengths = prefix_lengths(n_bits, step_bits, n_kept)
    assert lengths[-1] == n_bits and lengths[0] >= 1
    assert 2 ** lengths[0] <= n_kept * 2**step_bits
    assert all(0 < b - a <= step_bits for a, b in pairwise(lengths))


@pytest.mark.parametrize(
    "wrong", [{"n_bits": 0}, {"n_bits": 61}, {"n_kept": 0}, {"step_bits": 20}, {"failure": 0.0}, {"epsilon": -1.0}]
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(BudgetError, match=next(iter(wrong))):
        HeavyHitters(**wrong).fit(np.zeros(100))


def test_too_few_users_for_the_groups():
    with pytest.raises(DataError, match="groups"):
        HeavyHitters(32).fit(np.zeros(3))


def test_no_sum_fidelity():
    with pytest.raises(BudgetError, match="no exact law"):
        HeavyHitters(8, fidelity="sum").fit(np.zeros(100))
