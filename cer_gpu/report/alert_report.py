"""Alerts of rules as one HTML page, which needs no script: over time, by level and tactic, the first of each rule."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.engine.options import EvaluationOptions, Sort, options_by_name
from cer_gpu.io.sinks import naming, result_file
from cer_gpu.io.value_strings import plain_values
from cer_gpu.report.alert_page import Raised, alert_page
from cer_gpu.report.events import ReportEvents, paths, title_of
from cer_gpu.report.page import ReportSummary
from cer_gpu.rules.rule_set import RuleSet

FIRST_ALERTS = 20
"""Most alerts of a rule on the page."""


@options_by_name
def write_alerts(
    rules: RuleSet,
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
    """Write the alerts of rules as one HTML page, which needs nothing else; arguments are those of `write_report`.

    The page has the number of alerts of each level over time, of each tactic and host by level, and for each rule that
    raised some, by level and tactic, what the rule says of itself, its text, and its first alerts with their events.
    The events are read once.

    Returns
    -------
    ReportSummary
        Its numbers are those of alerts.

    Raises
    ------
    CerError
        As `cer_gpu.Query.evaluate`, and for a path that cannot be that of a file.
    OSError
        When the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa, tempfile
    >>> from cer_gpu.report import write_alerts
    >>> from cer_gpu.rules import Rule, compile_rules
    >>> rules = compile_rules({"guessed": Rule("guessed", "SELECT * FROM S WHERE FAIL ; OK", level="high")})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = write_alerts(rules, pa.table({"type": ["FAIL", "OK"]}), f"{folder}/alerts.html")
    >>> report.n_matches
    1
    """
    sources = paths(events) if events_from is None else [*events_from]
    raised = {name: Raised(rule) for name, rule in rules.rules.items()}
    with result_file(path, [*paths(events), *inputs]) as file:
        source = ReportEvents(rules._first, events, sort=sort).open()
        schema, evaluator, batches = rules._alerts(source, EvaluationOptions(threads=threads, max_memory=max_memory))
        kind = schema.field("end_time").type if "end_time" in schema.names else None
        for batch in batches:
            _add_batch(raised, batch, kind)
        heading = title_of(dict.fromkeys(rules, ""), inputs, sources) if title is None else title
        notes = [f"{name}: {note}" for name, own in evaluator.notes.items() if raised[name].n == 0 for note in own]
        page = alert_page(raised, heading, evaluator.n_events, kind)
        written = page.encode("utf-8", "replace")
        with naming(os.fspath(path)):
            file.write(written)
    of = {name: each.n for name, each in raised.items()}
    return ReportSummary(evaluator.n_events, sum(of.values()), len(written), tuple(notes), dict(of))


def _add_batch(raised: Mapping[str, Raised], batch: pa.RecordBatch, kind: pa.DataType | None) -> None:
    """Take a batch of alerts, all of one rule."""
    if not batch.num_rows:
        return
    each = raised[batch.column("rule")[0].as_py()]
    ends = batch.column("end" if kind is None else "end_time").drop_null()
    if kind is not None and not pa.types.is_integer(kind):
        ends = ends.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    each.timestamps.append(ends.to_numpy().astype(np.int64))
    each.n += batch.num_rows
    for host in pc.value_counts(batch.column("host").drop_null()).to_pylist():
        each.hosts[host["values"]] += host["counts"]
    room = FIRST_ALERTS - len(each.first)
    if room > 0:
        some = batch.slice(0, room)
        shown = [name for name in ("start_time", "end_time", "start", "end") if name in some.schema.names]
        texts = {name: plain_values(some.column(name)).to_pylist() for name in shown}
        keys, matched = some.column("key").to_pylist(), some.column("events").to_pylist()
        each.first += [
            {**{name: texts[name][i] for name in shown}, "key": keys[i], "events": matched[i]}
            for i in range(some.num_rows)
        ]
