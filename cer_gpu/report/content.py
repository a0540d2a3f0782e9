"""Content of a report as one object that JSON can hold: axis, measures, matches; numbers packed, strings cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Int64
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.clocks import UNITS_PER_SECOND
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.io.value_strings import plain_values
from cer_gpu.query import Query
from cer_gpu.report.counted import Counted, number_in_words
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.listed_matches import ReportResults, find_for_report
from cer_gpu.report.match_rows import MAX_CELL, coded, distinct, packed, shown_rows

MAX_MEASURED = 1000
"""Most rows of measures, where these are not those of the matches."""
MAX_MEASURED_BYTES = 1 << 23
"""Most characters of the measures of matches."""


def shown_measures(
    query: Query, events: ReportEvents, found: ReportResults, asked: EvaluationOptions = USUAL_OPTIONS, n_pages: int = 1
) -> dict[str, Any]:
    """Return the measures of a query: a value for each match that is drawn, or the first rows of all.

    There is a row of measures for each valuation.  If each match has one only, the content has ``columns``
    with their values, as many as there is room for; else the first ``rows``.  ``n_rows`` is None where there are too
    many to list.
    """
    is_whole = found.n_listed == found.n_matches
    most = max(MAX_MEASURED // n_pages, 1)
    first, sampled, n_rows = list[pa.RecordBatch](), list[pa.RecordBatch](), 0
    evaluator = query._checked_evaluator(replace(asked, output="measures", limit=None if is_whole else most))
    for batch in query._match_source(events.numbered(), evaluator, asked.threads):
        left = most - n_rows
        if left > 0 or not first:
            first.append(batch.slice(0, max(left, 0)))
        wanted = np.flatnonzero(np.arange(n_rows, n_rows + batch.num_rows) % found.step == 0)
        sampled.append(batch.take(pa.array(wanted)))
        n_rows += batch.num_rows
    if not first:
        return {"names": [], "rows": [], "n_rows": 0}
    names = [output.name for output in query._bindings.plan.measures.measures]
    if is_whole and n_rows == found.n_listed and found.drawn is not None:
        each = pa.Table.from_batches(sampled)
        if all(each[name].equals(found.drawn[name].cast(each[name].type)) for name in ("start", "end")):
            return _of_each(each, names, MAX_MEASURED_BYTES // n_pages)
    table = pa.Table.from_batches(first)
    columns = [_axis_strings(column).to_pylist() for column in table.columns]
    return {
        "names": [name[:MAX_CELL] for name in table.column_names],
        "rows": list(map(list, zip(*columns, strict=True))),
        "n_rows": n_rows if is_whole else None,
    }


def _of_each(each: pa.Table, names: list[str], most_bytes: int) -> dict[str, Any]:
    columns = []
    for name in names:
        texts = _axis_strings(each[name])
        most_bytes -= distinct(texts)[2] + 2 * len(texts)
        if most_bytes < 0:
            break
        columns.append(coded(name, texts, each.schema.field(name).type))
    return {"columns": columns, "n_columns": len(names)}


def _axis_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pc.utf8_slice_codeunits(plain_values(column.combine_chunks()), 0, MAX_CELL)])


DAYS = -1
"""Digits of an axis of dates, which have no time of day."""


def axis_of(query: Query, drawn: pa.Table) -> tuple[dict[str, Any], Array, Array]:
    """Return the axis, and the starts and ends of matches on it, counted from its origin.

    Moments and durations are in milliseconds.  The origin is a text, as it may exceed the integers of JavaScript.
    ``digits`` are those of the fraction of a second that the timestamps need, or `DAYS`; ``zone`` is that of the
    column, whose timestamps are shown in UTC.
    """
    if query.time_column is None:
        return _axis("position"), *(drawn[name].to_numpy() for name in ("start", "end"))
    kind = drawn.schema.field("start_time").type
    times = [_integers(drawn[name].combine_chunks()) for name in ("start_time", "end_time")]
    low = int(times[0].min())
    named = {"column": query.time_column}
    if pa.types.is_integer(kind):
        # the difference of any two 64-bit integers fits an unsigned one, even where it wraps around
        moved = [(values - values.dtype.type(low)).view(np.uint64) for values in times]
        return _axis("number", query.time_unit or "", low, **named), moved[0], moved[1]
    if pa.types.is_date32(kind):
        scale, per_second, digits = 86_400_000, 1, DAYS
    else:
        per_second = UNITS_PER_SECOND[getattr(kind, "unit", "ms")]
        scale, digits = 1000 // per_second, DAYS if pa.types.is_date64(kind) else _fraction_digits(times, per_second)
    if scale:
        origin, moved = low * scale, [(values - low) * float(scale) for values in times]
    else:
        low -= low % (per_second // 1000)
        origin, moved = low // (per_second // 1000), [(values - low) / (per_second // 1000) for values in times]
    if pa.types.is_duration(kind):
        return _axis("duration", origin=origin, **named), moved[0], moved[1]
    zone = getattr(kind, "tz", None) or ""
    return _axis("moment", "Z" if zone else "", origin, digits=digits, zone=zone, **named), moved[0], moved[1]


def _axis(kind: str, unit: str = "", origin: int = 0, **others: Any) -> dict[str, Any]:
    return {"kind": kind, "unit": unit, "origin": str(origin), **others}


def _fraction_digits(times: list[Int64], per_second: int) -> int:
    """Return how many digits of the fraction of a second times need: 0, 3, 6 or 9."""
    digits = 0
    while 10**digits < per_second and any((values % (per_second // 10**digits)).any() for values in times):
        digits += 3
    return digits


def _integers(values: pa.Array) -> Array:
    """Return the 64-bit integers behind times."""
    kind = values.type
    if pa.types.is_uint64(kind):
        return values.to_numpy()  # type: ignore[no-any-return]
    storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    plain_values = values if pa.types.is_integer(kind) else values.view(storage)
    return plain_values.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def content(
    query: Query,
    events: ReportEvents,
    counted: Counted | None,
    *,
    asked: EvaluationOptions = USUAL_OPTIONS,
    n_pages: int = 1,
) -> dict[str, Any]:
    """Evaluate a query and return the content of its page.

    Parameters
    ----------
    counted
        Counts of its matches, where there are some.
    n_pages
        Number of queries that share the room of one file.
    """
    found = find_for_report(query, events, asked, counted, n_pages)
    is_whole = found.n_listed == found.n_matches
    held: dict[str, Any] = {
        "query": query.text,
        "strategies": [*STRATEGIES],
        "words": _query_words(query),
        "notes": [*query.notes, *found.notes],
        "n_events": found.n_events,
        "n_matches": found.n_matches,
        "found": number_in_words(found.n_matches),
        "n_listed": found.n_listed,
        "most_at_an_end": 0 if is_whole or counted is None else counted.most_at_an_end,
        "step": found.step,
        "keys": [dotted(names[0]) for names in query.partition_keys],
        "n_partitions": len(found.partitions.labels),
    }
    if query.default_output == "measures":
        held["measures"] = shown_measures(query, events, found, asked, n_pages)
    if found.drawn is None or found.detailed is None:
        return held
    axis, starts, ends = axis_of(query, found.drawn)
    used, codes = _partitions(found)
    begin = found.drawn["start"].to_numpy()
    matches = {
        "from": packed(starts),
        "length": packed(ends - starts),
        "start": packed(begin),
        "span": packed(found.drawn["end"].to_numpy() - begin),
        "n": packed(found.drawn["n_kept"].to_numpy()),
        "partition": packed(codes),
    }
    if not is_whole:
        matches["stands_for"] = packed(found.drawn["stands_for"].to_numpy())
    return held | {
        "axis": axis,
        "labels": [found.partitions.labels[code] for code in used],
        "key_values": [found.partitions.values[code] for code in used] if len(query.partition_keys) > 1 else [],
        "counts": packed(np.array([found.counts[code] for code in used], np.float64)),
        "matches": matches,
        "rows": shown_rows(query, events, found, axis.get("digits"), asked, n_pages),
    }


def _query_words(query: Query) -> list[str]:
    """Return a query in plain words; no lines if it is nested too deeply."""
    try:
        return query.explain().words
    except QueryTooLargeError:
        return []


def _partitions(found: ReportResults) -> tuple[list[int], Int64]:
    """Return the codes of the drawn partitions, most frequent first, and the place in them of each match's."""
    assert found.drawn is not None
    codes, labels = found.drawn["partition"].to_numpy(), found.partitions.labels
    if not labels:
        return [], codes
    used = sorted(np.unique(codes).tolist(), key=lambda code: (-found.counts[code], labels[code]))
    places = np.zeros(len(labels), np.int64)
    places[used] = np.arange(len(used))
    return used, places[codes]
