"""How kernels are compiled: without the GIL, kept on disk, and without reference counts on arrays.

Numba counts references to arrays wherever a helper is inlined with arrays as arguments; in the automaton's loop that
costs ten times the work itself.  Kernels here allocate nothing and return no arrays, so the counts are not needed.
The flag that leaves them out is not documented; it stands here alone, a test holds that it works, and where a
release of Numba should refuse it the kernels are compiled without it: slower, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

Function = Callable[..., Any]

_njit: Any = njit  # its stubs do not know all that it takes
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


def kernel(function: Function) -> Function:
    """Compile a function that loops over arrays; it must not allocate or return arrays."""
    try:
        return _njit(_nrt=False, **_OPTIONS)(function)  # type: ignore[no-any-return]
    except (KeyError, TypeError):
        return _njit(**_OPTIONS)(function)  # type: ignore[no-any-return]


def helper(function: Function) -> Function:
    """Compile a part of kernels, inlined where it is called."""
    return _njit(inline="always")(function)  # type: ignore[no-any-return]
