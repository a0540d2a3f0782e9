"""Arguments and options that several commands of `cer-gpu` share, those for compiling queries among them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from cer_gpu.cli.command_line import Command
from cer_gpu.columnar.clocks import TIME_UNITS
from cer_gpu.columnar.memory_limit import size_in_bytes
from cer_gpu.compilation import LANGUAGES, MISSING_IN_RULES, TYPE_COLUMN
from cer_gpu.engine.evaluation_options import OF_COMMANDS, EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.io.text_options import TextOptions
from cer_gpu.order.times import Period
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.rule import LEVELS, Rule
from cer_gpu.rules.alerts import ALERTS
from cer_gpu.rules.folder import AS_NAMED, FieldColumns
from cer_gpu.rules.rule_set import options_of_rules


def complete_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return a request to the shell to complete a file name."""
    return [CompletionItem(incomplete, type="file")]


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""An option or argument that commands have in common."""

events_argument: Decorator = click.argument("events", nargs=-1, required=True, shell_complete=complete_files)
query_argument: Decorator = click.argument("query", shell_complete=complete_files)
optional_query_argument: Decorator = click.argument("query", required=False, shell_complete=complete_files)
queries_option: Decorator = click.option(
    "--queries",
    metavar="FOLDER",
    shell_complete=complete_files,
    help="All rules of this folder, instead of QUERY: *.ceql, *.eql, *.sql, *.toml, *.yml.",
)
TEXT_FILE_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--null-values",
        metavar="TEXT,...",
        help="CSV fields to read as NULL; '' is the empty field.  [default: as in pyarrow: empty, NA, null, ...]",
    ),
    click.option("--strings-can-be-null", is_flag=True, help="Also apply --null-values to string columns (CSV)."),
    click.option(
        "--quoted-strings-can-be-null/--no-quoted-strings-can-be-null",
        default=True,
        help="Also apply --null-values to quoted fields (CSV).  [default: yes]",
    ),
    click.option(
        "--empty-is-text",
        is_flag=True,
        help="Read an empty field of a string column as the empty string, not NULL (CSV).",
    ),
    click.option("--delimiter", metavar="CHAR", help="CSV separator.  [default: , ; | or tab, from the header]"),
    click.option("--decimal-comma", is_flag=True, help="Read numbers with a decimal comma, such as 3,14 (CSV)."),
    click.option(
        "--time-format",
        "time_formats",
        multiple=True,
        metavar="[COLUMN=]FORMAT",
        help="Format of timestamps in text files that are not ISO 8601, as in strptime: '%d/%m/%Y %H:%M:%S.%f'; "
        "COLUMN=epoch means seconds since 1970.",
    ),
    click.option(
        "--column-types",
        multiple=True,
        metavar="COLUMN=TYPE,...",
        help="Types of columns of text files, such as float64, string or 'timestamp[ns, UTC]'.",
    ),
    click.option(
        "--max-decompressed",
        metavar="SIZE",
        help="Largest size of a compressed file, or of all files of an archive, after decompression.  [default: 64GiB]",
    ),
)
OF_TEXT_FILES = (
    "null_values",
    "strings_can_be_null",
    "quoted_strings_can_be_null",
    "empty_is_text",
    "delimiter",
    "decimal_comma",
    "time_formats",
    "column_types",
    "max_decompressed",
)
"""Command parameters for reading text files."""
_FORMAT_OF_COLUMN = re.compile(r"([^%=]+)=(.+)", re.DOTALL)


def reading_options(command: Command) -> Command:
    """Add the options for reading text files; the command gets them as `reading`, a `TextOptions`."""

    @functools.wraps(command)
    def wrapper(*args: Any, **values: Any) -> Any:
        reading = reading_of({name: values.pop(name) for name in OF_TEXT_FILES})
        return command(*args, reading=reading, **values)

    decorated: Any = wrapper
    for option in reversed(TEXT_FILE_OPTIONS):
        decorated = option(decorated)
    return cast(Command, decorated)


def reading_of(values: Mapping[str, Any]) -> TextOptions:
    """Return the options for reading text files, given values by the names of `OF_TEXT_FILES`.

    Raises
    ------
    OptionError
        When a value is invalid.
    """
    own = dict(values)
    nulls, formats = own.pop("null_values"), dict[str, str]()
    for text in own.pop("time_formats"):
        named = _FORMAT_OF_COLUMN.fullmatch(text)
        formats[named[1] if named else ""] = named[2] if named else text
    return TextOptions.from_values(
        null_values=None if nulls is None else tuple(nulls.split(",")),
        time_format=formats,
        column_types=_types_of(own.pop("column_types")),
        **own,
    )


def _types_of(values: Iterable[str]) -> dict[str, str]:
    """Return the types of --column-types by column; commas inside brackets do not separate."""
    pairs = {}
    for text in re.split(r",(?![^\[]*\])", ",".join(values)):
        column, equals, kind = (part.strip() for part in text.rpartition("="))
        if "[" in column and "tz" in column:  # timestamp[us, tz=UTC]
            column, equals, kind = (part.strip() for part in text.partition("="))
        if equals and column and kind:
            pairs[column] = kind
        elif text.strip():
            raise click.UsageError(f"--column-types: expected COLUMN=TYPE, got {text.strip()!r}")
    return pairs


class _SortType(click.ParamType[Any]):
    """Comma-separated names of columns, or nothing for only the time column."""

    name = "COLUMN,..."

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return True, or the list of names."""
        return value if isinstance(value, bool | list) else True if not value else value.split(",")


SORT_FLAG = "--sort="
"""The form of ``--sort`` without columns (`with_sort`)."""


def with_sort(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which ``--sort`` has a value: the comma-separated columns after it, or none."""
    result: list[str] = []
    for argument in arguments:
        if result and result[-1] == "--sort":
            is_columns = "," in argument and not argument.startswith("-") and not re.search(r"[\s/=]", argument)
            result[-1:] = [SORT_FLAG + argument] if is_columns else [SORT_FLAG, argument]
        else:
            result.append(argument)
    return [*result[:-1], SORT_FLAG] if result[-1:] == ["--sort"] else result


skip_invalid_option: Decorator = click.option(
    "--skip-invalid",
    is_flag=True,
    help="Skip rules of --queries that cannot be read or do not fit the events, with a note.",
)


skip_unreadable_option: Decorator = click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Skip files that cannot be read, with a note.",
)


class _SizeType(click.ParamType[str]):
    """A memory size."""

    name = "SIZE"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        """Return a size as a string, or raise UsageError."""
        try:
            size_in_bytes(value)
        except OptionError:
            self.fail(f"expected a size such as 2GiB or 500MB, got {value!r}", parameter, context)
        return str(value)


# ---- options of evaluations ---------------------------------------------------------------------------------------

_OF_RUNS: dict[str, Decorator] = {
    "no_progress": click.option(
        "--no-progress",
        is_flag=True,
        help="Hide the progress bar and per-batch log lines.",
    ),
    "as_json": click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the summary as JSON on standard output (standard error with -o -).",
    ),
}
"""Options of commands that evaluate queries, besides those of `EvaluationOptions`."""
_TYPES: dict[str, click.ParamType[Any]] = {"sort": _SortType(), "max_memory": _SizeType()}


@dataclass(frozen=True)
class CommandOptions:
    """Options of a command that evaluates queries.

    Attributes
    ----------
    evaluation : EvaluationOptions
        Evaluation options, with defaults.
    explicit : dict from str to Any
        Options set on the command line, by name.
    no_progress, as_json : bool
    """

    evaluation: EvaluationOptions
    explicit: Mapping[str, Any]
    no_progress: bool = False
    as_json: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> CommandOptions:
        """Return the options for values by name, None or False if not set.

        Raises
        ------
        OptionError
            When a value is invalid.
        """
        flags = {name: values[name] for name in _OF_RUNS if name in values}
        explicit = {name: value for name, value in values.items() if name in OF_COMMANDS and value not in (None, False)}
        lateness = {"lateness": "0"} if "late" in explicit else {}
        return cls(EvaluationOptions(**(lateness | explicit)), explicit, **flags)

    def check_time(self, time_column: str | None, others: Mapping[str, object] = MappingProxyType({})) -> None:
        """Raise UsageError for the first option that needs a time column, if there is none; see `needs_time`."""
        timed = {_flag_of(name): value for name, value in self.explicit.items() if OF_COMMANDS[name].timed}
        needs_time(time_column, {**others, **timed})

    def check_live(self) -> None:
        """Raise UsageError for an option that does not apply to a live run."""
        for name in self.explicit:
            if not OF_COMMANDS[name].of_live:
                hint = "; --lateness puts late events in order" if name == "sort" else ""
                raise click.UsageError(f"{_flag_of(name)} cannot be used with --follow{hint}")


def _flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def declared_option(name: str, **changed: Any) -> Decorator:
    """Return the command option for a field of `EvaluationOptions`; `changed` overrides its declaration."""
    option = OF_COMMANDS[name]
    kind: Any = _TYPES.get(name)
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.least is not None:
        kind = click.IntRange(min=option.least)
    declared = {"type": kind, "metavar": option.metavar, "help": option.help, "default": None}
    return click.option(_flag_of(name), name, **(declared | changed))


def run_options(*names: str, **changed: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Add options of evaluations to a command, which gets them as `run`, a `CommandOptions`.

    Parameters
    ----------
    *names
        Fields of `EvaluationOptions`, "no_progress" and "as_json"; all of them if none is named.
    **changed
        Arguments of `click.option` by name, which override the declaration.
    """
    names = names or (*OF_COMMANDS, *_OF_RUNS)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*args: Any, **values: Any) -> Any:
            own = {name: values.pop(name) for name in names}
            return command(*args, run=CommandOptions.from_values(own), **values)

        decorated: Any = wrapper
        for name in reversed(names):
            decorated = (_OF_RUNS.get(name) or declared_option(name, **changed.get(name, {})))(decorated)
        return cast(Command, decorated)

    return decorate


def output_of_rows(*more: str, usual: str = "positions") -> dict[str, Any]:
    """Return the declaration of ``--output`` for a command that also writes alerts, and `more`."""
    timeline = "; timeline: alerts with the column names of timeline tools" if more else ""
    return {
        "type": click.Choice([*OUTPUTS, ALERTS, *more]),
        "help": f"Content of a row{timeline}.  [default: alerts if rules of --queries have levels, measures if "
        f"SELECT has some, else {usual}]",
    }


def options_of(*decorators: Decorator) -> list[click.Option]:
    """Return the options that decorators add to a command, for commands without `click`."""

    def nothing() -> None:
        """Carry the options."""

    decorated: Any = nothing
    for decorate in reversed(decorators):
        decorated = decorate(decorated)
    return list(reversed(decorated.__click_params__))


def period_options(command: Command) -> Command:
    """Add the options for a period of time; the command gets them as `period`, a `Period`."""

    @functools.wraps(command)
    def wrapper(*args: Any, after: str | None, before: str | None, **values: Any) -> Any:
        return command(*args, period=Period(after, before), **values)

    decorated: Any = wrapper
    for option in (
        click.option("--before", metavar="TIME", help="Read only events before this time."),
        click.option(
            "--after", metavar="TIME", help="Read only events from this time on, such as 2026-11-27, 2026-11-27T12:30Z."
        ),
    ):
        decorated = option(decorated)
    return cast(Command, decorated)


level_option: Decorator = click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="Use only rules of --queries of this level or a more urgent one.",
)


def needs_time(time_column: str | None, options: Mapping[str, object]) -> None:
    """Raise UsageError for the first of `options` (values by name) that is set without a time column."""
    for option, value in options.items():
        if value and time_column is None:
            raise click.UsageError(f"{option} needs a time column: --time-column")


# ---- compiling queries --------------------------------------------------------------------------------------------

MISSING = ("error", "null")
SELECTIONS = ("recent", "all")

QUERY_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--language",
        type=click.Choice([each.name.lower() for each in LANGUAGES]),
        help="Language of the query.  [default: from its text or file name]",
    ),
    click.option(
        "--type-column", metavar="NAME", help="Column of event types.  [default: type; event.category for EQL]"
    ),
    click.option("--no-type-column", is_flag=True, help="Use the stream's name (FROM) as the type of all its events."),
    click.option(
        "--time-column",
        metavar="NAME",
        help="Column of timestamps, which must not decrease.  [default: @timestamp for EQL]",
    ),
    click.option("--time-unit", type=click.Choice(list(TIME_UNITS)), help="Unit of an integer time column."),
    click.option(
        "--missing-fields",
        type=click.Choice(MISSING),
        help="Fields that the events lack: an error, or null with a note (EQL, Sigma).  "
        "[default: null for Sigma and --queries, else error]",
    ),
    click.option(
        "--selection",
        type=click.Choice(SELECTIONS),
        help="EQL sequence matching: as Elasticsearch does, or all matches.  [default: recent]",
    ),
    click.option(
        "--pipeline",
        "pipelines",
        multiple=True,
        metavar="NAME|FILE",
        shell_complete=complete_files,
        help="Sigma log sources and fields of the events, such as windows, linux or zeek; may be repeated.",
    ),
    click.option(
        "--columns",
        multiple=True,
        metavar="FIELD=COLUMN,...",
        help="Columns of Sigma fields; overrides pipelines.",
    ),
    click.option(
        "--nocase-groups",
        is_flag=True,
        help="Ignore letter case in the groups and distinct values of Sigma correlations.",
    ),
)
_NAMES = (
    "language",
    "type_column",
    "no_type_column",
    "time_column",
    "time_unit",
    "missing_fields",
    "selection",
    "pipelines",
    "columns",
    "nocase_groups",
)
_OF_SOME = ("missing_fields", "selection")


@dataclass(frozen=True)
class QueryOptions:
    """Options with which queries are compiled; None if not set, unless stated otherwise.

    Attributes
    ----------
    type_column : str or None
        Column of event types, a `cer_gpu.engine.evaluation_options.OverridableDefault` if not set; None if there is
        none.
    time_column, time_unit, language, missing_fields, selection : str or None
    fields : FieldColumns
        Columns of the fields of Sigma.
    """

    type_column: str | None
    time_column: str | None = None
    time_unit: str | None = None
    language: str | None = None
    missing_fields: str | None = None
    selection: str | None = None
    fields: FieldColumns = AS_NAMED

    def of_rules(self, rules: Iterable[Rule], *, is_set: bool) -> dict[str, Any]:
        """Return the options of `cer_gpu.compile` for rules, which share the type column and the time column."""
        options: dict[str, Any] = {
            "type_column": self.type_column,
            "time_column": self.time_column,
            "time_unit": self.time_unit,
        }
        if self.language is not None:
            options["language"] = self.language
        own = {name: getattr(self, name) for name in _OF_SOME if getattr(self, name) is not None}
        return {**({"missing_fields": MISSING_IN_RULES} if is_set else {}), **own, **options_of_rules(rules, options)}


def query_options(command: Command) -> Command:
    """Add the options for compiling queries; the command gets them as `compiling`, a `QueryOptions`."""

    @functools.wraps(command)
    def wrapper(*args: Any, **values: Any) -> Any:
        own = {name: values.pop(name) for name in _NAMES}
        types, none = own.pop("type_column"), own.pop("no_type_column")
        fields = FieldColumns(own.pop("pipelines"), _pairs_of(own.pop("columns")), own.pop("nocase_groups"))
        if none and types is not None:
            raise click.UsageError("expected either --type-column or --no-type-column, got both")
        compiling = QueryOptions(None if none else types or TYPE_COLUMN, fields=fields, **own)
        return command(*args, compiling=compiling, **values)

    decorated: Any = wrapper
    for option in reversed(QUERY_OPTIONS):
        decorated = option(decorated)
    return cast(Command, decorated)


def _pairs_of(values: Iterable[str]) -> dict[str, str]:
    """Return the columns of --columns by field."""
    pairs = {}
    for text in ",".join(values).split(","):
        field, equals, column = (part.strip() for part in text.partition("="))
        if equals and field and column:
            pairs[field] = column
        elif text.strip():
            raise click.UsageError(f"--columns: expected FIELD=COLUMN, got {text.strip()!r}")
    return pairs
