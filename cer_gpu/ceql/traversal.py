"""Traversal of trees of nodes (formulas, filters, predicates, normal forms), the one that all passes use.

It keeps its own stack, so that Python's recursion limit bounds no query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

N = TypeVar("N")
T = TypeVar("T")


class Node:
    """A node of a tree; `parts` names the fields that hold its children, from left to right."""

    parts: ClassVar[tuple[str, ...]] = ()


def children(node: Node) -> list[Any]:
    """Return the children of a node, from left to right: a field may hold one, none or a tuple of them."""
    found: list[Any] = []
    for name in node.parts:
        part = getattr(node, name)
        if isinstance(part, tuple):
            found += part
        elif part is not None:
            found.append(part)
    return found


def with_children(node: Any, new: Iterable[Any]) -> Any:
    """Return a node (a dataclass) with other children, as many as `children` returns, in their order."""
    coming, changes = iter(new), dict[str, Any]()
    for name in node.parts:
        part = getattr(node, name)
        if isinstance(part, tuple):
            changes[name] = tuple(next(coming) for _ in part)
        elif part is not None:
            changes[name] = next(coming)
    return replace(node, **changes) if changes else node


def walk(root: Node) -> Iterator[Node]:
    """Yield a node and all below it, each before its children, from left to right."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(children(node))


def fold(root: N, combine: Callable[[N, list[T]], T], descend: Callable[[N], Iterable[N]]) -> T:
    """Return the result of `combine` for a node, from the results of what is below it.

    Parameters
    ----------
    root
        A node, or a node together with what is known from above it.
    combine
        Makes the result of a node from those of its children; called from left to right, children first.
    descend
        Returns the children; called once for each node, after all that stand left of it are combined.
    """
    results: list[T] = []
    # a node and whether its children are still to come; then how many results they have left behind
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
