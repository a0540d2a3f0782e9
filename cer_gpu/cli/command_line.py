"""Parts shared by the command lines of cer_gpu and spark_glue: exit codes, messages, JSON, and reading of the query."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from cer_gpu.cli.signals import SIGPIPE, Signals, Stopped, leave_at_once
from cer_gpu.errors import CerError, OptionError, QueryError, did_you_mean, nearest_file, out_of_memory
from cer_gpu.printable import printable, printable_lines
from cer_gpu.rule import Rule
from cer_gpu.rules.folder import AS_NAMED, READERS, FieldColumns, read_file
from cer_gpu.starting import exit_code, stop_words


def to_json(value: Any) -> str:
    """Return plain data as JSON on one line, in ASCII, so that every terminal and pipe accepts it."""
    return json.dumps(value, allow_nan=False)


def error_facts(error: Exception, name: str | None = None) -> dict[str, Any]:
    """Return an error as plain data: type, message, hint, and position in the query.

    Parameters
    ----------
    error
    name
        The query file, if the error is in it.
    """
    message, _, hint = error_text(error).partition("\nhint: ")
    facts: dict[str, Any] = {"type": type(error).__name__, "message": message, "hint": hint or None, "file": name}
    if isinstance(error, QueryError):
        facts |= {"message": error.message, "hint": error.hint}
        if error.text is not None and error.start is not None:
            before = error.text[: error.start]
            facts |= {
                "start": error.start,
                "end": error.end,
                "line": before.count("\n") + 1,
                "column": len(before) - before.rfind("\n"),
            }
    return facts


def error_text(error: Exception) -> str:
    """Return the message of an error, with the file name for an error of the operating system."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


Command = TypeVar("Command", bound=Callable[..., Any])

_errors_as_json: ContextVar[bool] = ContextVar("errors_as_json", default=False)
"""True if the command line has --json: errors are then JSON too."""


def run_commands(
    commands: click.Group, prog_name: str, args: Sequence[str] | None = None, *, promptly: bool = False
) -> int:
    """Run a command line and print its errors.

    Parameters
    ----------
    commands
        The group of commands, which get the `Signals` as their context object.
    prog_name
    args
        The arguments; those of this process when None.
    promptly
        True: a signal ends the process within a second, whatever it is doing.

    Returns
    -------
    int
        The exit code: 0; 1 when the query, the events or the output are wrong; 2 when the arguments are; 130 when
        interrupted, 143 by SIGTERM, 129 by SIGHUP (see `exit_code`); 141 when the reader of standard output has gone.
        Other exceptions are bugs and propagate.
    """
    args = sys.argv[1:] if args is None else args
    as_json = "--json" in args
    _errors_as_json.set(as_json)
    said: list[int] = []

    def leave(signum: int) -> None:
        leave_at_once(exit_code(signum, args), "" if said else stop_words(signum, as_json=as_json))

    try:
        with Signals(leave if promptly else None) as signals:
            return int(commands.main(args=args, prog_name=prog_name, standalone_mode=False, obj=signals) or 0)
    except Stopped as stopped:
        if stopped.signum == SIGPIPE:
            abandon_stdout()
        else:
            said.append(stopped.signum)
            say(stop_words(stopped.signum, as_json=as_json))
        return exit_code(stopped.signum, args)
    except click.ClickException as error:
        if _errors_as_json.get():
            say(to_json({"errors": [{"type": "UsageError", "message": error.format_message()}]}))
        else:
            written = io.StringIO()
            error.show(written)
            say(written.getvalue().rstrip("\n"))
        return error.exit_code
    except (CerError, OSError, MemoryError) as error:
        say_error(error if isinstance(error, CerError | OSError) else out_of_memory())
        return 1


class Commands(click.Group):
    """Command group that suggests the nearest name for an unknown command, and stops quietly on a closed pipe."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command by its name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            name = args[0]
            if ctx.resilient_parsing or name.startswith("-"):
                raise
            hint = did_you_mean(name, self.list_commands(ctx), "commands")
            raise click.UsageError(f"No such command {name!r}.\nhint: {hint}", error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise Stopped(SIGPIPE) from None


def abandon_stdout() -> None:
    """Drop the rest of standard output, so that the flush at interpreter exit does not wait for a reader."""
    with contextlib.suppress(OSError, ValueError):  # there may be no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def read_query(query: str, fields: FieldColumns = AS_NAMED) -> Rule:
    """Return a query, either a file or its text, as a rule without a name.

    Raises
    ------
    OptionError
        When it is neither, or the file cannot be read or has several queries.
    """
    path = Path(query)
    if os.path.isfile(query):
        contents = read_file(path, fields)
        if len(contents.rules) == 1:
            return replace(contents.rules[0], name="", file=query)
        kind = f"none in a supported language: {contents.skipped_files[0]}" if contents.skipped_files else "no rule"
        if contents.rules:
            kind = f"{len(contents.rules):,} rules\nhint: --queries takes all rules of a folder"
        raise OptionError(f"{query}: expected a query, found {kind}")
    one_word = query and not any(c.isspace() for c in query) and "<-" not in query  # other queries have several words
    if path.suffix in READERS or one_word:
        siblings = sorted(p.name for p in path.parent.glob("*") if p.suffix in READERS)
        near = nearest_file(path.name, siblings)
        hint = f"\nhint: did you mean {near!r}?" if near else ""
        raise OptionError(f"{query!r} is neither a file nor the text of a query{hint}")
    return Rule("", query)


def show_text(text: str) -> None:
    """Print human-readable text to standard output."""
    click.echo(printable_lines(text))


def say(text: str, label: str = "") -> None:
    """Print a line to standard error, after a label that may have a style."""
    click.echo(label + printable_lines(text), err=True)


def say_error(error: CerError | OSError, name: str | None = None) -> None:
    """Print an error to standard error; `name` is the query file, if the error is in it."""
    if _errors_as_json.get():
        say(to_json({"errors": [error_facts(error, name)]}))
        return
    text = error_text(error)
    say((f"{printable(name)}: " if name else "") + text, click.style("error: ", fg="red", bold=True))


def say_errors(errors: Sequence[CerError], name: str | None) -> None:
    """Print all errors to standard error; `name` is the query file."""
    say_errors_of([(file_of(error, name), error) for error in errors])


def say_errors_of(errors: Sequence[tuple[str | None, CerError]]) -> None:
    """Print all errors to standard error, each with its file, if it has one."""
    if _errors_as_json.get():
        say(to_json({"errors": [error_facts(error, name) for name, error in errors]}))
        return
    for name, error in errors:
        say_error(error, name)


def say_notes(notes: Sequence[str]) -> None:
    """Print notes, remarks on a query without errors, to standard error."""
    for note in notes:
        say(f"note: {note}")


def file_of(error: CerError, name: str | None) -> str | None:
    """Return the query file for an error in the text of the query, or None."""
    return name if isinstance(error, QueryError) and error.text is not None else None
