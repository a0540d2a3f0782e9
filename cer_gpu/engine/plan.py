"""What is known of a query before its events, and once the schema of its events is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.automaton.cea import CEA
from cer_gpu.automaton.chain import Step
from cer_gpu.backend.evaluation import (
    CONSUME_ANY,
    CONSUME_NONE,
    CONSUME_PARTITION,
    COUNT_WINDOW,
    GLOBAL_WINDOW,
    NO_WINDOW,
)
from cer_gpu.ceql.syntax import Name, Within
from cer_gpu.engine.binding import column_type
from cer_gpu.engine.clocks import time_column_type, window_length
from cer_gpu.engine.columns import plain_type
from cer_gpu.engine.loop import RunOptions
from cer_gpu.engine.partitions import Keys
from cer_gpu.engine.placement import CPU
from cer_gpu.engine.predicates import GuardWords
from cer_gpu.engine.streams import STREAM_COLUMN
from cer_gpu.engine.types_met import TypesMet
from cer_gpu.errors import EventsError, QueryTypeError

NEVER = np.iinfo(np.int64).max
"""A position that no event has."""
CONSUME = {"NONE": CONSUME_NONE, "PARTITION": CONSUME_PARTITION, "ANY": CONSUME_ANY}


@dataclass(frozen=True)
class Plan:
    """What is known of a query before its events: what the evaluation needs of its text, and the options.

    Attributes
    ----------
    variables : tuple of str
        That "bindings" has columns for.
    attributes : tuple of Name or None
        That "events" has; None: all columns.
    chain : tuple of Step or None
        The steps of a pattern that stacks can evaluate, in place of the automaton.
    against_chain : str or None
        Why there is no chain.
    """

    text: str
    cea: CEA
    chain: tuple[Step, ...] | None
    against_chain: str | None
    strategy: str
    variables: tuple[str, ...]
    attributes: tuple[Name, ...] | None
    streams: tuple[str, ...]
    partition: tuple[tuple[Name, ...], ...]
    within: Within | None
    consume: str
    limit: int | None
    type_column: str | None
    time_column: str | None
    time_unit: str | None

    @property
    def several_streams(self) -> bool:
        """Whether events are told apart by their stream."""
        return len(self.streams) > 1


class Binding:
    """A plan over one schema: typed tests, the window in units of its column, keys and attributes.

    Parameters
    ----------
    plan
    schema : pyarrow.Schema
    with_attributes
        False where the events come without the columns that only the output "events" needs.
    position_column
        Tells the position of each event; it is no attribute.
    device
        Where predicates are evaluated: "cpu", "cuda" or "auto".
    types_met
        Takes note of the types that there are.

    Attributes
    ----------
    schema : pyarrow.Schema
    columns : list of str
        That the query reads, whatever its output.
    columns_on_host : list of str
        Those that are read by more than predicates.
    attribute_schema : pyarrow.Schema
        Of what "events" has, without dictionaries.

    Raises
    ------
    QueryTypeError
        When the query does not fit the schema.
    """

    def __init__(
        self,
        plan: Plan,
        schema: pa.Schema,
        *,
        with_attributes: bool = True,
        position_column: str | None = None,
        device: str = CPU,
        types_met: TypesMet | None = None,
    ) -> None:
        text = plan.text
        self.schema = schema
        stream_column = STREAM_COLUMN if plan.several_streams else None
        if stream_column is not None and stream_column not in schema.names:
            raise EventsError(
                f"the query names the streams {', '.join(plan.streams)}, and the events do not say which is theirs\n"
                "hint: give a mapping from stream name to events (NAME=PATH on the command line), or push each batch "
                "with its stream's name"
            )
        self.guards = GuardWords(plan.cea.guards, schema, plan.type_column, text, stream_column, device, types_met)
        self.time_type = None if plan.time_column is None else time_column_type(schema, plan.time_column)
        if plan.time_unit is not None and (self.time_type is None or not pa.types.is_integer(self.time_type)):
            raise QueryTypeError(
                f"time_unit={plan.time_unit!r} is the unit of an integer time column, and "
                + ("none is named" if self.time_type is None else f"{plan.time_column!r} is {self.time_type}")
            )
        self.window_column: str | None = None
        self.window_length: np.uint64 | np.float64 | None = None
        if plan.within is not None:
            self.window_column, self.window_length = window_length(
                plan.within, schema, plan.time_column, plan.time_unit, text
            )
        self.keys = Keys(plan.partition, schema, text)
        attributes = [field for field in schema if field.name != position_column]
        self.attribute_schema = _attribute_schema(plan, pa.schema(attributes)) if with_attributes else pa.schema([])
        positions = [] if position_column is None else [position_column]
        for name in positions:
            if column_type(schema, name, None, None) != pa.int64():
                raise QueryTypeError(
                    f"the column of positions {name!r} must be int64, and is {schema.field(name).type}"
                )
        self.clocks = list(dict.fromkeys(name for name in (plan.time_column, self.window_column) if name is not None))
        self.columns_on_host = list(dict.fromkeys([*self.clocks, *self.keys.columns, *positions]))
        self.columns = list(dict.fromkeys([*self.guards.columns, *self.columns_on_host]))
        self._types = {name: schema.field(name).type for name in self.columns}

    def columns_for(self, output: str) -> list[str]:
        """Return the columns that an output needs."""
        wanted = {*self.columns, *(self.attribute_schema.names if output == "events" else ())}
        return [name for name in self.schema.names if name in wanted]

    def fits(self, schema: pa.Schema) -> bool:
        """Return whether a batch of this schema can be evaluated with the binding as it is."""
        return all(
            len(schema.get_all_field_indices(name)) == 1 and schema.field(name).type == kind
            for name, kind in self._types.items()
        )

    def run_options(
        self,
        plan: Plan,
        *,
        labelled: bool = False,
        share: tuple[int, int] | None = None,
        first_end: int = 0,
        placed: bool = False,
    ) -> RunOptions:
        """Return how the automaton's loop is to read the events."""
        window, width = NO_WINDOW, -1
        if plan.within is not None:
            window = COUNT_WINDOW if plan.within.kind == "events" and plan.partition else GLOBAL_WINDOW
            if plan.within.kind == "events":
                assert self.window_length is not None
                width = int(min(int(self.window_length), 1 << 62))
        consume = CONSUME[plan.consume]
        return RunOptions(
            window=window,
            width=width,
            partitioned=bool(plan.partition),
            timed=plan.time_column is not None,
            limit=1 if plan.strategy == "ANY" else plan.limit or 0,
            consume=CONSUME_PARTITION if consume and not plan.partition else consume,
            labelled=labelled,
            share=share,
            first_end=NEVER if plan.limit == 0 else first_end,
            placed=placed,
        )


def _attribute_schema(plan: Plan, schema: pa.Schema) -> pa.Schema:
    if plan.attributes is None:
        kinds = {field.name: field.type for field in schema}
    else:
        kinds = {name.name: column_type(schema, name.name, plan.text, name.span) for name in plan.attributes}
    return pa.schema([(name, plain_type(kind)) for name, kind in kinds.items()])
