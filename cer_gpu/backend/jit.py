"""Compilation of kernels: without the GIL, cached on disk, and without reference counts on arrays.

Numba counts references to arrays wherever a helper is inlined with arrays as arguments; in the automaton's loop that
costs ten times the work itself.  Kernels here allocate nothing and return no arrays, so the counts are not needed.
The flag that leaves them out is not documented; only this module uses it, and a test holds that it works.  If a
release of Numba refuses it, the kernels are compiled without it: slower, with the same results.

Numba caches a compiled kernel until the file that defines it changes; but helpers are inlined from other
files, and codes of tables come from `cer_gpu.automaton.encoding`.  Therefore the stamp by which it knows the file is
made one of the contents of all these files.

The cache is machine code, and read by pickle: a folder, or a file, that others can change is not read.

Modules of an archive, which Spark copies to another path for each application, are cached by the digest of the sources
alone.  One of several processes that need a kernel at once compiles it, and the others wait for what it saves.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

from llvmlite import ir
from numba import njit
from numba.core import cgutils, config, event, types
from numba.core.caching import IndexDataCacheFile, _CacheLocator
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from cer_gpu.backend.prebuilt import FOLDER, Prebuilt
from cer_gpu.cache import cache_folder
from cer_gpu.compile_progress import COMPILE_PROGRESS, CompileProgress, CompileStep
from cer_gpu.printable import printable
from cer_gpu.private_files import open_to_append, replacing, why_not_private

try:
    import fcntl
except ImportError:  # Windows: processes that start at once compile the same kernels
    fcntl = None  # type: ignore[assignment]

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
    is a digest of sources and types, and the index names it only once it is there.  If files cannot be locked, two
    processes may write the index at once, and one of them leaves out the other's kernel, which is compiled again.

    Nothing is read from a folder or a file that others can change, and what is damaged is compiled again.
    """

    _is_locked = False

    def save(self, key: Any, data: Any) -> None:
        """Save the machine code for a key (types of arguments, processor and bytecode)."""
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).hexdigest()[:16]
        name = self._data_name_pattern.format(number=int(digest, 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})

    def load(self, key: Any) -> Any:
        """Return the machine code for a key from the cache of this machine, else from the package.

        If there is none, the caller compiles it, and other processes wait for it until `release`.
        """
        before = self._index_version()
        stored = self._find(key)
        if stored is None and not self._is_locked:
            self._is_locked = _LOCKS.lock(self._cache_path, self._index_name)
            if self._index_version() != before:  # another process has saved one meanwhile
                stored = self._find(key)
        return stored

    def release(self) -> None:
        """Let other processes load the kernel, or compile it if it was not saved."""
        if self._is_locked:
            self._is_locked = False
            _LOCKS.unlock(self._cache_path, self._index_name)

    def _index_version(self) -> tuple[int, int] | None:
        try:
            of = os.stat(self._index_path)
        except OSError:
            return None
        return of.st_ino, of.st_mtime_ns

    def _find(self, key: Any) -> Any:
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


class _Locks:
    """Locks of kernels that are being compiled, on bytes of one file in each folder of the cache.

    A lock belongs to a process and ends with it.  Numba compiles on one thread at a time, and kernels lock the kernels
    that they call, never the other way round.
    """

    def __init__(self) -> None:
        self._files: dict[str, IO[bytes]] = {}  # closing any of them would end all locks on it

    def lock(self, folder: str, name: str) -> bool:
        """Wait for the lock of a kernel; return False if it cannot be had."""
        if fcntl is None:
            return False
        until = time.monotonic() + MAX_LOCK_SECONDS
        with contextlib.suppress(OSError):  # a file system without locks, or a folder that cannot be written
            if folder not in self._files:
                self._files[folder] = open_to_append(os.path.join(folder, LOCK_FILE))
            while time.monotonic() < until:
                try:
                    fcntl.lockf(self._files[folder], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte_of(name))
                    return True
                except (BlockingIOError, PermissionError):
                    time.sleep(LOCK_POLL_SECONDS)
        return False

    def unlock(self, folder: str, name: str) -> None:
        """End the lock of a kernel."""
        with contextlib.suppress(OSError):
            fcntl.lockf(self._files[folder], fcntl.LOCK_UN, 1, _byte_of(name))

    def close(self) -> None:
        """End all locks."""
        for file in self._files.values():
            file.close()
        self._files.clear()


LOCK_FILE = "compiling.lock"
MAX_LOCK_SECONDS = 300.0
"""Seconds after which a process compiles a kernel although another one seems to."""
LOCK_POLL_SECONDS = 0.05
_LOCKS = _Locks()
atexit.register(_LOCKS.close)


def _byte_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little")


class ArchiveLocator(_CacheLocator):
    """Numba's locator of cache folders, for modules that are no files: in archives, and whatever Python can import.

    The folder depends on the sources of the kernels, and not on the path of the archive.
    """

    def __init__(self, function: Any) -> None:
        self._line = function.__code__.co_firstlineno
        base = numba_cache_folder() or str(cache_folder("loops"))
        self._folder = os.path.join(base, f"archive-{STAMP[:16]}", *function.__module__.split(".")[2:-1])

    def get_cache_path(self) -> str:
        """Return the folder that caches the kernels of a package."""
        return self._folder

    def get_source_stamp(self) -> str:
        """Return the digest of the sources of all kernels."""
        return STAMP

    def get_disambiguator(self) -> str:
        """Return what distinguishes functions of one name in a module."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> ArchiveLocator | None:
        """Return the locator of a function, or None if its folder cannot be written."""
        locator = cls(py_func)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator


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
    with _located(function):
        try:
            compiled = _compiled(function, options)
        except (OSError, RuntimeError):  # Numba knows no folder that can be written
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
            _use_cache_file(compiled)
    return compiled


def _use_cache_file(compiled: Any) -> None:
    """Let a kernel cache its machine code in a `CacheFile`, which no other process compiles meanwhile."""
    numbas = compiled._cache._cache_file
    file = compiled._cache._cache_file = CacheFile(numbas._cache_path, numbas._index_name[:-4], STAMP)
    compile_kernel = compiled.compile

    def compile_once(signature: Any) -> Any:
        try:
            return compile_kernel(signature)
        finally:
            file.release()

    compiled.compile = compile_once


@contextlib.contextmanager
def _located(function: _Function) -> Iterator[None]:
    """Let Numba cache a function of an archive by `ArchiveLocator`, and others by its own locators."""
    settings: Any = config  # its stubs do not know this one
    if os.path.exists(function.__code__.co_filename):
        yield
        return
    before = settings.CACHE_LOCATOR_CLASSES
    settings.CACHE_LOCATOR_CLASSES = f"{__name__}.{ArchiveLocator.__name__}"
    try:
        yield
    finally:
        settings.CACHE_LOCATOR_CLASSES = before


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
