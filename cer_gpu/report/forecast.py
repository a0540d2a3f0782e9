"""A forecast as one HTML page without scripts: its calibration, and what is most likely to complete."""

from __future__ import annotations

import os
from collections.abc import Sequence
from string import Template
from typing import Any

import pyarrow as pa

from cer_gpu.engine.evaluation_options import Sort, options_by_name
from cer_gpu.forecast.model import Forecast
from cer_gpu.forecast.scoring import Score
from cer_gpu.io.sinks import naming, result_file
from cer_gpu.printable import html_text
from cer_gpu.report.events import paths, rereadable, title_of
from cer_gpu.report.page import ReportSummary, digest, head, resource

_WIDTH = 1000
"""Width of a drawing in its own units."""
_LIKELY = 10
"""Number of partial matches shown."""
_SCORES = ("within", "cases", "ended", "base_rate", "log_loss", "log_loss_base", "brier", "brier_base", "auc")


@options_by_name
def write_forecast(
    model: Forecast,
    events: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    sort: Sort = False,
    inputs: Sequence[str] = (),
    events_from: Sequence[str] | None = None,
) -> ReportSummary:
    """Write a forecast for events as one self-contained HTML page.

    It shows the scores and the calibration of the forecasts after each event, and the ten current partial matches that
    are most likely to complete; for a query that is not a chain of steps, the ten substreams.

    Parameters
    ----------
    model
    events
        Anything that `cer_gpu.Query.evaluate` takes, except the history of the model.  They are read three times.
    path, title, sort, inputs, events_from
        As of `write_report`.

    Returns
    -------
    ReportSummary
        `n_matches` is the number of current partial matches, or of substreams.

    Raises
    ------
    CerError
        As `cer_gpu.Forecast.score`, and for a path that cannot be written.
    OSError
        When the file cannot be written.
    """
    sources = paths(events) if events_from is None else [*events_from]
    with result_file(path, [*paths(events), *inputs]) as file:
        source = rereadable(events)
        score = model.score(source, sort=sort)
        at = "starts" if "funnel" in model.query.outputs else "last"
        likely = model.forecast(source, at=at, sort=sort)
        heading = title_of({"": model.query.text}, inputs, sources) if title is None else title
        written = render_forecast(model, score, likely, at, heading).encode("utf-8", "replace")
        with naming(os.fspath(path)):
            file.write(written)
    n_events = max((row["cases"] for row in score.table.to_pylist()), default=0)
    return ReportSummary(n_events, likely.num_rows, len(written))


def render_forecast(model: Forecast, score: Score, likely: pa.Table, at: str, title: str) -> str:
    """Return the page with scores, their calibration, and the most likely forecasts."""
    style = resource("page.css") + resource("funnel.css")
    under_way = "current partial matches" if at == "starts" else "keys"
    facts = (
        ("events of the history", model.n_events),
        ("of which end a match", model.n_ends),
        (under_way, likely.num_rows),
    )
    sections = [
        f"<section>\n<h2>Forecast</h2>\n<pre>{html_text(model.query.text)}</pre>\n{_scores(score)}</section>",
        *(_calibration(score, within) for within in model.lengths),
        _most_likely(likely, model, at),
    ]
    return Template(resource("funnel.html")).substitute(
        head=head(title),
        title=html_text(title),
        style=style,
        style_digest=digest(style),
        facts="".join(f"<div><dt>{html_text(name)}</dt><dd>{n:,}</dd></div>" for name, n in facts),
        switch="",
        sections="\n".join(sections),
    )


def _scores(score: Score) -> str:
    heads = [name.replace("_base", " of the base rate").replace("_", " ") for name in _SCORES]
    return _table(heads, [[_cell(row[name]) for name in _SCORES] for row in score.table.to_pylist()])


def _calibration(score: Score, within: str) -> str:
    """Return a table of predicted and observed frequencies, with a drawing of each."""
    rows = [row for row in score.calibration.to_pylist() if row["within"] == within]
    scale = max((max(row["high"], row["predicted"]) for row in rows), default=1.0) or 1.0
    cells = [
        [_drawn(row, scale), *(_cell(row[name]) for name in ("predicted", "observed", "low", "high", "cases"))]
        for row in rows
    ]
    heads = ["", "predicted", "observed", "low", "high", "events"]
    return (
        f"<section>\n<h2>Within {html_text(within)}: predicted and observed</h2>\n"
        "<p>One line for each tenth of the events, by probability. The bar is the 99% interval of the observed "
        f"share, and the mark is the prediction; the scale ends at {scale:.3g}.</p>\n"
        f"{_table(heads, cells)}</section>"
    )


def _drawn(row: dict[str, Any], scale: float) -> str:
    low, high, mark = (_WIDTH * row[name] / scale for name in ("low", "high", "predicted"))
    words = f"predicted {row['predicted']:.3g}, observed {row['observed']:.3g}"
    return (
        f'<td class="drawn"><svg viewBox="0 0 {_WIDTH} 20" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}"><rect class="all" width="{_WIDTH}" height="20" rx="3"/>'
        f'<rect class="on" x="{low:.1f}" width="{max(high - low, 2):.1f}" y="5" height="10"/>'
        f'<rect class="mark" x="{max(mark - 2, 0):.1f}" width="4" height="20"/></svg></td>'
    )


def _most_likely(likely: pa.Table, model: Forecast, at: str) -> str:
    probabilities = [name for name in likely.column_names if name.startswith("probability_")]
    order = [*((name, "descending") for name in reversed(probabilities)), ("position", "ascending")]
    rows = likely.sort_by(order).slice(0, _LIKELY)
    hidden = ("low_", "high_")
    shown = [name for name in rows.column_names if not name.startswith(hidden)]
    heads = [name.removeprefix("probability_").replace("_", " ") if name in probabilities else name for name in shown]
    cells = [[_cell(row[name]) for name in shown] for row in rows.select(shown).to_pylist()]
    what = "current partial matches" if at == "starts" else "keys"
    begin = f"The {len(cells)}" if likely.num_rows > len(cells) else "All"
    return (
        f"<section>\n<h2>{begin} {what} that are most likely to complete</h2>\n"
        "<p>After the last event of each: probabilities of a match within "
        f"{html_text(_listed(model))}.</p>\n{_table(heads, cells)}</section>"
    )


def _listed(model: Forecast) -> str:
    *others, last = model.lengths
    return f"{', '.join(others)} and {last}" if others else last


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float)
    shown = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    shown = f"{value:,}" if type(value) is int else shown
    return f'<td class="number">{shown}</td>' if is_number else f"<td>{html_text(shown)}</td>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html_text(each)}</th>' for each in heads)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="funnel">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n'
        "</tbody>\n</table></div>\n"
    )
