"""The target of ``cer-gpu run -o``: a file, or standard output."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from typing import IO

import click
import pyarrow as pa

from cer_gpu.cli.command_line import abandon_stdout
from cer_gpu.cli.event_arguments import STANDARD
from cer_gpu.cli.signals import Signals, Stopped
from cer_gpu.io.sinks import Sink, open_pipe, open_sink
from cer_gpu.io.tables.names import is_table_name
from cer_gpu.io.tables.table_sinks import open_table_sink


def chosen_format(out: str | None, given: str | None) -> str | None:
    """Return the format of OUT, or None for that of the ending of its name."""
    if out is None and given is not None:
        raise click.UsageError("--format needs an output: -o")
    if out is not None and given is not None and is_table_name(out):
        raise click.UsageError(f"--format is an option of files, and {out} is a table")
    if out != STANDARD:
        return given
    if sys.stdout is None:
        raise click.UsageError("standard output is closed")
    if given == "parquet":
        raise click.UsageError("Parquet cannot be written to a pipe: --format arrow, or -o FILE")
    if given == "arrow" and sys.stdout.isatty():
        raise click.UsageError("a terminal cannot show Arrow: --format jsonl")
    return given or "jsonl"


@contextlib.contextmanager
def open_target(
    out: str, format: str | None, schema: pa.Schema, inputs: Sequence[str], signals: Signals
) -> Iterator[Sink]:
    """Open OUT for rows; a file appears whole at the end of the block, or not at all; a table has all rows, or none."""
    if is_table_name(out):
        with open_table_sink(out, schema) as sink:
            yield sink
        return
    if out != STANDARD:
        with open_sink(out, schema, inputs, format) as sink:
            yield sink
        return
    assert format is not None
    with _standard_output() as file, open_pipe(file, schema, format, signals.held) as sink:
        yield sink


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """Yield standard output with a buffer, so that writes are whole; under `python -u` it has none of its own."""
    file = sys.stdout.buffer
    if isinstance(file, io.RawIOBase):
        file = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 - closed below
    try:
        yield file
    except (OSError, Stopped):
        abandon_stdout()  # closing would wait for the reader
        raise
    finally:
        if file is not sys.stdout.buffer:
            file.close()
