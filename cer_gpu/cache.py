"""Where files are kept from one run to the next."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

NAME = "cer-gpu"


def cache_folder(part: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder `part` of the user's cache, made if it is not there.

    Parameters
    ----------
    part
        The name of the folder inside the cache of this package.
    environ
        The environment to look at; that of the process when None.

    Returns
    -------
    Path
        Below ``$XDG_CACHE_HOME/cer-gpu``, else ``~/.cache/cer-gpu`` (of ``$HOME``), whichever can be written
        first; else below a folder of the user's own among the temporary files.
    """
    environ = os.environ if environ is None else environ
    xdg = environ.get("XDG_CACHE_HOME", "")
    home = environ.get("HOME", "")
    places = []
    if os.path.isabs(xdg):  # the XDG specification: a relative path is ignored
        places.append(Path(xdg))
    if os.path.isabs(home) and os.path.isdir(home):
        places.append(Path(home, ".cache"))
    for place in places:
        folder = place / NAME / part
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
    """Yield a file to write; with the end of the block it is `path`, whole, whoever else writes it at the same time.

    On an error nothing of it is left.  `mode` is that of the file system: 0o644, or 0o755 for a program.
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
        folder = Path(tempfile.gettempdir(), NAME)
        folder.mkdir(exist_ok=True)
        return folder
    folder = Path(tempfile.gettempdir(), f"{NAME}-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
    # programs are run from here: one that somebody else put there must not be
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if own else Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
