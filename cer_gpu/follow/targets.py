"""Targets of a live source: a folder of part files, or one file of JSON lines that grows.

The rows of a step are first written where no reader looks.  When the step is committed they are published: a part file
by a rename, lines by appending those that are not there yet.  Publishing again changes nothing.

The state lies with the results, or in a folder that the user names; then a file with the path of that folder is where
the state would be, so that no second state comes to the same results.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from cer_gpu.errors import CheckpointError, OptionError
from cer_gpu.follow.log import sync_folder
from cer_gpu.io.sinks import SINK_FORMATS, Sink, naming, open_writer

GROWING = ("jsonl", "ndjson")
"""Endings of names of a file that grows."""
_COPY_BYTES = 1 << 20


def last_published(entries: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of the last step with rows in lines of the log; 0: there is none."""
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
        Folder of the state unless another is named; None: one is always named.
    state : Path
        Folder of the state.
    """

    out: Path
    format: str
    usual: Path | None
    state: Path

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that a state depends on, by options of the command line."""
        own = {"--format": self.format}
        return own if self.state == self.usual else {**own, "-o": self.identity}

    @property
    def identity(self) -> str:
        """The target, by which it is told from others."""
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
            When the results are not those that the log tells.
        """

    def claim(self) -> None:
        """Let the results name their state, when its folder is there and no other process has its lock.

        Raises
        ------
        OptionError
            When they are those of another state.
        """
        usual = self.usual
        if usual is None or (self.state == usual and not usual.is_file()):
            return
        own = os.path.realpath(self.state)
        if self.state != usual and not usual.exists():
            usual.parent.mkdir(parents=True, exist_ok=True)
            part = self.state / "named"
            part.write_text(own, "utf-8")
            with contextlib.suppress(FileExistsError):
                os.link(part, usual)  # whole, and only if no other process was faster
            part.unlink()
            sync_folder(usual.parent)
        named = usual.read_text("utf-8") if usual.is_file() else os.path.realpath(usual)
        if named != own:
            raise OptionError(
                f"{self.out}: its state is {named}, and not {own}\n"
                "hint: that one (--state), or results in another place; of a state that was moved, remove "
                f"{usual} first"
            )

    @abstractmethod
    def check_new(self) -> None:
        """Raise OptionError if there are results already, though no state says of what."""

    @abstractmethod
    def pending(self, step: int) -> Path:
        """Return the path of the rows of a step before they are published."""

    @abstractmethod
    def published(self, step: int) -> str:
        """Return the name of the file that has the rows of a step."""

    @abstractmethod
    def place(self) -> dict[str, Any]:
        """Return facts on the place of the next rows, to be committed with them."""

    @abstractmethod
    def publish(self, step: int, place: Mapping[str, Any]) -> None:
        """Make the rows of a committed step visible to readers, unless they are."""

    @abstractmethod
    def drop_pending(self) -> None:
        """Remove the rows of steps that were not committed."""

    @contextmanager
    def writing(self, step: int, schema: pa.Schema) -> Iterator[Sink]:
        """Yield the sink for the rows of a step; at the end of the block they are on the disk."""
        path, shown = self.pending(step), str(self.out)
        with naming(shown):
            file = open(path, "wb")  # noqa: SIM115 - closed below; errors of the block are not those of the file
        try:
            with open_writer(file, schema, self.format, shown) as sink:
                yield sink
            with naming(shown):
                file.flush()
                os.fsync(file.fileno())
                sync_folder(path.parent)
        finally:
            with naming(shown):  # which writes what could not be written once more
                file.close()


class PartFolder(LiveTarget):
    """Folder of part files, each with the rows of a step; the state lies in it, in the folder ``_state``."""

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

    def pending(self, step: int) -> Path:
        """Return a hidden path beside the part files."""
        return self.out / f".{self.published(step)}.part"

    def published(self, step: int) -> str:
        """Return the name of the part file."""
        return f"part-{step:09}.{self.format}"

    def place(self) -> dict[str, Any]:
        """Return nothing: the step tells the name."""
        return {}

    def publish(self, step: int, place: Mapping[str, Any]) -> None:
        """Give the part file its name."""
        pending = self.pending(step)
        if pending.exists():
            os.replace(pending, self.out / self.published(step))
            sync_folder(self.out)

    def drop_pending(self) -> None:
        """Remove hidden part files."""
        for each in self.out.glob(".part-*.part"):
            each.unlink()


class GrowingFile(LiveTarget):
    """File of JSON lines that grows; the state lies beside it, in a folder with ``.state`` behind its name."""

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

    def pending(self, step: int) -> Path:
        """Return a path in the folder of the state."""
        return self.state / f"rows-{step:09}"

    def published(self, step: int) -> str:
        """Return the name of the file."""
        return self.out.name

    def place(self) -> dict[str, Any]:
        """Return the place of the next line: the end of the file, which its reader may have emptied."""
        return {"at": self.out.stat().st_size if self.out.exists() else 0}

    def publish(self, step: int, place: Mapping[str, Any]) -> None:
        """Append the bytes that are not there yet."""
        pending = self.pending(step)
        if not pending.exists():
            return
        with open(pending, "rb") as rows, open(self.out, "ab") as out:
            n_there = os.fstat(out.fileno()).st_size - place["at"]
            if not 0 <= n_there <= os.fstat(rows.fileno()).st_size:
                raise CheckpointError(
                    f"{self.out}: something else has written to it, or shortened it: expected from {place['at']:,} "
                    f"bytes to as many as {pending} has beyond these, found {place['at'] + n_there:,}\n"
                    f"hint: append the rest of {pending} by hand, and remove it"
                )
            rows.seek(n_there)
            while data := rows.read(_COPY_BYTES):
                out.write(data)
            out.flush()
            os.fsync(out.fileno())
        sync_folder(self.out.parent)
        pending.unlink()

    def drop_pending(self) -> None:
        """Remove rows in the folder of the state."""
        for each in self.state.glob("rows-*"):
            each.unlink()


def live_target(
    out: str | os.PathLike[str], format: str | None = None, state: str | os.PathLike[str] | None = None
) -> LiveTarget:
    """Return the target that a path names, with a state in a folder; None: with the results.

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
