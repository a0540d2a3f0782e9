"""Types of events that files cannot have, by the bounds in the footers of Parquet files; no event is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cer_gpu.io.stores import open_local

_Bounds = tuple[str, str]


def types_outside(types: Iterable[str], paths: Sequence[str], column: str) -> tuple[list[str], _Bounds] | None:
    """Return the types that no event of some files can have, and the least and greatest value of the column of types.

    Parameters
    ----------
    types
    paths
        Files, or folders of them.
    column
        Column of types.

    Returns
    -------
    (list of str, (str, str)) or None
        None where not all of them are Parquet files on this machine whose footers have bounds.
    """
    files = [file for path in paths for file in _parquet_files(path)]
    bounds = [each for file in files for each in _bounds_in(file, column)]
    known = [each for each in bounds if each is not None]
    if not known or len(known) < len(bounds):
        return None
    least, greatest = min(low for low, _ in known), max(high for _, high in known)
    return [name for name in types if not least <= name <= greatest], (least, greatest)


def _parquet_files(path: str) -> list[str]:
    if os.path.isdir(path):
        return sorted(
            os.path.join(folder, name)
            for folder, _, names in os.walk(path)
            for name in names
            if not name.startswith((".", "_"))
        )
    return [path]


def _bounds_in(file: str, column: str) -> list[_Bounds | None]:
    """Return the bounds of a column in each row group that has rows, or None if they are not known."""
    try:
        with open_local(file) as opened:
            footer = pq.ParquetFile(opened).metadata
    except (OSError, pa.ArrowInvalid):
        return [None]
    places = [i for i in range(len(footer.schema)) if footer.schema.column(i).path == column]
    if len(places) != 1:
        return [None]
    found: list[_Bounds | None] = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows == 0:
            continue
        statistics = group.column(places[0]).statistics
        has = statistics is not None and statistics.has_min_max and isinstance(statistics.min, str)
        found.append((statistics.min, statistics.max) if has else None)
    return found
