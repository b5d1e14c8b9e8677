"""The cipher is ChaCha20: the vector of RFC 8439, a plain twin for every word, and the same bits on every machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from dpdist.kernels.stream_cipher import BLOCKS, MOST_WORDS, stream_words
from dpdist.privacy.randomness.bits import MANY_WORDS, SystemBits

KEY = bytes(range(32))
RUN = "import hashlib; from dpdist.kernels.stream_cipher import stream_words as s; "
RUN += "print(hashlib.sha256(s(bytes(range(32)), 5000).astype('<u8').tobytes()).hexdigest())"


def rotated(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & 0xFFFFFFFF


def block(key: bytes, counter: int, nonce: bytes = bytes(12)) -> bytes:
    """One block, word by word, as RFC 8439 writes it down in section 2.3."""
    numbers = np.frombuffer(b"expand 32-byte k" + key + counter.to_bytes(4, "little") + nonce, "<u4").tolist()
    x = list(numbers)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for p, q, r, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) & 0xFFFFFFFF
            x[r] = rotated(x[r] ^ x[p], by)

    for _ in range(10):
        for places in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            quarter(*places)
        for places in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            quarter(*places)
    return b"".join(((a + b) & 0xFFFFFFFF).to_bytes(4, "little") for a, b in zip(x, numbers, strict=True))


def test_the_twin_is_the_function_of_the_standard():
    found = block(KEY, 1, bytes.fromhex("000000090000004a00000000"))  # RFC 8439, section 2.3.2
    assert found.hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4ed2826446079faa0914c2d705d98b02a2b5129cd1de164eb9"
        "cbd083e8a2503c4e"
    )


@pytest.mark.parametrize("key", [bytes(32), KEY, hashlib.sha256(b"another").digest()])
def test_every_word_is_one_of_the_published_stream(key):
    groups = 3
    found = stream_words(key, groups * 8 * BLOCKS).view(np.uint32).reshape(groups, 16, BLOCKS)
    for number in range(groups * BLOCKS):
        expected = np.frombuffer(block(key, number), "<u4")
        assert (found[number // BLOCKS, :, number % BLOCKS] == expected).all(), number


def test_a_stream_begins_alike_however_long_it_is_asked_for():
    whole = stream_words(KEY, 1000)
    for n in (0, 1, 127, 128, 129, 999):
        assert (stream_words(KEY, n) == whole[:n]).all() and len(stream_words(KEY, n)) == n


@pytest.mark.parametrize(("key", "n"), [(b"short", 1), (KEY, -1), (KEY, MOST_WORDS + 1), (KEY * 2, 1)])
def test_what_is_no_key_or_too_long_is_refused(key, n):
    with pytest.raises(ValueError, match="a key has 32 bytes"):
        stream_words(key, n)


@pytest.mark.slow  # compiles for another processor
def test_a_machine_without_wide_vectors_makes_the_same_words(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    here = hashlib.sha256(stream_words(KEY, 5000).astype("<u8").tobytes()).hexdigest()
    assert done.stdout.strip() == here


def test_words_of_the_system_are_never_those_of_another_answer():
    """Few and many: from the system, and from a key that is used once; both look uniform."""
    for n in (MANY_WORDS - 1, MANY_WORDS, 3 * MANY_WORDS + 1):
        first, second = SystemBits().words(n), SystemBits().words(n)
        assert len(first) == n and len(np.intersect1d(first, second)) == 0  # by chance below 1e-10
        share = np.unpackbits(first.view(np.uint8)).mean()
        assert abs(share - 0.5) < 6 * 0.5 / np.sqrt(64 * n)  # two tails of 1e-9
        halves = [(words >> np.uint64(32)).astype(float) for words in (first, second)]
        assert abs(np.corrcoef(*halves)[0, 1]) < 6 / np.sqrt(n)


def test_children_of_a_process_have_words_of_their_own():
    bits, (read, write) = SystemBits(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, bits.words(MANY_WORDS)[:8].tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 64) != bits.words(MANY_WORDS)[:8].tobytes()
