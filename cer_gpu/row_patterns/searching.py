"""Conditions of DEFINE on other rows of the match: bound as join predicates are, and tested by search.

A condition reads *arguments*: a row of a variable, a row around it, the place of such a row (CLASSIFIER), or a number
of the match so far (aggregates, MATCH_NUMBER).  They take the place of the events of a filter, so that comparisons and
arithmetic have one meaning (`cer_gpu.expressions.relations`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.automaton.encoding import CONDITION
from cer_gpu.backend import row_search as k
from cer_gpu.backend.arguments import plain
from cer_gpu.backend.joins import match_memory as m
from cer_gpu.backend.joins.filters import COLUMN, CONSTANT, TO_FLOAT, TWO_INTEGERS, check_sizes, filters_of
from cer_gpu.backend.operations import PLUS
from cer_gpu.backend.row_patterns import FULL
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.columnar.columns import FLOAT, Block, kind_of
from cer_gpu.columnar.fields import column_type, columns_with
from cer_gpu.errors import EventsError, QueryTooLargeError, QueryTypeError
from cer_gpu.expressions.derived import makers_of
from cer_gpu.expressions.relation_terms import Argument, Condition, FilterProgram, arguments_of
from cer_gpu.expressions.relations import RelationBinder
from cer_gpu.expressions.side_columns import LEAST, MAX_COLUMNS, OrderKey, Raw, SideColumns, StringIds
from cer_gpu.expressions.terms import U8, ToFloat
from cer_gpu.row_patterns.bounds import ReadColumns, RowBound, bounds_after
from cer_gpu.row_patterns.leaves import Classifier, MatchNumber, Null, RowAggregate, RowLeaf, RowValue, shown_leaf
from cer_gpu.row_patterns.live_arguments import (
    PlaceLists,
    RowArgument,
    forced_places,
    guides_of,
    noted_places,
    opens_of,
    place_lists,
    quiet_places,
    read_after,
)
from cer_gpu.row_patterns.ordering import OrderedRows
from cer_gpu.row_patterns.program import RowProgram
from cer_gpu.row_patterns.repetition_tables import ReadFunctions
from cer_gpu.row_patterns.repetitions import repetitions_of
from cer_gpu.row_patterns.row_matching import MatchTables, Searching, Skip
from cer_gpu.row_patterns.row_measures import RowColumns, type_of
from cer_gpu.row_patterns.stored_rows import StoredRows, stored_rows

STEPS, STEPS_PER_ROW = 10**8, 1000
"""Maximum number of steps of the searches of an evaluation: a constant, also the maximum for one match, and per row.
"""
PAUSE = 10**6
"""Steps after which Python looks for an interrupt."""
SEARCH_ROWS = 1 << 15
"""Rows whose columns are computed at once."""
DEAD, MORE_DEAD, MAX_DEAD = 1 << 14, 16, 1 << 22
"""Rows and places that are noted at once at first, so that they stay in the cache; how many times as many after a pause
in the search for one match; and at most."""
INITIAL_CAPACITY = 1 << 10
"""Rows of a match for which there is memory at first."""


@dataclass(frozen=True)
class Searched:
    """Conditions on other rows of the match.

    Attributes
    ----------
    predicates : dict from str to tuple of Predicate
        By variable, all of which must hold, over attributes named as `leaves` are.
    leaves : dict from str to RowLeaf
        The current row is the last one of all rows.
    subsets : dict from str to tuple of str
    """

    predicates: Mapping[str, tuple[s.Predicate, ...]]
    leaves: Mapping[str, RowLeaf]
    subsets: Mapping[str, tuple[str, ...]]

    def bind(self, schema: pa.Schema, text: str) -> BoundSearch:
        """Bind them to the schema of the rows.

        Raises
        ------
        QueryTypeError
            When a column is unknown, or types do not go together.
        QueryTooLargeError
            When they read too many different expressions.
        """
        spans = {a.name: a.span for each in self.predicates.values() for p in each for a in s.attributes(p)}
        columns: dict[str, str] = {}
        types: dict[str, pa.DataType] = {}
        for name, leaf in self.leaves.items():
            data_type = _computed_type(leaf, schema, text, spans[name])
            if data_type is None:
                assert isinstance(leaf, RowValue | RowAggregate)
                assert leaf.column is not None
                columns[name] = leaf.column
                column_type(schema, leaf.column, text, spans[name])
            else:
                columns[name] = _free(schema, "CLASSIFIER()" if isinstance(leaf, Classifier) else name)
                types[columns[name]] = data_type
        fields = [*schema, *(pa.field(name, data_type) for name, data_type in types.items())]
        binder = _Binder(pa.schema(fields), text, self.leaves, columns)
        programs = {
            variable: tuple(binder.of_rows(predicate) for predicate in predicates)
            for variable, predicates in self.predicates.items()
        }
        if len(binder.columns) > MAX_COLUMNS:
            raise QueryTooLargeError(
                f"conditions on other rows read more than {MAX_COLUMNS} different expressions",
                text,
                *spans.popitem()[1],
            )
        return BoundSearch(self, binder, programs, types)


def _is_row(leaf: RowLeaf) -> bool:
    """Return True if a leaf is read of a row, or of the place that took it."""
    if isinstance(leaf, RowAggregate):
        return leaf.function in ("MIN", "MAX")
    return not isinstance(leaf, MatchNumber)


def _grows(function: tuple[int, int, int, int], inputs: Int64, valid: Bools) -> bool:
    """Return True for a function that does not decrease from row to row: counts, and sums of numbers from 0 on.

    A sum is then NULL only before the first row of its variable.
    """
    kind, _, column, _ = function
    if kind in (m.SUM_I, m.SUM_F):
        values = inputs[column] if kind == m.SUM_I else inputs[column].view(np.float64)
        return bool(valid[column].all() and (values >= 0).all())
    return kind == m.COUNT


def _free(schema: pa.Schema, name: str) -> str:
    """Return a name that no column has."""
    while name in schema.names:
        name += "'"
    return name


def _computed_type(leaf: RowLeaf, schema: pa.Schema, text: str, span: s.Span) -> pa.DataType | None:
    """Return the type of a column that is computed for a leaf, or None if the leaf reads one of the rows."""
    if isinstance(leaf, RowValue) or (isinstance(leaf, RowAggregate) and _is_row(leaf)):
        return None
    try:
        data_type = type_of(leaf, schema, text, "", span)
    except QueryTypeError as error:
        message = error.message.removeprefix("measure '': ")
        raise QueryTypeError(message, text, error.start, error.end, error.hint) from None
    if pa.types.is_decimal(data_type):
        hint = "AVG and COUNT, MIN and MAX can stand in DEFINE"
        raise QueryTypeError(f"{shown_leaf(leaf)} is {data_type}, which DEFINE cannot compare", text, *span, hint=hint)
    return data_type


class _Binder(RelationBinder):
    """Binder of conditions to programs over arguments, which are named as leaves are."""

    def __init__(self, schema: pa.Schema, text: str, leaves: Mapping[str, RowLeaf], columns: Mapping[str, str]) -> None:
        super().__init__(schema, text)
        self._leaves, self._columns = leaves, columns

    def of_rows(self, predicate: s.Predicate) -> Condition:
        """Bind one condition."""
        predicate = fold(predicate, self._with_argument, children)
        for node in walk(predicate):
            of = arguments_of(node) if isinstance(node, s.Call) else ()
            if len(of) == 1 and self.is_total(of[0]):
                reason = f"{node.function} of {of[0].variable} is not supported"  # type: ignore[attr-defined]
                raise self.single.error(reason, predicate.span, "compare the aggregate itself")
        if not any(map(self.is_total, arguments_of(self.derive(predicate)))):
            return self.condition(predicate)
        return self._with_conversions(self.program(predicate, self.bind(predicate)))

    def _with_conversions(self, condition: Condition) -> Condition:
        """Return a program that converts integers of the match so far, as the columns of rows are converted."""
        if not isinstance(condition, FilterProgram):
            return condition
        columns = list(self.columns)
        code: list[tuple[int, int, int]] = []
        for op, a, b in condition.code:
            code.append((op, a, b))
            if op == COLUMN and b >= 0 and self.is_total(condition.arguments[a]):
                column = columns[b]
                if isinstance(column, Raw) and isinstance(column.term, ToFloat):
                    code.append((TO_FLOAT, 0, 0))
                elif isinstance(column, OrderKey) and column.term.dtype == U8:
                    least = self.constants.setdefault(LEAST, len(self.constants))
                    code += [(CONSTANT, least, least), (TWO_INTEGERS, PLUS, 0)]
        return replace(condition, code=tuple(code))

    def alone(self, of: Sequence[Argument]) -> bool:
        """Return True if these are one row, whose column can hold all that is read."""
        return super().alone(of) and not self.is_total(of[0])

    def is_total(self, argument: Argument) -> bool:
        """Return True for a number of the match so far."""
        return not _is_row(self._leaves[argument.variable])

    def _with_argument(self, node: Any, parts: list[Any]) -> Any:
        if not isinstance(node, s.Attribute):
            return with_children(node, parts)
        return s.Attribute(self._columns[node.name], node.span, s.Name(node.name))


@dataclass(frozen=True)
class BoundSearch:
    """Conditions on other rows bound to a schema; created by `Searched.bind`."""

    searched: Searched
    binder: _Binder
    programs: Mapping[str, tuple[Condition, ...]]
    computed: Mapping[str, pa.DataType]

    def over(self, rows: OrderedRows, program: RowProgram, skip: Skip) -> Searching:
        """Return the search over some rows, using the automaton of the conditions of each row alone."""
        return lambda tables, states: _Search(self, rows, program, skip, tables, states).walk


class _Search:
    """The search of one evaluation."""

    def __init__(
        self,
        bound: BoundSearch,
        rows: OrderedRows,
        program: RowProgram,
        skip: Skip,
        tables: MatchTables,
        states: npt.NDArray[np.uint16],
    ) -> None:
        self._bound, self._skip = bound, skip
        self._places = [place.variable for place in program.places]
        self._sets: dict[tuple[bool, ...], int] = {}
        self._functions: dict[RowLeaf, int] = {}
        self._columns = RowColumns(rows)
        self._inputs: dict[tuple[str, str], int] = {}
        self._targets = np.array([variable in skip.variables for variable in self._places], np.bool_)
        arguments, code, programs = self._condition_code()
        inputs, valid = self._functions_read(rows)
        lists = (*program.nexts, program.starts, program.starts_at_first)
        functions = [self._function(leaf) for leaf in self._functions]
        conditions, holds = self._conditions_of(), list(self._sets)
        read, is_all = read_after(program, holds, conditions)
        able = tables.able()
        stored = stored_rows(arguments, functions, conditions, holds, able, states)
        numbers = StringIds()
        values = self._column_values(rows, stored, numbers)
        columns = ReadColumns(
            tuple(bound.binder.columns), values[: len(stored)], [*bound.binder.constants], stored.ends(rows.ends)
        )
        growing = {i: each[1] for i, each in enumerate(functions) if _grows(each, inputs, valid)}
        bounds_of_places = bounds_after(program, holds, conditions, columns, growing)
        bounds = self._add_bounds(bounds_of_places, arguments, code)
        self._repetitions = repetitions_of(
            program,
            conditions,
            bounds_of_places,
            able,
            states,
            columns,
            ReadFunctions(functions, inputs, valid, holds),
        )
        noted = noted_places(program, holds, read, functions) if is_all else np.zeros(len(self._places), np.bool_)
        quiet = quiet_places(program, holds, conditions)
        self._guides = guides_of(
            program,
            holds,
            conditions,
            quiet,
            able,
            stored.states(states),
            stored.rows,
            columns.values,
            columns.direction,
        )
        self._plan = k.SearchPlan(
            np.cumsum([0, *map(len, lists)]),
            np.array([place for each in lists for place in each], np.int16),
            np.array([place in program.ends for place in range(len(self._places))], np.bool_),
            able,
            forced_places(program, able),
            *opens_of(program, quiet & (self._guides.of_place < 0), able, states),
            programs,
            np.array(list(self._sets), np.bool_).reshape(-1, len(self._places)),
            np.array(arguments, np.int64).reshape(-1, 4),
            np.array(functions, np.int64).reshape(-1, 4),
            inputs,
            inputs.view(np.float64),
            valid,
            stored.ranks,
            values,
            noted,
            *read,
            *bounds,
        )
        constants, no_pairs = list(bound.binder.constants), np.zeros(0, CONDITION)
        self._filters = filters_of(no_pairs, code, constants, numbers.tables(ranked=True))
        self._counters = np.zeros(6, np.int64)
        capacity = min(DEAD, 1 << (rows.batch.num_rows * len(self._places)).bit_length()) if noted.any() else 0
        self._dead = np.zeros((capacity, 1 + int(np.diff(read.begins).max(initial=0))), np.int64)
        self._max_steps = STEPS + STEPS_PER_ROW * rows.batch.num_rows
        self._memory = self._allocate_memory(INITIAL_CAPACITY)

    def walk(
        self, states: npt.NDArray[np.uint16], ends: Int64, at: int, partition: int, written: Sequence[Array]
    ) -> tuple[int, int, int, int, int]:
        """Find matches as `cer_gpu.backend.row_patterns.walk_rows` does.

        Raises
        ------
        QueryTooLargeError
            When it takes too many steps.
        EventsError
            When a sum does not fit its type.
        """
        while True:
            groups = plain(self._plan, self._memory, self._filters, self._guides, self._repetitions)
            pause = int(self._counters[k.STEPS]) + PAUSE
            how = self._max_steps, STEPS, pause, self._skip.how, self._targets
            outcome, n, n_taken, at, partition = k.search(*groups, states, ends, *how, at, partition, *written)
            check_sizes(self._filters)
            if outcome == k.SPENT:
                raise self._spent(at)
            if outcome == k.BEYOND:
                raise EventsError(f"a sum in DEFINE is beyond int64 in the match at row {at} of the ordered rows")
            if outcome == k.DEEP:
                self._deepen()
            elif outcome != k.PAUSED:
                return outcome, n, n_taken, at, partition
            elif 0 < len(self._dead) < min(MAX_DEAD, self._counters[k.STEPS_HERE]):  # the limit of notes for this match
                capacity = min(MAX_DEAD, MORE_DEAD * len(self._dead))
                self._dead = np.zeros((capacity, self._dead.shape[1]), np.int64)
                self._memory = self._memory._replace(dead=self._dead)
            if n:
                return FULL, n, n_taken, at, partition

    def _spent(self, row: int) -> QueryTooLargeError:
        of_all = self._counters[k.STEPS] >= self._max_steps
        budget = f"{self._max_steps:,} steps for all rows" if of_all else f"{STEPS:,} steps"
        predicate = next(iter(self._bound.searched.predicates.values()))[0]
        return QueryTooLargeError(
            f"the search for the match at row {row} of the ordered rows goes beyond {budget}, "
            "as conditions on other rows fail late",
            self._bound.binder.single.text,
            *predicate.span,
            hint="bound a repetition as in B{1,100}, make it reluctant as in B+?, or narrow its variable "
            "by a condition on the row itself",
        )

    def _allocate_memory(self, capacity: int) -> m.SearchMemory:
        """Return memory for matches of `capacity` rows."""
        n_sets, n_functions = len(self._plan.holds), len(self._plan.functions)
        totals = np.zeros((capacity, n_functions), np.int64)
        return m.SearchMemory(
            np.zeros(capacity, np.int16),
            np.zeros(capacity, np.int64),
            np.full(capacity, -1, np.int64),
            np.zeros((capacity, n_sets), np.int64),
            np.zeros((n_sets, capacity), np.int64),
            totals,
            totals.view(np.float64),
            np.zeros((capacity, n_functions), np.int64),
            self._counters,
            self._dead,
        )

    def _deepen(self) -> None:
        """Make memory for matches of twice as many rows, with the match so far."""
        old, hits = self._memory, self._guides.hits
        capacity = len(old.path)
        self._guides = self._guides._replace(hits=np.concatenate([hits, np.empty_like(hits)], axis=1))
        self._memory = self._allocate_memory(2 * capacity)
        for mine, theirs in zip(self._memory, old, strict=True):
            if theirs is old.positions:
                mine[:, :capacity] = theirs
            elif theirs is not self._counters and theirs is not self._dead:
                mine[:capacity] = theirs

    # ---- the plan ----------------------------------------------------------------------------------------------

    def _condition_code(self) -> tuple[list[RowArgument], list[tuple[int, int, int]], Int64]:
        """Return the arguments, the instructions, and where those of each place begin."""
        arguments: dict[RowArgument, int] = {}
        code: list[tuple[int, int, int]] = []
        begins = [0]
        for variable in self._places:
            for program in self._bound.programs.get(variable, ()):
                mine = [arguments.setdefault(self._argument(each), len(arguments)) for each in program.arguments]
                code += [(op, mine[a], b) if op == COLUMN else (op, a, b) for op, a, b in program.instructions]
                code.append((k.CHECK, 0, 0))
            begins.append(len(code))
        return list(arguments), code, np.array(begins, np.int64)

    def _add_bounds(
        self, bounds: Sequence[Sequence[RowBound]], arguments: list[RowArgument], code: list[tuple[int, int, int]]
    ) -> PlaceLists:
        """Add the arguments and instructions of bounds, and return the range of the bounds of each place."""
        rows: dict[RowBound, tuple[int, int, int, int]] = {}
        for bound in dict.fromkeys(each for of_place in bounds for each in of_place):
            begin = len(code)
            arguments += [each for each in dict.fromkeys(bound.arguments) if each not in arguments]
            mine = [arguments.index(each) for each in bound.arguments]
            code += [(op, mine[a], b) if op == COLUMN else (op, a, b) for op, a, b in bound.code]
            code.append((k.CHECK, 0, 0))
            rows[bound] = begin, len(code), *bound.needed
        return place_lists([[rows[bound] for bound in of_place] for of_place in bounds], 4)

    def _argument(self, argument: Argument) -> RowArgument:
        leaf = self._bound.searched.leaves[argument.variable]
        match leaf:
            case RowValue() if leaf.is_current and all(self._places_of_variable(leaf.variable)):
                return k.AT_HAND, 0, 0, leaf.offset
            case RowValue():
                return k.FIRST_ROW if leaf.first else k.LAST_ROW, self._set(leaf.variable), leaf.nth, leaf.offset
            case Null():
                return k.AT_HAND, 0, 0, 0
            case Classifier():
                return k.FIRST_CLASS if leaf.first else k.LAST_CLASS, self._set(leaf.variable), leaf.nth, 0
        f = self._functions.setdefault(leaf, len(self._functions))
        return k.BEST_ROW if _is_row(leaf) else k.TOTAL, f, 0, 0

    def _conditions_of(self) -> list[list[tuple[Condition, list[RowArgument]]]]:
        """Return the conditions of each place, each with its arguments."""
        programs = [self._bound.programs.get(variable, ()) for variable in self._places]
        return [[(each, [self._argument(a) for a in each.arguments]) for each in of_place] for of_place in programs]

    def _set(self, variable: str | None) -> int:
        return self._sets.setdefault(self._places_of_variable(variable), len(self._sets))

    def _places_of_variable(self, variable: str | None) -> tuple[bool, ...]:
        """Return for each place if a variable or subset has its rows, or None for all rows."""
        members = self._bound.searched.subsets.get(variable or "", (variable,))
        return tuple(variable is None or each in members for each in self._places)

    def _function(self, leaf: RowLeaf) -> tuple[int, int, int, int]:
        """Return the kind, the set, the column of inputs and the sign of a function."""
        if not isinstance(leaf, RowAggregate):
            return m.MATCHES, 0, -1, 0
        kind, read = self._function_kind(leaf)
        column = -1 if leaf.column is None else self._inputs[leaf.column, read]
        return kind, self._set(leaf.variable), column, 1 if leaf.function == "MAX" else -1

    def _function_kind(self, leaf: RowAggregate) -> tuple[int, str]:
        """Return the kind of a function, and the numbers that it reads of a column."""
        if leaf.function in ("MIN", "MAX"):
            return m.EXTREME, "ranks"
        if leaf.function == "COUNT":
            return m.COUNT, "valid"
        if leaf.function == "AVG":
            return m.AVG, "floats"
        assert leaf.column is not None
        is_float = kind_of(self._columns.rows.batch.column(leaf.column).type) == FLOAT
        return (m.SUM_F, "floats") if is_float else (m.SUM_I, "integers")

    def _functions_read(self, rows: OrderedRows) -> tuple[Int64, Bools]:
        """Return the inputs of functions: values or ranks, and which are not NULL."""
        inputs: list[Int64] = []
        valid: list[Bools] = []
        for leaf in self._functions:
            if not isinstance(leaf, RowAggregate):
                continue
            self._set(leaf.variable)
            read = self._function_kind(leaf)[1]
            if leaf.column is None or (leaf.column, read) in self._inputs:
                continue
            self._inputs[leaf.column, read] = len(inputs)
            column_valid = self._columns.valid(leaf.column)
            valid.append(column_valid if len(column_valid) else np.ones(rows.batch.num_rows, np.bool_))
            if read == "ranks":
                inputs.append(self._columns.ranks(leaf.column))
            elif read == "valid":
                inputs.append(np.zeros(rows.batch.num_rows, np.int64))
            else:
                inputs.append(self._columns.numbers(leaf, as_float=read == "floats").view(np.int64))
        n = rows.batch.num_rows
        return np.array(inputs, np.int64).reshape(-1, n), np.array(valid, np.bool_).reshape(-1, n)

    def _column_values(self, rows: OrderedRows, stored: StoredRows, numbers: StringIds) -> Int64:
        """Return the columns that conditions read of stored rows, then of places, and last the values for no row."""
        binder, batch = self._bound.binder, rows.batch
        n, n_places = len(stored), len(self._places)
        values = np.empty((n + n_places + 1, 1 + len(binder.columns)), np.int64)
        side = SideColumns(tuple(binder.columns), binder.single.inputs, numbers)
        makers = makers_of(binder.single.derived)

        names = [
            leaf.column for leaf in self._bound.searched.leaves.values() if isinstance(leaf, RowValue | RowAggregate)
        ]
        read = batch.select(columns_with(batch.schema, filter(None, names)))

        def put(block: Block, own: npt.NDArray[np.int32], first: int, classes: pa.Array | None = None) -> None:
            for name, data_type in self._bound.computed.items():
                is_class = classes is not None and pa.types.is_string(data_type)
                block.put(name, classes if is_class else pa.nulls(block.n_rows, data_type))
            block.derive(makers)
            side.of(block, own, values[first : first + len(own)])

        for begin, n_rows, first, own in stored.blocks(SEARCH_ROWS):
            put(Block(read.slice(begin, n_rows)), own, first)
        nothing = [pa.nulls(n_places + 1), *(pa.nulls(n_places + 1, each.type) for each in read.schema)]
        classes = pa.array([*self._places, None], pa.string())
        places = np.arange(n_places + 1, dtype=np.int32)
        put(Block(pa.RecordBatch.from_arrays(nothing, names=["", *read.schema.names])), places, n, classes)
        return values
