"""Pieces of the work on stored events: each reads row groups by itself, and together they find what one process finds.

See `plan`.  A range of the stream reads the window before it, too.  This module needs no Spark.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.columns import BOOLEAN, FLOAT, INTEGER, STRING, TEMPORAL, kind_of
from cer_gpu.columnar.fields import column_type
from cer_gpu.errors import QueryTypeError
from cer_gpu.order.row_column import ROW_COLUMN
from spark_glue.distribution import DISTRIBUTIONS, MAX_SHARDS, POSITION, choose_distribution, times_beside
from spark_glue.files.file_plan import FilePlan, Limits, Part, Piece
from spark_glue.files.layout import CutPoint, Layout, SplitRange, Unit, unit_of
from spark_glue.files.opening import Opener
from spark_glue.files.stored_events import DirectReadError, FileFooters
from spark_glue.stage import plain_schema
from spark_glue.survey import LEAST_INT64, MAX_INT64

if TYPE_CHECKING:
    from spark_glue.work import Work


SMALL_STREAM, MOST_TOGETHER = 1 << 16, 1 << 20
"""Rows of a stream up to which it is evaluated with others: the start of an evaluation takes as long as some of these;
and rows up to which streams are evaluated together."""
PER_TASK = 4
"""Fewest evaluations of small streams together for each task, so that tasks get about equal rows."""


def ranges_of(
    layout: Layout,
    n_tasks: int,
    length: int,
    *,
    counts: bool,
    after_one: bool,
    presorted: bool,
    max_buffered_rows: int,
    times_read: int,
) -> list[SplitRange]:
    """Return ranges of a stream, of about equal rows: at most one for each task.

    Parameters
    ----------
    layout
    n_tasks
    length
        Length of the window.
    counts
        True if it is measured in events, False if in units of the first column of the order.
    after_one
        True if a range reads at least one row before its own, so that a decrease of the time is detected: rows
        between two ranges are then read together by the second one.
    presorted
        False if rows are never read in stored order, for some are no events.
    max_buffered_rows
        Maximum rows to sort in memory.
    times_read
        Most times that the rows are read by all tasks together.

    Raises
    ------
    DirectReadError
        If row groups overlap so much that tasks would read more than that.
    """
    cuts = _chosen_cuts(layout, n_tasks)
    whole = SplitRange(layout.units, presorted=presorted and layout.presorted, flows=layout.flows)
    split_ranges = [
        _range_after(layout, whole, begin, end, length, counts, after_one)
        for begin, end in itertools.pairwise([None, *cuts, None])
    ]
    n_read = sum(split_range.n_rows for split_range in split_ranges)
    if n_read > times_read * layout.n_rows:
        raise DirectReadError(
            f"row groups overlap, or the window is long: {len(split_ranges)} tasks would read {n_read:,} rows of "
            f"{layout.n_rows:,}"
        )
    return [_on_disk(layout, split_range, max_buffered_rows) for split_range in split_ranges]


def _range_after(
    layout: Layout,
    whole: SplitRange,
    begin: CutPoint | None,
    end: CutPoint | None,
    length: int,
    counts: bool,
    after_one: bool,
) -> SplitRange:
    """Return the range between two cuts (None for the ends of the stream) with its window."""
    last = len(layout.units) if end is None else end.unit
    limit = MAX_INT64 + 1 if end is None or end.clean else end.value
    if begin is None:
        return replace(whole, units=layout.units[:last], end=limit)
    low = _window_start(layout, begin, length, counts=counts)
    if after_one:
        # rows of the last row group before the range are at or before its last one
        units = reversed(range(begin.unit))
        before = (layout.units[i] for i in units if begin.clean or layout.units[i].high < begin.value)
        last_before = next(before, None)
        low = min(low, LEAST_INT64 if last_before is None else last_before.low)
    window = layout.reaching(begin.unit, low)
    own = layout.units[begin.unit : last]
    if begin.clean:
        return replace(whole, units=window + own, n_before=len(window), begin=low, end=limit)
    return replace(whole, units=window + own, low=begin.value, begin=low, end=limit)


def _window_start(layout: Layout, begin: CutPoint, length: int, *, counts: bool) -> int:
    """Return a value such that the rows with it and larger ones hold the window before a cut."""
    if not counts:
        return max(begin.value - length, LEAST_INT64)
    n_rows = 0
    for i in reversed(range(begin.unit)):
        unit = layout.units[i]
        if begin.clean or unit.high < begin.value:
            n_rows += unit.n_rows
        if n_rows >= length:
            return unit.low
    return LEAST_INT64


def _on_disk(layout: Layout, split_range: SplitRange, max_buffered_rows: int) -> SplitRange:
    """Return a range that is sorted on disk if it may exceed the memory."""
    if layout.max_buffered_rows(split_range.units, split_range.begin, split_range.end) <= max_buffered_rows:
        return split_range
    if not split_range.n_before:
        return replace(split_range, on_disk=True)
    # row groups overlap, so that the first value of the range separates its rows
    return replace(split_range, on_disk=True, low=split_range.units[split_range.n_before].low, n_before=0)


def _chosen_cuts(layout: Layout, n_tasks: int) -> list[CutPoint]:
    """Return cuts for ranges of about equal rows, ascending.

    A cut between row groups is taken where one is near; else row groups that overlap are cut at a value.
    """
    if not layout.units or n_tasks < 2:
        return []
    cuts = list(layout.cuts())
    values, before = _rows_before(layout)
    lows, highs = (np.array([getattr(unit, name) for unit in layout.units]) for name in ("low", "high"))
    firsts = list(itertools.accumulate((unit.n_rows for unit in layout.units), initial=0))
    counted = np.array([firsts[cut.unit] for cut in cuts], np.float64)
    estimated = np.interp([cut.value for cut in cuts], values, before)
    at = np.where([cut.clean for cut in cuts], counted, estimated)
    chosen: list[CutPoint] = []
    for k in range(1, n_tasks):
        target = k * layout.n_rows / n_tasks
        cut = None
        if len(cuts):
            nearest = int(np.argmin(np.abs(at - target)))
            if abs(at[nearest] - target) <= layout.n_rows / (2 * n_tasks):
                cut = cuts[nearest]
        if cut is None:
            cut = _at_value(lows, highs, int(np.interp(target, before, values)))
        if cut is None or (chosen and not _follows(chosen[-1], cut)):
            continue
        chosen.append(cut)
    return chosen


def _follows(before: CutPoint, cut: CutPoint) -> bool:
    """Return True if a cut comes after another one, with a row group or a value between them."""
    return cut.value > before.value or (cut.clean and before.clean and cut.unit > before.unit)


def _at_value(lows: Int64, highs: Int64, value: int) -> CutPoint | None:
    """Return the cut at a value if several row groups have it; in a single one, it would only be read twice.

    `lows`, ascending, and `highs` are the bounds of the row groups.
    """
    if np.count_nonzero((lows < value) & (value <= highs)) < 2:
        return None
    return CutPoint(int(np.searchsorted(lows, value)), value, clean=False)


def _rows_before(layout: Layout) -> tuple[Sequence[int], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Return ascending values, and about how many rows are before each: rows of a row group are spread evenly."""
    lows = np.array([unit.low for unit in layout.units], np.float64)
    ends = np.array([unit.high for unit in layout.units], np.float64) + 1
    ends = np.maximum(ends, np.nextafter(lows, np.inf))
    density = np.array([unit.n_rows for unit in layout.units], np.float64) / (ends - lows)
    places, slopes = np.concatenate([lows, ends]), np.concatenate([density, -density])
    by = np.argsort(places, kind="stable")
    places, slopes = places[by], np.cumsum(slopes[by])
    rows = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(places))])
    return places, np.maximum.accumulate(rows)  # type: ignore[return-value]


@dataclass(frozen=True)
class _SplitPlan:
    """Stretches of each piece by one distribution, with words on them."""

    work: Work
    split_ranges: Sequence[tuple[SplitRange, ...]]
    way: str
    sharded_by: str | None = None


def plan(
    footers: FileFooters,
    work: Work,
    order: Sequence[str],
    distribution: str,
    n_tasks: int,
    *,
    limits: Limits | None = None,
    opener: Opener | None = None,
) -> FilePlan:
    """Plan a job over stored events.

    Ways, the first exact one of which "auto" takes:

    * *range*: a piece reads a range of the stream and the window before it.  Ranges begin between row groups where
      these do not overlap, else at a value of the first column of the order; row groups around it are read twice.
    * *key*: a piece reads folders or buckets of some keys; or all rows, and evaluates its shard of the keys.
    * *broadcast*: a piece reads all rows, and reports its shard of the matches.

    Parameters
    ----------
    footers
    work
    order
        Columns that order the stream.
    distribution
        "auto", "range", "key" or "broadcast".
    n_tasks
        Most pieces; with one, it reads the whole stream.
    limits, opener
        If None, the usual ones, and the opener of the scan.

    Raises
    ------
    OptionError
        If the distribution is unknown, or not exact.
    QueryTypeError
        If a query does not match the schema of the events, or the first column of the order is NULL somewhere.
    DirectReadError
        If tasks cannot read the files by themselves, or not fast enough.
    """
    limits = limits or Limits()
    schema = footers.scan.schema
    work.columns(schema)  # refuses work that does not match the schema
    _check_order(footers, order)
    n_tasks = min(n_tasks, MAX_SHARDS)
    units = [unit_of(group, footers.files[group.file].first) for group in footers.groups]
    layout = Layout.from_units(units, single=len(order) == 1)
    chosen, reason, distributed = _choose_distribution(footers, work, order, distribution, n_tasks, limits, layout)
    pieces = [piece for each in distributed for piece in _pieces_of(each, footers, order)]
    return FilePlan(
        footers=replace(footers, groups=()),
        order=tuple(order),
        distribution=chosen,
        reason=reason,
        way="; ".join(each.way for each in distributed),
        presorted=not layout.overlaps,
        in_order=_order_words(layout, pieces, footers.scan.drops_rows),
        pieces=tuple(pieces),
        schema=plain_schema(work.output_schema(schema)),
        limits=limits,
        opener=opener or Opener(footers.scan.options),
    )


def _pieces_of(distributed: _SplitPlan, footers: FileFooters, order: Sequence[str]) -> list[Piece]:
    """Return the pieces of some work."""
    work = distributed.work
    may_skip = not footers.scan.drops_rows and not times_beside(work, order[0])
    part = Part(
        work=work,
        columns=tuple(work.columns(footers.scan.schema)),
        types=work.needed_types if may_skip else None,
        sharded_by=distributed.sharded_by,
        n_pieces=len(distributed.split_ranges),
    )
    return [Piece(split_ranges, part, number) for number, split_ranges in enumerate(distributed.split_ranges)]


def _check_order(footers: FileFooters, order: Sequence[str]) -> None:
    schema = footers.scan.schema
    for name in (POSITION, ROW_COLUMN):
        if name in schema.names:
            raise QueryTypeError(f"the events have a column {name!r}, a name that is needed here", hint="rename it")
    for i, name in enumerate(order):
        kind = column_type(schema, name, None, None)
        allowed = (INTEGER, TEMPORAL) if i == 0 else (INTEGER, TEMPORAL, BOOLEAN, STRING, FLOAT)
        is_length = pa.types.is_duration(kind) or pa.types.is_time(kind)
        if kind_of(kind) not in allowed or is_length:
            raise DirectReadError(f"the stream is ordered by {dotted(name)!r}, which is {kind}")
    n_nulls = sum(group.n_nulls for group in footers.groups)
    if n_nulls and not footers.scan.drops_rows:
        raise QueryTypeError(
            f"the stream is ordered by {dotted(order[0])!r}, which is NULL in {n_nulls:,} of {footers.n_rows:,} rows",
            hint="leave such events out, or give them a value",
        )


# ---- distributions ---------------------------------------------------------------------------------------------------


def _choose_distribution(
    footers: FileFooters,
    work: Work,
    order: Sequence[str],
    distribution: str,
    n_tasks: int,
    limits: Limits,
    layout: Layout,
) -> tuple[str, str, list[_SplitPlan]]:
    """Return the distribution, the reason for it, and the ranges; of several works where the parts of one differ."""
    exact = work.distribution.tasks
    if distribution not in DISTRIBUTIONS or (distribution != "auto" and exact[distribution] is not None):
        choose_distribution(work, distribution)  # raises
    if n_tasks == 1:
        chosen = next(name for name in ("range", "key", "broadcast") if exact[name] is None)
        words = "one task reads the whole stream"
        distributed = _SplitPlan(work, [(_whole_stream(layout, footers, limits),)], words)
        return chosen if distribution == "auto" else distribution, words, [distributed]
    reasons = {
        "range": why_not_ranges(footers, work, order),
        "key": _why_not_partition(footers, work, order, n_tasks),
        "broadcast": None,
    }
    args = (footers, order, n_tasks, limits, layout)
    if distribution != "auto":
        if (why := reasons[distribution]) is not None:
            raise DirectReadError(f"distribution {distribution!r} is not exact by files: {why}")
        return distribution, "as asked", [_distribute(distribution, work, *args)]
    chosen = next(name for name, why in reasons.items() if why is None)
    before = [f"not {name}: {why}" for name, why in reasons.items() if why is not None and name != chosen]
    reason = "; ".join(before[: list(reasons).index(chosen)])
    if chosen == "broadcast" and (both := _range_and_broadcast(work, *args)) is not None:
        return "range", f"for {both[0].work.n_queries} of {work.n_queries} queries; {reasons['range']}", both
    reason = reason or "a range needs only the window before it, whatever the keys"
    return chosen, reason, [_distribute(chosen, work, *args)]


def _range_and_broadcast(
    work: Work, footers: FileFooters, order: Sequence[str], n_tasks: int, limits: Limits, layout: Layout
) -> list[_SplitPlan] | None:
    """Distribute the queries of a set for which ranges are exact by range, and the others as shards of the queries.

    Return None if there are no such queries, the row groups make too few ranges, or the tasks would read as much
    together as if each read all events.
    """
    ranged, rest = work.parted(lambda each: why_not_ranges(footers, each, order) is None)
    if ranged is None or rest is None:
        return None
    n_shards = min(n_tasks, rest.n_queries)
    if 1 + n_shards >= n_tasks:  # passes over the events
        return None
    try:
        by_range = _distribute("range", ranged, footers, order, n_tasks, limits, layout)
    except DirectReadError:
        return None
    if len(by_range.split_ranges) <= n_tasks // 2:
        return None
    by_shard = _distribute("broadcast", rest, footers, order, n_shards, limits, layout)
    return [by_range, replace(by_shard, way="others read all events, and have a share of the other queries")]


def why_not_ranges(footers: FileFooters, work: Work, order: Sequence[str]) -> str | None:
    """Return the reason why ranges of the files are not exact, or None if they are."""
    reasons = work.distribution.why_not_ranges
    if reasons is not None:
        return reasons
    first, filters = order[0], footers.scan.drops_rows
    assert work.window is not None
    column = work.window.column
    if column is None and filters:
        return "WITHIN n EVENTS counts the events that pass the filters, which no footer tells"
    if column is not None and column != first:
        return f"the window is measured by {dotted(column)!r}, and the stream is ordered by {dotted(first)!r}"
    beside = times_beside(work, first)
    if beside and filters:
        return f"that {dotted(beside[0])!r} never decreases is to be seen only where all events that pass are together"
    return None


def _why_not_partition(footers: FileFooters, work: Work, order: Sequence[str], n_tasks: int) -> str | None:
    reasons = work.distribution.why_not_keys or work.distribution.why_not_key_tasks
    if reasons is not None:
        return reasons
    if streams_of(footers, work, order) is None and n_tasks > work.max_key_shards:
        return f"each of {n_tasks} tasks would read all events, as no folder or bucket tells the keys"
    return None


def _distribute(
    distribution: str,
    work: Work,
    footers: FileFooters,
    order: Sequence[str],
    n_tasks: int,
    limits: Limits,
    layout: Layout,
) -> _SplitPlan:
    if distribution == "range":
        length = work.window_units(footers.scan.schema)
        assert work.window is not None
        assert length is not None
        split_ranges = ranges_of(
            layout,
            n_tasks,
            int(length),
            counts=work.window.column is None,
            after_one=bool(times_beside(work, order[0])),
            presorted=not footers.scan.drops_rows,
            max_buffered_rows=limits.buffered_rows,
            times_read=limits.times_read,
        )
        ranges = [(split_range,) for split_range in split_ranges]
        return _SplitPlan(work, ranges, "each task reads a range of the stream and the window before it")
    if distribution == "key" and (streams := streams_of(footers, work, order)) is not None:
        return _distribute_streams(work, streams, footers, n_tasks, limits, layout.single)
    whole = _whole_stream(layout, footers, limits)
    if whole.on_disk:
        raise DirectReadError(f"row groups overlap, so that each of {n_tasks} tasks would sort {layout.n_rows:,} rows")
    everything = [(whole,)] * n_tasks
    if distribution == "key":
        return _SplitPlan(work, everything, "each task reads all events, and evaluates its share of the keys", "keys")
    return _SplitPlan(work, everything, f"each task reads all events, and {work.shard_description}", "ends")


def _whole_stream(layout: Layout, footers: FileFooters, limits: Limits) -> SplitRange:
    """Return the whole of a stream."""
    split_range = SplitRange(
        layout.units, presorted=layout.presorted and not footers.scan.drops_rows, flows=layout.flows
    )
    on_disk = layout.max_buffered_rows(layout.units, split_range.begin, split_range.end) > limits.buffered_rows
    return SplitRange(layout.units, presorted=split_range.presorted, flows=split_range.flows, on_disk=on_disk)


def streams_of(footers: FileFooters, work: Work, order: Sequence[str]) -> Mapping[tuple[Any, ...], list[int]] | None:
    """Return the files of each stream that folders or buckets separate by the keys of PARTITION BY.

    Return None if they do not, or the events of all streams must be together.  Files of a folder for NULL are left out:
    an event without a key is in no partition.
    """
    if times_beside(work, order[0]):
        return None
    scan = footers.scan
    # a bracket of several names takes the first that is not NULL, which may be another one than the folder's
    single_names = [
        names[0] for names in work.partition_keys if len(names) == 1 and names not in work.nullable_partition_keys
    ]
    keys = {name: scan.stored.get(name, name) for name in single_names}
    of_folders = [stored for stored in keys.values() if stored in scan.folders]
    stored = set(keys.values())
    shown = {stored: name for name, stored in keys.items()}
    by_bucket = (
        bool(scan.bucket_by)
        and set(scan.bucket_by) <= stored
        and all(file.bucket is not None for file in footers.files)
        and not any(kind_of(column_type(scan.schema, shown[name], None, None)) == FLOAT for name in scan.bucket_by)
    )
    if not of_folders and not by_bucket:
        return None
    streams: dict[tuple[Any, ...], list[int]] = {}
    for i, file in enumerate(footers.files):
        values = dict(file.values)
        key = tuple(_self_equal_value(values[name]) for name in of_folders)
        if None not in key:
            streams.setdefault((*key, file.bucket if by_bucket else None), []).append(i)
    return streams


def _self_equal_value(value: Any) -> Any:
    """Return a value that equals itself: there is one NaN."""
    return value if value == value else "NaN"


def _distribute_streams(
    work: Work,
    streams: Mapping[tuple[Any, ...], list[int]],
    footers: FileFooters,
    n_tasks: int,
    limits: Limits,
    single: bool,
) -> _SplitPlan:
    """Distribute the streams to pieces of about equal rows."""
    stream_of = {file: i for i, files in enumerate(streams.values()) for file in files}
    units: list[list[Unit]] = [[] for _ in streams]
    for group in footers.groups:
        if group.file in stream_of:
            units[stream_of[group.file]].append(unit_of(group, footers.files[group.file].first))
    whole = [
        _whole_stream(Layout.from_units(each, single=single), footers, limits)
        for each in _bundled_streams(units, n_tasks, limits)
    ]
    loads = [(0, i) for i in range(n_tasks)]
    distributed: list[list[SplitRange]] = [[] for _ in range(n_tasks)]
    for split_range in sorted(whole, key=lambda split_range: -split_range.n_rows):
        n_rows, i = heapq.heappop(loads)
        distributed[i].append(split_range)
        heapq.heappush(loads, (n_rows + split_range.n_rows, i))
    split_ranges = [tuple(each) for each in distributed if each] or [()]
    what = "buckets" if footers.scan.bucket_by and next(iter(streams), (None,))[-1] is not None else "folders"
    return _SplitPlan(work, split_ranges, f"each task reads {what} of some keys")


def _bundled_streams(streams: Sequence[list[Unit]], n_tasks: int, limits: Limits) -> list[list[Unit]]:
    """Return the row groups of streams, small streams together: a task sorts these, and evaluates them at once."""
    sizes = [sum(unit.n_rows for unit in units) for units in streams]
    n_most = min(sum(sizes) // (PER_TASK * n_tasks), MOST_TOGETHER, limits.buffered_rows)
    together: list[list[Unit]] = []
    small: list[Unit] = []
    n_small = 0
    for units, n_rows in zip(streams, sizes, strict=True):
        if n_rows > min(SMALL_STREAM, limits.buffered_rows):
            together.append(units)
            continue
        if small and n_small + n_rows > n_most:
            together.append(small)
            small, n_small = [], 0
        small.extend(units)
        n_small += n_rows
    return [units for units in (*together, small) if units]


def _order_words(layout: Layout, pieces: Sequence[Piece], filtered: bool) -> str:
    """Return a description of how the rows are sorted."""
    if layout.presorted:
        return "the rows are in order as they lie, which tasks check as they read"
    words = "row groups overlap, and tasks merge them" if layout.overlaps else "row groups are read in their order"
    if any(split_range.on_disk for piece in pieces for split_range in piece.split_ranges):
        words += ", sorted on disk"
    n_read = sum(piece.n_rows for piece in pieces)
    if n_read > layout.n_rows:
        words += f"; {n_read:,} rows are read of {layout.n_rows:,}"
    return words
