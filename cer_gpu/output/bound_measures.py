"""Measures: their columns, bound to a schema, and their values for the matches of a buffer.

A measure is an expression over leaves: an attribute of one event of a variable (``x.a``, ``FIRST(x).a``), or an
aggregate over the events that a variable holds.  Leaves are computed by segments (`cer_gpu.output.leaves`), and the
arithmetic between them by Arrow, a column at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools
from cer_gpu.automaton.normal_form import variable_name
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import dotted, names_of, path_of
from cer_gpu.ceql.traversal import children, fold, with_children
from cer_gpu.ceql.variables import Variables
from cer_gpu.columnar.columns import STRING, TEMPORAL, Block, kind_of, plain_type
from cer_gpu.columnar.fields import column_type, fields_hint
from cer_gpu.errors import EventsError, QueryError, QueryTypeError, did_you_mean
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.derived import makers_of
from cer_gpu.expressions.numbers import sum_type
from cer_gpu.expressions.targets.arrow import ArithmeticTypeError, negative, of_literal, operation
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.output.leaves import FIRST_EVENT, LAST_EVENT, MeasureLeaf, Values


@dataclass(frozen=True)
class QueryMeasures:
    """Measures of a query, not bound to a schema.

    Attributes
    ----------
    measures : tuple of Measure
    having : Predicate or None
        Condition of HAVING.
    single, several : frozenset of str
        Variables of the pattern that hold at most one event, and the others.
    """

    measures: tuple[s.Measure, ...] = ()
    having: s.Predicate | None = None
    single: frozenset[str] = frozenset()
    several: frozenset[str] = frozenset()

    @property
    def attributes(self) -> tuple[str, ...]:
        """Columns and fields of events that the measures read, without duplicates."""
        named = [leaf for leaf in _leaves_in(self._roots) if not isinstance(leaf, s.Aggregate) or leaf.attribute]
        return tuple(dict.fromkeys(_attribute_of(leaf).name for leaf in named))

    @property
    def variables(self) -> tuple[str | None, ...]:
        """Variables that the measures name, without duplicates; None is the whole pattern, as in ``COUNT(*)``."""
        leaf_variables = [leaf.variable for leaf in _leaves_in(self._roots)]
        return tuple(dict.fromkeys(None if name is None else variable_name(name) for name in leaf_variables))

    @property
    def _roots(self) -> list[Any]:
        return [*(measure.expression for measure in self.measures), *([] if self.having is None else [self.having])]


NO_MEASURES = QueryMeasures()


def measures_of(syntax: s.QuerySyntax, variables: Variables) -> QueryMeasures:
    """Return the measures of a query; each attribute is qualified by its variable, one of `variables`."""
    measures = tuple(replace(m, expression=_qualified(m.expression, ())) for m in syntax.select.measures)
    names = [measure.name for measure in measures]
    having = None if syntax.having is None else _qualified(syntax.having, names)
    return QueryMeasures(measures, having, frozenset(variables.single), frozenset(variables.several))


def measure_errors(measures: QueryMeasures, text: str) -> Iterator[QueryError]:
    """Yield the errors of measures and of HAVING that can be detected without a schema."""
    for measure in measures.measures:
        yield from _errors_of_leaves(measures, measure.expression, text)
    names = [measure.name for measure in measures.measures]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            span = [measure.span for measure in measures.measures if measure.name == name][1]
            yield QueryError(f"two measures are called {name!r}", text, *span, hint="give one another name: AS name")
    if measures.having is not None:
        yield from _errors_of_leaves(measures, measures.having, text)
        for attribute in s.attributes(measures.having):
            if attribute.variable is None and attribute.name not in names:
                shown = dotted(attribute.name)
                hint = did_you_mean(shown, names, "measures")
                yield QueryError(f"HAVING names {shown!r}, which is no measure of SELECT", text, *attribute.span, hint)


def type_errors_of(measures: QueryMeasures, schema: pa.Schema, text: str) -> Iterator[QueryError]:
    """Yield the type errors of each measure against a schema, or that of HAVING if the measures have none."""
    n_errors = 0
    for part in [replace(measures, measures=(each,), having=None) for each in measures.measures] + [measures]:
        try:
            if part is not measures or not n_errors:
                bind_measures(part, schema, text)
        except QueryError as error:
            n_errors += 1
            yield error


def _errors_of_leaves(measures: QueryMeasures, root: Any, text: str) -> Iterator[QueryError]:
    for leaf in _leaves_in([root]):
        if leaf.variable is None:
            continue
        if leaf.variable.name not in measures.single | measures.several:
            missing = leaf.variable.name
            hint = did_you_mean(missing, sorted(measures.single | measures.several), "variables here")
            span = leaf.variable.span if leaf.variable.span != (0, 0) else leaf.span
            yield QueryError(f"SELECT names {missing!r}, which the formula does not define", text, *span, hint=hint)
            continue
        if isinstance(leaf, s.Aggregate):
            continue
        name, shown = variable_name(leaf.variable), dotted(leaf.name)
        if leaf.event == "PREV" or leaf.lag:
            what = "PREV(x).a" if leaf.event == "PREV" else "LAG"
            hint = "FIRST(x).a, LAST(x).a, an aggregate such as LIST(x.a), or a filter"
            yield QueryError(f"{what} is no measure: it belongs to a filter", text, *leaf.span, hint=hint)
        elif leaf.event == "EACH" and leaf.variable.name not in measures.single:
            yield QueryError(
                f"{name!r} can hold several events, and a measure is one value",
                text,
                *leaf.span,
                hint=f"FIRST({name}).{shown}, LAST({name}).{shown}, or an aggregate such as MAX({name}.{shown})",
            )


class LeafSource(Protocol):
    """Values of the leaves of measures."""

    def of(self, leaf: Any) -> pa.Array:
        """Return the values of a bound leaf, one for each output row."""

    def repeated(self, value: pa.Scalar) -> pa.Array:
        """Return a constant, repeated for each output row."""


@dataclass(frozen=True)
class BoundMeasures:
    """Measures bound to a schema, by `bind_measures`, or those of a row pattern by `cer_gpu.row_patterns.row_measures`.

    Attributes
    ----------
    fields : tuple of (str, pyarrow.DataType)
        Names and types of the columns.
    """

    fields: tuple[tuple[str, pa.DataType], ...]
    _expressions: tuple[s.Expression, ...]
    _leaf_of: Mapping[Any, Any] = field(hash=False)
    _bind_condition: _Condition | None = None

    @property
    def chooses(self) -> bool:
        """True if HAVING drops rows."""
        return self._bind_condition is not None

    def columns(self, values: LeafSource) -> list[pa.Array]:
        """Return the columns of the measures, one value for each output row.

        Raises
        ------
        EventsError
            When a value does not fit its type; the message names the measure.
        """
        arrays = []
        for (name, _), expression in zip(self.fields, self._expressions, strict=True):
            try:
                value = evaluated(expression, lambda leaf: values.of(self._leaf_of[leaf]))
            except EventsError as error:
                raise EventsError(f"measure {name!r}: {error}") from None
            arrays.append(values.repeated(value) if isinstance(value, pa.Scalar) else value)
        return arrays

    def having_mask(self, columns: Sequence[pa.Array], values: Values) -> Bools:
        """Return the mask of the rows that satisfy HAVING, given the columns of the measures; only if it `chooses`."""
        assert self._bind_condition is not None
        return self._bind_condition.rows(columns, values)


def bind_measures(measures: QueryMeasures, schema: pa.Schema, text: str) -> BoundMeasures:
    """Bind measures to the schema of the events.

    Raises
    ------
    QueryTypeError
        When an attribute is missing, or its type does not fit; the message names the measure.
    """
    leaf_of: dict[s.Expression, MeasureLeaf] = {}
    fields: list[tuple[str, pa.DataType]] = []
    for measure in measures.measures:
        for node in _leaves_in([measure.expression]):
            leaf_of[node] = bound_leaf(node, schema, text, measure.name)
        fields.append((measure.name, type_of_measure(measure.name, measure.expression, leaf_of, text)))
    condition = None
    if measures.having is not None:
        condition = _bind_condition(measures.having, fields, schema, text)
    return BoundMeasures(tuple(fields), tuple(m.expression for m in measures.measures), leaf_of, condition)


def type_of_measure(name: str, expression: s.Expression, leaf_of: Mapping[Any, Any], text: str) -> pa.DataType:
    """Return the type of an expression, given its bound leaves, which have types.

    Raises
    ------
    QueryTypeError
        When the types do not support an operation; the message names the measure.
    """

    def refused(node: s.Expression, reason: str) -> QueryTypeError:
        return QueryTypeError(f"measure {name!r}: {reason}", text, *node.span)

    return evaluated(expression, lambda leaf: pa.nulls(0, leaf_of[leaf].type), refused).type


# ---- leaves --------------------------------------------------------------------------------------------------------


def _outermost(roots: Iterable[Any]) -> Iterator[s.Aggregate | s.Attribute]:
    """Yield the outermost aggregates below some nodes, and the attributes outside of them, in order."""
    todo = [*roots][::-1]
    while todo:
        node = todo.pop()
        if isinstance(node, s.Aggregate | s.Attribute):
            yield node
        else:
            todo += [*children(node)][::-1]


def _leaves_in(roots: Iterable[Any]) -> Iterator[s.Aggregate | s.Attribute]:
    """Yield the leaves below some nodes: aggregates, and attributes of a variable outside of aggregates."""
    return (each for each in _outermost(roots) if isinstance(each, s.Aggregate) or each.variable is not None)


def _attribute_of(leaf: s.Aggregate | s.Attribute) -> s.Attribute:
    attribute = leaf.attribute if isinstance(leaf, s.Aggregate) else leaf
    assert attribute is not None
    return attribute


def _qualified(root: Any, measures: Sequence[str]) -> Any:
    """Return an expression or predicate in which each attribute that is not a measure is qualified by its variable."""

    def rebuild(node: Any, parts: list[Any]) -> Any:
        if isinstance(node, s.Aggregate):
            return node
        if not isinstance(node, s.Attribute):
            return with_children(node, parts)
        first, *rest = names_of(node.name)
        if node.variable is not None or not rest or node.name in measures:
            return node
        return replace(node, name=path_of(rest), variable=s.Name(first, None, node.span))

    return fold(root, rebuild, lambda node: () if isinstance(node, s.Aggregate) else children(node))


def bound_leaf(node: s.Aggregate | s.Attribute, schema: pa.Schema, text: str, measure: str) -> MeasureLeaf:
    """Return a leaf of a measure, bound to a schema of events.

    Raises
    ------
    QueryTypeError
        When the attribute is missing, or its type does not fit; the message names the measure.
    """
    name = None if node.variable is None else variable_name(node.variable)
    if isinstance(node, s.Aggregate) and node.attribute is None:
        return MeasureLeaf(node.function, name, None, pa.int64())
    attribute = _attribute_of(node)
    where = attribute.span if attribute.span != (0, 0) else node.span
    data_type = plain_type(column_type(schema, attribute.name, text, where))

    def refused(reason: str, hint: str | None = None) -> QueryTypeError:
        shown = f"column {dotted(attribute.name)!r} is {data_type}"
        return QueryTypeError(f"measure {measure!r}: {reason}, and {shown}", text, *where, hint=hint)

    if isinstance(node, s.Attribute):
        return MeasureLeaf(LAST_EVENT if node.event == "LAST" else FIRST_EVENT, name, attribute.name, data_type)
    kind, function = kind_of(data_type), node.function
    if function == "LIST":
        return MeasureLeaf(function, name, attribute.name, pa.list_(data_type))
    if function in ("MIN", "MAX"):
        if kind is None:
            raise refused(f"{function} needs values in an order", fields_hint(attribute.name, data_type))
        return MeasureLeaf(function, name, attribute.name, data_type)
    if kind in (STRING, TEMPORAL, None):
        raise refused(f"{function} needs numbers", fields_hint(attribute.name, data_type))
    if function == "AVG":
        if pa.types.is_duration(data_type):
            raise refused("AVG needs numbers", "SUM(x.a) / COUNT(x) is a duration")
        return MeasureLeaf(function, name, attribute.name, pa.float64())
    return MeasureLeaf(function, name, attribute.name, sum_type(data_type))


# ---- expressions ---------------------------------------------------------------------------------------------------


def evaluated(expression: s.Expression, leaf: Any, refused: Any = None) -> Any:
    """Return the value of an expression over leaves: an array, or a scalar for all rows.

    `leaf` returns the array of a leaf; `refused` returns the error for an operation that the types do not support.
    """

    def value(node: s.Expression, below: list[Any]) -> Any:
        try:
            match node:
                case s.Literal() | s.Duration():
                    return of_literal(node)
                case s.Attribute() if node.variable is None:
                    raise ArithmeticTypeError(
                        f"{dotted(node.name)!r} names no variable: expected x.{dotted(node.name)}"
                    )
                case s.Attribute() | s.Aggregate():
                    return leaf(node)
                case s.Negative():
                    return negative(below[0])
                case s.Arithmetic():
                    return operation(node.op, below[0], below[1])
                case s.Call():
                    return operation(node.function, *below)
        except ArithmeticTypeError as error:
            if refused is None:
                raise
            raise refused(node, str(error)) from None

    return fold(expression, value, lambda node: () if isinstance(node, s.Aggregate) else children(node))


# ---- HAVING --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Condition:
    """Condition of HAVING, as a predicate over a batch of the columns that it reads.

    Attributes
    ----------
    names : tuple of str
        Columns of the batch: the measures that the condition reads, then the leaves that it contains itself.
    """

    names: tuple[str, ...]
    measures: tuple[int, ...]
    leaves: tuple[MeasureLeaf, ...]
    binder: Binder
    test: Any

    def rows(self, columns: Sequence[pa.Array], values: Values) -> Bools:
        """Return the rows for which the condition is TRUE."""
        read = [columns[i] for i in self.measures] + [values.of(leaf) for leaf in self.leaves]
        block = Block(pa.RecordBatch.from_arrays(read, names=list(self.names)))
        block.n_rows = values.n
        block.derive(makers_of(self.binder.derived))
        return np.broadcast_to(rows_of(self.test, self.binder.inputs.fresh(), block), (values.n,))


def _bind_condition(
    having: s.Predicate, fields: Sequence[tuple[str, pa.DataType]], schema: pa.Schema, text: str
) -> _Condition:
    named = [name for name, _ in fields]
    read = {each.name for each in _outermost([having]) if isinstance(each, s.Attribute) and each.variable is None}
    used = [i for i, name in enumerate(named) if name in read]
    names, types = [named[i] for i in used], [fields[i][1] for i in used]
    hidden: dict[MeasureLeaf, str] = {}

    def shown(node: Any, parts: list[Any]) -> Any:
        if isinstance(node, s.Aggregate) or (isinstance(node, s.Attribute) and node.variable is not None):
            leaf = bound_leaf(node, schema, text, "HAVING")
            name = text[slice(*node.span)] or repr(leaf)
            while name in names:
                name += " "
            hidden.setdefault(leaf, name)
            return s.Attribute(hidden[leaf], node.span)
        return with_children(node, parts)

    predicate = fold(having, shown, lambda node: () if isinstance(node, s.Aggregate) else children(node))
    columns = [*zip(names, types, strict=True), *((name, leaf.type) for leaf, name in hidden.items())]
    binder = Binder(pa.schema(columns), text)
    test = binder.bind(predicate)
    return _Condition(tuple(name for name, _ in columns), tuple(used), tuple(hidden), binder, test)
