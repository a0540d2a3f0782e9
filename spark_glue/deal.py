"""How the rows of a stream are dealt to the tasks of a job, so that together they find what one process finds.

Every row gets its position in the whole stream first.  Then:

* *partition*: a task gets all rows of some keys of PARTITION BY.
* *range*: a task gets a range of positions and the window before it, and reports what ends in its range.
* *replicate*: every task gets all rows, and reports its share of the complex events (papers: the distributed
  algorithm).

What is here needs no Spark: which strategy a query allows, and what one task does with its rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cer_gpu.errors import OptionError
from spark_glue.stage import plain

if TYPE_CHECKING:
    from cer_gpu import Evaluator
    from cer_gpu.query import Query

POSITION, PART = "$position", "$part"
"""Columns that are added to the rows: the position in the stream, and the part that a copy of a row goes to."""

STRATEGIES = ("auto", "partition", "range", "replicate")


def choose(query: Query, strategy: str) -> tuple[str, str]:
    """Return the strategy for a query, and why it is this one.

    Raises
    ------
    OptionError
        When it is not known, or not exact for the query: with the reason, and one that is.
    """
    if strategy not in STRATEGIES:
        raise OptionError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
    against = {"partition": _against_partition(query), "range": _against_range(query), "replicate": None}
    allowed = [name for name, reason in against.items() if reason is None]
    if strategy == "auto":
        reasons = [f"not {name}: {reason}" for name, reason in against.items() if reason is not None]
        return allowed[0], "; ".join(reasons) or "the keys of PARTITION BY are independent of one another"
    if against[strategy] is not None:
        raise OptionError(
            f"strategy {strategy!r} would not give the rows of a single process: {against[strategy]}\n"
            f"hint: strategy={allowed[0]!r}"
        )
    return strategy, "as asked"


def _against_partition(query: Query) -> str | None:
    clauses = query.clauses
    if not clauses.keys:
        return "the query has no PARTITION BY"
    if clauses.consume == "ANY":
        return "CONSUME BY ANY forgets what all partitions have read"
    return None


def _against_range(query: Query) -> str | None:
    clauses = query.clauses
    if clauses.window is None:
        return "the query has no WITHIN, so that a complex event may begin anywhere before"
    if clauses.window == "events" and clauses.keys:
        return "WITHIN n EVENTS counts the events of a partition, which may lie anywhere before"
    if clauses.strategy in ("NEXT", "LAST", "MAX"):
        return f"{clauses.strategy} compares with complex events that may begin before the window"
    if clauses.consume != "NONE":
        return f"CONSUME BY {clauses.consume} depends on what was found before"
    return None


@dataclass(frozen=True)
class Task:
    """What a task does with its rows: those of one part after those of another, each in the order of the stream.

    A class, because pickle refers to it by name.

    Attributes
    ----------
    query, output
    strategy : str
        "partition", "range" or "replicate".
    firsts : tuple of int
        For "range", the first position of each part.
    n_parts : int
    """

    query: Query
    output: str
    strategy: str
    firsts: tuple[int, ...]
    n_parts: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the complex events of the parts that the rows are of."""
        current, evaluator = None, None
        for batch in batches:
            parts = np.asarray(batch.column(PART))
            bounds = [0, *(np.flatnonzero(parts[1:] != parts[:-1]) + 1).tolist(), len(parts)]
            rows = batch.drop_columns([PART])
            for begin, end in itertools.pairwise(bounds):
                if begin == end:
                    continue
                if parts[begin] != current:
                    if evaluator is not None:
                        yield from map(plain, evaluator.finish_batches())
                    current = parts[begin]
                    evaluator = self._evaluator(int(current))
                assert evaluator is not None
                yield from map(plain, evaluator.push_batches(rows.slice(begin, end - begin)))
        if evaluator is not None:
            yield from map(plain, evaluator.finish_batches())

    def _evaluator(self, part: int) -> Evaluator:
        share = (part, self.n_parts) if self.strategy == "replicate" else None
        first = self.firsts[part] if self.strategy == "range" else 0
        return self.query.evaluator(output=self.output, position_column=POSITION, share=share, first_end=first)
