"""Rows on a page: those of matches, with their variables, and those between them; packed columns."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.columnar.fields import array_of
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.engine.stream_columns import LetColumns
from cer_gpu.io.source import Source
from cer_gpu.io.value_strings import plain_values
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.planning.binding import Binding
from cer_gpu.query import Query
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.listed_matches import ReportResults, variables_of

MAX_CELL = 120
"""Maximum length of one value."""

_FRACTION = re.compile(r"^([^.]*?)(?:\.(\d+))?(Z?)$")


def packed(values: Array) -> dict[str, Any]:
    """Return numbers, divided by their greatest common divisor, as base64 of the narrowest sufficient type.

    Integers beyond 2**53 become the nearest float64, the only numbers in JavaScript.
    """
    is_whole = values.dtype.kind in "iu" or bool(np.all(values == np.floor(values)))
    if is_whole and len(values) and values.min() >= 0 and values.max() < 2**53:
        whole = values.astype(np.int64)
        unit = int(np.gcd.reduce(whole)) or 1
        whole //= unit
        kind = next((k for k in ("u1", "u2", "u4") if whole.max() <= np.iinfo(k).max), "f8")
        return {"type": kind, "unit": unit, "data": _base64(whole.astype(f"<{kind}"))}
    return {"type": "f8", "unit": 1, "data": _base64(values.astype("<f8"))}


def _base64(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def distinct(column: pa.ChunkedArray) -> tuple[list[str | None], Int64, int]:
    """Return the distinct strings of a column, the index of each row, and their total length."""
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    values = coded.dictionary.to_pylist()
    return values, coded.indices.to_numpy().astype(np.int64), sum(len(value or "") + 3 for value in values)


def size(strings: pa.Table) -> int:
    """Return the approximate size of the columns of a table of strings on a page."""
    return sum(distinct(column)[2] + 2 * len(column) for column in strings.columns)


def coded(name: str, column: pa.ChunkedArray, kind: pa.DataType, digits: int | None = None) -> dict[str, Any]:
    """Return a column of strings: its name, distinct values, the code of each row, and how they are shown.

    ``is_duration`` or the ``zone`` of timestamps is there only where it says something.

    Parameters
    ----------
    kind
        Type of the original values.
    digits
        Minimum number of digits of the fractions of seconds of timestamps.
    """
    values, codes, _ = distinct(column)
    if pa.types.is_timestamp(kind):
        values = in_one_format(values, max(fraction_digits(values), digits or 0))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    shown: dict[str, Any] = {"name": name[:MAX_CELL], "is_number": is_number, "values": values, "codes": packed(codes)}
    if pa.types.is_duration(kind):
        shown["is_duration"] = True
    if zone := getattr(kind, "tz", None):
        shown["zone"] = zone
    return shown


# ---- times --------------------------------------------------------------------------------------------------------


def fraction_digits(strings: Sequence[str | None]) -> int:
    """Return the number of digits that the fractions of seconds of all timestamps need: 0, 3, 6 or 9."""
    fractions = {match[2] for text in strings if text is not None and (match := _FRACTION.match(text)) and match[2]}
    n_digits = max((len(fraction.rstrip("0")) for fraction in fractions), default=0)
    return -(-n_digits // 3) * 3


def in_one_format(strings: Sequence[str | None], digits: int) -> list[str | None]:
    """Return timestamps (ISO 8601) with a space for the T, and `digits` digits of a fraction each."""
    formatted = list[str | None]()
    for text in strings:
        match = None if text is None else _FRACTION.match(text)
        if text is None or match is None:
            formatted.append(text)
            continue
        fraction = "." + (match[2] or "").ljust(digits, "0")[:digits] if digits else ""
        formatted.append(match[1].replace("T", " ") + fraction + match[3])
    return formatted


MAX_BETWEEN_OF_ONE = 50
"""Maximum number of rows between the events of one match on the page."""
MAX_BETWEEN = 300_000
"""Maximum number of rows between those of all matches; a row between several counts for each."""


@dataclass(frozen=True)
class RowsBetween:
    """Rows between the events of matches.

    Attributes
    ----------
    max_rows : int
        Maximum number of rows for one match.
    lengths : ndarray of int64, shape (n,)
        Number of rows for each match.
    positions : ndarray of int64
        Rows of all matches, in the order of the stream for each.
    cut : ndarray of bool, shape (n,)
        True for matches that have more rows.
    """

    max_rows: int
    lengths: Int64
    positions: Int64
    cut: Bools

    def first(self, n: int) -> RowsBetween:
        """Return at most `n` rows for each match."""
        ranks = _ranks(self.lengths)
        return RowsBetween(n, np.minimum(self.lengths, n), self.positions[ranks < n], self.cut | (self.lengths > n))

    def select(self, wanted: Bools) -> RowsBetween:
        """Return the rows of the `wanted` matches."""
        mask = np.repeat(wanted, self.lengths)
        return RowsBetween(self.max_rows, self.lengths[wanted], self.positions[mask], self.cut[wanted])


def find_rows_between(query: Query, events: ReportEvents, results: ReportResults, n_pages: int = 1) -> RowsBetween:
    """Return the first rows between the events of each detailed match.

    Only rows of the same partition are returned, or, without PARTITION BY, rows of the types in the query.
    """
    detailed = results.detailed
    assert detailed is not None
    lists = detailed["positions"].combine_chunks()
    matched, lengths = pc.list_flatten(lists).to_numpy(), pc.list_value_length(lists).to_numpy().astype(np.int64)
    max_rows = max(1, min(MAX_BETWEEN_OF_ONE, MAX_BETWEEN // n_pages // len(lengths)))
    starts, ends = detailed["start"].to_numpy(), detailed["end"].to_numpy()
    is_cut = detailed["n_kept"].to_numpy() > lengths  # rows after the last one on the page are unknown
    ends = np.where(is_cut, _lasts(matched, lengths, ends), ends)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    inside = (matched > starts[owners]) & (matched < ends[owners])
    n_inside = np.bincount(owners[inside], minlength=len(lengths))
    capacity = np.where(ends - starts - 1 > n_inside, max_rows + 1 + n_inside, 0)  # one more: is it cut?
    chunks = list(_rows_between(query, events, results, starts, ends, capacity)) if capacity.any() else []
    matches = np.concatenate([np.empty(0, np.int64), *(piece[0] for piece in chunks)])
    positions = np.concatenate([np.empty(0, np.int64), *(piece[1] for piece in chunks)])
    is_matched = np.isin(matches << 44 | positions, owners[inside] << 44 | matched[inside])
    matches, positions = matches[~is_matched], positions[~is_matched]
    order = np.argsort(matches, kind="stable")
    lengths = np.bincount(matches, minlength=len(lengths)).astype(np.int64)
    return RowsBetween(max_rows + 1, lengths, positions[order], np.zeros(len(lengths), np.bool_)).first(max_rows)


def _lasts(values: Int64, lengths: Int64, otherwise: Int64) -> Int64:
    """Return the last value of each list, or that of `otherwise` if the list is empty."""
    stops = np.cumsum(lengths)
    return np.where(lengths > 0, values[np.maximum(stops - 1, 0)] if len(values) else otherwise, otherwise)


def _ranks(lengths: Int64) -> Int64:
    """Return 0, 1, ... for each list of a length, one after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _rows_between(
    query: Query, events: ReportEvents, results: ReportResults, starts: Int64, ends: Int64, capacity: Int64
) -> Iterator[tuple[Int64, Int64]]:
    """Yield matches and rows between their starts and ends, up to the `capacity` of each match."""
    assert results.detailed is not None
    codes = results.detailed["partition"].to_numpy().astype(np.int64)
    n_before = 0
    last = int(ends[capacity > 0].max())
    for here in _codes(query, events, results):
        n = len(here)
        active = np.flatnonzero((starts < n_before + n) & (ends > n_before) & (capacity > 0))
        if len(active):
            order = np.argsort(here, kind="stable")
            places = here[order] * n + order
            low, high = (
                np.searchsorted(places, codes[active] * n + np.clip(edge[active] - n_before, 0, n))
                for edge in (starts + 1, ends)
            )
            n_rows = np.minimum(high - low, capacity[active])
            capacity[active] -= n_rows
            rows = order[np.repeat(low, n_rows) + _ranks(n_rows)]
            yield np.repeat(active, n_rows), rows + n_before
        n_before += n
        if n_before > last:
            return


def _codes(query: Query, events: ReportEvents, results: ReportResults) -> Iterator[Int64]:
    """Yield for each batch the partition of each row, or -1 for rows that are never shown between matches."""
    source = events.open()
    binding = query._bind(source.schema)
    if query.partition_keys:
        for batch in _batches_with(binding, source, binding.keys.columns):
            yield results.partitions.codes_of_keys(binding.keys.arrays(batch, binding.keys.types)).astype(np.int64)
        return
    guards = query._bindings.plan.guards
    types = None if any(guard.event_type is None for guard in guards) else query.types
    column = query.type_column or source.schema.names[0]
    for batch in source.batches([column]):
        if not types:
            yield np.zeros(batch.num_rows, np.int64)
            continue
        named = pc.is_in(plain_values(array_of(batch, column)), pa.array(types, pa.large_string()))
        yield np.where(named.to_numpy(zero_copy_only=False), 0, -1)


_MAX_COLUMNS = 40
"""Maximum number of columns of the rows."""
MAX_ROW_BYTES = 1 << 23
"""Maximum total length of all values of rows."""


def shown_rows(
    query: Query,
    events: ReportEvents,
    results: ReportResults,
    digits: int | None,
    options: EvaluationOptions = USUAL_OPTIONS,
    n_pages: int = 1,
) -> dict[str, Any]:
    """Return the rows of the detailed matches, each with the variables bound to it, and the rows between.

    If the values are too long, there are fewer rows between, and then rows of fewer matches.

    Parameters
    ----------
    digits
        Minimum number of digits of the fractions of seconds in the time column.
    n_pages
        Number of queries that share the space of one file.
    """
    assert results.detailed is not None
    detailed, step = results.detailed, results.detail_step
    binding = query._bind(events.open().schema)
    names, attributes = binding.attribute_schema.names, binding.attributes[:_MAX_COLUMNS]
    others = find_rows_between(query, events, results, n_pages)
    positions = _positions(detailed, others)
    strings, numbers = _cell_strings(events, binding, attributes, positions)
    while size(strings) > MAX_ROW_BYTES // n_pages and (others.max_rows or detailed.num_rows > 1):
        if others.max_rows:
            others = others.first(others.max_rows // 2)
        else:
            step *= 2
            wanted = detailed["number"].to_numpy() % step == 0
            detailed, others = detailed.filter(pa.array(wanted)), others.select(wanted)
        fewer = _positions(detailed, others)
        selected = np.searchsorted(positions, fewer)
        strings, numbers, positions = strings.take(pa.array(selected)), numbers[selected], fewer
    lists = detailed["positions"].combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    variables = variables_of(results.valued, events, detailed, results.max_valuations, options)
    role_codes, roles = _coded_roles(variables, lengths.tolist())
    kinds = [field.type for field in binding.attribute_schema]
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    return {
        "step": step,
        "most": int(lengths.max(initial=0)),
        "ends": packed(np.cumsum(lengths)),
        "references": packed(np.searchsorted(positions, pc.list_flatten(lists).to_numpy())),
        "roles": packed(roles),
        "role_names": role_codes,
        "positions": packed(numbers),
        "columns": [
            coded(name, strings[i], kinds[i], digits if name == query.time_column else None)
            for i, name in enumerate(names[:_MAX_COLUMNS])
        ],
        "n_columns": len(names),
        "most_between": others.max_rows,
        "between_ends": packed(np.cumsum(others.lengths)),
        "between": packed(np.searchsorted(positions, others.positions)),
        "between_cut": packed(others.cut.astype(np.int64)),
        "cuts_between": bool(others.cut.any()),
        "between_of": "partition" if query.partition_keys else "types" if query.types else "",
    }


def _positions(detailed: pa.Table, others: RowsBetween) -> Int64:
    matched = pc.list_flatten(detailed["positions"].combine_chunks()).to_numpy()
    return np.unique(np.concatenate([matched, others.positions]))


def _batches_with(binding: Binding, source: Source, attributes: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the events with some attributes, those of LET included."""
    if binding.let is None or not binding.let.names.intersection(attributes):
        yield from source.batches(list(attributes))
        return
    names = [name for name in dict.fromkeys([*attributes, *binding.let.read]) if name not in binding.let.names]
    let = LetColumns(binding.let, binding.plan)
    yield from map(let.extend, source.batches(names))


def _cell_strings(
    events: ReportEvents, binding: Binding, attributes: Sequence[str], positions: Int64
) -> tuple[pa.Table, Int64]:
    """Return attributes at positions as strings, cut to `MAX_CELL` (NULL stays NULL), and their row numbers."""
    text = pa.large_string()
    schema = pa.schema([(str(i), text) for i in range(len(attributes))])
    pieces, n_before = [], 0
    source, numbers = events.numbered(), positions.copy()
    numbered = [ROW_COLUMN] if ROW_COLUMN in source.schema.names else []
    for batch in _batches_with(binding, source, [*(attributes or source.schema.names[:1]), *numbered]):
        low, high = np.searchsorted(positions, [n_before, n_before + batch.num_rows])
        if low < high:
            rows = pa.array(positions[low:high] - n_before)
            columns = [plain_values(array_of(batch, attribute).take(rows)) for attribute in attributes]
            pieces.append(pa.table([pc.utf8_slice_codeunits(c, 0, MAX_CELL).cast(text) for c in columns], schema))
            if numbered:
                numbers[low:high] = batch.column(ROW_COLUMN).take(rows).to_numpy()
        n_before += batch.num_rows
        if high == len(positions):
            break
    return pa.concat_tables(pieces) if pieces else schema.empty_table(), numbers


def input_rows(events: ReportEvents, positions: Int64) -> Int64:
    """Return the row numbers in the input of positions, which differ from them if the events are reordered."""
    source = events.numbered()
    if ROW_COLUMN not in source.schema.names:
        return positions
    ordered, places = np.unique(positions, return_inverse=True)
    numbers, n_before = np.empty(len(ordered), np.int64), 0
    for batch in source.batches([ROW_COLUMN]):
        low, high = np.searchsorted(ordered, [n_before, n_before + batch.num_rows])
        numbers[low:high] = batch.column(ROW_COLUMN).to_numpy()[ordered[low:high] - n_before]
        n_before += batch.num_rows
        if high == len(ordered):
            break
    return numbers[places]


def _coded_roles(variables: list[list[str]] | None, lengths: Sequence[int]) -> tuple[list[str], Int64]:
    """Return the distinct roles (names of variables), and the index of each row; the first, "", is unknown."""
    codes = {"": 0}
    numbers = []
    for role_codes, n in zip(variables or [[]] * len(lengths), lengths, strict=True):
        numbers += [codes.setdefault(each, len(codes)) for each in role_codes or [""] * n]
    return list(codes), np.array(numbers, np.int64)
