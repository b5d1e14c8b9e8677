"""What the machine can do at most: the rulers that benchmarks are held against."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils

from dpdist.kernels.block_pass import _writable
from dpdist.kernels.block_steps import LANES, _fold, _i64, _load, _prefetch, _slots, intrinsic

AT_ONCE = 8
"""Vectors that are added to as many registers in one turn of the loop."""
FETCHED_AHEAD = 4096
"""Bytes between what is added and what is asked for."""


@intrinsic
def _add_all(typingctx: Any, values: Any) -> Any:
    """The sum of a flat array, in any order; what does not fill the last turn is left out."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        (size,) = cgutils.unpack_tuple(builder, array.shape)
        slots, turn = _slots(builder, AT_ONCE), AT_ONCE * LANES
        ahead = FETCHED_AHEAD // (8 if signature.args[0].dtype == types.float64 else 4)
        whole = builder.and_(size, _i64(-turn))
        with cgutils.for_range_slice(builder, _i64(0), whole, _i64(turn), _i64) as (start, _):
            for i, slot in enumerate(slots):
                place = builder.add(start, _i64(i * LANES))
                _prefetch(builder, array.data, builder.add(place, _i64(ahead)))
                builder.store(builder.fadd(builder.load(slot), _load(builder, array.data, place)), slot)
        folded = _fold(builder, [builder.load(slot) for slot in slots])
        return builder.extract_element(folded, _i64(0))

    return types.float64(values), codegen


@njit(nogil=True)
def _read(values):  # type: ignore[no-untyped-def]
    return _add_all(values)


def read_limit(X: np.ndarray) -> float:
    """Read an array once, as fast as one core can: vector loads that are asked for ahead, and one addition each."""
    return float(_read(_writable(X).reshape(-1)))
