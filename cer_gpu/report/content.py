"""Content of a report as one object that JSON can hold: numbers are packed, texts are cut."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.fields import array_of
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.io.texts import plain
from cer_gpu.order.rows import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.query import Query
from cer_gpu.report.counted import Counted, in_words
from cer_gpu.report.events import Events
from cer_gpu.report.found import Found, find, variables_of

MAX_CELL = 120
"""Most characters of one value of a row."""
MAX_COLUMNS = 40
"""Most columns of the rows."""
MAX_MEASURED = 1000
"""Most rows of measures."""
MAX_ROW_BYTES = 1 << 23
"""Most characters of all values of rows together."""

_MILLISECONDS = {"s": 1000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}


def content(
    query: Query, events: Events, counted: Counted | None, *, threads: int | None = None, n_pages: int = 1
) -> dict[str, Any]:
    """Evaluate a query and return the content of its page.

    Parameters
    ----------
    counted
        Counts of its complex events, where there are some.
    n_pages
        Number of queries that share the room of one file.
    """
    found = find(query, events, threads, counted, n_pages)
    keys = [dotted(names[0]) for names in query.keys]
    is_whole = found.n_listed == found.n_matches
    held: dict[str, Any] = {
        "query": query.text,
        "strategies": [*STRATEGIES],
        "words": _words(query),
        "notes": [*query.notes, *found.notes],
        "n_events": found.n_events,
        "n_matches": found.n_matches,
        "found": in_words(found.n_matches),
        "n_listed": found.n_listed,
        "most_at_an_end": 0 if is_whole or counted is None else counted.most_at_an_end,
        "step": found.step,
        "keys": keys,
        "n_partitions": len(found.labels),
    }
    if query.default_output == "measures":
        held["measures"] = _measures(query, events, threads, max(MAX_MEASURED // n_pages, 1), is_whole=is_whole)
    if found.drawn is None or found.detailed is None:
        return held
    axis, starts, ends = _axis(query, found.drawn)
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
        "labels": [found.labels[code] for code in used],
        "counts": packed(np.array([found.counts[code] for code in used], np.float64)),
        "matches": matches,
        "rows": _rows(query, events, found, threads, MAX_ROW_BYTES // n_pages),
    }


def _measures(query: Query, events: Events, threads: int | None, most: int, *, is_whole: bool) -> dict[str, Any]:
    """Return the first rows of output "measures" as texts, and the number of all; None where they are too many."""
    pieces, n_rows = list[pa.RecordBatch](), 0
    evaluator = query.evaluator(output="measures", limit=None if is_whole else most)
    for batch in query._matches(events.numbered(), evaluator, threads):
        left = most - n_rows
        if left > 0 or not pieces:
            pieces.append(batch.slice(0, max(left, 0)))
        n_rows += batch.num_rows
    if not pieces:
        return {"columns": [], "rows": [], "n_rows": 0}
    table = pa.Table.from_batches(pieces)
    columns = [
        pc.utf8_slice_codeunits(plain(column.combine_chunks()), 0, MAX_CELL).to_pylist() for column in table.columns
    ]
    names = [name[:MAX_CELL] for name in table.column_names]
    rows = list(map(list, zip(*columns, strict=True)))
    return {"columns": names, "rows": rows, "n_rows": n_rows if is_whole else None}


def _words(query: Query) -> list[str]:
    """Return a query in plain words; no lines if it is nested too deeply."""
    try:
        return query.explain().words
    except QueryTooLargeError:
        return []


def packed(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return numbers, divided by their greatest common divisor, as base64 of the narrowest type that holds them.

    Integers beyond 2**53 become the nearest float64, the only numbers that the page computes with.
    """
    is_whole = values.dtype.kind in "iu" or bool(np.all(values == np.floor(values)))
    if is_whole and len(values) and values.min() >= 0 and values.max() < 2**53:
        whole = values.astype(np.int64)
        unit = int(np.gcd.reduce(whole)) or 1
        whole //= unit
        kind = next((k for k in ("u1", "u2", "u4") if whole.max() <= np.iinfo(k).max), "f8")
        return {"type": kind, "unit": unit, "data": _base64(whole.astype(f"<{kind}"))}
    return {"type": "f8", "unit": 1, "data": _base64(values.astype("<f8"))}


def _base64(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


# ---- the axis -----------------------------------------------------------------------------------------------------


def _axis(query: Query, drawn: pa.Table) -> tuple[dict[str, Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the axis, and the starts and ends of complex events on it, counted from its origin.

    Moments and durations are in milliseconds.  The origin is a text, as it may exceed the integers of JavaScript.
    """
    if query.time_column is None:
        return {"kind": "position", "unit": "", "origin": "0"}, *(drawn[n].to_numpy() for n in ("start", "end"))
    kind = drawn.schema.field("start_time").type
    times = [_integers(drawn[name].combine_chunks()) for name in ("start_time", "end_time")]
    low = int(times[0].min())
    if pa.types.is_integer(kind):
        # the difference of any two 64-bit integers fits an unsigned one, even where it wraps around
        moved = [(values - values.dtype.type(low)).view(np.uint64) for values in times]
        return {"kind": "number", "unit": query.time_unit or "", "origin": str(low)}, moved[0], moved[1]
    scale = 86_400_000.0 if pa.types.is_date32(kind) else _MILLISECONDS[getattr(kind, "unit", "ms")]
    if scale < 1:
        low -= low % round(1 / scale)
    origin = low * round(scale) if scale >= 1 else low // round(1 / scale)
    moved = [(values - low) * scale if scale >= 1 else (values - low) / round(1 / scale) for values in times]
    is_duration = pa.types.is_duration(kind)
    zone = "" if is_duration or getattr(kind, "tz", None) is None else "Z"
    return {"kind": "duration" if is_duration else "moment", "unit": zone, "origin": str(origin)}, moved[0], moved[1]


def _integers(values: pa.Array) -> npt.NDArray[Any]:
    """Return the 64-bit integers behind times."""
    kind = values.type
    if pa.types.is_uint64(kind):
        return values.to_numpy()  # type: ignore[no-any-return]
    storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    plain_values = values if pa.types.is_integer(kind) else values.view(storage)
    return plain_values.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def _partitions(found: Found) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Return the codes of the drawn partitions, most frequent first, and the place in them of each complex event's."""
    assert found.drawn is not None
    codes = found.drawn["partition"].to_numpy()
    if not found.labels:
        return [], codes
    used = sorted(np.unique(codes).tolist(), key=lambda code: (-found.counts[code], found.labels[code]))
    places = np.zeros(len(found.labels), np.int64)
    places[used] = np.arange(len(used))
    return used, places[codes]


# ---- rows ---------------------------------------------------------------------------------------------------------


def _rows(query: Query, events: Events, found: Found, threads: int | None, most_bytes: int) -> dict[str, Any]:
    """Return the rows of the detailed complex events, each with the variables that hold it."""
    assert found.detailed is not None
    detailed, step = found.detailed, found.detail_step
    source = events.open()
    binding = query._bind(source.schema)
    names, attributes = binding.attribute_schema.names, binding.attributes[:MAX_COLUMNS]
    positions = np.unique(pc.list_flatten(detailed["positions"].combine_chunks()).to_numpy())
    texts, rows = _texts(events, attributes, positions)
    while _size(texts) > most_bytes and detailed.num_rows > 1:
        step *= 2
        detailed = detailed.filter(pa.array(detailed["number"].to_numpy() % step == 0))
        fewer = np.unique(pc.list_flatten(detailed["positions"].combine_chunks()).to_numpy())
        kept = np.searchsorted(positions, fewer)
        texts, rows = texts.take(pa.array(kept)), rows[kept]
        positions = fewer
    lists = detailed["positions"].combine_chunks()
    references = pc.list_flatten(lists).to_numpy()
    variables = variables_of(found.valued, events, detailed, found.n_listed, threads)
    told, roles = _coded_roles(variables, pc.list_value_length(lists).to_pylist())
    return {
        "step": step,
        "most": int(pc.max(pc.list_value_length(lists)).as_py() or 0),
        "ends": packed(np.cumsum(pc.list_value_length(lists).to_numpy()).astype(np.int64)),
        "references": packed(np.searchsorted(positions, references)),
        "roles": packed(roles),
        "role_names": told,
        "positions": packed(rows),
        "columns": [_coded(name, texts[i]) for i, name in enumerate(names[:MAX_COLUMNS])],
        "n_columns": len(names),
    }


def _texts(
    events: Events, attributes: Sequence[str], positions: npt.NDArray[np.int64]
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Return the values of attributes at positions as texts, cut to `MAX_CELL` (NULL stays NULL), and their rows."""
    text = pa.large_string()
    schema = pa.schema([(str(i), text) for i in range(len(attributes))])
    pieces, n_before = [], 0
    source, numbers = events.numbered(), positions.copy()
    numbered = [ROW_COLUMN] if ROW_COLUMN in source.schema.names else []
    for batch in source.batches([*(attributes or source.schema.names[:1]), *numbered]):
        low, high = np.searchsorted(positions, [n_before, n_before + batch.num_rows])
        if low < high:
            rows = pa.array(positions[low:high] - n_before)
            columns = [plain(array_of(batch, attribute).take(rows)) for attribute in attributes]
            pieces.append(pa.table([pc.utf8_slice_codeunits(c, 0, MAX_CELL).cast(text) for c in columns], schema))
            if numbered:
                numbers[low:high] = batch.column(ROW_COLUMN).take(rows).to_numpy()
        n_before += batch.num_rows
        if high == len(positions):
            break
    return pa.concat_tables(pieces) if pieces else schema.empty_table(), numbers


def _size(texts: pa.Table) -> int:
    return sum(_distinct(column)[2] + 2 * len(column) for column in texts.columns)


def _distinct(column: pa.ChunkedArray) -> tuple[list[str | None], npt.NDArray[np.int64], int]:
    """Return the distinct values of a column, the index of each row's value, and the length of all of them."""
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    values = coded.dictionary.to_pylist()
    return values, coded.indices.to_numpy().astype(np.int64), sum(len(value or "") + 3 for value in values)


def _coded(name: str, column: pa.ChunkedArray) -> dict[str, Any]:
    values, codes, _ = _distinct(column)
    return {
        "name": STREAM_COLUMN if name == STREAM_COLUMN else name[:MAX_CELL],
        "values": values,
        "codes": packed(codes),
    }


def _coded_roles(variables: list[list[str]] | None, lengths: Sequence[int]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct roles (texts of variables), and the index of each row's; the first, "", is for unknown."""
    codes = {"": 0}
    numbers = []
    for told, n in zip(variables or [[]] * len(lengths), lengths, strict=True):
        numbers += [codes.setdefault(each, len(codes)) for each in told or [""] * n]
    return list(codes), np.array(numbers, np.int64)
