"""The queries that a command line names: QUERY, or a folder of query files (--queries)."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from cer_gpu.ceql.query_file import queries_in, read_query_file
from cer_gpu.cli.command_line import Command, file_of, read_query, say_errors_of
from cer_gpu.cli.given_events import Asked, Streams, analyse_over, are_events
from cer_gpu.cli.options import complete_files
from cer_gpu.compilation import CompiledQuery, analyse, analyse_member, analyse_query, language_of
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.query import Query

_Result = TypeVar("_Result")
_SHOWN = {"no_progress", "as_json", "analyze", "svg", "dot", "passes"}
OF_TABLES = frozenset({"query", "queries", "events", "out", "format_", "limit", "device"} | _SHOWN)
"""Parameters of commands that a query over a whole table takes."""


class WrongQueries(Exception):
    """Errors in queries, each with the name of its query."""

    def __init__(self, errors: Sequence[tuple[str, CerError]]) -> None:
        super().__init__(*(error for _, error in errors))
        self.errors = errors


def for_each(queries: Mapping[str, Asked], function: Callable[[Asked], _Result]) -> dict[str, _Result]:
    """Apply a function to each query; raise `WrongQueries` with the errors of all."""
    results: dict[str, _Result] = {}
    errors: list[tuple[str, CerError]] = []
    for name, query in queries.items():
        try:
            results[name] = function(query)
        except (QueryError, OptionError) as error:
            errors.append((name, error))
    if errors:
        raise WrongQueries(errors)
    return results


@dataclass(frozen=True)
class GivenQueries:
    """Queries by name.

    Attributes
    ----------
    texts : dict from str to str
    files : dict from str to str
        Files of the queries that are in files.
    is_set : bool
        True for those of a folder, also where it has one only; False for QUERY, whose name is "".
    """

    texts: dict[str, str]
    files: dict[str, str]
    is_set: bool

    def compile(self, streams: Streams, **options: Any) -> dict[str, Query]:
        """Compile all queries, as `analyse_over` does; raise `WrongQueries` with the errors of all."""
        return self._compile(analyse_query, streams, options)

    def compile_any(self, streams: Streams, **options: Any) -> Mapping[str, CompiledQuery]:
        """As `compile`, where QUERY may be of any language."""
        return self._compile(self.analyse, streams, options)

    def analyse(self, text: str, **options: Any) -> tuple[CompiledQuery | None, Sequence[CerError]]:
        """Compile a query, QUERY in any language, as `cer_gpu.compilation.analyse` does."""
        return (analyse_member if self.is_set else analyse)(text, **options)

    def _compile(
        self,
        analyse: Callable[..., tuple[Asked | None, Sequence[CerError]]],
        streams: Streams,
        options: Mapping[str, Any],
    ) -> dict[str, Asked]:
        queries: dict[str, Asked] = {}
        errors: list[tuple[str, CerError]] = []
        for name, text in self.texts.items():
            query, own = analyse_over(analyse, text, streams, **options)
            errors += [(name, error) for error in own]
            if query is not None:
                queries[name] = query
        if errors:
            raise WrongQueries(errors)
        return queries

    def refuse_options_of_ceql(self) -> None:
        """Raise UsageError for an option that QUERY, in a language over whole tables, does not take."""
        language = language_of("" if self.is_set else self.texts[""])
        context = click.get_current_context()
        for parameter in context.command.params if language.reads_whole_table else ():
            name = parameter.name or ""
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT and name not in OF_TABLES:
                raise click.UsageError(
                    f"{parameter.opts[0]} is an option of CEQL, and QUERY is a statement with {language.name}; "
                    f"{language.instead.get(name, 'leave it out')}"
                )

    def file_of(self, name: str, error: CerError) -> str | None:
        """Return the file that a message on an error names: that of a query, not that of events."""
        if self.is_set and isinstance(error, QueryError | OptionError):
            return self.files[name]
        return file_of(error, self.files.get(name))

    def say(self, errors: Sequence[tuple[str, CerError]]) -> None:
        """Print errors, each with the name of its query, to standard error."""
        say_errors_of([(self.file_of(name, error), error) for name, error in errors])


def read_queries(query: str | None, folder: str | None) -> GivenQueries:
    """Read QUERY, or the query files of a folder.

    Raises
    ------
    OptionError
        When a file cannot be read, or the folder has none.
    """
    if folder is None:
        assert query is not None
        file, text = read_query(query)
        return GivenQueries({"": text}, {} if file is None else {"": file}, is_set=False)
    files = {name: str(path) for name, path in queries_in(folder).items()}
    return GivenQueries({name: read_query_file(path) for name, path in files.items()}, files, is_set=True)


def query_and_events_arguments(*, events_required: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds the arguments QUERY and EVENTS, and --queries, with which all arguments are EVENTS.

    The command gets one of `query` and `queries`, and `events`.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def sorted_out(
            *args: Any, query: str | None, queries: str | None, events: tuple[str, ...], **given: Any
        ) -> Any:
            if queries is not None:
                events, query = events if query is None else (query, *events), None
                _check_no_query(events)
            elif query is None:
                raise _missing("query")
            if query is not None:
                _check_order(query, events)
            if events_required and not events:
                raise _missing("events")
            return command(*args, query=query, queries=queries, events=events, **given)

        several = "EVENTS..." if events_required else "[EVENTS]..."
        parameters = [
            click.argument("query", required=False, metavar="QUERY", shell_complete=complete_files),
            click.argument("events", nargs=-1, metavar=several, shell_complete=complete_files),
            click.option(
                "--queries",
                metavar="FOLDER",
                shell_complete=complete_files,
                help="All query files (*.ceql) of this folder, in place of QUERY.",
            ),
        ]
        made: Any = sorted_out
        for parameter in reversed(parameters):
            made = parameter(made)
        return cast(Command, made)

    return decorate


def _check_order(query: str, events: Sequence[str]) -> None:
    """Raise UsageError if QUERY names events."""
    if are_events(query):
        command = click.get_current_context().command_path
        text = next((given for given in events if _is_query(given)), None)
        better = f": {command} {shlex.quote(text)} {shlex.quote(query)}" if text else f": {command} QUERY EVENTS"
        raise click.UsageError(f"{query!r} names events, and QUERY comes before them{better}")


def _is_query(given: str) -> bool:
    return given.endswith(".ceql") or (any(c.isspace() for c in given) and not os.path.exists(given))


def _check_no_query(events: Sequence[str]) -> None:
    for given in events:
        if _is_query(given):
            raise click.UsageError(f"with --queries there is no QUERY, and all arguments are EVENTS; {given!r} is none")


def _missing(name: str) -> click.MissingParameter:
    context = click.get_current_context()
    parameter = next(each for each in context.command.params if each.name == name)
    return click.MissingParameter(ctx=context, param=parameter)
