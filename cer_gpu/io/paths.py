"""Paths of this machine for pyarrow, whose own are UTF-8: names of files are bytes, and may be anything else."""

from __future__ import annotations

import os

import pyarrow as pa


def native_path(path: str | os.PathLike[str]) -> str | bytes:
    """Return a path that pyarrow takes: its bytes where it is no UTF-8."""
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def open_local(path: str | os.PathLike[str], mode: str = "rb") -> pa.OSFile:
    """Open a file of this machine as pyarrow does.

    It is not mapped: a file that is cut short while it is mapped ends the process with SIGBUS.
    """
    return pa.OSFile(native_path(path), mode)


def map_local(path: str | os.PathLike[str]) -> pa.MemoryMappedFile:
    """Map a file of this machine that nobody else can cut short."""
    return pa.memory_map(native_path(path))
