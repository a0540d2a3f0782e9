"""Alerts as rows of a timeline, under the names that tools for timelines take (Timesketch).

| column | type | |
| --- | --- | --- |
| `message` | string | the rule, its level and the host |
| `datetime` | string | time of the last event in ISO 8601 and UTC; times without a zone are taken for UTC |
| `timestamp_desc` | string | what the time is: "Alert: last event" |
| `rule`, `rule_id`, `level`, `host` | string | NULL where there is none |
| `tags`, `tactics`, `techniques` | string | those of the rule, with commas between |
| `start_time` | string | time of the first event, as `datetime` |
| `key`, `events` | string | as of alerts; the key as JSON |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
        "datetime": _in_utc(alerts.column("end_time")),
        "timestamp_desc": [TIME_MEANING] * alerts.num_rows,
        "rule": rules,
        "level": levels,
        "host": hosts,
        "rule_id": alerts.column("id"),
        "start_time": _in_utc(alerts.column("start_time")),
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


def _in_utc(times: pa.Array) -> pa.Array:
    """Return times in ISO 8601 with the offset of UTC."""
    if not pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("s"))  # dates
    return pc.binary_join_element_wise(
        pc.strftime(times.cast(pa.timestamp(times.type.unit)), "%Y-%m-%dT%H:%M:%S"), pa.scalar("+00:00"), pa.scalar("")
    )
