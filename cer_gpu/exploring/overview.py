"""Overview of the events of a sample, for a page without a query: types, columns that may be keys, the time span."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import is_string
from cer_gpu.explain.ceql_text import name_text
from cer_gpu.exploring.samples import ExploredEvents
from cer_gpu.io.value_strings import plain_values
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.report.match_rows import MAX_CELL

_EVENTS = 200_000
"""Most events of the sample."""
_TYPES = 60
"""Types that are shown, the most frequent first."""
_NO_FRACTION = re.compile(r"(:\d\d)\.0+(?!\d)")
_COLUMNS, _VALUES = 12, 5
"""Columns that are shown, and values of each."""


def overview(explored: ExploredEvents) -> dict[str, Any]:
    """Return the overview of the last events, as a message of a session; the events are loaded.

    It has the ``sample`` in words; ``types``, each with its value, its name in a query and its number of events, and
    ``n_types``; ``columns`` of strings and integers whose values repeat, each with its ``name``, its number ``n`` of
    values and the most frequent ``values``; the ``span``, the first and the last time as text, or None.
    """
    sample = explored.last(_EVENTS)
    table = sample.table if sample.table is not None else explored.last(_EVENTS - 1).table
    assert table is not None
    types, n_types = _counts(table, explored.type_column)
    columns: list[dict[str, Any]] = []
    for field in table.schema:
        if len(columns) < _COLUMNS and field.name not in (explored.type_column, explored.time_column, ROW_COLUMN):
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if is_string(kind) or pa.types.is_integer(kind):
                values, n = _counts(table, field.name)
                if 1 < n <= table.num_rows / 2:
                    columns.append(
                        {"name": field.name, "n": n, "values": [[v, count] for v, count in values[:_VALUES]]}
                    )
    return {
        "kind": "overview",
        "sample": sample.words,
        "types": [[value, name_text(value), n] for value, n in types[:_TYPES]],
        "n_types": n_types,
        "columns": columns,
        "span": _time_span(table, explored.time_column),
    }


def _counts(table: pa.Table, name: str | None) -> tuple[list[tuple[str, int]], int]:
    """Return the values of a column as text with their counts, the most frequent first, and how many there are."""
    if name is None or name not in table.column_names:
        return [], 0
    counted = table.column(name).value_counts()
    counted = counted.filter(pc.is_valid(plain_values(counted.field("values"))))
    order = pc.sort_indices(counted.field("counts"), sort_keys=[("", "descending")])[: max(_TYPES, _VALUES)]
    values = plain_values(counted.field("values").take(order)).to_pylist()
    counts = counted.field("counts").take(order).to_pylist()
    return [(str(value)[:MAX_CELL], n) for value, n in zip(values, counts, strict=True)], len(counted)


def _time_span(table: pa.Table, time_column: str | None) -> list[str] | None:
    """Return the first and the last time."""
    if time_column is None or time_column not in table.column_names:
        return None
    first, last = pc.min_max(table.column(time_column)).values()
    if not first.is_valid:
        return None
    strings = plain_values(pa.array([first, last], first.type)).to_pylist()
    return [_NO_FRACTION.sub(r"\1", str(text)) for text in strings]
