"""Scopes of filters: the variable of each attribute, and the places in the formula that define it for a filter.

A filter on a formula sees the variables that the formula defines.  It sees the variables of the left operands of the
sequences around it, too, where the formula is in the right operand.  A filter of an absence sees the event that
must not be there, and the variables to its left in the same way.  Filters on one event at a time remain
`VariableFilter`; all others become a `Relation`, whose roles know their definitions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of, path_of
from cer_gpu.ceql.traversal import fold, mapped, with_children
from cer_gpu.ceql.variables import Variables, combine, defined_names, of_event


def resolved(formula: s.Formula) -> s.Formula:
    """Return a formula as parsed with the variables of its filters resolved.

    - An attribute of a `Relation` names its variable; one of a `VariableFilter` names none.
    - Event types and AS that a `Role` names are numbered (`site`).  A variable that is not in scope has a role without.
    - A conjunction within a relation becomes several filters, and a disjunction of filters one relation, where that
      means the same.
    """
    pass_ = _Pass(formula)
    return pass_.rebuilt() if pass_.changed else formula


@dataclass(slots=True)
class _Place:
    """A formula in the pass, the left operand of a sequence or not; `first` numbers the first definition in it."""

    formula: s.Formula
    left: bool = False
    first: int = 0


@dataclass(frozen=True, slots=True)
class _DefinitionRange:
    """The definitions from number `first` to before `last`, and the variables that they define."""

    first: int
    last: int
    variables: Variables


@dataclass(frozen=True, slots=True)
class _VisibleVariable:
    """A variable as a filter sees it: its definitions, and bounds on the events that it holds."""

    definitions: tuple[int, ...] = ()
    inside: bool = False
    single: bool = False
    always: bool = False


_Filters = tuple[s.Filter, bool]  # a filter, and True if it holds a relation


class _Pass:
    """Pass over a formula from the leaves up, which numbers definitions and resolves filters in the same order."""

    def __init__(self, formula: s.Formula) -> None:
        self.formula = formula
        self.changed = False
        self._names = frozenset(defined_names(formula))
        self._n = 0  # definitions so far
        self._definitions: dict[str, list[int]] = {}  # numbers of the definitions of each name, ascending
        self._before: list[_DefinitionRange] = []  # left operands of the sequences around the current place
        self._filters: list[s.Filter] = []  # resolved, in the order of the pass
        self._sites: dict[int, int] = {}  # by the number of a definition that a role names
        fold(_Place(formula), self._leave_place, self._enter_place)

    # ---- the formula --------------------------------------------------------------------------------------------

    def _enter_place(self, place: _Place) -> list[_Place]:
        place.first = self._n
        below = [_Place(formula) for formula in s.subformulas(place.formula)]
        if isinstance(place.formula, s.Sequence):
            below[0].left = True
        return below

    def _leave_place(self, place: _Place, below: list[Variables]) -> Variables:
        formula = place.formula
        match formula:
            case s.EventType():
                self._define(formula.event.name if formula.defines else None)
            case s.Assign():
                self._define(formula.variable.name)
            case s.Filtered():
                self._resolve(formula.filter, _FilterOfFormula(self, _DefinitionRange(place.first, self._n, below[0])))
            case s.Negation(filter=filter_) if filter_ is not None:
                self._resolve(filter_, _FilterOfEvent(self._names, formula))
            case s.Sequence():
                self._resolve_absences(formula.absent)
                self._before.pop()
            case s.TrailingAbsence():
                self._before.append(_DefinitionRange(place.first, self._n, below[0]))
                self._resolve_absences(formula.absent)
                self._before.pop()
            case s.Preceded():
                self._resolve_absences(formula.absent)
            case s.Iteration() if formula.until:
                self._before.append(_DefinitionRange(place.first, self._n, below[0]))
                self._resolve_absences(formula.until)
                self._before.pop()
        variables = combine(formula, below)
        if place.left:
            self._before.append(_DefinitionRange(place.first, self._n, variables))
        return variables

    def _resolve_absences(self, absences: tuple[s.Absence, ...]) -> None:
        """Resolve the filters of absences, which see what comes before them; each is a definition of its own."""
        for absence in absences:
            number = self._n
            self._define(None)
            if absence.filter is not None:
                self._resolve(absence.filter, _FilterOfAbsence(self, absence, number))

    def _define(self, name: str | None) -> None:
        if name is not None:
            self._definitions.setdefault(name, []).append(self._n)
        self._n += 1

    def _resolve(self, filter_: s.Filter, scope: _FilterOfFormula | _FilterOfEvent) -> None:
        def resolve(node: s.Filter, below: list[_Filters]) -> _Filters:
            match node:
                case s.VariableFilter() | s.Relation():
                    resolved_filter = scope.resolve(node)
                    return resolved_filter, next(s.relations(resolved_filter), None) is not None
                case s.FilterAnd() | s.FilterOr():
                    operands = [operand for operand, _ in below]
                    related = any(flag for _, flag in below)
                    if all(a is b for a, b in zip(operands, node.operands, strict=True)):
                        return node, related
                    if isinstance(node, s.FilterAnd):
                        return s.joined(s.FilterAnd, operands, node.span), related
                    operands = scope.merged(operands) if related else operands
                    return operands[0] if len(operands) == 1 else s.joined(s.FilterOr, operands, node.span), related

        new_filter, _ = fold(filter_, resolve, lambda node: () if isinstance(node, _LEAVES) else node.operands)
        self.changed |= new_filter is not filter_
        self._filters.append(new_filter)

    def rebuilt(self) -> s.Formula:
        """Return the formula with resolved filters and numbered definitions."""
        filters, n = iter(self._filters), iter(range(self._n))

        def rebuild(node: s.Formula, below: list[s.Formula]) -> s.Formula:
            match node:
                case s.EventType():
                    site = self._sites.get(next(n))
                    return node if site is None else replace(node, site=site)
                case s.Assign():
                    return replace(node, formula=below[0], site=self._sites.get(next(n), -1))
                case s.Filtered():
                    return replace(node, formula=below[0], filter=next(filters))
                case s.Negation():
                    return node if node.filter is None else replace(node, filter=next(filters))
                case s.Sequence():
                    return replace(node, left=below[0], right=below[1], absent=rebuild_absences(node.absent))
                case s.TrailingAbsence() | s.Preceded():
                    return replace(node, formula=below[0], absent=rebuild_absences(node.absent))
                case s.Iteration() if node.until:
                    return replace(node, formula=below[0], until=rebuild_absences(node.until))
                case _:
                    rebuilt: s.Formula = with_children(node, below)
                    return rebuilt

        def rebuild_absences(absences: tuple[s.Absence, ...]) -> tuple[s.Absence, ...]:
            return tuple(
                replace(
                    absence,
                    site=self._sites.get(next(n), -1),
                    filter=None if absence.filter is None else next(filters),
                )
                for absence in absences
            )

        return fold(self.formula, rebuild, s.subformulas)

    # ---- variables ----------------------------------------------------------------------------------------------

    def defines(self, name: str) -> bool:
        """Return True if the formula defines a variable anywhere."""
        return name in self._names

    def visible(self, variable: s.Name, defined: _DefinitionRange) -> _VisibleVariable:
        """Return a variable as a filter on the definitions of `defined` sees it."""
        name = variable.name
        inside = self._numbers_in(name, defined)
        if inside:
            around, definitions = [defined], inside
        else:
            around = [before for before in self._before if self._numbers_in(name, before)]
            definitions = [number for before in around for number in self._numbers_in(name, before)]
        return _VisibleVariable(
            tuple(definitions),
            bool(inside),
            single=len(around) == 1 and name in around[0].variables.single,
            # the events of one stream may be none of those that the variable holds
            always=variable.stream is None and any(name in defined.variables.always for defined in around),
        )

    def _numbers_in(self, name: str, definitions: _DefinitionRange) -> list[int]:
        numbers = self._definitions.get(name, [])
        return numbers[bisect_left(numbers, definitions.first) : bisect_left(numbers, definitions.last)]

    def role(self, variable: s.Name, visible: _VisibleVariable) -> s.Role:
        """Return the role of a variable, and number its definitions."""
        sites = [self._sites.setdefault(number, len(self._sites)) for number in visible.definitions]
        return s.Role(variable, frozenset(sites), visible.always, visible.single)


_LEAVES = (s.VariableFilter, s.Relation)
_Key = tuple[str | None, str]


class _FilterOfFormula:
    """Resolution of the filters on one formula, given its range of `definitions`."""

    def __init__(self, around: _Pass, definitions: _DefinitionRange) -> None:
        self._around = around
        self._definitions = definitions
        self._visible: dict[_Key, _VisibleVariable] = {}

    def visible(self, variable: s.Name) -> _VisibleVariable:
        """Return a variable as the filters see it."""
        key = _variable_key(variable)
        if key not in self._visible:
            self._visible[key] = self._around.visible(variable, self._definitions)
        return self._visible[key]

    def resolve(self, item: s.VariableFilter | s.Relation) -> s.Filter:
        """Resolve a filter as the parser made it."""
        owner = item.variable if isinstance(item, s.VariableFilter) else None
        if owner is not None and all(map(_is_own_column, s.attributes(item.predicate))):
            visible = self.visible(owner)
            if visible.inside or not visible.definitions:
                return item
        predicate = _with_variables(item.predicate, owner, self._is_variable)
        predicate = mapped(predicate, s.Attribute, self._simpler)
        named = _variables_by_key(predicate)
        if owner is not None and (not named or (_variable_key(owner) not in named and not self.visible(owner).always)):
            named = {_variable_key(owner): owner, **named}
        parts = [predicate] if self._on_one(predicate, named) else self._conjuncts(predicate, named)
        if len(parts) == 1:
            return self._filter(predicate, named, item.span)
        filters = [self._filter(part, _variables_by_key(part), part.span) for part in parts]
        return s.joined(s.FilterAnd, filters, item.span)

    def _is_variable(self, name: str) -> bool:
        return self._around.defines(name)

    def merged(self, operands: Sequence[s.Filter]) -> list[s.Filter]:
        """Return the operands of a disjunction of filters, those on one event of each variable merged to one."""
        alone = [operand for operand in operands if self._one_event_each(operand)]
        if len(alone) < 2 or not any(True for operand in alone for _ in s.relations(operand)):
            return list(operands)
        span = (alone[0].span[0], alone[-1].span[1])
        predicate = s.joined(s.Or, (one_predicate(operand, _with_variable) for operand in alone), span)
        one = self._filter(predicate, _variables_by_key(predicate), span)
        first = next(i for i, operand in enumerate(operands) if operand is alone[0])
        others = [operand for operand in operands if not any(operand is each for each in alone)]
        return [*others[:first], one, *others[first:]]

    def _one_event_each(self, filter_: s.Filter) -> bool:
        """Return True if every variable of a filter holds exactly one event, and no test is skipped."""
        named = [item.variable for item in s.variable_filters(filter_)]
        for relation in s.relations(filter_):
            named += [role.variable for role in relation.roles]
            if any(attribute.event == "PREV" for attribute in s.attributes(relation.predicate)):
                return False
        return all(visible.single and visible.always for visible in map(self.visible, named))

    def _simpler(self, attribute: s.Attribute) -> s.Attribute:
        """Return ``x.a`` for ``FIRST(x).a`` and ``LAST(x).a`` if x holds at most one event."""
        assert attribute.variable is not None
        if attribute.event in ("FIRST", "LAST") and self.visible(attribute.variable).single:
            return replace(attribute, event="EACH")
        return attribute

    def _conjuncts(self, predicate: s.Predicate, named: dict[_Key, s.Name]) -> list[s.Predicate]:
        """Split a conjunction where each part alone is tested for the same choices as the whole.

        A part may be separate if the variables that it does not name always hold an event, and if it names the same
        PREV(x), which skip the first event.  The others remain with the first that may.
        """
        if not isinstance(predicate, s.And):
            return [predicate]
        needed = {key for key, variable in named.items() if not self.visible(variable).always}
        skipping = _skipping(predicate)
        alone: list[s.Predicate] = []
        others: list[s.Predicate] = []
        for operand in predicate.operands:
            variables = _variables_by_key(operand)
            is_separate = variables and needed <= variables.keys() and skipping == _skipping(operand)
            (alone if is_separate else others).append(operand)
        if not alone:
            return [predicate]
        return [s.joined(s.And, [alone[0], *others], alone[0].span), *alone[1:]] if others else alone

    def _filter(self, predicate: s.Predicate, named: dict[_Key, s.Name], span: s.Span) -> s.Filter:
        """Return the filter of a predicate whose attributes name their variables."""
        variables = list(named.values())
        if self._on_one(predicate, named):
            return s.VariableFilter(variables[0], of_event(predicate), span)
        roles = [self._around.role(variable, self.visible(variable)) for variable in variables]
        return s.Relation(predicate, tuple(roles), span)

    def _on_one(self, predicate: s.Predicate, named: dict[_Key, s.Name]) -> bool:
        """Return True for a predicate on each event of one variable of the filtered formula."""
        each = all(attribute.event == "EACH" for attribute in s.attributes(predicate))
        return each and len(named) == 1 and all(self.visible(variable).inside for variable in named.values())


class _FilterOfAbsence(_FilterOfFormula):
    """Resolution of the filter of an absence, whose event has the definition `number`, and no other holds it."""

    def __init__(self, around: _Pass, absence: s.Absence, number: int) -> None:
        super().__init__(around, _DefinitionRange(number, number, Variables(set(), set(), set(), False, False)))
        self._own = {name.name for name in absence.names}
        self._event = absence.variable or absence.event
        self._number = number

    def visible(self, variable: s.Name) -> _VisibleVariable:
        """Return a variable as the filters see it."""
        if variable.name in self._own:
            return _VisibleVariable((self._number,), inside=True, single=True, always=variable.stream is None)
        return super().visible(variable)

    def _is_variable(self, name: str) -> bool:
        return name in self._own or super()._is_variable(name)

    def _simpler(self, attribute: s.Attribute) -> s.Attribute:
        """Call the event of the absence by one of its two names."""
        variable = attribute.variable
        if variable is not None and variable.stream is None and variable.name in self._own:
            attribute = replace(attribute, variable=s.Name(self._event.name, None, variable.span))
        return super()._simpler(attribute)


class _FilterOfEvent:
    """Resolution of the filter within ``NOT(R AS x FILTER ...)``, in which R and x are the one event."""

    def __init__(self, names: frozenset[str], negation: s.Negation) -> None:
        self._names = names
        self._own = {name.name for name in negation.names}
        self._event = negation.variable or negation.event

    def resolve(self, item: s.VariableFilter | s.Relation) -> s.Filter:
        """Resolve a filter as the parser made it; other variables have a role without definitions."""
        owner = item.variable if isinstance(item, s.VariableFilter) else None
        if owner is not None and all(map(_is_own_column, s.attributes(item.predicate))):
            return item
        predicate = _with_variables(item.predicate, owner, lambda name: name in self._own or name in self._names)
        named = _variables_by_key(predicate)
        if owner is not None:
            named.setdefault(_variable_key(owner), owner)
        skips = _skipping(predicate)
        wrong = [variable for key, variable in named.items() if variable.name not in self._own or key in skips]
        if wrong:
            return s.Relation(predicate, tuple(s.Role(variable) for variable in wrong), item.span)
        return s.VariableFilter(owner or self._event, of_event(predicate), item.span)

    def merged(self, operands: Sequence[s.Filter]) -> list[s.Filter]:
        """Return the operands unchanged: filters on one event become one predicate in any case."""
        return list(operands)


# ---- attributes ------------------------------------------------------------------------------------------------------


def _is_own_column(attribute: s.Attribute) -> bool:
    """Return True for a column of the filtered event, written without a path."""
    return attribute.variable is None and len(names_of(attribute.name)) == 1


def _variable_key(variable: s.Name) -> _Key:
    return variable.stream, variable.name


def _variables_by_key(predicate: s.Predicate) -> dict[_Key, s.Name]:
    """Return the variables that the attributes of a predicate name, in order, each once."""
    by_key: dict[_Key, s.Name] = {}
    for variable in (attribute.variable for attribute in s.attributes(predicate)):
        if variable is not None:
            by_key.setdefault(_variable_key(variable), variable)
    return by_key


def _skipping(predicate: s.Predicate) -> set[_Key]:
    """Return the variables x with PREV(x) in a predicate."""
    variables = (attribute.variable for attribute in s.attributes(predicate) if attribute.event == "PREV")
    return {_variable_key(variable) for variable in variables if variable is not None}


def _with_variables(predicate: s.Predicate, owner: s.Name | None, is_variable: Any) -> s.Predicate:
    """Return a predicate in which every attribute names its variable; in brackets it may be that of the `owner`."""

    def qualified(attribute: s.Attribute) -> s.Attribute:
        if attribute.variable is not None or owner is None:
            return attribute
        first, *rest = names_of(attribute.name)
        if rest and first == owner.name:
            return replace(attribute, name=path_of(rest), variable=owner)
        if rest and is_variable(first):
            return replace(attribute, name=path_of(rest), variable=s.Name(first, None, attribute.span))
        return replace(attribute, variable=owner)

    changed: s.Predicate = mapped(predicate, s.Attribute, qualified)
    return changed


def _with_variable(filter_: s.VariableFilter) -> s.Predicate:
    """Return the predicate of a filter on one variable, in which every attribute names it."""
    changed: s.Predicate = mapped(
        filter_.predicate, s.Attribute, lambda attribute: replace(attribute, variable=filter_.variable)
    )
    return changed


def one_predicate(
    filter_: s.Filter, read: Callable[[s.VariableFilter], s.Predicate] = lambda item: item.predicate
) -> s.Predicate:
    """Return a resolved filter as one predicate; `read` returns that of a filter on one variable."""

    def join(node: s.Filter, below: list[s.Predicate]) -> s.Predicate:
        match node:
            case s.VariableFilter():
                return read(node)
            case s.Relation():
                return node.predicate
            case s.FilterAnd():
                return s.joined(s.And, below, node.span)
            case s.FilterOr():
                return s.joined(s.Or, below, node.span)

    return fold(filter_, join, lambda node: () if isinstance(node, _LEAVES) else node.operands)
