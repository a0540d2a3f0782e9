"""Folder of files that one process caches for the next, and atomic writing of files."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

from cer_gpu.printable import printable
from cer_gpu.private_files import replacing, why_not_private

_NAME = "cer-gpu"
_Value = TypeVar("_Value")

WORTH_SECONDS = 0.5
"""Seconds of computation from which on a value is cached."""

MAX_CACHED = 16
"""Maximum number of cached values of a kind: the most recently used."""

_NOTICES = "CER_GPU_NOTICES"
"""Environment variable that leaves out such lines if it is "off"; the same as of `cer_gpu.compile_progress`."""


def cache_folder(part: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder `part` of the user's cache, created if missing.

    Parameters
    ----------
    part
        Name of the folder inside the cache of this package.
    environ
        Environment variables; None for the process's own.

    Returns
    -------
    Path
        Below ``$XDG_CACHE_HOME/cer-gpu``, else ``~/.cache/cer-gpu`` (of ``$HOME``), the first that this user can write
        to, and nobody else; else below a folder of the user's own among the temporary files.

    Notes
    -----
    A folder that others can write to is not used, and a notice says so, once: whoever can move files there could put
    the cached value of one query in place of another.
    """
    environ = os.environ if environ is None else environ
    xdg = environ.get("XDG_CACHE_HOME", "")
    home = environ.get("HOME", "")
    places = []
    if os.path.isabs(xdg):  # XDG specification: ignore a relative path
        places.append(Path(xdg))
    if os.path.isabs(home) and os.path.isdir(home):
        places.append(Path(home, ".cache"))
    for place in places:
        folder = place / _NAME / part
        try:
            if not _is_private(place, may_be_sticky=True):
                continue
            place.mkdir(parents=True, exist_ok=True)
            for each in (folder.parent, folder):
                each.mkdir(mode=0o755, exist_ok=True)  # whatever the umask lets a group do
            if not _is_private(folder.parent) or not _is_private(folder):
                continue
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    folder = _temporary() / part
    folder.mkdir(exist_ok=True)
    return folder


def _is_private(folder: Path, *, may_be_sticky: bool = False) -> bool:
    """Return whether nobody else can change what is in a folder, or it is not there; if anybody can, say so, once.

    In a sticky folder of the superuser's, or of the user's own, others can make files, but move none of the user's.
    """
    if not folder.exists():
        return True
    if may_be_sticky and folder.stat().st_mode & stat.S_ISVTX and _owners(folder) <= {0, os.getuid()}:
        return True
    why = why_not_private(folder)
    if why is not None:
        _say_not_used(folder, why)
    return why is None


def _owners(folder: Path) -> set[int]:
    return {folder.stat().st_uid, folder.lstat().st_uid}


@cache
def _say_not_used(folder: Path, why: str) -> None:
    say_notice(f"{printable(str(folder))}: nothing is kept in this folder, which {why}")


def whole_file(path: Path, mode: int) -> AbstractContextManager[IO[bytes]]:
    """Return a file to write, which replaces `path` atomically at the end of the block, even with concurrent writers.

    On an error nothing of it is left.  `mode` holds its permissions: 0o644, or 0o755 for a program.
    """
    return replacing(path, mode, durable=False)


def disk_cached(
    part: str,
    key_parts: Iterable[bytes | str],
    make: Callable[[], _Value],
    write: Callable[[_Value], bytes],
    read: Callable[[bytes], _Value],
    dearer: float = 1.0,
) -> _Value:
    """Return `make()`, cached on disk by `key_parts` and the hash of this package's sources.

    A file is read only if it is this user's, nobody else can write to it, and its digest is that of its content; one
    that is damaged is recomputed, which a line on standard error reports.

    Parameters
    ----------
    part
        Name of the folder inside the cache of this package, which only the user can read.
    key_parts
        All that the value depends on, besides the sources of this package.
    make
    write, read
        From the value to bytes and back.  The value is not cached if `write` raises ValueError.
    dearer
        Times as long as here that it takes a process which has not what this one has already.
    """
    digest = hashlib.sha256(_sources().encode())
    for each in key_parts:
        content = each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each
        digest.update(b"%d:" % len(content))
        digest.update(content)
    path: Path | None = None
    with contextlib.suppress(OSError):
        path = own_folder(part) / digest.hexdigest()[:32]
        try:
            with gc_paused():
                value = read(read_cached(path))
            os.utime(path)
            return value
        except FileNotFoundError:
            pass
        except Exception as error:  # whatever the damage leads to
            say_notice(f"{path} is not as it was written ({type(error).__name__}), and is made anew")
    begun = time.perf_counter()
    with gc_paused():
        value = make()
    if path is not None and dearer * (time.perf_counter() - begun) >= WORTH_SECONDS:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            write_cached(path, write(value))
            _drop_old(path)
    return value


def _drop_old(written: Path) -> None:
    """Remove all but the files that were used last from the folder of one that was just written.

    Files of the future are from before the clock was set back: they go first, or nothing new could stay.
    """
    now = time.time()
    used = {each: each.stat().st_mtime for each in written.parent.iterdir() if each != written}
    files = sorted(used, key=lambda each: (used[each] <= now, used[each]))
    for old in files[: max(0, len(files) + 1 - MAX_CACHED)]:
        old.unlink()


_HEAD = b"cer-gpu 1\n"
"""First bytes of a cached file, before the digest of the others."""


def write_cached(path: Path, content: bytes) -> None:
    """Write a file that `read_cached` reads."""
    with whole_file(path, 0o600) as written:
        written.write(_HEAD + hashlib.sha256(content).digest() + content)


def read_cached(path: Path) -> bytes:
    """Return the content of a cached file.

    Raises
    ------
    OSError
        When there is none, or another user could have written it.
    ValueError
        When it is damaged.
    """
    with path.open("rb") as file:
        if hasattr(os, "getuid"):
            of = os.fstat(file.fileno())
            if of.st_uid != os.getuid() or of.st_mode & 0o022:
                raise PermissionError("others can write to it")
        data = file.read()
    head, digest, content = data[: len(_HEAD)], data[len(_HEAD) :][:32], data[len(_HEAD) + 32 :]
    if head != _HEAD or hashlib.sha256(content).digest() != digest:
        raise ValueError("damaged")
    return content


def own_folder(part: str) -> Path:
    """Return a folder of the cache that only the user can read and write."""
    folder = cache_folder(part)
    if hasattr(os, "getuid"):
        of = folder.stat()
        if of.st_uid != os.getuid():
            raise PermissionError(f"{folder} is another user's")
        if of.st_mode & 0o077:
            folder.chmod(0o700)
    return folder


def say_notice(text: str) -> None:
    """Print a line to standard error, unless notices are off."""
    if os.environ.get(_NOTICES) != "off" and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"cer-gpu: {text}\n")


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection within the block, in which many long-lived objects are created."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def _sources() -> str:
    """Return the digest that identifies the sources of this package."""
    archive = getattr(__spec__.loader if __spec__ else None, "archive", None)
    if archive is not None:  # Spark gives its copy another path and time for each application
        import zipfile  # seldom needed

        with zipfile.ZipFile(archive) as opened:
            entries = sorted((each.filename, each.file_size, each.CRC) for each in opened.infolist())
        return repr([each for each in entries if each[0].endswith((".py", ".lark"))])
    root = Path(__file__).parent
    files = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".lark"))
    return repr([(path.relative_to(root).as_posix(), path.stat().st_size, path.stat().st_mtime_ns) for path in files])


def _temporary() -> Path:
    """Return a folder among the temporary files that no other user can write to, the same one each time."""
    if not hasattr(os, "getuid"):
        folder = Path(tempfile.gettempdir(), _NAME)
        folder.mkdir(exist_ok=True)
        return folder
    folder = Path(tempfile.gettempdir(), f"{_NAME}-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
    # programs are started from here, so nobody else may write to it
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if own else Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
