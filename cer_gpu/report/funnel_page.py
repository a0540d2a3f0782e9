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
from cer_gpu.printable import html_text, plural
from cer_gpu.query_set import QuerySet
from cer_gpu.report.events import ReportEvents, paths, title_of
from cer_gpu.report.funnel_keys import FurthestStarts
from cer_gpu.report.page import ReportSummary, digest, head, queries_of, resource

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

    The events are read once.  With PARTITION BY, a key counts once, by its start that gets furthest; a switch on the
    page counts all starts.

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
    of_keys = {name: FurthestStarts(each) for name, each in queries.items() if each.partition_keys}
    together = QuerySet(queries)
    with result_file(path, [*paths(events), *inputs]) as file:
        evaluator = together._fixed_evaluator(EvaluationOptions(output="funnel", max_memory=max_memory))
        source = ReportEvents(next(iter(queries.values())), events, sort=sort).open()
        for name, batch in together._match_source(source, evaluator, threads):
            counts[name].take(batch)
            if name in of_keys:
                of_keys[name].take(batch)
        texts = {name: each.text for name, each in queries.items()}
        heading = title_of(texts, inputs, sources) if title is None else title
        n_events: int = evaluator.n_events
        written = render_funnel(counts, of_keys, texts, heading, n_events).encode("utf-8", "replace")
        with naming(os.fspath(path)):
            file.write(written)
    notes = [f"{name}: {note}" if name else note for name, own in evaluator.notes.items() for note in own]
    of = {name: each.n_starts for name, each in counts.items()}
    return ReportSummary(n_events, sum(of.values()), len(written), tuple(notes), dict(of))


def render_funnel(
    counts: Mapping[str, FunnelCounts],
    of_keys: Mapping[str, FurthestStarts],
    texts: Mapping[str, str],
    title: str,
    n_events: int,
) -> str:
    """Return the page with the funnels of queries, by their names: of starts, and of keys if they have some."""
    style = resource("page.css") + resource("funnel.css")
    n_starts = sum(each.n_starts for each in counts.values())
    facts = (("events", n_events), ("starts", n_starts))
    nouns = {name: _noun(each.keys) for name, each in of_keys.items()}
    noun = next(iter(nouns.values())) if len({*nouns.values()}) == 1 else "keys"
    return Template(resource("funnel.html")).substitute(
        head=head(title),
        title=html_text(title),
        style=style,
        style_digest=digest(style),
        facts="".join(f"<div><dt>{name}</dt><dd>{n:,}</dd></div>" for name, n in facts),
        switch=_SWITCH.format(html_text(noun)) if of_keys else "",
        sections="\n".join(
            _section(name, texts[name], each, of_keys.get(name), nouns.get(name, "")) for name, each in counts.items()
        ),
    )


_SWITCH = """<p class="switch">Count
<label><input type="radio" name="count" id="keys" checked>{}</label>
<label><input type="radio" name="count" id="starts">all starts</label>
</p>"""


def _noun(keys: Sequence[str]) -> str:
    """Return the noun for keys, of one column or more: "users", "pairs of user and day"."""
    if len(keys) == 1:
        return plural(keys[0])
    return f"{'combinations' if len(keys) > 2 else 'pairs'} of {', '.join(keys[:-1])} and {keys[-1]}"


def _section(name: str, text: str, counts: FunnelCounts, of_keys: FurthestStarts | None, noun: str) -> str:
    tables = _table(counts, "starts", "of-starts" if of_keys else "")
    if of_keys is not None:
        tables = _table(of_keys.counts(), noun, "of-keys") + "\n" + tables
    return f"<section>\n<h2>{html_text(name or 'Funnel')}</h2>\n<pre>{html_text(text)}</pre>\n{tables}\n</section>"


def _table(counts: FunnelCounts, noun: str, kind: str) -> str:
    heads = ("step", "", noun, "of previous step", "of first", "median from start", *STOPS)
    head = "".join(f'<th scope="col">{html_text(each)}</th>' for each in heads)
    rows = "\n".join(_row(k, row, counts) for k, row in enumerate(counts.rows, 1))
    return (
        f'<div class="scroll {kind}"><table class="funnel">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n'
        "</tbody>\n</table></div>"
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
