"""The call that compiles anything: CEQL, or SQL with MATCH_RECOGNIZE."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from cer_gpu.ceql.query_file import is_row_pattern, read_query_file
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.query import Query
from cer_gpu.query import analyse as analyse_ceql
from cer_gpu.query import compile as compile_ceql
from cer_gpu.row_patterns.query import RowPatternQuery

Compiled: TypeAlias = Query | RowPatternQuery


def compile(
    text: str | os.PathLike[str],
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    relations: Mapping[str, Sequence[str]] | None = None,
) -> Compiled:
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
    Query, or RowPatternQuery for MATCH_RECOGNIZE, which takes no option but `schema`

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
    if not is_row_pattern(given):
        return compile_ceql(
            text,
            type_column=type_column,
            time_column=time_column,
            time_unit=time_unit,
            schema=schema,
            relations=relations,
        )
    typed = None if type_column == "type" else type_column or "no type column"
    options = {"type_column": typed, "time_column": time_column, "time_unit": time_unit, "relations": relations}
    for option, value in options.items():
        if value is not None:
            raise OptionError(f"{option} is an option of CEQL; in MATCH_RECOGNIZE, ORDER BY names the order of rows")
    from cer_gpu.row_patterns.compiling import compile_row_pattern  # sqlglot takes long to import

    query = compile_row_pattern(given)
    if schema is not None:
        query.output_schema(schema)
    return query


def analyse(text: str, **options: Any) -> tuple[Compiled | None, Sequence[CerError]]:
    """Compile a query or statement and return it, or its errors; parameters are those of `compile`."""
    if not is_row_pattern(text):
        return analyse_ceql(text, **options)
    try:
        return compile(text, **options), []
    except QueryError as error:
        return None, [error]
