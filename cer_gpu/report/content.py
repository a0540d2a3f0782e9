"""Content of a report as one object that JSON can hold: numbers are packed, texts are cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from cer_gpu.arrays import Int64
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql.paths import dotted
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.query import Query
from cer_gpu.report.axis import axis_of
from cer_gpu.report.counted import Counted, number_in_words
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.found import ReportResults, find_for_report
from cer_gpu.report.measured import shown_measures
from cer_gpu.report.packing import packed
from cer_gpu.report.rows import shown_rows


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
        Counts of its complex events, where there are some.
    n_pages
        Number of queries that share the room of one file.
    """
    found = find_for_report(query, events, asked, counted, n_pages)
    is_whole = found.n_listed == found.n_matches
    held: dict[str, Any] = {
        "query": query.text,
        "strategies": [*STRATEGIES],
        "words": _words(query),
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


def _words(query: Query) -> list[str]:
    """Return a query in plain words; no lines if it is nested too deeply."""
    try:
        return query.explain().words
    except QueryTooLargeError:
        return []


def _partitions(found: ReportResults) -> tuple[list[int], Int64]:
    """Return the codes of the drawn partitions, most frequent first, and the place in them of each complex event's."""
    assert found.drawn is not None
    codes, labels = found.drawn["partition"].to_numpy(), found.partitions.labels
    if not labels:
        return [], codes
    used = sorted(np.unique(codes).tolist(), key=lambda code: (-found.counts[code], labels[code]))
    places = np.zeros(len(labels), np.int64)
    places[used] = np.arange(len(used))
    return used, places[codes]
