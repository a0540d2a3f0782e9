"""Alerts of rules as one HTML page, which needs no script: over time, by level and tactic, the first of each rule."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.io.sinks import naming, result_file
from cer_gpu.io.texts import plain_values
from cer_gpu.report.events import ReportEvents, paths
from cer_gpu.report.page import ReportSummary, digest, resource
from cer_gpu.report.titles import title_of
from cer_gpu.rule import LEVELS, Rule, urgency
from cer_gpu.rules.rule_set import RuleSet

FIRST_ALERTS = 20
"""Most alerts of a rule on the page."""
MOST_ALERTS = 4_000
"""Most alerts of all rules on the page."""
_EVENTS_TEXT = 4_000
"""Most characters of the events of an alert."""
_BINS = 120
_LABELS = 5
NO_TACTIC = "no tactic"
TACTICS = (
    "Reconnaissance",
    "Resource Development",
    "Initial Access",
    "Execution",
    "Persistence",
    "Privilege Escalation",
    "Defense Evasion",
    "Credential Access",
    "Discovery",
    "Lateral Movement",
    "Collection",
    "Command and Control",
    "Exfiltration",
    "Impact",
)
"""Tactics of MITRE ATT&CK in the order in which it shows them; others come after them, by name."""


@dataclass
class _Raised:
    """Alerts of a rule.

    Attributes
    ----------
    rule : Rule
    n : int
    moments : list of ndarray of int64
        Times of their ends, or positions without a time column.
    first : list of dict
        The first ones.
    """

    rule: Rule
    n: int = 0
    moments: list[Int64] = field(default_factory=list)
    first: list[dict[str, Any]] = field(default_factory=list)

    def all_moments(self) -> Int64:
        return np.concatenate(self.moments) if self.moments else np.empty(0, np.int64)


class _Axis:
    """Axis of the ends of alerts.

    Parameters
    ----------
    moments
        All of them.
    kind
        Type of the time column; None: they are positions.
    """

    def __init__(self, moments: Int64, kind: pa.DataType | None) -> None:
        self._low, self._high = (int(moments.min()), int(moments.max())) if len(moments) else (0, 0)
        self._kind = kind

    def counts(self, moments: Int64) -> Int64:
        """Return the number of moments in each of `_BINS` parts of the axis."""
        width = max(self._high - self._low, 1) / _BINS
        bins = np.minimum(((moments - self._low) / width).astype(np.int64), _BINS - 1)
        return np.bincount(bins, minlength=_BINS)

    def labels(self) -> list[str]:
        """Return texts of moments that lie evenly on the axis."""
        if self._low == self._high:
            return self._texts(np.array([self._low]))
        return self._texts(np.linspace(self._low, self._high, _LABELS).astype(np.int64))

    def at(self, bin_: int) -> str:
        """Return the text of the begin of a part."""
        (text,) = self._texts(np.array([self._low + int((self._high - self._low) * bin_ / _BINS)]))
        return text

    def _texts(self, moments: Int64) -> list[str]:
        if self._kind is None:
            return [f"{moment:,}" for moment in moments.tolist()]
        values = pa.array(moments)
        if self._kind.bit_width == 32:
            values = values.cast(pa.int32())
        texts: list[str] = plain_values(values.cast(self._kind)).to_pylist()
        return texts


def write_alerts(
    rules: RuleSet,
    events: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    sort: bool = False,
    threads: int | None = None,
    inputs: Sequence[str] = (),
    events_from: Sequence[str] | None = None,
) -> ReportSummary:
    """Write the alerts of rules as one HTML page, which needs nothing else; arguments are those of `write_report`.

    The page has the number of alerts of each level over time, of each tactic and level, and for each rule that raised
    some, by level and tactic, what the rule says of itself, its text, and its first alerts with their events.  The
    events are read once.

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
    raised = {name: _Raised(rule) for name, rule in rules.rules.items()}
    with result_file(path, [*paths(events), *inputs]) as file:
        source = ReportEvents(rules._first, events, sort=sort).open()
        schema, evaluator, batches = rules._alerts(source, EvaluationOptions(threads=threads))
        kind = schema.field("end_time").type if "end_time" in schema.names else None
        for batch in batches:
            _take(raised, batch, kind)
        heading = title_of(dict.fromkeys(rules, ""), inputs, sources) if title is None else title
        notes = [f"{name}: {note}" for name, own in evaluator.notes.items() if raised[name].n == 0 for note in own]
        page = _page(raised, heading, evaluator.n_events, kind)
        written = page.encode("utf-8", "replace")
        with naming(os.fspath(path)):
            file.write(written)
    of = {name: each.n for name, each in raised.items()}
    return ReportSummary(evaluator.n_events, sum(of.values()), len(written), tuple(notes), dict(of))


def _take(raised: Mapping[str, _Raised], batch: pa.RecordBatch, kind: pa.DataType | None) -> None:
    """Take a batch of alerts, all of one rule."""
    if not batch.num_rows:
        return
    each = raised[batch.column("rule")[0].as_py()]
    ends = batch.column("end" if kind is None else "end_time").drop_null()
    if kind is not None and not pa.types.is_integer(kind):
        ends = ends.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    each.moments.append(ends.to_numpy().astype(np.int64))
    each.n += batch.num_rows
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


def _page(raised: Mapping[str, _Raised], title: str, n_events: int, kind: pa.DataType | None) -> str:
    style = resource("page.css") + resource("alerts.css")
    found = sorted((each for each in raised.values() if each.n), key=_order)
    axis = _Axis(np.concatenate([np.empty(0, np.int64), *(each.all_moments() for each in found)]), kind)
    facts = {
        "events": n_events,
        "rules": len(raised),
        "rules with alerts": len(found),
        "alerts": sum(each.n for each in found),
    }
    levels: dict[str, list[_Raised]] = {}
    for each in found:
        levels.setdefault(each.rule.level or "no level", []).append(each)
    room = max(1, MOST_ALERTS // max(len(found), 1))
    sections = [_over_time(levels, axis), _tactics(levels)] if found else ["<section><p>No alerts.</p></section>"]
    sections += [_level(level, own, axis, room) for level, own in levels.items()]
    return Template(resource("alerts.html")).substitute(
        title=html.escape(title),
        style=style,
        style_digest=digest(style),
        facts="".join(f"<div><dt>{name}</dt><dd>{n:,}</dd></div>" for name, n in facts.items()),
        sections="\n".join(sections),
    )


def _order(each: _Raised) -> tuple[int, tuple[int, str], int, str]:
    return urgency(each.rule.level), _place(_tactic(each.rule)), -each.n, each.rule.name


def _tactic(rule: Rule) -> str:
    """Return the tactic under which a rule is listed: its first."""
    return rule.tactics[0] if rule.tactics else NO_TACTIC


def _place(tactic: str) -> tuple[int, str]:
    return (TACTICS.index(tactic) if tactic in TACTICS else len(TACTICS) + (tactic == NO_TACTIC)), tactic


def _class(level: str) -> str:
    return level if level in LEVELS else "other"


def _bars(counts: Int64, axis: _Axis, height: int) -> str:
    """Return a picture of numbers over time; each bar tells its moment and number."""
    most = max(int(counts.max()), 1)
    bars = []
    for i in np.flatnonzero(counts).tolist():
        tall = max(height * int(counts[i]) / most, 2)
        told = f"{int(counts[i]):,} from {axis.at(i)}"
        bars.append(
            f'<rect x="{i * 10}" y="{height - tall:.1f}" width="9" height="{tall:.1f}">'
            f"<title>{html.escape(told)}</title></rect>"
        )
    drawn = f'<svg viewBox="0 0 {_BINS * 10} {height}" preserveAspectRatio="none" role="img" aria-label="over time">'
    return f"{drawn}{''.join(bars)}</svg>"


def _over_time(levels: Mapping[str, Sequence[_Raised]], axis: _Axis) -> str:
    rows = []
    for level, own in levels.items():
        counts = axis.counts(np.concatenate([each.all_moments() for each in own]))
        rows.append(
            f'<tr class="{_class(level)}"><td class="name">{html.escape(level)}</td>'
            f'<td class="number">{sum(each.n for each in own):,}</td>'
            f'<td class="drawn">{_bars(counts, axis, 40)}</td></tr>'
        )
    labels = "".join(f"<span>{html.escape(text)}</span>" for text in axis.labels())
    return (
        '<section>\n<h2>Over time</h2>\n<div class="scroll"><table class="times">\n'
        + "\n".join(rows)
        + f'\n<tr class="axis"><td></td><td></td><td><div class="labels">{labels}</div></td></tr>\n'
        "</table></div>\n</section>"
    )


def _tactics(levels: Mapping[str, Sequence[_Raised]]) -> str:
    """Return the table of the numbers of alerts by tactic and level; a rule of several tactics counts for each."""
    numbers: dict[str, dict[str, int]] = {}
    for level, own in levels.items():
        for each in own:
            for tactic in each.rule.tactics or (NO_TACTIC,):
                of_tactic = numbers.setdefault(tactic, {})
                of_tactic[level] = of_tactic.get(level, 0) + each.n
    head = "".join(f'<th scope="col" class="number">{html.escape(level)}</th>' for level in levels)
    rows = []
    for tactic in sorted(numbers, key=_place):
        cells = "".join(
            f'<td class="number {_class(level)}"><span class="name">{numbers[tactic][level]:,}</span></td>'
            if level in numbers[tactic]
            else "<td></td>"
            for level in levels
        )
        rows.append(f"<tr><td>{html.escape(tactic)}</td>{cells}</tr>")
    return (
        '<section>\n<h2>By tactic</h2>\n<div class="scroll"><table class="tactics">\n'
        f'<thead><tr><th scope="col">tactic</th>{head}</tr></thead>\n<tbody>\n' + "\n".join(rows) + "\n</tbody>\n"
        '</table></div>\n<p class="hint">A rule of several tactics counts for each of them.</p>\n</section>'
    )


def _level(level: str, own: Sequence[_Raised], axis: _Axis, room: int) -> str:
    parts = [f'<section class="{_class(level)}">\n<h2 class="level">{html.escape(level)}</h2>']
    before = None
    for each in own:
        tactic = _tactic(each.rule)
        if tactic != before:
            parts.append(f"<h3>{html.escape(tactic)}</h3>")
            before = tactic
        parts.append(_rule(each, axis, room))
    return "\n".join([*parts, "</section>"])


def _rule(each: _Raised, axis: _Axis, room: int) -> str:
    rule = each.rule
    counts = axis.counts(each.all_moments())
    facts = {"id": rule.id, "tactics": ", ".join(rule.tactics), "tags": ", ".join(rule.tags), "file": rule.file}
    told = "".join(f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts.items() if value)
    shown = each.first[:room]
    more = f'<p class="hint">The first {len(shown):,} of {each.n:,}.</p>' if len(shown) < each.n else ""
    return (
        f'<details>\n<summary><span class="rule">{html.escape(rule.name)}</span>'
        f'<span class="techniques">{html.escape(" ".join(rule.techniques))}</span>'
        f'{_bars(counts, axis, 24)}<span class="number">{each.n:,}</span></summary>\n'
        f"<div><dl>{told}</dl>\n<pre>{html.escape(rule.text.strip())}</pre>\n{_first(shown)}{more}</div>\n</details>"
    )


def _first(alerts: Iterable[dict[str, Any]]) -> str:
    rows = []
    for alert in alerts:
        start, end = (alert.get(f"{edge}_time") or alert[edge] or "" for edge in ("start", "end"))
        key = ", ".join(f"{name} {value}" for name, value in alert["key"] or ())
        rows.append(
            f"<tr><td>{html.escape(start)}</td><td>{html.escape(end)}</td><td>{html.escape(key)}</td>"
            f"<td>{_matched(alert['events'])}</td></tr>"
        )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("start", "end", "key", "events"))
    body = "\n".join(rows)
    head = f'<div class="scroll"><table class="found">\n<thead><tr>{heads}</tr></thead>\n'
    return f"{head}<tbody>\n{body}\n</tbody></table></div>\n"


def _matched(events: str) -> str:
    """Return the events of an alert, one in a line."""
    lines = [", ".join(f"{name}: {_value(value)}" for name, value in event.items()) for event in json.loads(events)]
    text = "\n".join(lines)
    cut = text if len(text) <= _EVENTS_TEXT else text[:_EVENTS_TEXT] + " \u2026"
    return f"<code>{html.escape(cut)}</code>"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
