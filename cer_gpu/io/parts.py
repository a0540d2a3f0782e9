"""Hidden files that results are written to, and removal of those that killed writers of the same target left.

A writer holds a lock (`flock`) of its file for as long as it lives, also after a fork, and the kernel releases it with
the last process that has the file open.  A file that can be locked thus has no writer.  The name of a hidden file holds
a digest of the name of its target, and a token that nobody can guess.
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
    """Return a path beside a target, for a file that is to take its name."""
    return target.with_name(f"{_begin_of(target)}{secrets.token_hex(8)}.part")


def open_part(path: Path) -> IO[bytes]:
    """Open a new file, locked until it is closed where the file system has locks.

    Raises
    ------
    OSError
        When the file cannot be made, or is there already.
    """
    for _ in range(_MAX_ATTEMPTS):
        file = open(path, "xb")  # noqa: SIM115 - the caller closes it
        try:
            # a run that found it before it was locked may have removed it
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
    """Close a whole file and give it the name of its target, locked until it has that name.

    Raises
    ------
    OSError
        When the file cannot have that name.
    """
    if fcntl is None:  # Windows renames no open file
        file.close()
        os.replace(path, target)
    else:
        os.replace(path, target)
        file.close()


def remove_left_parts(target: Path) -> int:
    """Remove the hidden files that killed writers of a target left, and print a line on them.

    Removed are regular files of this user with a name that `part_beside` gives for this target, which no living process
    has locked; never a link, nor a file with several names.

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
    with contextlib.suppress(OSError):  # a folder that can be written to, but not be listed
        for name in [each for each in os.listdir(target.parent) if named.fullmatch(each)]:
            with contextlib.suppress(OSError):
                n_bytes += _remove_left(target.with_name(name))
                n_removed += 1
    if n_removed:
        files = "the unfinished file" if n_removed == 1 else f"{n_removed:,} unfinished files"
        say_notice(f"{target.name}: removed {files} ({n_bytes:,} bytes) of earlier runs that were killed")
    return n_removed


def _remove_left(path: Path) -> int:
    """Remove a file that has no writer and return its size, or raise OSError."""
    with open_regular(path) as file:
        of = os.fstat(file.fileno())
        if of.st_uid != os.geteuid() or of.st_nlink != 1:
            raise PermissionError(f"{path}: not of this user alone")
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # NFS locks files opened to read by no other kind
        now = os.lstat(path)
        if (now.st_dev, now.st_ino) != (of.st_dev, of.st_ino):
            raise FileNotFoundError(path)
        path.unlink()
        return of.st_size


def _lock_alone(file: IO[bytes]) -> bool:
    """Return False if another process has the lock of a file; True where there are no locks, and nothing is removed."""
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
