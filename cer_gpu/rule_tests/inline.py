"""Events that stand in a case, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cer_gpu.rule_tests.written import WrittenValue


def inline_rows(written: WrittenValue) -> list[dict[str, Any]]:
    """Return the events of a list; OptionError: it holds none, or other things."""
    rows: list[dict[str, Any]] = []
    for each in written.items("events"):
        each.mapping("an event")
        rows.append(each.plain)
    if not rows:
        raise written.error("expected at least one event")
    return rows


def inline_table(written: WrittenValue, types: Mapping[str, pa.DataType], time_column: str | None) -> pa.Table:
    """Return the table of a list of mappings.

    A column has the type of its values; one without a value is left out, unless `types` has it.

    Parameters
    ----------
    written
    types
        Types of columns, where others than those of the values are meant.
    time_column
        Column whose texts are times in ISO 8601; None: none.
    """
    rows = inline_rows(written)
    columns: dict[str, list[Any]] = {name: [] for row in rows for name in row}
    for row in rows:
        for name, values in columns.items():
            values.append(row.get(name))
    arrays = {}
    for name, values in columns.items():
        wanted = types.get(name)
        if wanted is None and all(value is None for value in values):
            continue
        times = name == time_column and wanted is None
        try:
            arrays[name] = pa.array(_in_one_zone([_time(v) for v in values] if times else values), wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
            kinds = ", ".join(sorted({type(value).__name__ for value in values if value is not None}))
            reason = "" if wanted is None else f", which are no {wanted} ({error})"
            raise written.error(
                f"expected values of one type in the column {name!r} of the events, got {kinds}{reason}"
            ) from None
    return pa.table(arrays)


def _time(value: Any) -> Any:
    """Return a text in ISO 8601 as a time; other values as they are."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _in_one_zone(values: list[Any]) -> list[Any]:
    """Return times without a zone as those of UTC, if others have one."""
    if not any(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return values
    return [value.replace(tzinfo=value.tzinfo or UTC) if isinstance(value, datetime) else value for value in values]
