"""How kernels are compiled: without the GIL, kept on disk, and without reference counts on arrays.

Numba counts references to arrays wherever a helper is inlined with arrays as arguments; in the automaton's loop that
costs ten times the work itself.  Kernels here allocate nothing and return no arrays, so the counts are not needed.
The flag that leaves them out is not documented; it stands here alone, a test holds that it works, and where a
release of Numba should refuse it the kernels are compiled without it: slower, with the same results.

Numba keeps a compiled kernel for as long as the file that it stands in is the same; but helpers are inlined from other
files, and codes of tables come from `cer_gpu.automaton.encoding`.  Therefore the stamp by which it knows the file is
made one of the contents of all these files.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from numba import njit

Function = Callable[..., Any]

_njit: Any = njit  # its stubs do not know all that it takes
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def source_stamp(folder: Traversable, *others: Traversable) -> str:
    """Return a digest of all modules of a folder, or of an archive, and of other files."""
    digest = hashlib.sha256()
    modules = sorted((p for p in folder.iterdir() if p.name.endswith(".py")), key=lambda p: p.name)
    for path in (*modules, *others):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_STAMP = source_stamp(files("cer_gpu.backend"), files("cer_gpu.automaton") / "encoding.py")


def kernel(function: Function, *, keep: bool = True) -> Function:
    """Compile a function that loops over arrays; it must not allocate or return arrays.

    Parameters
    ----------
    function
    keep
        Whether to keep it on disk.
    """
    # said, as what a helper calls would inherit it from the helper
    compiled = _compiled(function, {**_OPTIONS, "cache": keep, "forceinline": False})
    with contextlib.suppress(AttributeError):
        compiled._cache._cache_file._source_stamp = _STAMP  # type: ignore[attr-defined]
    return compiled


def is_kept(compiled: Any, signature: tuple[Any, ...]) -> bool:
    """Return whether a kernel stands on disk for arguments of these types (False where Numba does not tell)."""
    try:
        cache = compiled._cache
        key = cache._index_key(signature, compiled.targetctx.codegen())
        return key in cache._cache_file._load_index()
    except (AttributeError, TypeError, OSError):
        return False


def helper(function: Function) -> Function:
    """Compile a part of kernels, which LLVM inlines where it is called.

    Numba types it once for all calls with the same types of arguments; inlined by Numba itself (``inline="always"``) it
    would be typed anew at each call.  What is long and seldom called is better a kernel: the machine code of a helper
    stands once for each call.
    """
    return _compiled(function, {**_OPTIONS, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def _compiled(function: Function, options: dict[str, Any]) -> Function:
    try:
        compiled: Function = _njit(_nrt=False, **options)(function)
    except (KeyError, TypeError):
        compiled = _njit(**options)(function)
    return compiled
