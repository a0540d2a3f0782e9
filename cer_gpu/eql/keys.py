"""Keys of a query in EQL: PARTITION BY, keys by step, or filters of equal values.

Fields that all terms share, with one value, are PARTITION BY.  Events have their keys by step
(`cer_gpu.ceql.step_keys`) if terms have unlike keys, or a key is a list or a field that the events do not have.  To
find every match of a sequence, and not those of SELECT RECENT alone, unlike keys are filters between its events.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.step_keys import OwnKeys, StepKey, StepwiseKeys
from cer_gpu.eql import syntax as e
from cer_gpu.eql.conditions import QueryFields


class KeyedBy(Enum):
    """Ways to tell events apart by keys."""

    PARTITION = auto()
    STEPS = auto()
    FILTERS = auto()


class QueryKeys:
    """Keys of the terms of a query.

    Parameters
    ----------
    query
    around
    by_steps
        False: the query finds every match, for which keys by step are filters.

    Attributes
    ----------
    of_terms : list of tuple of Field
        Keys of each term, of until last, those before the terms first.
    kind : KeyedBy
    is_impossible : bool
        True if a key is missing, and is not optional, so that no event has one.

    Raises
    ------
    QueryError
        When terms have different numbers of keys, a key is no plain value, or a list is not possible there.
    """

    def __init__(self, query: e.EqlSyntax, around: QueryFields, *, by_steps: bool) -> None:
        self._query, self._around = query, around
        self.is_impossible: bool = False
        self.of_terms: list[tuple[e.Field, ...]] = self._all_keys()
        keys = [key for own in self.of_terms for key in own]
        self._own: dict[e.Field, StepKey] = {}
        for key in keys if query.kind != "event" else ():
            if key not in self._own:
                self._own[key] = self._step_key(key, lists=by_steps)
        shared = all(own == self.of_terms[0] for own in self.of_terms)
        plain = not any(key.in_list for key in self._own.values())
        missing = any(key.attribute is None and key.nullable for key in self._own.values())
        leads = query.kind == "sequence" and query.terms[0].absent
        self.kind: KeyedBy
        if query.kind == "event" or not keys:
            self.kind = KeyedBy.PARTITION
        elif query.kind == "sample" or (by_steps and not (shared and plain and (leads or not missing))):
            self.kind = KeyedBy.STEPS
        else:
            self.kind = KeyedBy.PARTITION if shared else KeyedBy.FILTERS
        if self.kind is KeyedBy.STEPS and leads:
            what = "and these are lists" if shared else "and these are not the same"
            raise around.error(
                f"an event that must be missing before the first step has the keys that all steps share, {what}",
                query.terms[0].span,
                "sequence by field ... ![...] [...]",
            )

    def _all_keys(self) -> list[tuple[e.Field, ...]]:
        query = self._query
        terms = [*query.terms, *([] if query.until is None else [query.until])]
        keys = [(*query.keys, *term.keys) for term in terms]
        for term, own in zip(terms, keys, strict=True):
            if len(own) != len(keys[0]):
                raise self._around.error(
                    f"each step has as many keys as the first, {len(keys[0])}, and this one has {len(own)}", term.span
                )
        return keys

    def _step_key(self, key: e.Field, *, lists: bool) -> StepKey:
        place = self._around.find(key)
        if place is None:
            self.is_impossible |= not key.optional
            return StepKey(None, nullable=key.optional, span=key.span)
        if isinstance(place.type, pa.StructType):
            raise self._around.error(f"a key is one value, and {key.name!r} is no value", key.span)
        if place.in_list and not lists:
            message = f"a key is one value where every match is searched, and {key.name!r} is a list"
            raise self._around.error(message, key.span, "selection='recent', as Elasticsearch has it")
        return StepKey(place.attribute, place.in_list, place.below, key.optional, key.span)

    # ---- PARTITION BY ---------------------------------------------------------------------------------------------

    @property
    def partition(self) -> tuple[tuple[s.Name, ...], ...]:
        """The keys of PARTITION BY."""
        if self.kind is not KeyedBy.PARTITION or self._query.kind == "event":
            return ()
        partition: dict[str, s.Name] = {}
        for key in self.of_terms[0]:
            attribute = self._own[key].attribute
            if attribute is not None:  # a key may come before the terms and at each of them
                nullable = key.optional and (attribute not in partition or partition[attribute].nullable)
                partition[attribute] = s.Name(attribute, span=key.span, nullable=nullable)
        return tuple((name,) for name in partition.values())

    # ---- keys by step ---------------------------------------------------------------------------------------------

    def of_steps(self, steps: Sequence[int], absences: Sequence[int]) -> StepwiseKeys | None:
        """Return the keys by step, given the terms of the steps and of the absences by their numbers, or None."""
        if self.kind is not KeyedBy.STEPS:
            return None
        first = self.of_terms[steps[0]]
        return StepwiseKeys(
            tuple(key.name for key in first),
            tuple(map(self._own_keys, steps)),
            tuple(map(self._own_keys, absences)),
            samples=self._query.kind == "sample",
        )

    def _own_keys(self, term: int) -> OwnKeys:
        return tuple(self._own[key] for key in self.of_terms[term])

    # ---- equal values ---------------------------------------------------------------------------------------------

    def equal_filters(self, number: int, variable: str, first: int, anchor: str) -> list[s.Filter]:
        """Return the filters that a term has the keys of the first step.

        Parameters
        ----------
        number
            The term, by its number in `of_terms`.
        variable
            Name of its event.
        first
            The first step.
        anchor
            Name of the event of that.
        """
        if self.kind is not KeyedBy.FILTERS:
            return []
        filters: list[s.Filter] = []
        for own, other in zip(self.of_terms[number], self.of_terms[first], strict=True):
            span = own.span
            sides = [
                None
                if self._own[key].attribute is None
                else s.Attribute(str(self._own[key].attribute), key.span, s.Name(name, span=key.span))
                for key, name in ((own, variable), (other, anchor))
            ]
            predicate = _equal_or_null(*sides, nullable=own.optional and other.optional, span=span)
            if predicate is not None:
                filters.append(s.Relation(predicate, (), span))
        return filters

    def equal_conditions(self, number: int, other: int) -> list[e.EqlExpression]:
        """Return the conditions that an event has the same keys at two terms.

        Raises
        ------
        QueryError
            When unlike keys are lists.
        """
        if self.kind is KeyedBy.PARTITION:
            return []
        conditions: list[e.EqlExpression] = []
        for one, two in zip(self.of_terms[number], self.of_terms[other], strict=True):
            if one.names == two.names:
                continue
            if self._own[one].in_list or self._own[two].in_list:
                raise self._around.error(
                    "an event that may be one of until and a step has unlike keys, and these are lists", one.span
                )
            equal: e.EqlExpression = e.Comparison("==", one, two, one.span)
            if one.optional and two.optional:
                nulls = tuple(e.Comparison("==", each, e.ConstantValue(None), one.span) for each in (one, two))
                equal = e.Or((equal, e.And(nulls, one.span)), one.span)
            conditions.append(equal)
        return conditions


def _equal_or_null(
    one: s.Attribute | None, other: s.Attribute | None, *, nullable: bool, span: s.Span
) -> s.Predicate | None:
    """Return the predicate that two keys are equal, or None if they are in any case; None among them is NULL."""
    if one is None or other is None:
        of_nulls: list[s.Predicate] = [s.IsNull(each, span) for each in (one, other) if each is not None]
        if nullable or not of_nulls:
            return of_nulls[0] if of_nulls else None
        return s.And((of_nulls[0], s.Not(of_nulls[0], span)), span)  # no event
    equal: s.Predicate = s.Comparison("=", one, other, span)
    if not nullable:
        return equal
    return s.Or((equal, s.And((s.IsNull(one, span), s.IsNull(other, span)), span)), span)
