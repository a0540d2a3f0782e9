"""Facts of a compiled query, that callers need besides its results, as a record that JSON can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import lark
import pyarrow as pa

from cer_gpu.evaluable import CompiledQuery

FROM_QUERIES = 64
"""Least number of queries of a set that is looked up and cached as a whole."""
VERSIONS = repr((lark.__version__, pa.__version__))
"""Versions of packages on which it depends what a query is."""


class Interned:
    """Numbers of values.

    Attributes
    ----------
    values : list
        By their numbers.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        """Return the number of a value, a new one if it has none."""
        key = json.dumps(value, sort_keys=True)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


_Strings = tuple[str, ...]


@dataclass(frozen=True)
class QueryFacts:
    """Facts of a compiled query, named as in `cer_gpu.evaluable.CompiledQuery`.

    Attributes
    ----------
    identity : dict
        As of `cer_gpu.planning.lazy_queries.LazyQuery`; empty for a query over a whole table.
    """

    language: str
    reads_whole_table: bool
    notes: _Strings
    missing_fields: _Strings
    outputs: _Strings
    default_output: str
    counted_output: str | None
    types: _Strings
    type_column: str | None
    time_column: str | None
    time_unit: str | None
    streams: _Strings
    several_streams: bool
    partition_keys: tuple[_Strings, ...]
    key_names: _Strings
    nullable_partition_keys: tuple[_Strings, ...]
    window_kind: str | None
    window_attribute: str | None
    is_spaced: bool
    identity: Mapping[str, Any]

    def plain(self) -> dict[str, Any]:
        """Return the facts as JSON holds them, without the text of the query."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return own | {"identity": {name: of for name, of in self.identity.items() if name != "text"}}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], text: str) -> QueryFacts:
        """Return the facts of a query, given its text."""
        facts: dict[str, Any] = {
            name: _tuples(value) if isinstance(value, list) else value for name, value in plain.items()
        }
        identity: Mapping[str, Any] = plain["identity"]
        return cls(**facts | {"identity": {"text": text, **identity} if identity else {}})


def facts_of(query: CompiledQuery) -> QueryFacts:
    """Return the facts of a compiled query."""
    return QueryFacts(
        language=query.language,
        reads_whole_table=query.reads_whole_table,
        notes=tuple(query.notes),
        missing_fields=query.missing_fields,
        outputs=query.outputs,
        default_output=query.default_output,
        counted_output=query._counted_output,
        types=query.types,
        type_column=query.type_column,
        time_column=query.time_column,
        time_unit=query.time_unit,
        streams=query.streams,
        several_streams=query.several_streams,
        partition_keys=query.partition_keys,
        key_names=query.key_names,
        nullable_partition_keys=tuple(sorted(query.nullable_partition_keys)),
        window_kind=query.window_kind,
        window_attribute=query.window_attribute,
        is_spaced=query.is_spaced,
        identity=query.identity,
    )


def _tuples(value: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(each) if isinstance(each, list) else each for each in value)
