"""Correlations of Sigma as queries: aggregates over the past of a group, and sequences of steps.

A correlation fires at an event of one of its rules at which its condition begins to hold in the group of the event:
``RISES(condition, p)``, p being the predicate of any of its rules.  The condition is over the events of the time span
before: ``COUNT(* FILTER (p)) OVER 5 MINUTES >= 10``.  ``temporal_ordered`` is a sequence, in which the latest chain of
events waits for the next step (RECENT).

A correlation on others has their predicates in place of those of rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
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

MOST_COMBINATIONS = 1_000
"""Most combinations of rules of which one has to have occurred."""
_Op = SigmaCorrelationConditionOperator
_SIGNS = {_Op.GT: ">", _Op.GTE: ">=", _Op.LT: "<", _Op.LTE: "<=", _Op.EQ: "=", _Op.NEQ: "<>"}
_SECONDS = (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60), ("SECOND", 1))
_KINDS = SigmaCorrelationType
_FUNCTIONS = {_KINDS.VALUE_COUNT: "COUNT DISTINCT", _KINDS.VALUE_SUM: "SUM", _KINDS.VALUE_AVG: "AVG"}
_MEDIAN = 50

GroupKey = tuple[str, ...]
"""Columns of a key, of which an event has the first that is not NULL."""


@dataclass(frozen=True)
class CorrelationPredicate:
    """What other correlations read of one.

    Attributes
    ----------
    text : str
        The predicate of the events at which it fires; empty: no predicate can say it.
    columns : tuple of str
        Names of the columns that it reads.
    column_of : callable
        As `formulas.RulePredicate.column_of`: of the events at which it fires.
    keys : tuple of tuple of str
        Its groups.
    """

    text: str
    columns: tuple[str, ...]
    column_of: Callable[[str], tuple[str, ...]]
    keys: tuple[GroupKey, ...]


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


def correlation_query(rule: SigmaCorrelationRule) -> CorrelationQuery:
    """Return the query of a correlation, whose rules were converted before.

    Raises
    ------
    SigmaFeatureNotSupportedByBackendError
        For what no query says.
    SigmaCorrelationConditionError
        For a condition that does not fit the type of the correlation.
    """
    return _Writer(rule).query()


class _Writer:
    """Writer of the query of a correlation."""

    def __init__(self, rule: SigmaCorrelationRule) -> None:
        self._rule = rule
        self._names = [each.reference for each in rule.referenced_rules]
        self._parts = [self._converted(each) for each in rule.referenced_rules]
        self._length = _length(rule.timespan.seconds)
        self._tests = [_grouped(part.text) for part in self._parts]
        self._any = _grouped(" OR ".join(dict.fromkeys(self._tests)))

    def query(self) -> CorrelationQuery:
        """Return the query."""
        ordered = self._rule.type == _KINDS.TEMPORAL_ORDERED
        keys: tuple[GroupKey, ...] = ()
        between: list[str] = []
        if ordered and len(self._parts) > 1 and self._has_unlike_aliases():
            between = list(self._equal_keys())
        else:
            keys = tuple(self._key(name) for name in self._group_by)
        for name, part in zip(self._names, self._parts, strict=True):
            if isinstance(part, CorrelationPredicate) and (between or set(part.keys) != set(keys)):
                own, outer = (", ".join(" or ".join(key) for key in each) or "none" for each in (part.keys, keys))
                raise self._refused(f"{name!r} has other groups (by {own}) than the correlation on it (by {outer})")
        columns = tuple(dict.fromkeys(name for part in self._parts for name in part.columns))
        columns = tuple(dict.fromkeys((*columns, *(_plain(name) for key in keys for name in key))))
        brackets = ", ".join(f"[{', '.join(key)}]" for key in keys)
        by = f" PARTITION BY {brackets}" if keys else ""
        if ordered:
            self._check_ordered()
            text, predicate = self._sequence(between) + by, ""
            text += f" WITHIN {self._length}" if len(self._parts) > 1 else ""
        else:
            predicate = f"RISES({_bare(self._condition())}, {_bare(self._any)})"
            text = f"SELECT * FROM events WHERE * AS event FILTER event[{predicate}]{by}"
        return CorrelationQuery(text, CorrelationPredicate(predicate, columns, self._column_of, keys))

    # ---- rules and groups

    def _converted(self, reference: SigmaRuleReference) -> Any:
        try:
            (part,) = reference.rule.get_conversion_result()
        except SigmaError:
            raise self._refused(f"{reference.reference!r} has no query") from None
        if isinstance(part, CorrelationPredicate) and not part.text:
            raise self._refused(
                f"{reference.reference!r} is temporal_ordered, and no other correlation can stand on it"
            )
        return part

    @property
    def _group_by(self) -> list[str]:
        return list(self._rule.group_by or ())

    def _field(self, name: str, rule: str) -> str:
        """Return the field that a name, perhaps an alias, stands for in the events of a rule."""
        alias = self._rule.aliases.aliases.get(name)
        if alias is None:
            return name
        return next((field for each, field in alias.mapping.items() if each.reference == rule), name)

    def _columns(self, name: str) -> list[tuple[str, ...]]:
        """Return the columns of a name in the events of each rule."""
        return [part.column_of(self._field(name, rule)) for rule, part in zip(self._names, self._parts, strict=True)]

    def _column_of(self, field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for part in self._parts for column in part.column_of(field)))

    def _has_unlike_aliases(self) -> bool:
        return any(name in self._rule.aliases.aliases and len(set(self._columns(name))) > 1 for name in self._group_by)

    def _key(self, name: str) -> GroupKey:
        """Return the key of a field of ``group-by``."""
        columns = self._columns(name)
        if name in self._rule.aliases.aliases and len(set(columns)) > 1:
            told = ", ".join(" or ".join(each) for each in columns)
            raise self._refused(f"the alias {name!r} stands for other columns in each rule: {told}")
        # a column by another name than the field is of its own log source; those of others may lie in its events too
        found = sorted(dict.fromkeys(each for of in columns for each in of), key=lambda each: _plain(each) == name)
        for each in found:
            self._check_column(name, each)
        return tuple(found)

    def _equal_keys(self) -> Iterator[str]:
        """Yield the filters that make the groups of neighbouring steps equal."""
        for name in self._group_by:
            columns = self._columns(name)
            if any(len(each) > 1 for each in columns):
                raise self._refused(f"the alias {name!r} has several columns in the events of one rule")
            for each in columns:
                self._check_column(name, each[0])
            for i in range(len(columns) - 1):
                yield f"{_step(i)}.{columns[i][0]} = {_step(i + 1)}.{columns[i + 1][0]}"

    def _check_column(self, name: str, column: str) -> None:
        if column.endswith(")"):
            raise self._refused(f"{name!r} is made of several columns: {column}")

    # ---- conditions

    def _condition(self) -> str:
        kind, condition = self._rule.type, self._rule.condition
        if isinstance(condition, SigmaExtendedCorrelationCondition):
            return self._extended(condition.parsed)
        if kind == _KINDS.TEMPORAL:
            return self._occurred(condition)
        value = _number(condition.count)
        sign = _SIGNS[condition.op]
        if kind == _KINDS.EVENT_COUNT:
            return f"{self._count('*', self._any)} {sign} {value}"
        column = self._value_column(condition)
        if kind in _FUNCTIONS:
            return f"{self._over(_FUNCTIONS[kind], column, self._any)} {sign} {value}"
        share = _MEDIAN if kind == _KINDS.VALUE_MEDIAN else condition.percentile
        if share is None or not 0 <= share <= 100:
            said = "none" if share is None else share
            raise SigmaCorrelationConditionError(
                f"value_percentile: expected a percentile from 0 to 100, found {said}", source=self._rule.source
            )
        return self._ranked(condition.op, column, share, value)

    def _over(self, function: str, column: str, test: str) -> str:
        operand = column if column == "*" else f"*.{column}"
        if function == "COUNT DISTINCT":
            return f"COUNT(DISTINCT {operand} FILTER {test}) OVER {self._length}"
        return f"{function}({operand} FILTER {test}) OVER {self._length}"

    def _count(self, column: str, test: str) -> str:
        return self._over("COUNT", column, test)

    def _value_column(self, condition: SigmaCorrelationCondition) -> str:
        """Return the column whose values are counted, or added up."""
        fields = condition.fieldref
        if isinstance(fields, list):
            if len(fields) != 1:
                raise self._refused("values of several fields")
            fields = fields[0]
        assert fields is not None
        columns = list(dict.fromkeys(each for of in self._columns(fields) for each in of))
        if len(columns) > 1:
            raise self._refused(f"values of {fields!r}, which is in several columns: {', '.join(columns)}")
        self._check_column(fields, columns[0])
        return columns[0]

    def _ranked(self, op: SigmaCorrelationConditionOperator, column: str, share: int, value: str) -> str:
        """Return the comparison of a percentile by nearest rank: of the least value that so many do not exceed."""
        if op == _Op.EQ:
            return f"{self._ranked(_Op.GTE, column, share, value)} AND {self._ranked(_Op.LTE, column, share, value)}"
        if op == _Op.NEQ:
            return f"({self._ranked(_Op.GT, column, share, value)} OR {self._ranked(_Op.LT, column, share, value)})"
        below = "<" if op in (_Op.GTE, _Op.LT) else "<="
        number = self._count(column, self._any)
        less = self._count("*", f"({self._any} AND {column} {below} {value})")
        if op in (_Op.LT, _Op.LTE):
            return f"({less} > 0 AND 100 * {less} >= {share} * {number})"
        return f"({number} > 0 AND ({less} = 0 OR 100 * {less} < {share} * {number}))"

    def _occurred(self, condition: SigmaCorrelationCondition) -> str:
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
            return f"({self._count('*', self._any)} {'>=' if number <= 0 else '<'} 0)"
        if math.comb(len(tests), number) > MOST_COMBINATIONS:
            raise self._refused(f"{number} of {len(tests)} rules")
        found = [" AND ".join(dict.fromkeys(map(self._there, some))) for some in combinations(tests, number)]
        return f"({' OR '.join(dict.fromkeys(found))})"

    def _there(self, test: str) -> str:
        return f"{self._count('*', test)} > 0"

    def _extended(self, node: CorrelationConditionItem | SigmaRuleReference) -> str:
        """Return a condition of names of rules."""
        if isinstance(node, SigmaRuleReference):
            return self._there(self._tests[self._names.index(node.reference)])
        parts = [self._extended(each) for each in node.args]
        if isinstance(node, CorrelationConditionNOT):
            return f"NOT ({parts[0]})"
        return f"({(' AND ' if isinstance(node, CorrelationConditionAND) else ' OR ').join(parts)})"

    # ---- sequences

    def _check_ordered(self) -> None:
        """Raise unless all rules are to occur, which is all that an order can be of."""
        condition = self._rule.condition
        if isinstance(condition, SigmaExtendedCorrelationCondition):
            if any(isinstance(each, CorrelationConditionOR | CorrelationConditionNOT) for each in _nodes(condition)):
                raise self._refused("an order of rules of which some need not occur")
        elif condition.op not in (_Op.GTE, _Op.EQ) or condition.count != len(self._parts):
            raise self._refused("an order of rules of which some need not occur")

    def _sequence(self, between: Sequence[str]) -> str:
        steps = " ; ".join(f"* AS {_step(i)}" for i in range(len(self._parts)))
        tests = [f"{_step(i)}[{part.text}]" for i, part in enumerate(self._parts)]
        strategy = "RECENT " if len(tests) > 1 else ""
        return f"SELECT {strategy}* FROM events WHERE {steps} FILTER {' AND '.join([*tests, *between])}"

    def _refused(self, what: str) -> SigmaFeatureNotSupportedByBackendError:
        return SigmaFeatureNotSupportedByBackendError(f"no query says this: {what}", source=self._rule.source)


def _nodes(condition: SigmaExtendedCorrelationCondition) -> Iterator[CorrelationConditionItem]:
    todo = [condition.parsed]
    while todo:
        node = todo.pop()
        if isinstance(node, CorrelationConditionItem):
            yield node
            todo += node.args


def _step(i: int) -> str:
    return f"step_{i + 1}"


def _plain(column: str) -> str:
    """Return the name of a column, without backquotes."""
    return column.strip("`")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.17g}"


def _length(seconds: int) -> str:
    """Return a length of time in its largest unit."""
    unit, size = next((unit, size) for unit, size in _SECONDS if seconds % size == 0)
    return f"{seconds // size} {unit}{'' if seconds == size else 'S'}"


def _grouped(text: str) -> str:
    """Return a predicate as an operand: in parentheses, unless it is one test, or stands in some."""
    around = "".join(sign for sign, depth in _depths(text) if depth == 0)
    return f"({text})" if " AND " in around or " OR " in around or text.startswith("NOT ") else text


def _bare(text: str) -> str:
    """Return a predicate without the parentheses around all of it."""
    depths = [depth for _, depth in _depths(text)]
    return text[1:-1] if text[0] == "(" and 0 not in depths[1:-1] else text


def _depths(text: str) -> Iterator[tuple[str, int]]:
    """Yield each sign with the number of parentheses around it; those of texts and names in quotes do not count."""
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
