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
"""Maximum number of rules in a table."""
SUMMED = 5
"""Maximum number of tactics, rules and hosts in the summary."""
MIN_RULES = 5
"""Rules of a level that a table shows even if there are many more urgent ones."""


@contextlib.contextmanager
def sorted_by_end(sink: Sink, schema: pa.Schema) -> Iterator[Sink]:
    """Yield a sink that buffers alerts, and writes them to `sink` at the end of the block, sorted by their ends."""
    buffer = _MemorySink()
    yield buffer
    for batch in in_order_of_ends(buffer.batches, schema).to_batches():
        sink.write(batch)


class TimelineSink:
    """Sink that writes alerts to another one as rows of a timeline."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Write rows."""
        self._sink.write(timeline_rows(batch))


class _MemorySink:
    """Sink in memory."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Buffer rows."""
        self.batches.append(batch)


def by_level(numbers: Mapping[str, int], rules: Mapping[str, Rule]) -> dict[str, int]:
    """Return the number of alerts of each level, given those of each rule; the most urgent level first."""
    counts: dict[str, int] = {}
    for name in sorted(numbers, key=lambda name: urgency(rules[name].level)):
        if numbers[name]:
            level = rules[name].level or NO_LEVEL
            counts[level] = counts.get(level, 0) + numbers[name]
    return counts


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
        """Count the hosts of matches of a rule."""
        for each in pc.value_counts(hosts_of(batch).drop_null()).to_pylist():
            self._hosts[each["values"]] += each["counts"]

    def counts(self, numbers: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Return the counts by kind; the most frequent first, except levels, where the most urgent comes first.

        Parameters
        ----------
        numbers
            Number of alerts of each rule.  A rule of several tactics counts for each.
        """
        tactics: Counter[str] = Counter()
        for name, n in numbers.items():
            tactics.update(dict.fromkeys(self._rules[name].tactics or (NO_TACTIC,), n))
        by_number = {"tactics": +tactics, "rules": Counter(numbers), "hosts": self._hosts}
        most_common = {by: {name: n for name, n in of.most_common() if n} for by, of in by_number.items()}
        return {"levels": by_level(numbers, self._rules), **most_common}


def lines_of(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return counts, a line for each kind, with its first `SUMMED` items."""
    lines = []
    for by, of in counts.items():
        first = [f"{name} {n:,}" for name, n in list(of.items())[:SUMMED]]
        first += [f"and {len(of) - SUMMED:,} more"] * (len(of) > SUMMED)
        if first:
            lines.append(f"{by}: {', '.join(first)}")
    return lines


def first_by_level(names: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the first names of each level, `SHOWN_RULES` in total: urgent levels first, but some of each."""
    n_min = {level: min(len(own), MIN_RULES) for level, own in names.items()}
    n_free = max(SHOWN_RULES - sum(n_min.values()), 0)
    shown = {}
    for level, own in names.items():
        more = min(n_free, len(own) - n_min[level])
        n_free -= more
        shown[level] = list(own[: n_min[level] + more])
    return shown


class AlertTable(QueryTable):
    """The number of alerts of each rule with alerts, and the first and last end, shown at the end.

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
            hidden = {level: len(own) - len(first[level]) for level, own in levels.items()}
            listed = ", ".join(f"{n:,} {level}" for level, n in hidden.items() if n)
            show_text(f"and {counted(len(raised) - len(shown), 'more rule')}: {listed} (-o FILE has all alerts)")
        level_counts = ", ".join(f"{n:,} {level}" for level, n in by_level(numbers, self._rules).items())
        show_text(f"{len(raised):,} {of_all} raised {counted(sum(numbers.values()), 'alert')}: {level_counts}{so_far}")


def _without_zero_fraction(time: str) -> str:
    """Return a time without a zero fraction."""
    return re.sub(r"\.0+(?=Z?$)", "", time)


class NearMisses(Preview):
    """The furthest step that the events reached of each rule with several steps, shown at the end.

    Rules whose last step was not reached come first, the nearest misses before others.

    Parameters
    ----------
    counts
        Counts of the rows of each rule so far; the run updates them.
    rules
        Rules by name.
    """

    def __init__(self, counts: Mapping[str, FunnelCounts], rules: Mapping[str, Rule]) -> None:
        self._counts, self._rules = counts, rules

    def take(self, name: str, batch: pa.RecordBatch) -> bool:
        """Show nothing before the end."""
        return False

    def take_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """Do nothing: starts are listed to the end."""

    def show(self) -> None:
        """Print nothing before the end."""

    def finish(self, totals: Totals, so_far: str = "") -> None:
        """Print the table of rules."""
        furthest = [furthest_step(name, counts) for name, counts in self._counts.items()]
        chains = [each for each in furthest if each.n_steps > 1]
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
        one_step = len(furthest) - len(chains)
        beside = f"; {counted(one_step, 'rule')} with one step" if one_step else ""
        show_text(
            f"of {counted(len(chains), 'rule')} with several steps, {len(started):,} started and {complete:,} "
            f"completed{beside}{so_far}"
        )
