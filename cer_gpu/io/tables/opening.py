"""Opening of tables by their names or folders."""

from __future__ import annotations

import os
import re

from pyarrow import fs

from cer_gpu.errors import EventsError
from cer_gpu.io.formats import is_name_of_events
from cer_gpu.io.stores import Address, open_store, path_in_store
from cer_gpu.io.tables.names import DELTA_LOG, TableName
from cer_gpu.io.tables.table import TableSnapshot

_SPECIAL = re.compile(r"[*?\[{]")


def table_name_of(text: str) -> TableName | None:
    """Return the table of a prefixed name, or of a folder that is a Delta table, or None.

    Raises
    ------
    EventsError
        When it has the prefix of a table, and is not a valid name.
    """
    table_name = TableName.parse(text)
    if table_name is not None or not _may_be_folder(text):
        return table_name
    return TableName("delta", text) if _holds_log(text) else None


def _may_be_folder(text: str) -> bool:
    return (
        bool(text)
        and "\0" not in text
        and not is_name_of_events(text)
        and not (_SPECIAL.search(text) and "://" in text)
    )


def _holds_log(text: str) -> bool:
    address = Address.parse(text) if "://" in text or text.startswith("file:/") else Address("", "", text)
    if address.is_local:
        return os.path.isdir(os.path.join(address.path, DELTA_LOG))
    try:
        store = open_store(address)
        selector = fs.FileSelector(path_in_store(address, store).rstrip("/") + "/" + DELTA_LOG, allow_not_found=True)
        return bool(store.get_file_info(selector))
    except (EventsError, OSError, ValueError):
        return False  # reading the files will raise the error


def open_table(name: str | TableName) -> TableSnapshot:
    """Open a snapshot of a table.

    Raises
    ------
    EventsError
        When there is no such table or snapshot, or it cannot be read.
    OptionError
        When the package that reads it is not installed.
    """
    table_name = table_name_of(name) if isinstance(name, str) else name
    if table_name is None:
        raise EventsError(
            f"{name}: expected a table: delta:PATH, a folder of Delta, or iceberg:CATALOG.NAMESPACE.TABLE"
        )
    if table_name.kind == "delta":
        from cer_gpu.io.tables.delta import DeltaSnapshot

        return DeltaSnapshot(table_name)
    from cer_gpu.io.tables.iceberg import IcebergSnapshot

    return IcebergSnapshot(table_name)
