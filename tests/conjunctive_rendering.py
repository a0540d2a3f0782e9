"""Conjunctive queries written as text: plainly, or in one of the many ways in which a user might write them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import reference as ref
from reference_conjunctive import Atom, ConjunctiveQuery, Var
from rendering import _Writer


def to_text(
    query: ConjunctiveQuery, rng: random.Random | None = None, relations: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return the text of the query: the plainest without `rng`.

    With `relations`, the columns of each type in order, the arguments of atoms are by position; `_` stands for a column
    that the atom does not name.
    """
    return _ConjunctiveWriter(rng, 1000).conjunctive(query, relations)


class _ConjunctiveWriter(_Writer):
    def gap(self, before: str, after: str) -> str:
        return "" if self.rng is None and after == "(" else super().gap(before, after)

    def listed(self, parts: Sequence[Sequence[str]]) -> list[str]:
        return [token for k, part in enumerate(parts) for token in ([","] if k else []) + [*part]]

    def conjunctive(self, query: ConjunctiveQuery, relations: Mapping[str, Sequence[str]] | None) -> str:
        out = [self.name(query.name), "(", *self.listed([[self.name(x)] for x in query.head]), ")", "<-"]
        out += self.listed(
            [self.atom(atom, None if relations is None else relations[atom.type]) for atom in query.atoms]
        )
        if query.partition_by:
            brackets = [self.bracket(names) for names in query.partition_by]
            out += [self.keyword("PARTITION"), self.keyword("BY"), *self.listed(brackets)]
        out += [] if query.within is None else [self.keyword("WITHIN"), *self.extent(query.within)]
        if query.limit is not None:
            out += [self.keyword("LIMIT"), str(query.limit)]
        return self.text([*out, ";"] if self.chance(0.1) else out)

    def atom(self, atom: Atom, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            terms = [[*self.attribute(name), self.choice("=", "=="), *self.term(term)] for name, term in atom.terms]
        else:
            given = dict(atom.terms)
            terms = [self.term(given[name]) if name in given else ["_"] for name in columns]
        tokens = [self.name(atom.type), "(", *self.listed(terms), ")"]
        return tokens if atom.alias is None else [*tokens, self.keyword("AS"), self.name(atom.alias)]

    def term(self, term: Var | ref.Const) -> list[str]:
        return [self.name(term.name)] if isinstance(term, Var) else self.literal(term)
