"""Bounds on the nesting of patterns and expressions, of which the passes after them make use of Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import lark
from sqlglot import exp

from cer_gpu.ceql.nesting import MAX_NESTING
from cer_gpu.ceql.syntax import Span
from cer_gpu.errors import QueryTooLargeError

MAX_BRACKETS = 25
"""Most brackets, CASEs and signs around one word of an expression: sqlglot needs some 24 frames of Python for each."""

_OPENING, _CLOSING = ("(", "CASE", "["), (")", "END", "]")
_SIGNS = ("NOT", "INTERVAL", "-", "+", "~")
_OF_BRACKETS = "leave out brackets that are not needed, or make a part of it a column of its own"
_OF_TREES = "a chain of AND, or of OR, is one level, however long; a long sum can be a column of its own"
_OF_PATTERNS = "parentheses add no level, and | is one, however many patterns it joins"

_N = TypeVar("_N")


def check_pattern(tree: Any, text: str, begin: int) -> None:
    """Raise QueryTooLargeError if the parse tree of a pattern, whose text begins there in `text`, is too deep."""

    def parts(node: Any) -> Iterable[Any]:
        return (each for each in node.children if isinstance(each, lark.Tree))

    deep = _too_deep(tree, parts, lambda node: node.data in ("pattern", "permutation", "exclusion", "repetition"))
    if deep is not None:
        at = begin + (getattr(deep.meta, "start_pos", 0) or 0)
        what = f"the pattern is nested more than {MAX_NESTING} levels deep"
        raise QueryTooLargeError(what, text, at, at + 1, _OF_PATTERNS)


def check_words(tokens: Iterable[Any], text: str, begin: int) -> None:
    """Raise QueryTooLargeError if too many brackets or signs are around a word of an expression.

    `tokens` are those of sqlglot; the expression begins at `begin` of `text`.
    """
    n_open = n_signs = 0
    for token in tokens:
        word = text[begin + token.start : begin + token.end + 1].upper()
        n_signs = n_signs + 1 if word in _SIGNS else 0
        n_open += (word in _OPENING) - (word in _CLOSING)
        if n_open + max(0, n_signs - 1) > MAX_BRACKETS:  # the first may stand between two operands
            raise too_deep_for_sql(text, (begin + token.start, begin + token.end + 1))


def too_deep_for_sql(text: str, span: Span) -> QueryTooLargeError:
    """Return the error of an expression that has too many brackets around a word."""
    return QueryTooLargeError(
        f"the expression is nested more than {MAX_BRACKETS} levels deep", text, *span, _OF_BRACKETS
    )


def check_expression(tree: exp.Expr, text: str, at: Callable[[exp.Expr], Span]) -> None:
    """Raise QueryTooLargeError if an expression is too deep; `at` tells where a part of it is.

    Parentheses add no level, and a chain of AND, or of OR, is one, of any length.
    """

    def parts(node: exp.Expr) -> Iterable[exp.Expr]:
        return operands_of(node) if isinstance(node, exp.And | exp.Or) else node.iter_expressions()

    deep = _too_deep(tree, parts, lambda node: not isinstance(node, exp.Paren))
    if deep is not None:
        raise QueryTooLargeError(
            f"the expression is nested more than {MAX_NESTING} levels deep", text, *at(deep), _OF_TREES
        )


def operands_of(chain: exp.And | exp.Or) -> list[exp.Expr]:
    """Return the operands of a chain of AND, or of OR, from left to right."""
    kind = exp.And if isinstance(chain, exp.And) else exp.Or
    found: list[exp.Expr] = []
    todo: list[exp.Expr] = [chain]
    while todo:
        node = todo.pop()
        inner = node
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, kind):
            todo += [inner.right, inner.left]
        else:
            found.append(node)
    return found


def _too_deep(tree: _N, parts: Callable[[_N], Iterable[_N]], is_level: Callable[[_N], bool]) -> _N | None:
    """Return the first node that is too deep, or None."""
    todo = [(tree, 0)]
    while todo:
        node, level = todo.pop()
        level += is_level(node)
        if level > MAX_NESTING:
            return node
        todo += [(each, level) for each in reversed(list(parts(node)))]
    return None
