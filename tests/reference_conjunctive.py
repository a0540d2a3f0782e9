"""Conjunctive queries for the reference: as queries of the language, and once more straight from the definition.

papers: PCEA, section 4.  A t-homomorphism chooses one event for each atom, so that a homomorphism from variables to
values makes each atom its event.  `query` writes the same with ALL and filters; the two have nothing in common but
`reference.partition_key` and `reference.in_window`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import reference as ref


@dataclass(frozen=True)
class Var:
    """Variable of a conjunctive query."""

    name: str


Term = Var | ref.Const


@dataclass(frozen=True)
class Atom:
    """`T(attribute = term, ...) [AS alias]`."""

    type: str
    terms: tuple[tuple[str, Term], ...] = ()
    alias: str | None = None

    @property
    def variables(self) -> set[str]:
        """Names of the variables of the atom."""
        return {term.name for _, term in self.terms if isinstance(term, Var)}


@dataclass(frozen=True)
class ConjunctiveQuery:
    """`Q(head) <- atoms [PARTITION BY ...] [WITHIN ...] [LIMIT n]`."""

    head: tuple[str, ...]
    atoms: tuple[Atom, ...]
    partition_by: tuple[tuple[str, ...], ...] = ()
    within: ref.Within = None
    limit: int | None = None
    name: str = "Q"

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each atom: its AS, else its type, with ``_2``, ``_3`` for further ones."""
        taken = {atom.alias for atom in self.atoms}
        names: list[str] = []
        for k, atom in enumerate(self.atoms):
            numbered = (f"{atom.type}_{n}" for n in itertools.count(2))
            types = {other.type for other in self.atoms if other.alias is None}
            free = (name for name in numbered if name not in taken | types)
            bare = atom.type not in taken
            names.append(atom.alias or (atom.type if bare else next(free)))
            taken.add(names[k])
        return tuple(names)

    @property
    def places(self) -> dict[str, list[tuple[int, str]]]:
        """Atoms (by number) and attributes of each variable, in the order of the text."""
        found: dict[str, list[tuple[int, str]]] = {}
        for k, atom in enumerate(self.atoms):
            for attribute, term in atom.terms:
                if isinstance(term, Var):
                    found.setdefault(term.name, []).append((k, attribute))
        return found


def query(conjunctive: ConjunctiveQuery) -> ref.Query:
    """Return the query of the language with the same meaning."""
    names, places = conjunctive.names, conjunctive.places
    parts = [_event(atom, name) for atom, name in zip(conjunctive.atoms, names, strict=True)]
    formula = functools.reduce(ref.All, parts)
    for (first, attribute), *others in places.values():
        for k in sorted({k for k, _ in others} - {first}):
            other = next(name for place, name in others if place == k)
            sides = (ref.VarAttr(names[first], attribute), ref.VarAttr(names[k], other))
            formula = ref.Filter(formula, ref.Relation(ref.Compare("=", *sides)))
    return ref.Query(
        formula,
        within=conjunctive.within,
        limit=conjunctive.limit,
        partition_by=conjunctive.partition_by,
        head=tuple((x, names[places[x][0][0]], places[x][0][1]) for x in conjunctive.head),
        named=tuple(attribute for atom in conjunctive.atoms for attribute, _ in atom.terms),
    )


def _event(atom: Atom, name: str) -> ref.Formula:
    """Return the event of an atom with its constants and its repeated variables."""
    formula: ref.Formula = ref.As(ref.EventType(atom.type, defines=False), name)
    first: dict[str, str] = {}  # attribute, by variable
    for attribute, term in atom.terms:
        if isinstance(term, Var) and term.name not in first:
            first[term.name] = attribute
            continue
        other = term if isinstance(term, ref.Const) else ref.Attr(first[term.name])
        formula = ref.Filter(formula, ref.Unary(name, ref.Compare("=", ref.Attr(attribute), other)))
    return formula


# -------------------------------------------------------------------------------------- straight from the definition


def t_homomorphisms(conjunctive: ConjunctiveQuery, stream: Sequence[ref.Event]) -> Iterator[tuple[int, ...]]:
    """Yield the positions of the events that the atoms may have together.

    A variable in one place takes any value, NULL too; values in two places must be equal, and NULL equals nothing.
    """
    for chosen in itertools.product(range(len(stream)), repeat=len(conjunctive.atoms)):
        values: dict[str, list[object]] = {}
        fits = True
        for atom, position in zip(conjunctive.atoms, chosen, strict=True):
            event = stream[position]
            fits = fits and atom.type in (ref.ANY, event.get(ref.TYPE))
            for attribute, term in atom.terms if fits else ():
                value = ref.attribute(event, attribute)
                if isinstance(term, Var):
                    values.setdefault(term.name, []).append(value)
                else:
                    fits = fits and value is not None and value == term.value
        equal = (len(held) == 1 or all(v is not None and v == held[0] for v in held) for held in values.values())
        if fits and all(equal):
            yield chosen


def answers(conjunctive: ConjunctiveQuery, stream: Sequence[ref.Event]) -> list[ref.HeadRow]:
    """Return every row of the query (LIMIT is ignored): each t-homomorphism with its head."""
    found = [
        (min(chosen), max(chosen), tuple(sorted(set(chosen))), head)
        for chosen, head in _chosen_with_heads(conjunctive, stream)
    ]
    return sorted(found, key=repr)


def bindings(conjunctive: ConjunctiveQuery, stream: Sequence[ref.Event]) -> list[ref.BoundRow]:
    """Return every row of "bindings": each t-homomorphism, atom by atom."""
    names = conjunctive.names
    return sorted(
        (min(chosen), max(chosen), tuple(sorted(set(chosen))), tuple(zip(names, ((p,) for p in chosen), strict=True)))
        for chosen, _ in _chosen_with_heads(conjunctive, stream)
    )


def _chosen_with_heads(
    conjunctive: ConjunctiveQuery, stream: Sequence[ref.Event]
) -> Iterator[tuple[tuple[int, ...], tuple[object, ...]]]:
    """Yield each t-homomorphism inside one substream and one window, with the values of its head."""
    options = ref.Query(ref.EventType(""), partition_by=conjunctive.partition_by)
    keys = [ref.partition_key(options, event) for event in stream]
    first = {x: places[0] for x, places in conjunctive.places.items()}
    for key in dict.fromkeys(key for key in keys if key is not None):
        positions = [p for p, other in enumerate(keys) if other == key]
        part = [stream[p] for p in positions]
        for chosen in t_homomorphisms(conjunctive, part):
            if ref.in_window(conjunctive.within, part, (min(chosen), max(chosen))):
                head = [ref.attribute(part[chosen[k]], name) for k, name in (first[x] for x in conjunctive.head)]
                plain = tuple("NaN" if value != value else value for value in head)
                yield tuple(positions[p] for p in chosen), plain


# -------------------------------------------------------------------------------------------------- kinds of queries


def is_hierarchical(conjunctive: ConjunctiveQuery) -> bool:
    """Return True if the atoms of any two variables are nested or disjoint."""
    atoms = [{k for k, _ in places} for places in conjunctive.places.values()]
    return all(a <= b or b <= a or not a & b for a, b in itertools.combinations(atoms, 2))


def is_acyclic(conjunctive: ConjunctiveQuery) -> bool:
    """Return True if ears can be taken off until one atom is left.

    An ear is an atom with all variables that it shares with others in one of these.
    """
    left = [atom.variables for atom in conjunctive.atoms]
    while len(left) > 1:
        for k, own in enumerate(left):
            others = left[:k] + left[k + 1 :]
            shared = own & set().union(*others)
            if any(shared <= other for other in others):
                left = others
                break
        else:
            return False
    return True
