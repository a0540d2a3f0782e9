"""Row patterns: their syntax tree, and its parser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import lark
from lark.visitors import Transformer_NonRecursive
from sqlglot import exp

from cer_gpu.ceql.grammar import MAX_NESTING
from cer_gpu.ceql.syntax import Span
from cer_gpu.errors import QuerySyntaxError, QueryTooLargeError

MAX_BRACKETS = 25
"""Maximum number of brackets, CASEs and signs around one word: sqlglot needs some 24 frames of Python for each."""

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
        if n_open + max(0, n_signs - 1) > MAX_BRACKETS:  # the first may be between two operands
            raise too_deep_for_sql(text, (begin + token.start, begin + token.end + 1))


def too_deep_for_sql(text: str, span: Span) -> QueryTooLargeError:
    """Return the error of an expression that has too many brackets around a word."""
    return QueryTooLargeError(
        f"the expression is nested more than {MAX_BRACKETS} levels deep", text, *span, _OF_BRACKETS
    )


def check_expression(tree: exp.Expr, text: str, at: Callable[[exp.Expr], Span]) -> None:
    """Raise QueryTooLargeError if an expression is too deep; `at` returns the place of a part.

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
    operands: list[exp.Expr] = []
    todo: list[exp.Expr] = [chain]
    while todo:
        node = todo.pop()
        inner = node
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, kind):
            todo += [inner.right, inner.left]
        else:
            operands.append(node)
    return operands


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


@dataclass(frozen=True)
class RowVariable:
    """A row that satisfies the condition of a variable."""

    name: str


@dataclass(frozen=True)
class Anchor:
    """``^``: before the first row of the partition; ``$``: after its last."""

    at_end: bool


@dataclass(frozen=True)
class Concatenation:
    """One pattern after another; of none: the empty pattern ``()``."""

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True)
class Alternation:
    """The first of the patterns is preferred."""

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True)
class Permutation:
    """``PERMUTE(p, q)``: all in any order; orders are preferred as words of a dictionary with the letters p, q are."""

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True)
class Repetition:
    """A pattern `minimum` to `maximum` times (None if unbounded); `greedy` prefers more."""

    part: RowPattern
    minimum: int
    maximum: int | None
    greedy: bool


@dataclass(frozen=True)
class Exclusion:
    """``{- p -}``: rows that ALL ROWS PER MATCH leaves out."""

    part: RowPattern


RowPattern = RowVariable | Anchor | Concatenation | Alternation | Permutation | Repetition | Exclusion


def variables_in(pattern: RowPattern) -> Iterator[str]:
    """Yield the names of the variables of a pattern, in the order of the text, each as often as it is there."""
    match pattern:
        case RowVariable():
            yield pattern.name
        case Concatenation() | Alternation() | Permutation():
            for part in pattern.parts:
                yield from variables_in(part)
        case Repetition() | Exclusion():
            yield from variables_in(pattern.part)


def has_exclusion(pattern: RowPattern) -> bool:
    """Return True if a pattern has a part ``{- -}``."""
    match pattern:
        case Exclusion():
            return True
        case Concatenation() | Alternation() | Permutation():
            return any(map(has_exclusion, pattern.parts))
        case Repetition():
            return has_exclusion(pattern.part)
    return False


def may_be_empty(pattern: RowPattern) -> bool:
    """Return True if a pattern has a match without rows."""
    match pattern:
        case RowVariable():
            return False
        case Concatenation() | Permutation():
            return all(map(may_be_empty, pattern.parts))
        case Alternation():
            return any(map(may_be_empty, pattern.parts))
        case Repetition():
            return pattern.minimum == 0 or may_be_empty(pattern.part)
        case Exclusion():
            return may_be_empty(pattern.part)
    return True


def multiplied(pattern: Repetition) -> Repetition:
    """Return ``(A{0,n}){k,m}`` as ``A{0,n*m}``: the same matches in the same order, with fewer steps between places.

    Likewise ``(A{n}){m}`` is ``A{n*m}``.
    """
    if not isinstance(pattern.part, Repetition):
        return pattern
    part = multiplied(pattern.part)
    if part.minimum == part.maximum and pattern.minimum == pattern.maximum:
        return replace(part, minimum=part.minimum * pattern.minimum, maximum=part.minimum * pattern.minimum)
    if part.minimum or part.maximum is None or pattern.maximum is None or may_be_empty(part.part):
        return replace(pattern, part=part)
    both_greedy = part.greedy and pattern.greedy
    return (
        Repetition(part.part, 0, part.maximum * pattern.maximum, greedy=True)
        if both_greedy
        else replace(pattern, part=part)
    )


def is_counted(pattern: Repetition) -> bool:
    """Return True for a repetition of one variable."""
    return counted_variable(pattern)[0] != ""


def counted_variable(pattern: RowPattern) -> tuple[str, bool]:
    """Return the variable that a pattern is, or repeats, and if an exclusion holds it; "": it is another pattern."""
    match pattern:
        case RowVariable():
            return pattern.name, False
        case Repetition(part=RowVariable()):
            return counted_variable(pattern.part)
        case Repetition(part=Exclusion()) | Exclusion(part=RowVariable()):
            return counted_variable(pattern.part)[0], True
    return "", False


def counted_together(pattern: RowPattern) -> RowPattern:
    """Return the same pattern, in which repetitions of one variable after one another are one.

    ``A? A?`` is ``A{0,2}``: for each number of rows the rest is the same, so that the preferred way takes the most of
    all rows that can be completed (or, of reluctant ones, the fewest).
    """
    match pattern:
        case Alternation() | Permutation() | Concatenation():
            parts = [counted_together(part) for part in pattern.parts]
            if isinstance(pattern, Concatenation):
                parts = _merge_repetitions(parts)
            return parts[0] if len(parts) == 1 else replace(pattern, parts=tuple(parts))
        case Exclusion():
            return Exclusion(counted_together(pattern.part))
        case Repetition():
            return multiplied(replace(pattern, part=counted_together(pattern.part)))
    return pattern


def _merge_repetitions(parts: Sequence[RowPattern]) -> list[RowPattern]:
    merged: list[RowPattern] = []
    for part in parts:
        inner = part.parts if isinstance(part, Concatenation) else (part,)
        for each in inner:
            last = merged[-1] if merged else None
            both = None if last is None else _both(last, each)
            if both is not None:
                merged[-1] = both
            else:
                merged.append(each)
    return merged


def _both(first: RowPattern, second: RowPattern) -> Repetition | None:
    """Return two repetitions of one variable as one, or None if they are none, or prefer different numbers of rows."""
    variable = counted_variable(first)
    if not variable[0] or variable != counted_variable(second):
        return None
    one, other = (
        each if isinstance(each, Repetition) else Repetition(each, 1, 1, greedy=True) for each in (first, second)
    )
    sides = {each.greedy for each in (one, other) if each.minimum != each.maximum}
    if len(sides) == 2:
        return None
    maximum = None if one.maximum is None or other.maximum is None else one.maximum + other.maximum
    return Repetition(one.part, one.minimum + other.minimum, maximum, greedy=sides != {False})


def parse_pattern(text: str, span: Span) -> RowPattern:
    """Parse the pattern in a part of a statement.

    Parameters
    ----------
    text
        The statement.
    span
        Offsets of the pattern in it, without the brackets of PATTERN.

    Raises
    ------
    QuerySyntaxError
    """
    begin, end = span
    try:
        tree = _parser().parse(text[begin:end])
    except lark.UnexpectedCharacters as error:
        at = begin + (error.pos_in_stream or 0)
        raise QuerySyntaxError(f"unexpected {text[at]!r} in PATTERN", text, at, at + 1, _HINT) from None
    except lark.UnexpectedToken as error:
        at = end if error.token.type == "$END" else begin + (error.token.start_pos or 0)
        seen = "its end" if at == end else repr(str(error.token))
        raise QuerySyntaxError(f"unexpected {seen} in PATTERN", text, at, at + 1, _HINT) from None
    check_pattern(tree, text, begin)
    try:
        pattern: RowPattern = _PatternBuilder(text, begin).transform(tree)
        return pattern
    except lark.exceptions.VisitError as error:
        raise error.orig_exc from None


_HINT = "a pattern is like A B+ (C | D)*? {- E -} PERMUTE(F, G), between ^ and $"


@cache
def _parser() -> lark.Lark:
    grammar = files("cer_gpu.row_patterns").joinpath("pattern.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, start="pattern", parser="lalr", propagate_positions=True, maybe_placeholders=True)


class _PatternBuilder(Transformer_NonRecursive[lark.Token, Any]):
    """Parse tree to syntax tree."""

    def __init__(self, text: str, begin: int) -> None:
        super().__init__()
        self._text, self._begin = text, begin

    def pattern(self, children: list[RowPattern]) -> RowPattern:
        """Return an alternation."""
        return Alternation(tuple(children))

    def concatenation(self, children: list[RowPattern]) -> RowPattern:
        """Return a concatenation."""
        return Concatenation(tuple(children))

    def variable(self, children: list[lark.Token]) -> RowPattern:
        """Return a variable; a name in quotes keeps its case, another one is in upper case."""
        name = str(children[0])
        return RowVariable(name[1:-1].replace('""', '"') if name.startswith('"') else name.upper())

    def start(self, children: list[Any]) -> RowPattern:
        """Return ``^``."""
        return Anchor(at_end=False)

    def end(self, children: list[Any]) -> RowPattern:
        """Return ``$``."""
        return Anchor(at_end=True)

    def empty(self, children: list[Any]) -> RowPattern:
        """Return ``()``."""
        return Concatenation(())

    def permutation(self, children: list[Any]) -> RowPattern:
        """Return ``PERMUTE(p, q, ...)``."""
        return children[0] if len(children) == 1 else Permutation(tuple(children))

    def exclusion(self, children: list[Any]) -> RowPattern:
        """Return ``{- p -}``."""
        return Exclusion(children[0])

    def repetition(self, children: list[Any]) -> RowPattern:
        """Return a pattern with a quantifier."""
        part, (minimum, maximum), reluctant = children
        return Repetition(part, minimum, maximum, greedy=reluctant is None)

    def sign(self, children: list[lark.Token]) -> tuple[int, int | None]:
        """Return the bounds of ``?``, ``*`` or ``+``."""
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[str(children[0])]

    def exactly(self, children: list[lark.Token]) -> tuple[int, int | None]:
        """Return the bounds of ``{n}``."""
        return self._checked(children[0], int(children[0]), int(children[0]))

    def between(self, children: list[lark.Token | None]) -> tuple[int, int | None]:
        """Return the bounds of ``{n,m}``, either of which may be missing."""
        minimum, maximum = children
        token = minimum or maximum
        bounds = 0 if minimum is None else int(minimum), None if maximum is None else int(maximum)
        return bounds if token is None else self._checked(token, *bounds)

    def _checked(self, token: lark.Token, minimum: int, maximum: int | None) -> tuple[int, int | None]:
        at = self._begin + (token.start_pos or 0)
        if maximum is not None and (maximum < minimum or maximum == 0):
            wrong = f"{{{minimum},{maximum}}}" if minimum != maximum else f"{{{minimum}}}"
            reason = "repeats nothing" if maximum == 0 else "has its bounds in the wrong order"
            error = QuerySyntaxError(f"the quantifier {wrong} {reason}", self._text, at, at + len(token))
            raise error
        return minimum, maximum
