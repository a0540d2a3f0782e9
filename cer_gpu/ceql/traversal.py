"""Traversal of trees of nodes (formulas, filters, predicates, normal forms), shared by all passes.

It keeps its own stack, so that Python's recursion limit bounds no query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any, ClassVar, TypeVar

N = TypeVar("N")
T = TypeVar("T")


class Node:
    """A node of a tree; `parts` names the fields that hold its children, from left to right."""

    parts: ClassVar[tuple[str, ...]] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the nodes of the tree one after the other, children first, each with places for its children."""
        nodes: list[tuple[type, tuple[Any, ...]]] = []

        def pack(node: Any, below: list[None]) -> None:
            bare = with_children(node, [...] * len(below))
            nodes.append((type(node), tuple(getattr(bare, each.name) for each in fields(bare))))

        fold(self, pack, children)
        return _unpacked, (nodes,)


def _unpacked(nodes: list[tuple[type, tuple[Any, ...]]]) -> Any:
    """Return the tree of pickled nodes, building each once, with its children in their fields."""
    results: list[Any] = []
    for kind, values in nodes:
        parts = [(place, part) for place in _places_of_parts(kind) if (part := values[place]) is not None]
        if parts:
            fields_of_node = list(values)
            at = first = len(results) - sum(len(part) if isinstance(part, tuple) else 1 for _, part in parts)
            for place, part in parts:
                if isinstance(part, tuple):
                    fields_of_node[place] = tuple(results[at : at + len(part)])
                    at += len(part)
                else:
                    fields_of_node[place] = results[at]
                    at += 1
            del results[first:]
            results.append(kind(*fields_of_node))
        else:
            results.append(kind(*values))
    return results[0]


@cache
def _places_of_parts(kind: type[Any]) -> tuple[int, ...]:
    """Return the indexes of the fields of a kind of node that hold its children, from left to right."""
    names = [each.name for each in fields(kind)]
    return tuple(names.index(name) for name in kind.parts)


def children(node: Node) -> list[Any]:
    """Return the children of a node, from left to right; a field may hold one, none or a tuple of them."""
    nodes: list[Any] = []
    for name in node.parts:
        part = getattr(node, name)
        if isinstance(part, tuple):
            nodes += part
        elif part is not None:
            nodes.append(part)
    return nodes


def with_children(node: Any, new: Iterable[Any]) -> Any:
    """Return a copy of a node (a dataclass) with other children, in the order and number of `children`."""
    coming, changes = iter(new), dict[str, Any]()
    for name in node.parts:
        part = getattr(node, name)
        if isinstance(part, tuple):
            changes[name] = tuple(next(coming) for _ in part)
        elif part is not None:
            changes[name] = next(coming)
    return replace(node, **changes) if changes else node


def mapped(root: Any, kind: type[Any], change: Callable[[Any], Any]) -> Any:
    """Return a tree with ``change(node)`` in place of each node of a kind."""

    def combine(node: Any, below: list[Any]) -> Any:
        return change(node) if isinstance(node, kind) else with_children(node, below)

    return fold(root, combine, children)


def walk(root: Node) -> Iterator[Node]:
    """Yield the nodes of a tree in preorder, from left to right."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(children(node))


def fold(root: N, combine: Callable[[N, list[T]], T], descend: Callable[[N], Iterable[N]]) -> T:
    """Fold a tree: compute the result of each node from the results of its children, and return that of the root.

    Parameters
    ----------
    root
        A node, or a node together with facts from above it.
    combine
        Returns the result of a node, given those of its children; called from left to right, children first.
    descend
        Returns the children; called once for each node, after all nodes to its left are combined.
    """
    results: list[T] = []
    # a node with -1 before its children are visited, then with their number: their results end `results`
    todo: list[tuple[N, int]] = [(root, -1)]
    while todo:
        node, n_below = todo.pop()
        if n_below < 0:
            below = list(descend(node))
            todo.append((node, len(below)))
            todo += [(child, -1) for child in reversed(below)]
        else:
            first = len(results) - n_below
            results[first:] = [combine(node, results[first:])]
    return results[0]
