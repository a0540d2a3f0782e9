"""Correlations of Sigma as queries: OVER aggregates of a group, and sequences of steps.

A correlation fires at an event of one of its rules at which its condition begins to hold in the group of the event:
``RISES(condition, p)``, p being the predicate of any of its rules.  The condition is over the events of the time span
before: ``COUNT(* FILTER (p)) OVER 5 MINUTES >= 10``.  With it are shown the events that counted: of all sets of them
that end there, MAX is the largest.  ``temporal_ordered`` is a sequence, in which the latest chain of
events waits for the next step (RECENT).

A correlation on others has their predicates in place of those of rules.  Groups become PARTITION BY; where they
depend on the rule, or belong to a correlation below another, each OVER aggregate names them by itself:
``COUNT(* FILTER (p)) OVER 5 MINUTES PARTITION BY [source FILTER q, target FILTER r]``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionItem,
    CorrelationConditionNOT,
    CorrelationConditionOR,
    SigmaCorrelationCondition,
    SigmaCorrelationConditionOperator,
    SigmaCorrelationRule,
    SigmaCorrelationType,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)
from sigma.exceptions import SigmaCorrelationConditionError, SigmaError, SigmaFeatureNotSupportedByBackendError

from cer_gpu.sigma.formulas import COUNTED
from cer_gpu.sigma.rule_files import MORE_BOUNDS

MAX_COMBINATIONS = 1_000
"""Most combinations of rules of which one has to have occurred."""
MAX_COPIED = 16_000
"""Most characters of the predicates of correlations that one correlation substitutes for their names; each level has
those below it at least twice."""
_Op = SigmaCorrelationConditionOperator
_SIGNS = {_Op.GT: ">", _Op.GTE: ">=", _Op.LT: "<", _Op.LTE: "<=", _Op.EQ: "=", _Op.NEQ: "<>"}
_SECONDS = (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60), ("SECOND", 1))
_KINDS = SigmaCorrelationType
_FUNCTIONS = {_KINDS.VALUE_COUNT: "COUNT DISTINCT", _KINDS.VALUE_SUM: "SUM", _KINDS.VALUE_AVG: "AVG"}
_MEDIAN = 50
_JOINED = "concat("
_STRINGS, _COLUMNS = re.compile(r"'[^']*'"), re.compile(r"`[^`]+`|[A-Za-z_]\w*")


@dataclass(frozen=True)
class CorrelationPredicate:
    """A correlation as others read it.

    Attributes
    ----------
    text : str
        The predicate of the events at which it fires, in its groups; empty if no predicate expresses it.
    in_groups : str
        The same in a query that is parted by its groups.
    columns : tuple of str
        Names of the columns that it reads.
    column_of : callable
        As `formulas.RulePredicate.column_of`: of the events at which it fires.
    tested : callable
        As `formulas.RulePredicate.tested`.
    keys : str
        Its groups, as PARTITION BY has them.
    groups : tuple of tuple of str
        As `formulas.RulePredicate.groups`.
    """

    text: str
    in_groups: str
    columns: tuple[str, ...]
    column_of: Callable[[str], tuple[str, ...]]
    tested: Callable[[str], tuple[tuple[str, str], ...]]
    keys: str
    groups: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class CorrelationQuery:
    """A correlation as a query.

    Attributes
    ----------
    text : str
        The query, without the line of its title.
    predicate : CorrelationPredicate
    """

    text: str
    predicate: CorrelationPredicate


def correlation_query(rule: SigmaCorrelationRule, nocase: bool = False) -> CorrelationQuery:
    """Return the query of a correlation, whose rules were converted before.

    With `nocase`, groups and distinct values do not mind the case of letters.

    Raises
    ------
    SigmaFeatureNotSupportedByBackendError
        For what no query says.
    SigmaCorrelationConditionError
        For a condition that is not of the type of the correlation.
    """
    return _Writer(rule, nocase).query()


class _Writer:
    """Writer of the query of a correlation."""

    def __init__(self, rule: SigmaCorrelationRule, nocase: bool) -> None:
        self._rule = rule
        self._nocase = " NOCASE" if nocase else ""
        self._names = [each.reference for each in rule.referenced_rules]
        self._parts = [self._convert(each) for each in rule.referenced_rules]
        self._check_size()
        self._length = _length(rule.timespan.seconds)
        self._read: dict[str, None] = {}  # columns that groups and values are in
        self._keys = self._own = ""
        self._set_groups(False)
        keys = [key for name in rule.group_by or () for key in self._keys_of(name)]
        self._keys = ", ".join(f"[{key}]" for key in keys)
        self._depends = any(" FILTER " in key for key in keys)

    def _set_groups(self, parted: bool) -> None:
        """Write for a query that is parted by the groups of the correlation, or for any other one."""
        self._tests = [
            _parenthesized(part.in_groups if parted and _has_keys(part, self._keys) else part.text)
            for part in self._parts
        ]
        self._any = _parenthesized(" OR ".join(dict.fromkeys(self._tests)))
        self._own = "" if parted else f" PARTITION BY {self._keys or '[]'}"

    def query(self) -> CorrelationQuery:
        """Return the query."""
        text = own = parted = ""
        if self._rule.type == _KINDS.TEMPORAL_ORDERED:
            text = self._sequence()
        else:
            self._set_groups(False)
            own = self._predicate()
            self._set_groups(True)
            parted = "" if self._depends else self._predicate()
            text = (
                self._query_with_counted(parted)
                if parted
                else f"SELECT * FROM events WHERE * AS event FILTER event[{own}]"
            )
        columns = tuple(dict.fromkeys([*(name for part in self._parts for name in part.columns), *self._read]))
        groups = tuple(dict.fromkeys(group for part in self._parts for group in part.groups))
        predicate = CorrelationPredicate(own, parted or own, columns, self._column_of, self._tested, self._keys, groups)
        return CorrelationQuery(text, predicate)

    def _query_with_counted(self, fires: str) -> str:
        """Return the query of events at which a correlation fires, each with all that counted in its window."""
        by = f" PARTITION BY {self._keys}" if self._keys else ""
        tests = f"{COUNTED}[{_bare(self._any)}] AND event[{fires}]"
        return f"SELECT MAX * FROM events WHERE (* AS {COUNTED})* ; * AS event FILTER {tests}{by} WITHIN {self._length}"

    def _predicate(self) -> str:
        return f"RISES({_bare(self._window_condition())}, {_bare(self._any)}{self._own})"

    # ---- rules and groups

    def _convert(self, reference: SigmaRuleReference) -> Any:
        try:
            (part,) = reference.rule.get_conversion_result()
        except SigmaError:
            raise self._unsupported_correlation(f"{reference.reference!r} has no query") from None
        if isinstance(part, CorrelationPredicate) and not part.text:
            raise self._unsupported_correlation(
                f"{reference.reference!r} is temporal_ordered, and no other correlation can stand on it"
            )
        return part

    def _check_size(self) -> None:
        """Refuse a correlation on others whose predicates are long, before they are substituted for their names."""
        below = [part for part in self._parts if isinstance(part, CorrelationPredicate)]
        n_characters = sum(max(len(part.text), len(part.in_groups)) for part in below)
        if n_characters > MAX_COPIED:
            raise self._unsupported_correlation(
                f"correlations on correlations that take {n_characters:,} characters, more than {MAX_COPIED:,}: each "
                "level doubles those below it\nhint: refer to rules in place of correlations, or to fewer levels"
            )

    def _field(self, name: str, rule: str) -> str:
        """Return the field that a name, perhaps an alias, denotes in the events of a rule."""
        alias = self._rule.aliases.aliases.get(name)
        if alias is None:
            return name
        return next((field for each, field in alias.mapping.items() if each.reference == rule), name)

    def _columns(self, name: str) -> list[tuple[str, ...]]:
        """Return the columns of a name in the events of each rule."""
        fields = [self._field(name, rule) for rule in self._names]
        return [self._columns_of_field(field, part) for field, part in zip(fields, self._parts, strict=True)]

    def _tested(self, field: str) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys(each for part in self._parts for each in part.tested(field)))

    def _column_of(self, field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for part in self._parts for column in part.column_of(field)))

    def _keys_of(self, name: str) -> Iterator[str]:
        """Yield the columns of a field of ``group-by``; per rule where the rules' columns differ.

        A field that is made of several columns is a key for each of them.
        """
        fields = [self._field(name, rule) for rule in self._names]
        column_names = {part.column_of(field) for field, part in zip(fields, self._parts, strict=True)}
        texts = [each for (each, *others) in column_names if not others]
        if len(column_names) == 1 and texts and texts[0].startswith(_JOINED):
            for each in _COLUMNS.findall(_STRINGS.sub("", texts[0].removeprefix(_JOINED))):
                self._read[_unquoted_column(each)] = None
                yield f"{each}{self._nocase}"
            return
        columns = self._columns(name)
        unlike = len(set(columns)) > 1
        if not unlike and len(columns[0]) == 1:
            yield f"{columns[0][0]}{self._nocase}"
            return
        keys: dict[str, None] = {}
        for field, part, test in zip(fields, self._parts, self._tests, strict=True):
            tested = part.tested(field)
            for column, of_source in tested:
                tests = [each for each in (test * unlike, of_source * (len(tested) > 1)) if each]
                such = f" FILTER {' AND '.join(tests)}" if tests else ""
                keys[f"{column}{self._nocase}{such}"] = None
        yield ", ".join(keys)

    def _columns_of_field(self, field: str, part: Any) -> tuple[str, ...]:
        """Return the columns of a field in the events of a rule.

        Those of other names come first: they are of one log source, where the name may occur in events of several.
        """
        columns = part.column_of(field)
        for each in columns:
            if each.endswith(")"):
                raise self._unsupported_correlation(f"{field!r} is made of several columns: {each}")
            self._read[_unquoted_column(each)] = None
        return tuple(sorted(columns, key=lambda each: _unquoted_column(each) == field))

    # ---- conditions

    def _window_condition(self) -> str:
        """Return the condition over a window, which holds over none that is empty."""
        text = self._over_window()
        for each in self._condition_bounds:
            if (each.op == _Op.GT and each.count >= 0) or (each.op == _Op.GTE and each.count > 0):
                return text  # it fails of none
        return f"{self._count_over('*', self._any)} > 0 AND ({_bare(text)})"

    @property
    def _condition_bounds(self) -> list[SigmaCorrelationCondition]:
        """The comparisons of the condition, of which several make a range; none: it is one of names."""
        first = self._rule.condition
        if not isinstance(first, SigmaCorrelationCondition):
            return []
        more = self._rule.custom_attributes.get(MORE_BOUNDS, ())
        return [first, *(replace(first, op=each.op, count=each.count) for each in more)]

    def _over_window(self) -> str:
        condition = self._rule.condition
        if isinstance(condition, SigmaExtendedCorrelationCondition):
            return self._convert_extended(condition.parsed)
        return " AND ".join(map(self._compare_count, self._condition_bounds))

    def _compare_count(self, condition: SigmaCorrelationCondition) -> str:
        """Return one comparison of the condition."""
        kind = self._rule.type
        if kind == _KINDS.TEMPORAL:
            return self._compare_occurrences(condition)
        value = _number_literal(condition.count)
        sign = _SIGNS[condition.op]
        if kind == _KINDS.EVENT_COUNT:
            return f"{self._count_over('*', self._any)} {sign} {value}"
        column = self._value_column(condition)
        if kind in _FUNCTIONS:
            return f"{self._over_aggregate(_FUNCTIONS[kind], column, self._any)} {sign} {value}"
        percentile = _MEDIAN if kind == _KINDS.VALUE_MEDIAN else condition.percentile
        if percentile is None or not 0 <= percentile <= 100:
            said = "none" if percentile is None else percentile
            raise SigmaCorrelationConditionError(
                f"value_percentile: expected a percentile from 0 to 100, found {said}", source=self._rule.source
            )
        return self._compare_percentile(condition.op, column, percentile, value)

    def _over_aggregate(self, function: str, column: str, test: str) -> str:
        operand = column if column == "*" else f"*.{column}"
        if function == "COUNT DISTINCT":
            return f"COUNT(DISTINCT {operand}{self._nocase} FILTER {test}) OVER {self._length}{self._own}"
        return f"{function}({operand} FILTER {test}) OVER {self._length}{self._own}"

    def _count_over(self, column: str, test: str) -> str:
        return self._over_aggregate("COUNT", column, test)

    def _value_column(self, condition: SigmaCorrelationCondition) -> str:
        """Return the column whose values are counted, or added up."""
        fields = condition.fieldref
        if isinstance(fields, list):
            if len(fields) != 1:
                raise self._unsupported_correlation("values of several fields")
            fields = fields[0]
        assert fields is not None
        columns = list(dict.fromkeys(each for of in self._columns(fields) for each in of))
        if len(columns) > 1:
            raise self._unsupported_correlation(
                f"values of {fields!r}, which is in several columns: {', '.join(columns)}"
            )
        return columns[0]

    def _compare_percentile(
        self, op: SigmaCorrelationConditionOperator, column: str, percentile: int, value: str
    ) -> str:
        """Return the comparison of a percentile by nearest rank: the least value that this fraction does not exceed."""
        if op == _Op.EQ:
            sides = (self._compare_percentile(each, column, percentile, value) for each in (_Op.GTE, _Op.LTE))
            return " AND ".join(sides)
        if op == _Op.NEQ:
            sides = (self._compare_percentile(each, column, percentile, value) for each in (_Op.GT, _Op.LT))
            return f"({' OR '.join(sides)})"
        below = "<" if op in (_Op.GTE, _Op.LT) else "<="
        number = self._count_over(column, self._any)
        less = self._count_over("*", f"({self._any} AND {column} {below} {value})")
        if op in (_Op.LT, _Op.LTE):
            return f"({less} > 0 AND 100 * {less} >= {percentile} * {number})"
        return f"({number} > 0 AND ({less} = 0 OR 100 * {less} < {percentile} * {number}))"

    def _compare_occurrences(self, condition: SigmaCorrelationCondition) -> str:
        """Return the comparison of the number of rules that occurred."""
        value, op = condition.count, condition.op
        if op in (_Op.EQ, _Op.NEQ):
            least = self._at_least(math.ceil(value))
            equal = f"{least} AND NOT {self._at_least(math.floor(value) + 1)}"
            return f"({equal})" if op == _Op.EQ else f"NOT ({equal})"
        least = self._at_least(math.ceil(value) if op in (_Op.GTE, _Op.LT) else math.floor(value) + 1)
        return least if op in (_Op.GTE, _Op.GT) else f"NOT {least}"

    def _at_least(self, number: int) -> str:
        """Return the test that so many rules occurred."""
        tests = self._tests
        if number <= 0 or number > len(tests):
            return f"({self._count_over('*', self._any)} {'>=' if number <= 0 else '<'} 0)"
        if math.comb(len(tests), number) > MAX_COMBINATIONS:
            raise self._unsupported_correlation(f"{number} of {len(tests)} rules")
        conjunctions = [" AND ".join(dict.fromkeys(map(self._occurs, some))) for some in combinations(tests, number)]
        return f"({' OR '.join(dict.fromkeys(conjunctions))})"

    def _occurs(self, test: str) -> str:
        return f"{self._count_over('*', test)} > 0"

    def _convert_extended(self, node: CorrelationConditionItem | SigmaRuleReference) -> str:
        """Return a condition of names of rules."""
        if isinstance(node, SigmaRuleReference):
            return self._occurs(self._tests[self._names.index(node.reference)])
        parts = [self._convert_extended(each) for each in node.args]
        if isinstance(node, CorrelationConditionNOT):
            return f"NOT ({parts[0]})"
        return f"({(' AND ' if isinstance(node, CorrelationConditionAND) else ' OR ').join(parts)})"

    # ---- sequences

    def _sequence(self) -> str:
        """Return the query of an order of rules."""
        condition = self._rule.condition
        if isinstance(condition, SigmaExtendedCorrelationCondition):
            some = any(isinstance(each, CorrelationConditionOR | CorrelationConditionNOT) for each in _nodes(condition))
        else:
            n = len(self._parts)
            some = not any(each.op in (_Op.GTE, _Op.EQ) and each.count == n for each in self._condition_bounds)
        if some:
            raise self._unsupported_correlation("an order of rules of which some need not occur")
        self._set_groups(not self._depends)
        steps = [f"step_{i}" for i in range(1, len(self._parts) + 1)]
        tests = [f"{step}[{_bare(test)}]" for step, test in zip(steps, self._tests, strict=True)]
        by = f" PARTITION BY {self._keys}" if self._keys and not self._depends else ""
        if self._depends:
            tests += self._equal_keys(steps)
        clauses = f"FROM events WHERE {' ; '.join(f'* AS {step}' for step in steps)} FILTER {' AND '.join(tests)}{by}"
        return f"SELECT * {clauses}" if len(steps) == 1 else f"SELECT RECENT * {clauses} WITHIN {self._length}"

    def _equal_keys(self, steps: Sequence[str]) -> Iterator[str]:
        """Yield the filters that make the groups of neighbouring steps equal."""
        for name in self._rule.group_by or ():
            columns = self._columns(name)
            if any(len(each) > 1 for each in columns):
                raise self._unsupported_correlation(
                    f"an order by {name!r}, which has several columns in the events of one rule"
                )
            if self._nocase:
                raise self._unsupported_correlation(
                    f"an order by {name!r}, which is in unlike columns, without the case of letters"
                )
            keys = [f"{step}.{column}" for step, (column,) in zip(steps, columns, strict=True)]
            yield from (f"{a} = {b}" for a, b in pairwise(keys))

    def _unsupported_correlation(self, what: str) -> SigmaFeatureNotSupportedByBackendError:
        return SigmaFeatureNotSupportedByBackendError(f"no query says this: {what}", source=self._rule.source)


def _nodes(condition: SigmaExtendedCorrelationCondition) -> Iterator[CorrelationConditionItem]:
    todo = [condition.parsed]
    while todo:
        node = todo.pop()
        if isinstance(node, CorrelationConditionItem):
            yield node
            todo += node.args


def _has_keys(part: Any, keys: str) -> bool:
    return isinstance(part, CorrelationPredicate) and part.keys == keys


def _unquoted_column(column: str) -> str:
    """Return the name of a column, without backquotes."""
    return column.strip("`")


def _number_literal(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.17g}"


def _length(seconds: int) -> str:
    """Return a length of time in its largest unit."""
    unit, size = next((unit, size) for unit, size in _SECONDS if seconds % size == 0)
    return f"{seconds // size} {unit}{'' if seconds == size else 'S'}"


def _parenthesized(text: str) -> str:
    """Return a predicate as an operand: in parentheses, unless it is a single test or already in parentheses."""
    around = "".join(sign for sign, depth in _depths(text) if depth == 0)
    return f"({text})" if " AND " in around or " OR " in around or text.startswith("NOT ") else text


def _bare(text: str) -> str:
    """Return a predicate without the parentheses around all of it."""
    depths = [depth for _, depth in _depths(text)]
    return text[1:-1] if text[0] == "(" and 0 not in depths[1:-1] else text


def _depths(text: str) -> Iterator[tuple[str, int]]:
    """Yield each sign with the number of parentheses around it, not counting those within quotes."""
    depth, quote = 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'`":
            quote = sign
        elif sign == ")":
            depth -= 1
        yield sign, depth + (quote != "")
        depth += not quote and sign == "("
