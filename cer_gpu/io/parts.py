"""Hidden files that output is written to, and removal of stale ones that killed writers of the same target left.

A writer holds a lock (`flock`) of its file for as long as it lives, also after a fork, and the kernel releases it with
the last process that has the file open.  A file that can be locked thus has no writer.  The name of a hidden file
contains a digest of the name of its target, and a random token.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import IO

from cer_gpu.cache import say_notice
from cer_gpu.private_files import open_regular

try:
    import fcntl
except ImportError:  # Windows, which releases nothing of its own accord: there, nothing is removed
    fcntl = None  # type: ignore[assignment]

_MAX_ATTEMPTS = 16
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def part_beside(target: Path) -> Path:
    """Return a path in the folder of a target, for a file that will be renamed to it."""
    return target.with_name(f"{_begin_of(target)}{secrets.token_hex(8)}.part")


def open_part(path: Path) -> IO[bytes]:
    """Open a new file, locked until it is closed if the file system has locks.

    Raises
    ------
    OSError
        When the file cannot be created, or exists already.
    """
    for _ in range(_MAX_ATTEMPTS):
        file = open(path, "xb")  # noqa: SIM115 - the caller closes it
        try:
            # a run that listed it before it was locked may have removed it
            if _lock_alone(file) and os.fstat(file.fileno()).st_nlink:
                return file
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()
        path.unlink(missing_ok=True)
    raise OSError(errno.EAGAIN, "another process keeps locking it", str(path))


def name_part(file: IO[bytes], path: Path, target: Path) -> None:
    """Close a complete file and rename it to its target; it is locked until it has that name.

    Raises
    ------
    OSError
        When the file cannot be renamed.
    """
    if fcntl is None:  # Windows renames no open file
        file.close()
        os.replace(path, target)
    else:
        os.replace(path, target)
        file.close()


def remove_stale_parts(target: Path) -> int:
    """Remove the hidden files that killed writers of a target left, and print a line about them.

    Only regular files of this user are removed, with a name that `part_beside` returns for this target, that no living
    process has locked; never a link, nor a file with several hard links.

    Parameters
    ----------
    target

    Returns
    -------
    int
        Number of files removed.
    """
    if fcntl is None:
        return 0
    n_removed = n_bytes = 0
    named = re.compile(re.escape(_begin_of(target)) + r"[0-9a-f]{16}\.part")
    with contextlib.suppress(OSError):  # a folder that is writable, but cannot be listed
        for name in [each for each in os.listdir(target.parent) if named.fullmatch(each)]:
            with contextlib.suppress(OSError):
                n_bytes += _remove_stale(target.with_name(name))
                n_removed += 1
    if n_removed:
        files = "the unfinished file" if n_removed == 1 else f"{n_removed:,} unfinished files"
        say_notice(f"{target.name}: removed {files} ({n_bytes:,} bytes) of earlier runs that were killed")
    return n_removed


def _remove_stale(path: Path) -> int:
    """Remove a file that has no writer and return its size, or raise OSError."""
    with open_regular(path) as file:
        of = os.fstat(file.fileno())
        if of.st_uid != os.geteuid() or of.st_nlink != 1:
            raise PermissionError(f"{path}: not of this user alone")
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # the only kind of lock on NFS for files opened for reading
        now = os.lstat(path)
        if (now.st_dev, now.st_ino) != (of.st_dev, of.st_ino):
            raise FileNotFoundError(path)
        path.unlink()
        return of.st_size


def _lock_alone(file: IO[bytes]) -> bool:
    """Return False if another process has locked a file; True if there are no locks, as nothing is removed then."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _BUSY
    return True


def _begin_of(target: Path) -> str:
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    return f".cer-gpu-{digest}-"
