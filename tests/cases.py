"""Random queries with their events, for both sides: text and Arrow data for the engine, trees for the reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import arrow_streams
import pyarrow as pa
import reference as ref
import reference_measures as measures
import rendering
import strategies
from hypothesis import assume, note
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.planning.passes import plan_of

MAX_VALUATIONS = 10_000
MAX_ROWS = 10_000


class _Drawn:
    """A query with its text, and events in the order of their positions."""

    query: ref.Query
    events: list[ref.Event]
    layout: arrow_streams.Layout

    def write(self, data: st.DataObject, *, timed: bool, typed: bool = True) -> None:
        """Draw the text of the query and compile it."""
        spelling = data.draw(st.integers(0, 2**16), label="spelling")
        self.text = rendering.to_ceql(self.query, random.Random(spelling) if spelling else None, needs_from=not typed)
        note(f"plainly: {rendering.to_ceql(self.query)}")
        note(f"as text: {self.text}")
        self.time_column = ref.TIME if timed else None
        self.type_column = ref.TYPE if typed else None
        self.automaton_alone = data.draw(st.booleans(), label="by the automaton")
        self.compiled = self.compile()

    def compile(self) -> cer_gpu.Query:
        time_unit = self.layout.time_unit if self.time_column else None
        query = cer_gpu.compile(
            self.text, type_column=self.type_column, time_column=self.time_column, time_unit=time_unit
        )
        return by_automaton(query) if self.automaton_alone else query

    @property
    def whole(self) -> pa.Table:
        """All events, in one batch."""
        return arrow_streams.build_table(self.events, self.layout)

    def expected(self, evaluate: Callable[..., list[Any]] = ref.evaluate) -> list[Any]:
        """Return the rows of the reference; too large an answer discards the example."""
        rows = self._unless_too_large(evaluate, self.query, self.events, MAX_VALUATIONS)
        assume(len(rows) <= MAX_ROWS)
        return rows

    def candidates(self, evaluate: Callable[..., list[Any]] = ref.evaluate) -> list[Any]:
        """Return the rows that LIMIT or ANY choose from; too many of them discard the example."""
        rows = self._unless_too_large(evaluate, ref.every_candidate(self.query), self.events, MAX_VALUATIONS)
        assume(len(rows) <= MAX_ROWS)
        return rows

    def _unless_too_large(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ref.TooLarge:
            assume(False)


class Case(_Drawn):
    """A query and one stream, which is laid out in Arrow memory and cut into batches."""

    def __init__(self, data: st.DataObject, cases: st.SearchStrategy, timestamps: bool = False) -> None:
        self.query, self.events = data.draw(cases, label="case")
        timestamps = timestamps or ref.compares_durations(self.query.formula)
        self.layout = data.draw(arrow_streams.layouts(self.query, self.events, timestamps), label="layout")
        self.cuts = data.draw(strategies.cuts(len(self.events)), label="cuts")
        by_time = any(window[0] == "time" for window in ref.windows_of(self.query))
        self.write(data, timed=timestamps or by_time or data.draw(st.booleans(), label="timed"))

    @property
    def table(self) -> pa.Table:
        return arrow_streams.build_table(self.events, self.layout, self.cuts)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        return arrow_streams.build_batches(self.events, self.layout, self.cuts)


class CaseOfStreams(_Drawn):
    """A query and several streams by name, each cut into batches of its own; they are merged by time."""

    def __init__(self, data: st.DataObject, cases: st.SearchStrategy, typed: bool = True) -> None:
        self.query, self.streams = data.draw(cases, label="case")
        self.events = ref.merged(self.streams)
        timestamps = ref.compares_durations(self.query.formula)
        self.layout = data.draw(arrow_streams.layouts(self.query, self.events, timestamps), label="layout")
        self.write(data, timed=True, typed=typed)
        self.absent = {name: self._absent(data, name) for name in self.streams}
        self.cuts = {
            name: data.draw(strategies.cuts(len(stream)), label=f"cuts of {name}")
            for name, stream in self.streams.items()
        }

    def _absent(self, data: st.DataObject, name: str) -> list[str]:
        """Draw the columns that the stream lacks: only those in which all is NULL, which means the same."""
        optional = {name for name in ref.attributes(self.query) - {strategies.ORDER_COLUMN} if "." not in name}
        stream = self.streams[name]
        empty = sorted(column for column in optional if all(event[column] is None for event in stream))
        first = name == self.query.streams[0]  # it has all columns
        return empty if not first and data.draw(st.booleans(), label=f"{name} has no column without values") else []

    @property
    def tables(self) -> dict[str, pa.Table]:
        return self._tables(self.cuts)

    @property
    def uncut(self) -> dict[str, pa.Table]:
        return self._tables({})

    def _tables(self, cuts: dict[str, list[int]]) -> dict[str, pa.Table]:
        return {
            name: arrow_streams.build_table(stream, self.layout, cuts.get(name)).drop_columns(self.absent[name])
            for name, stream in self.streams.items()
        }

    def in_order(self, answer: pa.Table) -> pa.Table:
        """Return results whose positions count the merged events, in place of rows of each stream."""
        n_before = dict.fromkeys(self.streams, 0)
        places: dict[tuple[str | None, int | None], int | None] = {(None, None): None}
        for place, event in enumerate(self.events):
            name = event[ref.STREAM]
            places[name, n_before[name]] = place
            n_before[name] += 1
        for name in [name for name in answer.column_names if f"{name}_stream" in answer.column_names]:
            streams, rows = answer[f"{name}_stream"].to_pylist(), answer[name].to_pylist()
            found = [
                [places[pair] for pair in zip(*both, strict=True)] if isinstance(both[1], list) else places[both]
                for both in zip(streams, rows, strict=True)
            ]
            column, field = answer.column_names.index(name), answer.schema.field(name)
            answer = answer.set_column(column, field, pa.array(found, field.type))
            answer = answer.drop([f"{name}_stream"])
        return answer


def rows_of(table: pa.Table | pa.RecordBatch) -> list[ref.Row]:
    """Return the rows as the reference writes them, in their order."""
    positions = (tuple(p) for p in table["positions"].to_pylist())
    return list(zip(table["start"].to_pylist(), table["end"].to_pylist(), positions, strict=True))


def bound_rows_of(table: pa.Table | pa.RecordBatch, variables: Sequence[str]) -> list[ref.BoundRow]:
    """Return the rows of "bindings" as the reference writes them."""
    held = [[(variable, _as_positions(p)) for p in table[variable].to_pylist()] for variable in variables]
    return [(*row, tuple(column[k] for column in held)) for k, row in enumerate(rows_of(table))]


def _as_positions(held: int | list[int] | None) -> tuple[int, ...]:
    """Return the positions of a variable; one that holds one event at most has its position, or NULL."""
    return () if held is None else (held,) if isinstance(held, int) else tuple(held)


def measure_rows_of(table: pa.Table | pa.RecordBatch, query: ref.Query) -> list[measures.MeasureRow]:
    """Return the rows of "measures" as the reference writes them."""
    columns = [plain(table[name].to_pylist()) for name, _ in query.measures]
    values = list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
    return list(zip(table["start"].to_pylist(), table["end"].to_pylist(), values, strict=True))


def counts_of(table: pa.Table) -> list[tuple[int, int]]:
    """Return the rows of "count" as the reference writes them."""
    return list(zip(table["end"].to_pylist(), table["count"].to_pylist(), strict=True))


def pushed(compiled: cer_gpu.Query, batches: list[pa.RecordBatch], **options: str) -> pa.Table:
    """Return the results of an evaluator that is given batch by batch."""
    evaluator = compiled.evaluator(**options)
    answers = [evaluator.push(batch) for batch in batches]
    answers.append(evaluator.finish())
    return pa.Table.from_batches(answers)


def plain(value: Any) -> Any:
    """Return the value, with a name in place of NaN, so that it equals itself."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return "NaN" if isinstance(value, float) and value != value else value


def assert_same(one: pa.Table, other: pa.Table) -> None:
    """Check that the schemas are equal, and the rows in the same order."""
    assert one.schema == other.schema
    assert plain(one.to_pydict()) == plain(other.to_pydict())


def by_automaton(query: cer_gpu.Query) -> cer_gpu.Query:
    """Return the query, to be evaluated by the automaton even if stacks could."""
    return cer_gpu.Query(replace(query._plan, chain=None))


def by_instances(query: cer_gpu.Query) -> cer_gpu.Query:
    """Return the query, to be evaluated by instances of its atoms even if a parallelised automaton could."""
    plan = query._plan
    relations = {type_: list(columns) for type_, columns in plan.relations} or None
    syntax = parse(plan.text, relations)
    return cer_gpu.Query(plan_of(syntax, plan.type_column, plan.time_column, plan.time_unit, in_parallel=False))


def sorted_rows(*tables):
    """Return the rows of tables in an order of their own, to compare tables whose orders may differ."""
    return sorted(repr(row) for table in tables for row in table.to_pylist())
