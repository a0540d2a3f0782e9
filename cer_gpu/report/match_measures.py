"""Measures of the matches on a page: those of the first valuation of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.io.value_strings import plain_values
from cer_gpu.query import Query
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.listed_matches import ReportResults, fingerprints, has_bindings
from cer_gpu.report.match_rows import MAX_CELL, coded, distinct

MAX_MEASURED_BYTES = 1 << 23
"""Maximum total length of the measures of matches."""


def shown_measures(
    query: Query,
    events: ReportEvents,
    results: ReportResults,
    options: EvaluationOptions = USUAL_OPTIONS,
    n_pages: int = 1,
) -> dict[str, Any]:
    """Return the measures of each drawn match, as many columns as fit on the page.

    There is a row of measures for each valuation.  If a match has several, ``several`` is True, and it has the measures
    of the first.  There are no columns if the valuations cannot be assigned to matches.
    """
    names = [output.name for output in query._bindings.plan.measures.measures]
    assert results.drawn is not None
    each = _of_only_valuations(query, events, results, options) if results.is_whole else None
    several = each is None
    if each is None and has_bindings(query, events):
        each = _of_first_valuations(query, events, results, options)
    columns: list[dict[str, Any]] = []
    max_bytes = MAX_MEASURED_BYTES // n_pages
    if each is None:
        return {"columns": columns, "n_columns": len(names), "several": several}
    for name in names:
        strings = _cut_strings(each[name])
        max_bytes -= distinct(strings)[2] + 2 * len(strings)
        if max_bytes < 0:
            break
        columns.append(coded(name, strings, each.schema.field(name).type))
    return {"columns": columns, "n_columns": len(names), "several": several}


def _of_only_valuations(
    query: Query, events: ReportEvents, results: ReportResults, options: EvaluationOptions
) -> pa.Table | None:
    """Return the rows of measures of the drawn matches, or None if a match has several valuations."""
    drawn, sampled, n_rows = results.drawn, list[pa.RecordBatch](), 0
    assert drawn is not None
    for batch in _measured_batches(query, events, "measures", options):
        wanted = np.flatnonzero(np.arange(n_rows, n_rows + batch.num_rows) % results.step == 0)
        sampled.append(batch.take(pa.array(wanted)))
        n_rows += batch.num_rows
        if n_rows > results.n_listed:
            return None
    if n_rows < results.n_listed:
        return None
    each = pa.Table.from_batches(sampled)
    same = all(each[name].equals(drawn[name].cast(each[name].type)) for name in ("start", "end"))
    return each if same else None


def _of_first_valuations(
    query: Query, events: ReportEvents, results: ReportResults, options: EvaluationOptions
) -> pa.Table:
    """Return the row of measures of the first valuation of each drawn match; NULL for those that are not reached."""
    assert results.drawn is not None
    prints, evaluated = results.drawn["fingerprint"].to_numpy(), query
    numbers = np.full(len(prints), -1)
    for evaluated in (query, results.valued) if results.is_whole else (results.valued,):
        numbers = _first_valuations(evaluated, events, prints, results.max_valuations, options)
        if (numbers >= 0).all():  # LIMIT and ANY of the query may choose among the valuations of one match
            break
    order = np.argsort(numbers, kind="stable")
    order = order[numbers[order] >= 0]
    wanted, pieces, n_rows = numbers[order], list[pa.RecordBatch](), 0
    schema = evaluated.output_schema(events.open().schema, "measures")
    for batch in _measured_batches(evaluated, events, "measures", options):
        low, high = np.searchsorted(wanted, [n_rows, n_rows + batch.num_rows])
        pieces.append(batch.take(pa.array(wanted[low:high] - n_rows)))
        n_rows += batch.num_rows
        if high == len(wanted):
            break
    places = np.full(len(numbers), -1)
    places[order] = np.arange(len(order))
    return pa.Table.from_batches(pieces, schema).take(pa.array(places, mask=places < 0))


def _first_valuations(
    query: Query, events: ReportEvents, prints: Any, max_valuations: int, options: EvaluationOptions
) -> Int64:
    """Return the number of the first valuation of each match, given by its fingerprint, or -1."""
    order = np.argsort(prints)
    ordered, first, n_rows = prints[order], np.full(len(prints), -1), 0
    for batch in _measured_batches(query, events, "bindings", options):
        own = fingerprints(batch)
        places = np.minimum(np.searchsorted(ordered, own), len(ordered) - 1)
        hits = np.flatnonzero(ordered[places] == own)[::-1]  # the first of a match is assigned last
        new = order[places[hits]]
        is_new = first[new] < 0
        first[new[is_new]] = hits[is_new] + n_rows
        n_rows += batch.num_rows
        if n_rows > max_valuations:
            break
    return first


def _measured_batches(
    query: Query, events: ReportEvents, output: str, options: EvaluationOptions
) -> Iterator[pa.RecordBatch]:
    evaluator = query._checked_evaluator(replace(options, output=output))
    return query._match_source(events.open(), evaluator, options.threads)


def _cut_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pc.utf8_slice_codeunits(plain_values(column.combine_chunks()), 0, MAX_CELL)])
