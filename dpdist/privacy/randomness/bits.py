"""Where random bits come from: the operating system for releases, a counter-based stream for simulations.

Samplers (`dpdist.privacy.randomness.discrete`) take a source as an argument, so a simulation runs the very code of a
release.
"""

from __future__ import annotations

import os
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.randomness.streams import Stream

MANY_WORDS = 2**12
"""So many are made by a cipher that starts from the system's randomness; fewer come from the system itself."""


class Bits(Protocol):
    """A source of independent uniform 64-bit words."""

    @property
    def simulated(self) -> bool:
        """True if somebody could reproduce the words, so that noise made of them gives no privacy guarantee."""

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next ``n`` words."""


class SystemBits:
    """Words from the operating system's cryptographic generator: what releases use.

    Many at a time are the stream of ChaCha20 under a fresh key from there, which is what Linux does inside, without a
    copy and a call for every few of them. A key is used for one answer and kept nowhere, so that nobody who sees the
    memory of the process later learns what was drawn before, and no two processes share one after a fork. That these
    words cannot be told from uniform ones is an assumption about ChaCha20, the same that is made about the system's.

    >>> SystemBits().words(3).shape, SystemBits.simulated
    ((3,), False)
    """

    simulated: ClassVar[bool] = False

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next ``n`` words; they cannot be drawn again."""
        if n < MANY_WORDS:
            return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)
        from dpdist.kernels.stream_cipher import KEY_BYTES, stream_words  # needs a compiler: only where it pays

        return stream_words(os.urandom(KEY_BYTES), n)


class StreamBits:
    """Reproducible words for simulations and tests.

    Parameters
    ----------
    source : Stream or numpy.random.Generator
        A stream stands for its block 0.

    Examples
    --------
    >>> stream = Stream(bytes(32), "example")
    >>> bool((StreamBits(stream).words(4) == StreamBits(stream.generator(0)).words(4)).all())
    True
    """

    simulated: ClassVar[bool] = True

    def __init__(self, source: Stream | np.random.Generator) -> None:
        self._generator = source.generator(0) if isinstance(source, Stream) else source

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next ``n`` words of the stream."""
        # The full range makes NumPy hand out its generator's 64-bit words unchanged, whatever the bit generator.
        return self._generator.integers(0, 2**64 - 1, size=n, dtype=np.uint64, endpoint=True)
