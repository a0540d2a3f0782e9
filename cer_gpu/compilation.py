"""The call that compiles anything: `LANGUAGES` tells the language of a text, and `CompiledQuery` what it becomes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar, cast

import pyarrow as pa

from cer_gpu.ceql.query_file import read_query_file, with_hint_of_a_file
from cer_gpu.engine.options import checking_names
from cer_gpu.errors import CerError, QueryError
from cer_gpu.evaluated import CompiledQuery as CompiledQuery
from cer_gpu.query import Query

_Asked = TypeVar("_Asked")


@dataclass(frozen=True)
class Language:
    """A language of queries.

    Attributes
    ----------
    name : str
    begins : re.Pattern
        Recogniser of its texts, by their beginning up to the words that no other language has there.
    front_end : str
        Module, loaded for the first such text, whose function `analyse` takes a text and the options of `compile`,
        and returns the compiled query, or its errors.
    reads_whole_table : bool
        As that of its queries.
    instead : dict from str to str
        Words on what it has in place of options of CEQL.
    """

    name: str
    begins: re.Pattern[str]
    front_end: str
    reads_whole_table: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)


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
    ),
    Language("CEQL", re.compile(""), "cer_gpu.query"),
)
"""Languages of queries; the first one that recognises a text is its language.  CEQL has conjunctive queries, too."""


def language_of(text: object) -> Language:
    """Return the language of a text; of anything else, CEQL, which tells what is wrong with it."""
    return next(each for each in LANGUAGES if each.begins.match(text if isinstance(text, str) else ""))


@checking_names
def compile(
    text: str | os.PathLike[str],
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    relations: Mapping[str, Sequence[str]] | None = None,
) -> CompiledQuery:
    """Compile a CEQL query, or a statement of SQL with MATCH_RECOGNIZE.

    Parameters
    ----------
    text
        The query (docs/language.md), the statement (docs/row_patterns.md), or the path of a file with it: a
        `pathlib.Path`.
    type_column
        The column that holds the type of each event; None: the stream's name (FROM) is the type of all of them.
    time_column
        The column that holds the time of each event: a timestamp, date, duration or integer that never decreases.
        The results then have start_time and end_time.
    time_unit
        "s", "ms", "us" or "ns": the unit of an integer time column, for WITHIN in HOURS, MINUTES or SECONDS.
    schema : pyarrow.Schema, optional
        Schema of the events: types are then checked here, and not at the first batch.
    relations : mapping, optional
        The columns of each type, such as ``{"T": ["id"], "S": ["id", "loc"]}``, for the atoms of a conjunctive query
        whose arguments are by position: ``Q(x) <- T(x), S(x, 3)``.

    Returns
    -------
    CompiledQuery
        A `Query`, or for MATCH_RECOGNIZE a `RowPatternQuery`; it takes no option but `schema`.

    Raises
    ------
    QuerySyntaxError, QueryError
        When the query is wrong; the message shows the place, the expected text, and a hint.
    QueryTypeError
        When the query does not fit the schema.
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
    given = read_query_file(text) if isinstance(text, os.PathLike) else text
    return _compiled(
        text,
        analyse(
            given,
            type_column=type_column,
            time_column=time_column,
            time_unit=time_unit,
            schema=schema,
            relations=relations,
        ),
    )


def compile_member(text: str | os.PathLike[str], **options: Any) -> CompiledQuery:
    """Compile a query of a set, as `compile` does; options of CEQL are those of the other queries."""
    given = read_query_file(text) if isinstance(text, os.PathLike) else text
    return _compiled(text, analyse_member(given, **options))


def analyse_member(text: str, **options: Any) -> tuple[CompiledQuery | None, Sequence[CerError]]:
    """Compile a query of a set and return it, or its errors, as `compile_member` does."""
    language = language_of(text)
    known = options if not language.reads_whole_table else {"schema": options.get("schema")}
    return analyse(text, **known)


def _compiled(text: object, analysed: tuple[_Asked | None, Sequence[CerError]]) -> _Asked:
    query, errors = analysed
    if query is None:
        raise with_hint_of_a_file(errors[0], text)
    return query


def analyse(text: str, **options: Any) -> tuple[CompiledQuery | None, Sequence[CerError]]:
    """Compile a query of any language and return it, or its errors; parameters are those of `compile`."""
    found: tuple[CompiledQuery | None, Sequence[CerError]]
    found = import_module(language_of(text).front_end).analyse(text, **options)
    return found


def analyse_query(text: str, **options: Any) -> tuple[Query | None, Sequence[CerError]]:
    """Compile a query that is evaluated event by event, as `analyse` does; a text of another language is an error."""
    language = language_of(text)
    if language.reads_whole_table:
        hint = "cer_gpu.compile(text).evaluate(events), or cer-gpu run: docs/row_patterns.md"
        return None, [QueryError(f"{language.name} is no CEQL, and is evaluated by itself", text, 0, 0, hint)]
    query, errors = analyse(text, **options)
    return cast(Query | None, query), errors
