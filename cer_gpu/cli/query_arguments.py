"""The queries that a command line names: QUERY, or the rules of a folder (--queries)."""

from __future__ import annotations

import functools
import gc
import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import pyarrow as pa
from click.core import ParameterSource

from cer_gpu.cli.command_line import Command, file_of, read_query, say_errors_of
from cer_gpu.cli.event_arguments import Streams, analyse_over, are_events
from cer_gpu.cli.shared_options import OF_TEXT_FILES, QueryOptions, complete_files, queries_option
from cer_gpu.compilation import (
    CompiledQuery,
    analyse,
    analyse_for_set,
    analyse_query,
    language_named,
    language_of,
)
from cer_gpu.engine.evaluation_options import OF_COMMANDS, Sort
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.preparing.facts import FROM_QUERIES
from cer_gpu.preparing.over_schema import OverSchema
from cer_gpu.preparing.sets import compiled_together
from cer_gpu.printable import counted
from cer_gpu.query_set import QuerySet
from cer_gpu.resolution.fields import field_names, in_another_case
from cer_gpu.rule import Rule, urgency
from cer_gpu.rules.folder import READERS, read_folder, skipped_files_note
from cer_gpu.rules.rule_set import analyse_rule

_Query = TypeVar("_Query")
_Result = TypeVar("_Result")
Wrong = list[tuple[str, CerError]]
"""Errors of queries, with query names."""
_LISTED = 8
"""Maximum number of fields, or rules, that a note lists."""
_NAMED = 3
"""Maximum number of rule names in a note."""
SIGMA = "sigma"
_SHOWN = {"no_progress", "as_json", "analyze", "detail", "svg", "dot", "passes"}
_OF_ANY = {"query", "queries", "events", "more_events", "out", "format_"}
OF_TABLES = frozenset(
    {*_OF_ANY, *OF_TEXT_FILES, *_SHOWN, *(name for name, option in OF_COMMANDS.items() if option.of_tables)}
)
"""Command parameters that apply to a query over a whole table."""


class WrongQueries(Exception):
    """Errors in queries, each with the name of its query."""

    def __init__(self, errors: Sequence[tuple[str, CerError]]) -> None:
        super().__init__(*(error for _, error in errors))
        self.errors = errors


def for_each(
    queries: Mapping[str, _Query], function: Callable[[_Query], _Result], skipped: Wrong | None = None
) -> dict[str, _Result]:
    """Apply a function to each query; raise `WrongQueries` with the errors of all.

    With `skipped`, a list to which the errors are added, they are raised only if all queries have errors.
    """
    results: dict[str, _Result] = {}
    errors: Wrong = []
    for name, query in queries.items():
        try:
            results[name] = function(query)
        except (QueryError, OptionError) as error:
            errors.append((name, error))
    _settle(errors, results, skipped)
    return results


def _settle(errors: Wrong, results: Mapping[str, Any], skipped: Wrong | None) -> None:
    """Raise errors, or skip them if there are results."""
    if errors and (skipped is None or not results):
        raise WrongQueries(errors)
    if skipped is not None:
        skipped += errors


def bindable_queries(
    queries: QuerySet, schema: pa.Schema, outputs: Mapping[str, str], skipped: Wrong | None
) -> tuple[QuerySet, OverSchema]:
    """Return the queries of a set that can be bound to a schema, and bound; errors are handled as by `for_each`."""
    over = queries._over_schema(schema, outputs)
    if len(outputs) >= FROM_QUERIES:
        gc.freeze()  # cached data of the queries lives until the process ends: exclude it from garbage collection
    if not over.wrong:
        return queries, over

    def check(name: str) -> None:
        if name in over.wrong:
            over.raise_error(name)

    fit = for_each({name: name for name in outputs}, check, skipped)
    rest = queries._only(fit)
    return rest, rest._over_schema(schema, {name: outputs[name] for name in fit})


def with_progress(queries: Mapping[str, CompiledQuery]) -> tuple[dict[str, CompiledQuery], list[str]]:
    """Return the queries that have the output "funnel", and the names of the others, or all queries if none has it."""
    having, aside = {}, []
    for name, query in queries.items():
        try:
            query.resolve_output("funnel")
            having[name] = query
        except OptionError:
            aside.append(name)
    return (having, aside) if having else (dict(queries), [])


def first_of(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f", and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def notes_of(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return remarks on queries with query names; a remark on several queries appears once."""
    names: dict[str, list[str]] = {}
    for name, note in notes:
        names.setdefault(note, []).append(name)
    return [f"{_names_in_words(own)}: {note}" if own != [""] else note for note, own in names.items()]


def _names_in_words(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])}, and {len(names) - _NAMED:,} more rules"


def aside_note(names: Sequence[str]) -> list[str]:
    """Return the remark on queries without the output "funnel", or []."""
    return [f"{counted(len(names), 'rule')} without a sequence of steps: {first_of(names)}"] if names else []


def missing_notes(
    missing: Mapping[str, Sequence[str]], schemas: Collection[pa.Schema], rules: Mapping[str, Rule]
) -> list[str]:
    """Return remarks on fields that are missing in the events, by the queries that name them."""
    names = {name for schema in schemas for name in field_names(schema)}
    missing = {
        name: rules[name].missing(fields, names) if name in rules else fields for name, fields in missing.items()
    }
    counts = Counter(field for fields in missing.values() for field in dict.fromkeys(fields))
    if not counts:
        return []
    who, whose, fields = "the query names", "", list(counts)
    if len(missing) > 1:
        n = sum(bool(fields) for fields in missing.values())
        who = f"{n:,} of {counted(len(missing), 'rule')} {'names' if n == 1 else 'name'}"
        fields = [f"{name} ({n:,})" for name, n in counts.most_common()]
        whose = f"; by {_names_in_words([name for name, own in missing.items() if own])}"
    near = {name: other for schema in schemas for name, other in in_another_case(counts, schema).items()}
    meant = [f"{first_of([f'{name}: did you mean {other}?' for name, other in near.items()])}"] if near else []
    return [f"{who} fields that the events do not have, read as null: {first_of(fields)}{whose}", *meant]


def source_query(words: str) -> str:
    """Return the name of the query that finds the events of a log source; no file can have this name."""
    return f"\0log source: {words}"


def absent_notes(rules: Mapping[str, Rule], absent: Collection[str]) -> list[str]:
    """Return the remark on log sources without events, with the number of rules of each, or []."""
    counts = Counter(rule.log_source for rule in rules.values() if rule.log_source in absent)
    if not counts:
        return []
    listed = first_of([f"{words} ({n:,})" for words, n in counts.most_common()])
    return [f"no events of the log sources of {counted(counts.total(), 'rule')}, which cannot match: {listed}"]


@dataclass(frozen=True)
class QueryArguments:
    """Rules by name, to be compiled.

    Attributes
    ----------
    rules : dict from str to Rule
    options : QueryOptions
    is_set : bool
        True for the rules of a folder, even if there is only one; False for QUERY, whose name is "".
    skipped_files : dict from str to int
        Number of rules of the folder in unsupported languages, by language or kind.
    unread : list of (str, CerError)
        Files of the folder that cannot be read, and the errors.
    remarks : list of str
        Remarks on rules of the folder that cannot have matches.
    skipped : list of (str, CerError), optional
        Collects the errors of skipped rules; if None, errors are raised.
    log_sources : dict from str to str
        Queries that find the events of log sources, by the names of log sources in rules.
    """

    rules: Mapping[str, Rule]
    options: QueryOptions
    is_set: bool
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    unread: Sequence[tuple[str, CerError]] = ()
    remarks: Sequence[str] = ()
    skipped: Wrong | None = None
    log_sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """Files of the rules."""
        return list(dict.fromkeys(rule.file for rule in self.rules.values() if rule.file is not None))

    @property
    def time_column(self) -> str | None:
        """The time column."""
        time_column: str | None = self.compiling["time_column"]
        return time_column

    def timed_by_logs(self, streams: Streams, sort: Sort) -> tuple[QueryArguments, Sort]:
        """Return the queries with the time column of the logs, and sorting by it, unless they have one or need none."""
        if self.time_column is not None or language_of("" if self.is_set else self.rules[""].text).reads_whole_table:
            return self, sort
        times = streams.times_of_logs
        if len(times) > 1 and any(times):
            files = "; ".join(f"{file} has {name or 'none of its format'}" for name, file in times.items())
            remark = (
                "the events are in the order of the files, and alerts have no times: the logs have different time "
                f"columns (--time-column sets one for all): {files}"
            )
            return replace(self, remarks=[*self.remarks, remark]), sort
        column = next(iter(times), None)
        if column is None:
            return self, sort
        remark = f"the events are sorted by {column}, their log time (--time-column sets another column)"
        timed = replace(self, options=replace(self.options, time_column=column), remarks=[*self.remarks, remark])
        return timed, sort or True

    @property
    def raises_alerts(self) -> bool:
        """True for a folder with rules that have levels."""
        return self.is_set and any(rule.level is not None for rule in self.rules.values())

    def compile(self, streams: Streams, *, of_ceql: bool = False, of_sources: bool = False) -> dict[str, CompiledQuery]:
        """Compile all queries, as `analyse_over` does; raise `WrongQueries` with the errors of all.

        With `of_ceql`, queries over a whole table are errors; with `of_sources`, the queries that find the events of
        log sources are included, named by `source_query`.
        """
        queries: dict[str, CompiledQuery] = {}
        errors: Wrong = list(self.unread)
        if self.is_set:
            texts = {name: (rule.text, rule.language) for name, rule in self.rules.items()}
            named = {rule.log_source for rule in self.rules.values()} if of_sources else ()
            texts |= {source_query(words): (text, SIGMA) for words, text in self.log_sources.items() if words in named}
            queries = compiled_together(texts, **self.compiling)
            wrong = [name for name, query in queries.items() if of_ceql and query.reads_whole_table]
            queries = {name: query for name, query in queries.items() if name not in wrong}
        for name in self.rules:
            if name in queries:
                continue
            query, own = analyse_over(partial(self.analyse, name, of_ceql=of_ceql), streams)
            errors += [(name, error) for error in own]
            if query is not None:
                queries[name] = query
        _settle(errors, queries, self.skipped)
        return queries

    def analyse(
        self, name: str, *, of_ceql: bool = False, **more: Any
    ) -> tuple[CompiledQuery | None, Sequence[CerError]]:
        """Compile a query, or return its errors; `more` are options of `cer_gpu.compile`."""
        rule = self.rules[name]
        how = analyse_for_set if self.is_set else analyse
        query, errors = analyse_rule(rule, how, **self.compiling, **more)
        if of_ceql and query is not None and query.reads_whole_table:
            return analyse_query(rule.text)
        return query, errors

    @cached_property
    def compiling(self) -> dict[str, Any]:
        """Options of `cer_gpu.compile` for the queries."""
        return self.options.of_rules(self.rules.values(), is_set=self.is_set)

    def with_note_on_log_sources(self) -> QueryArguments:
        """Return the queries with a remark if there are rules of Sigma whose log sources no pipeline maps."""
        n_rules = sum(rule.language == SIGMA for rule in self.rules.values())
        if self.options.fields.pipelines or not n_rules:
            return self
        remark = (
            f"the log sources of {counted(n_rules, 'Sigma rule')} are not tested: without --pipeline, a condition "
            "applies to all events"
        )
        return replace(self, remarks=[*self.remarks, remark])

    def forget_skipped(self) -> None:
        """Forget the rules that were skipped, before they are compiled again."""
        if self.skipped is not None:
            self.skipped.clear()

    def refuse_options_of_ceql(self) -> None:
        """Raise UsageError for an option that does not apply to QUERY in a language over whole tables."""
        language = language_of("" if self.is_set else self.rules[""].text)
        context = click.get_current_context()
        for parameter in context.command.params if language.reads_whole_table else ():
            name = parameter.name or ""
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT and name not in OF_TABLES:
                raise click.UsageError(
                    f"{parameter.opts[0]} is an option of CEQL, and QUERY is in {language.name}; "
                    f"{language.instead.get(name, 'leave it out')}"
                )

    def file_of(self, name: str, error: CerError) -> str | None:
        """Return the file to name in the message of an error: that of a query, not of events."""
        if name not in self.rules:  # the message names the file
            return None
        place = self.rules[name].place(error)
        if self.is_set and isinstance(error, QueryError | OptionError):
            return place
        return file_of(error, place)

    def say(self, errors: Sequence[tuple[str, CerError]]) -> None:
        """Print errors, each with the name of its query, to standard error."""
        say_errors_of([(self.file_of(name, error), error) for name, error in errors])

    @property
    def _languages(self) -> list[str]:
        """The number of rules in each language, if there are several."""
        languages = (
            language_of(rule.text) if rule.language is None else language_named(rule.language)
            for rule in self.rules.values()
        )
        names = Counter(language.name for language in languages)
        listed = ", ".join(f"{n:,} {name}" for name, n in names.most_common())
        return [f"{counted(len(self.rules), 'rule')}: {listed}"] if len(names) > 1 else []

    @property
    def notes(self) -> list[str]:
        """Remarks on the languages of the rules, and on rules that are not evaluated."""
        over = skipped_files_note(self.skipped_files)
        notes = [*self._languages, *([] if over is None else [over]), *self.remarks]
        if self.skipped:
            invalid = {name for name, _ in self.skipped if name in self.rules}
            n_wrong = len(invalid) + sum(name not in self.rules for name, _ in self.skipped)
            notes.append(f"{counted(n_wrong, 'rule')} skipped because of errors (cer-gpu check lists them all)")
            notes += [f"skipped: {self._reason(*each)}" for each in self.skipped[:_LISTED]]
        return notes

    def _reason(self, name: str, error: CerError) -> str:
        """Return the name of a skipped rule, and the first line of the reason."""
        reason = (error.message if isinstance(error, QueryError) else str(error)).partition("\n")[0]
        return reason if name not in self.rules else f"{name}: {reason}"


def read_one_or_folder(
    query: str | None, folder: str | None, options: QueryOptions, *, skip_invalid: bool
) -> QueryArguments:
    """Read QUERY, or the rules of a folder, for a command that takes one of them and no events.

    Raises
    ------
    OptionError
        As `read_queries`.
    """
    if (query is None) == (folder is None):
        raise click.UsageError("expected QUERY or --queries FOLDER" + ("" if query is None else ", got both"))
    return read_queries(query, folder, options, skip_invalid=skip_invalid)


def read_queries(
    query: str | None,
    folder: str | None,
    options: QueryOptions,
    *,
    skip_invalid: bool = False,
    level: str | None = None,
) -> QueryArguments:
    """Read QUERY, or the rules of a folder, optionally only those of a level and more urgent ones.

    Raises
    ------
    OptionError
        When a file cannot be read, or the folder has none.
    """
    if folder is None:
        assert query is not None
        if level is not None:
            raise click.UsageError("--level is an option of --queries: a query has no level")
        rule = read_query(query, options.fields)
        if options.fields and rule.language != SIGMA:
            raise click.UsageError("--pipeline and --columns are options of Sigma rules (*.yml), and QUERY is not one")
        return QueryArguments({"": rule}, options, is_set=False)
    contents = read_folder(folder, options.fields)
    skipped: Wrong | None = [] if skip_invalid else None
    rules, remarks = contents.rules, list(contents.notes)
    if level is not None:
        rules = {name: rule for name, rule in rules.items() if urgency(rule.level) <= urgency(level)}
        if not rules:
            raise OptionError(f"{folder}: expected rules of level {level} or a more urgent one, found none")
        remarks.append(
            f"{len(contents.rules) - len(rules):,} of {counted(len(contents.rules), 'rule')} skipped: "
            f"below --level {level}"
        )
    return QueryArguments(
        rules,
        options,
        True,
        contents.skipped_files,
        contents.errors,
        remarks,
        skipped,
        log_sources=contents.log_sources,
    )


def query_and_events_arguments(
    *, events_required: bool = True, instead_of_events: str | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds the arguments QUERY and EVENTS, and --queries, which makes all arguments EVENTS.

    The command gets one of `query` and `queries`, and `events`, which is empty with the option `instead_of_events`.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*args: Any, query: str | None, queries: str | None, events: tuple[str, ...], **options: Any) -> Any:
            if queries is not None:
                events, query = events if query is None else (query, *events), None
                _check_no_query(events)
            elif query is None:
                raise _missing("query")
            if query is not None:
                _check_order(query, events)
            if instead_of_events is not None and options[instead_of_events] is not None:
                if events:
                    raise click.UsageError(f"expected --{instead_of_events} or EVENTS, got both; EVENTS: {events[0]}")
            elif events_required and not events:
                raise _missing("events")
            return command(*args, query=query, queries=queries, events=events, **options)

        several = "EVENTS..." if events_required else "[EVENTS]..."
        parameters = [
            click.argument("query", required=False, metavar="QUERY", shell_complete=complete_files),
            click.argument("events", nargs=-1, metavar=several, shell_complete=complete_files),
            queries_option,
        ]
        decorated: Any = wrapper
        for parameter in reversed(parameters):
            decorated = parameter(decorated)
        return cast(Command, decorated)

    return decorate


def _check_order(query: str, events: Sequence[str]) -> None:
    """Raise UsageError if QUERY names events."""
    if are_events(query):
        command = click.get_current_context().command_path
        text = next((event for event in events if _is_query(event)), None)
        better = f": {command} {shlex.quote(text)} {shlex.quote(query)}" if text else f": {command} QUERY EVENTS"
        raise click.UsageError(f"{query!r} names events, and QUERY must come before them{better}")


def _is_query(text: str) -> bool:
    return Path(text).suffix in READERS or (any(c.isspace() for c in text) and not os.path.exists(text))


def _check_no_query(events: Sequence[str]) -> None:
    for event in events:
        if _is_query(event):
            raise click.UsageError(f"with --queries all arguments are EVENTS, and {event!r} is a query")


def _missing(name: str) -> click.MissingParameter:
    context = click.get_current_context()
    parameter = next(each for each in context.command.params if each.name == name)
    return click.MissingParameter(ctx=context, param=parameter)
