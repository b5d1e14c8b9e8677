"""How kernels are compiled: without the GIL, kept on disk where there is a place for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


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
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba's "no locator available"
        return njit(**options)(function)
