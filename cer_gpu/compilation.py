"""The call that compiles anything: `LANGUAGES` gives the language of a text, and `CompiledQuery` the result."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar, cast

import pyarrow as pa

from cer_gpu.ceql.query_file import read_query_file, with_hint_of_a_file
from cer_gpu.engine.evaluation_options import OverridableDefault, checking_names
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.evaluable import CompiledQuery as CompiledQuery
from cer_gpu.query import Query

_Compiled = TypeVar("_Compiled")


@dataclass(frozen=True)
class Language:
    """A language of queries.

    Attributes
    ----------
    name : str
    begins : re.Pattern
        Recogniser of its queries, by their beginning up to the words that no other language has there.
    front_end : str
        Module, loaded for the first such text, whose function `analyse` takes a text and the options of `compile`,
        and returns the compiled query, or its errors.
    reads_whole_table : bool
        As that of its queries.
    instead : dict from str to str
        Words on what replaces the options of CEQL.
    names : tuple of str
        Other names by which it may be requested.
    own_options : tuple of str
        Options of `compile` that it takes, and not every language does.
    type_column, time_column : str or None
        The columns of types and of times where none are named, if they differ from CEQL's.
    missing_fields : str
        As of `compile`, where nobody gives it.
    of_any_schema : bool
        True if its rules name fields of many kinds of events, so that missing fields are NULL in a set of rules.
    """

    name: str
    begins: re.Pattern[str]
    front_end: str
    reads_whole_table: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    own_options: tuple[str, ...] = ()
    type_column: str | None = None
    time_column: str | None = None
    missing_fields: str = "error"
    of_any_schema: bool = False


_BLANK = r"(?:\s|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"  # each part in one way: it must not be tried in others
_CATEGORY = r"(?:[A-Za-z_@][\w@]*|`[^`]+`|\"[^\"\n]*\")"
_ORDER = "ORDER BY names the order of its rows"
LANGUAGES = (
    Language(
        "MATCH_RECOGNIZE",
        re.compile(r"(?is).*\bMATCH_RECOGNIZE\s*\("),
        "cer_gpu.row_patterns.compiling",
        reads_whole_table=True,
        instead={
            **dict.fromkeys(("time_column", "time_unit", "sort", "lateness", "late"), _ORDER),
            **dict.fromkeys(("type_column", "no_type_column"), "it knows no types of events"),
            "output": "ONE ROW PER MATCH or ALL ROWS PER MATCH tells its rows",
        },
        names=("sql",),
    ),
    Language(
        "EQL",
        re.compile(rf"{_BLANK}(?:(?:sequence|sample|join)\b{_BLANK}(?:by|with|\[|!)|{_CATEGORY}{_BLANK}where\b)"),
        "cer_gpu.eql.eql_query",
        own_options=("missing_fields", "selection"),
        type_column="event.category",
        time_column="@timestamp",
        of_any_schema=True,
    ),
    Language(
        "Sigma",
        re.compile(r"\s*-- Sigma\b"),
        "cer_gpu.sigma.sigma_query",
        own_options=("missing_fields",),
        missing_fields="null",
        of_any_schema=True,
    ),
    Language("CEQL", re.compile(""), "cer_gpu.resolution.ceql", own_options=("missing_fields",)),
)
"""Languages of queries; the first one that recognises a text is its language.  CEQL has conjunctive queries, too."""

TYPE_COLUMN = OverridableDefault("type")
"""The column of types where none is named, and the language has no other one."""
MISSING_IN_RULES = OverridableDefault("null")
"""The treatment of missing fields in a set of rules where nobody gives one (`Language.of_any_schema`)."""
_OF_SOME = {"missing_fields": None, "selection": "recent"}
"""Options of `compile` that not every language takes, and what they are where nobody gives them."""


def language_named(name: str) -> Language:
    """Return a language by its name, in any letter case; raises OptionError if there is none of that name."""
    lowered = str(name).lower()
    for language in LANGUAGES:
        if lowered in (language.name.lower(), *language.names):
            return language
    names = ", ".join(repr(each.name.lower()) for each in LANGUAGES)
    raise OptionError(f"language must be one of {names}, got {name!r}")


def language_of(text: object) -> Language:
    """Return the language of a text; of anything else, CEQL, whose errors say what is wrong with it."""
    return next(each for each in LANGUAGES if each.begins.match(text if isinstance(text, str) else ""))


@checking_names
def compile(
    text: str | os.PathLike[str],
    *,
    type_column: str | None = TYPE_COLUMN,
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    relations: Mapping[str, Sequence[str]] | None = None,
    language: str | None = None,
    missing_fields: str | None = None,
    selection: str = "recent",
) -> CompiledQuery:
    """Compile a query: CEQL, EQL, the text of a rule of Sigma, or a statement of SQL with MATCH_RECOGNIZE.

    Parameters
    ----------
    text
        The query (docs/reference/ceql_patterns.md, docs/reference/eql.md), the statement
        (docs/reference/match_recognize.md), or the path of a file with it: a `pathlib.Path`.
    type_column
        The column that holds the type of each event, "event.category" for EQL where none is named; None if the
        stream's name (FROM) is the type of all of them.
    time_column
        The column that holds the time of each event: a timestamp, date, duration or integer that never decreases; for
        EQL "@timestamp" where none is named.  The results then have start_time and end_time.
    time_unit
        "s", "ms", "us" or "ns": the unit of an integer time column, for WITHIN in HOURS, MINUTES or SECONDS.
    schema : pyarrow.Schema, optional
        Schema of the events: types are then checked here, and not at the first batch.
    relations : mapping, optional
        The columns of each type, such as ``{"T": ["id"], "S": ["id", "loc"]}``, for the atoms of a conjunctive query
        whose arguments are by position: ``Q(x) <- T(x), S(x, 3)``.
    language
        "ceql", "eql", "sigma" or "match_recognize"; None to detect it from the text.
    missing_fields
        A field that the events have not: "error", or "null": it has no value in any event.  None: "null" for Sigma,
        else "error".
    selection
        In EQL, the matches of a sequence: "recent", as Elasticsearch chooses them (SELECT RECENT), or "all".

    Returns
    -------
    CompiledQuery
        A `Query`, which one in EQL is, too, or for MATCH_RECOGNIZE a `RowPatternQuery`; it takes no option but
        `schema`.

    Raises
    ------
    QuerySyntaxError, QueryError
        When the query is wrong; the message shows the position, the expected text, and a hint.
    QueryTypeError
        When the query does not match the schema.
    OptionError
        When a file cannot be read, or an option has no such value.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> events = pa.table({"type": ["SELL", "BUY", "SELL"], "price": [101, 90, 95]})
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE SELL AS a ; BUY ; SELL FILTER a[price > 100]")
    >>> query.evaluate(events).to_pylist()
    [{'start': 0, 'end': 2, 'positions': [0, 1, 2]}]
    >>> falls = cer_gpu.compile('''
    ...     SELECT * FROM trades MATCH_RECOGNIZE (
    ...         MEASURES FIRST(price) AS high, LAST(price) AS low
    ...         PATTERN (A B+) DEFINE B AS price < PREV(price)
    ...     )''')
    >>> falls.evaluate(events).to_pylist()
    [{'high': 101, 'low': 90}]
    """
    source = read_query_file(text) if isinstance(text, os.PathLike) else text
    return _checked_query(
        text,
        analyse(
            source,
            type_column=type_column,
            time_column=time_column,
            time_unit=time_unit,
            schema=schema,
            relations=relations,
            language=language,
            missing_fields=missing_fields,
            selection=selection,
        ),
    )


def compile_for_set(text: str | os.PathLike[str], **options: Any) -> CompiledQuery:
    """Compile a query of a set, as `compile` does; options of CEQL as in the other queries."""
    source = read_query_file(text) if isinstance(text, os.PathLike) else text
    return _checked_query(text, analyse_for_set(source, **options))


def analyse_for_set(text: str, **options: Any) -> tuple[CompiledQuery | None, Sequence[CerError]]:
    """Compile a query of a set and return it, or its errors, as `compile_for_set` does."""
    own = _language_of(text, options.get("language"))
    accepted = {name: value for name, value in options.items() if name not in _OF_SOME or name in own.own_options}
    if own.reads_whole_table:
        accepted = {name: accepted.get(name) for name in ("schema", "language")}
    return analyse(text, **accepted)


def check_same_events(query: CompiledQuery, name: str, other: CompiledQuery, other_name: str) -> None:
    """Refuse a query that cannot read the events that another one reads.

    Raises
    ------
    OptionError
    """
    for option in () if query.reads_whole_table else ("type_column", "time_column", "time_unit"):
        a, b = getattr(query, option), getattr(other, option)
        if a != b:
            raise OptionError(
                f"queries of a set have one {option}; it is {b!r} in query {other_name!r} and {a!r} in query {name!r}"
            )
    if query.streams != other.streams and (query.several_streams or other.several_streams):
        named = [", ".join(each.streams) or "one stream" for each in (query, other)]
        raise OptionError(
            f"queries of a set read the same streams; query {other_name!r} reads {named[1]}, and query {name!r} reads "
            f"{named[0]}"
        )


def options_of_set(texts: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `compile` for the queries of a set, which read the same columns of types and times.

    Options that are not named come from the first language among them that has its own.
    """
    chosen = dict(options)
    languages = (_language_of(text, options.get("language")) for text in texts)
    first = next((language for language in languages if language.type_column is not None), None)
    return chosen if first is None else chosen | _columns(first, options)


def _columns(language: Language, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of types and times, which a language may have of its own where none are named."""
    types, times = options.get("type_column", TYPE_COLUMN), options.get("time_column")
    if isinstance(types, OverridableDefault):
        types = OverridableDefault(types if language.type_column is None else language.type_column)
    if times is None and language.time_column is not None:
        times = OverridableDefault(language.time_column)
    return {"type_column": types, "time_column": times}


def _language_of(text: str, name: str | None) -> Language:
    return language_of(text) if name is None else language_named(name)


def _checked_query(text: object, analysed: tuple[_Compiled | None, Sequence[CerError]]) -> _Compiled:
    query, errors = analysed
    if query is None:
        raise with_hint_of_a_file(errors[0], text)
    return query


def analyse(text: str, **options: Any) -> tuple[CompiledQuery | None, Sequence[CerError]]:
    """Compile a query of any language and return it, or its errors; parameters as in `compile`."""
    language = _language_of(text, options.pop("language", None))
    for name, usual in _OF_SOME.items():
        if name in language.own_options:
            continue
        if options.pop(name, usual) not in (usual, None):
            takers = " and ".join(each.name for each in LANGUAGES if name in each.own_options)
            raise OptionError(f"{name} is an option of {takers}, and the query is {language.name}")
    if not language.reads_whole_table:
        options |= _columns(language, options)
        if options["type_column"] is not None:
            options["type_column"] = str(options["type_column"])
    if "missing_fields" in language.own_options:
        missing = options.get("missing_fields")
        is_set = missing is not None and (language.of_any_schema or not isinstance(missing, OverridableDefault))
        options["missing_fields"] = str(missing) if is_set else language.missing_fields
    analysis: tuple[CompiledQuery | None, Sequence[CerError]]
    analysis = import_module(language.front_end).analyse(text, **options)
    return analysis


def analyse_query(text: str, **options: Any) -> tuple[Query | None, Sequence[CerError]]:
    """Compile a query that is evaluated event by event, as `analyse` does; a text of another language is an error."""
    language = _language_of(text, options.get("language"))
    if language.reads_whole_table:
        hint = "cer_gpu.compile(text).evaluate(events), or cer-gpu run: docs/reference/match_recognize.md"
        return None, [QueryError(f"{language.name} is no CEQL, and is evaluated by itself", text, 0, 0, hint)]
    query, errors = analyse(text, **options)
    return cast(Query | None, query), errors
