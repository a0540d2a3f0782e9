"""HTML page of a report: text, style, script and content in one file."""

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

from cer_gpu.engine.evaluation_options import EvaluationOptions, Sort, options_by_name
from cer_gpu.errors import OptionError
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.io.sinks import naming, result_file
from cer_gpu.printable import html_text
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet
from cer_gpu.report.content import content
from cer_gpu.report.counted import count_for_report, n_pages, too_many
from cer_gpu.report.events import ReportEvents, paths, title_of

SCRIPTS = ("dom", "axis", "held", "search", "charts", "timeline", "list", "export", "rows", "page")
"""Files of the page's script, in the order in which they follow one another."""


@dataclass(frozen=True)
class ReportSummary:
    """Summary of a report.

    Attributes
    ----------
    n_events : int
        Events that were read.
    n_matches : int or None
        Number of matches, or None if more than int64 holds end at one event.
    n_bytes : int
        The size of the page.
    notes : tuple of str
        Remarks on the query and on the events, which the page shows too; of several queries after their names.
    of : dict from str to (int or None)
        Matches of each query of several.
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
    """Write the matches of a query, or of each of several, as one HTML page, which needs nothing else.

    It shows the query, the matches on a line of time (of positions without a time column), their number over
    time, the partitions that have most of them, their durations, a list to sort, search and export, and the rows of
    the one that the reader selects.

    Parameters
    ----------
    query
    events
        Anything that `cer_gpu.Query.evaluate` takes.  They are read several times: for the matches, for their
        valuations, and for their rows and those between; events that can be read only once, such as a
        RecordBatchReader, are kept in memory.
    path
        Path of the page, which appears whole or not at all.
    title
        Heading of the page; by default (None) the name of the query's file, or its first words, and the name of that of
        the events.
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
        Called with a line that tells how many matches there are, before any is listed, if only some will be.

    Returns
    -------
    ReportSummary

    Raises
    ------
    CerError
        As `cer_gpu.Query.evaluate`, and for a path that cannot be that of a file.
    OSError
        When the file cannot be written.

    Notes
    -----
    The page is bounded, however much is found: 200,000 matches, spread evenly over all, 100,000 rows of
    matches, up to 200 of one, 300,000 rows between, up to 50 of one, 40 columns, values of 120 characters, and 8 MB of
    them, and 8 MB of measures; several queries share this room.
    If there are more than 2,000,000 matches, and they can be counted without listing them, some of each end are
    listed.  The page says what was left out.

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
    asked = EvaluationOptions(threads=threads, max_memory=max_memory)
    sources = paths(events) if events_from is None else [*events_from]
    texts = {name: each.text for name, each in queries.items()}
    about = {"queries" if len(inputs) > 1 else "query": [*inputs], "events": sources}
    with result_file(path, [*paths(events), *inputs]) as file:
        rereadable = ReportEvents(next(iter(queries.values())), events, sort=sort)
        counted = count_for_report(queries, rereadable, asked)
        line = too_many(counted, len(queries))
        if on_message is not None and line is not None:
            on_message(line)
        pages = {
            name: content(each, rereadable, counted.get(name), asked=asked, n_pages=n_pages(queries, counted))
            for name, each in queries.items()
        }
        held = [{"name": name, **page} for name, page in pages.items()]
        heading = title_of(texts, inputs, sources) if title is None else title
        written = render(held, heading, about).encode("utf-8", "replace")  # a title may be a file name that is not text
        with naming(os.fspath(path)):
            file.write(written)
    of = {name: page["n_matches"] for name, page in pages.items()}
    notes = [f"{name}: {note}" if name else note for name, page in pages.items() for note in page["notes"]]
    n_events = max(page["n_events"] for page in pages.values())
    n_matches = None if None in of.values() else sum(of.values())
    return ReportSummary(n_events, n_matches, len(written), tuple(notes), of)


def queries_of(query: CompiledQuery | QuerySet) -> dict[str, Query]:
    """Return the queries of a report by their names; OptionError: one is none of CEQL."""
    given = query if isinstance(query, QuerySet) else {"": query}
    queries = {name: each for name, each in given.items() if isinstance(each, Query)}
    if len(queries) < len(given):
        raise OptionError("a report shows matches of CEQL queries, not rows of MATCH_RECOGNIZE")
    return queries


def render(held: list[dict[str, Any]], title: str, about: Mapping[str, Sequence[str]]) -> str:
    """Return the page that shows contents (`cer_gpu.report.content`), one of them at a time.

    Parameters
    ----------
    about
        Paths of the queries and of the events, which the page shows as a detail.

    Its content security policy allows nothing but its own style and script, by their digests; the content is JSON
    without ``<``, so that no text in it can end the element around it.
    """
    style, script = resource("page.css"), "".join(resource(f"{name}.js") for name in SCRIPTS)
    return Template(resource("page.html")).substitute(
        title=html_text(title),
        style=style,
        script=script,
        style_digest=digest(style),
        script_digest=digest(script),
        held=json.dumps({"about": about, "pages": held}, separators=(",", ":")).replace("<", "\\u003c"),
    )


def resource(name: str) -> str:
    """Return the text of a file of the report."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return the digest by which a content security policy allows a style or a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
