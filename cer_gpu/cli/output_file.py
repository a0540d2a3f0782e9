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


def chosen_format(out: str | None, format: str | None) -> str | None:
    """Return the format of OUT, or None to use the ending of its name."""
    if out is None and format is not None:
        raise click.UsageError("--format needs an output: -o")
    if out is not None and format is not None and is_table_name(out):
        raise click.UsageError(f"--format is an option of files, and {out} is a table")
    if out != STANDARD:
        return format
    if sys.stdout is None:
        raise click.UsageError("standard output is closed")
    if format == "parquet":
        raise click.UsageError("Parquet cannot be written to a pipe: --format arrow, or -o FILE")
    if format == "arrow" and sys.stdout.isatty():
        raise click.UsageError("a terminal cannot show Arrow: --format jsonl")
    return format or "jsonl"


@contextlib.contextmanager
def open_target(
    out: str, format: str | None, schema: pa.Schema, inputs: Sequence[str], signals: Signals
) -> Iterator[Sink]:
    """Open OUT for rows; files and tables are written atomically at the end of the block."""
    if is_table_name(out):
        with open_table_sink(out, schema) as sink:
            yield sink
        return
    if out != STANDARD:
        with open_sink(out, schema, inputs, format) as sink:
            yield sink
        return
    assert format is not None
    with _standard_output() as file, open_pipe(file, schema, format, signals.deferred) as sink:
        yield sink


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """Yield standard output with a buffer, so that writes are complete; under `python -u` it has none."""
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
