"""Measures of complex events on a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.io.texts import plain_values
from cer_gpu.query import Query
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.found import ReportResults
from cer_gpu.report.packing import MAX_CELL, coded, distinct

MAX_MEASURED = 1000
"""Most rows of measures, where these are not those of the complex events."""
MAX_MEASURED_BYTES = 1 << 23
"""Most characters of the measures of complex events."""


def shown_measures(
    query: Query, events: ReportEvents, found: ReportResults, asked: EvaluationOptions = USUAL_OPTIONS, n_pages: int = 1
) -> dict[str, Any]:
    """Return the measures of a query: a value for each complex event that is drawn, or the first rows of all.

    There is a row of measures for each valuation.  If each complex event has one only, the content has ``columns``
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
    columns = [_texts(column).to_pylist() for column in table.columns]
    return {
        "names": [name[:MAX_CELL] for name in table.column_names],
        "rows": list(map(list, zip(*columns, strict=True))),
        "n_rows": n_rows if is_whole else None,
    }


def _of_each(each: pa.Table, names: list[str], most_bytes: int) -> dict[str, Any]:
    columns = []
    for name in names:
        texts = _texts(each[name])
        most_bytes -= distinct(texts)[2] + 2 * len(texts)
        if most_bytes < 0:
            break
        columns.append(coded(name, texts, each.schema.field(name).type))
    return {"columns": columns, "n_columns": len(names)}


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pc.utf8_slice_codeunits(plain_values(column.combine_chunks()), 0, MAX_CELL)])
