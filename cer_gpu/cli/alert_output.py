"""Alerts of the rules of a folder: in a file by their ends, on a terminal by level and rule; and near misses."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.cli.command_line import show_text
from cer_gpu.cli.preview import Preview, QueryTable, end_of, preview, right, table_width
from cer_gpu.cli.tally import Totals
from cer_gpu.io.sinks import Sink
from cer_gpu.output.funnel_counts import FunnelCounts
from cer_gpu.printable import counted
from cer_gpu.rule import NO_TACTIC, Rule, urgency
from cer_gpu.rules.alerts import furthest_step, hosts_of, in_order_of_ends, timeline_rows

NO_LEVEL = "no level"
SHOWN_RULES = 40
"""Most rules in a table."""
SUMMED = 5
"""Most tactics, rules and hosts in the summary."""
MIN_RULES = 5
"""Rules of a level that a table shows however many there are of more urgent ones."""


@contextlib.contextmanager
def kept_for_order(sink: Sink, schema: pa.Schema) -> Iterator[Sink]:
    """Yield a sink that keeps alerts, and gives them to another at the end of the block, in the order of their ends."""
    kept = _Kept()
    yield kept
    for batch in in_order_of_ends(kept.batches, schema).to_batches():
        sink.write(batch)


class TimelineSink:
    """Sink that gives alerts to another as rows of a timeline."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Write rows."""
        self._sink.write(timeline_rows(batch))


class _Kept:
    """Sink in memory."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Keep rows."""
        self.batches.append(batch)


def by_level(numbers: Mapping[str, int], rules: Mapping[str, Rule]) -> dict[str, int]:
    """Return the number of alerts of each level, from those of each rule; the most urgent level first."""
    found: dict[str, int] = {}
    for name in sorted(numbers, key=lambda name: urgency(rules[name].level)):
        if numbers[name]:
            level = rules[name].level or NO_LEVEL
            found[level] = found.get(level, 0) + numbers[name]
    return found


class AlertSummary:
    """Numbers of alerts by level, tactic, rule and host.

    Parameters
    ----------
    rules
        Rules by name.
    """

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        self._hosts: Counter[str] = Counter()

    def take(self, batch: pa.RecordBatch) -> None:
        """Count the hosts of results of a rule."""
        for each in pc.value_counts(hosts_of(batch).drop_null()).to_pylist():
            self._hosts[each["values"]] += each["counts"]

    def counts(self, numbers: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Return the counts, by what they are by; most first but for levels, the most urgent of which comes first.

        Parameters
        ----------
        numbers
            Number of alerts of each rule.  One of several tactics counts for each.
        """
        tactics: Counter[str] = Counter()
        for name, n in numbers.items():
            tactics.update(dict.fromkeys(self._rules[name].tactics or (NO_TACTIC,), n))
        by_number = {"tactics": +tactics, "rules": Counter(numbers), "hosts": self._hosts}
        most = {by: {name: n for name, n in of.most_common() if n} for by, of in by_number.items()}
        return {"levels": by_level(numbers, self._rules), **most}


def lines_of(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return counts, a line for each kind, with the first `SUMMED` of it."""
    lines = []
    for by, of in counts.items():
        first = [f"{name} {n:,}" for name, n in list(of.items())[:SUMMED]]
        first += [f"and {len(of) - SUMMED:,} more"] * (len(of) > SUMMED)
        if first:
            lines.append(f"{by}: {', '.join(first)}")
    return lines


def first_by_level(names: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the first names of each level, `SHOWN_RULES` in all: most of urgent levels, some of each."""
    fewest = {level: min(len(own), MIN_RULES) for level, own in names.items()}
    room = max(SHOWN_RULES - sum(fewest.values()), 0)
    shown = {}
    for level, own in names.items():
        more = min(room, len(own) - fewest[level])
        room -= more
        shown[level] = list(own[: fewest[level] + more])
    return shown


class AlertTable(QueryTable):
    """The number of alerts of each rule that raised some, with the first and the last, shown at the end.

    Parameters
    ----------
    rules
        Rules by name.
    """

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        super().__init__()
        self._rules = rules

    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the table of rules, by level and number."""
        numbers = {name: tally.n_rows for name, tally in totals.of.items()}
        raised = [name for name, n in numbers.items() if n]
        raised.sort(key=lambda name: (urgency(self._rules[name].level), -numbers[name], name))
        of_all = f"of {counted(len(numbers), 'rule')}"
        if not raised:
            show_text(f"no alerts {of_all}{so_far}")
            return
        levels: dict[str, list[str]] = {}
        for name in raised:
            levels.setdefault(self._rules[name].level or NO_LEVEL, []).append(name)
        first = first_by_level(levels)
        shown = [name for own in first.values() for name in own]
        table = {
            "level": [self._rules[name].level or "" for name in shown],
            "rule": shown,
            "alerts": right([f"{numbers[name]:,}{'+' if totals.of[name].limit_reached else ''}" for name in shown]),
            "first end": [_without_zero_fraction(end_of(self._firsts.get(name))) for name in shown],
            "last end": [_without_zero_fraction(end_of(self._lasts.get(name))) for name in shown],
        }
        show_text(preview(pa.table(table), table_width()))
        if len(raised) > len(shown):
            left = {level: len(own) - len(first[level]) for level, own in levels.items()}
            listed = ", ".join(f"{n:,} {level}" for level, n in left.items() if n)
            show_text(f"and {counted(len(raised) - len(shown), 'more rule')}: {listed} (-o FILE has all alerts)")
        found = ", ".join(f"{n:,} {level}" for level, n in by_level(numbers, self._rules).items())
        show_text(f"{len(raised):,} {of_all} raised {counted(sum(numbers.values()), 'alert')}: {found}{so_far}")


def _without_zero_fraction(time: str) -> str:
    """Return a time without a fraction that is zero."""
    return re.sub(r"\.0+(?=Z?$)", "", time)


class NearMisses(Preview):
    """The furthest step that the events reached of each rule with several steps, shown at the end.

    Rules whose last step was not reached stand first, the nearest misses before others.

    Parameters
    ----------
    counts
        Counts of the rows of each rule so far; the run takes them.
    rules
        Rules by name.
    """

    def __init__(self, counts: Mapping[str, FunnelCounts], rules: Mapping[str, Rule]) -> None:
        self._counts, self._rules = counts, rules

    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Show nothing before the end."""
        return False

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Take nothing: starts are listed to the end."""

    def show(self) -> None:
        """Print nothing before the end."""

    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the table of rules."""
        found = [furthest_step(name, counts) for name, counts in self._counts.items()]
        chains = [each for each in found if each.n_steps > 1]
        started = sorted((each for each in chains if each.n_starts), key=lambda each: each.order)
        shown = started[:SHOWN_RULES]
        if shown:
            table = {
                "rule": [each.name for each in shown],
                "level": [self._rules[each.name].level or "" for each in shown],
                "starts": right([f"{each.n_starts:,}" for each in shown]),
                "reached": [f"{each.furthest} of {each.n_steps}" for each in shown],
                "step": [each.step for each in shown],
                "so far": right([f"{each.n_furthest:,}" for each in shown]),
                "stopped by": [each.words for each in shown],
            }
            show_text(preview(pa.table(table), table_width()))
        if len(started) > len(shown):
            show_text(f"and {len(started) - len(shown):,} more rules (-o FILE has all rows)")
        complete = sum(each.is_complete for each in started)
        one_step = len(found) - len(chains)
        beside = f"; {counted(one_step, 'rule')} with one step" if one_step else ""
        show_text(
            f"of {counted(len(chains), 'rule')} with several steps, {len(started):,} started and {complete:,} "
            f"completed{beside}{so_far}"
        )
