"""Where the randomness of a report comes from: a stream of a simulation, or a user's own device.

Randomisers (`dpdist.local`) take one of these as an argument, so that a device runs the very code of a simulation.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpdist.privacy.randomness.bits import StreamBits, SystemBits

Shape = int | tuple[int, ...]


class Draws(Protocol):
    """Independent draws of the few laws that randomisers are made of."""

    @property
    def simulated(self) -> bool:
        """True if somebody could reproduce the draws."""

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next ``n`` uniform 64-bit words."""

    def uniforms(self, shape: Shape) -> NDArray[np.float64]:
        """Uniform multiples of 2**-53 in [0, 1)."""

    def normals(self, shape: Shape) -> NDArray[np.float64]:
        """Standard normal numbers."""


class StreamDraws:
    """Draws that belong to one block of users: drawn again, they are the same.

    Parameters
    ----------
    generator : numpy.random.Generator
        Of `dpdist.privacy.randomness.streams.Stream.generator`. It is also there for the sums that are drawn directly
        (binomials, Wishart matrices), which no device ever does.

    Examples
    --------
    >>> from dpdist.privacy.randomness.streams import Stream
    >>> stream = Stream(bytes(32), "example", epsilon=1.0)
    >>> first, again = (StreamDraws(stream.generator(block=3)) for _ in range(2))
    >>> bool((first.normals(4) == again.normals(4)).all())
    True
    """

    simulated: ClassVar[bool] = True

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self._bits = StreamBits(generator)

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next ``n`` words of the stream."""
        return self._bits.words(n)

    def uniforms(self, shape: Shape) -> NDArray[np.float64]:
        """The next uniform numbers of the stream."""
        return self.generator.random(shape)

    def normals(self, shape: Shape) -> NDArray[np.float64]:
        """The next normal numbers of the stream."""
        return self.generator.standard_normal(shape)


class SystemDraws:
    """Draws of the operating system's cryptographic generator: what a device uses.

    Normal numbers are made of one word each by the inverse of their distribution function.

    Examples
    --------
    >>> SystemDraws().normals((2, 3)).shape, SystemDraws.simulated
    ((2, 3), False)
    """

    simulated: ClassVar[bool] = False

    def __init__(self) -> None:
        self._bits = SystemBits()

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next ``n`` words; they cannot be drawn again."""
        return self._bits.words(n)

    def uniforms(self, shape: Shape) -> NDArray[np.float64]:
        """Uniform numbers of 53 bits."""
        n = int(np.prod(shape))
        return (self.words(n) >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53

    def normals(self, shape: Shape) -> NDArray[np.float64]:
        """Normal numbers, from the middles of 2**53 intervals of equal chance."""
        normal: Any = ndtri(self.uniforms(shape) + 2.0**-54)
        return np.asarray(normal, dtype=np.float64)
