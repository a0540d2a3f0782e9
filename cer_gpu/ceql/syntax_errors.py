"""Messages on texts that are not queries: the place, what was expected there, and a hint."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import lark

from cer_gpu.ceql.foreign import foreign_hint
from cer_gpu.ceql.functions import TESTS, TRUTHS
from cer_gpu.ceql.grammar import UNITS, tree_parser
from cer_gpu.errors import QuerySyntaxError, nearest

# names of terminals of the grammar in messages; keywords and signs are their own names
_TERMINALS = {
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "DOUBLE_QUOTED": "a name",
    "NUMBER": "a number",
    "STRING": "a 'string'",
    "COMPARISON": "a comparison (= <> < <= > >=)",
    "$END": "the end of the query",
}

_CLAUSES = {
    "SELECT": "SELECT",
    "FROM": "FROM",
    "LET": "LET",
    "WHERE": "WHERE",
    "PARTITION": "PARTITION BY",
    "WITHIN": "WITHIN",
    "HAVING": "HAVING",
    "CONSUME": "CONSUME BY",
    "LIMIT": "LIMIT",
}


def check_query_text(text: object, kind: str) -> None:
    """Refuse a value that is no string, or has characters that are not Unicode."""
    if not isinstance(text, str):
        raise QuerySyntaxError(f"expected the text of {kind}, got {type(text).__name__}")
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


def syntax_error(text: str, error: lark.exceptions.UnexpectedInput) -> QuerySyntaxError:
    """Return the error of a text that the parser refused."""
    if not text.strip():
        return QuerySyntaxError("the query is empty", hint="SELECT * FROM S WHERE A AS a ; B AS b WITHIN 100 EVENTS")
    if isinstance(error, lark.exceptions.UnexpectedToken):
        earlier = _lone_value(error.state.value_stack)
        if earlier is not None:
            return no_truth(text, (earlier.meta.start_pos, earlier.meta.end_pos))
        accepted = set(error.accepts or error.expected)
        token = error.token
        if "COMPARISON" in accepted:  # a value alone is a test as well, but only where it is a call such as CIDR(...)
            accepted &= _BEHIND_A_VALUE | UNITS.keys()
        conjunctive = _is_conjunctive(error.state.value_stack)
        if accepted == {"LPAR"} and len(error.state.value_stack) == 1 and str(token)[:1] != "<":
            return _not_select(text, error.state.value_stack[0])
        if token.type == "$END":
            last = _ALL if "LSQB" in accepted and _AND_NAME.search(text) else foreign_hint(text, len(text))
            return QuerySyntaxError(
                f"the query ends too early: expected {_describe(accepted)}", text, len(text.rstrip()), None, last
            )
        start, unexpected = token.start_pos or 0, str(token)
        message = f"expected {_describe(accepted)}, found {shortened(unexpected)!r}"
    else:
        start, accepted, conjunctive = error.pos_in_stream or 0, set(), False
        unexpected = text[start]
        message = f"no part of a query can start with {unexpected!r}"
    stop = _Stop(unexpected, frozenset(accepted), text[:start])
    if "/*" in text[max(start - 1, 0) : start + 2]:
        return QuerySyntaxError("the comment is not closed", text, start, start + 1)
    if unexpected == "'":
        return QuerySyntaxError("the string is not closed", text, start, start + 1)
    if unexpected.startswith('"'):
        hint: str | None = "strings stand in single quotes: 'text'; names of columns in backquotes: `my column`"
    elif conjunctive:
        hint = (foreign_hint(text, start) if _OF_OTHERS.match(text) else None) or _conjunctive_hint(stop)
    else:
        hint = foreign_hint(text, start) or _select_hint(stop)
    return QuerySyntaxError(message, text, start, start + len(unexpected), hint)


def no_truth(text: str, span: tuple[int, int]) -> QuerySyntaxError:
    """Return the error of a value where a whole test is expected."""
    rest = text[span[1] :].lstrip()
    start = len(text) - len(rest)
    match = re.match(r"\w+|.?", rest, re.DOTALL)
    hint = foreign_hint(text, span[0]) or foreign_hint(text, start)
    hint = hint or (_select_hint(_Stop(match[0], _BEHIND_A_VALUE, text[:start])) if match and rest else None)
    value = shortened(text[slice(*span)])
    return QuerySyntaxError(f"expected a comparison behind {value}, which is no truth", text, *span, hint=hint or WHOLE)


def _lone_value(stack: list[Any]) -> Any:
    """Return the first test, of those that the parser has read, that is a value without a comparison, or None."""
    for tree in (tree for tree in stack if isinstance(tree, lark.Tree)):
        for test in tree.find_data("test"):
            (value,) = test.children
            if value.data in _VALUES or (
                value.data == "call" and str(value.children[0].children[0]).upper() not in _TRUTHS
            ):
                return value
    return None


_TRUTHS = frozenset([*TRUTHS, *map(str.upper, TESTS)])
_VALUES = frozenset(
    "attribute number string boolean length arithmetic negative attribute_of field_of_call call_of_name call_of_all".split()  # noqa: SIM905, E501
)


def _is_conjunctive(stack: list[Any]) -> bool:
    """Return True if the parser has begun to read a conjunctive query."""
    if not stack:
        return False
    first = stack[0]
    return first.data in ("head", "name") if isinstance(first, lark.Tree) else first.type in ("NAME", "QUOTED_NAME")


def _not_select(text: str, first: Any) -> QuerySyntaxError:
    """Return the error of a text that begins with a word that is neither SELECT nor a head."""
    token: Any = first.children[0] if isinstance(first, lark.Tree) else first
    start, word = token.start_pos, str(token)
    hint = "did you mean SELECT?" if nearest(word, ["SELECT"]) else foreign_hint(text, start)
    return QuerySyntaxError(f"expected SELECT, found {shortened(word)!r}", text, start, start + len(word), hint)


@dataclass(frozen=True)
class _Stop:
    """Place at which the parser stopped.

    Attributes
    ----------
    token : str
        Token at which it stopped.
    accepted : frozenset of str
        Terminals that may come there; empty if no terminal begins as the text does.
    before : str
        Text of the query up to there.
    """

    token: str
    accepted: frozenset[str]
    before: str

    @property
    def word(self) -> str:
        """The token in capitals, as keywords are written."""
        return self.token.upper()

    @cached_property
    def accepted_strings(self) -> frozenset[str]:
        """The signs and keywords that may come there."""
        return frozenset(map(_terminal_text, self.accepted))

    @cached_property
    def in_brackets(self) -> bool:
        """True within the brackets of an event."""
        return self.before.rfind("[") > self.before.rfind("]")

    @property
    def after_name_and_dot(self) -> bool:
        """True for the dot after a name."""
        return self.token == "." and self.before[-1:].isidentifier()

    def nearest_keyword(self) -> str | None:
        """Return the keyword that was probably meant, or None if none is alike."""
        return nearest(self.token, sorted(each for each in self.accepted_strings if each.isupper()))


def _conjunctive_hint(stop: _Stop) -> str | None:
    """Return a hint on a conjunctive query."""
    accepted = stop.accepted
    if accepted == {"ARROW"}:
        return "the head and the atoms stand on the two sides of <-, as in Q(x) <- T(id = x), S(id = x)"
    if "LPAR" in accepted and accepted <= {"LPAR", "GREATER"}:
        return "parentheses stand behind the name, also with nothing in them: Q() <- T(id = x), S()"
    if "<-" not in stop.before:
        return "the head lists variables of the atoms: Q(x, y)"
    if "RPAR" in accepted or "STRING" in accepted:
        return TERMS
    if stop.word in _CLAUSES.keys() | {"FILTER"}:
        return "behind its atoms a conjunctive query has PARTITION BY, WITHIN and LIMIT, each once, in this order"
    clause_hint = _clause_hint(stop)
    if clause_hint is not None:
        return clause_hint
    close = stop.nearest_keyword()
    if close is None and ("COMMA" in accepted or accepted == {"$END"}):
        return "the atoms are joined by commas: T(id = x), S(id = x)"
    return f"did you mean {close}?" if close else None


TERMS = "an atom binds attributes to variables and constants: T(id = x, loc = 3); other tests are filters of SELECT"


WHOLE = "a filter holds a whole predicate: x[price > 100]; of another variable the attribute is y.price"
QUALIFIED = "outside of brackets every attribute stands behind its variable: x.price > 100, x.price > y.price"
_ALL = "AND combines filters; write ALL where two patterns occur together, in any order"
OF_EVENT = (
    "of the first, the last or the previous event of x: FIRST(x).price, LAST(x).price, PREV(x).price; "
    "of the row before: LAG(price)"
)
_JOINED = (
    "events are joined by ; (later), -> (the next such), : (right after), ALL (in any order) or OR; "
    "a name stands behind AS, a type with blanks in double quotes"
)
_OF_OTHERS = re.compile(r"\s*(?:PATTERN|SEQ)\s*\(", re.IGNORECASE)
"""Beginning of a query of another language that looks like a conjunctive query."""
_JOINING = {",", "-", ">", "=", "&", "|", "THEN", "FOLLOWED", "FOLLOWEDBY", "FOLLOWED_BY", "BEFORE"}
"""Tokens that join events in other languages."""
_ABSENCE = "an absence stands between two events: A ; !B ; C, or A ; !(B AS b FILTER b.k = A.k) ; C"
_HAVING = re.compile(r"\bHAVING\b", re.IGNORECASE)
_AND_NAME = re.compile(r"\bAND\s+\w+\s*$", re.IGNORECASE)
_BEHIND_A_VALUE = frozenset(
    "COMPARISON GREATER PLUS MINUS STAR SLASH PERCENT BETWEEN GLOB IN IS LIKE NOT DOT LPAR RPAR".split()  # noqa: SIM905
)
_SECONDS = {
    "WEEK": Fraction(604_800),
    "MILLISECOND": Fraction(1, 1000),
    "MS": Fraction(1, 1000),
}


def _is_bare_attribute(stop: _Stop) -> bool:
    """Return True for an attribute at an event without brackets, or before them without its variable."""
    if stop.after_name_and_dot and not stop.in_brackets:
        return True
    names_only = stop.accepted - {"STAR"} == {"NAME", "QUOTED_NAME"}
    return (names_only and stop.before.rstrip().endswith(">")) or (
        "'['" in stop.accepted_strings and stop.token[0] in "=<!"
    )


def _is_and_of_events(stop: _Stop) -> bool:
    """Return True if AND is between two events."""
    goes_on = stop.token in ";:" or stop.token.isalpha()
    return "LSQB" in stop.accepted and not stop.in_brackets and goes_on and _AND_NAME.search(stop.before) is not None


def _is_value_without_test(stop: _Stop) -> bool:
    """Return True for an end, an event or another variable where a predicate goes on."""
    return (
        stop.after_name_and_dot
        or (stop.token == "]" and "COMPARISON" in stop.accepted)
        or (stop.token == "[" and "SLASH" in stop.accepted)
    )


def _is_foreign_join(stop: _Stop) -> bool:
    """Return True for an operator that joins events in other languages."""
    after_event = "FILTER" in stop.accepted or not stop.accepted
    return after_event and not stop.in_brackets and stop.word in _JOINING


_FORMULA_HINTS: tuple[tuple[Callable[[_Stop], bool], str], ...] = (
    (lambda stop: stop.after_name_and_dot and stop.accepted == {"RPAR"}, OF_EVENT),
    (_is_and_of_events, _ALL),
    (_is_bare_attribute, "an attribute stands in brackets, x[price > 100], or behind its variable: x.price > 100"),
    (
        lambda stop: stop.token == "[" and _HAVING.search(stop.before) is not None,
        "HAVING compares measures: x.price > 100, COUNT(x) > 2; a filter of single events stands in WHERE",
    ),
    (_is_value_without_test, WHOLE),
    (
        lambda stop: stop.token == "[" and stop.accepted == {"LPAR", "DOT"},
        "NOT stands within the brackets: x[NOT price > 100]",
    ),
    (lambda stop: "DOT" in stop.accepted <= {"DOT", "LPAR"}, QUALIFIED),
    (lambda stop: stop.word == "AND" and "FILTER" in stop.accepted, _ALL),
    (lambda stop: stop.token == "(" and "RANGE" in stop.accepted, "a set stands in braces: IN {1, 2}"),
    (
        lambda stop: stop.token == "!" and not stop.in_brackets and stop.before.rstrip().endswith("->"),
        "the next C with no B before it: A ; !B -> C",
    ),
    (lambda stop: stop.token == "!" and not stop.in_brackets, _ABSENCE),
    (
        lambda stop: stop.token == "->" and stop.accepted == {"SEMICOLON"},
        "the next event follows another one: A ; !B -> C; back from the first event it is !B FOR 5 MINUTES ; C",
    ),
    (lambda stop: stop.accepted == {"WITHIN"} and stop.word not in _CLAUSES, _JOINED),  # after THEN
    (lambda stop: stop.word == "AS" and "FILTER" in stop.accepted and "AS" not in stop.accepted, _ABSENCE),
    (_is_foreign_join, _JOINED),
)
"""Hints on the formula of WHERE: the first whose predicate holds applies."""


def _select_hint(stop: _Stop) -> str | None:
    """Return a hint on a query that is not conjunctive, or None if none applies."""
    for applies, hint in _FORMULA_HINTS:
        if applies(stop):
            return hint
    clause_hint = _clause_hint(stop)
    if clause_hint is not None:
        return clause_hint
    if stop.word in _CLAUSES:
        return f"each clause stands once, in this order: {', '.join(_CLAUSES.values())}"
    close = stop.nearest_keyword() if len(stop.token) > 2 else None
    if close is None and "FILTER" in stop.accepted and stop.token.isidentifier():
        return _JOINED
    return f"did you mean {close}?" if close else None


def _clause_hint(stop: _Stop) -> str | None:
    """Return a hint on a clause that is nearly right."""
    if stop.word == "FILTER" and "$END" in stop.accepted:
        return "FILTER belongs to the formula: it stands before PARTITION BY, WITHIN, CONSUME BY and LIMIT"
    if stop.accepted_strings == {"'['"} and stop.token.isidentifier():
        return f"each key stands in brackets: PARTITION BY [{stop.token}]"
    if stop.token == "(" and re.search(r"(?i)\bPARTITION\s+BY\b[^()]*\[\s*\w+\s*$", stop.before):
        return "a key is a column: name it after FROM, LET day = date(ts), and write PARTITION BY [day]"
    number = re.search(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*$", stop.before)
    unit = stop.word.removesuffix("S") if stop.word != "MS" else "MS"
    if "HOURS" in stop.accepted and number and unit in _SECONDS:
        seconds = Fraction(number[1]) * _SECONDS[unit]
        name = "DAYS" if seconds >= UNITS["DAYS"] else "SECONDS"
        length = f"{float(seconds / UNITS[name]):g} {name}"
        return f"write WITHIN {length}"
    return None


def _describe(accepted: set[str]) -> str:
    if "SELECT" in accepted:  # or a conjunctive query, which begins with a name
        return "SELECT"
    if "DOT" in accepted:  # as after every name in a predicate, which may also be that of FIRST(x).a
        accepted = accepted - {"DOT", "LPAR"} or {"DOT"}
    if "COMPARISON" in accepted:
        accepted = accepted - {"GREATER"}
    accepted = accepted - {"THEN"} if "WITHIN" in accepted else accepted
    quantifiers: tuple[str, ...] = ()
    if "MAYBE" in accepted:
        quantified = {t for t in accepted if _terminal_text(t) in _QUANTIFIERS or t in ("ANY_NUMBER", "OPEN_OTHER")}
        accepted = accepted - (quantified - _ARITHMETIC if "MINUS" in accepted else quantified)
        quantifiers = ("a quantifier (+ ? * {n,m})",)
    accepted = accepted - {"COUNT_DISTINCT", "RISES"}  # more names
    if "NONE" in accepted and "STAR" in accepted:  # behind SELECT, where a measure may begin with any value
        accepted = accepted - {"STRING", "NUMBER", "LPAR", "PLUS", "MINUS", "TRUE", "FALSE"}
    if "RSQB" in accepted and "MINUS" in accepted:  # within brackets, where a predicate may end
        accepted = accepted - {"PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "AND", "OR"} - UNITS.keys()
    if "PLUS" in accepted:  # behind a number, which may also be a length of time
        accepted = accepted - UNITS.keys()
    names = {_TERMINALS.get(t) or _terminal_text(t) for t in accepted}.union(quantifiers)
    texts = sorted(names, key=lambda t: (not t.startswith("a "), t))
    if not texts:
        return "something else"
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " or " + texts[-1]


_ARITHMETIC = {"PLUS", "STAR"}
_QUANTIFIERS = {repr(sign) for sign in ("+", ":+", "?", "*", "{")}


def _terminal_text(terminal: str) -> str:
    """Return the text of a sign (``SEMICOLON``: ``';'``) or of a keyword, which is its name."""
    for definition in tree_parser().terminals:
        if definition.name == terminal:
            if isinstance(definition.pattern, lark.lexer.PatternStr):
                return repr(definition.pattern.value)
            break
    return _TERMINALS.get(terminal, terminal)


def shortened(text: str) -> str:
    """Return a part of the query text for a message, shortened if it is long."""
    return text if len(text) <= 40 else text[:37] + "..."
