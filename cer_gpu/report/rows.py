"""Rows of complex events on a page: those that they keep, with their variables, and those between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64
from cer_gpu.columnar.fields import array_of
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.io.texts import plain_values
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.query import Query
from cer_gpu.report.between import Between, between
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.found import ReportResults, variables_of
from cer_gpu.report.packing import MAX_CELL, coded, packed, size

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
    """Return the rows of the detailed complex events, each with the variables that hold it, and the rows between.

    There are fewer rows between where their values are too long, and then rows of fewer complex events.

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
    texts, numbers = _texts(events, attributes, positions)
    while size(texts) > MAX_ROW_BYTES // n_pages and (others.most or detailed.num_rows > 1):
        if others.most:
            others = others.first(others.most // 2)
        else:
            step *= 2
            wanted = detailed["number"].to_numpy() % step == 0
            detailed, others = detailed.filter(pa.array(wanted)), others.of(wanted)
        fewer = _positions(detailed, others)
        kept = np.searchsorted(positions, fewer)
        texts, numbers, positions = texts.take(pa.array(kept)), numbers[kept], fewer
    lists = detailed["positions"].combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    variables = variables_of(found.valued, events, detailed, found.n_listed, asked)
    told, roles = _coded_roles(variables, lengths.tolist())
    kinds = [field.type for field in binding.attribute_schema]
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    return {
        "step": step,
        "most": int(lengths.max(initial=0)),
        "ends": packed(np.cumsum(lengths)),
        "references": packed(np.searchsorted(positions, pc.list_flatten(lists).to_numpy())),
        "roles": packed(roles),
        "role_names": told,
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


def _texts(events: ReportEvents, attributes: Sequence[str], positions: Int64) -> tuple[pa.Table, Int64]:
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
    for told, n in zip(variables or [[]] * len(lengths), lengths, strict=True):
        numbers += [codes.setdefault(each, len(codes)) for each in told or [""] * n]
    return list(codes), np.array(numbers, np.int64)
