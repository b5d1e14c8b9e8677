"""Shared by the tests of stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr


def put(group: zarr.Group, name: str, values: np.ndarray, **options: Any) -> None:
    """Write an array the way other programs do, with zarr's own defaults (any zarr from 3.0.8 on)."""
    array = group.create_array(name, shape=values.shape, dtype=values.dtype, **options)
    array[...] = values
