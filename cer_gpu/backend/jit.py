"""Compilation of kernels: without the GIL, cached on disk, and without reference counts on arrays.

Numba counts references to arrays wherever a helper is inlined with arrays as arguments; in the automaton's loop that
costs ten times the work itself.  Kernels here allocate nothing and return no arrays, so the counts are not needed.
The flag that leaves them out is not documented; only this module uses it, and a test holds that it works.  If a
release of Numba refuses it, the kernels are compiled without it: slower, with the same results.

Numba caches a compiled kernel until the file that defines it changes; but helpers are inlined from other
files, and codes of tables come from `cer_gpu.automaton.encoding`.  Therefore the stamp by which it knows the file is
made one of the contents of all these files.

The cache is machine code, and read by pickle: a folder, or a file, that others can change is not read.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import cgutils, config, event, types
from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from cer_gpu.backend.prebuilt import FOLDER, Prebuilt
from cer_gpu.cache import cache_folder
from cer_gpu.compile_progress import COMPILE_PROGRESS, CompileProgress, CompileStep
from cer_gpu.printable import printable
from cer_gpu.private_files import replacing, why_not_private

_Function = Callable[..., Any]

_njit: Any = njit  # its stubs do not know all that it takes
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


class Compiling(event.Listener):
    """Listener of Numba's compiler, which reports each kernel and its functions to `COMPILE_PROGRESS`.

    Python looks for cycles of garbage after it has compiled, not while: that would take a tenth of the time.

    Attributes
    ----------
    count : int
        Functions that were compiled so far.
    """

    def __init__(self, progress: CompileProgress = COMPILE_PROGRESS) -> None:
        self.count: int = 0
        self._progress = progress
        self._depth = 0
        self._collects = False
        self._left: list[Any] = []  # functions of the kernel

    def on_start(self, event: Any) -> None:
        """Note the begin of a compilation, perhaps within another."""
        if self._depth == 0:
            self._collects = gc.isenabled()
            gc.disable()
            compiled = event.data["dispatcher"]
            on_disk = getattr(getattr(compiled, "_cache", None), "cache_path", None) is not None
            self._left = _functions_of(compiled)
            self._progress.begin(CompileStep(compiled.__name__, len(self._left), len(self._left), on_disk))
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Note the end of a compilation."""
        self.count += 1
        self._depth -= 1
        if self._depth == 0:
            self._progress.end()
            if self._collects:
                gc.enable()
        elif event.data["dispatcher"] in self._left:  # the first time; other types of arguments may follow
            self._left.remove(event.data["dispatcher"])
            self._progress.go_on(len(self._left))


def _functions_of(compiled: Any) -> list[Any]:
    """Return a kernel, and the helpers that it calls, itself or by others, and that are not compiled yet."""
    functions = [compiled]
    with contextlib.suppress(TypeError, ValueError):  # another release of Numba
        for function in functions:
            of = inspect.getclosurevars(function.py_func)
            for value in (*of.globals.values(), *of.nonlocals.values()):
                if isinstance(value, Dispatcher) and value not in functions and not value.overloads:
                    functions.append(value)
    return functions


COMPILING = Compiling()
with contextlib.suppress(AttributeError, ValueError):  # another release of Numba
    event.register("numba:compile", COMPILING)


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


STAMP = source_stamp(files("cer_gpu.backend"), files("cer_gpu.automaton") / "encoding.py")
"""Digest of the sources of all kernels."""


PREBUILT = Prebuilt(FOLDER, STAMP)


class CacheFile(IndexDataCacheFile):
    """The index and the machine code of one kernel on disk, safe where several processes compile at the same time.

    Numba numbers the files of machine code and writes the index before them: a process could load what another one
    wrote for other types of arguments, or what an earlier version of the sources left there.  Here the name of a file
    is a digest of sources and types, and the index names it only once it is there.  If two processes write the index
    at once, one of them leaves out the other's kernel, which is then compiled again.

    Nothing is read from a folder or a file that others can change, and what is damaged is compiled again.
    """

    def save(self, key: Any, data: Any) -> None:
        """Save the machine code for a key (types of arguments, processor and bytecode)."""
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).hexdigest()[:16]
        name = self._data_name_pattern.format(number=int(digest, 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})

    def load(self, key: Any) -> Any:
        """Return the machine code for a key from the cache of this machine, else from the package."""
        cached = super().load(key)
        return PREBUILT.load(self._index_name.removesuffix(".nbi"), key) if cached is None else cached

    def _load_index(self) -> Any:
        """Return the index; empty where it is damaged, or names a type that these sources do not define."""
        try:
            return super()._load_index() if self._is_own(self._index_path) else {}
        except Exception:  # pickle raises whatever damaged bytes lead to
            return {}

    def _load_data(self, name: str) -> Any:
        path = self._data_path(name)
        try:
            return super()._load_data(name) if self._is_own(path) else None
        except Exception:
            return None

    def _is_own(self, path: str) -> bool:
        try:
            return is_private(self._cache_path) and why_not_private(path) is None
        except OSError:
            return False

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        """Yield a file that only its user can change, whatever the umask lets the group do; no signal leaves a part."""
        with replacing(Path(filepath), 0o644, durable=False) as file:
            yield file


@lru_cache(64)
def is_private(folder: str) -> bool:
    """Return whether no other user can write to a folder; if one can, a line says so, once."""
    try:
        why = why_not_private(folder)
    except OSError:
        return False
    if why is not None:
        sys.stderr.write(f"note: {printable(folder)}: compiled code is not read from this folder, which {why}\n")
    return why is None


def kernel(function: _Function, *, keep: bool = True) -> _Function:
    """Compile a function that loops over arrays; it must not allocate or return arrays.

    Parameters
    ----------
    function
    keep
        True to keep it on disk.
    """
    # forceinline is set here: a kernel that a helper calls would inherit it from the helper
    options = {**_OPTIONS, "cache": keep, "forceinline": False, "no_cfunc_wrapper": True}
    try:
        compiled = _compiled(function, options)
    except RuntimeError:  # Numba knows no folder that can be written
        try:
            with _another_folder():
                compiled = _compiled(function, options)
        except (OSError, RuntimeError):  # there is none at all
            compiled = _compiled(function, {**options, "cache": False})
    with contextlib.suppress(AttributeError):
        folder = compiled._cache.cache_path  # type: ignore[attr-defined]
        if folder is not None and not is_private(folder):
            with contextlib.suppress(OSError, RuntimeError), _another_folder():
                compiled = _compiled(function, options)
        cache = compiled._cache  # type: ignore[attr-defined]
        cache._cache_file = CacheFile(cache._cache_file._cache_path, cache._cache_file._index_name[:-4], STAMP)
    return compiled


@contextlib.contextmanager
def _another_folder() -> Iterator[None]:
    """Let Numba keep kernels in a folder of this package's own, perhaps one of temporary files."""
    settings: Any = config  # its stubs do not know this one
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_folder("loops"))
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def folder_of(compiled: Any) -> str:
    """Return the folder that caches a kernel and those of other modules, each in a folder within."""
    folder: str = os.path.dirname(compiled.stats.cache_path)
    return folder


def is_cached(compiled: Any, signature: tuple[Any, ...]) -> bool:
    """Return whether a kernel is cached on disk for arguments of these types (False if Numba does not report it)."""
    try:
        cache = compiled._cache
        key = cache._index_key(signature, compiled.targetctx.codegen())
        return key in cache._cache_file._load_index()
    except (AttributeError, TypeError, OSError):
        return False


def helper(function: _Function) -> _Function:
    """Compile a part of kernels, which LLVM inlines where it is called.

    Numba types it once for all calls with the same types of arguments (`_widened`); inlined by Numba itself
    (``inline="always"``) it would be typed anew at each call.  A long function that is seldom called is better a
    kernel: the machine code of a helper is repeated for each call.
    """
    return _compiled(function, {**_OPTIONS, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def _compiled(function: _Function, options: dict[str, Any]) -> _Function:
    try:
        compiled: Any = _njit(_nrt=False, **options)(function)
    except (KeyError, TypeError):
        compiled = _njit(**options)(function)
    with contextlib.suppress(AttributeError):
        resolve = compiled.get_call_template
        compiled.get_call_template = lambda args, kws: resolve([*map(_widened, args)], kws)
    return compiled  # type: ignore[no-any-return]


def _widened(argument: Any) -> Any:
    """Return the type that a compiled function takes an argument as when another one calls it.

    Numba compiles for each literal, and for each width of a number by itself; here all integers with a sign are int64.
    """
    argument = types.unliteral(argument)
    return types.int64 if argument in types.signed_domain else argument


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


def _fetch(typing: Any, array: Any, row: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(array.strides, 0)
        address = builder.add(builder.ptrtoint(array.data, ir.IntType(64)), builder.mul(stride, arguments[1]))
        pointer = builder.inttoptr(address, cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(array, types.int64), generate


fetch: Any = intrinsic(_fetch)
"""``fetch(array, row)`` lets the processor fetch the beginning of a row, without waiting; it may be beyond all."""


def numba_cache_folder() -> str:
    """Return the folder in which Numba is configured to cache compiled code, or "" if it chooses one by itself."""
    folder: str = getattr(config, "CACHE_DIR", "")
    return folder
