"""Results of all queries of a set as rows of one table, in which a column names the query of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from cer_gpu.columnar.columns import plain_array, plain_type
from cer_gpu.engine.execution_group import NamedBatches
from cer_gpu.errors import OptionError

QUERY_COLUMN = "query"
"""Column of `cer_gpu.QuerySet.stream` that names the query of each row."""


def joined_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the schema of the results of all queries in one table."""
    fields = {QUERY_COLUMN: pa.field(QUERY_COLUMN, pa.string())}
    first: dict[str, str] = {}
    for name, columns in schemas.items():
        for field in columns:
            unified = fields.setdefault(field.name, field)
            first.setdefault(field.name, name)
            if unified.type == field.type:
                continue
            if plain_type(unified.type) != plain_type(field.type):  # else one of them is dictionary-encoded
                raise OptionError(
                    f"column {field.name!r} of the results is {unified.type} in query {first.get(field.name)!r} and "
                    f"{field.type} in query {name!r}\n"
                    "hint: name it differently with AS, or take a table for each query: QuerySet.evaluate"
                )
            fields[field.name] = unified.with_type(plain_type(unified.type))
    return pa.schema(list(fields.values()))


def named(results: NamedBatches, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield results of all queries as rows of one table, with the column that names the query."""
    for name, rows in results:
        columns = {field.name: rows.column(i) for i, field in enumerate(rows.schema)}
        columns[QUERY_COLUMN] = pa.repeat(pa.scalar(name, pa.string()), rows.num_rows)
        arrays = []
        for field in schema:
            column = columns[field.name] if field.name in columns else pa.nulls(rows.num_rows, field.type)
            arrays.append(column if column.type == field.type else plain_array(column))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
