"""Streams: same computation, same words; different computations share none."""

import enum
import itertools
import pickle

import numpy as np
import pytest

from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.streams import Stream, block_size, run_key_from_seed

RUN_KEY = run_key_from_seed(0)


class Relation(enum.Enum):
    REPLACE = "replace"
    REMOVE = "remove"


def words(generator: np.random.Generator, n: int = 4096) -> np.ndarray:
    return StreamBits(generator).words(n)


def share_a_word(*groups: np.ndarray) -> bool:
    """64-bit words of independent streams repeat with probability below (total**2) / 2**65."""
    merged = np.concatenate(groups)
    return np.unique(merged).size < merged.size


def test_a_retry_draws_the_same() -> None:
    first = Stream(RUN_KEY, "mean", epsilon=1.0, data="id/1").generator(block=3, purpose=1)
    second = Stream(RUN_KEY, "mean", data="id/1", epsilon=1.0).generator(block=3, purpose=1)
    np.testing.assert_array_equal(first.standard_normal(100), second.standard_normal(100))


def test_a_stream_survives_pickling_and_hides_its_key() -> None:
    stream = Stream(RUN_KEY, "mean", epsilon=1.0)
    copy = pickle.loads(pickle.dumps(stream))
    np.testing.assert_array_equal(words(stream.generator(9)), words(copy.generator(9)))
    assert len(stream.key) == 16
    assert stream.key.hex() not in repr(stream) and repr(stream.key) not in repr(stream)


def test_different_computations_share_no_word() -> None:
    streams = [
        Stream(RUN_KEY, "mean", epsilon=1.0, clip=2.0),
        Stream(RUN_KEY, "mean", epsilon=1.0, clip=np.nextafter(2.0, 3.0)),
        Stream(RUN_KEY, "mean", epsilon=2.0, clip=1.0),
        Stream(RUN_KEY, "variance", epsilon=1.0, clip=2.0),
        Stream(RUN_KEY, "mean", epsilon=1.0, clip=2.0, round=0),
        Stream(RUN_KEY, "mean", epsilon=1.0, clip=2.0, round=1),
        Stream(run_key_from_seed(1), "mean", epsilon=1.0, clip=2.0),
    ]
    groups = [words(s.generator(b, p)) for s in streams for b, p in itertools.product((0, 1, 2**63), (0, 1))]
    assert not share_a_word(*groups)


def test_neighbouring_blocks_do_not_overlap() -> None:
    """NumPy counts in word 0: a block number there would make block i + 1 block i, shifted by four words."""
    stream = Stream(RUN_KEY, "mean")
    assert not share_a_word(*(words(stream.generator(block)) for block in range(16)))
    key = np.frombuffer(stream.key, dtype="<u8")

    def trap(block: int) -> np.ndarray:
        return words(np.random.Generator(np.random.Philox(key=key, counter=[block, 0, 0, 0])))

    np.testing.assert_array_equal(trap(1)[:-4], trap(0)[4:])
    assert share_a_word(trap(0), trap(1))


def test_the_counter_holds_block_and_purpose_in_words_two_and_three() -> None:
    state = Stream(RUN_KEY, "mean").generator(5, 7).bit_generator.state["state"]
    assert state["counter"].tolist() == [0, 0, 5, 7]
    assert state["key"].astype("<u8").tobytes() == Stream(RUN_KEY, "mean").key


def test_parameters_of_different_type_or_shape_differ() -> None:
    values = [
        None, False, True, 0, 1, 2**70, 0.0, -0.0, 1.0, 1.5, float("inf"), "", "1", "1.0", "True", b"1",
        [], [1], [1, 2], [[1], 2], ["int", "1"], {}, {"a": 1}, {"a": 1.0}, {"a": 1, "b": 2}, [["a", 1]],
    ]  # fmt: skip
    keys = {Stream(RUN_KEY, "p", value=value).key for value in values}
    assert len(keys) == len(values)
    assert Stream(RUN_KEY, "p", a=1).key != Stream(RUN_KEY, "p", b=1).key
    assert Stream(RUN_KEY, "p", a=1, b=2).key != Stream(RUN_KEY, "p", a=2, b=1).key


def test_parameters_of_equal_meaning_agree() -> None:
    def key(value: object) -> bytes:
        return Stream(RUN_KEY, "p", value=value).key

    assert key(np.int32(3)) == key(3)
    assert key(np.float32(0.5)) == key(np.float64(0.5)) == key(0.5)
    assert key(np.bool_(True)) == key(True)
    assert key(Relation.REPLACE) == key("replace") != key(Relation.REMOVE)
    assert key((1, 2)) == key([1, 2])
    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [object(), np.zeros(3), {1: 2}, 1j])
def test_a_parameter_without_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        Stream(RUN_KEY, "p", value=value)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Stream(b"short", "p")
    for block, purpose in ((-1, 0), (0, -1), (2**64, 0)):
        with pytest.raises(ValueError, match="block"):
            Stream(RUN_KEY, "p").generator(block, purpose)
    with pytest.raises(ValueError, match="width"):
        block_size(0)


def test_block_size_follows_its_formula() -> None:
    for width in [1, 2, 3, 2047, 2048, 2049, 3000, 2**22, 2**23, 2**23 + 1, 2**40]:
        expected = 2 ** np.floor(np.log2(np.clip(2**23 / width, 1, 4096)))
        assert block_size(width) == expected


def test_run_keys() -> None:
    keys = {run_key_from_seed(seed) for seed in (0, 1, -1, 2**100)}
    assert len(keys) == 4 and all(len(key) == 32 for key in keys)
    assert run_key_from_seed(np.int64(1)) == run_key_from_seed(1)


def test_sources_of_bits() -> None:
    stream = Stream(RUN_KEY, "p")
    assert StreamBits(stream).simulated and not SystemBits().simulated
    bits = StreamBits(stream)
    np.testing.assert_array_equal(np.concatenate([bits.words(3), bits.words(5)]), StreamBits(stream).words(8))
    np.testing.assert_array_equal(StreamBits(stream).words(8), stream.generator(0).bit_generator.random_raw(8))
    # A generator whose native words have 32 bits still gives 64 random ones.
    legacy = StreamBits(np.random.Generator(np.random.MT19937(1))).words(1000)
    for source in (legacy, SystemBits().words(1000), StreamBits(stream).words(1000)):
        assert source.dtype == np.uint64 and source.shape == (1000,)
        ones = np.unpackbits(source.view(np.uint8)).reshape(1000, 64).sum(axis=0, dtype=np.int64)
        assert np.all(np.abs(ones - 500) < 110)  # 64 columns, each beyond 7 sigma with probability 2.6e-12
    assert not share_a_word(SystemBits().words(4096), SystemBits().words(4096))
    assert SystemBits().words(0).size == 0
