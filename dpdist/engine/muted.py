"""Foreign code in a task must not be heard: what it prints or warns of depends on the rows."""

from __future__ import annotations

import sys
import threading
import warnings
from types import TracebackType
from typing import Any


class _Mute:
    """A stream that drops what muted threads write."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in _inside else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_lock = threading.Lock()
_inside: dict[int, int] = {}
_before: list[Any] = []


class muted:
    """Nothing that this thread prints is seen, and no thread warns, until the last one has left.

    `warnings.catch_warnings` alone will not do: it changes the filters of all threads and puts them back in the order
    in which threads leave. Text that compiled code writes to the terminal by itself is out of reach.

    >>> with muted():
    ...     print("private")
    """

    def __enter__(self) -> None:
        with _lock:
            if not _inside:
                caught = warnings.catch_warnings()
                caught.__enter__()
                warnings.simplefilter("ignore")
                _before[:] = caught, sys.stdout, sys.stderr
                sys.stdout, sys.stderr = _Mute(sys.stdout), _Mute(sys.stderr)
            me = threading.get_ident()
            _inside[me] = _inside.get(me, 0) + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            me = threading.get_ident()
            _inside[me] -= 1
            if not _inside[me]:
                del _inside[me]
            if not _inside:
                caught, sys.stdout, sys.stderr = _before
                caught.__exit__(None, None, None)
