"""Tables of a parallel pattern for the loops, bound to the columns of its variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from cer_gpu.arrays import Int32, Int64
from cer_gpu.automaton.parallel_pattern import ParallelPattern, ParallelTable, ParallelTransition, variables_at
from cer_gpu.backend.products.keys import Automaton
from cer_gpu.expressions.relations import BoundRelations
from cer_gpu.runtime.join_tables import offsets_of, padded, table_of


class ParallelTables:
    """The tables of a pattern, as arrays.

    Parameters
    ----------
    pattern
    bound
        Its columns (`cer_gpu.expressions.relations.bind_keys`).
    columns
        For each member of each variable its column in `bound`.

    Attributes
    ----------
    bound : BoundRelations
    n_values : list of int
        For each table of keys the number of values in a key.
    n_lists : int
        Maximum number of lists in one row.
    n_keys : int
        Number of keys: columns of an event for a table.
    max_sources, max_fired, max_feeds : int
        Bounds: sources of a transition, transitions that one event fires, and lists that it feeds.
    """

    def __init__(self, pattern: ParallelPattern, bound: BoundRelations, columns: list[list[int]]) -> None:
        self.pattern: ParallelPattern
        self.bound: BoundRelations
        self.pattern, self.bound = pattern, bound
        # by place, the columns of each variable; columns of events begin after their valid bits
        self._columns: dict[tuple[int, int], list[int]] = {}
        for v, members in enumerate(pattern.variables):
            for member, column in zip(members, columns[v], strict=True):
                self._columns.setdefault((member.place, v), []).append(1 + column)
        tables: dict[tuple[int, ...], int] = {}
        lists: dict[tuple[int, tuple[int, ...]], int] = {}
        heights: dict[int, int] = {}
        for transition in pattern.transitions:
            for source in transition.sources:
                table = tables.setdefault(source.key, len(tables))
                if (source.state, source.key) not in lists:
                    lists[source.state, source.key] = heights.setdefault(table, 0)
                    heights[table] += 1
        self._tables, self._lists = tables, lists
        self.n_values: list[int] = [len(key) for key in tables] or [0]
        self.n_lists: int = max(heights.values(), default=1)
        self._keys: dict[tuple[int, tuple[int, ...]], int] = {}
        self._rows: list[tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]] = []
        for t in pattern.transitions:
            fed = [(state, key) for state, key in lists if state == t.target]
            self._rows.append(
                (
                    [(self._key(t, source.key), lists[source.state, source.key]) for source in t.sources],
                    [(self._key(t, key), lists[state, key]) for state, key in fed],
                    list(self._equal(t)),
                )
            )
        self.n_keys: int = len(self._keys)
        self.max_sources: int = max((len(t.sources) for t in pattern.transitions), default=0)
        self.max_fired: int = len(pattern.transitions)
        self.max_feeds: int = sum(len(feeds) for _, feeds, _ in self._rows)

    def _key(self, transition: ParallelTransition, variables: tuple[int, ...]) -> int:
        """Return the number of a key that the event of a transition has."""
        columns = tuple(self._column(transition, variable) for variable in variables)
        return self._keys.setdefault((self._tables[variables], columns), len(self._keys))

    def _column(self, transition: ParallelTransition, variable: int) -> int:
        return next(
            self._columns[place, variable][0] for place in transition.places if (place, variable) in self._columns
        )

    def _equal(self, transition: ParallelTransition) -> Iterable[tuple[int, int]]:
        """Yield the columns of the event of a transition that must be equal, as one variable has them."""
        for variable in range(len(self.pattern.variables)):
            columns = [c for place in transition.places for c in self._columns.get((place, variable), ())]
            yield from pairwise(columns)

    def column_at(self, place: int, variable: int) -> int:
        """Return a column of the events of a place with their values of a variable."""
        return self._columns[place, variable][0]

    def equal_at(self, place: int) -> list[tuple[int, int]]:
        """Return the columns of the events of a place that must be equal, as one variable has them."""
        variables = range(len(self.pattern.variables))
        return [pair for v in variables for pair in pairwise(self._columns.get((place, v), ()))]

    def values_of(self, columns: list[int]) -> list[tuple[int, int]]:
        """Return the tables, each with a value of its keys, that have values of some columns of events."""
        values = {
            (table, value): None for table, key in self._keys for value, column in enumerate(key) if column in columns
        }
        return list(values)

    def automaton(self, table: ParallelTable) -> Automaton:
        """Return the arrays for the symbols met so far."""
        pattern = self.pattern
        offsets = [np.cumsum([0, *(len(row[i]) for row in self._rows)]) for i in range(3)]
        links = [[link for row in self._rows for link in row[i]] for i in range(3)]
        final = [t.target in pattern.finals for t in pattern.transitions]
        parts = [part for each in offsets for part in (each[:-1], each[1:])]
        fed = [bool(feeds) for _, feeds, _ in self._rows]
        transitions = np.array([*parts, table.marks, final, fed], np.int32).T
        needed = [
            sorted({key for t in fired for part in self._rows[t][:2] for key, _ in part}) for fired in table.fired
        ]
        return Automaton(
            offsets_of(table.fired),
            _flat(table.fired),
            offsets_of(needed),
            _flat(needed),
            np.ascontiguousarray(transitions),
            table_of(links[0], 2),
            table_of(links[1], 2),
            table_of(links[2], 2),
            np.array([each for each, _ in self._keys], np.int32),
            padded([columns for _, columns in self._keys]),
            table.unions,
        )


class ConjunctionTree:
    """The q-tree of a pattern that is a conjunction, as arrays.

    Parameters
    ----------
    tables

    Attributes
    ----------
    arrays : tuple
        `CountTree.leaves` to `nodes`.
    n_nodes, n_columns, max_values : int
        Nodes above leaves, most children of one, and most values of a key.
    """

    def __init__(self, tables: ParallelTables) -> None:
        pattern = tables.pattern
        ((places, tree),) = pattern.trees
        order = [node for node in tree.nodes if isinstance(node, str)]
        number = {node: i for i, node in enumerate(order)}
        children = {node: tree.children(node) for node in order}
        above = {child: (number[node], n) for node in order for n, child in enumerate(children[node])}
        keys: list[list[int]] = []
        for node in order:
            below = [variables_at(pattern.variables, places[leaf]) for leaf in tree.leaves(node)]
            before = keys[above[node][0]] if node in above else []
            keys.append([*before, *sorted(frozenset.intersection(*below).difference(before))])
        leaf_of = {place: leaf for leaf, place in enumerate(places)}
        own = [keys[above[leaf_of[place]][0]] for place in range(len(places))]
        columns = [[tables.column_at(place, v) for v in own[place]] for place in range(len(places))]
        equals = [[place, *pair] for place in range(len(places)) for pair in tables.equal_at(place)]
        valid = [
            {*columns[place], *(c for e in equals if e[0] == place for c in e[1:])} for place in range(len(places))
        ]
        leaves = []
        for place in range(len(places)):
            inner, child = above[leaf_of[place]]
            parent = above.get(order[inner], (-1, -1))[0]
            bits = sum(1 << (column - 1) for column in valid[place])
            leaves.append([inner, child, bits, parent, len(keys[parent]) if parent >= 0 else 0])
        nodes = [[*above.get(node, (-1, -1)), len(children[node]), len(keys[number[node]])] for node in order]
        self._columns, self._keys, self._equals = columns, keys, equals
        self._above = [above[leaf_of[place]][0] for place in range(len(places))]
        self.n_nodes: int = len(order)
        self.n_columns: int = max(len(each) for each in children.values())
        self.max_values: int = max(map(len, keys))
        self._n_attributes = len(tables.bound.columns)
        self.arrays: tuple[Int64, Int64, Int64, Int64, Int64] = (
            np.array(leaves, np.int64),
            np.array([[*own, *[0] * (self.max_values - len(own))] for own in columns], np.int64),
            np.array([[-(k < len(own)) for k in range(self.max_values)] for own in columns], np.int64),
            np.array(equals, np.int64).reshape(-1, 3),
            np.array(nodes, np.int64),
        )

    def places_of(self, words: Sequence[int]) -> Int32:
        """Return the place of each symbol, or -1, given the places of each as bits; there is one at most."""
        assert all(word & (word - 1) == 0 for word in words)
        return np.array([word.bit_length() - 1 for word in words], np.int32)

    def values_of(self, columns: Sequence[int]) -> list[tuple[int, int]]:
        """Return the nodes, each with a value of its keys, that have values of some columns of events."""
        places: dict[tuple[int, int], None] = {}
        for place, own in enumerate(self._columns):
            node = self._above[place]
            while node >= 0:
                n_values = len(self._keys[node])
                places |= {(node, value): None for value, column in enumerate(own[:n_values]) if column in columns}
                node = int(self.arrays[-1][node, 0])
        return list(places)

    def attributes_of(self, places: Int32, values: Int64) -> Int64:
        """Return the attributes of events at some places, given the values of their keys."""
        attributes = np.zeros((len(places), 1 + self._n_attributes), np.int64)
        for place, own in enumerate(self._columns):
            of = places == place
            for value, column in enumerate(own):
                attributes[of, column] = values[of, value]
            for _, column, other in (each for each in self._equals if each[0] == place):
                attributes[of, other] = attributes[of, column]
            attributes[of, 0] = self.arrays[0][place, 2]
        return attributes


def _flat(lists: list[list[int]]) -> Int32:
    return np.array([each for part in lists for each in part], np.int32)
