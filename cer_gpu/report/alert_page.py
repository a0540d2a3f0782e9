"""The page of alerts, as HTML: over time, by tactic, and by level the rules with their first alerts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.printable import html_text
from cer_gpu.report.attack import page_of_tactic, page_of_technique, place_of_tactic
from cer_gpu.report.page import digest, resource
from cer_gpu.report.time_line import TimeLine
from cer_gpu.rule import LEVELS, NO_TACTIC, Rule, urgency

MAX_ALERTS = 4_000
"""Most alerts of all rules on the page."""
_EVENTS_TEXT = 4_000
"""Most characters of the events of an alert."""
_TEXT = 4_000
"""Most characters of the text of a rule."""
MAX_HOSTS = 50
"""Most hosts in the table."""


@dataclass
class Raised:
    """Alerts of a rule.

    Attributes
    ----------
    rule : Rule
    n : int
    moments : list of ndarray of int64
        Times of their ends, or positions without a time column.
    first : list of dict
        The first ones.
    hosts : Counter of str
        Numbers by host, of alerts that tell one.
    """

    rule: Rule
    n: int = 0
    moments: list[Int64] = field(default_factory=list)
    first: list[dict[str, Any]] = field(default_factory=list)
    hosts: Counter[str] = field(default_factory=Counter)

    def all_moments(self) -> Int64:
        """Return all moments."""
        return np.concatenate(self.moments) if self.moments else np.empty(0, np.int64)


def alert_page(raised: Mapping[str, Raised], title: str, n_events: int, kind: pa.DataType | None) -> str:
    """Return the page of the alerts of all rules, among so many events."""
    style = resource("page.css") + resource("alerts.css")
    found = sorted((each for each in raised.values() if each.n), key=_order)
    line = TimeLine(_moments(found), kind)
    facts = {
        "events": n_events,
        "rules": len(raised),
        "rules with alerts": len(found),
        "alerts": sum(each.n for each in found),
    }
    levels: dict[str, list[Raised]] = {}
    for each in found:
        levels.setdefault(each.rule.level or "no level", []).append(each)
    room = max(1, MAX_ALERTS // max(len(found), 1))
    sections = (
        [_over_time(levels, line), _tactics(levels, line), _hosts(levels)]
        if found
        else ["<section><p>No alerts.</p></section>"]
    )
    sections += [_level(level, own, line, room) for level, own in levels.items()]
    return Template(resource("alerts.html")).substitute(
        title=html_text(title),
        style=style,
        style_digest=digest(style),
        facts="".join(f"<div><dt>{name}</dt><dd>{n:,}</dd></div>" for name, n in facts.items()),
        sections="\n".join(sections),
    )


def _order(each: Raised) -> tuple[int, tuple[bool, int, str], int, str]:
    return urgency(each.rule.level), _place(_tactic(each.rule)), -each.n, each.rule.name


def _tactic(rule: Rule) -> str:
    """Return the tactic under which a rule is listed: its first."""
    return rule.tactics[0] if rule.tactics else NO_TACTIC


def _place(tactic: str) -> tuple[bool, int, str]:
    return tactic == NO_TACTIC, *place_of_tactic(tactic)


def _linked(text: str, page: str | None) -> str:
    """Return a text that leads to a page, if there is one."""
    shown = html_text(text)
    return shown if page is None else f'<a href="{html_text(page)}" rel="noreferrer">{shown}</a>'


def _class(level: str) -> str:
    return level if level in LEVELS else "other"


def _moments(raised: Iterable[Raised]) -> Int64:
    return np.concatenate([np.empty(0, np.int64), *(each.all_moments() for each in raised)])


def _over_time(levels: Mapping[str, Sequence[Raised]], line: TimeLine) -> str:
    rows = []
    for level, own in levels.items():
        rows.append(
            f'<tr class="{_class(level)}"><td class="name">{html_text(level)}</td>'
            f'<td class="number">{sum(each.n for each in own):,}</td>'
            f'<td class="drawn">{line.bars(_moments(own))}</td></tr>'
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
    for tactic in sorted(of_tactic, key=_place):
        by_level = of_tactic[tactic]
        cells = "".join(_number(level, by_level[level]) if level in by_level else "<td></td>" for level in levels)
        moments = _moments(each for own in by_level.values() for each in own)
        drawn = line.outline(moments)
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
    """Return the table of the hosts with most alerts: their number by level; "" if no alert tells its host."""
    by_level = {level: sum((each.hosts for each in own), Counter()) for level, own in levels.items()}
    most = sum(by_level.values(), Counter[str]()).most_common()
    if not most:
        return ""
    head = "".join(f'<th scope="col" class="number">{html_text(level)}</th>' for level in levels)
    rows = []
    for host, _ in most[:MAX_HOSTS]:
        cells = "".join(_cell(level, of[host]) if of[host] else "<td></td>" for level, of in by_level.items())
        rows.append(f"<tr><td>{html_text(host)}</td>{cells}</tr>")
    rest = f'<p class="hint">The first of {len(most):,} hosts.</p>\n' if len(most) > MAX_HOSTS else ""
    return (
        '<section>\n<h2>By host</h2>\n<div class="scroll"><table class="tactics hosts">\n'
        f'<thead><tr><th scope="col">host</th>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + f"\n</tbody>\n</table></div>\n{rest}</section>"
    )


def _number(level: str, own: Sequence[Raised]) -> str:
    return _cell(level, sum(each.n for each in own))


def _cell(level: str, n: int) -> str:
    return f'<td class="number {_class(level)}"><span class="name">{n:,}</span></td>'


def _level(level: str, own: Sequence[Raised], line: TimeLine, room: int) -> str:
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
        parts.append(_rule(each, line, room))
    return "\n".join([*parts, "</section>"])


def _rule(each: Raised, line: TimeLine, room: int) -> str:
    rule = each.rule
    moments = each.all_moments()
    first, last = line.edges(moments)
    facts = {
        "first": html_text(first),
        "last": html_text(last),
        "id": html_text(rule.id or ""),
        "tactics": ", ".join(_linked(tactic, page_of_tactic(tactic)) for tactic in rule.tactics),
        "tags": html_text(", ".join(rule.tags)),
        "file": html_text(rule.file or ""),
    }
    told = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items() if value)
    techniques = " ".join(_linked(each, page_of_technique(each)) for each in rule.techniques)
    drawn = line.outline(moments)
    text = _bounded(rule.text.strip(), _TEXT)
    shown = each.first[:room]
    more = f'<p class="hint">The first {len(shown):,} of {each.n:,}.</p>' if len(shown) < each.n else ""
    return (
        f'<details>\n<summary><span class="rule">{html_text(rule.name)}</span>'
        f'<span class="techniques">{techniques}</span>'
        f'<span class="when">{html_text(_short(first))}</span>{drawn}'
        f'<span class="when">{html_text(_short(last))}</span>'
        f'<span class="number">{each.n:,}</span></summary>\n'
        f"<div><dl>{told}</dl>\n<pre>{html_text(text)}</pre>\n{_first(shown)}{more}</div>\n"
        "</details>"
    )


def _short(moment: str) -> str:
    """Return a time to its second."""
    return re.sub(r"(:\d\d)\.\d+", r"\1", moment)


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + " \u2026"


def _first(alerts: Iterable[dict[str, Any]]) -> str:
    rows = []
    for alert in alerts:
        start, end = (alert.get(f"{edge}_time") or alert[edge] or "" for edge in ("start", "end"))
        key = ", ".join(f"{name} {value}" for name, value in alert["key"] or ())
        rows.append(
            f"<tr><td>{html_text(start)}</td><td>{html_text(end)}</td><td>{html_text(key)}</td>"
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
    return f"<code>{html_text(_bounded(text, _EVENTS_TEXT))}</code>"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
