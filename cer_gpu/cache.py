"""Folder of files that one process keeps for the next, and writing of files as a whole."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

_NAME = "cer-gpu"


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
