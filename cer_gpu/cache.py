"""Folder of files that one process keeps for the next, and writing of files as a whole."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pickle
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

_NAME = "cer-gpu"
_Made = TypeVar("_Made")

WORTH_SECONDS = 0.5
"""Seconds that it takes to make a value, from which on it is kept."""

MOST_KEPT = 16
"""Most values of a kind that are kept: those that were used last."""


def cache_folder(part: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder `part` of the user's cache, made if missing.

    Parameters
    ----------
    part
        Name of the folder inside the cache of this package.
    environ
        Environment variables; None: those of the process.

    Returns
    -------
    Path
        Below ``$XDG_CACHE_HOME/cer-gpu``, else ``~/.cache/cer-gpu`` (of ``$HOME``), the first that can be written;
        else below a folder of the user's own among the temporary files.
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
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    folder = _temporary() / part
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def whole_file(path: Path, mode: int) -> Iterator[IO[bytes]]:
    """Yield a file to write, which replaces `path` atomically at the end of the block, even with concurrent writers.

    On an error nothing of it is left.  `mode` holds its permissions: 0o644, or 0o755 for a program.
    """
    descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.chmod(written, mode)
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


def made_once(part: str, made_of: Iterable[bytes | str], make: Callable[[], _Made]) -> _Made:
    """Return what a function makes, or what an earlier process has made of the same by the same code.

    Parameters
    ----------
    part
        Name of the folder inside the cache of this package.
    made_of
        All that the value depends on, beside the sources of this package.
    make
        Makes the value, which can be pickled.
    """
    digest = hashlib.sha256(f"{sys.version_info[:3]}{_sources()}".encode())
    for each in made_of:
        content = each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each
        digest.update(b"%d:" % len(content))
        digest.update(content)
    path: Path | None = None
    with contextlib.suppress(Exception):  # no folder, or a file that is damaged in any way
        path = cache_folder(part) / digest.hexdigest()[:32]
        if not hasattr(os, "getuid") or path.stat().st_uid == os.getuid():
            with path.open("rb") as file, no_collection():
                value: _Made = pickle.load(file)
            os.utime(path)
            return value
    begun = time.perf_counter()
    with no_collection():
        value = make()
    if path is not None and time.perf_counter() - begun >= WORTH_SECONDS:
        with contextlib.suppress(Exception):  # what cannot be written, or pickled
            with whole_file(path, 0o600) as written, no_collection():
                pickle.dump(value, written, protocol=5)
            kept = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)
            for old in kept[:-MOST_KEPT]:
                old.unlink()
    return value


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Do not look for garbage within the block, in which many objects are made that all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def _sources() -> str:
    """Return what tells the sources of this package from those of another version."""
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
        found = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
    # programs are started from here, so nobody else may write to it
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if own else Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
