"""Parts of one evaluation for several threads: ranges of the stream, or shards of the keys and queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from cer_gpu.engine.execution_group import ExecutionGroup
from cer_gpu.engine.query_execution import QueryExecution, RangeClock
from cer_gpu.stages import NO_STAGES

MAX_ON_THREADS = 16
"""Most queries of a set that is evaluated on several threads unasked."""
MIN_SHARD_QUERIES = 4
"""Fewest queries per shard if whole queries are distributed; else the keys of each query are."""

Tallies = Mapping[str, tuple[int, int, int]]
"""Counts of each query, as `QueryExecution.add_tallies` takes them."""


class StreamSplitter:
    """Factory of the groups that evaluate parts of a stream instead of one group, which takes over their counts.

    Parameters
    ----------
    group
        Group that evaluates nothing itself; it knows the schema.
    """

    def __init__(self, group: ExecutionGroup) -> None:
        self.group = group

    @property
    def has_many_queries(self) -> bool:
        """True if there are so many queries that threads wait for Python's lock, unless they have much to do."""
        return len(self.group.executions) > MAX_ON_THREADS

    @property
    def may_split(self) -> bool:
        """True if no event was read yet, and no option needs the whole stream."""
        options = self.group.options
        is_whole = options.lateness is None and options.shard is None and not options.position_column
        return is_whole and not self.group.input.n_pushed

    @property
    def window(self) -> RangeClock | None:
        """Window that a range of the stream needs before it, or None if ranges are not exact."""
        windows = [each.window for each in self.group.executions.values()]
        lengths = [window for window in windows if window is not None]
        if len(lengths) < len(windows) or len({column for column, _ in lengths}) != 1:
            return None
        return max(lengths, key=lambda window: window[1])

    @property
    def max_shards(self) -> int | None:
        """Maximum number of non-empty shards, or None if keys can be distributed to any number of shards."""
        by_key = any(each.distributed_by_key for each in self.group.executions.values())
        return None if by_key else len(self.group.executions)

    # ---- parts ----------------------------------------------------------------------------------------------

    def range_group(self, begin: int, report_from: int) -> ExecutionGroup:
        """Return a group for the stream from `begin` on that lists matches that end from `report_from` on."""
        return self._part_group(self.group.executions, start_position=begin, report_from=report_from)

    @staticmethod
    def restart(group: ExecutionGroup, begin: int, report_from: int) -> None:
        """Let a group of `range_group` begin another range."""
        group.restart(replace(group.options, start_position=begin, report_from=report_from))

    def shard_group(self, k: int, n: int) -> ExecutionGroup:
        """Return a group for the same stream and shard `k` of `n` of the work.

        That is a shard of the queries; where there are few, it is a shard of the keys of each query that can be
        distributed by key, and a shard of the other queries.
        """
        executions = self.group.executions
        many = len(executions) >= MIN_SHARD_QUERIES * n
        whole = [name for name, each in executions.items() if many or not each.distributed_by_key]
        own = {name: each for name, each in executions.items() if name not in whole or name in whole[k::n]}
        return self._part_group(own, whole, key_shard=(k, n))

    def _part_group(
        self, executions: Mapping[str, QueryExecution], whole: Collection[str] = (), **part: Any
    ) -> ExecutionGroup:
        """Return a group of the same queries with other options; the queries of `whole` have all keys."""
        group = self.group
        shared = None if group.shared is None else group.shared.clone()
        part |= {"stages": NO_STAGES, **group.options.of_first_part}  # the stages of one thread
        copies = {}
        for name, each in executions.items():
            options = replace(each.options, **(part | {"key_shard": None} if name in whole else part))
            copies[name] = each.clone(options, shared)
            copies[name].among_threads = True
        part_group = ExecutionGroup(copies, replace(group.options, **part), shared)
        assert group.schema is not None
        part_group.expect(group.schema)
        return part_group

    # ---- matches of the parts -------------------------------------------------------------------------------

    @staticmethod
    def first_pending(group: ExecutionGroup) -> dict[str, int]:
        """Return the first event that may still have a row, of the queries with rows in the order of their starts."""
        firsts = {name: each.first_pending for name, each in group.executions.items()}
        return {name: min(first, group.blocks.n_events) for name, first in firsts.items() if first is not None}

    @staticmethod
    def tallies(group: ExecutionGroup) -> Tallies:
        """Return the counts of each query."""
        return {name: (m.n_suppressed, m.n_undecided, m.n_without_key) for name, m in group.executions.items()}

    def count_pushed(self, n_rows: int) -> None:
        """Add to the number of pushed events."""
        self.group.input.n_pushed += n_rows

    def take_over(self, n_events: int, n_matches: Mapping[str, int], tallies: Tallies) -> None:
        """Take over the counts of a part that has evaluated the events before number `n_events`."""
        self.group.blocks.n_events = n_events
        for name, of_query in tallies.items():
            self.group.executions[name].add_tallies(*of_query)
        for name, n in n_matches.items():
            self.group.executions[name].add_matches(n)
