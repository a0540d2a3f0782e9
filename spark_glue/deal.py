"""How the rows of a stream are dealt to the tasks of a job, so that together they find what one process finds.

Every row gets its position in the whole stream first.  Then:

* *partition*: a task gets all rows of some keys of PARTITION BY.
* *range*: a task gets a range of positions and the window before it, and reports what ends in its range.
* *replicate*: every task gets all rows, and reports its share of the complex events (papers: the distributed
  algorithm).

What is here needs no Spark: which strategy a query allows, and what one task does with its rows.
"""

from __future__ import annotations

import bisect
import itertools
import math
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.planning.dealing import against_keys, against_ranges, at_or_before
from spark_glue.stage import plain
from spark_glue.survey import Stream

if TYPE_CHECKING:
    from cer_gpu import Evaluator
    from cer_gpu.query import Query

POSITION, PART = "$position", "$part"
"""Columns that are added to the rows: the position in the stream, and the part that a copy of a row goes to."""
PLACE = "$place"
"""The one column that goes to Python in their stead: the part times `PART_ROWS`, and the position."""
PART_ROWS = 1 << 44
"""More rows than a stream has."""
MOST_PARTS = 1 << 18

LEAST, MOST = -(2**63), 2**63 - 1
"""Of whole numbers."""

STRATEGIES = ("auto", "partition", "range", "replicate")


def choose(query: Query, strategy: str, first: str | None = None) -> tuple[str, str]:
    """Return the strategy for a query, and why it is this one.

    Parameters
    ----------
    query, strategy
    first
        The first column that orders the stream; None: that of times.

    Raises
    ------
    OptionError
        When it is not known, or not exact for the query: with the reason, and one that is.
    """
    if strategy not in STRATEGIES:
        hint = did_you_mean(str(strategy), STRATEGIES, "strategies")
        raise OptionError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}\nhint: {hint}")
    against = _against(query, first)
    allowed = [name for name, reason in against.items() if reason is None]
    if strategy == "auto":
        before = list(against.items())[: list(against).index(allowed[0])]
        reasons = [f"not {name}: {reason}" for name, reason in before]
        return allowed[0], "; ".join(reasons) or "the keys of PARTITION BY are independent of one another"
    if against[strategy] is not None:
        raise OptionError(
            f"strategy {strategy!r} would not give the rows of a single process: {against[strategy]}\n"
            f"hint: strategy={allowed[0]!r} (--strategy {allowed[0]})"
        )
    return strategy, "as asked"


def explain(query: Query, strategy: str = "auto") -> str:
    """Say how the events of a query are dealt to tasks, why, and what other ways there are.

    Raises
    ------
    OptionError
        As `choose`.
    """
    chosen, reason = choose(query, strategy)
    lines = [f"{chosen}: {_WAYS[chosen]}", f"  {reason}"]
    for name, against in _against(query, None).items():
        if name != chosen:
            lines.append(f"{name} would be exact too" if against is None else f"{name} would not be exact: {against}")
    return "\n".join(lines)


def times_beside(query: Query, first: str) -> list[str]:
    """Return the columns that must not decrease, but for the first of the order: tasks have to check that."""
    return [name for name in (query.time_column, query.clauses.window_column) if name not in (None, first)]


def _against(query: Query, first: str | None) -> dict[str, str | None]:
    """Return for each strategy why it is not exact for the query; None: it is."""
    clauses = query.clauses
    by_key = against_keys(clauses)
    unchecked = [] if first is None else times_beside(query, first)
    if by_key is None and unchecked:
        by_key = f"that {unchecked[0]!r} never decreases is to be seen only where the events of all keys are together"
    return {"partition": by_key, "range": against_ranges(clauses), "replicate": None}


_WAYS = {
    "partition": "each task gets all events of some keys",
    "range": "each task gets a range of the stream and the window before it, and reports what ends in its range",
    "replicate": "each task gets all events, and reports its share of the complex events",
}


@dataclass(frozen=True)
class Ranges:
    """The ranges of a stream, and what lies in the window before each.

    A row of range k goes to range k, and to every later range j up to k + `reach` with ``begins[j] <= where``, `where`
    being the position of the row for a window of events, and what the window is measured in otherwise.

    Attributes
    ----------
    firsts : tuple of int
        The first position of each range, ascending.
    begins : tuple of int or float
    reach : int
    """

    firsts: tuple[int, ...]
    begins: tuple[int | float, ...]
    reach: int


def ranges(
    firsts: Sequence[int], lows: Sequence[int | float], highs: Sequence[int | float], length: int | float
) -> Ranges:
    """Return the ranges that begin at some positions.

    Parameters
    ----------
    firsts
        The first position of each range, ascending.
    lows
        For each range a value that is not above `where` of its first row.
    highs
        For each range a value that is not below `where` of its last row.
    length
        Of the window, in units of `where`.
    """
    whole = all(isinstance(value, int) for value in (*lows, length))
    begins = [max(low - length, LEAST) if whole else at_or_before(low, length) for low in lows]
    last_of = [bisect.bisect_right(begins, high) - 1 for high in highs]
    reach = max((last - k for k, last in enumerate(last_of)), default=0)
    return Ranges(tuple(firsts), tuple(begins), max(reach, 0))


def even_ranges(stream: Stream, n_parts: int, length: int | float, *, by_position: bool) -> Ranges:
    """Return ranges of like size of a stream that lies in order; range k begins at ``ceil(k * n_rows / n_parts)``."""
    firsts = [-(-k * stream.n_rows // n_parts) for k in range(n_parts)]
    ends = [*firsts[1:], stream.n_rows]
    if by_position or not stream.n_rows:
        return ranges(firsts, firsts, [end - 1 for end in ends], length)
    wheres = stream.wheres
    at = np.searchsorted(stream.positions, firsts, "right") - 1
    after = np.searchsorted(stream.positions, ends, "left")
    highs = [wheres[i] if i < len(wheres) else math.inf for i in after]
    return ranges(firsts, [wheres[i] for i in at], highs, length)


@dataclass(frozen=True)
class Done:
    """What became of one part.

    Attributes
    ----------
    n_rows, n_found
        Rows that were read, those of the window before a range too, and complex events.
    seconds
        Of the evaluation, without the wait for rows.
    peak_memory
        Of the worker's process so far, in bytes.
    """

    n_rows: int
    n_found: int
    seconds: float
    peak_memory: int


@dataclass(frozen=True)
class Task:
    """What a task does with its rows, which are ordered by `PLACE`: part after part, each in the order of the stream.

    A class, because pickle refers to it by name.

    Attributes
    ----------
    query, output
    strategy : str
        "partition", "range" or "replicate".
    columns : tuple of str
        What the columns of the rows that come with `PLACE` are called in the events, one after the other.
    firsts : tuple of int
        For "range", the first position of each part.
    n_parts : int
    report
        Called with a dictionary of `Done` by part when a part is done; an accumulator's ``add``, if anything.
    """

    query: Query
    output: str
    strategy: str
    columns: tuple[str, ...]
    firsts: tuple[int, ...]
    n_parts: int
    report: Any = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the complex events of the parts that the rows are of."""
        part: _Part | None = None
        for batch in batches:
            numbers, positions = np.divmod(batch.column(PLACE).to_numpy(), PART_ROWS)
            bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
            arrays = [*batch.drop_columns([PLACE]).columns, pa.array(positions)]
            rows = pa.RecordBatch.from_arrays(arrays, [*self.columns, POSITION])
            for begin, end in itertools.pairwise(bounds):
                if begin == end:
                    continue
                if part is None or numbers[begin] != part.number:
                    if part is not None:
                        yield from self._finish(part)
                    part = _Part(int(numbers[begin]), self._evaluator(int(numbers[begin])))
                yield from part.timed(part.evaluator.push_batches(rows.slice(begin, end - begin)))
        if part is not None:
            yield from self._finish(part)

    def _evaluator(self, part: int) -> Evaluator:
        share = (part, self.n_parts) if self.strategy == "replicate" else None
        first = self.firsts[part] if self.strategy == "range" else 0
        return self.query.evaluator(output=self.output, position_column=POSITION, share=share, first_end=first)

    def _finish(self, part: _Part) -> Iterator[pa.RecordBatch]:
        yield from part.timed(part.evaluator.finish_batches())
        if self.report is not None:
            found = part.evaluator
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
            self.report.add({part.number: Done(found.n_events, found.n_matches, part.seconds, peak)})


class _Part:
    """A part that is under way."""

    def __init__(self, number: int, evaluator: Evaluator) -> None:
        self.number = number
        self.evaluator = evaluator
        self.seconds = 0.0

    def timed(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches as Spark wants them, and count the time that they take."""
        while True:
            begun = time.perf_counter()
            batch = next(found, None)
            self.seconds += time.perf_counter() - begun
            if batch is None:
                return
            yield plain(batch)
