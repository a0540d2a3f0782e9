"""Files that nobody else can plant: opened without following links, in folders that only their user can write to."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def why_not_private(folder: str | os.PathLike[str]) -> str | None:
    """Return why others may change what is in a folder, or None if only its user can (and the superuser).

    A folder that its group can write to is private where the group is the user's own, of the same name.
    """
    if not hasattr(os, "getuid"):  # Windows, where folders of a user are the user's own
        return None
    about, link = os.stat(folder), os.lstat(folder)
    if not {about.st_uid, link.st_uid} <= {os.getuid(), 0}:
        return "belongs to another user"
    if about.st_mode & stat.S_IWOTH:
        return "can be written to by everybody"
    if about.st_mode & stat.S_IWGRP and about.st_gid and not _is_own_group(about.st_gid):
        return "can be written to by its group"
    return None


def _is_own_group(gid: int) -> bool:
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def unguessable(path: Path, ending: str = ".part") -> Path:
    """Return a path next to another one, for a file that is to take its name."""
    return path.with_name(f".{path.name}-{secrets.token_hex(8)}{ending}")


def open_to_append(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to append to, created if missing; a symbolic link there raises OSError."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | _NO_LINK, 0o666))


def open_to_change(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to change it in place; a symbolic link there raises OSError."""
    return open(path, "r+b", opener=lambda name, flags: os.open(name, flags | _NO_LINK))


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read; a link, a pipe or a device there raises OSError."""
    flags = _NO_LINK | getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer is opened at once
    file = os.fdopen(os.open(path, os.O_RDONLY | flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{os.fspath(path)}: is no regular file")
    return file


_unfinished: set[Path] = set()
_changing = threading.Lock()


def note_unfinished(path: Path) -> None:
    """Record a file or folder, before it is created, to be removed if the process has to end at once."""
    with _changing:
        _unfinished.add(path)


def forget_unfinished(path: Path) -> None:
    """Forget what `note_unfinished` noted."""
    with _changing:
        _unfinished.discard(path)


@contextlib.contextmanager
def unfinished(path: Path) -> Iterator[None]:
    """Have a file, or a folder, removed if the process has to end at once within the block."""
    note_unfinished(path)
    try:
        yield
    finally:
        forget_unfinished(path)


def remove_unfinished() -> None:
    """Remove unfinished files, just before the process ends; nothing more is recorded or created then."""
    _changing.acquire(timeout=0.1)
    for path in tuple(_unfinished):
        with contextlib.suppress(OSError):
            path.unlink()
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a new file, which has the name `path` at the end of the block, or else is removed.

    A file or a link of that name before is replaced, and not written to.

    Parameters
    ----------
    path
    mode
        Permissions; None for the default of a new file.
    durable
        True if it is to be on the disk before it has its name.
    """
    part = unguessable(path)
    with unfinished(part):
        yield from _replacing(path, part, mode, durable=durable)


def _replacing(path: Path, part: Path, mode: int | None, *, durable: bool) -> Iterator[IO[bytes]]:
    initial_mode = 0o666 if mode is None else 0o600  # nobody else reads it before it is whole
    file = open(part, "xb", opener=lambda name, flags: os.open(name, flags, initial_mode))  # noqa: SIM115 - closed below
    try:
        with file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if mode is not None:
            os.chmod(part, mode)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
