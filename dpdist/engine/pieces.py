"""Ranges of rows: aligned to what is read together, and long rounds in pieces, to have something to tell meanwhile.

Everything here is a function of public numbers (rows, partitions, worker threads), so that what is told between the
pieces tells nothing about the rows.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

Range = tuple[int, int]

PIECES = 20
LONG = 2**20
"""Rounds over more rows than this are asked in pieces."""
JOINED_BYTES = 2**22
LEAST_RANGES = 8
"""Of a thread, so that a fold has some for each."""


def aligned(partitions: Sequence[Range], align: int) -> list[Range]:
    """The partitions with their inner borders moved down to multiples of ``align``."""
    if align == 1:
        return list(partitions)
    n = max(stop for _, stop in partitions)
    edges = sorted({start - start % align for start, _ in partitions} | {n})
    return list(itertools.pairwise(edges))


def cut(ranges: Sequence[Range], align: int, n_threads: int) -> list[Range]:
    """The ranges in smaller ones where needed, so that each of 20 pieces of all rows has some for every thread.

    The new borders are multiples of ``align``.

    Examples
    --------
    >>> len(cut([(0, 3 * 2**20), (3 * 2**20, 4 * 2**20)], 4096, 2)), cut([(0, 1000)], 1, 2)
    (41, [(0, 1000)])
    """
    n = max(stop for _, stop in ranges)
    if n <= LONG:
        return list(ranges)
    step = -(-n // (PIECES * n_threads * align)) * align
    borders = {row for start, stop in ranges if stop - start > step for row in range(0, stop, step) if row > start}
    return list(itertools.pairwise(sorted({edge for each in ranges for edge in each} | borders)))


def joined(ranges: Sequence[Range], row_bytes: int, n_threads: int) -> list[Range]:
    """Neighbouring ranges as one, up to 4 MiB, where that leaves each thread several: a round then asks fewer of them.

    Examples
    --------
    >>> joined([(0, 10), (10, 20), (20, 30), (30, 40)], 8, 1), len(joined([(i, i + 1) for i in range(1000)], 400, 2))
    ([(0, 10), (10, 20), (20, 30), (30, 40)], 17)
    """
    most = min(JOINED_BYTES // max(1, row_bytes), max(stop for _, stop in ranges) // (LEAST_RANGES * n_threads))
    found: list[Range] = []
    for start, stop in ranges:
        if found and found[-1][1] == start and stop - found[-1][0] <= most:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return found


def pieces_of(ranges: Sequence[Range], start: int, stop: int) -> list[Range]:
    """The rows ``start:stop`` in at most 20 pieces, cut at borders of the ranges; in one if they are few.

    Examples
    --------
    >>> ranges = [(i * 2**20, (i + 1) * 2**20) for i in range(3)]
    >>> pieces_of(ranges, 0, 1000), pieces_of(ranges, 5, 3 * 2**20 - 1)
    ([(0, 1000)], [(5, 1048576), (1048576, 2097152), (2097152, 3145727)])
    """
    n = stop - start
    if n <= LONG:
        return [(start, stop)]
    edges = sorted(edge for edge, _ in ranges if start < edge < stop)
    wanted = (bisect.bisect_left(edges, start + n * i // PIECES) for i in range(1, PIECES))
    inner = {edges[i] for i in wanted if i < len(edges)}
    return list(itertools.pairwise([start, *sorted(inner), stop]))
