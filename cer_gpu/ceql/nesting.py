"""Bound on the nesting depth of a query: the one check that all recursive passes rely on."""

from __future__ import annotations

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import Node, children, fold
from cer_gpu.errors import QueryTooLargeError

MAX_NESTING = 100
"""Most levels of a query.  Parentheses, ``AS`` and ``FILTER`` add none; a chain of one of ``; : ALL OR AND`` is one
level, of any length, also with filters between.  Pickling needs the deepest stack: some three frames a level."""

_CHAINS = (s.Sequence, s.Conjunction, s.Disjunction)
_Chain = type[s.Sequence] | type[s.Conjunction] | type[s.Disjunction] | None


def check_nesting(formula: s.Formula | s.Predicate | s.Expression, text: str) -> None:
    """Raise QueryTooLargeError if a formula, with its filters, a predicate or an expression is nested too deeply."""

    def descend(item: tuple[Node, int, _Chain]) -> list[tuple[Node, int, _Chain]]:
        node, level, around = item
        chain: _Chain = None
        if isinstance(node, s.Assign | s.Filtered):
            chain = around
        else:
            chain = next((kind for kind in _CHAINS if isinstance(node, kind)), None)
            level += chain is None or chain is not around
        if level > MAX_NESTING:
            start, _ = getattr(node, "span", (None, None))
            message = f"the query is nested more than {MAX_NESTING} levels deep"
            raise QueryTooLargeError(message, text, start, hint=_HINT)
        return [(child, level, chain) for child in children(node)]

    root: tuple[Node, int, _Chain] = (formula, 0, None)
    fold(root, lambda item, below: None, descend)


_HINT = (
    "a chain of ;, ALL, OR or AND is one level, however long; a list of values is IN {...}; "
    "a long sum can be a column of its own"
)
