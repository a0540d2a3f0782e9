"""Alerts: the results of all rules as rows of one table, with their hosts; as a timeline; and near misses.

| column | type | |
| --- | --- | --- |
| `rule`, `id`, `level` | string | of the rule; NULL where it has none |
| `tags`, `tactics`, `techniques` | list of string | of the rule |
| `host` | string | that of the last event, from the first of `cer_gpu.rules.alerts.HOST_COLUMNS` that is there |
| `file` | string | that of the last event; only there if the events are of several files |
| `key` | map of strings | the values of the columns in PARTITION BY, or BY of EQL, by the names of the columns |
| `start`, `end` | int64 | positions of the first event and of the last one |
| `start_time`, `end_time` | that of the time column | where there is one |
| `positions` | list of int64 | positions of the matched events, the last 1,000 of them |
| `events` | string | these events as JSON: an array of objects without the attributes that are NULL |

The schema is the same for all rules, whatever columns the events have.  A rule with measures, or a statement with
MATCH_RECOGNIZE, has its row as the one object of `events`, and no positions.

A timeline has these columns, under the names that tools such as Timesketch take.

| column | type | |
| --- | --- | --- |
| `message` | string | the rule, its level and the host |
| `datetime` | string | time of the last event in ISO 8601 and UTC; times without a zone are taken for UTC |
| `timestamp_desc` | string | what the time is: "Alert: last event" |
| `rule`, `rule_id`, `level`, `host` | string | NULL where there is none |
| `tags`, `tactics`, `techniques` | string | of the rule, comma-separated |
| `start_time` | string | time of the first event, as `datetime` |
| `key`, `events` | string | as of alerts; the key as JSON |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.record_batches import empty_batch
from cer_gpu.compilation import CompiledQuery
from cer_gpu.engine.execution_group import NamedBatches
from cer_gpu.io.source import FilesOfRows
from cer_gpu.io.value_strings import TEXT, json_strings, plain_values
from cer_gpu.output.funnel_counts import FunnelCounts
from cer_gpu.rule import Rule


@dataclass(frozen=True)
class FurthestStep:
    """Furthest step of a rule that was reached.

    Attributes
    ----------
    name : str
        Name of the rule.
    n_steps : int
    n_starts : int
        Number of events that satisfy the first step.
    furthest : int
        Number of the furthest step, from 1; 0 where there are no starts.
    step : str
        Name of that step.
    n_furthest : int
        Starts that reached it.
    stopped : dict from str to int
        Those of them that got no further, by what stopped them.
    """

    name: str
    n_steps: int
    n_starts: int
    furthest: int
    step: str
    n_furthest: int
    stopped: dict[str, int]

    @property
    def is_complete(self) -> bool:
        """True if the last step was reached."""
        return self.furthest == self.n_steps

    @property
    def order(self) -> tuple[bool, int, int, str]:
        """Sort key: rules whose last step was not reached first, those with the fewest steps left before others."""
        return self.is_complete, self.n_steps - self.furthest, -self.n_furthest, self.name

    @property
    def words(self) -> str:
        """The reason that stopped them, as text."""
        return ", ".join(f"{reason} {n:,}" for reason, n in self.stopped.items() if n)


def furthest_step(name: str, counts: FunnelCounts) -> FurthestStep:
    """Return the furthest step that a rule reached."""
    rows = counts.rows
    furthest = sum(row.n_reached > 0 for row in rows)
    last = rows[max(furthest - 1, 0)]
    return FurthestStep(name, len(rows), rows[0].n_reached, furthest, last.name, last.n_reached, dict(last.stopped))


TIMELINE = "timeline"
"""Name of this form of the results."""
TIME_MEANING = "Alert: last event"
_COLUMNS = ("message", "datetime", "timestamp_desc", "rule", "level", "host", "rule_id")
_LISTS = ("tags", "tactics", "techniques")
TIMELINE_SCHEMA = pa.schema([(name, pa.large_string()) for name in (*_COLUMNS, *_LISTS, "start_time", "key", "events")])


def timeline_rows(alerts: pa.RecordBatch) -> pa.RecordBatch:
    """Return alerts (`cer_gpu.rules.alerts.AlertRows`), which have times, as rows of a timeline."""
    rules, levels, hosts = (alerts.column(name).to_pylist() for name in ("rule", "level", "host"))
    columns: dict[str, Sequence[Any] | pa.Array] = {
        "message": list(map(_message, rules, levels, hosts)),
        "datetime": _format_utc(alerts.column("end_time")),
        "timestamp_desc": [TIME_MEANING] * alerts.num_rows,
        "rule": rules,
        "level": levels,
        "host": hosts,
        "rule_id": alerts.column("id"),
        "start_time": _format_utc(alerts.column("start_time")),
        "key": [json.dumps(dict(key), ensure_ascii=False) if key else None for key in alerts.column("key").to_pylist()],
        "events": alerts.column("events"),
    }
    columns |= {name: pc.binary_join(alerts.column(name), ",") for name in _LISTS}
    arrays = [
        (each if isinstance(each, pa.Array) else pa.array(each, pa.large_string())).cast(pa.large_string())
        for each in (columns[name] for name in TIMELINE_SCHEMA.names)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TIMELINE_SCHEMA)


def _message(rule: str, level: str | None, host: str | None) -> str:
    return f"{rule}{'' if level is None else f' ({level})'}{'' if host is None else f' on {host}'}"


def _format_utc(times: pa.Array) -> pa.Array:
    """Return times in ISO 8601 with the offset of UTC."""
    if not pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("s"))  # dates
    return pc.binary_join_element_wise(
        pc.strftime(times.cast(pa.timestamp(times.type.unit)), "%Y-%m-%dT%H:%M:%S"), pa.scalar("+00:00"), pa.scalar("")
    )


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
        NULL where no event or no column has one.
    """
    if "events" not in rows.schema.names or not pa.types.is_list(rows.schema.field("events").type):
        return _host({name: rows.column(name) for name in rows.schema.names}, rows.num_rows)
    lists = rows.column("events")
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    last = np.cumsum(lengths) - 1
    events = lists.flatten().take(pa.array(last, pa.int64(), mask=lengths == 0))
    return _host({field.name: pc.struct_field(events, [i]) for i, field in enumerate(events.type)}, rows.num_rows)


def _host(columns: dict[str, pa.Array], n_rows: int) -> pa.Array:
    host_columns = []
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
            host_columns.append(column.cast(pa.string()))
    return pc.coalesce(*host_columns) if host_columns else pa.nulls(n_rows, pa.string())


ALERTS = "alerts"
"""Name of this form of the results."""
MAX_EVENTS = 1_000
"""Most events that an alert shows: the last ones."""
WITH_EVENTS = "events"
_STRINGS = pa.list_(pa.string())
_POSITIONS = pa.list_(pa.int64())
_KEY = pa.map_(pa.string(), pa.string())


def alert_output(query: CompiledQuery) -> str:
    """Return the output of a query whose rows `AlertRows` takes: its measures where it has some, else its events."""
    return WITH_EVENTS if query.default_output == "positions" else query.default_output


class AlertRows:
    """Rows of results as alerts.

    Parameters
    ----------
    rules, queries
        Rules, and their queries, by the names of these.
    time_type
        Type of the time column, or None if there is none.
    files
        Files of the events, or None if they are not of several files.

    Attributes
    ----------
    schema : pyarrow.Schema
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        queries: Mapping[str, CompiledQuery],
        time_type: pa.DataType | None,
        files: FilesOfRows | None = None,
    ) -> None:
        self._rules, self._files = rules, files
        self._keys = {name: [dotted(names[0]) for names in query.partition_keys] for name, query in queries.items()}
        self._are_statements = {name: query.reads_whole_table for name, query in queries.items()}
        self._have_events = {name: alert_output(query) == WITH_EVENTS for name, query in queries.items()}
        times = [] if time_type is None else [("start_time", time_type), ("end_time", time_type)]
        self.schema: pa.Schema = pa.schema(
            [
                *((name, pa.string()) for name in ("rule", "id", "level")),
                *((name, _STRINGS) for name in ("tags", "tactics", "techniques")),
                ("host", pa.string()),
                *([] if files is None else [("file", pa.string())]),
                ("key", _KEY),
                ("start", pa.int64()),
                ("end", pa.int64()),
                *times,
                ("positions", _POSITIONS),
                ("events", TEXT),
            ]
        )

    def from_results(self, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return results of a query as alerts."""
        if not rows.num_rows:  # of which Arrow repeats no list
            return empty_batch(self.schema)
        rule = self._rules[name]
        results = {field.name: rows.column(i) for i, field in enumerate(rows.schema)}
        if self._have_events[name]:
            results |= {each: _last(results[each], MAX_EVENTS) for each in ("positions", "events") if each in results}
        of_alerts = (each for each in self.schema.names if each != "file")
        event_columns = () if self._are_statements[name] else (*self._keys[name], *of_alerts)
        own = {"rule": name, "id": rule.id, "level": rule.level}
        lists = {"tags": rule.tags, "tactics": rule.tactics, "techniques": rule.techniques}
        columns = {key: pa.repeat(pa.scalar(value, pa.string()), rows.num_rows) for key, value in own.items()}
        for key, values in lists.items():
            columns[key] = pa.repeat(pa.scalar(list(values), _STRINGS), rows.num_rows)
        columns["host"] = hosts_of(rows)
        columns["key"] = _maps({key: results[key] for key in self._keys[name] if key in results}, rows.num_rows)
        if self._files is not None and "end" in event_columns and "end" in results:
            columns["file"] = self._files.names(results["end"])
        if self._have_events[name]:
            columns["events"] = _events_as_json(results["events"])
        else:
            measures = {each: column for each, column in results.items() if each not in event_columns}
            columns["events"] = _as_json_lists(measures, rows.num_rows)
        for field in self.schema:
            if field.name not in columns:
                is_there = field.name in event_columns and field.name in results
                columns[field.name] = results[field.name] if is_there else pa.nulls(rows.num_rows, field.type)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def time_type_in(schemas: Mapping[str, pa.Schema], queries: Mapping[str, CompiledQuery]) -> pa.DataType | None:
    """Return the type of the time column in the schemas of results, or None if there is none."""
    for name, schema in schemas.items():
        if not queries[name].reads_whole_table and "start_time" in schema.names:
            return schema.field("start_time").type
    return None


def alerts_of(
    results: NamedBatches, rules: Mapping[str, Rule], queries: Mapping[str, CompiledQuery], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield results of all queries as alerts, of a schema that may have the types of others, as Spark's."""
    rows: AlertRows | None = None
    for name, batch in results:
        rows = rows or AlertRows(rules, queries, time_type_in({name: batch.schema}, queries))
        alerts = rows.from_results(name, batch)
        yield alerts if alerts.schema == schema else alerts.cast(schema)


def in_order_of_ends(alerts: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return alerts in the order of their ends; those without one come last, and the order of others stays."""
    table = pa.Table.from_batches(alerts, schema)
    order = pc.sort_indices(
        pa.table({"end": table["end"], "row": np.arange(table.num_rows)}),
        sort_keys=[("end", "ascending"), ("row", "ascending")],
    )
    return table.take(order)


def _maps(columns: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
    """Return for each row the map from the names of columns to its values, as strings, without NULLs."""
    names = pa.array(list(columns), pa.string())
    texts = [plain_values(column).cast(pa.string()) for column in columns.values()]
    n = len(texts)
    by_column = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
    order = np.arange(n * n_rows).reshape(n, n_rows).T.ravel()  # row by row
    items = by_column.take(pa.array(order))
    keys = names.take(pa.array(np.tile(np.arange(n), n_rows)))
    is_valid = items.is_valid()
    counts = np.asarray(is_valid).reshape(n_rows, n).sum(axis=1) if n else np.zeros(n_rows, np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys.filter(is_valid), items.filter(is_valid))


def _last(lists: pa.Array, n_max: int) -> pa.Array:
    """Return the last `n_max` elements of each list."""
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    if not (lengths > n_max).any():
        return lists
    n_selected = np.minimum(lengths, n_max)
    ends, offsets = np.cumsum(lengths), np.concatenate([[0], np.cumsum(n_selected)])
    rows = np.arange(offsets[-1]) + np.repeat(ends - n_selected - offsets[:-1], n_selected)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), lists.flatten().take(pa.array(rows)))


def _events_as_json(events: pa.Array) -> pa.Array:
    """Return lists of structs as JSON, without attributes that are NULL."""
    structs = events.flatten()
    objects = _objects([field.name for field in structs.type], structs.flatten(), len(structs))
    offsets = np.concatenate([[0], np.cumsum(np.asarray(pc.list_value_length(events)))])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), objects)
    return _wrap_strings(pc.binary_join(lists, pa.scalar(", ", TEXT)), "[", "]")


def _as_json_lists(columns: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
    """Return each row as JSON: a list of one object."""
    return _wrap_strings(_objects(list(columns), list(columns.values()), n_rows), "[", "]")


def _objects(names: list[str], columns: list[pa.Array], n_rows: int) -> pa.Array:
    """Return rows as objects of JSON, without attributes that are NULL."""
    members = []
    for name, column in zip(names, columns, strict=True):
        if column.null_count == n_rows:
            continue
        member = _wrap_strings(json_strings(column), json.dumps(name, ensure_ascii=False) + ": ", "")
        members.append(member if not column.null_count else pc.if_else(column.is_valid(), member, None))
    if not members:
        return pa.repeat(pa.scalar("{}", TEXT), n_rows)
    joined = pc.binary_join_element_wise(*members, pa.scalar(", ", TEXT), null_handling="skip")
    return _wrap_strings(joined, "{", "}")


def _wrap_strings(texts: pa.Array, before: str, after: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(before, TEXT), texts, pa.scalar(after, TEXT), pa.scalar("", TEXT))
