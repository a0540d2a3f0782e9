"""Ranges of a stream of stored row groups, each with the window before it."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spark_glue.distribution import LEAST_INT64, MAX_INT64
from spark_glue.files.layout import CutPlace, Layout, SplitRange
from spark_glue.files.stored_events import DirectReadError


def ranges_of(
    layout: Layout,
    n_tasks: int,
    length: int,
    *,
    counts: bool,
    after_one: bool,
    presorted: bool,
    most_held: int,
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
        True: it is measured in events; False: in units of the first column of the order.
    after_one
        True: a range reads one row before its own at least, so that what must not decrease is seen to do so: rows
        between two ranges are then read together by the second one.
    presorted
        False: rows are never read as they lie, for some are no events.
    most_held
        Most rows to put in order in memory.
    times_read
        Most times that the rows are read by all tasks together.

    Raises
    ------
    DirectReadError
        If row groups overlap so much that tasks would read more than that.
    """
    cuts = _chosen_cuts(layout, n_tasks)
    whole = SplitRange(layout.units, presorted=presorted and layout.presorted, flows=layout.flows)
    stretches = [
        _range_after(layout, whole, begin, end, length, counts, after_one)
        for begin, end in itertools.pairwise([None, *cuts, None])
    ]
    n_read = sum(stretch.n_rows for stretch in stretches)
    if n_read > times_read * layout.n_rows:
        raise DirectReadError(
            f"row groups overlap, or the window is long: {len(stretches)} tasks would read {n_read:,} rows of "
            f"{layout.n_rows:,}"
        )
    return [_on_disk(layout, stretch, most_held) for stretch in stretches]


def _range_after(
    layout: Layout,
    whole: SplitRange,
    begin: CutPlace | None,
    end: CutPlace | None,
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
        # rows of the last row group that lies before the range are at or before its last one
        before = [unit.low for unit in layout.units[: begin.unit] if begin.clean or unit.high < begin.value]
        low = min(low, before[-1] if before else LEAST_INT64)
    window = tuple(unit for unit in layout.units[: begin.unit] if unit.high >= low)
    own = layout.units[begin.unit : last]
    if begin.clean:
        return replace(whole, units=window + own, n_before=len(window), begin=low, end=limit)
    return replace(whole, units=window + own, low=begin.value, begin=low, end=limit)


def _window_start(layout: Layout, begin: CutPlace, length: int, *, counts: bool) -> int:
    """Return a value such that the rows with it and larger ones hold the window before a cut."""
    if not counts:
        return max(begin.value - length, LEAST_INT64)
    n_rows = 0
    for unit in reversed(layout.units[: begin.unit]):
        if begin.clean or unit.high < begin.value:
            n_rows += unit.n_rows
        if n_rows >= length:
            return unit.low
    return LEAST_INT64


def _on_disk(layout: Layout, stretch: SplitRange, most_held: int) -> SplitRange:
    """Return a range that is sorted on disk if it may not fit the memory."""
    if layout.most_held(stretch.units, stretch.begin, stretch.end) <= most_held:
        return stretch
    if not stretch.n_before:
        return replace(stretch, on_disk=True)
    # row groups meet, so that the first value of the range tells its rows
    return replace(stretch, on_disk=True, low=stretch.units[stretch.n_before].low, n_before=0)


def _chosen_cuts(layout: Layout, n_tasks: int) -> list[CutPlace]:
    """Return cuts for ranges of about equal rows, ascending.

    A cut between row groups is taken where one is near; else row groups that overlap are cut at a value.
    """
    if not layout.units or n_tasks < 2:
        return []
    cuts = list(layout.cuts())
    values, before = _rows_before(layout)
    firsts = list(itertools.accumulate((unit.n_rows for unit in layout.units), initial=0))
    at = np.array([firsts[cut.unit] if cut.clean else np.interp(cut.value, values, before) for cut in cuts])
    found: list[CutPlace] = []
    for k in range(1, n_tasks):
        target = k * layout.n_rows / n_tasks
        cut = None
        if len(cuts):
            nearest = int(np.argmin(np.abs(at - target)))
            if abs(at[nearest] - target) <= layout.n_rows / (2 * n_tasks):
                cut = cuts[nearest]
        if cut is None:
            cut = _at_value(layout, int(np.interp(target, before, values)))
        if cut is None or (found and not _follows(found[-1], cut)):
            continue
        found.append(cut)
    return found


def _follows(before: CutPlace, cut: CutPlace) -> bool:
    """Return True if a cut comes after another one, with a row group or a value between them."""
    return cut.value > before.value or (cut.clean and before.clean and cut.unit > before.unit)


def _at_value(layout: Layout, value: int) -> CutPlace | None:
    """Return the cut at a value if several row groups have it; in a single one, it would only be read twice."""
    if sum(unit.low < value <= unit.high for unit in layout.units) < 2:
        return None
    return CutPlace(bisect_left([unit.low for unit in layout.units], value), value, clean=False)


def _rows_before(layout: Layout) -> tuple[Sequence[int], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Return ascending values, and about how many rows lie before each: those of a row group are spread evenly."""
    lows = np.array([unit.low for unit in layout.units], np.float64)
    ends = np.array([unit.high for unit in layout.units], np.float64) + 1
    ends = np.maximum(ends, np.nextafter(lows, np.inf))
    density = np.array([unit.n_rows for unit in layout.units], np.float64) / (ends - lows)
    places, slopes = np.concatenate([lows, ends]), np.concatenate([density, -density])
    by = np.argsort(places, kind="stable")
    places, slopes = places[by], np.cumsum(slopes[by])
    rows = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(places))])
    return places, np.maximum.accumulate(rows)  # type: ignore[return-value]
