"""Arguments and options that several commands of `cer-gpu` share, those for compiling queries among them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from cer_gpu.cli.command_line import Command
from cer_gpu.columnar.clocks import TIME_UNITS
from cer_gpu.columnar.memory_limit import size_in_bytes
from cer_gpu.compilation import LANGUAGES, MISSING_IN_RULES, TYPE_COLUMN
from cer_gpu.engine.evaluation_options import REPORT, UNDECIDED
from cer_gpu.errors import OptionError
from cer_gpu.io.text_options import TextOptions
from cer_gpu.order.times import Period
from cer_gpu.rule import LEVELS, Rule
from cer_gpu.rules.found import AS_NAMED, FieldColumns
from cer_gpu.rules.rule_set import options_of_rules


def complete_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the completion of a file name, which the shell does."""
    return [CompletionItem(incomplete, type="file")]


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""An option or argument that commands have in common."""

events_argument: Decorator = click.argument("events", nargs=-1, required=True, shell_complete=complete_files)
query_argument: Decorator = click.argument("query", shell_complete=complete_files)
_OF_TEXT_FILES: tuple[Decorator, ...] = (
    click.option(
        "--null-values",
        metavar="TEXT,...",
        help="Of CSV, the fields that are NULL; '' is the empty one.  [default: as in pyarrow: empty, NA, null, ...]",
    ),
    click.option(
        "--strings-can-be-null", is_flag=True, help="Of CSV, all such fields are NULL in columns of text, too."
    ),
    click.option(
        "--quoted-strings-can-be-null/--no-quoted-strings-can-be-null",
        default=True,
        help="Of CSV, such fields are NULL between quotes, too.  [default: they are]",
    ),
    click.option("--empty-is-text", is_flag=True, help="Of CSV, an empty field of a column of text is no NULL."),
    click.option("--delimiter", metavar="CHAR", help="Of CSV, the separator.  [default: , ; | or tab, by the header]"),
    click.option("--decimal-comma", is_flag=True, help="Of CSV, numbers are written with a comma: 3,14."),
    click.option(
        "--time-format",
        "time_formats",
        multiple=True,
        metavar="[COLUMN=]FORMAT",
        help="Of text files, the format of times that are not ISO 8601, as of strptime: '%d/%m/%Y %H:%M:%S.%f'; "
        "COLUMN=epoch: seconds since 1970.",
    ),
    click.option(
        "--column-types",
        multiple=True,
        metavar="COLUMN=TYPE,...",
        help="Of text files, the types of columns, such as float64, string or 'timestamp[ns, UTC]'.",
    ),
    click.option(
        "--max-decompressed",
        metavar="SIZE",
        help="Most bytes of a compressed file, or of all in an archive, after decompression.  [default: 64GiB]",
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
"""Parameters of commands that tell how text files are read."""
_FORMAT_OF_COLUMN = re.compile(r"([^%=]+)=(.+)", re.DOTALL)


def reading_options(command: Command) -> Command:
    """Add the options for reading text files; the command gets them as `reading`, a `TextOptions`."""

    @functools.wraps(command)
    def taking(*args: Any, **given: Any) -> Any:
        reading = reading_of({name: given.pop(name) for name in OF_TEXT_FILES})
        return command(*args, reading=reading, **given)

    made: Any = taking
    for option in reversed(_OF_TEXT_FILES):
        made = option(made)
    return cast(Command, made)


def reading_of(given: Mapping[str, Any]) -> TextOptions:
    """Return the options for reading text files, of values by the names of `OF_TEXT_FILES`.

    Raises
    ------
    OptionError
        When one has no such value.
    """
    own = dict(given)
    nulls, formats = own.pop("null_values"), dict[str, str]()
    for text in own.pop("time_formats"):
        named = _FORMAT_OF_COLUMN.fullmatch(text)
        formats[named[1] if named else ""] = named[2] if named else text
    return TextOptions.given(
        null_values=None if nulls is None else tuple(nulls.split(",")),
        time_format=formats,
        column_types=_types_of(own.pop("column_types")),
        **own,
    )


def text_file_options() -> list[click.Option]:
    """Return the options for reading text files, for other commands than those of `click`."""

    def nothing() -> None:
        """Hold the options."""

    held: Any = nothing
    for option in reversed(_OF_TEXT_FILES):
        held = option(held)
    return list(reversed(held.__click_params__))


def _types_of(given: Iterable[str]) -> dict[str, str]:
    """Return types by columns, as --column-types gives them; a comma inside brackets separates nothing."""
    pairs = {}
    for text in re.split(r",(?![^\[]*\])", ",".join(given)):
        column, equals, kind = (part.strip() for part in text.rpartition("="))
        if "[" in column and "tz" in column:  # timestamp[us, tz=UTC]
            column, equals, kind = (part.strip() for part in text.partition("="))
        if equals and column and kind:
            pairs[column] = kind
        elif text.strip():
            raise click.UsageError(f"--column-types: expected COLUMN=TYPE, got {text.strip()!r}")
    return pairs


class _SortType(click.ParamType[Any]):
    """Names of columns with commas between, or nothing for the time column alone."""

    name = "COLUMN,..."

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return True, or the list of names."""
        return value if isinstance(value, bool | list) else True if not value else value.split(",")


SORT_FLAG = "--sort="
"""The form of ``--sort`` that no columns follow (`with_sort`)."""
sort_option: Decorator = click.option(
    "--sort",
    type=_SortType(),
    default=False,
    metavar="[COLUMN,...]",
    help="Sort the events by time first; those of one time by further columns: --sort ts,sequence.",
)
undecided_option: Decorator = click.option(
    "--undecided",
    type=click.Choice(UNDECIDED),
    default=REPORT,
    help="Complex events that only the end of the input completes: report them, or hold them back.  [default: report]",
)


def with_sort(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which ``--sort`` has a value: the columns that follow it with a comma, or none."""
    found: list[str] = []
    for argument in arguments:
        if found and found[-1] == "--sort":
            is_columns = "," in argument and not argument.startswith("-") and not re.search(r"[\s/=]", argument)
            found[-1:] = [SORT_FLAG + argument] if is_columns else [SORT_FLAG, argument]
        else:
            found.append(argument)
    return [*found[:-1], SORT_FLAG] if found[-1:] == ["--sort"] else found


skip_invalid_option: Decorator = click.option(
    "--skip-invalid",
    is_flag=True,
    help="Leave out rules of --queries that cannot be read, or do not fit the events, with a note.",
)
threads_option: Decorator = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads to use.  [default: chosen by the size of the input]",
)


class _SizeType(click.ParamType[str]):
    """A size of memory."""

    name = "SIZE"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        """Return the text of a size; UsageError: it is none."""
        try:
            size_in_bytes(value)
        except OptionError:
            self.fail(f"expected a size such as 2GiB or 500MB, got {value!r}", parameter, context)
        return str(value)


max_memory_option: Decorator = click.option(
    "--max-memory",
    type=_SizeType(),
    metavar="SIZE",
    help="Most memory, such as 2GiB or 500MB, for the matches of one end where a choice needs all of them, and for "
    "those that wait for the end of a window.  "
    "[default: half of the machine's]",
)


def period_options(command: Command) -> Command:
    """Add the options for a period of time; the command gets them as `period`, a `Period`."""

    @functools.wraps(command)
    def taking(*args: Any, after: str | None, before: str | None, **given: Any) -> Any:
        return command(*args, period=Period(after, before), **given)

    made: Any = taking
    for option in (
        click.option("--before", metavar="TIME", help="Read the events before this time only."),
        click.option(
            "--after", metavar="TIME", help="Read the events from this time on only: 2026-11-27, 2026-11-27T12:30Z."
        ),
    ):
        made = option(made)
    return cast(Command, made)


level_option: Decorator = click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="Of --queries, the rules of this level and of more urgent ones only.",
)


def needs_time(time_column: str | None, given: Mapping[str, object]) -> None:
    """Raise UsageError for the first of the `given` options (value by name) that is set without a time column."""
    for option, value in given.items():
        if value and time_column is None:
            raise click.UsageError(f"{option} needs a time: --time-column")


# ---- compiling queries --------------------------------------------------------------------------------------------

MISSING = ("error", "null")
SELECTIONS = ("recent", "all")

_OPTIONS = (
    click.option(
        "--language",
        type=click.Choice([each.name.lower() for each in LANGUAGES]),
        help="Language of the query.  [default: by its text, or the ending of its file]",
    ),
    click.option(
        "--type-column", metavar="NAME", help="Column of event types.  [default: type, of EQL event.category]"
    ),
    click.option("--no-type-column", is_flag=True, help="The stream's name (FROM) is the type of its events."),
    click.option(
        "--time-column", metavar="NAME", help="Column of times, which never decrease.  [default: of EQL @timestamp]"
    ),
    click.option("--time-unit", type=click.Choice(list(TIME_UNITS)), help="Unit of an integer time column."),
    click.option(
        "--missing-fields",
        type=click.Choice(MISSING),
        help="Of EQL, a field that the events have not: an error, or null in all events, with a note.  "
        "[default: null for --queries, else error]",
    ),
    click.option(
        "--selection",
        type=click.Choice(SELECTIONS),
        help="Of EQL, the matches of a sequence: as Elasticsearch chooses them, or all.  [default: recent]",
    ),
    click.option(
        "--pipeline",
        "pipelines",
        multiple=True,
        metavar="NAME|FILE",
        shell_complete=complete_files,
        help="Of Sigma, the log sources and fields of the events, such as windows, linux or zeek; several are joined.",
    ),
    click.option(
        "--columns",
        multiple=True,
        metavar="FIELD=COLUMN,...",
        help="Of Sigma, columns of fields: the last word after all pipelines.",
    ),
    click.option(
        "--nocase-groups",
        is_flag=True,
        help="Of Sigma, strings in groups and distinct values of correlations do not mind the case of letters.",
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
    """Options by which queries are compiled; None: not given, unless said otherwise.

    Attributes
    ----------
    type_column : str or None
        Column of event types, a `cer_gpu.engine.evaluation_options.OverridableDefault` where it was not given; None:
        there is none.
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
        """Return the options of `cer_gpu.compile` for rules, which read the same columns of types and times."""
        options: dict[str, Any] = {
            "type_column": self.type_column,
            "time_column": self.time_column,
            "time_unit": self.time_unit,
        }
        if self.language is not None:
            options["language"] = self.language
        given = {name: getattr(self, name) for name in _OF_SOME if getattr(self, name) is not None}
        return {**({"missing_fields": MISSING_IN_RULES} if is_set else {}), **given, **options_of_rules(rules, options)}


def query_options(command: Command) -> Command:
    """Add the options for compiling queries; the command gets them as `compiling`, a `QueryOptions`."""

    @functools.wraps(command)
    def taking(*args: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in _NAMES}
        types, none = own.pop("type_column"), own.pop("no_type_column")
        fields = FieldColumns(own.pop("pipelines"), _pairs_of(own.pop("columns")), own.pop("nocase_groups"))
        if none and types is not None:
            raise click.UsageError("--type-column and --no-type-column exclude each other")
        compiling = QueryOptions(None if none else types or TYPE_COLUMN, fields=fields, **own)
        return command(*args, compiling=compiling, **given)

    made: Any = taking
    for option in reversed(_OPTIONS):
        made = option(made)
    return cast(Command, made)


def _pairs_of(given: Iterable[str]) -> dict[str, str]:
    """Return columns by fields, as --columns gives them."""
    pairs = {}
    for text in ",".join(given).split(","):
        field, equals, column = (part.strip() for part in text.partition("="))
        if equals and field and column:
            pairs[field] = column
        elif text.strip():
            raise click.UsageError(f"--columns: expected FIELD=COLUMN, got {text.strip()!r}")
    return pairs
