"""Entries of folders of a store, following links except those to a parent folder."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from pyarrow import fs


@dataclass(frozen=True)
class Entry:
    """File or folder of a store; unlike in `pyarrow.fs.FileInfo`, its name need not be UTF-8.

    Attributes
    ----------
    path
    type
    size
        Bytes of a file.
    mtime_ns
        Time of the last modification.
    """

    path: str
    type: fs.FileType
    size: int = 0
    mtime_ns: int = 0

    @property
    def base_name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @classmethod
    def from_info(cls, info: fs.FileInfo) -> Entry:
        """Return an entry of another store."""
        return cls(str(info.path), info.type, info.size or 0, info.mtime_ns or 0)


def entry_at(store: fs.FileSystem, path: str) -> Entry:
    """Return the file or folder at a path, following links, or an entry with the type `FileType.NotFound`.

    Raises
    ------
    OSError
        If the store cannot be read.
    """
    if not isinstance(store, fs.LocalFileSystem):
        return Entry.from_info(store.get_file_info(path))
    try:
        return _entry(path, os.stat(path))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return Entry(path, fs.FileType.NotFound)


def _entry(path: str, facts: os.stat_result) -> Entry:
    if stat.S_ISDIR(facts.st_mode):
        return Entry(path, fs.FileType.Directory)
    kind = fs.FileType.File if stat.S_ISREG(facts.st_mode) else fs.FileType.Unknown
    return Entry(path, kind, facts.st_size, facts.st_mtime_ns)


def entries(store: fs.FileSystem, folder: str, *, below: bool) -> list[Entry]:
    """Return the entries of a folder, or an empty list if there is no such folder.

    Links are followed.  A link to a folder that contains it is omitted: its files are listed already.  A broken link,
    or one to itself, has the type `FileType.NotFound`.

    Parameters
    ----------
    store
    folder
    below
        True: list all subfolders, too.

    Raises
    ------
    OSError
        If a folder cannot be read.
    """
    if not isinstance(store, fs.LocalFileSystem):
        return [
            *map(Entry.from_info, store.get_file_info(fs.FileSelector(folder, recursive=below, allow_not_found=True)))
        ]
    listing: list[Entry] = []
    try:
        waiting: list[tuple[str, tuple[tuple[int, int], ...]]] = [(folder, (_identity(os.stat(folder)),))]
    except FileNotFoundError:
        return []
    while waiting:
        here, around = waiting.pop()
        with os.scandir(here) as listed:
            for entry in listed:
                path = f"{here.rstrip('/')}/{entry.name}"
                try:
                    facts = entry.stat()
                except OSError:
                    if not entry.is_symlink():
                        continue  # deleted meanwhile
                    listing.append(Entry(path, fs.FileType.NotFound))
                    continue
                if not stat.S_ISDIR(facts.st_mode):
                    listing.append(_entry(path, facts))
                elif (identity := _identity(facts)) not in around:
                    listing.append(_entry(path, facts))
                    if below:
                        waiting.append((path, (*around, identity)))
    return listing


def _identity(facts: os.stat_result) -> tuple[int, int]:
    """Return the identity of a folder on this machine, independent of its path."""
    return facts.st_dev, facts.st_ino
