"""Log of commits, one line of JSON for each step, which is done once its line is on the disk; the lock of a state.

Only the last line can be incomplete, if the process was killed while it wrote it: that step is not done, and the line
is cut off before the next one is written.  Nothing is cut off by reading: a line can also be damaged after its step was
done, which `cer_gpu.follow.targets` determines from the files of the step.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cer_gpu.errors import CheckpointError, OptionError
from cer_gpu.io.sinks import naming
from cer_gpu.private_files import open_to_append, open_to_change, replacing


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder during the block.

    Raises
    ------
    OptionError
        When another process has it.
    """
    with open_to_append(folder / "lock") as file:
        try:
            _lock(file)
        except OSError:
            raise OptionError(
                f"{folder}: another process writes these results\nhint: stop it first, or write to another place"
            ) from None
        yield


def _lock(file: Any) -> None:
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:  # Windows
        windows = importlib.import_module("msvcrt")
        file.seek(0)
        windows.locking(file.fileno(), windows.LK_NBLCK, 1)
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


LOG_VERSION = 3
"""Version of the log and of its state; version 1 has no line that replaces many, and version
2 no names and checksums of rows."""
LONGEST_LOG = 1_000
"""Number of lines from which on a log is shortened before it grows again."""
_CHECK = "check"


class CommitLog:
    """Lines of facts in a file, each with a checksum.

    Parameters
    ----------
    path
        The file; it need not exist.

    Raises
    ------
    CheckpointError
        When a line that is not the last one is damaged.

    Attributes
    ----------
    entries : list of dict
        Facts of the complete lines, in their order.
    n_cut : int
        Bytes of a last line that is not whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: list[dict[str, Any]] = []
        data = path.read_bytes() if path.exists() else b""
        *lines, _ = data.split(b"\n")
        self._n_good = 0
        for number, line in enumerate(lines, 1):
            entry = _entry(line)
            if entry is None:
                if number < len(lines) or not data.endswith(b"\n"):
                    raise CheckpointError(
                        f"{path}: line {number} is damaged\nhint: restore the folder from a copy, or begin with another"
                    )
                break
            self.entries.append(entry)
            self._n_good += len(line) + 1
        self.n_cut: int = len(data) - self._n_good

    def _cut_off(self) -> None:
        """Remove a last line that is not whole."""
        if self.n_cut:
            with open_to_change(self._path) as file:
                file.truncate(self._n_good)
                os.fsync(file.fileno())
            self.n_cut = 0

    def append(self, entry: dict[str, Any]) -> None:
        """Write a line, which is on the disk when this returns."""
        with naming(str(self._path)):
            self._cut_off()
        with naming(str(self._path)), open_to_append(self._path) as file:
            file.write(_line(entry))
            file.flush()
            os.fsync(file.fileno())
        if not self.entries:
            sync_folder(self._path.parent)
        self.entries.append(entry)

    def shorten(self, together: dict[str, Any]) -> None:
        """Replace all lines but the first and the last one by a single line, and move them to a file of their own.

        Parameters
        ----------
        together
            Facts that replace the facts of the lines, with the number of the last of their steps.
        """
        first, *moved, last = self.entries
        entries = [first, together, last]
        aside = self._path.with_name(f"{self._path.stem}-until-{together['step']:09}{self._path.suffix}")
        write_whole(aside, b"".join(map(_line, [first, *moved])))
        write_whole(self._path, b"".join(map(_line, entries)))
        self.entries, self.n_cut = entries, 0


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry)
    return json.dumps({**entry, _CHECK: zlib.crc32(text.encode())}).encode() + b"\n"


def _entry(line: bytes) -> dict[str, Any] | None:
    """Return the facts of a line, or None if it is cut short."""
    try:
        entry: dict[str, Any] = json.loads(line)
        check = entry.pop(_CHECK)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return entry if zlib.crc32(json.dumps(entry).encode()) == check else None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of the state; it is there as a whole, on the disk, when this returns, or as it was."""
    with naming(str(path)):
        with replacing(path) as file:
            file.write(data)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files of a folder are on the disk."""
    if os.name == "nt":  # where folders cannot be opened
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
