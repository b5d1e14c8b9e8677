"""Is an un-noised number anywhere it must not be? Exact sums that are known, looked for in every file.

The sums are looked for as int64 (in units of the grid) and as float64, in both byte orders, and as decimal text, of all
rows and of every shard and partition; and single rows as bytes. What is compressed cannot be looked into: the settings
under test write nothing, and nothing is what is asserted.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PRECISE = 9
"""Digits of a decimal text that can be no coincidence, beside the noise of the releases."""


@dataclass(frozen=True)
class Secrets:
    """Byte strings that must not be found, each with its meaning."""

    needles: dict[bytes, str]

    def found_in(self, folder: Path, skip: Iterable[Path] = ()) -> list[str]:
        """Where they are: every file below ``folder``, but the dataset itself."""
        skipped, pattern = [path.resolve() for path in skip], re.compile(b"|".join(map(re.escape, self.needles)))
        hits = []
        for path in sorted(folder.rglob("*")):
            real = path.resolve()
            if not path.is_file() or any(real.is_relative_to(place) for place in skipped):
                continue
            for match in pattern.finditer(path.read_bytes()):
                hits.append(f"{path.relative_to(folder)}: {self.needles[match[0]]}")
        return hits


def secrets_of(sums: dict[str, NDArray[np.int64]], grid: float, rows: NDArray[np.float64], n_rows: int) -> Secrets:
    """What a reader could do harm with: named exact sums in units of the grid, and rows."""
    needles: dict[bytes, str] = {}
    for name, units in sums.items():
        for j, unit in enumerate(units.tolist()):
            assert abs(unit) > 2**36, "a small number would be found by chance"
            for kind, needle in _spellings(unit, grid, n_rows):
                needles[needle] = f"{name}[{j}] as {kind}"
    for i, row in enumerate(rows):
        needles[np.ascontiguousarray(row, "<f8").tobytes()] = f"a row ({i})"
    return Secrets(needles)


def _spellings(unit: int, grid: float, n_rows: int) -> Iterator[tuple[str, bytes]]:
    values = {"sum": unit * grid, "mean": unit * grid / n_rows, "units": float(unit)}
    for order in "<>":
        yield "int64", struct.pack(f"{order}q", unit)
        for name, value in values.items():
            yield f"float64 {name}", struct.pack(f"{order}d", value)
    yield "decimal units", str(unit).lstrip("-").encode()
    for name in ("sum", "mean"):
        for digits in (PRECISE, 17):
            text = f"{abs(values[name]):.{digits}g}"
            if len(text.replace(".", "").lstrip("0")) >= PRECISE - 1:
                yield f"decimal {name}", text.encode()
