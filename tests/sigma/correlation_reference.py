"""Reference of Sigma's correlations: by brute force, from the documents of the rules, without the engine or pySigma.

Rules are the mappings that YAML gives; events are dicts in their order, with a time in milliseconds under `TIME`, and
None for a value that is missing.

Meaning (docs/reference/sigma.md):

- A detection *occurs* at each event that it is true of.  A correlation occurs at each event at which it fires.
- The *group* of an event for a rule is the values of the fields of ``group-by``, each through the alias of that rule if
  it is one.  Of several rules that occur at an event the first one tells each value that has it.  An event that lacks
  one of them belongs to no group.
- The *window* of an event is the events of its group up to it, it included, that are at most ``timespan`` before it.
- Counts and values are over the events of the window at which one of the referenced rules occurs, each event once.
  They know only values that are not missing; of no values only counts tell anything.
- A correlation fires at an event at which one of its rules occurs if its condition holds there, and did not just
  before: over the window without the event.  No condition holds over a window without events.
- It shows all events of the window; where a key of the groups is in unlike fields, that at which it fires alone.
- ``temporal_ordered`` fires at an event at which the last rule occurs and a chain is complete: see `ordered`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
Document = Mapping[str, Any]
TIME = "ts"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "M": 2629746, "y": 31556952}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "eq": operator.eq,
    "neq": operator.ne,
}


class CorrelatedRules:
    """Rules of documents, by which correlations know them: names and ids.

    Parameters
    ----------
    documents
    rows
        Events.
    detects
        Tells whether a detection is true of an event.
    nocase
        True: strings in groups, and distinct ones, do not mind the case of letters.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        rows: Sequence[Row],
        detects: Callable[[Document, Row], bool],
        nocase: bool = False,
    ) -> None:
        self._fold = _lower if nocase else lambda value: value
        self._known = {document[key]: document for document in documents for key in ("name", "id") if key in document}
        self._rows, self._detects = rows, detects
        self._found: dict[int, list[tuple[int, ...]]] = {}

    def occurrences(self, document: Document) -> list[int]:
        """Return the places of the events at which a rule occurs."""
        return sorted({places[-1] for places in self.found(document)})

    def found(self, document: Document) -> list[tuple[int, ...]]:
        """Return what a rule finds: the places of the events of each, the last one being that at which it occurs."""
        if id(document) not in self._found:
            if "correlation" in document:
                found = self._correlated(document["correlation"])
            else:
                found = [(i,) for i, row in enumerate(self._rows) if self._detects(document, row)]
            self._found[id(document)] = found
        return self._found[id(document)]

    def _correlated(self, correlation: Mapping[str, Any]) -> list[tuple[int, ...]]:
        kind, condition = correlation["type"], correlation.get("condition")
        names = references(correlation)
        span = seconds(correlation["timespan"]) * 1000
        groups: dict[tuple[Any, ...], dict[int, set[str]]] = {}  # of each event the rules that occur at it
        at: dict[int, list[str]] = {}
        for name in names:
            for i in self.occurrences(self._known[name]):
                at.setdefault(i, []).append(name)
        for i, found_here in sorted(at.items()):
            if kind == "temporal_ordered":  # each step is of its own rule
                for name in found_here:
                    key = self._group(self._rows[i], [name], correlation)
                    groups.setdefault(key, {}).setdefault(i, set()).add(name)
            else:
                groups.setdefault(self._group(self._rows[i], found_here, correlation), {})[i] = set(found_here)
        found: list[tuple[int, ...]] = []
        for key, group in groups.items():
            if None in key:
                continue
            events = sorted(group.items())
            if kind == "temporal_ordered":
                found += ordered(names, events, [self._rows[i][TIME] for i, _ in events], span)
                continue
            for n, (i, _) in enumerate(events):
                time = self._rows[i][TIME]
                *before, itself = [(j, of) for j, of in events[: n + 1] if time - self._rows[j][TIME] <= span]
                holds = self._holds(correlation, kind, condition, names, [*before, itself])
                if holds and not (before and self._holds(correlation, kind, condition, names, before)):
                    found.append((i,) if has_unlike_keys(correlation) else tuple(j for j, _ in (*before, itself)))
        return sorted(found, key=lambda places: (places[-1], places))

    def _group(self, row: Row, rules: Sequence[str], correlation: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(map(self._fold, group_of(row, rules, correlation)))

    def _holds(
        self,
        correlation: Mapping[str, Any],
        kind: str,
        condition: Any,
        names: Sequence[str],
        window: Sequence[tuple[int, set[str]]],
    ) -> bool:
        """Return True if the condition of a correlation holds over the events of a window."""
        if kind == "temporal":
            there = set().union(*(of for _, of in window))
            if isinstance(condition, str):
                return extended(condition, there)
            asked = condition or {"gte": len(names)}
            return compared(asked, len(there))
        if kind == "event_count":
            return compared(condition, len(window))
        fields = condition["field"]
        fields = [fields] if isinstance(fields, str) else fields
        tuples = []
        for j, of in window:
            # rules that occur at one event tell of the same fields, unless an alias differs
            for name in names:
                if name in of:
                    tuples.append(tuple(self._rows[j].get(field_of(each, name, correlation)) for each in fields))
                    break
        known = [values for values in tuples if None not in values]
        if kind == "value_count":
            return compared(condition, len({tuple(map(self._fold, values)) for values in known}))
        value = aggregate(kind, [values[0] for values in known], condition)
        return value is not None and compared(condition, value)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def references(correlation: Mapping[str, Any]) -> list[str]:
    """Return the names of the rules of a correlation: those listed, else those of its extended condition."""
    listed = correlation.get("rules")
    if listed is None:
        words = re.findall(r"\w+", correlation["condition"])
        return list(dict.fromkeys(word for word in words if word not in ("and", "or", "not")))
    return [listed] if isinstance(listed, str) else list(listed)


def seconds(timespan: str) -> int:
    """Return the length of a time span."""
    return int(timespan[:-1]) * UNITS[timespan[-1]]


def field_of(name: str, rule: str, correlation: Mapping[str, Any]) -> str:
    """Return the field that a name, which may be an alias, stands for in the events of a rule."""
    alias = correlation.get("aliases", {}).get(name)
    return name if alias is None else alias.get(rule, name)


def group_of(row: Row, rules: Sequence[str], correlation: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the group of an event at which some rules occur: the values of the first of them that has one."""
    by = correlation.get("group-by") or []
    by = [by] if isinstance(by, str) else by
    values = ([row.get(field_of(name, rule, correlation)) for rule in rules] for name in by)
    return tuple(next((value for value in each if value is not None), None) for each in values)


def has_unlike_keys(correlation: Mapping[str, Any]) -> bool:
    """Return True if a key of the groups is in other fields for some rules than for others."""
    by = correlation.get("group-by") or []
    by = [by] if isinstance(by, str) else by
    return any(len({field_of(name, rule, correlation) for rule in references(correlation)}) > 1 for name in by)


def compared(condition: Mapping[str, Any], value: Any) -> bool:
    """Return True if a value passes the comparisons of a condition."""
    return all(OPERATORS[op](value, bound) for op, bound in condition.items() if op in OPERATORS)


def aggregate(kind: str, values: Sequence[Any], condition: Mapping[str, Any]) -> Any:
    """Return the aggregate of values, which are numbers; None of none."""
    if not values:
        return None
    exact = [Fraction(value) for value in values]
    if kind == "value_sum":
        return sum(exact)
    if kind == "value_avg":
        return sum(exact) / len(exact)
    share = Fraction(50 if kind == "value_median" else condition["percentile"]) / 100
    return percentile(exact, share)


def percentile(values: Sequence[Fraction], share: Fraction) -> Fraction:
    """Return the least value that a share of the values, and at least one, do not exceed."""
    ranked = sorted(values)
    return ranked[max(math.ceil(share * len(ranked)), 1) - 1]


def ordered(
    names: Sequence[str], events: Sequence[tuple[int, set[str]]], times: Sequence[int], span: int
) -> Iterator[tuple[int, ...]]:
    """Yield the chains of a ``temporal_ordered`` correlation in a group.

    One chain waits after each rule but the last: the latest that reached it.  An event moves a chain on if a rule
    occurs at it for which one waits whose first event is within the time span; the last rules come first, so that an
    event stands in a chain once.  A chain that moved on waits no more where it did, and one that is complete is found.
    """
    waiting: dict[int, tuple[int, ...]] = {}  # by the number of rules that occurred, indexes of events
    for n, (_, of) in enumerate(events):
        for step in range(len(names) - 1, 0, -1):
            chain = waiting.get(step)
            if names[step] not in of or chain is None or times[n] - times[chain[0]] > span:
                continue
            del waiting[step]
            if step == len(names) - 1:
                yield tuple(events[m][0] for m in (*chain, n))
            else:
                waiting[step + 1] = (*chain, n)
        if names[0] in of:
            if len(names) == 1:
                yield (events[n][0],)
            else:
                waiting[1] = (n,)


# ------------------------------------------------------------------------------------------- extended conditions


def extended(text: str, there: set[str]) -> bool:
    """Return True if an extended condition, of the names of rules, holds where some of them are there."""
    words = re.findall(r"\w+|[()]", text)

    def either() -> bool:
        value = both()
        while words and words[0] == "or":
            words.pop(0)
            value = both() or value
        return value

    def both() -> bool:
        value = one()
        while words and words[0] == "and":
            words.pop(0)
            value = one() and value
        return value

    def one() -> bool:
        word = words.pop(0)
        if word == "not":
            return not one()
        if word == "(":
            value = either()
            words.pop(0)
            return value
        return word in there

    return either()


def generated(documents: Sequence[Document]) -> list[str]:
    """Return the titles of the rules that are queries: those that no correlation takes for itself."""
    taken = {
        name
        for document in documents
        if "correlation" in document and not document["correlation"].get("generate", False)
        for name in references(document["correlation"])
    }
    return [each["title"] for each in documents if taken.isdisjoint((each.get("name"), each.get("id")))]
