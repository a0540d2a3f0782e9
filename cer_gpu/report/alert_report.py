"""Alerts of rules as one HTML page without scripts: over time, by level and tactic, the first of each rule."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64
from cer_gpu.engine.evaluation_options import EvaluationOptions, Sort, options_by_name
from cer_gpu.io.sinks import naming, result_file
from cer_gpu.io.value_strings import plain_values
from cer_gpu.printable import html_text
from cer_gpu.report.events import ReportEvents, paths, title_of
from cer_gpu.report.page import ReportSummary, digest, head, resource
from cer_gpu.report.zones import both_html, in_zone, switch_html, zone_of
from cer_gpu.rule import LEVELS, NO_TACTIC, Rule, urgency
from cer_gpu.rules.rule_set import RuleSet

_NO_FRACTION = re.compile(r"(:\d\d)\.0+(?!\d)")
_ISO_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*")
_DAY, _MINUTE, _SECOND = 10, 16, 19
_BINS = 120
_LABELS = 5
_TALL, _LOW = 40, 24


class TimeLine:
    """Axis of the ends of alerts.

    Parameters
    ----------
    timestamps
        Ends of all alerts.
    kind
        Type of the time column, or None if they are positions.
    """

    def __init__(self, timestamps: Int64, kind: pa.DataType | None) -> None:
        self._low, self._high = (int(timestamps.min()), int(timestamps.max())) if len(timestamps) else (0, 0)
        self._kind = kind
        self.zone: tzinfo | None = zone_of(getattr(kind, "tz", None))

    def bars(self, timestamps: Int64) -> str:
        """Return a bar chart of counts over time; each bar has a tooltip with its timestamp and count."""
        counts = self._bin_counts(timestamps)
        max_count = max(int(counts.max()), 1)
        bars = []
        for i in np.flatnonzero(counts).tolist():
            tall = max(_TALL * int(counts[i]) / max_count, 2)
            begin = self._low + int((self._high - self._low) * i / _BINS)
            facts_html = f"{int(counts[i]):,} from {in_zone(self._axis_label(begin), self.zone)}"
            bars.append(
                f'<rect x="{i * 10}" y="{_TALL - tall:.1f}" width="9" height="{tall:.1f}">'
                f"<title>{html_text(facts_html)}</title></rect>"
            )
        drawn = f'<svg viewBox="0 0 {_BINS * 10} {_TALL}" preserveAspectRatio="none" role="img" aria-label="over time">'
        return f"{drawn}{''.join(bars)}</svg>"

    def outline(self, timestamps: Int64) -> str:
        """Return a small bar chart of counts over time with a tooltip, or "" if there are no timestamps."""
        if not len(timestamps):
            return ""
        counts = self._bin_counts(timestamps)
        heights = np.maximum(_LOW * counts / counts.max(), 2).round().astype(int).tolist()
        bars = "".join(f"M{i * 10} {_LOW}v-{heights[i]}h9v{heights[i]}z" for i in np.flatnonzero(counts).tolist())
        first, last = (in_zone(edge, self.zone) for edge in self.edges(timestamps))
        when = f"at {first}" if first == last else f"from {first} to {last}"
        return (
            f'<svg viewBox="0 0 {_BINS * 10} {_LOW}" preserveAspectRatio="none" role="img">'
            f'<title>{len(timestamps):,} {html_text(when)}</title><path d="{bars}"/></svg>'
        )

    def edges(self, timestamps: Int64) -> tuple[str, str]:
        """Return the first and the last timestamp as strings, in UTC, or "" if there are none."""
        return (
            (self._axis_label(int(timestamps.min())), self._axis_label(int(timestamps.max())))
            if len(timestamps)
            else ("", "")
        )

    def in_both(self, text: str, *, to_second: bool = False) -> str:
        """Return a time of UTC as HTML, in the zone of the events and in UTC, perhaps truncated to the second."""
        pair = (in_zone(text, self.zone), text)
        return both_html(*(map(_to_second, pair) if to_second else pair))

    def labels(self, n_before: int) -> str:
        """Return a table row with evenly spaced axis labels below its last column."""
        n = 1 if self._low == self._high else _LABELS
        strings = self._axis_labels(np.linspace(self._low, self._high, n).astype(np.int64))
        own = _as_short_as_distinct([in_zone(text, self.zone) for text in strings])
        both = [both_html(*pair) for pair in zip(own, _as_short_as_distinct(strings), strict=True)]
        labels = "".join(f"<span>{text}</span>" for text in both)
        return f'<tr class="axis">{"<td></td>" * n_before}<td><div class="labels">{labels}</div></td></tr>'

    def _bin_counts(self, timestamps: Int64) -> Int64:
        """Return the number of timestamps in each of `_BINS` sections of the axis."""
        width = max(self._high - self._low, 1) / _BINS
        bins = np.minimum(((timestamps - self._low) / width).astype(np.int64), _BINS - 1)
        return np.bincount(bins, minlength=_BINS)

    def _axis_label(self, timestamp: int) -> str:
        return self._axis_labels(np.array([timestamp]))[0]

    def _axis_labels(self, timestamps: Int64) -> list[str]:
        if self._kind is None:
            return [f"{timestamp:,}" for timestamp in timestamps.tolist()]
        values = pa.array(timestamps)
        if self._kind.bit_width == 32:
            values = values.cast(pa.int32())
        strings: list[str] = plain_values(values.cast(self._kind)).to_pylist()
        return [_NO_FRACTION.sub(r"\1", text) for text in strings]


def _as_short_as_distinct(strings: list[str]) -> list[str]:
    """Return timestamps truncated to the day, minute or second, if they remain distinct."""
    if all(_ISO_TIMESTAMP.fullmatch(text) for text in strings):
        for length in (_DAY, _MINUTE, _SECOND):
            if len(strings) > 1 and len({text[:length] for text in strings}) == len(strings):
                return [text[:length] for text in strings]
    return strings


_SITE = "https://attack.mitre.org"
_TACTICS = {
    "Reconnaissance": "TA0043",
    "Resource Development": "TA0042",
    "Initial Access": "TA0001",
    "Execution": "TA0002",
    "Persistence": "TA0003",
    "Privilege Escalation": "TA0004",
    "Defense Evasion": "TA0005",  # until version 18
    "Stealth": "TA0005",
    "Defense Impairment": "TA0112",
    "Credential Access": "TA0006",
    "Discovery": "TA0007",
    "Lateral Movement": "TA0008",
    "Collection": "TA0009",
    "Command and Control": "TA0011",
    "Exfiltration": "TA0010",
    "Impact": "TA0040",
}
"""Ids of tactics by their names, in the order in which ATT&CK shows them."""
_TACTIC_ID = re.compile(r"TA\d{4}")
_TECHNIQUE_ID = re.compile(r"(T\d{4})(?:\.(\d{3}))?")


def place_of_tactic(tactic: str) -> tuple[int, str]:
    """Return the sort key of a tactic: those of ATT&CK in its order, others after them by name."""
    return (list(_TACTICS).index(tactic) if tactic in _TACTICS else len(_TACTICS)), tactic


def page_of_tactic(tactic: str) -> str | None:
    """Return the URL of the page on a tactic, from its name or id, or None if ATT&CK does not have it."""
    tactic_id = _TACTICS.get(tactic, tactic)
    return f"{_SITE}/tactics/{tactic_id}/" if _TACTIC_ID.fullmatch(tactic_id) else None


def page_of_technique(technique: str) -> str | None:
    """Return the URL of the page on a technique, from its id, or None if ATT&CK does not have it."""
    match = _TECHNIQUE_ID.fullmatch(technique)
    return None if match is None else "/".join([_SITE, "techniques", *filter(None, match.groups())]) + "/"


MAX_ALERTS = 4_000
"""Maximum number of alerts of all rules on the page."""
_EVENTS_TEXT = 4_000
"""Maximum length of the events of an alert."""
_TEXT = 4_000
"""Maximum length of the text of a rule."""
MAX_HOSTS = 50
"""Maximum number of hosts in the table."""


@dataclass
class Raised:
    """Alerts of a rule.

    Attributes
    ----------
    rule : Rule
    n : int
    timestamps : list of ndarray of int64
        Times of their ends, or positions if there is no time column.
    first : list of dict
        The first alerts.
    hosts : Counter of str
        Number of alerts by host, if they have one.
    """

    rule: Rule
    n: int = 0
    timestamps: list[Int64] = field(default_factory=list)
    first: list[dict[str, Any]] = field(default_factory=list)
    hosts: Counter[str] = field(default_factory=Counter)

    def all_timestamps(self) -> Int64:
        """Return all timestamps."""
        return np.concatenate(self.timestamps) if self.timestamps else np.empty(0, np.int64)


def alert_page(raised: Mapping[str, Raised], title: str, n_events: int, kind: pa.DataType | None) -> str:
    """Return the page of the alerts of all rules, given the number of events."""
    style = resource("page.css") + resource("alerts.css")
    with_alerts = sorted((each for each in raised.values() if each.n), key=_alert_order)
    line = TimeLine(_times_of_alerts(with_alerts), kind)
    facts = {
        "events": n_events,
        "rules": len(raised),
        "rules with alerts": len(with_alerts),
        "alerts": sum(each.n for each in with_alerts),
    }
    levels: dict[str, list[Raised]] = {}
    for each in with_alerts:
        levels.setdefault(each.rule.level or "no level", []).append(each)
    max_alerts = max(1, MAX_ALERTS // max(len(with_alerts), 1))
    sections = (
        [_over_time(levels, line), _tactics(levels, line), _hosts(levels)]
        if with_alerts
        else ["<section><p>No alerts.</p></section>"]
    )
    sections += [_level(level, own, line, max_alerts) for level, own in levels.items()]
    return Template(resource("alerts.html")).substitute(
        head=head(title),
        zones=switch_html(getattr(kind, "tz", None)),
        title=html_text(title),
        style=style,
        style_digest=digest(style),
        facts="".join(f"<div><dt>{name}</dt><dd>{n:,}</dd></div>" for name, n in facts.items()),
        sections="\n".join(sections),
    )


def _alert_order(each: Raised) -> tuple[int, tuple[bool, int, str], int, str]:
    return urgency(each.rule.level), _tactic_order(_tactic(each.rule)), -each.n, each.rule.name


def _tactic(rule: Rule) -> str:
    """Return the tactic under which a rule is listed, its first."""
    return rule.tactics[0] if rule.tactics else NO_TACTIC


def _tactic_order(tactic: str) -> tuple[bool, int, str]:
    return tactic == NO_TACTIC, *place_of_tactic(tactic)


def _linked(text: str, page: str | None) -> str:
    """Return a text as a link to a page, if there is one."""
    shown = html_text(text)
    return shown if page is None else f'<a href="{html_text(page)}" rel="noreferrer">{shown}</a>'


def _class(level: str) -> str:
    return level if level in LEVELS else "other"


def _times_of_alerts(raised: Iterable[Raised]) -> Int64:
    return np.concatenate([np.empty(0, np.int64), *(each.all_timestamps() for each in raised)])


def _over_time(levels: Mapping[str, Sequence[Raised]], line: TimeLine) -> str:
    rows = []
    for level, own in levels.items():
        rows.append(
            f'<tr class="{_class(level)}"><td class="name">{html_text(level)}</td>'
            f'<td class="number">{sum(each.n for each in own):,}</td>'
            f'<td class="drawn">{line.bars(_times_of_alerts(own))}</td></tr>'
        )
    return (
        '<section>\n<h2>Over time</h2>\n<div class="scroll"><table class="times">\n'
        + "\n".join(rows)
        + f"\n{line.labels(2)}\n</table></div>\n</section>"
    )


def _tactics(levels: Mapping[str, Sequence[Raised]], line: TimeLine) -> str:
    """Return the table of the alerts by tactic: their number by level, and over time.

    A rule of several tactics counts for each.
    """
    of_tactic: dict[str, dict[str, list[Raised]]] = {}
    for level, own in levels.items():
        for each in own:
            for tactic in each.rule.tactics or (NO_TACTIC,):
                of_tactic.setdefault(tactic, {}).setdefault(level, []).append(each)
    head = "".join(f'<th scope="col" class="number">{html_text(level)}</th>' for level in levels)
    rows = []
    for tactic in sorted(of_tactic, key=_tactic_order):
        by_level = of_tactic[tactic]
        cells = "".join(_level_tile(level, by_level[level]) if level in by_level else "<td></td>" for level in levels)
        timestamps = _times_of_alerts(each for own in by_level.values() for each in own)
        drawn = line.outline(timestamps)
        rows.append(
            f"<tr><td>{_linked(tactic, page_of_tactic(tactic))}</td>{cells}"
            f'<td class="drawn {_class(next(iter(by_level)))}">{drawn}</td></tr>'
        )
    return (
        '<section>\n<h2>By tactic</h2>\n<div class="scroll"><table class="tactics">\n'
        f'<thead><tr><th scope="col">tactic</th>{head}<th scope="col">over time</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + f"\n{line.labels(len(levels) + 1)}\n</tbody>\n</table></div>\n"
        '<p class="hint">A rule of several tactics counts for each of them; bars have the colour of the most urgent '
        "level.</p>\n</section>"
    )


def _hosts(levels: Mapping[str, Sequence[Raised]]) -> str:
    """Return the table of the hosts with most alerts, by level, or "" if no alert has a host."""
    by_level = {level: sum((each.hosts for each in own), Counter()) for level, own in levels.items()}
    hosts = sum(by_level.values(), Counter[str]()).most_common()
    if not hosts:
        return ""
    head = "".join(f'<th scope="col" class="number">{html_text(level)}</th>' for level in levels)
    rows = []
    for host, _ in hosts[:MAX_HOSTS]:
        cells = "".join(_cell(level, of[host]) if of[host] else "<td></td>" for level, of in by_level.items())
        rows.append(f"<tr><td>{html_text(host)}</td>{cells}</tr>")
    rest = f'<p class="hint">The {MAX_HOSTS:,} hosts with the most alerts, of {len(hosts):,}.</p>\n'
    rest = rest if len(hosts) > MAX_HOSTS else ""
    return (
        '<section>\n<h2>By host</h2>\n<div class="scroll"><table class="tactics hosts">\n'
        f'<thead><tr><th scope="col">host</th>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + f"\n</tbody>\n</table></div>\n{rest}</section>"
    )


def _level_tile(level: str, own: Sequence[Raised]) -> str:
    return _cell(level, sum(each.n for each in own))


def _cell(level: str, n: int) -> str:
    return f'<td class="number {_class(level)}"><span class="name">{n:,}</span></td>'


def _level(level: str, own: Sequence[Raised], line: TimeLine, max_alerts: int) -> str:
    parts = [f'<section class="{_class(level)}">\n<h2 class="level">{html_text(level)}</h2>']
    n = sum(each.n for each in own)
    rules, alerts = ("rule" if len(own) == 1 else "rules"), ("alert" if n == 1 else "alerts")
    parts.append(f'<p class="hint">{n:,} {alerts} of {len(own):,} {rules}.</p>')
    before = None
    for each in own:
        tactic = _tactic(each.rule)
        if tactic != before:
            parts.append(f"<h3>{_linked(tactic, page_of_tactic(tactic))}</h3>")
            before = tactic
        parts.append(_rule_section(each, line, max_alerts))
    return "\n".join([*parts, "</section>"])


def _rule_section(each: Raised, line: TimeLine, max_alerts: int) -> str:
    rule = each.rule
    timestamps = each.all_timestamps()
    first, last = line.edges(timestamps)
    facts = {
        "first": line.in_both(first),
        "last": line.in_both(last),
        "id": html_text(rule.id or ""),
        "tactics": ", ".join(_linked(tactic, page_of_tactic(tactic)) for tactic in rule.tactics),
        "tags": html_text(", ".join(rule.tags)),
        "file": html_text(rule.file or ""),
    }
    facts_html = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items() if value)
    techniques = " ".join(_linked(each, page_of_technique(each)) for each in rule.techniques)
    drawn = line.outline(timestamps)
    text = _bounded(rule.text.strip(), _TEXT)
    shown = each.first[:max_alerts]
    more = f'<p class="hint">The first {len(shown):,} of {each.n:,}.</p>' if len(shown) < each.n else ""
    return (
        f'<details>\n<summary><span class="rule">{html_text(rule.name)}</span>'
        f'<span class="techniques">{techniques}</span>'
        f'<span class="when">{line.in_both(first, to_second=True)}</span>{drawn}'
        f'<span class="when">{line.in_both(last, to_second=True)}</span>'
        f'<span class="number">{each.n:,}</span></summary>\n'
        f"<div><dl>{facts_html}</dl>\n<pre>{html_text(text)}</pre>\n{_first_alert_line(shown, line)}{more}</div>\n"
        "</details>"
    )


def _to_second(timestamp: str) -> str:
    """Return a time truncated to the second."""
    return re.sub(r"(:\d\d)\.\d+", r"\1", timestamp)


def _bounded(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[:max_length] + " \u2026"


def _first_alert_line(alerts: Iterable[dict[str, Any]], line: TimeLine) -> str:
    rows = []
    for alert in alerts:
        start, end = (alert.get(f"{edge}_time") or alert[edge] or "" for edge in ("start", "end"))
        key = ", ".join(f"{name} {value}" for name, value in alert["key"] or ())
        rows.append(
            f"<tr><td>{line.in_both(str(start))}</td><td>{line.in_both(str(end))}</td><td>{html_text(key)}</td>"
            f"<td>{_matched(alert['events'])}</td></tr>"
        )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("start", "end", "key", "events"))
    body = "\n".join(rows)
    head = f'<div class="scroll"><table class="found">\n<thead><tr>{heads}</tr></thead>\n'
    return f"{head}<tbody>\n{body}\n</tbody></table></div>\n"


def _matched(events: str) -> str:
    """Return the events of an alert, one per line."""
    lines = [
        ", ".join(f"{name}: {_value_html(value)}" for name, value in event.items()) for event in json.loads(events)
    ]
    text = "\n".join(lines)
    return f"<code>{html_text(_bounded(text, _EVENTS_TEXT))}</code>"


def _value_html(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


FIRST_ALERTS = 20
"""Maximum number of alerts of a rule on the page."""


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
    """Write the alerts of rules as one self-contained HTML page; arguments are those of `write_report`.

    The page has the number of alerts of each level over time, of each tactic and host by level, and for each rule with
    alerts, by level and tactic, its metadata, its text, and its first alerts with their events.
    The events are read once.

    Returns
    -------
    ReportSummary
        The numbers are those of alerts.

    Raises
    ------
    CerError
        As `cer_gpu.Query.evaluate`, and for a path that cannot be written.
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
        source = ReportEvents(rules._first_query, events, sort=sort).open()
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
    """Add a batch of alerts, all of one rule."""
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
    n_missing = FIRST_ALERTS - len(each.first)
    if n_missing > 0:
        some = batch.slice(0, n_missing)
        shown = [name for name in ("start_time", "end_time", "start", "end") if name in some.schema.names]
        strings = {name: plain_values(some.column(name)).to_pylist() for name in shown}
        keys, matched = some.column("key").to_pylist(), some.column("events").to_pylist()
        each.first += [
            {**{name: strings[name][i] for name in shown}, "key": keys[i], "events": matched[i]}
            for i in range(some.num_rows)
        ]
