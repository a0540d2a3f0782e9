"""Compilation of kernels: without the GIL, kept on disk, and without reference counts on arrays.

Numba counts references to arrays wherever a helper is inlined with arrays as arguments; in the automaton's loop that
costs ten times the work itself.  Kernels here allocate nothing and return no arrays, so the counts are not needed.
The flag that leaves them out is not documented; only this module uses it, and a test holds that it works.  If a
release of Numba refuses it, the kernels are compiled without it: slower, with the same results.

Numba keeps a compiled kernel for as long as the file that it stands in is the same; but helpers are inlined from other
files, and codes of tables come from `cer_gpu.automaton.encoding`.  Therefore the stamp by which it knows the file is
made one of the contents of all these files.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile

Function = Callable[..., Any]

_njit: Any = njit  # its stubs do not know all that it takes
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def source_stamp(folder: Traversable, *others: Traversable) -> str:
    """Return a digest of all modules of a folder, or of an archive, and of other files."""
    digest = hashlib.sha256()
    for path in (*_modules(folder), *others):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _modules(folder: Traversable) -> Iterator[Traversable]:
    """Yield the modules in a folder and in the folders within, in an order that depends on their names alone."""
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.name.endswith(".py"):
            yield path
        elif path.is_dir():
            yield from _modules(path)


_STAMP = source_stamp(files("cer_gpu.backend"), files("cer_gpu.automaton") / "encoding.py")


class CacheFile(IndexDataCacheFile):
    """The index and the machine code of one kernel on disk, safe where several processes compile at the same time.

    Numba numbers the files of machine code and writes the index before them: a process could load what another one
    wrote for other types of arguments, or what an earlier version of the sources left there.  Here the name of a file
    is a digest of sources and types, and the index names it only once it is there.  If two processes write the index
    at once, one of them leaves out the other's kernel, which is then compiled again.
    """

    def save(self, key: Any, data: Any) -> None:
        """Save the machine code for a key (types of arguments, processor and bytecode)."""
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).hexdigest()[:16]
        name = self._data_name_pattern.format(number=int(digest, 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


def kernel(function: Function, *, keep: bool = True) -> Function:
    """Compile a function that loops over arrays; it must not allocate or return arrays.

    Parameters
    ----------
    function
    keep
        True to keep it on disk.
    """
    # forceinline is set here: a kernel that a helper calls would inherit it from the helper
    compiled = _compiled(function, {**_OPTIONS, "cache": keep, "forceinline": False})
    with contextlib.suppress(AttributeError):
        cache = compiled._cache  # type: ignore[attr-defined]
        cache._cache_file = CacheFile(cache._cache_file._cache_path, cache._cache_file._index_name[:-4], _STAMP)
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
    would be typed anew at each call.  A long function that is seldom called is better a kernel: the machine code of a
    helper stands once for each call.
    """
    return _compiled(function, {**_OPTIONS, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def _compiled(function: Function, options: dict[str, Any]) -> Function:
    try:
        compiled: Function = _njit(_nrt=False, **options)(function)
    except (KeyError, TypeError):
        compiled = _njit(**options)(function)
    return compiled
