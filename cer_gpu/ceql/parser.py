"""Parser of query texts into syntax trees (`cer_gpu.ceql.syntax`), by the grammar in grammar.lark."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from typing import Any

import lark
from lark.lexer import PatternRE, TerminalDef
from lark.visitors import Transformer_NonRecursive

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.nesting import check_nesting
from cer_gpu.ceql.paths import below, path_of
from cer_gpu.ceql.scopes import resolved
from cer_gpu.errors import QuerySyntaxError, nearest

# names of terminals of the grammar in messages; keywords and signs stand for themselves
_TERMINALS = {
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a 'string'",
    "COMPARISON": "a comparison (= <> < <= > >=)",
    "EVENTS": "EVENTS",
    "DAYS": "DAYS",
    "HOURS": "HOURS",
    "MINUTES": "MINUTES",
    "SECONDS": "SECONDS",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "$END": "the end of the query",
}

_CLAUSES = {
    "SELECT": "SELECT",
    "FROM": "FROM",
    "WHERE": "WHERE",
    "PARTITION": "PARTITION BY",
    "WITHIN": "WITHIN",
    "CONSUME": "CONSUME BY",
    "LIMIT": "LIMIT",
}

UNITS = {"DAYS": 86_400, "HOURS": 3_600, "MINUTES": 60, "SECONDS": 1}
"""Seconds in each unit of a length of time."""

_EVENTS = ("FIRST", "LAST", "PREV")

MAX_LIMIT = (1 << 63) - 1
"""Greatest LIMIT; a greater number is lowered to it."""


def parse(text: str) -> s.QuerySyntax:
    """Parse a whole CEQL query.

    Raises
    ------
    QuerySyntaxError
        When the text is no query; it shows the place, the expected tokens, and the nearest keyword.
    QueryTooLargeError
        When the query is nested too deeply.
    """
    if not isinstance(text, str):
        raise QuerySyntaxError(f"expected the text of a query, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown, half = text.encode(errors="replace").decode(), text[error.start]
        raise QuerySyntaxError(
            f"expected characters of Unicode, found {half!r}, half of a surrogate pair",
            shown,
            error.start,
            error.start + 1,
            "read the text with its own encoding",
        ) from None
    try:
        tree = _FormulaBuilder(text).transform(_parser().parse(text))
    except lark.exceptions.UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    except lark.exceptions.VisitError as error:
        raise error.orig_exc from None
    query = _QueryBuilder(text).build(tree)
    check_nesting(query.formula, text)
    return replace(query, formula=resolved(query.formula))


@lru_cache(maxsize=1)
def _parser() -> lark.Lark:
    grammar = files("cer_gpu.ceql").joinpath("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(
        grammar,
        start="query",
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=True,
        edit_terminals=_whole_word,
    )


def _whole_word(terminal: TerminalDef) -> None:
    """Make a keyword match whole words only, and before NAME."""
    word = terminal.pattern.value
    if isinstance(terminal.pattern, lark.lexer.PatternStr) and word.isalpha():
        terminal.pattern = PatternRE(rf"{word}(?![a-z_0-9])", terminal.pattern.flags)
        terminal.priority = 1


# ---- errors --------------------------------------------------------------------------------------------------


def _syntax_error(text: str, error: lark.exceptions.UnexpectedInput) -> QuerySyntaxError:
    if not text.strip():
        return QuerySyntaxError("the query is empty", hint="SELECT * FROM S WHERE A AS a ; B AS b WITHIN 100 EVENTS")
    if isinstance(error, lark.exceptions.UnexpectedToken):
        accepted = set(error.accepts or error.expected)
        token = error.token
        if token.type == "$END":
            return QuerySyntaxError(
                f"the query ends too early: expected {_describe(accepted)}", text, len(text.rstrip()), None
            )
        start, found = token.start_pos or 0, str(token)
        message = f"expected {_describe(accepted)}, found {_shortened(found)!r}"
    else:
        start, accepted = error.pos_in_stream or 0, set()
        found = text[start]
        message = f"no part of a query can start with {found!r}"
    before = text[:start]
    if "/*" in before[-1:] + text[start : start + 2]:
        return QuerySyntaxError("the comment is not closed", text, start, start + 1)
    if found == "'":
        return QuerySyntaxError("the string is not closed", text, start, start + 1)
    return QuerySyntaxError(message, text, start, start + len(found), _hint(found, accepted, before))


def _hint(found: str, accepted: set[str], before: str) -> str | None:
    if found == '"':
        return "strings stand in single quotes: 'text'"
    names_only = accepted == {"NAME", "QUOTED_NAME"}
    bare = (names_only and before.rstrip().endswith(">")) or ("'['" in map(_text, accepted) and found[0] in "=<!")
    dotted = found == "." and before[-1:].isidentifier()
    inside = before.rfind("[") > before.rfind("]")
    if dotted and accepted == {"RPAR"}:
        return _OF_EVENT
    if bare or (dotted and not inside):
        return "an attribute stands in brackets, x[price > 100], or behind its variable: x.price > 100"
    if dotted or (found == "]" and "COMPARISON" in accepted) or (found == "[" and "STAR" in accepted):
        return "a filter holds a whole predicate: x[price > 100]; of another variable the attribute is y.price"
    if found == "[" and accepted == {"LPAR", "DOT"}:
        return "NOT stands within the brackets: x[NOT price > 100]"
    if "DOT" in accepted <= {"DOT", "LPAR"}:
        return _QUALIFIED
    if found.upper() == "AND" and "FILTER" in accepted:
        return "AND joins filters; events are joined by ; (later), : (next) or OR"
    if found == "(" and "RANGE" in accepted:
        return "a set stands in braces: IN {1, 2}"
    more = _formula_hint(found, accepted, inside) or _clause_hint(found, accepted, before)
    if more is not None:
        return more
    if found.upper() in _CLAUSES:
        return f"each clause stands once, in this order: {', '.join(_CLAUSES.values())}"
    close = nearest(found, sorted(k for k in map(_text, accepted) if k.isupper()))
    if close is None and "FILTER" in accepted and found.isidentifier():
        return _JOINED
    return f"did you mean {close}?" if close else None


_QUALIFIED = "outside of brackets every attribute stands behind its variable: x.price > 100, x.price > y.price"
_OF_EVENT = "of the first, the last or the previous event of x: FIRST(x).price, LAST(x).price, PREV(x).price"
_JOINED = "events are joined by ; (later), : (next) or OR"
_JOINING = {",", "-", ">", "=", "&", "|", "THEN", "FOLLOWED", "FOLLOWEDBY", "FOLLOWED_BY", "BEFORE"}
"""Tokens that join events in other languages (``->`` is found as ``-``)."""
_REPEATED = {
    "{": "A : A is two with nothing between, A ; A two with others between, A+ one or more",
    "*": "A+ is one or more; where there may be none, write both: B OR (A+ ; B)",
    "?": "where there may be none, write both: B OR (A ; B)",
}
_SECONDS = {
    "WEEK": Fraction(604_800),
    "MILLISECOND": Fraction(1, 1000),
    "MS": Fraction(1, 1000),
}


def _formula_hint(found: str, accepted: set[str], inside: bool) -> str | None:
    """Return a hint on operators of other languages after an event; `inside`: the place is within brackets."""
    if inside or ("FILTER" not in accepted and accepted):  # `accepted` is empty if no terminal begins so
        return None
    return _REPEATED.get(found) or (_JOINED if found.upper() in _JOINING else None)


def _clause_hint(found: str, accepted: set[str], before: str) -> str | None:
    """Return a hint on a clause that is nearly right."""
    if found.upper() == "FILTER" and "$END" in accepted:
        return "FILTER belongs to the formula: it stands before PARTITION BY, WITHIN, CONSUME BY and LIMIT"
    if set(map(_text, accepted)) == {"'['"} and found.isidentifier():
        return f"each key stands in brackets: PARTITION BY [{found}]"
    number = re.search(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*$", before)
    unit = found.upper().removesuffix("S") if found.upper() != "MS" else "MS"
    if "HOURS" in accepted and number and unit in _SECONDS:
        seconds = Fraction(number[1]) * _SECONDS[unit]
        name = "DAYS" if seconds >= UNITS["DAYS"] else "SECONDS"
        length = f"{float(seconds / UNITS[name]):g} {name}"
        return f"write WITHIN {length}"
    return None


def _describe(accepted: set[str]) -> str:
    if "DOT" in accepted:  # as after every name in a predicate, which may also be that of FIRST(x).a
        accepted = accepted - {"DOT", "LPAR"} or {"DOT"}
    if "COMPARISON" in accepted:
        accepted = accepted - {"GREATER"}
    if "PLUS" in accepted:  # behind a number, which may also be a length of time
        accepted = accepted - UNITS.keys()
    texts = sorted({_TERMINALS.get(t) or _text(t) for t in accepted}, key=lambda t: (not t.startswith("a "), t))
    if not texts:
        return "something else"
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " or " + texts[-1]


def _text(terminal: str) -> str:
    """Return the text of a sign (``SEMICOLON``: ``';'``) or of a keyword, which is its name."""
    for definition in _parser().terminals:
        if definition.name == terminal:
            if isinstance(definition.pattern, lark.lexer.PatternStr):
                return repr(definition.pattern.value)
            break
    return _TERMINALS.get(terminal, terminal)


# ---- nodes of a parse tree ---------------------------------------------------------------------------------


def _at(meta: Any) -> s.Span:
    return (0, 0) if meta.empty else (meta.start_pos, meta.end_pos)


def _node(make: Any) -> Any:
    """Return a method that builds ``make(*children, span)`` from a rule with its operands, in order, as children."""
    return lark.v_args(meta=True)(lambda self, meta, children: make(*children, span=_at(meta)))


def _joined(kind: Any) -> Any:
    """Return a method that builds a conjunction or disjunction from a rule with its operands as children."""
    return lark.v_args(meta=True)(lambda self, meta, children: s.joined(kind, children, _at(meta)))


def _compare(op: str) -> str:
    return {"==": "=", "!=": "<>"}.get(op, op)


def _between(operand: s.Expression, low: s.Expression | None, high: s.Expression | None, at: s.Span) -> s.Predicate:
    """Return ``low <= operand <= high``; None: no bound on that side."""
    tests = [s.Comparison(op, operand, bound, at) for op, bound in ((">=", low), ("<=", high)) if bound is not None]
    return tests[0] if len(tests) == 1 else s.And(tuple(tests), at)


@lark.v_args(meta=True)
class _FormulaBuilder(Transformer_NonRecursive[Any, Any]):
    """Builder of formulas, filters and predicates, from the leaves up and without recursion."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def name(self, meta: Any, children: list[Any]) -> s.Name:
        text = str(children[0])
        return s.Name(text[1:-1] if text.startswith("`") else text, None, _at(meta))

    def keyword_name(self, meta: Any, children: list[Any]) -> s.Name:
        return s.Name(str(children[0]), None, _at(meta))

    def path(self, meta: Any, children: list[Any]) -> s.Name:
        return s.Name(path_of([child.name for child in children]), None, _at(meta))

    def event_name(self, meta: Any, children: list[Any]) -> s.Name:
        stream, _, name = children
        return s.Name(name.name, stream.name if stream else None, _at(meta))

    # expressions
    def number(self, meta: Any, children: list[Any]) -> s.Literal:
        text = str(children[0])
        exact = _exact(self.text, children[0])
        # an integer of more than 64 bits becomes a float64
        value = int(exact) if text.isdigit() and exact < 1 << 64 else float(exact)
        return s.Literal(value, text, _at(meta))

    def string(self, meta: Any, children: list[Any]) -> s.Literal:
        return s.Literal(_unquote(children[0]), "", _at(meta))

    def boolean(self, meta: Any, children: list[Any]) -> s.Literal:
        return s.Literal(str(children[0]).upper() == "TRUE", "", _at(meta))

    def length(self, meta: Any, children: list[Any]) -> s.Duration:
        return s.Duration(children[0], _at(meta))

    def duration(self, meta: Any, children: list[Any]) -> Fraction:
        parts = [child for child in children if child is not None]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return sum((_exact(self.text, number) * UNITS[unit.type] for number, unit in pairs), Fraction(0))

    def attribute(self, meta: Any, children: list[Any]) -> s.Attribute:
        (path,) = children
        if isinstance(path, s.Attribute):
            return path
        return s.Attribute(path.name, _at(meta))

    def qualified_path(self, meta: Any, children: list[Any]) -> s.Attribute:
        return self._attribute(meta, children[0], children[1:])

    def attribute_of(self, meta: Any, children: list[Any]) -> s.Attribute:
        event, variable, *names = children
        which = event.name.upper()
        if which not in _EVENTS or self.text[event.span[0]] == "`":
            raise QuerySyntaxError(
                f"expected FIRST, LAST or PREV before '(', found {_shortened(event.name)!r}",
                self.text,
                event.span[0],
                event.span[1],
                _OF_EVENT,
            )
        return self._attribute(meta, variable, names, which)

    def _attribute(self, meta: Any, variable: s.Name, names: list[s.Name], event: str = "EACH") -> s.Attribute:
        return s.Attribute(path_of([name.name for name in names]), _at(meta), variable, event)

    negative = _node(s.Negative)

    def arithmetic(self, meta: Any, children: list[Any]) -> s.Arithmetic:
        left, op, right = children
        return s.Arithmetic(str(op), left, right, _at(meta))

    # predicates
    def comparison(self, meta: Any, children: list[Any]) -> s.Comparison:
        left, op, right = children
        return s.Comparison(_compare(str(op)), left, right, _at(meta))

    def like(self, meta: Any, children: list[Any]) -> s.Like:
        return s.Like(children[0], _unquote(children[1]), _at(meta))

    def not_like(self, meta: Any, children: list[Any]) -> s.Not:
        return s.Not(self.like(meta, children), _at(meta))

    def values(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "values", children

    def interval(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "interval", children

    def from_low(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "interval", [children[0], None]

    def to_high(self, meta: Any, children: list[Any]) -> tuple[str, list[Any]]:
        return "interval", [None, children[0]]

    def in_(self, meta: Any, children: list[Any]) -> s.Predicate:
        operand, (kind, items) = children
        if kind == "values":
            return s.Membership(operand, tuple(items), _at(meta))
        return _between(operand, items[0], items[1], _at(meta))

    def not_in(self, meta: Any, children: list[Any]) -> s.Not:
        return s.Not(self.in_(meta, children), _at(meta))

    def in_range(self, meta: Any, children: list[Any]) -> s.Predicate:
        return _between(children[0], children[1], children[2], _at(meta))

    def not_in_range(self, meta: Any, children: list[Any]) -> s.Not:
        return s.Not(self.in_range(meta, children), _at(meta))

    is_null = _node(s.IsNull)

    def is_not_null(self, meta: Any, children: list[Any]) -> s.Not:
        return s.Not(self.is_null(meta, children), _at(meta))

    not_ = _node(s.Not)
    and_ = _joined(s.And)
    or_ = _joined(s.Or)

    # filters, whose variables `cer_gpu.ceql.scopes` resolves
    variable_filter = _node(s.VariableFilter)

    def qualified_filter(self, meta: Any, children: list[Any]) -> s.Relation:
        if next(s.attributes(children[0]), None) is None:
            raise QuerySyntaxError(
                "expected an attribute of a variable in this filter", self.text, *_at(meta), _QUALIFIED
            )
        return s.Relation(children[0], (), _at(meta))

    filter_and = _joined(s.FilterAnd)
    filter_or = _joined(s.FilterOr)

    # formulas
    event = _node(s.EventType)
    negation = _node(s.Negation)
    assign = _node(s.Assign)
    filtered = _node(s.Filtered)
    either = _node(s.Disjunction)

    def filtered_or(self, meta: Any, children: list[Any]) -> s.Filtered:
        before, more = children
        span = (before.filter.span[0], more.span[1])
        return s.Filtered(before.formula, s.joined(s.FilterOr, (before.filter, more), span), _at(meta))

    def sequence(self, meta: Any, children: list[Any]) -> s.Sequence:
        return s.Sequence(children[0], children[1], False, _at(meta))

    def contiguous_sequence(self, meta: Any, children: list[Any]) -> s.Sequence:
        return s.Sequence(children[0], children[1], True, _at(meta))

    def both(self, meta: Any, children: list[Any]) -> s.Conjunction:
        left, _, right = children
        return s.Conjunction(left, right, _at(meta))

    def iteration(self, meta: Any, children: list[Any]) -> s.Iteration:
        return s.Iteration(children[0], False, _at(meta))

    def contiguous_iteration(self, meta: Any, children: list[Any]) -> s.Iteration:
        return s.Iteration(children[0], True, _at(meta))


def _unquote(token: Any) -> str:
    return str(token)[1:-1].replace("''", "'")


def _exact(query: str, token: Any) -> Fraction:
    """Return the exact value of a number; refuse one that would take long to compute."""
    text = str(token)
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > 400 or len(exponent) > 4 or float(text) == math.inf:
        raise _unexpected(query, token, "expected a number of at most 400 digits, and less than 1.8e308")
    return Fraction(text)


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _unexpected(query: str, token: Any, message: str) -> QuerySyntaxError:
    end = token.start_pos + len(token)
    return QuerySyntaxError(f"{message}, found {_shortened(str(token))!r}", query, token.start_pos, end)


class _QueryBuilder:
    """Builder of the query from its clauses."""

    def __init__(self, text: str) -> None:
        self.text = text

    def build(self, tree: lark.Tree[Any]) -> s.QuerySyntax:
        clauses = {c.data: c for c in tree.children if isinstance(c, lark.Tree)}
        partition, consume = clauses.get("partition"), clauses.get("consume")
        return s.QuerySyntax(
            text=self.text,
            select=self._select(clauses["select"]),
            formula=clauses["where"].children[0],  # type: ignore[arg-type]
            streams=tuple(clauses["from"].children) if "from" in clauses else (),  # type: ignore[arg-type]
            partition=tuple(tuple(key.children) for key in partition.children) if partition else (),  # type: ignore[arg-type]
            partition_span=_at(partition.meta) if partition else (0, 0),
            within=self._within(clauses["within"].children[0]) if "within" in clauses else None,
            consume=str(consume.children[0]).upper() if consume else "NONE",
            consume_span=_at(consume.meta) if consume else (0, 0),
            limit=self._limit(clauses["limit"].children[0]) if "limit" in clauses else None,
        )

    def _select(self, tree: lark.Tree[Any]) -> s.Select:
        strategy, strategy_span = "ALL", (0, 0)
        items: tuple[s.SelectItem, ...] | None = None
        for child in tree.children:
            assert isinstance(child, lark.Tree)
            if child.data == "strategy":
                strategy, strategy_span = str(child.children[0]).upper(), _at(child.meta)
            elif child.data == "select_none":
                items = ()
            elif child.data == "select_items":
                items = tuple(self._item(item) for item in child.children)
        return s.Select(items, "NEXT" if strategy == "NXT" else strategy, strategy_span, _at(tree.meta))

    def _item(self, tree: Any) -> s.SelectItem:
        variable, *listed = tree.children
        names = tuple(replace(n, name=below(variable.name, n.name) or n.name) for n in listed if n is not None)
        return s.SelectItem(variable, names or None, _at(tree.meta))

    def _within(self, tree: Any) -> s.Within:
        at = _at(tree.meta)
        if tree.data == "within_events":
            length = _exact(self.text, tree.children[0])
            if length.denominator != 1:
                raise _unexpected(self.text, tree.children[0], "expected a whole number of events")
            return s.Within("events", length, None, at)
        if tree.data == "within_attribute":
            return s.Within("attribute", _exact(self.text, tree.children[0]), tree.children[1], at)
        return s.Within("time", tree.children[0], None, at)

    def _limit(self, token: Any) -> int:
        limit = _exact(self.text, token)
        if limit.denominator != 1:
            raise _unexpected(self.text, token, "expected a whole number after LIMIT")
        return min(int(limit), MAX_LIMIT)
