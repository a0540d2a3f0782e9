"""Types of the arguments that a kernel is compiled for ahead of its first call."""

from __future__ import annotations

from typing import Any

from numba import config
from numba.core import types

INT64: Any = types.int64

_TYPES: dict[str, Any] = {
    "i1": types.int8,
    "i2": types.int16,
    "i4": types.int32,
    "i8": types.int64,
    "u1": types.uint8,
    "u2": types.uint16,
    "u4": types.uint32,
    "u8": types.uint64,
    "f4": types.float32,
    "f8": types.float64,
}


def array_type(dtype: str, n_dimensions: int = 1, *, written: bool = False) -> Any:
    """Return the type of a contiguous array, which the kernel only reads unless it is `written`.

    Parameters
    ----------
    dtype
        As NumPy names it: "i4", "u8", "f8", ...
    n_dimensions
    written
    """
    return types.Array(_TYPES[dtype], n_dimensions, "C", readonly=not written)


def kept_in() -> str:
    """Return the folder that Numba is told to keep compiled code in; empty where it chooses one by itself."""
    folder: str = getattr(config, "CACHE_DIR", "")
    return folder
