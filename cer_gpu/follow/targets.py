"""Targets of a live source: a folder of part files, or one file of JSON lines that grows; checks of their states.

The rows of a step are first written where no reader looks, to a new file whose name nobody can guess, and which the log
names with its checksum.  When the step is committed they are published: a part file by a rename, lines by appending
those that are not there yet.  Publishing again changes nothing.

The state is stored with the results, or in a folder that the user names; then a file with the path of that folder is
where the state would be, so that no second state can refer to the same results.

Checks of a state before anything of it is changed: the log must have every step that left something.

A step that was not committed can have left its rows, and with them its state.  A state without rows (they were
published), and a state two steps ahead, are of a step that was committed: a log without its line was cut off, damaged,
or is an older copy.  To read the events again would write their results twice.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from cer_gpu.errors import CheckpointError, OptionError
from cer_gpu.follow.log import sync_folder
from cer_gpu.io.sinks import SINK_FORMATS, Sink, naming, open_writer
from cer_gpu.private_files import open_regular, open_to_append, unfinished, why_not_private

GROWING = ("jsonl", "ndjson")
"""Endings of names of a file that grows."""
_COPY_BYTES = 1 << 20


def last_published(entries: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of the last step with rows in lines of the log, or 0."""
    steps = (entry.get("published", entry["step"] if entry.get("target") is not None else 0) for entry in entries)
    return max(steps, default=0)


class LiveTarget(ABC):
    """Target of the results.

    Attributes
    ----------
    out : Path
    format : str
        One of `cer_gpu.io.sinks.SINK_FORMATS`.
    usual : Path or None
        Folder of the state unless another is named, or None if one is always named.
    state : Path
        Folder of the state.
    """

    out: Path
    format: str
    usual: Path | None
    state: Path
    _ENDING = ""
    _written: tuple[Path, tuple[int, int]] | None = None  # the pending rows of this process, and the file's id

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that a state depends on, by options of the command line."""
        own = {"--format": self.format}
        return own if self.state == self.usual else {**own, "-o": self.identity}

    @property
    def identity(self) -> str:
        """Stable identifier of the target, stored in the log and checked on restart."""
        return os.path.realpath(self.out)

    @property
    def header(self) -> dict[str, Any]:
        """Facts for the first line of the log."""
        return {}

    def resume(self, entries: Sequence[Mapping[str, Any]]) -> None:  # noqa: B027 - files need nothing
        """Take over a log that has entries.

        Raises
        ------
        CheckpointError
            When the results differ from the log.
        """

    def claim(self) -> None:
        """Let the results name their state, when its folder is there and no other process has its lock.

        Raises
        ------
        OptionError
            When they belong to another state.
        """
        usual = self.usual
        if usual is None or (self.state == usual and not usual.is_file()):
            return
        own = os.path.realpath(self.state)
        if self.state != usual and not usual.exists():
            usual.parent.mkdir(parents=True, exist_ok=True)
            part = self.state / f"named-{secrets.token_hex(8)}"
            with open(part, "xb") as file:
                file.write(os.fsencode(own))
            with contextlib.suppress(FileExistsError):
                os.link(part, usual)  # whole, and only if no other process was faster
            part.unlink()
            sync_folder(usual.parent)
        named = os.fsdecode(usual.read_bytes()) if usual.is_file() else os.path.realpath(usual)
        if named != own:
            raise OptionError(
                f"{self.out}: its state is {named}, and not {own}\n"
                "hint: that one (--state), or results in another place; of a state that was moved, remove "
                f"{usual} first"
            )

    @abstractmethod
    def check_new(self) -> None:
        """Raise OptionError if there are results already, though no state says of what."""

    @property
    def _hidden(self) -> Path:
        """Folder of rows before they are published."""
        return self.state

    def _begin_of(self, step: int) -> str:
        """Return what names of the rows of a step begin with before they are published."""
        return f"rows-{step:09}"

    def is_pending(self, step: int) -> bool:
        """Return True if there are rows of a step that were not published."""
        return any(
            stat.S_ISREG(each.lstat().st_mode)
            for each in self._hidden.glob(f"{self._begin_of(step)}*")
            if each.name[len(self._begin_of(step)) :][:1] in ("", "-", ".")  # of version 2 without, or with .part
        )

    def rows_of(self, entry: Mapping[str, Any]) -> Path | None:
        """Return the path of the rows of a committed step that are not published, or None if they are.

        Raises
        ------
        CheckpointError
            When they differ from the committed ones.
        """
        rows = entry.get("rows", {"name": self._begin_of(entry["step"]) + self._ENDING})  # the name of version 2
        path: Path = self._hidden / rows["name"]
        try:
            with open_regular(path) as file:
                about = os.fstat(file.fileno())
                ours = self._written == (path, (about.st_dev, about.st_ino))
                if ours or "crc" not in rows or (about.st_size, _checksum(file)) == (rows["size"], rows["crc"]):
                    return path
        except FileNotFoundError:
            return None
        except OSError:
            pass
        raise CheckpointError(
            f"{path}: the rows of step {entry['step']:,} are not those that were written\n"
            "hint: restore the folder from a copy, or begin anew, with results and state in another place"
        )

    def later_than(self, step: int, entry: Mapping[str, Any]) -> str | None:
        """Return a sentence on results that the log does not have, or None if there are none.

        Parameters
        ----------
        step
            Number of the last step of the log, or 0.
        entry
            Its line.
        """
        return None

    @abstractmethod
    def published(self, step: int) -> str:
        """Return the name of the file that has the rows of a step."""

    def place(self, *, any_rows: bool) -> dict[str, Any]:
        """Return facts on where the rows were written, to be committed with them."""
        return {}

    @abstractmethod
    def publish(self, entry: Mapping[str, Any]) -> None:
        """Make the rows of a committed step, given by its line of the log, visible to readers, unless they are.

        Raises
        ------
        CheckpointError
            When the rows, or the results before them, differ from the log.
        """

    def drop_pending(self) -> None:
        """Remove the rows of steps that were not committed."""
        begin = self._begin_of(0).partition("-")[0]
        for each in self._hidden.glob(f"{begin}-*"):
            with contextlib.suppress(OSError):  # of others, who may have planted it
                each.unlink()

    @contextmanager
    def writing(self, step: int, schema: pa.Schema) -> Iterator[Sink]:
        """Yield the sink for the rows of a step; at the end of the block they are on the disk."""
        path, shown = self._hidden / f"{self._begin_of(step)}-{secrets.token_hex(8)}.part", str(self.out)
        with unfinished(path):
            yield from self._writing(path, shown, schema)

    def _writing(self, path: Path, shown: str, schema: pa.Schema) -> Iterator[Sink]:
        with naming(shown):
            file = open(path, "x+b")  # noqa: SIM115 - closed below; errors of the block are not errors of the file
        try:
            try:
                with open_writer(file, schema, self.format, shown) as sink:
                    yield sink
                with naming(shown):
                    file.flush()
                    os.fsync(file.fileno())
                    sync_folder(path.parent)
                    about = os.fstat(file.fileno())
                    file.seek(0)
                    self.rows: dict[str, Any] = {"name": path.name, "size": about.st_size, "crc": _checksum(file)}
                    self._written = path, (about.st_dev, about.st_ino)
            finally:
                with naming(shown):  # which writes what could not be written once more
                    file.close()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _checksum(file: IO[bytes]) -> int:
    checksum = 0
    while data := file.read(_COPY_BYTES):
        checksum = zlib.crc32(data, checksum)
    return checksum


class PartFolder(LiveTarget):
    """Folder of part files, each with the rows of a step; the state is in its folder ``_state``."""

    _ENDING = ".part"

    def __init__(self, out: Path, format: str, state: Path | None = None) -> None:
        self.out: Path
        self.format: str
        self.usual: Path | None = out / "_state"
        self.out, self.format = out, format
        self.state: Path = state or out / "_state"

    def check_new(self) -> None:
        """Refuse a folder that has files."""
        if self.out.exists() and not self.out.is_dir():
            raise OptionError(
                f"{self.out}: is no folder\nhint: results of a live source go to a folder of part files, or to a file "
                "of JSON lines (.jsonl), to which they are appended"
            )
        if self.out.is_dir() and any(each != self.usual for each in self.out.iterdir()):
            raise OptionError(
                f"{self.out}: the folder has files, and no state ({self.state}) that says of what\n"
                "hint: an empty folder, or a new one"
            )

    @property
    def _hidden(self) -> Path:
        """The folder: a rename stays within it."""
        return self.out

    def _begin_of(self, step: int) -> str:
        return f".{self.published(step)}"

    def later_than(self, step: int, entry: Mapping[str, Any]) -> str | None:
        """Return a sentence on a later part file."""
        numbers = (re.fullmatch(r"part-([0-9]+)\..*", each.name) for each in self.out.glob("part-*"))
        later = max((int(match[1]) for match in numbers if match), default=0)
        return f"{self.out / self.published(later)} is of a later one" if later > step else None

    def published(self, step: int) -> str:
        """Return the name of the part file."""
        return f"part-{step:09}.{self.format}"

    def publish(self, entry: Mapping[str, Any]) -> None:
        """Give the part file its name."""
        rows = self.rows_of(entry)
        if rows is not None:
            os.replace(rows, self.out / self.published(entry["step"]))
            sync_folder(self.out)


class GrowingFile(LiveTarget):
    """File of JSON lines that grows; the state is next to it, in a folder with ``.state`` after its name."""

    def __init__(self, out: Path, state: Path | None = None) -> None:
        self.out: Path
        self.format: str
        self.out, self.format = out, "jsonl"
        self.usual: Path | None = out.with_name(out.name + ".state")
        self.state: Path = state or out.with_name(out.name + ".state")

    def check_new(self) -> None:
        """Refuse a file that has lines."""
        if self.out.exists() and (not self.out.is_file() or self.out.stat().st_size):
            raise OptionError(
                f"{self.out}: is there already, and no state ({self.state}) says of what\nhint: another name"
            )
        if not self.out.parent.is_dir():
            raise OptionError(f"{self.out}: there is no folder {self.out.parent}")

    def later_than(self, step: int, entry: Mapping[str, Any]) -> str | None:
        """Return a sentence on lines after those of the step; a reader may have emptied the file."""
        size, end = self._size_of_file, entry.get("end", 0 if not step else None)
        if end is None or size <= end:
            return None
        return f"{self.out} has {size:,} bytes, more than the {end:,} after it"

    def published(self, step: int) -> str:
        """Return the name of the file."""
        return self.out.name

    @property
    def _size_of_file(self) -> int:
        return self.out.stat().st_size if self.out.exists() else 0

    def place(self, *, any_rows: bool) -> dict[str, Any]:
        """Return the offset of the next line: the end of the file, which its reader may have emptied."""
        size = self._size_of_file
        return {"at": size, "end": size + self.rows["size"]} if any_rows else {"end": size}

    def publish(self, entry: Mapping[str, Any]) -> None:
        """Append the bytes that are not there yet."""
        pending = self.rows_of(entry)
        if pending is None:
            return
        with open(pending, "rb") as rows, _opened_to_append(self.out) as out:
            n_there = os.fstat(out.fileno()).st_size - entry["at"]
            if not 0 <= n_there <= os.fstat(rows.fileno()).st_size:
                raise CheckpointError(
                    f"{self.out}: something else has written to it, or shortened it: expected from {entry['at']:,} "
                    f"bytes to as many as {pending} has beyond these, found {entry['at'] + n_there:,}\n"
                    f"hint: append the rest of {pending} by hand, and remove it"
                )
            rows.seek(n_there)
            while data := rows.read(_COPY_BYTES):
                out.write(data)
            out.flush()
            os.fsync(out.fileno())
        sync_folder(self.out.parent)
        pending.unlink()


def _opened_to_append(path: Path) -> IO[bytes]:
    """Open results to append to; a link is followed where its owner is the user, or the superuser."""
    if path.is_symlink() and hasattr(os, "getuid") and path.lstat().st_uid in (os.getuid(), 0):
        return open(path, "ab")
    return open_to_append(path)


def live_target(
    out: str | os.PathLike[str], format: str | None = None, state: str | os.PathLike[str] | None = None
) -> LiveTarget:
    """Return the target that a path names, with a state in a folder, or next to the results if None.

    Raises
    ------
    OptionError
        When it is one file of a format that cannot grow.
    """
    path, folder = Path(out), None if state is None else Path(state)
    ending = path.suffix.lower()[1:]
    if ending in GROWING and not path.is_dir():
        if format not in (None, "jsonl"):
            raise OptionError(f"{out}: is a file of JSON lines, and the format is {format}\nhint: name a folder")
        return GrowingFile(path, folder)
    if ending in SINK_FORMATS and not path.is_dir():
        raise OptionError(
            f"{out}: one {ending} file cannot grow as events come\n"
            "hint: name a folder, which gets part files, or a file that ends in .jsonl"
        )
    return PartFolder(path, format or SINK_FORMATS[0], folder)


_HINT = (
    "hint: restore the folder of the state from a copy that is as new as the results; or begin anew, with results and "
    "state in another place; nothing was removed"
)


def check_private(state: Path) -> None:
    """Refuse a folder of a state that others can change.

    Raises
    ------
    OptionError
        When it is one.
    """
    why = why_not_private(state)
    if why is not None:
        raise OptionError(
            f"{state}: the folder of the state {why}\nhint: a folder that only you can write to (chmod go-w {state})"
        )


def check_steps(log: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a log without its first line, or whose steps do not follow each other.

    Raises
    ------
    CheckpointError
        When lines are missing, or come twice.
    """
    if entries and "version" not in entries[0]:
        raise CheckpointError(f"{log}: its first line is missing\n{_HINT}")
    before = 0
    for number, entry in enumerate(entries[1:], 2):
        step = entry.get("step")
        if not isinstance(step, int) or (step != before + 1 and not (number == 2 and "read" in entry)):
            raise CheckpointError(f"{log}: line {number}: expected step {before + 1:,}, found {step!r}\n{_HINT}")
        before = step


def check_nothing_later(log: Path, entries: Sequence[Mapping[str, Any]], target: LiveTarget) -> None:
    """Refuse a log that lacks later steps whose files exist.

    Raises
    ------
    CheckpointError
        When there is a state, a part of the log or results of a step after the last one.
    """
    step = int(entries[-1]["step"]) if entries[1:] else 0
    later = next(_later(step, target), None) or target.later_than(step, entries[-1] if step else {})
    if later is not None:
        ending = f"the log ends with step {step:,}" if step else "the log tells of no step"
        raise CheckpointError(
            f"{log}: {ending}, and {later}: the log was cut off or damaged, or is an older copy, or something else has "
            f"written to the results\n{_HINT}"
        )


def _later(step: int, target: LiveTarget) -> Iterator[str]:
    for path in sorted(target.state.iterdir()):
        match = re.fullmatch(r"(state-|log-until-)([0-9]+)(\.jsonl)?", path.name)
        if match is None or int(match[2]) <= step:
            continue
        uncommitted = match[1] == "state-" and int(match[2]) == step + 1 and target.is_pending(step + 1)
        if not uncommitted:
            yield f"{path} is of a later one"


def check_events(entry: Mapping[str, Any], n_events: int) -> None:
    """Refuse a state that has read other events than the last line of the log says.

    Raises
    ------
    CheckpointError
        When it is of another step.
    """
    files = entry.get("files")
    if files and n_events != (expected := files[-1]["first"] + files[-1]["n_events"]):
        raise CheckpointError(
            f"expected the state after {expected:,} events, and found that after {n_events:,}\n{_HINT}"
        )
