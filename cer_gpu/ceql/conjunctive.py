"""Conjunctive queries, such as ``Q(x) <- T(id = x), S(id = x, loc = 3)``, as queries of the language.

papers: PCEA, section 3: a match is a choice of one event for each atom (a t-homomorphism).  The body becomes a
conjunction of one event an atom, and the equalities of its variables become filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import Formula, HeadVariable
from cer_gpu.ceql.values import Name
from cer_gpu.errors import OptionError, QueryError, did_you_mean, nearest

RESULT_COLUMNS = ("start", "end", "positions", "start_time", "end_time", "events", "count")
"""Columns of the results besides those of a head."""
NO_NAME = "_"
"""Variable that denotes another value each time."""

Relations = Mapping[str, Sequence[str]]
"""Columns of each type, in the order of the arguments of its atoms."""


@dataclass(frozen=True)
class Argument:
    """``attribute = term``, or a term alone (`attribute` None); a term that is a `Name` is a variable."""

    attribute: s.Name | None
    term: s.Name | s.Literal | s.Negative
    span: s.Span


@dataclass(frozen=True)
class QueryAtom:
    """``event(argument, ...) [AS alias]``."""

    event: s.Name
    arguments: tuple[Argument, ...]
    alias: s.Name | None
    span: s.Span


@dataclass(frozen=True)
class _Place:
    """An attribute of an atom: a place of a variable; `span` is that of the whole argument."""

    atom: s.Name
    attribute: s.Name
    span: s.Span

    def read(self) -> s.Attribute:
        return s.Attribute(self.attribute.name, self.attribute.span, self.atom)


def checked_relations(relations: Any) -> dict[str, tuple[str, ...]]:
    """Return the option `relations` of `cer_gpu.compile` with its names in tuples.

    Raises
    ------
    OptionError
        When it is no mapping from types to lists of names, or a list holds a name twice.
    """
    if relations is None:
        return {}
    if not isinstance(relations, Mapping):
        raise OptionError(f'relations must be a mapping such as {{"T": ["id"]}}, got {type(relations).__name__}')
    checked = {}
    for name, columns in relations.items():
        listed = isinstance(columns, Sequence) and not isinstance(columns, str | bytes)
        if not isinstance(name, str) or not listed or not all(isinstance(column, str) for column in columns):
            raise OptionError(f"relations must name a list of columns for each type, got {name!r}: {columns!r}")
        again = next((column for i, column in enumerate(columns) if column in columns[:i]), None)
        if again is not None:
            raise OptionError(f"relations name column {again!r} of {name!r} twice")
        checked[name] = tuple(columns)
    return checked


class ConjunctiveQuery:
    """Formula and head of a conjunctive query.

    Attributes
    ----------
    formula : Formula
        The atoms, joined by ALL, with their filters.
    head : tuple of HeadVariable
    unread : tuple of Name
        Attributes of variables that occur once, which no filter reads.
    relations : tuple of (str, tuple of str)
        Types with arguments by position, and their columns.

    Raises
    ------
    QueryError
        When the names in the query do not agree, or its arguments by position do not agree with `relations`.
    """

    def __init__(
        self, text: str, head: Sequence[s.Name], atoms: Sequence[QueryAtom], relations: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._text = text
        self._relations = relations
        self._by_position: dict[str, tuple[str, ...]] = {}
        self._places: dict[str, list[_Place]] = {}  # of each variable, the first in each atom
        self._equal: set[str] = set()  # variables that occur twice in an atom
        self._unread: list[s.Name] = []  # attributes
        names = self._atom_names(atoms)
        events = [self._atom_event(atom, name) for atom, name in zip(atoms, names, strict=True)]
        self.formula: Formula = self._join_atoms(events, (atoms[0].span[0], atoms[-1].span[1]))
        self.head: tuple[HeadVariable, ...] = tuple(self._head(head, {name.name for name in names}))
        alone = [places[0].attribute for v, places in self._places.items() if len(places) == 1 and v not in self._equal]
        self.unread: tuple[Name, ...] = tuple(sorted([*self._unread, *alone], key=lambda name: name.span))
        self.relations: tuple[tuple[str, tuple[str, ...]], ...] = tuple(self._by_position.items())

    def _atom_error(self, message: str, span: s.Span, hint: str | None = None) -> QueryError:
        return QueryError(message, self._text, *span, hint=hint)

    # ---- atoms --------------------------------------------------------------------------------------------------

    def _atom_names(self, atoms: Sequence[QueryAtom]) -> list[s.Name]:
        """Return the name of each atom: its AS, else its type, numbered from the second on."""
        taken: set[str] = set()
        for alias in (atom.alias for atom in atoms if atom.alias is not None):
            if alias.name in taken:
                raise self._atom_error(
                    f"two atoms are called {alias.name!r}", alias.span, "each atom has a name of its own"
                )
            taken.add(alias.name)
        first = {
            atom.event.name: atom for atom in reversed(atoms) if atom.alias is None and atom.event.name not in taken
        }
        taken |= first.keys()
        numbers: dict[str, int] = {}
        names = []
        for atom in atoms:
            name = atom.event.name
            if atom.alias is not None:
                name = atom.alias.name
            elif first.get(name) is not atom:
                number = numbers.get(name, 2)
                while f"{name}_{number}" in taken:
                    number += 1
                numbers[name] = number + 1
                name = f"{name}_{number}"
                taken.add(name)
            names.append(s.Name(name, None, (atom.alias or atom.event).span))
        return names

    def _atom_event(self, atom: QueryAtom, name: s.Name) -> s.Formula:
        """Return the event of an atom, with its own filters; note the places of its variables."""
        if atom.event.stream is not None:
            raise self._atom_error(
                "an atom names no stream",
                atom.event.span,
                f"write {atom.event.name}(...); streams are named in SELECT ... FROM ... WHERE",
            )
        event: s.Formula = s.EventType(atom.event, atom.event.span, defines=False)
        event = s.Assign(event, name, atom.span)
        tests: list[s.Predicate] = []
        own: dict[str, _Place] = {}  # by variable
        for place, term in self._atom_arguments(atom, name):
            if not isinstance(term, s.Name):
                tests.append(s.Comparison("=", place.read(), term, place.span))
            elif term.name in own:
                tests.append(s.Comparison("=", own[term.name].read(), place.read(), place.span))
                self._equal.add(term.name)
            elif term.name.upper() == "NULL":
                raise self._atom_error(
                    "NULL is no term of an atom: no value is equal to it",
                    term.span,
                    "a filter of SELECT ... WHERE f ALL g FILTER x.a IS NULL asks for missing values",
                )
            elif term.name == NO_NAME:
                self._unread.append(place.attribute)
            else:
                own[term.name] = place
        for variable, place in own.items():
            self._places.setdefault(variable, []).append(place)
        if not tests:
            return event
        test = tests[0] if len(tests) == 1 else s.And(tuple(tests), atom.span)
        return s.Filtered(event, s.Relation(test, (), atom.span), atom.span)

    def _atom_arguments(
        self, atom: QueryAtom, name: s.Name
    ) -> Iterator[tuple[_Place, s.Name | s.Literal | s.Negative]]:
        """Yield the attributes of an atom with their terms."""
        seen: set[str] = set()
        for attribute, argument in zip(self._attributes(atom), atom.arguments, strict=True):
            if attribute.name in seen:
                raise self._atom_error(
                    f"atom {name.name!r} has attribute {dotted(attribute.name)!r} twice",
                    argument.span,
                    "an attribute has one term: a variable or a constant",
                )
            seen.add(attribute.name)
            yield _Place(name, attribute, argument.span), argument.term

    def _attributes(self, atom: QueryAtom) -> Iterable[s.Name]:
        """Return the attribute of each argument of an atom."""
        event, arguments = atom.event.name, atom.arguments
        bare = next((argument for argument in arguments if argument.attribute is None), None)
        if bare is None:
            return [argument.attribute for argument in arguments if argument.attribute is not None]
        if any(argument.attribute is not None for argument in arguments):
            raise self._atom_error(
                f"the arguments of {event!r} are by name and by position",
                bare.span,
                "name the attributes of all arguments of an atom, or of none",
            )
        columns = self._relations.get(event)
        if columns is None:
            near = nearest(event, self._relations)
            option = f'name them, {event}(attribute = ...), or compile with relations={{"{event}": [...]}}'
            raise self._atom_error(
                f"the arguments of {event!r} are by position, and relations do not name its columns",
                bare.span,
                f"did you mean {near!r}?" if near else option,
            )
        if len(columns) != len(arguments):
            n_columns, n_arguments = _count_text(len(columns), "column"), _count_text(len(arguments), "argument")
            raise self._atom_error(
                f"{event!r} has {n_columns}, and {n_arguments} here",
                (arguments[0].span[0], arguments[-1].span[1]),
                f"relations name {', '.join(columns)}" if columns else "relations name none",
            )
        self._by_position[event] = columns
        return [s.Name(column, None, argument.span) for column, argument in zip(columns, arguments, strict=True)]

    # ---- the whole ----------------------------------------------------------------------------------------------

    def _join_atoms(self, events: list[s.Formula], span: s.Span) -> s.Formula:
        """Return the conjunction of the atoms, filtered by the equalities between them."""

        def both(left: s.Formula, right: s.Formula) -> s.Formula:
            return s.Conjunction(left, right, (left.span[0], right.span[1]))

        formula = reduce(both, events)
        filters = [
            s.Relation(s.Comparison("=", places[0].read(), place.read(), place.span), (), place.span)
            for places in self._places.values()
            for place in places[1:]
        ]
        if not filters:
            return formula
        return s.Filtered(formula, filters[0] if len(filters) == 1 else s.FilterAnd(tuple(filters), span), span)

    def _head(self, head: Sequence[s.Name], atoms: set[str]) -> Iterator[s.HeadVariable]:
        seen: set[str] = set()
        for variable in head:
            name = variable.name
            if name in seen:
                raise self._atom_error(f"the head has variable {name!r} twice", variable.span)
            seen.add(name)
            if name not in self._places:
                raise self._atom_error(
                    f"the head has variable {name!r}, which no atom has",
                    variable.span,
                    did_you_mean(name, self._places, "variables of the atoms") or "let an atom have it: T(id = x)",
                )
            place = self._places[name][0]
            rename = f"call it {_free_name(place)}, for example"
            if name in RESULT_COLUMNS:
                raise self._atom_error(
                    f"{name!r} is a column of the results: the head cannot have it", variable.span, rename
                )
            if name in atoms:
                reason = f'{name!r} is an atom, and a column of "bindings": the head cannot have it'
                raise self._atom_error(reason, variable.span, rename)
            yield s.HeadVariable(name, place.atom, place.attribute.name, variable.span)

    def check_keys(self, partition: tuple[tuple[s.Name, ...], ...]) -> None:
        """Refuse a head variable that is called like a key of PARTITION BY, which is a column, too."""
        keys = {dotted(names[0].name) for names in partition}
        for variable in self.head:
            if variable.name in keys:
                raise self._atom_error(
                    f"{variable.name!r} is a column of the result by PARTITION BY: the head cannot have it",
                    variable.span,
                    "leave it out of the head, or call the variable otherwise",
                )


def _free_name(place: _Place) -> str:
    return f"{dotted(place.attribute.name).replace('.', '_')}_of_{place.atom.name}"


def _count_text(number: int, unit: str) -> str:
    return f"{number} {unit}" + ("" if number == 1 else "s")
