"""Measures of row patterns: their types, and their values at the end of each match or at each of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools, Int64
from cer_gpu.backend.aggregates.segments import Segments
from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import FLOAT, kind_of, numbers_of, plain_type, validity
from cer_gpu.columnar.fields import column_type
from cer_gpu.errors import EventsError
from cer_gpu.output.bound_measures import BoundMeasures, bound_leaf, type_of_measure
from cer_gpu.output.leaves import VariableRows, floats_of, ranks_of, taken
from cer_gpu.row_patterns.leaves import Classifier, MatchNumber, Null, RowAggregate, RowLeaf, RowValue, shown_leaf
from cer_gpu.row_patterns.ordering import OrderedRows, comparable
from cer_gpu.row_patterns.program import RowProgram
from cer_gpu.row_patterns.row_matching import RowMatches

_OF_CEQL = {"ARRAY_AGG": "LIST"}


@dataclass(frozen=True)
class Measures:
    """Measures of a statement.

    Attributes
    ----------
    expressions : dict from str to Expression
        By name, over attributes named as `leaves` are.
    leaves : dict from str to RowLeaf
    """

    expressions: Mapping[str, s.Expression]
    leaves: Mapping[str, RowLeaf]

    def bind(self, schema: pa.Schema, text: str) -> BoundMeasures:
        """Bind them to the schema of the rows.

        Raises
        ------
        QueryTypeError
            When a column is unknown, or types do not go together; the message names the measure.
        """
        leaf_of: dict[s.Expression, TypedLeaf] = {}
        fields = []
        for name, expression in self.expressions.items():
            for attribute in s.attributes(expression):
                leaf = self.leaves[attribute.name]
                leaf_of[attribute] = TypedLeaf(leaf, type_of(leaf, schema, text, name, attribute.span))
            fields.append((name, type_of_measure(name, expression, leaf_of, text)))
        return BoundMeasures(tuple(fields), tuple(self.expressions.values()), leaf_of)


@dataclass(frozen=True)
class TypedLeaf:
    """A leaf, and the type of its values."""

    leaf: RowLeaf
    type: pa.DataType


def type_of(leaf: RowLeaf, schema: pa.Schema, text: str, measure: str, span: s.Span) -> pa.DataType:
    """Return the type of a leaf.

    Raises
    ------
    QueryTypeError
        When the column is unknown, or its type does not fit; the message names the measure.
    """
    match leaf:
        case RowValue():
            return plain_type(column_type(schema, leaf.column, text, span))
        case RowAggregate():
            attribute = None if leaf.column is None else s.Attribute(leaf.column, span)
            if leaf.function == "COUNT":
                if leaf.column is not None:
                    column_type(schema, leaf.column, text, span)
                return pa.int64()
            function = _OF_CEQL.get(leaf.function, leaf.function)
            return bound_leaf(s.Aggregate(function, None, attribute, span), schema, text, measure).type
        case Classifier():
            return pa.string()
        case Null():
            return pa.null()
    return pa.int64()


@dataclass(frozen=True)
class Listed:
    """Rows of matches for ALL ROWS PER MATCH.

    Attributes
    ----------
    rows : int64, shape (n,)
    steps : int64, shape (n,)
        Index of the place of the row; -1 if there is none.
    matches : int64, shape (n,)
        The match; -1: none, for an unmatched row.
    """

    rows: Int64
    steps: Int64
    matches: Int64


class RowColumns:
    """Columns of the rows as arrays; each is built once, for all matches.

    Parameters
    ----------
    rows
    """

    def __init__(self, rows: OrderedRows) -> None:
        self.rows = rows
        self._ranks: dict[str, Int64] = {}
        self._numbers: dict[tuple[str, bool], Array] = {}
        self._valid: dict[str, Bools] = {}

    def valid(self, name: str) -> Bools:
        """Return False for NULL; of shape (0,) where no row is NULL."""
        if name not in self._valid:
            valid = validity(self.rows.batch.column(name))
            self._valid[name] = np.empty(0, np.bool_) if valid is None else valid
        return self._valid[name]

    def ranks(self, name: str) -> Int64:
        """Return a column as numbers in the order of its values."""
        if name not in self._ranks:
            column = self.rows.batch.column(name)
            kind = column.type
            if pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind):
                self._ranks[name] = numbers_of(column).astype(np.int64)
            else:
                self._ranks[name] = ranks_of(comparable(column))
        return self._ranks[name]

    def numbers(self, leaf: RowAggregate, *, as_float: bool) -> Array:
        """Return the values that an aggregate adds up as float64 or int64, 0 for NULL; decimals in their least unit.

        Raises
        ------
        EventsError
            When a value needs more than int64.
        """
        name = leaf.column
        assert name is not None
        if (name, as_float) not in self._numbers:
            column = self.rows.batch.column(name)
            try:
                self._numbers[name, as_float] = self._as_numbers(column, as_float)
            except pa.ArrowInvalid:
                raise EventsError(
                    f"{shown_leaf(leaf)} adds up {column.type}, of which a value needs more than 63 bits\n"
                    f"hint: AVG({name}) * COUNT({name}) is a float64"
                ) from None
        return self._numbers[name, as_float]

    @staticmethod
    def _as_numbers(column: pa.Array, as_float: bool) -> Array:
        if as_float:
            return floats_of(column)
        if pa.types.is_decimal(column.type):
            return numbers_of(column.cast(pa.decimal128(18, column.type.scale))).astype(np.int64)
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


class LeafValues:
    """Values of leaves for some matches, one for each output row; each is computed once.

    Parameters
    ----------
    columns
    matches
    program
    subsets
        Variables of each subset.
    listed
        Output rows, or None for one per match.
    """

    def __init__(
        self,
        columns: RowColumns,
        matches: RowMatches,
        program: RowProgram,
        subsets: Mapping[str, Sequence[str]],
        listed: Listed | None,
    ) -> None:
        self._columns, self._rows = columns, columns.rows
        self._matches, self._program, self._subsets = matches, program, subsets
        self._listed = listed
        self.n: int = len(matches) if listed is None else len(listed.rows)
        self._cached: dict[Any, Any] = {}
        self._variables = np.array([place.variable for place in program.places], object)
        self._match_of_step = (
            np.empty(0, np.int64) if listed is None else np.repeat(np.arange(len(matches)), matches.lengths)
        )

    def of(self, bound: TypedLeaf) -> pa.Array:
        """Return the values of a leaf.

        Raises
        ------
        EventsError
            When a sum does not fit its type.
        """
        leaf = bound.leaf
        if leaf not in self._cached:
            each = self._listed is not None and not leaf.final
            values = self._computed(leaf, bound.type, each)
            self._cached[leaf] = self._rows_or_matches(values, each and not isinstance(leaf, MatchNumber), leaf)
        return self._cached[leaf]

    def repeated(self, value: pa.Scalar) -> pa.Array:
        """Return a constant for all output rows except those of no match."""
        repeated = pa.repeat(value, self.n)
        if self._listed is None or not self.n or self._listed.matches.min() >= 0:
            return repeated
        return pc.if_else(pa.array(self._listed.matches >= 0), repeated, pa.scalar(None, value.type))

    def _rows_or_matches(self, values: pa.Array, each: bool, leaf: RowLeaf) -> pa.Array:
        """Return values of matches, or of their rows, for the output rows."""
        listed = self._listed
        if listed is None:
            return values
        at = listed.steps if each else listed.matches
        column = values.take(pa.array(at, mask=at < 0)) if at.size and at.min() < 0 else values.take(pa.array(at))
        if each and isinstance(leaf, RowAggregate) and leaf.function == "COUNT":  # an empty match counts no rows
            empty = (listed.steps < 0) & (listed.matches >= 0)
            column = pc.if_else(pa.array(empty), pa.scalar(0, pa.int64()), column)
        return column

    def _computed(self, leaf: RowLeaf, data_type: pa.DataType, each: bool) -> pa.Array:
        match leaf:
            case RowValue():
                return self._take_column(leaf.column, self._moved(self._places_of(leaf, each), leaf.offset, each))
            case Classifier():
                return self._classified(leaf, each)
            case RowAggregate():
                return self._compute_aggregate(leaf, data_type, each)
            case Null():
                return pa.nulls(len(self._matches.places) if each else len(self._matches))
        return pa.array(self._matches.numbers)

    # ---- rows ------------------------------------------------------------------------------------------------

    def _holds_variable(self, variable: str | None) -> Bools:
        if variable is None:
            return np.ones(len(self._variables), np.bool_)
        names = set(self._subsets.get(variable, (variable,)))
        return np.array([name in names for name in self._variables], np.bool_)

    def _rows_of_variable(self, variable: str | None, each: bool) -> VariableRows:
        matches = self._matches
        holds, no_rows = self._holds_variable(variable), np.empty(0, np.int64)
        return VariableRows(Segments(matches.offsets, matches.places, holds, no_rows, matches.starts), each)

    def _places_of(self, leaf: RowValue | Classifier, each: bool) -> Int64:
        """Return the row of each match, or of each of its rows; -1 for none."""
        key = leaf.variable, leaf.first, leaf.nth, each
        if key not in self._cached:
            self._cached[key] = self._rows_of_variable(leaf.variable, each).find(first=leaf.first, nth=leaf.nth)
        return self._cached[key]  # type: ignore[no-any-return]

    def _moved(self, rows: Int64, offset: int, each: bool) -> Int64:
        """Return rows at an offset; -1 beyond the partition."""
        if not offset:
            return rows
        ends = self._rows.ends
        numbers = self._matches.partitions
        low, high = self._rows.starts[numbers], ends[numbers]
        if each:
            low, high = low[self._match_of_step], high[self._match_of_step]
        moved = rows + offset
        moved[(rows < 0) | (moved < low) | (moved >= high)] = -1
        return moved

    def _take_column(self, column: str, rows: Int64) -> pa.Array:
        values = self._rows.batch.column(column)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode() if len(values) < 2 * len(rows) else values
        values = taken(values, rows)
        return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

    def _classified(self, leaf: Classifier, each: bool) -> pa.Array:
        places, matches = self._matches.places, self._matches
        rows = self._places_of(leaf, each)
        number = self._match_of_step if each else np.arange(len(matches))
        steps = np.where(rows < 0, 0, rows - matches.starts[number] + matches.offsets[number])
        names = pa.array(list(self._variables), pa.string())
        codes = places[steps] if len(places) else np.zeros(len(steps), np.int16)
        return names.take(pa.array(codes, mask=rows < 0))

    # ---- aggregates --------------------------------------------------------------------------------------------

    def _compute_aggregate(self, leaf: RowAggregate, data_type: pa.DataType, each: bool) -> pa.Array:
        variable_rows, column, columns = self._rows_of_variable(leaf.variable, each), leaf.column, self._columns
        if column is None:
            whole = not each and bool(variable_rows.segments.holds.all())
            return pa.array(self._matches.lengths if whole else variable_rows.count())
        match leaf.function:
            case "COUNT":
                return pa.array(variable_rows.count(columns.valid(column)))
            case "ARRAY_AGG":
                return variable_rows.lists(
                    f"ARRAY_AGG({column})", lambda rows: self._take_column(column, rows), data_type
                )
            case "MIN" | "MAX":
                return self._take_column(
                    column, variable_rows.extreme(leaf.function, columns.ranks(column), columns.valid(column))
                )
        as_float = leaf.function == "AVG" or kind_of(columns.rows.batch.column(column).type) == FLOAT
        values = columns.numbers(leaf, as_float=as_float)
        result = variable_rows.summed(leaf.function, values, columns.valid(column), data_type)
        if isinstance(result, int):
            raise EventsError(
                f"{shown_leaf(leaf)} is beyond {data_type} at row {result} of the ordered rows\n"
                f"hint: AVG({column}) * COUNT({column}) is a float64"
            )
        return result
