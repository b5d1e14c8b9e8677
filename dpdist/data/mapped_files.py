"""Parts of files where they lie in the operating system's cache, under a lease that nobody writes to them meanwhile.

A kernel that reads a row twice has to find the same row: its clip factor is that of the first reading. And a file that
is shortened while it is mapped ends the process that reads it. So rows are mapped only while the system keeps writers
away. Linux grants a *read lease* on a file that nobody has open, or mapped, for writing. Whoever wants to open or
shorten it then waits until the lease ends, which it does as soon as one sum over the rows has been formed, or for
`/proc/sys/fs/lease-break-time` (45 seconds). A lease that somebody waits for, or that the system took away, says so:
what was computed under it is thrown away, and computed again of a copy. Not covered is a file that is shortened under
one sum that takes longer than that: it ends the process, whose run resumes.

Leases are for files that one owns, on file systems of this machine alone; where there is none, rows are copied.
"""

from __future__ import annotations

import mmap
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # no Unix
    fcntl: Any = None  # type: ignore[no-redef]

CAN_LEASE = all(hasattr(fcntl, name) for name in ("F_SETLEASE", "F_GETLEASE", "F_SETSIG")) and hasattr(
    mmap, "MAP_POPULATE"
)


class MappedFiles:
    """Those that one computation reads; the leases end when it is over.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, MappedFiles() as files:
    ...     place = Path(folder, "rows")
    ...     _ = place.write_bytes(bytes(range(100)))
    ...     part = files.part(place, 10, 3, size=100)
    ...     part is None or part.tolist() == [10, 11, 12]
    True
    """

    def __init__(self) -> None:
        self._leased: list[tuple[int, mmap.mmap]] = []

    def __enter__(self) -> MappedFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def part(self, place: Path, start: int, n_bytes: int, size: int) -> NDArray[np.uint8] | None:
        """Bytes of a file that has this size, which cannot be written to; None where there is no lease to be had."""
        if not CAN_LEASE or n_bytes == 0:
            return None
        try:
            file = os.open(place, os.O_RDONLY)
        except OSError:
            return None
        try:
            # who waits for the lease is told of to its holder, by a signal that does nothing unless it is asked to
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            if os.fstat(file).st_size != size:
                raise OSError
            before = start % mmap.ALLOCATIONGRANULARITY
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            mapped = mmap.mmap(file, before + n_bytes, flags, mmap.PROT_READ, offset=start - before)
        except (OSError, ValueError):
            os.close(file)
            return None
        self._leased.append((file, mapped))
        return np.frombuffer(mapped, np.uint8, n_bytes, before)

    def end(self) -> bool:
        """End the leases; whether nobody could have written to any part until now, and nobody looks at one any more."""
        kept = True
        for file, mapped in self._leased:
            try:
                kept &= fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_RDLCK
                mapped.close()
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            except (OSError, BufferError):  # where an array of it is still held, the lease goes on as long as that one
                kept = False
            os.close(file)
        self._leased.clear()
        return kept
