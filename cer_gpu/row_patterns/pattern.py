"""Row patterns: their syntax tree, and its parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import lark
from lark.visitors import Transformer_NonRecursive

from cer_gpu.ceql.syntax import Span
from cer_gpu.errors import QuerySyntaxError
from cer_gpu.row_patterns.nesting import check_pattern


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
    """A pattern `least` to `most` times (None: no bound); `greedy` prefers more."""

    part: RowPattern
    least: int
    most: int | None
    greedy: bool


@dataclass(frozen=True)
class Exclusion:
    """``{- p -}``: rows that ALL ROWS PER MATCH leaves out."""

    part: RowPattern


RowPattern = RowVariable | Anchor | Concatenation | Alternation | Permutation | Repetition | Exclusion


def variables_in(pattern: RowPattern) -> Iterator[str]:
    """Yield the names of the variables of a pattern, in the order of the text, each as often as it stands there."""
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
            return pattern.least == 0 or may_be_empty(pattern.part)
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
    if part.least == part.most and pattern.least == pattern.most:
        return replace(part, least=part.least * pattern.least, most=part.least * pattern.least)
    if part.least or part.most is None or pattern.most is None or may_be_empty(part.part):
        return replace(pattern, part=part)
    both_greedy = part.greedy and pattern.greedy
    return (
        Repetition(part.part, 0, part.most * pattern.most, greedy=True) if both_greedy else replace(pattern, part=part)
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
    """Return the same pattern, in which repetitions of one variable behind one another are one.

    ``A? A?`` is ``A{0,2}``: for each number of rows the rest is the same, so that the preferred way takes the most of
    all rows that can be completed (or, of reluctant ones, the fewest).
    """
    match pattern:
        case Alternation() | Permutation() | Concatenation():
            parts = [counted_together(part) for part in pattern.parts]
            if isinstance(pattern, Concatenation):
                parts = _one_behind_another(parts)
            return parts[0] if len(parts) == 1 else replace(pattern, parts=tuple(parts))
        case Exclusion():
            return Exclusion(counted_together(pattern.part))
        case Repetition():
            return multiplied(replace(pattern, part=counted_together(pattern.part)))
    return pattern


def _one_behind_another(parts: Sequence[RowPattern]) -> list[RowPattern]:
    found: list[RowPattern] = []
    for part in parts:
        inner = part.parts if isinstance(part, Concatenation) else (part,)
        for each in inner:
            last = found[-1] if found else None
            both = None if last is None else _both(last, each)
            if both is not None:
                found[-1] = both
            else:
                found.append(each)
    return found


def _both(first: RowPattern, second: RowPattern) -> Repetition | None:
    """Return two repetitions of one variable as one; None: they are none, or prefer different numbers of rows."""
    variable = counted_variable(first)
    if not variable[0] or variable != counted_variable(second):
        return None
    one, other = (
        each if isinstance(each, Repetition) else Repetition(each, 1, 1, greedy=True) for each in (first, second)
    )
    sides = {each.greedy for each in (one, other) if each.least != each.most}
    if len(sides) == 2:
        return None
    most = None if one.most is None or other.most is None else one.most + other.most
    return Repetition(one.part, one.least + other.least, most, greedy=sides != {False})


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
        found: RowPattern = _PatternBuilder(text, begin).transform(tree)
        return found
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
        part, (least, most), reluctant = children
        return Repetition(part, least, most, greedy=reluctant is None)

    def sign(self, children: list[lark.Token]) -> tuple[int, int | None]:
        """Return the bounds of ``?``, ``*`` or ``+``."""
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[str(children[0])]

    def exactly(self, children: list[lark.Token]) -> tuple[int, int | None]:
        """Return the bounds of ``{n}``."""
        return self._checked(children[0], int(children[0]), int(children[0]))

    def between(self, children: list[lark.Token | None]) -> tuple[int, int | None]:
        """Return the bounds of ``{n,m}``, either of which may be missing."""
        least, most = children
        token = least or most
        bounds = 0 if least is None else int(least), None if most is None else int(most)
        return bounds if token is None else self._checked(token, *bounds)

    def _checked(self, token: lark.Token, least: int, most: int | None) -> tuple[int, int | None]:
        at = self._begin + (token.start_pos or 0)
        if most is not None and (most < least or most == 0):
            wrong = f"{{{least},{most}}}" if least != most else f"{{{least}}}"
            reason = "repeats nothing" if most == 0 else "has its bounds in the wrong order"
            error = QuerySyntaxError(f"the quantifier {wrong} {reason}", self._text, at, at + len(token))
            raise error
        return least, most
