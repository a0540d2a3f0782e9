"""Texts of Sigma's rules as queries: CEQL whose fields may be missing, or of another type than their tests expect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import OVER_AGGREGATES, OverValues
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.traversal import children, mapped, walk
from cer_gpu.columnar.clocks import read_timestamp
from cer_gpu.columnar.columns import BOOLEAN, DECIMAL, FLOAT, INTEGER, NOTHING, STRING, TEMPORAL, kind_of
from cer_gpu.errors import CerError, QueryError
from cer_gpu.expressions.operators import FUNCTIONS, Function
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.query import check_time_unit
from cer_gpu.resolution.ceql import ParsedCeql
from cer_gpu.resolution.fields import FieldPlace, fields_below, find_field
from cer_gpu.resolution.predicates import (
    PredicateResolver,
    ResolvedTruth,
    constant_truth,
    joined_truths,
    negation,
    rebuilt,
)
from cer_gpu.resolution.resolved_query import (
    AS_NULL,
    ParsedQuery,
    ResolvedQuery,
    SchemaDependentQuery,
    check_missing_fields,
    compiled_over,
)
from cer_gpu.sigma.formulas import COUNTED

ANY_STRING_COLUMN = "*"
"""Name of the pseudo column that denotes every string column."""

_NUMBER = "number"
_KINDS = {INTEGER: _NUMBER, FLOAT: _NUMBER, DECIMAL: _NUMBER, STRING: STRING, BOOLEAN: BOOLEAN, TEMPORAL: TEMPORAL}
_LITERALS = {bool: BOOLEAN, int: _NUMBER, float: _NUMBER, str: STRING}
_OF_STRINGS = frozenset(("lower", "upper", "length", "substring", "between", "indexof", "startswith", "endswith"))
_OF_STRINGS |= {"contains", "concat", "number"}
_OF_TIMES = frozenset(["minute", "hour", "day", "weekday", "week", "month", "year"])
_OF_ALL_TYPES = (OverValues.EVENTS, OverValues.SINGLE)
_RESULT_KINDS = {
    **dict.fromkeys(("lower", "upper", "concat", "substring", "between", "string"), STRING),
    **dict.fromkeys(("startswith", "endswith", "contains"), BOOLEAN),
}
_WRITTEN_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?\Z")
_TRUTHS = {"true": True, "false": False}


class LooseFitter(PredicateResolver):
    """Predicates of a rule over a schema.

    Parameters
    ----------
    schema
    missing_is_null
        False if a field that is missing in the schema stays as it is, which is an error.
    """

    def __init__(self, schema: pa.Schema, missing_is_null: bool = True) -> None:
        super().__init__(schema)
        self._missing_is_null = missing_is_null
        self._kinds: dict[str, str | None] = {}
        self._element: s.Element | None = None  # of the list that the test at hand is of
        self._converted: list[s.Expression] = []  # values of the test at hand that may be NULL where fields are not

    def find(self, schema: pa.Schema, names: tuple[str, ...]) -> Any:
        """Return where a field is; of keywords, where the string columns are, or None if there is none."""
        if names == (ANY_STRING_COLUMN,):
            return tuple(_text_fields(schema))
        field = find_field(schema, tuple(".".join(names).split(".")))
        readable = field is not None and kind_of(field.type) is not None and not pa.types.is_duration(field.type)
        return field if readable else None

    def resolve(self, predicate: s.Predicate) -> ResolvedTruth:
        """Return a predicate over the schema, or what it is for every event; itself if nothing changes."""
        return self.truth(predicate, negated=False)

    def key(self, name: s.Name) -> s.Name | None:
        """Return a key of PARTITION BY over the schema, or None if the events lack it."""
        field = self.place(name.name)
        if field is None:
            return None if self._missing_is_null else name
        if isinstance(field, tuple) or field.in_list:  # all string columns, as of keywords
            return None
        if name.nocase and self._kind_of(name.name) != STRING:
            name = replace(name, nocase=False)
        return name if field.attribute == name.name else replace(name, name=field.attribute)

    # ---- tests ----------------------------------------------------------------------------------------------------

    def leaf(self, node: Any, negated: bool) -> ResolvedTruth:
        """Return where a test is TRUE; negated, where it is not."""
        if isinstance(node, s.AnyElement):
            return self.of_elements(node, negated)
        if any(each.name == ANY_STRING_COLUMN and each.aggregate is None for each in s.attributes(node)):
            return self._resolve_keywords(node, negated)
        around = self._element, self._converted
        self._element, self._converted = None, []
        truth = self._resolve_test(node)
        element, converted = self._element, self._converted
        self._element, self._converted = around
        if element is not None and isinstance(node, s.Comparison) and node.op == "<>":
            return self.leaf(replace(node, op="="), not negated)  # of a list no element is equal
        if truth is None:
            return negated
        if isinstance(truth, bool):
            return truth != negated
        if element is not None:
            return _test_of_list(truth, element, negated)
        if not negated:
            return truth
        return joined_truths(s.Or, [negation(truth), *(s.IsNull(each, node.span) for each in converted)], node.span)

    def _resolve_test(self, node: Any) -> ResolvedTruth | None:
        """Return a test over the schema, or None if it is NULL for every event."""
        match node:
            case s.IsNull():
                return self._null(node)
            case s.StringTest():
                value = self.value(node.operand)
                return None if value is None else self._resolve_string_test(node, value)
            case s.Membership():
                value, *values = (self.value(each) for each in children(node))
                return (
                    None if value is None else self._resolve_membership(node, value, [each for each in values if each])
                )
            case s.Comparison():
                left, right = self.value(node.left), self.value(node.right)
                return None if left is None or right is None else self._resolve_comparison(node, left, right)
        old = children(node)
        values = [self.value(each) for each in old]
        truth: ResolvedTruth | None = None if None in values else rebuilt(node, old, values)
        return truth

    def _null(self, node: s.IsNull) -> ResolvedTruth:
        value = self.value(node.operand)
        if value is None:
            return True
        if self._element is not None:  # the list itself
            value, self._element = self._element.list, None
        return node if value is node.operand else replace(node, operand=value)

    def _resolve_string_test(self, node: s.StringTest, value: s.Expression) -> ResolvedTruth:
        """Return a string test of a value of any kind: patterns that write a value of the kind are that value."""
        kind = self._value_kind(value)
        if kind in (STRING, None):
            return node if value is node.operand else replace(node, operand=value)
        constants: list[s.Expression] = []
        patterns: list[s.Literal] = []
        for pattern, text in zip(node.patterns, node.strings, strict=True):
            is_plain = node.name == "GLOB" and not set(text) & set("*?[")
            constant = self._convert_constant(value, text, node.nocase, node.span) if is_plain else None
            if constant is not None:
                constants.append(constant)
            else:
                patterns.append(pattern)
        tests: list[s.Predicate] = []
        if kind == TEMPORAL:
            tests += [_equal(value, [each], node.span) for each in constants]
        elif constants:
            tests.append(_equal(value, constants, node.span))
        if patterns:
            tests.append(replace(node, operand=self._as_string(value), patterns=tuple(patterns)))
        return joined_truths(s.Or, tests, node.span)

    def _resolve_membership(
        self, node: s.Membership, value: s.Expression, values: list[s.Expression]
    ) -> ResolvedTruth | None:
        """Return the test that a value is one of several."""
        kind = self._value_kind(value)
        if kind is None or all(self._value_kind(each) == kind for each in values):
            unchanged = value is node.operand and len(values) == len(node.values)
            unchanged = unchanged and all(new is old for new, old in zip(values, node.values, strict=True))
            if unchanged or not values:
                return node if unchanged else False
            return replace(node, operand=value, values=tuple(values))
        tests = [self._resolve_comparison(s.Comparison("=", value, each, node.span), value, each) for each in values]
        same = [each for each in tests if each is not None]
        if all(isinstance(each, s.Comparison) and each.left == value for each in same) and len(same) > 1:
            return replace(node, operand=value, values=tuple(each.right for each in same))  # type: ignore[union-attr]
        return joined_truths(s.Or, same, node.span) if same else None

    def _resolve_comparison(self, node: s.Comparison, left: s.Expression, right: s.Expression) -> ResolvedTruth | None:
        """Return a comparison of two values of any kinds."""
        kinds = self._value_kind(left), self._value_kind(right)
        if None in kinds or kinds[0] == kinds[1]:
            unchanged = left is node.left and right is node.right
            comparison = node if unchanged else replace(node, left=left, right=right)
            truth = constant_truth(comparison)
            return comparison if truth is None else truth
        if _constant_text(left) is not None and _constant_text(right) is None:
            turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(node.op, node.op)
            return self._resolve_comparison(s.Comparison(turned, right, left, node.span), right, left)
        text = _constant_text(right)
        if text is None:
            return replace(node, left=self._as_string(left), right=self._as_string(right))
        constant = self._convert_constant(left, text, kinds[1] == BOOLEAN, node.span)
        if kinds[0] == STRING and kinds[1] == _NUMBER and node.op not in ("=", "<>"):
            number = s.Call("number", (left,), node.span)
            self._converted.append(number)
            return s.Comparison(node.op, number, right, node.span)
        if kinds[0] == STRING and kinds[1] == BOOLEAN:
            test = s.StringTest("GLOB", left, (s.Literal(text, span=right.span),), True, node.span)
            return test if node.op == "=" else s.Not(test, node.span) if node.op == "<>" else None
        if constant is not None:
            return s.Comparison(node.op, left, constant, node.span)
        if node.op not in ("=", "<>"):
            return None
        return s.Comparison(node.op, self._as_string(left), s.Literal(text, span=right.span), node.span)

    def _resolve_keywords(self, node: Any, negated: bool) -> ResolvedTruth:
        """Return a test of every string column, of which one has to pass."""
        truths: list[ResolvedTruth] = []
        for field in self.place(ANY_STRING_COLUMN):
            column = s.Attribute(field.attribute, node.span)
            element = s.Element(column, field.below, node.span) if field.in_list else None
            test = _with_keywords(node, element or column)
            null = s.IsNull(column, node.span)
            if isinstance(node, s.IsNull):
                truths.append(negation(null) if negated else null)
            elif element is not None:
                truth = _test_of_list(test, element, negated)
                truths.append(joined_truths(s.Or, [truth, null], node.span) if negated else truth)
            else:
                truths.append(s.Or((s.Not(test, node.span), null), node.span) if negated else test)
        every = negated != isinstance(node, s.IsNull)
        return joined_truths(s.And if every else s.Or, truths, node.span)

    # ---- values ---------------------------------------------------------------------------------------------------

    def value(self, node: s.Expression) -> s.Expression | None:
        """Return a value over the schema, or None if it is NULL for every event."""
        if isinstance(node, s.Attribute):
            return self.attribute(node)
        values = children(node)
        if not values or isinstance(node, s.Element):
            return super().value(node)
        operands = [self.value(value) for value in values]
        resolved = [value for value in operands if value is not None]
        if len(resolved) < len(operands):
            return None
        if isinstance(node, s.Call) and node.function in _OF_TIMES:
            if not self._has_part(resolved[0], node.function):
                return None
        elif isinstance(node, s.Call) and node.function in _OF_STRINGS:
            if node.function == "number" and self._value_kind(resolved[0]) == _NUMBER:
                return resolved[0]
            resolved = [each if isinstance(each, s.Literal) else self._as_string(each) for each in resolved]
        expression: s.Expression = rebuilt(node, values, resolved)
        return expression

    def attribute(self, node: s.Attribute) -> s.Expression | None:
        """Return an attribute over the schema, a list's element, or a value that replaces it, or None if it is NULL."""
        if node.aggregate is not None:
            return self._resolve_aggregate(node, node.aggregate)
        field = self.place(node.name)
        if field is None:
            return None if self._missing_is_null else node
        if self._kind_of(node.name) == NOTHING:
            return None
        attribute = node if field.attribute == node.name else replace(node, name=field.attribute)
        if not field.in_list:
            return attribute
        if self._element is not None and self._element.list != attribute:
            return None  # one test is of one list
        self._element = s.Element(attribute, field.below, node.span)
        self._kinds.setdefault(attribute.name, self._kind_of(node.name))
        return self._element

    def _resolve_aggregate(self, node: s.Attribute, aggregate: s.OverAggregate) -> s.Expression | None:
        """Return an OVER aggregate; one of numbers is that of no events where the field is of another kind."""
        field = None if aggregate.attribute is None else self.place(aggregate.attribute)
        if field is not None and aggregate.attribute is not None:
            if field.in_list or (
                OVER_AGGREGATES[aggregate.function].takes not in _OF_ALL_TYPES
                and self._kind_of(aggregate.attribute) != _NUMBER
            ):
                return super().attribute(replace(node, aggregate=replace(aggregate, predicate=s.SATISFIED_BY_NONE)))
            if aggregate.nocase and self._kind_of(aggregate.attribute) != STRING:
                node = replace(node, aggregate=(aggregate := replace(aggregate, nocase=False)))
            if field.attribute != aggregate.attribute:
                node = replace(node, aggregate=replace(aggregate, attribute=field.attribute))
        return super().attribute(node)

    def _kind_of(self, attribute: str) -> str | None:
        """Return the kind of an attribute, or None if it is not known."""
        if attribute not in self._kinds:
            field = self.place(attribute)
            kind = kind_of(field.type) if isinstance(field, FieldPlace) else None
            self._kinds[attribute] = NOTHING if kind == NOTHING else _KINDS.get(kind or "")
        return self._kinds[attribute]

    def _value_kind(self, value: s.Expression) -> str | None:
        """Return the kind of a value over the schema, or None if it is not known."""
        match value:
            case s.Literal():
                return _LITERALS[type(value.value)]
            case s.Attribute(aggregate=None):
                return self._kind_of(value.name)
            case s.Element():
                return self._kind_of(value.list.name)
            case s.Call():
                return _RESULT_KINDS.get(value.function, _NUMBER)
            case s.Negative() if isinstance(value.operand, s.Literal):
                return _NUMBER
        return None

    def _has_part(self, value: s.Expression, function: str) -> bool:
        """Return True for a value that may have a part of a time."""
        column = value.list if isinstance(value, s.Element) else value
        if not isinstance(column, s.Attribute) or column.aggregate is not None:
            return False
        field, part = self.place(column.name), FUNCTIONS[function]
        return field is None or (isinstance(part, Function) and part.takes(field.type))

    def _as_string(self, value: s.Expression) -> s.Expression:
        """Return a value as a text."""
        text = _constant_text(value)
        if text is not None:
            return value if self._value_kind(value) == STRING else s.Literal(text, span=value.span)
        return value if self._value_kind(value) in (STRING, None) else s.Call("string", (value,), value.span)

    def _convert_constant(self, value: s.Expression, text: str, nocase: bool, span: s.Span) -> s.Expression | None:
        """Return a constant of the kind of a value, as a text writes it, or None if it writes none."""
        kind = self._value_kind(value)
        if kind == STRING:
            return s.Literal(text, span=span)
        if kind == _NUMBER and _WRITTEN_NUMBER.match(text):
            plain = text.removeprefix("-")
            number = s.Literal(float(plain) if "." in plain else int(plain), plain, span)
            return s.Negative(number, span) if plain != text else number
        if kind == BOOLEAN and (text.lower() if nocase else text) in _TRUTHS:
            return s.Literal(_TRUTHS[text.lower()], span=span)
        if kind == TEMPORAL:
            field = self.place(value.name) if isinstance(value, s.Attribute) else None
            try:
                read_timestamp(text, field.type if field is not None else pa.timestamp("us"))
            except ValueError:
                return None
            return s.Literal(text, span=span)
        return None


def _constant_text(value: s.Expression) -> str | None:
    """Return a constant as it is written, or None if it is none."""
    if isinstance(value, s.Negative) and isinstance(value.operand, s.Literal):
        return f"-{value.operand.text}"
    if not isinstance(value, s.Literal):
        return None
    return str(value.value).lower() if isinstance(value.value, bool) else value.text or str(value.value)


def _with_keywords(node: Any, value: s.Expression) -> Any:
    """Return a test with a value substituted for the pseudo column of keywords."""
    return mapped(node, s.Attribute, lambda each: value if each.name == ANY_STRING_COLUMN else each)


def _equal(value: s.Expression, constants: Sequence[s.Expression], span: s.Span) -> s.Predicate:
    if len(constants) == 1:
        return s.Comparison("=", value, constants[0], span)
    return s.Membership(value, tuple(constants), span)


def _test_of_list(test: s.Predicate, element: s.Element, negated: bool) -> s.Predicate:
    """Return the test that one element of a list passes, or that none does."""
    if not negated:
        return s.AnyElement(test, test.span)
    read = [value for leaf in s.leaves(test) for value in children(leaf) if element in walk(value)]
    not_null = (s.Not(s.IsNull(value, test.span), test.span) for value in read)
    return s.Not(s.AnyElement(s.joined(s.And, [test, *not_null], test.span), test.span), test.span)


def _text_fields(schema: pa.Schema) -> Iterator[FieldPlace]:
    """Yield the string columns and fields, and the lists of strings."""
    return (field for field in fields_below(schema) if kind_of(field.type) == STRING)


class ParsedSigma(ParsedCeql):
    """The text of a rule as it was read, and the options by which it is compiled."""

    def resolver(self, schema: pa.Schema) -> LooseFitter:
        """Return the resolver that resolves predicates against a schema."""
        return LooseFitter(schema, missing_is_null=self.missing_fields == AS_NULL)


def analyse(
    text: str,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    missing_fields: str = AS_NULL,
    relations: Any = None,
) -> tuple[SigmaQuery | None, Sequence[CerError]]:
    """Compile the text of a rule and return it, or its errors; parameters as in `cer_gpu.compile`."""
    check_time_unit(time_unit)
    check_missing_fields(missing_fields)
    try:
        syntax = parse(text, relations)
    except QueryError as error:
        return None, [error]
    source = ParsedSigma(type_column, time_column, time_unit, syntax, missing_fields)
    query, errors = compiled_over(SigmaQuery, source, schema)
    return cast(SigmaQuery | None, query), errors


class SigmaQuery(SchemaDependentQuery):
    """A compiled rule of Sigma, the result of `cer_gpu.compile` for a text that begins with ``-- Sigma``.

    Attributes
    ----------
    language : str
        "Sigma".
    missing_fields : tuple of str
        Fields that the events have not, and that are NULL; () until a schema is known.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> rule = cer_gpu.compile('''-- Sigma: whoami
    ...     SELECT * FROM events WHERE * AS event FILTER event[EventID = 1 AND Image GLOB '*whoami.exe' NOCASE]''')
    >>> events = pa.table({"EventID": ["1", "1"], "Image": ["C:/WhoAmI.exe", None]})
    >>> rule.evaluate(events, output="ends").to_pylist()
    [{'end': 0}]
    """

    language = "Sigma"

    def __init__(
        self,
        source: ParsedQuery,
        resolved: ResolvedQuery,
        plan: LogicalPlan,
        notes: tuple[str, ...] = (),
        changes: tuple[Callable[[LogicalPlan], LogicalPlan], ...] = (),
    ) -> None:
        # that there may be none before is the sense of it
        own = tuple(note for note in notes if not note.startswith(f"variable {COUNTED!r} "))
        super().__init__(source, resolved, plan, own, changes)
