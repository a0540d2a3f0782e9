"""Arrivals at a live source: files of a folder that nobody writes any more, in a stated order, each read once."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs

from cer_gpu.errors import EventsError
from cer_gpu.io.files import find_files, open_next
from cer_gpu.io.folders import entry_at
from cer_gpu.io.formats import format_of
from cer_gpu.io.source import Source
from cer_gpu.io.stores import StoredFile
from cer_gpu.io.text_options import USUAL, TextOptions

ORDERS = ("name", "modified")
"""Orders of files: by name, or by the time of the last change and then by name."""
STEP_FILES = 1_000
STEP_BYTES = 1 << 28
"""Bounds of the files that one step reads, whichever comes first; a step reads at least one."""


@dataclass(frozen=True)
class Arrival:
    """A file of a folder, or a commit of a table.

    Attributes
    ----------
    name
        Name by which the log knows it: the path of a file from the folder, with ``/`` between folders.
    file
        Handle that `LiveSource.open` takes; its text names it in messages.
    size : int
        Its bytes.
    modified_ns : int
        The time when a file was last written to.
    """

    name: str
    file: Any
    size: int
    modified_ns: int = 0


@dataclass(frozen=True)
class PollResult:
    """Result of one poll of a live source: parts ready to read, and parts not yet settled.

    Attributes
    ----------
    finished : sequence of Arrival
        Files, or commits, to be read now, in their order.
    waiting : sequence of str
        Names of files that are still written, or that come after one of these.
    grown : sequence of str
        Names of files whose size is no more the one that they were read with.
    """

    finished: Sequence[Arrival]
    waiting: Sequence[str] = ()
    grown: Sequence[str] = ()


class LiveSource(Protocol):
    """Source to which events are added, in parts that are read one after the other, each once.

    Attributes
    ----------
    noun : str
        Word for one of the parts: "file", "version".
    """

    noun: str

    @property
    def identity(self) -> str:
        """Stable identifier of the source, stored in the log and checked on restart."""

    def check(self) -> None:
        """Raise EventsError unless there is such a source."""

    def poll(self, read: Mapping[str, int], but: Collection[str] = ()) -> PollResult:
        """Return what was added since, up to `STEP_FILES` or `STEP_BYTES`.

        Parameters
        ----------
        read
            Sizes of the parts that were read before, by their names, in the order in which they were read.
        but
            Names of other parts that are not to be read.

        Raises
        ------
        EventsError
            When the source cannot be read, or holds no more what was added.
        """

    def unacknowledged(self, read: Mapping[str, int]) -> Mapping[str, int]:
        """Return processed parts that the next poll must still exclude."""

    def open(self, arrival: Arrival, first: int, expected: pa.Schema | None) -> Source | None:
        """Open a part.

        Parameters
        ----------
        arrival
        first
            Position of its first event.
        expected
            Schema of the first part, or None if this is the first.

        Returns
        -------
        Source or None
            None if it has neither events nor a schema.

        Raises
        ------
        EventsError
            When it cannot be read.
        """


class FolderWatcher:
    """Files that appear in a folder, and in the folders in it.

    A file counts once its name ends as one with events does: writers may use any other ending, such as ``.tmp``, or a
    name that begins with ``.`` or ``_``, and rename the file at the end.  It is finished once it has not changed for
    `settle` seconds.  A file waits for unfinished ones before it in the order.

    Parameters
    ----------
    folder
        Path or address of the folder.
    settle
        Seconds for which a finished file has not changed; 0: every file is finished as soon as it is seen.
    order
        One of `ORDERS`.
    options
        Options for reading text files.
    """

    noun = "file"

    def __init__(self, folder: str, settle: float, order: str = ORDERS[0], options: TextOptions = USUAL) -> None:
        self._folder, self._settle, self._order, self._options = folder, settle, order, options
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}  # size and time, and when these were first seen
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    @property
    def identity(self) -> str:
        """Stable identifier of the folder, stored in the log and checked on restart."""
        return self._folder if "://" in self._folder else os.path.realpath(self._folder)

    def check(self) -> None:
        """Raise EventsError unless there is such a folder."""
        find_files(self._folder, may_be_none=True)
        if "://" not in self._folder and not os.path.isdir(self._folder):
            raise EventsError(f"{self._folder}: is no folder\nhint: name the folder in which files appear")

    def poll(self, read: Mapping[str, int], but: Collection[str] = ()) -> PollResult:
        """Look into the folder, as `LiveSource.poll` says."""
        here = self._listed_arrivals()
        grown = [each.name for each in here if each.name in read and each.size != read[each.name]]
        coming = [each for each in here if each.name not in read and each.name not in but]
        if self._order == "modified":
            coming.sort(key=lambda each: each.modified_ns)  # those at one time stay in the order of their names
        clock = time.monotonic()
        # a clock that is set while this process runs makes no file older
        now = min(time.time_ns(), self._ahead_ns + time.monotonic_ns())
        finished, n_bytes = list[Arrival](), 0
        seen: dict[str, tuple[tuple[int, int], float]] = {}
        for each in coming:
            stamp = each.size, each.modified_ns
            before, since = self._seen.get(each.name, (None, clock))
            seen[each.name] = stamp, since if before == stamp else clock
        self._seen = seen
        for each in coming:
            # the clock of the file system may be another one, or ahead of ours
            age = max((now - each.modified_ns) / 1e9, clock - seen[each.name][1])
            if age < self._settle or len(finished) == STEP_FILES or (finished and n_bytes + each.size > STEP_BYTES):
                break
            finished.append(each)
            n_bytes += each.size
        return PollResult(finished, [each.name for each in coming[len(finished) :]], grown)

    def unacknowledged(self, read: Mapping[str, int]) -> Mapping[str, int]:
        """Return all: any of them may still be in the folder."""
        return read

    def open(self, arrival: Arrival, first: int, expected: pa.Schema | None) -> Source | None:
        """Open a file, or return None for text without lines."""
        file_format = format_of(arrival.name)
        if not arrival.size and file_format is not None and file_format.is_string:
            return None
        return open_next(arrival.file, first, expected, self._options)

    def _listed_arrivals(self) -> list[Arrival]:
        files = find_files(self._folder, self._options, may_be_none=True)
        store = files[0].store if files else None
        try:
            infos = [entry_at(store or fs.LocalFileSystem(), file.path) for file in files]
        except OSError as error:
            raise EventsError(f"cannot find the events: {self._folder}: {error}") from error
        base = len(self._base(files))
        return [
            Arrival(file.place[base:].lstrip("/").replace(os.sep, "/"), file, info.size, info.mtime_ns)
            for file, info in zip(files, infos, strict=True)
            if info.type == fs.FileType.File  # not deleted meanwhile
        ]

    def _base(self, files: Sequence[StoredFile]) -> str:
        """Return the part of the paths that is that of the folder."""
        if not files or files[0].store is None:
            return self._folder if len(self._folder) == 1 else self._folder.rstrip("/")
        path = files[0].path
        inside = files[0].shown[len(self._folder.rstrip("/")) :]
        return path[: len(path) - len(inside)]
