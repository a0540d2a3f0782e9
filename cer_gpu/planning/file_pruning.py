"""Predicate pushdown to files: bounds of their columns show which files have no event that is relevant to a query.

Such events may come without their values, as NULL in all columns but those of times: they count, and satisfy nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import Block, is_string, plain_type
from cer_gpu.errors import CerError
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.io.source import ColumnBounds, MayHold, Source
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Bindings
from cer_gpu.planning.physical import physical_plan

FileBounds = Sequence[Mapping[str, ColumnBounds]]
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class FilePruning:
    """Needs of a query over events in files.

    Attributes
    ----------
    may_hold
        Returns the files that may hold a relevant event, by the bounds of their columns.
    required
        Columns whose values are needed of all events: clocks.
    """

    may_hold: MayHold
    required: frozenset[str]


def needs_of(bindings: Bindings, schema: pa.Schema) -> FilePruning | None:
    """Return what a query needs of events of a schema, or None if it needs all, or cannot be bound to the schema.

    An event that satisfies no guard must not matter to it: there are no absences of events that fail a test, no
    attributes of earlier events, and contiguity and windows do not count the events of a key.
    """
    try:
        plan = bindings.plan_over(schema)
        binding = bindings.bind(schema)
    except CerError:
        return None  # the evaluation says why
    lengths = [plan.within, None if plan.every is None else plan.every.within]
    counts = plan.counts_positions or any(length is not None and length.kind == "events" for length in lengths)
    if plan.negates or plan.looks_back or plan.streams[1:]:
        return None
    if plan.partition and (counts or physical_plan(plan, OUTPUTS["positions"]).table().has_gaps):
        return None  # other events of a key count
    return needs_of_guards(plan.guards, plan.type_column, schema, frozenset(binding.clocks))


def needs_of_guards(
    guards: Sequence[Guard], type_column: str | None, schema: pa.Schema, required: frozenset[str]
) -> FilePruning:
    """Return what queries need of events of a schema, given the guards that their relevant events satisfy."""
    return FilePruning(lambda bounds: _may_hold(guards, type_column, schema, bounds), required)


def prune(source: Source, needs: FilePruning | None) -> Source:
    """Return a source in which events that are not needed have no values, as far as the source can find them."""
    if needs is None or source.without is None:
        return source
    return source.without(needs.may_hold, needs.required)


# ---- guards over bounds -------------------------------------------------------------------------------------------


def _may_hold(guards: Sequence[Guard], type_column: str | None, schema: pa.Schema, bounds: FileBounds) -> list[bool]:
    mask = np.zeros(len(bounds), np.bool_)
    tests = _Tests(type_column, schema, bounds)
    for guard in dict.fromkeys(guards):
        mask |= tests.of_guard(guard)
    return [bool(each) for each in mask]


class _Tests:
    """Tests of all files at once: each returns the files in which some value may pass."""

    def __init__(self, type_column: str | None, schema: pa.Schema, bounds: FileBounds) -> None:
        self._type_column, self._schema, self._bounds = type_column, schema, bounds
        self._all = np.ones(len(bounds), np.bool_)
        self._ends: dict[str, tuple[pa.RecordBatch, pa.RecordBatch, Bools]] = {}

    def of_guard(self, guard: Guard) -> Bools:
        mask = self._all
        if guard.event_type is not None and self._type_column is not None:
            mask = mask & self._between(self._type_column, guard.event_type)
        return mask if guard.predicate is None else mask & self._pass_predicate(guard.predicate)

    def _pass_predicate(self, predicate: s.Predicate) -> Bools:
        match predicate:
            case s.And():
                return reduce(and_, map(self._pass_predicate, predicate.operands))
            case s.Or():
                return reduce(or_, map(self._pass_predicate, predicate.operands))
            case s.Membership() if self._is_column(predicate.operand):
                each = (self._pass_comparison("=", predicate.operand, value) for value in predicate.values)
                return reduce(or_, each, ~self._all)
            case s.Comparison(op=op, left=left, right=right) if op in _TURNED:
                if self._is_column(left):
                    return self._pass_comparison(op, left, right)
                return self._pass_comparison(_TURNED[op], right, left) if self._is_column(right) else self._all
        return self._all

    def _is_column(self, side: s.Expression) -> bool:
        return (
            isinstance(side, s.Attribute)
            and not side.looks_back
            and side.variable is None
            and side.name in self._schema.names
        )

    def _pass_comparison(self, op: str, attribute: Any, value: s.Expression) -> Bools:
        if not isinstance(value, s.Literal):
            return self._all
        if isinstance(value.value, str) and is_string(plain_type(self._schema.field(attribute.name).type)):
            return self._between(attribute.name, value.value) if op == "=" else self._all
        if op == "=":
            return self._pass_bound("<=", attribute, value) & self._pass_bound(">=", attribute, value)
        return self._pass_bound(op, attribute, value)

    def _between(self, name: str, value: str) -> Bools:
        """Return the files in which a column of strings may hold a value."""
        ends = (bounds.get(name) for bounds in self._bounds)
        return np.array(
            [
                not (each is not None and isinstance(each.least, str) and isinstance(each.greatest, str))
                or each.least <= value <= each.greatest
                for each in ends
            ],
            np.bool_,
        )

    def _pass_bound(self, op: str, attribute: Any, value: s.Literal) -> Bools:
        """Return the files whose least value (of ``<`` and ``<=``), or greatest value, passes."""
        least, greatest, unknown = self._ends_of(attribute.name)
        batch = least if op in ("<", "<=") else greatest
        binder = Binder(batch.schema, "")
        try:
            test = binder.bind(s.Comparison(op, replace(attribute, span=(0, 0)), value))
        except CerError:
            return self._all
        if binder.derived:
            return self._all
        return np.broadcast_to(rows_of(test, binder.inputs, Block(batch)), self._all.shape) | unknown

    def _ends_of(self, name: str) -> tuple[pa.RecordBatch, pa.RecordBatch, Bools]:
        """Return the least and the greatest values of a column, a row for each file, and the files without them."""
        if name not in self._ends:
            kind = plain_type(self._schema.field(name).type)
            file_bounds = [bounds.get(name) for bounds in self._bounds]
            unknown = np.array([each is None for each in file_bounds], np.bool_)
            ends = []
            for which in ("least", "greatest"):
                values = [None if each is None else getattr(each, which) for each in file_bounds]
                try:
                    column = pa.array(values, kind)
                except (pa.ArrowException, TypeError, ValueError, OverflowError):
                    column, unknown = pa.nulls(len(values), kind), self._all
                ends.append(pa.RecordBatch.from_arrays([column], names=[name]))
            self._ends[name] = (ends[0], ends[1], unknown)
        return self._ends[name]
