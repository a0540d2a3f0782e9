"""Work of the tasks of a job: one query, or all queries of a set, by one interface.

Plans, tasks and explanations know `Work` alone.  This module needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from cer_gpu.errors import OptionError
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.query import Query

if TYPE_CHECKING:
    from cer_gpu.engine.options import Options
    from cer_gpu.planning.dealing import Dealing

MOST_SHARERS = 64
"""Most tasks of which each reads all rows, and evaluates its share of the keys."""


@dataclass(frozen=True)
class Window:
    """Window of all that is evaluated.

    Attributes
    ----------
    column : str or None
        Column that measures it; None: it is one of events.
    """

    column: str | None


class WorkEvaluator(Protocol):
    """Evaluator of the events of one task, as `cer_gpu.Evaluator`."""

    @property
    def n_events(self) -> int:
        """Number of events evaluated so far."""

    @property
    def n_matches(self) -> int:
        """Number of complex events found so far."""

    def push_batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Read the events of a batch and yield the complex events that end in it."""

    def finish_batches(self) -> Iterator[pa.RecordBatch]:
        """End the stream and yield the complex events that are known by then."""


class Work(Protocol):
    """Work of the tasks of a job.  It can be pickled."""

    @property
    def text(self) -> str:
        """Words for the description of a job."""

    @property
    def output(self) -> str | None:
        """Name of the output; None: each query has its own."""

    @property
    def numbered(self) -> bool:
        """True if rows carry the numbers of their complex events, which no two tasks may share."""

    @property
    def type_column(self) -> str | None:
        """Column of event types."""

    @property
    def times(self) -> tuple[str, ...]:
        """Columns that must not decrease."""

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """Column names in each bracket of PARTITION BY by which events can be dealt."""

    @property
    def dealing(self) -> Dealing:
        """Exact ways to deal the events."""

    @property
    def window(self) -> Window | None:
        """Window that ranges of the stream need before them; None: there is none."""

    @property
    def needed_types(self) -> tuple[str, ...] | None:
        """Types of the events that are needed if a column tells their positions; None: all events."""

    @property
    def share(self) -> str:
        """Words on the share of the work of one of several tasks that all read all events."""

    @property
    def most_sharers(self) -> int:
        """Most tasks that read all events for the sake of a share of the keys."""

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that are read from events of a schema, as `Query.columns`."""

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the results over events of a schema."""

    def window_units(self, schema: pa.Schema) -> int | float | None:
        """Return the length of the window, in events or in units of its column; None: there is none."""

    def evaluator(self, part: Options, schema: pa.Schema) -> WorkEvaluator:
        """Return an evaluator of a part of the work.

        Parameters
        ----------
        part
            The share, the deal of keys, the first event and the first end; other options are of no effect.
        schema
            Schema of the first batch.
        """


@dataclass(frozen=True)
class OneQuery:
    """Work of one query.

    Attributes
    ----------
    query : Query
    output : str
    """

    query: Query
    output: str

    share = "reports its share of the complex events"
    most_sharers = MOST_SHARERS

    @property
    def text(self) -> str:
        """The text of the query."""
        return self.query.text

    @property
    def numbered(self) -> bool:
        """See `Work`."""
        return OUTPUTS[self.output].numbered

    @property
    def type_column(self) -> str | None:
        """See `Work`."""
        return self.query.type_column

    @property
    def times(self) -> tuple[str, ...]:
        """See `Work`."""
        names = (self.query.time_column, self.query.window_attribute)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """See `Work`."""
        return self.query.keys

    @property
    def dealing(self) -> Dealing:
        """See `Work`."""
        return self.query.physical_plan().dealing

    @property
    def window(self) -> Window | None:
        """See `Work`."""
        kind = self.query.window_kind
        columns = {"events": None, "time": self.query.time_column, "attribute": self.query.window_attribute}
        return None if kind is None else Window(columns[kind])

    @property
    def needed_types(self) -> tuple[str, ...] | None:
        """See `Work`."""
        return self.query.needed_types

    def columns(self, schema: pa.Schema) -> list[str]:
        """See `Work`."""
        return self.query.columns(schema, self.output)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Work`."""
        return self.query.output_schema(schema, self.output)

    def window_units(self, schema: pa.Schema) -> int | float | None:
        """See `Work`."""
        return self.query.window_units(schema)

    def evaluator(self, part: Options, schema: pa.Schema) -> WorkEvaluator:
        """See `Work`."""
        found = self.query.evaluator(
            output=self.output, share=part.share, position_column=part.position_column, first_end=part.first_end
        )
        if part.begin or part.deal is not None:
            found.expect(schema)
            return found.part(part.begin, part.first_end) if part.deal is None else found.of_keys(*part.deal)
        return found


def work_of(query: Any, output: str | None = None) -> Work:
    """Return the work of anything that `spark_glue.match` takes for a query.

    Parameters
    ----------
    query : Query
    output
        None: the usual one.

    Raises
    ------
    OptionError
        For anything else.
    """
    return one_query(query, output)


def one_query(query: Any, output: str | None = None) -> OneQuery:
    """Return the work of one query.

    Raises
    ------
    OptionError
        For anything else.
    """
    if not isinstance(query, Query):
        raise OptionError(
            f"expected a compiled query, got {type(query).__name__}\nhint: cer_gpu.compile(text, time_column=...)"
        )
    return OneQuery(query, asked_output(query, output))


def asked_output(query: Query, output: str | None) -> str:
    """Return the output that is asked for; where none is, "measures" if SELECT has some, else "events"."""
    return output or ("events" if query.default_output == "positions" else query.default_output)
