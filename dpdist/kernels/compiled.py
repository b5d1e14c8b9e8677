"""How kernels are compiled: without the GIL, kept on disk where there is a place for it.

Steps are inlined into kernels of other modules. Numba looks only at the file of a kernel itself before it takes code
from its cache, so that a step that was changed would go on as it was; here the files of all kernels and losses count.

What a first fit waits for is compiling. So a kernel allocates nothing (its caller gives it scratch), makes no other
shape of an array, and copies arrays number by number: for each of the three numba compiles what its errors say about
shapes, two seconds of it. Callers give the same types always (`dpdist.kernels.block_pass.writable`).
"""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

import dpdist.losses

FOLDERS = (Path(__file__).parent, Path(dpdist.losses.__file__).parent)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on first use; later processes find the code in numba's cache.

    Where neither the package's folder nor the user's cache folder can be written (a read-only container), it is
    compiled anew in each process, unless ``NUMBA_CACHE_DIR`` names a place.
    """
    return _compiled(function)


def inlined_kernel(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for a step that is called once per block: its code goes into the caller."""
    return _compiled(function, inline="always")


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"nogil": True, "error_model": "numpy"}
    options |= {"no_cfunc_wrapper": True}  # nobody passes kernels on as values, and it takes a tenth of the time
    try:
        found = njit(cache=True, **options)(function)
    except RuntimeError:  # numba's "no locator available"
        return njit(**options)(function)
    found._cache._cache_file._source_stamp = SOURCES
    return found


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The names of our functions that are compiled in here, rather than found in the cache."""
    names: list[str] = []
    with event.install_recorder("numba:compile") as recorded:
        yield names
    functions = [found.data["dispatcher"].py_func for _, found in recorded.buffer if found.is_start]
    names += [f"{f.__module__}.{f.__name__}" for f in functions if f.__module__.startswith("dpdist.")]


def sources() -> int:
    """A checksum of every file that compiled code is made of; not their times, which the layer of an image rounds."""
    files = sorted(file for folder in FOLDERS for file in folder.glob("*.py"))
    return functools.reduce(lambda known, file: zlib.crc32(file.name.encode() + file.read_bytes(), known), files, 0)


SOURCES = sources()
