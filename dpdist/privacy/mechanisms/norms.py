"""Norms in which a sensitivity is measured: 1, 2 and inf of a vector, and those of the symmetric matrix that it packs.

A packed matrix is its upper triangle row by row, each entry once (`dpdist.kernels.moments`). Its l2 norm as a vector is
not the norm of the matrix, in which the entries off the diagonal count twice; so a matrix norm is a number of another
kind, which equals no vector norm.

>>> FROBENIUS == 2, FROBENIUS == Schatten(2), FROBENIUS
(False, True, Schatten(2))
"""

from __future__ import annotations


class Schatten(float):
    """The p-norm of the eigenvalues of a packed symmetric matrix."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schatten) and float(self) == float(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Schatten, float(self)))

    def __repr__(self) -> str:
        return f"Schatten({float(self):g})"


FROBENIUS = Schatten(2)
"""The root of the sum of the squares of all entries of the matrix."""
NUCLEAR = Schatten(1)
"""The sum of the sizes of the eigenvalues."""


def name_of(norm: float) -> str:
    """In words.

    >>> name_of(2), name_of(NUCLEAR)
    ('the l2 norm of a vector', 'the nuclear norm of a symmetric matrix')
    """
    if not isinstance(norm, Schatten):
        return f"the l{norm:g} norm of a vector"
    known = {FROBENIUS: "Frobenius", NUCLEAR: "nuclear"}
    return f"the {known.get(norm, repr(norm))} norm of a symmetric matrix"
