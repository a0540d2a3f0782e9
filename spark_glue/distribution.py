"""Distributions of the rows of a stream to the tasks of a job, which together find the matches of one process.

Each task gets the rows of a part, sorted, and counts them from the position of the first one:

* *key*: a task gets all rows of some keys of PARTITION BY.
* *range*: a task gets a range of positions and the window before it, and reports what ends in its range.
* *broadcast*: every task gets all rows, and reports its shard of the matches (papers: the distributed
  algorithm).

This module needs no Spark: it chooses the distribution of a query, and evaluates the rows of one task.
"""

from __future__ import annotations

import bisect
import itertools
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.fields import batch_of
from cer_gpu.engine.evaluation_options import EvaluationOptions, check_positions
from cer_gpu.errors import OptionError, QueryTypeError, did_you_mean
from cer_gpu.planning.distribution import at_or_before
from spark_glue.sessions import short
from spark_glue.stage import plain_batch
from spark_glue.survey import LEAST_INT64, Ranges

if TYPE_CHECKING:
    from spark_glue.work import Work, WorkEvaluator

_Result = TypeVar("_Result")

POSITION, PART = "$position", "$part"
"""Columns added to the rows: the position in the stream, and the part that a copy of a row goes to."""
PLACE = "$place"
"""Column that replaces both on the way to Python: the part times `PART_ROWS`, plus the position."""
PART_ROWS = 1 << 44
"""Upper bound of the rows of a stream."""
PART_MATCHES = 1 << 44
"""Upper bound of the matches of a part."""
MAX_SHARDS = 1 << 18

DISTRIBUTIONS = ("auto", "key", "range", "broadcast")
"""Distributions of the events of a job to its tasks."""
SOURCES = ("auto", "files", "rows")
"""Ways of events to tasks: these read files by themselves, or Spark sends them the rows."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of a job, which `match`, `run` and `explain` take by their names.

    Parameters
    ----------
    order_by
        The columns that order the stream; the first is a timestamp, date or number.  Rows of Parquet files that agree
        on all of them keep the order of their files (by path); others are ordered by their other columns, so that the
        result does not depend on the order in which they arrive.
    distribution
        "key", "range", "broadcast" (see `spark_glue.distribution`), or "auto": the first of them that
        is exact for the query; of files, a range goes before a partition.
    tasks
        Number of parts; None for as many as the session runs at once.
    output
        As for ``query.evaluate``; by default (None) "measures" where SELECT has some, else "events".  The numbers of
        "rows" are unique, and consecutive within a task.  For a set, as in `QuerySet.evaluate`.
    source
        "files": tasks read the files by themselves, and only results pass through Spark; "rows": Spark reads the rows
        and sends them to tasks; "auto": "files" where tasks can (`explain` gives the reason where they cannot).
    row_numbers
        True: positions by rows are the numbers of the rows in the stream, as in one process, which by key takes a sort
        of all rows.  By default each identifies an event, and they ascend in the order of the stream, by key within
        each key; they count only the events that tasks need.  By files they are always row numbers.
    """

    order_by: str | Sequence[str] | None = None
    distribution: str = "auto"
    tasks: int | None = None
    output: str | None = None
    source: str = "auto"
    row_numbers: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """Columns that order the stream.

        Raises
        ------
        OptionError
            When there are none.
        """
        order = (self.order_by,) if isinstance(self.order_by, str) else tuple(self.order_by or ())
        if not order:
            raise OptionError("order_by names no column: expected those that order the stream, such as order_by='ts'")
        return order

    def n_parts(self, at_once: Callable[[], int]) -> int:
        """Return the number of parts, by default as many as run at once, once the source was checked, too."""
        if self.source not in SOURCES:
            hint = did_you_mean(str(self.source), SOURCES, "sources")
            raise OptionError(f"source must be one of {', '.join(SOURCES)}, got {self.source!r}\nhint: {hint}")
        n_parts = at_once() if self.tasks is None else self.tasks
        if type(n_parts) is not int or n_parts < 1:
            raise OptionError(f"tasks must be a positive number, got {self.tasks!r}")
        if n_parts > MAX_SHARDS:
            raise OptionError(f"at most {MAX_SHARDS:,} tasks, got {n_parts:,}")
        return n_parts


def taking_job_options(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Let a function with a record of options take them by their names."""
    option_names = [field.name for field in fields(JobOptions)]
    parameters = [each for each in signature(function).parameters.values() if each.name != "options"]
    own = [each.name for each in parameters]
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY) for name in option_names]

    @wraps(function)
    def taking(*arguments: Any, **keywords: Any) -> _Result:
        check_positions(function.__name__, parameters, arguments)
        named = dict(keywords)
        for name in named:
            if name not in option_names and name not in own:
                hint = did_you_mean(name, [*own, *option_names], "options")
                raise OptionError(f"no option {name!r} here\nhint: {hint}")
        options = JobOptions(**{name: named.pop(name) for name in option_names if name in named})
        return function(*arguments, **named, options=options)

    return taking


def choose_distribution(work: Work, distribution: str, first: str | None = None) -> tuple[str, str]:
    """Return the distribution for some work, and the reason for it.

    Parameters
    ----------
    work, distribution
    first
        The first column that orders the stream; None for the time column.

    Raises
    ------
    OptionError
        If the distribution is unknown, or not exact, with the reason and an exact one.
    """
    if distribution not in DISTRIBUTIONS:
        hint = did_you_mean(str(distribution), DISTRIBUTIONS, "distributions")
        raise OptionError(f"distribution must be one of {', '.join(DISTRIBUTIONS)}, got {distribution!r}\nhint: {hint}")
    why_not = why_not_distributions(work, first)
    allowed = [name for name, reason in why_not.items() if reason is None]
    if distribution == "auto":
        before = list(why_not.items())[: list(why_not).index(allowed[0])]
        reasons = [f"not {name}: {reason}" for name, reason in before]
        return allowed[0], "; ".join(reasons) or _why_by_key(work)
    if why_not[distribution] is not None:
        raise OptionError(
            f"distribution {distribution!r} would not give the rows of a single process: {why_not[distribution]}\n"
            f"hint: distribution={allowed[0]!r} (--distribution {allowed[0]})"
        )
    return distribution, "as asked"


def _why_by_key(work: Work) -> str:
    shared = work.distribution.shared
    if not shared:
        return "the keys of PARTITION BY are independent of one another"
    columns = [dotted(column) if name is None else f"{name}.{dotted(column)}" for name, column in shared]
    return f"all events of a match have one value of {', '.join(columns)}"


def other_distributions(work: Work, chosen: str, first: str | None = None) -> list[str]:
    """Return a line on each distribution other than the chosen one: it would be exact too, or the reason why_not it."""
    return [
        f"{name} would be exact too" if why_not is None else f"{name} would not be exact: {why_not}"
        for name, why_not in why_not_distributions(work, first).items()
        if name != chosen
    ]


def times_beside(work: Work, first: str) -> list[str]:
    """Return the columns that must not decrease other than the first of the order; tasks check them."""
    return [name for name in work.times if name != first]


def why_not_distributions(work: Work, first: str | None) -> dict[str, str | None]:
    """Return, for each distribution, the reason why it is not exact, or None if it is."""
    exact = work.distribution.tasks
    unchecked = [] if first is None else times_beside(work, first)
    if exact["key"] is None and unchecked:
        time = dotted(unchecked[0])
        why = f"that {time!r} never decreases is to be seen only where the events of all keys are together"
        return {**exact, "key": why}
    return exact


def way_of_rows(work: Work, distribution: str) -> str:
    """Return words on what each task gets by a distribution."""
    return {
        "key": "each task gets all events of some keys",
        "range": "each task gets a range of the stream and the window before it, and reports what ends in its range",
        "broadcast": f"each task gets all events, and {work.shard_description}",
    }[distribution]


def cut_into_ranges(
    firsts: Sequence[int], lows: Sequence[int | float], highs: Sequence[int | float], length: int | float
) -> Ranges:
    """Return the ranges that begin at some positions.

    Parameters
    ----------
    firsts
        The first position of each range, ascending.
    lows
        For each range, a lower bound of `where` at its first row.
    highs
        For each range, an upper bound of `where` at its last row.
    length
        Length of the window, in units of `where`.
    """
    whole = all(isinstance(value, int) for value in (*lows, length))
    begins = [max(low - length, LEAST_INT64) if whole else at_or_before(low, length) for low in lows]
    last_of = [bisect.bisect_right(begins, high) - 1 for high in highs]
    reach = max((last - k for k, last in enumerate(last_of)), default=0)
    return Ranges(tuple(firsts), tuple(begins), max(reach, 0))


@dataclass(frozen=True)
class TaskReport:
    """Report of a task on one part.

    Attributes
    ----------
    n_rows, n_matches
        Number of rows read, including the window before a range, and of matches.
    seconds
        Duration of the evaluation, without the wait for rows.
    peak_memory
        Peak memory of the worker's process so far, in bytes.
    """

    n_rows: int
    n_matches: int
    seconds: float
    peak_memory: int


class ReportsOfParts:
    """Accumulator (`AccumulatorParam`) of the reports by part at the driver; of a task that ran twice, the last one."""

    def zero(self, value: dict[int, TaskReport]) -> dict[int, TaskReport]:
        """Return the initial value: no reports."""
        return {}

    def addInPlace(self, value1: dict[int, TaskReport], value2: dict[int, TaskReport]) -> dict[int, TaskReport]:
        """Merge the reports of two tasks."""
        value1.update(value2)
        return value1


@dataclass(frozen=True)
class Task:
    """Evaluation of the rows of a task: part after part, each in the order of the stream.

    Rows come with `PART`, or without, where there is only one part, and the task counts them; or with `PLACE`, which
    encodes part and position.  By key, the rows of part k are counted from k times `PART_ROWS`, so that a position
    belongs to one event.  It is a class because pickle refers to it by name.

    Attributes
    ----------
    work : Work
    distribution : str
        "key", "range" or "broadcast".
    columns : tuple of str
        The columns and fields of the events that the rows have, one after the other.
    results : pyarrow.Schema
        Columns of the results, in the types of Spark.
    firsts : tuple of int
        First position of each part, which reports no match that ends before; empty if parts report all.
    n_parts : int
    starts : tuple of int
        Position of the first row of each part that the task counts; empty if they begin at 0, or by key at the multiple
        of `PART_ROWS`.
    report
        Accumulator, or None; its ``add`` is called with {number: `TaskReport`} at the end of each part.
    counted_by : (str, str) or None
        Column of the rows that must not be NULL, and the name of the first column of the order, for the message; None:
        the rows were checked.
    """

    work: Work
    distribution: str
    columns: tuple[str, ...]
    results: pa.Schema
    firsts: tuple[int, ...]
    n_parts: int
    starts: tuple[int, ...] = ()
    report: Any = None
    counted_by: tuple[str, str] | None = None

    @property
    def __name__(self) -> str:
        """Name of the function in the plans that Spark shows: what is evaluated, and how."""
        return f"{short(self.work.text)}: evaluate by {self.distribution}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the matches of the parts of the rows.

        Raises
        ------
        QueryTypeError
            If the first column of the order is NULL in some row that the task counts.
        """
        part: _OpenPart | None = None
        for batch in batches:
            if self.counted_by is not None and batch.column(self.counted_by[0]).null_count:
                self._refuse_nulls(itertools.chain([batch], batches), *self.counted_by)
            numbers, rows = self._split_parts(batch)
            bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
            for begin, end in itertools.pairwise(bounds):
                if begin == end:
                    continue
                if part is None or numbers[begin] != part.number:
                    if part is not None:
                        yield from self._finish_part(part)
                    part = self._open_part(int(numbers[begin]), placed=PLACE in batch.schema.names)
                yield from part.timed(part.evaluator.push_batches(rows.slice(begin, end - begin)))
        if part is not None:
            yield from self._finish_part(part)

    def _split_parts(self, batch: pa.RecordBatch) -> tuple[np.ndarray[Any, Any], pa.RecordBatch]:
        """Return the parts of the rows, and the rows as the evaluator takes them."""
        names, arrays = list(self.columns), batch.columns[-len(self.columns) :] if self.columns else []
        if PLACE in batch.schema.names:
            numbers, positions = np.divmod(batch.column(PLACE).to_numpy(), PART_ROWS)
            return numbers, batch_of([*names, POSITION], [*arrays, pa.array(positions)])
        several = PART in batch.schema.names
        numbers = batch.column(PART).to_numpy() if several else np.zeros(batch.num_rows, np.int32)
        return numbers, batch_of(names, list(arrays))

    def _refuse_nulls(self, batches: Iterable[pa.RecordBatch], column: str, name: str) -> None:
        """Count the rows of the first part of some batches, and those whose `column` is NULL.

        Raises
        ------
        QueryTypeError
        """
        n_rows = n_nulls = 0
        number = None
        for batch in batches:
            values = batch.column(column)
            if PART in batch.schema.names:
                number = batch.column(PART)[0] if number is None and batch.num_rows else number
                values = values.filter(pc.equal(batch.column(PART), number))
            n_rows += len(values)
            n_nulls += values.null_count
        raise null_error(name, n_nulls, n_rows)

    def _open_part(self, number: int, *, placed: bool) -> _OpenPart:
        shard = (number, self.n_parts) if self.distribution == "broadcast" and self.n_parts > 1 else None
        options = EvaluationOptions(
            shard=shard,
            report_from=self.firsts[number] if self.firsts else 0,
            position_column=POSITION if placed else None,
            start_position=0 if placed else self._first_position(number),
        )
        evaluator = self.work.evaluator(options, self.results)
        return _OpenPart(number, evaluator, options.start_position, numbered=self.work.numbered)

    def _first_position(self, number: int) -> int:
        """Return the position of the first row of a part whose rows are counted."""
        if self.starts:
            return self.starts[number]
        return number * PART_ROWS if self.distribution == "key" else 0

    def _finish_part(self, part: _OpenPart) -> Iterator[pa.RecordBatch]:
        yield from part.timed(part.evaluator.finish_batches())
        if self.report is not None:
            evaluator = part.evaluator
            n_rows = evaluator.n_events - part.start
            self.report.add({part.number: TaskReport(n_rows, evaluator.total_matches, part.seconds, peak_memory())})


class _OpenPart:
    """Part under evaluation."""

    def __init__(self, number: int, evaluator: WorkEvaluator, start: int, *, numbered: bool) -> None:
        self.number = number
        self.start = start
        self.evaluator = evaluator
        self.seconds = 0.0
        self._numbered = numbered

    def timed(self, matches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with dictionaries decoded, and add up the time of their evaluation."""
        while True:
            begun = time.perf_counter()
            batch = next(matches, None)
            self.seconds += time.perf_counter() - begun
            if batch is None:
                return
            yield plain_batch(apart(batch, self.number) if self._numbered else batch)


def null_error(name: str, n_nulls: int, n_rows: int) -> QueryTypeError:
    """Return the error of a stream whose first order column is NULL in some rows."""
    return QueryTypeError(
        f"the stream is ordered by {dotted(name)!r}, which is NULL in {n_nulls:,} of {n_rows:,} rows",
        hint="leave such events out, or give them a value",
    )


def apart(batch: pa.RecordBatch, part: int, first: int = 0) -> pa.RecordBatch:
    """Return rows of the output "rows" with numbers that no other part gives, of matches from `first` on."""
    at = batch.schema.get_field_index("match")
    numbers = pc.add(batch.column(at), part * PART_MATCHES + first)
    return batch.set_column(at, batch.schema.field(at), numbers)


def peak_memory() -> int:
    """Return the peak memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
