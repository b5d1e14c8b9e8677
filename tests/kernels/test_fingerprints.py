"""Fingerprints against plain Python, and what they notice."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.fingerprints import PIECE, PRIME, Key, _bytes_of, fingerprint

RNG = np.random.default_rng(0)
KEY = Key.of(RNG.bytes(Key.BYTES))


def plain(data: bytes, key: Key) -> int:
    keys, number = [int(word) for word in key.words], 1
    point = keys[PIECE] % PRIME
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data) // 8 * 8, 8)]
    rest = int.from_bytes(data[len(words) * 8 :], "little")
    for part in (words, [rest]):
        for start in range(0, len(part), PIECE):
            total = 0
            for word, k in zip(part[start : start + PIECE], keys, strict=False):
                low, high = (word + k) % 2**32, ((word >> 32) + (k >> 32)) % 2**32
                total += low * high
            total %= 2**64
            number = (number * point + total % 2**61 + (total >> 61)) % PRIME
    return number


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 8 * PIECE, 8 * PIECE + 3, 40_000])
def test_the_number_is_that_of_the_formula(n):
    for key in (KEY, Key.of(b"\xff" * Key.BYTES), Key.of(bytes(Key.BYTES))):
        for data in (RNG.integers(0, 256, n).astype(np.uint8), np.full(n, 255, np.uint8), np.zeros(n, np.uint8)):
            assert fingerprint(data, key) == plain(data.tobytes(), key)


ARRAYS = (
    RNG.normal(size=(300, 7)),
    RNG.normal(size=1000).astype(np.float32),
    RNG.integers(-9, 9, 5000).astype(np.int8),
    RNG.integers(0, 2, 333).astype(bool),
    np.array(["no", "yes", "", "grüße", "a" * 50]),
    np.array(["no", "yes", "", "grüße", "a" * 50], dtype=np.dtypes.StringDType()),
)


@pytest.mark.parametrize("rows", ARRAYS, ids=lambda rows: f"{rows.dtype}{rows.shape}")
def test_equal_rows_have_one_number_and_every_changed_value_another(rows):
    number = fingerprint(rows, KEY)
    assert fingerprint(rows.copy(), KEY) == number
    assert fingerprint(rows, Key.of(RNG.bytes(Key.BYTES))) != number
    seen = {number}
    for at in np.ndindex(rows.shape):
        changed = rows.copy()
        old = changed[at]
        changed[at] = old + "x" if isinstance(old, str) else not old if rows.dtype == bool else old + 1
        if rows.dtype.kind == "U" and changed[at] == old:  # there is no room for it
            changed[at] = "b" + old[1:]
        seen.add(fingerprint(changed, KEY))
        if len(seen) > 400:
            break
    assert len(seen) >= min(rows.size, 400)
    assert fingerprint(rows[::-1].copy(), KEY) not in seen


def test_bits_that_compare_as_equal_are_told_apart():
    nans = np.array([np.nan, np.nan])
    others = (nans.view(np.int64) | np.array([0, 1])).view(np.float64)
    assert fingerprint(nans, KEY) != fingerprint(others, KEY)
    assert fingerprint(np.zeros(3), KEY) != fingerprint(-np.zeros(3), KEY)


def test_rows_that_are_exchanged_are_told_apart():
    rows = RNG.normal(size=(4 * PIECE, 2))
    pieces = np.concatenate([rows[PIECE:], rows[:PIECE]])
    assert len({fingerprint(each, KEY) for each in (rows, pieces, rows[::-1].copy())}) == 3


def test_texts_are_told_apart_by_where_they_end():
    def number(*texts):
        return fingerprint(np.array(texts, dtype=np.dtypes.StringDType(na_object=np.nan)), KEY)

    cases = [("ab", "c"), ("a", "bc"), ("a\0b", "c"), ("a", "b\0c"), ("a\0", "bc"), ("a", "\0bc"), ("", "abc")]
    cases += [("abc", ""), (np.nan, "abc"), ("nan", "abc")]
    assert len({number(*texts) for texts in cases}) == len(cases)


def test_a_key_does_not_show():
    assert repr(KEY) == "Key()"


def test_arrays_of_numbers_are_not_copied():
    rows = RNG.normal(size=(100, 3))
    assert np.shares_memory(_bytes_of(rows), rows)


def test_how_often_changes_go_unnoticed_with_keys_of_few_bits():
    """The law of the sum over the words: for any two different words, one in 2**32 keys; here counted for 2**4."""
    words = [(3, 5), (3, 6), (4, 5), (0, 15), (15, 15)]
    for one in words:
        for other in words:
            if one == other:
                continue
            equal = sum(
                (one[0] + k) % 16 * ((one[1] + m) % 16) % 256 == (other[0] + k) % 16 * ((other[1] + m) % 16) % 256
                for k in range(16)
                for m in range(16)
            )
            assert equal <= 256 / 16
