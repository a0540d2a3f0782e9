"""The output "funnel" as one HTML page without scripts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from cer_gpu.engine.evaluation_options import EvaluationOptions, Sort, options_by_name
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.io.sinks import naming, result_file
from cer_gpu.output.funnel_counts import STOPS, FunnelCounts, FunnelRow
from cer_gpu.planning.outputs import funnel_names
from cer_gpu.printable import html_text
from cer_gpu.query_set import QuerySet
from cer_gpu.report.events import ReportEvents, paths, title_of
from cer_gpu.report.page import ReportSummary, digest, queries_of, resource

_WIDTH = 1000
"""Width of the bar of all starts in its own units."""


@options_by_name
def write_funnel(
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
) -> ReportSummary:
    """Write the funnel of a query, or of each of several, as one HTML page; the arguments are those of `write_report`.

    The events are read once.

    Returns
    -------
    ReportSummary
        The numbers are those of the starts.

    Raises
    ------
    CerError
        As `cer_gpu.Query.evaluate` with output "funnel", and for a path that cannot be written.
    OSError
        When the file cannot be written.
    """
    queries = queries_of(query)
    sources = paths(events) if events_from is None else [*events_from]
    counts = {name: FunnelCounts(funnel_names(each._plan), each._plan.time_unit) for name, each in queries.items()}
    together = QuerySet(queries)
    with result_file(path, [*paths(events), *inputs]) as file:
        evaluator = together._fixed_evaluator(EvaluationOptions(output="funnel", max_memory=max_memory))
        source = ReportEvents(next(iter(queries.values())), events, sort=sort).open()
        for name, batch in together._match_source(source, evaluator, threads):
            counts[name].take(batch)
        texts = {name: each.text for name, each in queries.items()}
        heading = title_of(texts, inputs, sources) if title is None else title
        n_events: int = evaluator.n_events
        written = render_funnel(counts, texts, heading, n_events).encode("utf-8", "replace")
        with naming(os.fspath(path)):
            file.write(written)
    notes = [f"{name}: {note}" if name else note for name, own in evaluator.notes.items() for note in own]
    of = {name: each.n_starts for name, each in counts.items()}
    return ReportSummary(n_events, sum(of.values()), len(written), tuple(notes), dict(of))


def render_funnel(counts: Mapping[str, FunnelCounts], texts: Mapping[str, str], title: str, n_events: int) -> str:
    """Return the page with the funnels of queries, by their names and texts."""
    style = resource("page.css") + resource("funnel.css")
    n_starts = sum(each.n_starts for each in counts.values())
    facts = (("events", n_events), ("starts", n_starts))
    return Template(resource("funnel.html")).substitute(
        title=html_text(title),
        style=style,
        style_digest=digest(style),
        facts="".join(f"<div><dt>{name}</dt><dd>{n:,}</dd></div>" for name, n in facts),
        sections="\n".join(_section(name, texts[name], each) for name, each in counts.items()),
    )


def _section(name: str, text: str, counts: FunnelCounts) -> str:
    heads = ("step", "", "starts", "of previous step", "of first", "median from start", *STOPS)
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    rows = "\n".join(_row(k, row, counts) for k, row in enumerate(counts.rows, 1))
    return (
        f"<section>\n<h2>{html_text(name or 'Funnel')}</h2>\n<pre>{html_text(text)}</pre>\n"
        f'<div class="scroll"><table class="funnel">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n'
        "</tbody>\n</table></div>\n</section>"
    )


def _row(k: int, row: FunnelRow, counts: FunnelCounts) -> str:
    share = 1.0 if k == 1 and row.n_reached else row.of_first or 0.0
    bar = (
        f'<svg viewBox="0 0 {_WIDTH} 20" preserveAspectRatio="none" role="img" aria-label="{share:.1%}">'
        f'<rect class="all" width="{_WIDTH}" height="20" rx="3"/>'
        f'<rect class="on" width="{_WIDTH * share:.1f}" height="20" rx="3"/></svg>'
    )
    numbers = [
        f"{row.n_reached:,}",
        *("" if each is None else f"{each:.1%}" for each in (row.of_previous, row.of_first)),
    ]
    numbers.append(counts.median_in_words(row.median))
    numbers += [f"{row.stopped[stop]:,}" if row.stopped[stop] else "" for stop in STOPS]
    cells = "".join(f'<td class="number">{each}</td>' for each in numbers)
    return f'<tr><td>{k}. {html_text(row.name)}</td><td class="drawn">{bar}</td>{cells}</tr>'
