"""HTML page of a report: text, style, script and content in one file.

The content is one JSON object: axis, measures, matches; numbers are packed, strings truncated.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int64
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.clocks import UNITS_PER_SECOND
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions, Sort, options_by_name
from cer_gpu.errors import OptionError, QueryTooLargeError
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.io.sinks import naming, result_file
from cer_gpu.printable import html_text
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet
from cer_gpu.report.counted import Counted, count_for_report, n_pages, number_in_words, too_many
from cer_gpu.report.events import ReportEvents, paths, title_of
from cer_gpu.report.funnel_keys import build_on_each_other
from cer_gpu.report.listed_matches import ReportResults, find_for_report
from cer_gpu.report.match_measures import shown_measures
from cer_gpu.report.match_rows import input_rows, packed, shown_rows

DAYS = -1
"""Value of ``digits`` for an axis of dates, which have no time of day."""


def axis_of(query: Query, drawn: pa.Table) -> tuple[dict[str, Any], Array, Array]:
    """Return the axis, and the starts and ends of matches on it, counted from its origin.

    Timestamps and durations are in milliseconds.  The origin is a string, as it may exceed the integers of JavaScript.
    ``digits`` is the number of digits of fractions of seconds that the timestamps need, or `DAYS`; ``zone`` is that of
    the column, whose timestamps are shown in UTC.
    """
    if query.time_column is None:
        return _axis("position"), *(drawn[name].to_numpy() for name in ("start", "end"))
    kind = drawn.schema.field("start_time").type
    times = [_integers(drawn[name].combine_chunks()) for name in ("start_time", "end_time")]
    low = int(times[0].min())
    named = {"column": query.time_column}
    if pa.types.is_integer(kind):
        # the difference of any two 64-bit integers fits in an unsigned one, even if it wraps around
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
    """Return the number of digits that the fractions of seconds of times need: 0, 3, 6 or 9."""
    digits = 0
    while 10**digits < per_second and any((values % (per_second // 10**digits)).any() for values in times):
        digits += 3
    return digits


def _integers(values: pa.Array) -> Array:
    """Return times as 64-bit integers."""
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
    options: EvaluationOptions = USUAL_OPTIONS,
    n_pages: int = 1,
    max_valuations: int | None = None,
) -> dict[str, Any]:
    """Evaluate a query and return the content of its page.

    Parameters
    ----------
    counted
        Counts of its matches, or None.
    n_pages
        Number of queries that share the space of one file.
    max_valuations
        Maximum number of valuations that are read for the roles of rows and for measures, in addition to eight for each
        match; None for the usual number.
    """
    results = find_for_report(query, events, options, counted, n_pages, max_valuations)
    page: dict[str, Any] = {
        "query": query.text,
        "strategies": [*STRATEGIES],
        "words": _query_words(query),
        "notes": [*query.notes, *results.notes],
        "n_events": results.n_events,
        "n_matches": results.n_matches,
        "found": number_in_words(results.n_matches),
        "n_listed": results.n_listed,
        "most_at_an_end": 0 if results.is_whole or counted is None else counted.max_per_end,
        "step": results.step,
        "keys": [dotted(names[0]) for names in query.partition_keys],
        "n_partitions": len(results.partitions.labels),
    }
    if results.drawn is None or results.detailed is None:
        return page
    if query.default_output == "measures":
        page["measures"] = shown_measures(query, events, results, options, n_pages)
    axis, starts, ends = axis_of(query, results.drawn)
    used, codes = _partitions(results)
    first, last = (input_rows(events, results.drawn[name].to_numpy()) for name in ("start", "end"))
    matches = {
        "from": packed(starts),
        "length": packed(ends - starts),
        "start": packed(first),
        "span": packed(last - first),
        "n": packed(results.drawn["n_kept"].to_numpy()),
        "partition": packed(codes),
    }
    if not results.is_whole:
        matches["stands_for"] = packed(results.drawn["stands_for"].to_numpy())
    return page | {
        "axis": axis,
        "labels": [results.partitions.labels[code] for code in used],
        "key_values": [results.partitions.values[code] for code in used] if len(query.partition_keys) > 1 else [],
        "counts": packed(np.array([results.counts[code] for code in used], np.float64)),
        "matches": matches,
        "rows": shown_rows(query, events, results, axis.get("digits"), options, n_pages),
    }


def _query_words(query: Query) -> list[str]:
    """Return the lines of a query in plain words, or [] if it is nested too deeply."""
    try:
        return query.explain().words
    except QueryTooLargeError:
        return []


def _partitions(results: ReportResults) -> tuple[list[int], Int64]:
    """Return the codes of the drawn partitions, most frequent first, and the index of each match in them."""
    assert results.drawn is not None
    codes, labels = results.drawn["partition"].to_numpy(), results.partitions.labels
    if not labels:
        return [], codes
    used = sorted(np.unique(codes).tolist(), key=lambda code: (-results.counts[code], labels[code]))
    places = np.zeros(len(labels), np.int64)
    places[used] = np.arange(len(used))
    return used, places[codes]


SCRIPTS_OF_MATCHES = (
    "dom",
    "zone",
    "axis",
    "held",
    "search",
    "charts",
    "timeline",
    "list",
    "groups",
    "export",
    "rows",
    "matches",
)
"""Files of the script that shows the matches of a query, in the order in which they are concatenated."""
SCRIPTS = (*SCRIPTS_OF_MATCHES, "page")
"""Files of the page's script, in the same order."""


@dataclass(frozen=True)
class ReportSummary:
    """Summary of a report.

    Attributes
    ----------
    n_events : int
        Events that were read.
    n_matches : int or None
        Number of matches, or None if the number of one end exceeds int64.
    n_bytes : int
        The size of the page.
    notes : tuple of str
        Remarks on the query and on the events, which the page shows too; prefixed by the names of several queries.
    of : dict from str to (int or None)
        Number of matches of each query, if there are several.
    """

    n_events: int
    n_matches: int | None
    n_bytes: int
    notes: tuple[str, ...] = ()
    of: dict[str, int | None] = field(default_factory=dict)


@options_by_name
def write_report(
    query: CompiledQuery | QuerySet,
    events: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    sort: Sort = False,
    threads: int | None = None,
    max_memory: str | int | None = None,
    inputs: Sequence[str] = (),
    events_from: Sequence[str] | None = None,
    on_message: Callable[[str], None] | None = None,
) -> ReportSummary:
    """Write the matches of a query, or of each of several, as one self-contained HTML page.

    It shows the query, the matches on a time axis (of positions if there is no time column), their number over time,
    the partitions with the most matches, their durations, a list to sort, search and export, and the rows of the
    selected match.

    Parameters
    ----------
    query
    events
        Anything that `cer_gpu.Query.evaluate` takes.  They are read several times: for the matches, for their
        valuations, and for their rows and those between; events that can be read only once, such as a
        RecordBatchReader, are loaded into memory.
    path
        Path of the page, which is written atomically.
    title
        Heading of the page; by default (None) the name of the query's file, or its first words, and the name of the
        events' file.
    sort
        Sort the events by the time column first.
    threads
        Number of threads that evaluate; by default (None) as many as help.
    max_memory
        As that of `cer_gpu.Query.evaluate`.
    inputs
        Files and folders of the queries, which must not be overwritten.
    events_from
        Files and folders of the events, "-" for standard input, which the page names; by default (None) those among
        `events`.
    on_message
        Called with a line on the number of matches, before any is listed, if not all will be.

    Returns
    -------
    ReportSummary

    Raises
    ------
    CerError
        As `cer_gpu.Query.evaluate`, and for a path that cannot be written.
    OSError
        When the file cannot be written.

    Notes
    -----
    The size of the page is bounded: 200,000 matches, spread evenly over all, 100,000 rows of matches, up to 200 of one,
    300,000 rows between, up to 50 of one, 40 columns, values of 120 characters, and 8 MB of them, and 8 MB of measures;
    several queries share this space.
    If there are more than 2,000,000 matches, and they can be counted without listing them, some of each end are
    listed.  The page states what was omitted.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa, tempfile
    >>> from cer_gpu.report import write_report
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = write_report(query, pa.table({"type": ["A", "A", "B"]}), f"{folder}/report.html")
    >>> report.n_matches
    2
    """
    queries = queries_of(query)
    options = EvaluationOptions(threads=threads, max_memory=max_memory)
    sources = paths(events) if events_from is None else [*events_from]
    texts = {name: each.text for name, each in queries.items()}
    about = {"queries" if len(inputs) > 1 else "query": [*inputs], "events": sources}
    with result_file(path, [*paths(events), *inputs]) as file:
        rereadable = ReportEvents(next(iter(queries.values())), events, sort=sort)
        counted = count_for_report(queries, rereadable, options)
        line = too_many(counted, len(queries))
        if on_message is not None and line is not None:
            on_message(line)
        pages = {
            name: content(each, rereadable, counted.get(name), options=options, n_pages=n_pages(queries, counted))
            for name, each in queries.items()
        }
        contents = [{"name": name, **page} for name, page in pages.items()]
        heading = title_of(texts, inputs, sources) if title is None else title
        written = render(contents, heading, about, counts_keys=build_on_each_other(queries)).encode(
            "utf-8", "replace"
        )  # a title may be a file name that is not text
        with naming(os.fspath(path)):
            file.write(written)
    of = {name: page["n_matches"] for name, page in pages.items()}
    notes = [f"{name}: {note}" if name else note for name, page in pages.items() for note in page["notes"]]
    n_events = max(page["n_events"] for page in pages.values())
    n_matches = None if None in of.values() else sum(of.values())
    return ReportSummary(n_events, n_matches, len(written), tuple(notes), of)


def queries_of(query: CompiledQuery | QuerySet) -> dict[str, Query]:
    """Return the queries of a report by name; raises OptionError if one is not in CEQL."""
    named = query if isinstance(query, QuerySet) else {"": query}
    queries = {name: each for name, each in named.items() if isinstance(each, Query)}
    if len(queries) < len(named):
        raise OptionError("a report shows matches of CEQL queries, not rows of MATCH_RECOGNIZE")
    return queries


def render(
    contents: list[dict[str, Any]], title: str, about: Mapping[str, Sequence[str]], *, counts_keys: bool = False
) -> str:
    """Return the page that shows contents, one of them at a time.

    Parameters
    ----------
    about
        Paths of the queries and of the events, which the page shows as a detail.
    counts_keys
        Compare queries by the keys that have a match, until the reader switches to matches.

    Its content security policy allows only its own style and script, by their digests; the content is JSON without
    ``<``, so that no text in it can end the element around it.
    """
    shown = {"about": about, "counts_keys": counts_keys, "pages": contents}
    style, script = resource("page.css"), script_of("document", SCRIPTS)
    return Template(resource("page.html")).substitute(
        head=head(title),
        title=html_text(title),
        style=style,
        script=script,
        matches=resource("matches.html"),
        style_digest=digest(style),
        script_digest=digest(script),
        held=json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c"),
    )


def script_of(root: str, names: Sequence[str]) -> str:
    """Return the script of files of the report, over the elements of the document or shadow root of a name."""
    return f'"use strict";\nconst root = {root};\n' + "".join(resource(f"{name}.js") for name in names)


def resource(name: str) -> str:
    """Return the text of a file of the report."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def head(title: str) -> str:
    """Return how the documents of all pages begin, up to their title."""
    return Template(resource("head.html")).substitute(title=html_text(title))


def digest(text: str) -> str:
    """Return the digest by which a content security policy allows a style or a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
