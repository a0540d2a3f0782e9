"""Correlations of Sigma as queries in CEQL: aggregates OVER the past, and sequences.

A correlation *occurs* at the event at which it fires.  That is where its condition begins to hold among the events of
its rules in a group, ``RISES(condition, events)``, which is a predicate of one event: so that correlations may stand on
correlations.  One that is ordered is a sequence, and no predicate.

Source: the specification of Sigma's correlation rules, version 2.1; docs/sigma_correlations.md says what was chosen
where it is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionItem,
    CorrelationConditionNOT,
    SigmaCorrelationConditionOperator,
    SigmaCorrelationRule,
    SigmaCorrelationType,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)
from sigma.exceptions import SigmaFeatureNotSupportedByBackendError

from cer_gpu.sigma.formulas import RulePredicate

MOST_COUNTED_RULES = 8
"""Most rules of which a condition of ``temporal`` asks for some, but not all."""

_SIGNS = {
    SigmaCorrelationConditionOperator.LT: "<",
    SigmaCorrelationConditionOperator.LTE: "<=",
    SigmaCorrelationConditionOperator.GT: ">",
    SigmaCorrelationConditionOperator.GTE: ">=",
    SigmaCorrelationConditionOperator.EQ: "=",
    SigmaCorrelationConditionOperator.NEQ: "<>",
}
_COMPARED: dict[str, Callable[[int, float], bool]] = {
    "<": lambda n, bound: n < bound,
    "<=": lambda n, bound: n <= bound,
    ">": lambda n, bound: n > bound,
    ">=": lambda n, bound: n >= bound,
    "=": lambda n, bound: n == bound,
    "<>": lambda n, bound: n != bound,
}
_AGGREGATES = {
    SigmaCorrelationType.VALUE_COUNT: "COUNT(DISTINCT *.{column} FILTER {events})",
    SigmaCorrelationType.VALUE_SUM: "SUM(*.{column} FILTER {events})",
    SigmaCorrelationType.VALUE_AVG: "AVG(*.{column} FILTER {events})",
    SigmaCorrelationType.VALUE_PERCENTILE: "PERCENTILE(*.{column}, {percentile} FILTER {events})",
    SigmaCorrelationType.VALUE_MEDIAN: "PERCENTILE(*.{column}, 50 FILTER {events})",
}
_UNITS = {"s": (1, "SECONDS"), "m": (1, "MINUTES"), "h": (1, "HOURS"), "d": (1, "DAYS"), "w": (7, "DAYS")}


@dataclass(frozen=True)
class CorrelatedQuery:
    """A correlation as a query, and where it occurs.

    Attributes
    ----------
    query : str
        In CEQL, without the line of the title.
    columns : tuple of str
        Names of the columns that it reads.
    text : str or None
        The predicate of the events at which it occurs, if it is one of single events.
    keys : tuple of str
        Its keys of PARTITION BY, as they are written: `text` means what it does beside them.
    column_of : callable
        As of `RulePredicate`.
    """

    query: str
    columns: tuple[str, ...]
    text: str | None
    keys: tuple[str, ...]
    column_of: Callable[[str], tuple[str, ...]]


def correlated(rule: SigmaCorrelationRule) -> CorrelatedQuery:
    """Return a correlation, of rules that are converted, as a query.

    Raises
    ------
    SigmaFeatureNotSupportedByBackendError
        When it asks for what there is no query for.
    """
    return _Correlation(rule).query()


class _Correlation:
    """A correlation of rules that are converted."""

    def __init__(self, rule: SigmaCorrelationRule) -> None:
        self._rule = rule
        self._names = [each.reference for each in rule.referenced_rules]
        self._of: list[Any] = [each.rule.get_conversion_result()[0] for each in rule.referenced_rules]
        self._length = _length(rule)

    def query(self) -> CorrelatedQuery:
        of_rules = (name for each in self._of for name in each.columns)
        groups = [self._group(name) for name in self._rule.group_by or ()]
        named = (column for columns in groups for alternatives in columns for column in alternatives)
        own = () if self._value_field is None else self._columns_of(self._value_field)
        columns = tuple(dict.fromkeys([*of_rules, *map(_bare, [*named, *own])]))
        if self._rule.type == SigmaCorrelationType.TEMPORAL_ORDERED:
            query, text, keys = self._sequence(groups), None, ()
        else:
            keys = self._keys(groups)
            self._check_nested(keys)
            text = f"RISES({self._condition()}, {self._events()})"
            query = f"SELECT * FROM events WHERE * AS event FILTER event[{text}]{_partition(keys)}"
        return CorrelatedQuery(query, columns, text, keys, lambda name: self._columns_of(name))

    def _refusal(self, what: str) -> SigmaFeatureNotSupportedByBackendError:
        return SigmaFeatureNotSupportedByBackendError(what, source=self._rule.source)

    # ---- events, and their groups

    def _events(self) -> str:
        """Return the predicate of the events of all rules."""
        texts = [self._predicate(each, name) for each, name in zip(self._of, self._names, strict=True)]
        return texts[0] if len(texts) == 1 else f"({' OR '.join(dict.fromkeys(texts))})"

    def _predicate(self, of: RulePredicate | CorrelatedQuery, name: str) -> str:
        if of.text is None:
            raise self._refusal(f"{name} is a temporal_ordered correlation, which only a query of its own tells")
        return f"({of.text})"

    def _group(self, name: str) -> list[tuple[str, ...]]:
        """Return the columns of a field of group-by for each rule: one for each of its log sources."""
        alias = next((each for each in self._rule.aliases if each.alias == name), None)
        fields = {} if alias is None else {of.reference: field for of, field in alias.mapping.items()}
        return [of.column_of(fields.get(own, name)) for of, own in zip(self._of, self._names, strict=True)]

    def _keys(self, groups: Sequence[Sequence[tuple[str, ...]]]) -> tuple[str, ...]:
        """Return the keys of PARTITION BY."""
        keys = []
        for name, of_rules in zip(self._rule.group_by or (), groups, strict=True):
            if len(set(of_rules)) > 1:
                raise self._refusal(
                    f"the rules have unlike columns for {name!r} of group-by, which only temporal_ordered may have"
                )
            keys.append(f"[{', '.join(map(self._named, of_rules[0]))}]")
        return tuple(keys)

    def _named(self, column: str) -> str:
        """Return a column that may be a key, or an operand of an aggregate."""
        if "(" in column and not column.startswith("`"):
            raise self._refusal(f"{column} is made of several columns, and group-by and fields of conditions are one")
        return column

    def _check_nested(self, keys: tuple[str, ...]) -> None:
        for of, name in zip(self._of, self._names, strict=True):
            if isinstance(of, CorrelatedQuery) and of.text is not None and sorted(of.keys) != sorted(keys):
                raise self._refusal(f"the correlation {name} has another group-by than the one that refers to it")

    def _columns_of(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for of in self._of for column in of.column_of(name)))

    # ---- conditions

    @property
    def _value_field(self) -> str | None:
        condition = self._rule.condition
        if isinstance(condition, SigmaExtendedCorrelationCondition) or condition.fieldref is None:
            return None
        fields = [condition.fieldref] if isinstance(condition.fieldref, str) else condition.fieldref
        if len(fields) > 1:
            raise self._refusal("a condition over several fields")
        return fields[0]

    def _condition(self) -> str:
        condition = self._rule.condition
        if isinstance(condition, SigmaExtendedCorrelationCondition):
            return self._extended(condition.parsed)
        sign, bound = _SIGNS[condition.op], condition.count
        if self._rule.type == SigmaCorrelationType.TEMPORAL:
            return self._some_rules(sign, bound)
        if self._rule.type == SigmaCorrelationType.EVENT_COUNT:
            return f"{self._count(self._events())} {sign} {_number(bound)}"
        assert self._value_field is not None
        columns = self._columns_of(self._value_field)
        if len(columns) > 1:
            raise self._refusal(f"the rules have several columns for {self._value_field!r}: {', '.join(columns)}")
        aggregate = _AGGREGATES[self._rule.type].format(
            column=self._named(columns[0]), percentile=condition.percentile, events=self._events()
        )
        if condition.percentile is None and self._rule.type == SigmaCorrelationType.VALUE_PERCENTILE:
            raise self._refusal("value_percentile without a percentile")
        return f"{aggregate} OVER {self._length} {sign} {_number(bound)}"

    def _count(self, events: str) -> str:
        return f"COUNT(* FILTER {events}) OVER {self._length}"

    def _there(self, place: int) -> str:
        """Return the test that a rule occurs in the window."""
        return f"{self._count(self._predicate(self._of[place], self._names[place]))} > 0"

    def _some_rules(self, sign: str, bound: float) -> str:
        """Return the test that the number of rules that occur in the window passes a comparison."""
        n = len(self._of)
        passing = [k for k in range(n + 1) if _COMPARED[sign](k, bound)]
        there = [self._there(place) for place in range(n)]
        if passing == [n]:
            return " AND ".join(there)
        if passing == list(range(1, n + 1)):
            return f"({' OR '.join(there)})"
        if n > MOST_COUNTED_RULES:
            raise self._refusal(f"temporal with some of more than {MOST_COUNTED_RULES} rules")
        cases = []
        for k in passing:
            for chosen in combinations(range(n), k):
                tests = (each if place in chosen else f"NOT {each}" for place, each in enumerate(there))
                cases.append(" AND ".join(tests))
        return " OR ".join(f"({case})" for case in cases) if cases else "0 = 1"

    def _extended(self, node: CorrelationConditionItem | SigmaRuleReference) -> str:
        if isinstance(node, SigmaRuleReference):
            return self._there(self._names.index(node.reference))
        parts = [self._extended(each) for each in node.args]
        if isinstance(node, CorrelationConditionNOT):
            return f"NOT ({parts[0]})"
        word = " AND " if isinstance(node, CorrelationConditionAND) else " OR "
        return f"({word.join(parts)})"

    # ---- sequences

    def _sequence(self, groups: Sequence[Sequence[tuple[str, ...]]]) -> str:
        order = list(self._order())
        steps = [f"step{number}" for number in range(1, len(order) + 1)]
        texts = [self._predicate(self._of[place], self._names[place]) for place in order]
        like = [of_rules for of_rules in groups if len(set(of_rules)) == 1]
        keys = tuple(f"[{', '.join(map(self._named, of_rules[0]))}]" for of_rules in like)
        for place in order:
            of = self._of[place]
            if isinstance(of, CorrelatedQuery) and (sorted(of.keys) != sorted(keys) or len(like) < len(groups)):
                raise self._refusal(f"the correlation {self._names[place]} has another group-by")
        filters = [f"{step}[{text}]" for step, text in zip(steps, texts, strict=True)]
        for name, of_rules in zip(self._rule.group_by or (), groups, strict=True):
            if of_rules in like:
                continue
            if any(len(columns) > 1 for columns in of_rules):
                raise self._refusal(f"the rules have several columns for {name!r} of group-by")
            columns = [self._named(of_rules[place][0]) for place in order]
            filters += [
                f"{step}.{column} = {steps[0]}.{columns[0]}"
                for step, column in zip(steps[1:], columns[1:], strict=True)
            ]
        formula = " ; ".join(f"* AS {step}" for step in steps)
        strategy = "RECENT " if len(steps) > 1 else ""
        within = f" WITHIN {self._length}" if len(steps) > 1 else ""
        return (
            f"SELECT {strategy}* FROM events WHERE {formula} FILTER {' AND '.join(filters)}{_partition(keys)}{within}"
        )

    def _order(self) -> Iterator[int]:
        """Yield the places of the rules in their order."""
        condition = self._rule.condition
        if not isinstance(condition, SigmaExtendedCorrelationCondition):
            if not _COMPARED[_SIGNS[condition.op]](len(self._of), condition.count) or (
                _COMPARED[_SIGNS[condition.op]](len(self._of) - 1, condition.count)
            ):
                raise self._refusal("temporal_ordered that does not ask for all of its rules")
            yield from range(len(self._of))
            return
        node = condition.parsed
        parts = node.args if isinstance(node, CorrelationConditionAND) else [node]
        for part in parts:
            if not isinstance(part, SigmaRuleReference):
                raise self._refusal("temporal_ordered with more than and in its condition")
            yield self._names.index(part.reference)


def _length(rule: SigmaCorrelationRule) -> str:
    """Return the time span as a length of CEQL."""
    span = rule.timespan
    if span.unit not in _UNITS:
        return f"{span.seconds} SECONDS"
    factor, unit = _UNITS[span.unit]
    return f"{factor * span.count} {unit}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else format(value, "f").rstrip("0").rstrip(".")


def _partition(keys: Sequence[str]) -> str:
    return f" PARTITION BY {', '.join(keys)}" if keys else ""


def _bare(column: str) -> str:
    return column.strip("`")
