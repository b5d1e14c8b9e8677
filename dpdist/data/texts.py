"""Stored texts whose number is checked before they are decoded.

The codecs of variable-length values trust the count at the head of a chunk and make room for it before they read on: a
damaged or hostile chunk of a few bytes asks for up to 34 GB. Every value takes four bytes at least, so the length of
the chunk bounds the count.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import zarr
from numcodecs.vlen import VLenBytes, VLenUTF8
from zarr.codecs import ShardingCodec, VLenBytesCodec, VLenUTF8Codec
from zarr.core.array import AsyncArray

_LENGTH = 4
"""Bytes of a count, and of the length of each value."""


def counted(array: zarr.Array) -> zarr.Array:
    """The same array, in whose chunks a count that cannot be true is a `ValueError`; itself where there is no count."""
    metadata: Any = array.metadata
    if hasattr(metadata, "codecs"):
        codecs = tuple(map(_checked, metadata.codecs))
        if codecs == tuple(metadata.codecs):
            return array
        checked = copy.copy(metadata)
        object.__setattr__(checked, "codecs", codecs)  # its constructor knows Zarr's own codecs by their class
    else:
        filters = metadata.filters or ()
        if not any(type(codec) in _CHECKED_FILTERS for codec in filters):
            return array
        checked = replace(
            metadata, filters=tuple(_CHECKED_FILTERS[type(f)]() if type(f) in _CHECKED_FILTERS else f for f in filters)
        )
    return zarr.Array(AsyncArray(checked, array.store_path))


def _check(chunk: Any) -> None:
    data = memoryview(chunk).cast("B")
    if len(data) < _LENGTH or _LENGTH * int.from_bytes(data[:_LENGTH], "little") > len(data) - _LENGTH:
        raise ValueError("the count of a chunk of texts is not theirs")


class _CountedTexts(VLenUTF8):
    def decode(self, buf: Any, out: Any = None) -> Any:
        _check(buf)
        return super().decode(buf, out=out)


class _CountedBytes(VLenBytes):
    def decode(self, buf: Any, out: Any = None) -> Any:
        _check(buf)
        return super().decode(buf, out=out)


_CHECKED_FILTERS = {VLenUTF8: _CountedTexts, VLenBytes: _CountedBytes}


@dataclass(frozen=True)
class _CountedTextsCodec(VLenUTF8Codec):
    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _check(chunk_bytes.as_array_like())
        return super()._decode_sync(chunk_bytes, chunk_spec)


@dataclass(frozen=True)
class _CountedBytesCodec(VLenBytesCodec):
    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _check(chunk_bytes.as_array_like())
        return super()._decode_sync(chunk_bytes, chunk_spec)


def _checked(codec: Any) -> Any:
    if type(codec) is VLenUTF8Codec:
        return _CountedTextsCodec()
    if type(codec) is VLenBytesCodec:
        return _CountedBytesCodec()
    if isinstance(codec, ShardingCodec):
        inner = tuple(map(_checked, codec.codecs))
        return codec if inner == tuple(codec.codecs) else replace(codec, codecs=inner)
    return codec
