"""Prefixes of long codes, of which the server looks at a list of candidates only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.randomisers.hashing import OLH
from dpdist.local.statistics.categories import whole_numbers
from dpdist.local.survey.protocol import Block, Domain, LocalProtocol, Statistic
from dpdist.privacy.randomness.draws import Draws


def text_codes(texts: NDArray[Any], n_bits: int) -> NDArray[np.int64]:
    """A number of ``n_bits`` bits for each string: the first bits of BLAKE2b (Aumasson et al. 2013) of its UTF-8 bytes.

    What is no string (a missing value) gives -1.

    >>> text_codes(np.array(["apple", "pear", "apple"]), 16)
    array([38414, 32864, 38414])
    """
    known: dict[Any, int] = {}
    for text in set(texts.tolist()):
        if isinstance(text, str):
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            known[text] = int.from_bytes(digest, "big") >> (64 - n_bits)
    return np.fromiter((known.get(text, -1) for text in texts.tolist()), dtype=np.int64, count=len(texts))


@dataclass(frozen=True)
class Prefix(Statistic):
    """The first ``length`` of the ``n_bits`` bits of a user's code.

    A code is a whole number below ``2**n_bits``, or a string by `text_codes`; anything else is a null record.

    Examples
    --------
    >>> Prefix(8, 3).values({"X": np.array([0b10111111, 7, 256])})
    array([ 5,  0, -1])
    """

    tag: ClassVar[str] = "Prefix"

    n_bits: int
    length: int

    domain: ClassVar[Domain] = "category"

    @property
    def size(self) -> int:
        return 1 << self.length

    @property
    def two_categories(self) -> tuple[int, int]:
        return 0, (1 << self.n_bits) - 1

    def values(self, block: Block, state: Any = None) -> NDArray[np.int64]:
        """int64, -1 for what is no code."""
        X = block["X"].reshape(len(block["X"]))
        codes = text_codes(X, self.n_bits) if X.dtype.kind in "UT" else whole_numbers(X, 1 << self.n_bits)
        return codes >> (self.n_bits - self.length)


@dataclass(frozen=True)
class CandidateProtocol(LocalProtocol):
    """A question whose state is the array of candidates: the server counts which reports support each of them.

    What a user reports does not depend on the candidates.
    """

    tag: ClassVar[str] = "CandidateProtocol"

    randomiser: OLH

    def accumulate(self, reports: NDArray[Any], state: Any = None) -> NDArray[np.int64]:
        """Supporters of every candidate."""
        return self.randomiser.support(reports, state)

    def summarise(self, block: Block, draws: Draws, state: Any = None) -> NDArray[np.int64]:
        """Supporters of every candidate among the reports of a block of users."""
        return self.accumulate(self.randomise(block, draws), state)
