"""Search for the column of event types in events that lack the one named."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.errors import CerError
from cer_gpu.io.source import Source
from cer_gpu.predicates.guards import no_type_column, text_columns


def check_type_column(source: Source, name: str | None, types: Sequence[str]) -> None:
    """Raise QueryTypeError if events lack the column of their types; it names the columns that hold types of the query.

    Events that can be read only once are not looked into.

    Parameters
    ----------
    source
    name
        The column; None: the stream's name is the type of all events.
    types
        Event types of the query; none: the events need no column of types.
    """
    if name is None or not types or attribute_type(source.schema, name) is not None or name in source.schema.names:
        return
    holding: dict[str, list[str]] = {}
    if source.rereadable or source.reads_ahead:
        holding = _holding(source, types)
    raise no_type_column(source.schema, name, holding)


def _holding(source: Source, types: Sequence[str]) -> dict[str, list[str]]:
    """Return the types of a query that the first rows have, by their columns."""
    names = text_columns(source.schema)
    found: dict[str, list[str]] = {}
    with contextlib.suppress(CerError), contextlib.closing(_first_batches(source, names)) as batches:
        for batch in batches:
            for name in names:
                column = batch.column(name)
                if is_string(column.type) or pa.types.is_dictionary(column.type):
                    values = set(pc.unique(column).to_pylist())
                    held = [each for each in types if each in values]
                    if held:
                        found[name] = held
            break
    return found


def _first_batches(source: Source, names: list[str]) -> Generator[pa.RecordBatch, None, None]:
    yield from source.batches(names)
