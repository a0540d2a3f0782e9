"""The events that a command line names: paths, standard input, and streams as NAME=PATH."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from cer_gpu.ceql.checks import NEEDS_TIME
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.io.formats import format_of
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events
from cer_gpu.io.standard_input import open_standard_input
from cer_gpu.io.tables.names import is_table_name

Asked = TypeVar("Asked")
"""A query, or also a statement."""

STANDARD = "-"
"""Standard input among EVENTS, standard output as OUT."""

_ADDRESS = re.compile(r"[A-Za-z0-9+.-]+://\S*$")
_NAMED = re.compile(r"(?:([A-Za-z_][A-Za-z_0-9]*)|`([^`]+)`)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Streams:
    """Paths of the given events by stream name; the only key is None where the streams have no names."""

    named: dict[str | None, list[str]]

    @property
    def paths(self) -> list[str]:
        """All files and folders, those that globs name too, without standard input."""
        given = [path for paths in self.named.values() for path in paths if path != STANDARD]
        return [path for each in given for path in glob.glob(each, recursive=True) or [each]]

    @property
    def are_named(self) -> bool:
        """True if the streams have names: NAME=PATH."""
        return any(self.named)

    def open(self) -> Any:
        """Return the events as `Query.source` takes them."""
        opened = {name: _standard_input() if STANDARD in paths else paths for name, paths in self.named.items()}
        return opened.get(None, opened)

    def each(self) -> Iterator[tuple[str, Streams]]:
        """Yield the label and the streams for each schema: every path by itself, or all named streams together."""
        if self.are_named:
            yield ", ".join(f"{name}={path}" for name, paths in self.named.items() for path in paths), self
            return
        for path in self.named.get(None, ()):
            yield path, Streams({None: [path]})


def given_streams(given: Sequence[str]) -> Streams:
    """Return the streams of the EVENTS of a command line, each PATH or NAME=PATH."""
    streams: dict[str | None, list[str]] = {}
    for text in given:
        match = _NAMED.fullmatch(text)
        name, path = (match[1] or match[2], match[3]) if match else (None, text)
        if not path:
            raise click.UsageError(f"{text!r} has no path")
        if match and os.path.exists(text) and not os.path.exists(path):
            raise click.UsageError(f"{text} is stream {name!r} in {path}, which is not there; the file is ./{text}")
        streams.setdefault(name, []).append(path)
    if None in streams and len(streams) > 1:
        name = next(filter(None, streams))
        raise click.UsageError(
            f"{name}={streams[name][0]} names a stream, and {streams[None][0]} none: name all of them, or none"
        )
    if [path for paths in streams.values() for path in paths].count(STANDARD) > 1:
        raise click.UsageError(f"standard input ({STANDARD}) can be read only once")
    for paths in streams.values():
        if STANDARD in paths and len(paths) > 1:
            raise click.UsageError(
                f"standard input ({STANDARD}) is a whole stream: no files come before it or after it"
            )
    return Streams(streams)


def are_events(given: str) -> bool:
    """Return True if a text is the name of events, and no query: by its prefix or ending, as a folder or an address."""
    if given == STANDARD or is_table_name(given) or format_of(given) is not None:
        return True
    return os.path.isdir(given) or bool(_ADDRESS.match(given))


def _standard_input() -> Source:
    if sys.stdin is None:
        raise OptionError("standard input is closed: expected events")
    return open_standard_input(sys.stdin.buffer)


def analyse_over(
    analyse: Callable[..., tuple[Asked | None, Sequence[CerError]]], streams: Streams
) -> tuple[Asked | None, Sequence[CerError]]:
    """Compile a query by `analyse`; the error on a missing time column suggests that of the events."""
    compiled, errors = analyse()
    wanted = [error for error in errors if isinstance(error, QueryError) and error.message == NEEDS_TIME]
    if not wanted or not streams.paths or streams.are_named:
        return compiled, errors
    better: Sequence[CerError] = ()
    with contextlib.suppress(CerError, OSError):  # events that cannot be read are an error of the evaluation
        _, better = analyse(schema=open_events(streams.open()).schema)
    told = {error.message: error for error in better if isinstance(error, QueryError)}
    return None, [told.get(NEEDS_TIME, error) if error in wanted else error for error in errors]
