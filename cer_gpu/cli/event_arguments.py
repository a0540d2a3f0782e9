"""The events that a command line names: paths, standard input, and streams as NAME=PATH."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import click
import pyarrow as pa

from cer_gpu.ceql.checks import NEEDS_TIME
from cer_gpu.errors import CerError, EventsError, OptionError, QueryError
from cer_gpu.io.files import Files, ReadableFiles, Unreadable, UnreadableFileError, find_files, times_of_logs
from cer_gpu.io.formats import is_name_of_events
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events, open_standard_input
from cer_gpu.io.tables.names import is_table_name
from cer_gpu.io.text_options import USUAL, TextOptions
from cer_gpu.order.times import Period, within_period

CompiledT = TypeVar("CompiledT")
"""A compiled query or statement."""

STANDARD = "-"
"""Standard input among EVENTS, standard output as OUT."""

_ADDRESS = re.compile(r"[A-Za-z0-9+.-]+://\S*$")
_NAMED = re.compile(r"(?:([^\W\d]\w*)|`([^`]+)`)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Streams:
    """The events of a command line.

    Attributes
    ----------
    named
        Paths by stream name; the only key is None if the streams have no names.
    reading
        Options for reading text files.
    period
        Period of time of the events that are read.
    time_column, time_unit
        Time column and unit for the period.
    unreadable
        Files that were skipped because they cannot be read; None if these are errors.
    """

    named: dict[str | None, list[str]]
    reading: TextOptions = field(default=USUAL, kw_only=True)
    period: Period = field(default=Period(), kw_only=True)
    time_column: str | None = field(default=None, kw_only=True)
    time_unit: str | None = field(default=None, kw_only=True)
    unreadable: Unreadable | None = field(default=None, kw_only=True)

    @property
    def paths(self) -> list[str]:
        """All files and folders, with globs expanded, without standard input."""
        names = [path for paths in self.named.values() for path in paths if path != STANDARD]
        return [path for each in names for path in _named_by(each)]

    @property
    def are_named(self) -> bool:
        """True if the streams have names: NAME=PATH."""
        return any(self.named)

    def open(self) -> Any:
        """Return the events in the form that `Query.source` takes."""
        options = self.reading.named()
        opened: dict[str | None, Any] = {}
        for name, paths in self.named.items():
            if STANDARD in paths:
                opened[name] = _standard_input(self.reading)
            elif self.unreadable is None:
                opened[name] = Files(paths, **options)
            else:
                opened[name] = ReadableFiles(paths, **options, unreadable=self.unreadable)
        if self.period and self.time_column is not None:
            limits = self.time_column, self.period, self.time_unit
            opened = {name: within_period(open_events(each), *limits) for name, each in opened.items()}
        return opened.get(None, opened)

    @property
    def times_of_logs(self) -> dict[str | None, str]:
        """Time columns of logs, as `cer_gpu.io.files.times_of_logs` returns them; empty if they cannot be read."""
        paths = self.named.get(None, ())
        if not paths or STANDARD in paths or any(map(is_table_name, paths)):
            return {}
        with contextlib.suppress(CerError, OSError):  # the evaluation raises it again
            return times_of_logs(paths, self.reading, self.unreadable)
        return {}

    def skip(self, error: UnreadableFileError) -> None:
        """Skip a file that turned out to be unreadable, or raise its error."""
        if self.unreadable is None and "hint: " not in str(error):
            hint = "repair or remove it, or use --skip-unreadable"
            raise UnreadableFileError(f"{error}\nhint: {hint}", error.file) from error
        if self.unreadable is None or error.file in self.unreadable:
            raise error
        self.unreadable[error.file] = str(error)

    def within(self, period: Period, time_column: str | None, time_unit: str | None) -> Streams:
        """Return the events of a period of time."""
        return replace(self, period=period, time_column=time_column, time_unit=time_unit)

    def with_types(self, types: Mapping[str, pa.DataType]) -> Streams | None:
        """Return the events with other types of columns, or None if they have them already or cannot be reread."""
        own_types = dict(self.reading.column_types)
        is_known = all(own_types.get(name) == kind for name, kind in types.items())
        if is_known or any(STANDARD in paths for paths in self.named.values()):
            return None
        return replace(self, reading=self.reading.with_types(types))

    def each(self) -> Iterator[tuple[str, Streams]]:
        """Yield a label and the streams for each schema: each path separately, or all named streams together."""
        if self.are_named:
            yield ", ".join(f"{name}={path}" for name, paths in self.named.items() for path in paths), self
            return
        for path in self.named.get(None, ()):
            yield path, Streams({None: [path]}, reading=self.reading, unreadable=self.unreadable)


def parse_streams(events: Sequence[str], reading: TextOptions, *, skip_unreadable: bool = False) -> Streams:
    """Return the streams of the EVENTS of a command line, each PATH or NAME=PATH."""
    streams: dict[str | None, list[str]] = {}
    for text in events:
        match = _NAMED.fullmatch(text)
        name, path = (match[1] or match[2], match[3]) if match else (None, text)
        if not path:
            raise click.UsageError(f"{text!r} has no path")
        if match and os.path.exists(text) and not os.path.exists(path):
            raise click.UsageError(
                f"{text} is stream {name!r} in {path}, which does not exist; for the file, write ./{text}"
            )
        streams.setdefault(name, []).append(path)
    if None in streams and len(streams) > 1:
        name = next(filter(None, streams))
        raise click.UsageError(
            f"{name}={streams[name][0]} names a stream, and {streams[None][0]} does not: name all of them, or none"
        )
    if [path for paths in streams.values() for path in paths].count(STANDARD) > 1:
        raise click.UsageError(f"standard input ({STANDARD}) can be read only once")
    for paths in streams.values():
        if STANDARD in paths and len(paths) > 1:
            raise click.UsageError(f"standard input ({STANDARD}) is a whole stream: it cannot be combined with files")
    return Streams(streams, reading=reading, unreadable={} if skip_unreadable else None)


def are_events(name: str) -> bool:
    """Return True if an argument names events, not a query: by prefix or ending, or as a folder or URI."""
    if name == STANDARD or is_table_name(name) or is_name_of_events(name):
        return True
    return os.path.isdir(name) or bool(_ADDRESS.match(name))


def _named_by(path: str) -> list[str]:
    """Return the files that match a glob, or the path itself if it is not a glob."""
    if not os.path.lexists(path) and "://" not in path:
        with contextlib.suppress(EventsError):
            return [file.path for file in find_files(path)]
    return [path]


def _standard_input(reading: TextOptions) -> Source:
    if sys.stdin is None:
        raise OptionError("standard input is closed: expected events")
    return open_standard_input(sys.stdin.buffer, reading)


def analyse_over(
    analyse: Callable[..., tuple[CompiledT | None, Sequence[CerError]]], streams: Streams
) -> tuple[CompiledT | None, Sequence[CerError]]:
    """Compile a query by `analyse`; the error for a missing time column suggests one of the events."""
    compiled, errors = analyse()
    wanted = [error for error in errors if isinstance(error, QueryError) and error.message == NEEDS_TIME]
    if not wanted or not streams.paths or streams.are_named:
        return compiled, errors
    better: Sequence[CerError] = ()
    with contextlib.suppress(CerError, OSError):  # the evaluation reports events that cannot be read
        _, better = analyse(schema=open_events(streams.open()).schema)
    messages = {error.message: error for error in better if isinstance(error, QueryError)}
    return None, [messages.get(NEEDS_TIME, error) if error in wanted else error for error in errors]
