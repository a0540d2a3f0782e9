"""The host of an alert: that of its last event, from the first column that is known to name hosts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import is_string

HOST_COLUMNS = (
    "Computer",
    "host.name",
    "winlog.computer_name",
    "host.hostname",
    "ComputerName",
    "computer_name",
    "Hostname",
    "hostname",
    "host",
    "node",
)
"""Columns and fields that name the host of an event, the first that is there before others."""


def hosts_of(rows: pa.RecordBatch) -> pa.Array:
    """Return the host of each row of results.

    Parameters
    ----------
    rows
        Rows of output "events", or with columns of their own, as measures are.

    Returns
    -------
    pyarrow.StringArray
        NULL where no event, or no column, tells one.
    """
    if "events" not in rows.schema.names or not pa.types.is_list(rows.schema.field("events").type):
        return _host({name: rows.column(name) for name in rows.schema.names}, rows.num_rows)
    lists = rows.column("events")
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    last = np.cumsum(lengths) - 1
    events = lists.flatten().take(pa.array(last, pa.int64(), mask=lengths == 0))
    return _host({field.name: pc.struct_field(events, [i]) for i, field in enumerate(events.type)}, rows.num_rows)


def _host(columns: dict[str, pa.Array], n_rows: int) -> pa.Array:
    found = []
    for path in HOST_COLUMNS:
        column, names = columns.get(path), []
        if column is None:
            first, *names = path.split(".")
            column = columns.get(first)
        for name in names:
            if column is not None and pa.types.is_struct(column.type) and column.type.get_field_index(name) >= 0:
                column = pc.struct_field(column, [column.type.get_field_index(name)])
            else:
                column = None
        if column is not None and is_string(column.type):
            found.append(column.cast(pa.string()))
    return pc.coalesce(*found) if found else pa.nulls(n_rows, pa.string())
