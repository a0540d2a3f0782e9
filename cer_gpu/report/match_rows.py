"""Rows of matches on a page: those that they keep, with their variables, and those between; columns packed for it."""

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
from cer_gpu.io.value_strings import plain_values
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.query import Query
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.listed_matches import ReportResults, variables_of

MAX_CELL = 120
"""Most characters of one value."""

_FRACTION = re.compile(r"^([^.]*?)(?:\.(\d+))?(Z?)$")


def packed(values: Array) -> dict[str, Any]:
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


def _base64(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def distinct(column: pa.ChunkedArray) -> tuple[list[str | None], Int64, int]:
    """Return the distinct texts of a column, the index of each row's, and the length of all of them."""
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    values = coded.dictionary.to_pylist()
    return values, coded.indices.to_numpy().astype(np.int64), sum(len(value or "") + 3 for value in values)


def size(texts: pa.Table) -> int:
    """Return about how many bytes the columns of a table of texts take on a page."""
    return sum(distinct(column)[2] + 2 * len(column) for column in texts.columns)


def coded(name: str, column: pa.ChunkedArray, kind: pa.DataType, digits: int | None = None) -> dict[str, Any]:
    """Return a column of texts: its name, distinct values and the code of each row's, and if these are numbers.

    Parameters
    ----------
    kind
        Type of the values behind the texts.
    digits
        Least number of digits of the fractions of seconds of timestamps.
    """
    values, codes, _ = distinct(column)
    if pa.types.is_timestamp(kind):
        values = in_one_format(values, max(fraction_digits(values), digits or 0))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return {"name": name[:MAX_CELL], "is_number": is_number, "values": values, "codes": packed(codes)}


# ---- times --------------------------------------------------------------------------------------------------------


def fraction_digits(texts: Sequence[str | None]) -> int:
    """Return the number of digits that the fractions of seconds need in all texts of timestamps: 0, 3, 6 or 9."""
    fractions = {match[2] for text in texts if text is not None and (match := _FRACTION.match(text)) and match[2]}
    most = max((len(fraction.rstrip("0")) for fraction in fractions), default=0)
    return -(-most // 3) * 3


def in_one_format(texts: Sequence[str | None], digits: int) -> list[str | None]:
    """Return texts of timestamps (ISO 8601) with a space for the T, and so many digits of a fraction each."""
    made = list[str | None]()
    for text in texts:
        match = None if text is None else _FRACTION.match(text)
        if text is None or match is None:
            made.append(text)
            continue
        fraction = "." + (match[2] or "").ljust(digits, "0")[:digits] if digits else ""
        made.append(match[1].replace("T", " ") + fraction + match[3])
    return made


MAX_BETWEEN_OF_ONE = 50
"""Most rows between the events of one match on the page."""
MAX_BETWEEN = 300_000
"""Most rows between those of all matches; a row between several counts for each."""


@dataclass(frozen=True)
class Between:
    """Rows between, for each of some matches.

    Attributes
    ----------
    most : int
        Most rows for one match.
    lengths : ndarray of int64, shape (n,)
        Number of rows for each.
    positions : ndarray of int64
        Rows of all, in the order of the stream for each.
    cut : ndarray of bool, shape (n,)
        True for those that have more.
    """

    most: int
    lengths: Int64
    positions: Int64
    cut: Bools

    def first(self, most: int) -> Between:
        """Return at most so many for each."""
        ranks = _ranks(self.lengths)
        return Between(
            most, np.minimum(self.lengths, most), self.positions[ranks < most], self.cut | (self.lengths > most)
        )

    def select(self, wanted: Bools) -> Between:
        """Return those of some of the matches."""
        kept = np.repeat(wanted, self.lengths)
        return Between(self.most, self.lengths[wanted], self.positions[kept], self.cut[wanted])


def between(query: Query, events: ReportEvents, found: ReportResults, n_pages: int = 1) -> Between:
    """Return the rows between the events of the detailed matches, the first of each.

    They are those of the same partition; without PARTITION BY those of the types that the query names.
    """
    detailed = found.detailed
    assert detailed is not None
    lists = detailed["positions"].combine_chunks()
    kept, lengths = pc.list_flatten(lists).to_numpy(), pc.list_value_length(lists).to_numpy().astype(np.int64)
    most = max(1, min(MAX_BETWEEN_OF_ONE, MAX_BETWEEN // n_pages // len(lengths)))
    starts, ends = detailed["start"].to_numpy(), detailed["end"].to_numpy()
    is_cut = detailed["n_kept"].to_numpy() > lengths  # rows after the last that is on the page are unknown
    ends = np.where(is_cut, _lasts(kept, lengths, ends), ends)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    inside = (kept > starts[owners]) & (kept < ends[owners])
    n_inside = np.bincount(owners[inside], minlength=len(lengths))
    room = np.where(ends - starts - 1 > n_inside, most + 1 + n_inside, 0)  # one more tells that there are more
    taken = list(_rows_between(query, events, found, starts, ends, room)) if room.any() else []
    matches = np.concatenate([np.empty(0, np.int64), *(piece[0] for piece in taken)])
    positions = np.concatenate([np.empty(0, np.int64), *(piece[1] for piece in taken)])
    is_kept = np.isin(matches << 44 | positions, owners[inside] << 44 | kept[inside])
    matches, positions = matches[~is_kept], positions[~is_kept]
    order = np.argsort(matches, kind="stable")
    lengths = np.bincount(matches, minlength=len(lengths)).astype(np.int64)
    return Between(most + 1, lengths, positions[order], np.zeros(len(lengths), np.bool_)).first(most)


def _lasts(values: Int64, lengths: Int64, otherwise: Int64) -> Int64:
    """Return the last value of each list, or another where a list is empty."""
    stops = np.cumsum(lengths)
    return np.where(lengths > 0, values[np.maximum(stops - 1, 0)] if len(values) else otherwise, otherwise)


def _ranks(lengths: Int64) -> Int64:
    """Return 0, 1, ... for each list of a length, one after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _rows_between(
    query: Query, events: ReportEvents, found: ReportResults, starts: Int64, ends: Int64, room: Int64
) -> Iterator[tuple[Int64, Int64]]:
    """Yield matches and rows between their starts and ends, as many as there is room for."""
    assert found.detailed is not None
    codes = found.detailed["partition"].to_numpy().astype(np.int64)
    n_before = 0
    last = int(ends[room > 0].max())
    for here in _codes(query, events, found):
        n = len(here)
        active = np.flatnonzero((starts < n_before + n) & (ends > n_before) & (room > 0))
        if len(active):
            order = np.argsort(here, kind="stable")
            places = here[order] * n + order
            low, high = (
                np.searchsorted(places, codes[active] * n + np.clip(edge[active] - n_before, 0, n))
                for edge in (starts + 1, ends)
            )
            taken = np.minimum(high - low, room[active])
            room[active] -= taken
            rows = order[np.repeat(low, taken) + _ranks(taken)]
            yield np.repeat(active, taken), rows + n_before
        n_before += n
        if n_before > last:
            return


def _codes(query: Query, events: ReportEvents, found: ReportResults) -> Iterator[Int64]:
    """Yield for each batch the partition of each row; -1 for rows that are never shown as rows between."""
    source = events.open()
    binding = query._bind(source.schema)
    if query.partition_keys:
        for batch in source.batches([*binding.keys.columns]):
            yield found.partitions.known(binding.keys.arrays(batch, binding.keys.types)).astype(np.int64)
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
"""Most columns of the rows."""
MAX_ROW_BYTES = 1 << 23
"""Most characters of all values of rows together."""


def shown_rows(
    query: Query,
    events: ReportEvents,
    found: ReportResults,
    digits: int | None,
    asked: EvaluationOptions = USUAL_OPTIONS,
    n_pages: int = 1,
) -> dict[str, Any]:
    """Return the rows of the detailed matches, each with the variables that hold it, and the rows between.

    There are fewer rows between where their values are too long, and then rows of fewer matches.

    Parameters
    ----------
    digits
        Least number of digits of the fractions of seconds in the time column.
    n_pages
        Number of queries that share the room of one file.
    """
    assert found.detailed is not None
    detailed, step = found.detailed, found.detail_step
    binding = query._bind(events.open().schema)
    names, attributes = binding.attribute_schema.names, binding.attributes[:_MAX_COLUMNS]
    others = between(query, events, found, n_pages)
    positions = _positions(detailed, others)
    texts, numbers = _cell_strings(events, attributes, positions)
    while size(texts) > MAX_ROW_BYTES // n_pages and (others.most or detailed.num_rows > 1):
        if others.most:
            others = others.first(others.most // 2)
        else:
            step *= 2
            wanted = detailed["number"].to_numpy() % step == 0
            detailed, others = detailed.filter(pa.array(wanted)), others.select(wanted)
        fewer = _positions(detailed, others)
        kept = np.searchsorted(positions, fewer)
        texts, numbers, positions = texts.take(pa.array(kept)), numbers[kept], fewer
    lists = detailed["positions"].combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    variables = variables_of(found.valued, events, detailed, found.n_listed, asked)
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
            coded(name, texts[i], kinds[i], digits if name == query.time_column else None)
            for i, name in enumerate(names[:_MAX_COLUMNS])
        ],
        "n_columns": len(names),
        "most_between": others.most,
        "between_ends": packed(np.cumsum(others.lengths)),
        "between": packed(np.searchsorted(positions, others.positions)),
        "between_cut": packed(others.cut.astype(np.int64)),
        "cuts_between": bool(others.cut.any()),
        "between_of": "partition" if query.partition_keys else "types" if query.types else "",
    }


def _positions(detailed: pa.Table, others: Between) -> Int64:
    kept = pc.list_flatten(detailed["positions"].combine_chunks()).to_numpy()
    return np.unique(np.concatenate([kept, others.positions]))


def _cell_strings(events: ReportEvents, attributes: Sequence[str], positions: Int64) -> tuple[pa.Table, Int64]:
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
            columns = [plain_values(array_of(batch, attribute).take(rows)) for attribute in attributes]
            pieces.append(pa.table([pc.utf8_slice_codeunits(c, 0, MAX_CELL).cast(text) for c in columns], schema))
            if numbered:
                numbers[low:high] = batch.column(ROW_COLUMN).take(rows).to_numpy()
        n_before += batch.num_rows
        if high == len(positions):
            break
    return pa.concat_tables(pieces) if pieces else schema.empty_table(), numbers


def _coded_roles(variables: list[list[str]] | None, lengths: Sequence[int]) -> tuple[list[str], Int64]:
    """Return the distinct roles (texts of variables), and the index of each row's; the first, "", is for unknown."""
    codes = {"": 0}
    numbers = []
    for role_codes, n in zip(variables or [[]] * len(lengths), lengths, strict=True):
        numbers += [codes.setdefault(each, len(codes)) for each in role_codes or [""] * n]
    return list(codes), np.array(numbers, np.int64)
