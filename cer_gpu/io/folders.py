"""Entries of folders of a store, through links too, but never through one that leads back."""

from __future__ import annotations

import os
import stat

from pyarrow import fs


def entries(store: fs.FileSystem, folder: str, *, below: bool) -> list[fs.FileInfo]:
    """Return what a folder holds; an empty list if there is no such folder.

    Links count as the files and folders to which they lead.  A link to a folder that it lies in is left out: its files
    are listed already.  A link that leads nowhere, or to itself, has the type `FileType.NotFound`.

    Parameters
    ----------
    store
    folder
    below
        True: list all folders in it, too.

    Raises
    ------
    OSError
        If a folder cannot be read.
    """
    if not isinstance(store, fs.LocalFileSystem):
        return list(store.get_file_info(fs.FileSelector(folder, recursive=below, allow_not_found=True)))
    found: list[fs.FileInfo] = []
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
                    found.append(fs.FileInfo(path, fs.FileType.NotFound))
                    continue
                if not stat.S_ISDIR(facts.st_mode):
                    kind = fs.FileType.File if stat.S_ISREG(facts.st_mode) else fs.FileType.Unknown
                    found.append(fs.FileInfo(path, kind, size=facts.st_size))
                elif (identity := _identity(facts)) not in around:
                    found.append(fs.FileInfo(path, fs.FileType.Directory))
                    if below:
                        waiting.append((path, (*around, identity)))
    return found


def _identity(facts: os.stat_result) -> tuple[int, int]:
    """Return what tells a folder from all others of this machine, by whatever path."""
    return facts.st_dev, facts.st_ino
