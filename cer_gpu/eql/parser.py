"""Parser of EQL into `cer_gpu.eql.syntax`, by the grammar in grammar.lark; strings with wildcards are GLOBs of CEQL."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import lark
from lark.lexer import PatternRE, TerminalDef
from lark.visitors import Transformer_NonRecursive

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.clauses import span_of
from cer_gpu.ceql.grammar import parser_of
from cer_gpu.ceql.syntax_errors import shortened
from cer_gpu.ceql.traversal import children, fold
from cer_gpu.ceql.values import Span
from cer_gpu.eql import syntax as e
from cer_gpu.errors import QuerySyntaxError, QueryTooLargeError, nearest

_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_ESCAPE = re.compile(r"\\(u\{[^}]*\}?|.)", re.DOTALL)
_WILD = frozenset("*?")


def text_of(token: Any, query: str) -> str:
    """Return the value of a string, or of a raw string, in three quotes, without escapes.

    Raises
    ------
    QuerySyntaxError
        For an unknown escape.
    """
    written = str(token)
    if written.startswith('"""'):
        return written[3:-3]

    def unescape(match: re.Match[str]) -> str:
        sign = match[1]
        if sign in _ESCAPES:
            return _ESCAPES[sign]
        digits = sign[2:-1] if sign[-1:] == "}" else ""
        if sign[0] == "u" and 2 <= len(digits) <= 8 and re.fullmatch("[0-9a-fA-F]+", digits):
            number = int(digits, 16)
            if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
                return chr(number)
        start = token.start_pos + 1 + match.start()
        raise QuerySyntaxError(
            f"there is no escape {match[0]!r}",
            query,
            start,
            start + len(match[0]),
            r'escapes are \" \\ \n \t \r \b \f \u{2710}; without escapes: """text"""',
        )

    return _ESCAPE.sub(unescape, written[1:-1])


def has_wildcards(pattern: str) -> bool:
    """Return True for a pattern with ``*`` or ``?``."""
    return not _WILD.isdisjoint(pattern)


def glob_of(pattern: str) -> str:
    """Return the GLOB of CEQL for a pattern, in which ``*`` and ``?`` are the only signs.

    Examples
    --------
    >>> glob_of("a[1]*")
    'a[[]1]*'
    """
    return pattern.replace("[", "[[]")


def glob_of_text(text: str) -> str:
    """Return the GLOB of CEQL that only one string matches."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in text)


@lru_cache(maxsize=1)
def eql_tree_parser() -> lark.Lark:
    """Return the parser, cached in the process and on disk."""
    return parser_of("cer_gpu.eql", ("query",), _whole_word)


def _whole_word(terminal: TerminalDef) -> None:
    """Make a keyword match whole words only, in lower case, and before names and functions."""
    word = terminal.pattern.value
    if isinstance(terminal.pattern, lark.lexer.PatternStr) and word.isalpha():
        terminal.pattern = PatternRE(rf"{word}(?![A-Za-z0-9_@])", terminal.pattern.flags)
        terminal.priority = 3


KEYWORDS = ("and", "false", "in", "like", "not", "null", "or", "regex", "true")
"""Keywords of conditions, which are no names of fields in any letter case."""
_WORDS = (
    *("and", "any", "as", "by", "in", "like", "maxspan", "not", "of", "or", "regex"),
    *("runs", "sample", "sequence", "until", "where", "with"),
)
_TERMINALS = {
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "VARIABLE": "a name",
    "NUMBER": "a number",
    "DURATION": "a length of time (5m)",
    "STRING": 'a "string"',
    "RAW": 'a "string"',
    "FUNCTION": "a function",
    "COMPARISON": "a comparison (== != < <= > >=)",
    "MATCH": "':', in, like or regex",
    "SIGN": "'+' or '-'",
    "TIMES": "'*', '/' or '%'",
    "$END": "the end of the query",
    **{"LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "COMMA": "','", "VBAR": "'|'"},
    **{"DOT": "'.'", "EQUAL": "'='", "ABSENT": "'!'", "OPTIONAL": "'?'"},
}
_FEW = (
    "a comparison (== != < <= > >=)",
    "':', in, like or regex",
    "'and'",
    "'or'",
    "')'",
    "']'",
    "the end of the query",
)
"""After a value, where nearly everything may come: what messages then say, and no more."""
_FOREIGN = {
    "=": "write ==",
    "<>": "write !=",
    "&&": "write and",
    "&": "write and",
    "||": "write or",
    "is": "a field without a value is == null, one with a value != null",
    "contains": 'write : "*text*", which minds no letter case, or like "*text*"',
    "between": "write a >= 1 and a <= 3; between(text, left, right) is a function of texts",
    ",": 'a list stands behind in, ":" and like: name in ("a", "b")',
}
"""Hints on words and signs of other languages, by these."""
_MAX_EXPECTED = 8
"""Most expected tokens that a message lists."""


def eql_syntax_error(text: str, error: lark.exceptions.UnexpectedInput) -> QuerySyntaxError:
    """Return the error of a text that the parser refused."""
    if not text.strip():
        return QuerySyntaxError("the query is empty", hint='process where process.name == "cmd.exe"')
    if isinstance(error, lark.exceptions.UnexpectedToken):
        expected = _described(set(error.accepts or error.expected))
        token = error.token
        if token.type == "$END":
            end = len(text.rstrip())
            return QuerySyntaxError(f"the query ends too early: expected {expected}", text, end)
        start, unexpected = token.start_pos or 0, str(token)
        unexpected = re.match(r"\w*", unexpected)[0] or unexpected if token.type == "FUNCTION" else unexpected  # type: ignore[index]
        message = f"expected {expected}, found {shortened(unexpected)!r}"
        end = start + len(unexpected)
    else:
        start = error.pos_in_stream or 0
        word = re.match(r"\w+|.", text[start:], re.DOTALL)
        unexpected = word[0] if word else text[start]
        end = start + len(unexpected)
        allowed = _described(set(getattr(error, "allowed", None) or ()))
        message = (
            f"expected {allowed}, found {shortened(unexpected)!r}"
            if allowed
            else f"no part of a query begins with {unexpected!r}"
        )
    return QuerySyntaxError(message, text, start, end, _hint(text, start, unexpected))


def _described(terminals: set[str]) -> str:
    """Return the terminals for a message, each once."""
    said = sorted(
        {
            _TERMINALS.get(name, f"'{name.lower()}'")
            for name in terminals
            if name not in ("WS", "COMMENT", "BLOCK_COMMENT")
        }
    )
    if len(said) > _MAX_EXPECTED:
        said = [each for each in said if each in _FEW] or said[:_MAX_EXPECTED]
    return ", ".join(said[:-1]) + (" or " if len(said) > 1 else "") + said[-1] if said else ""


def _hint(text: str, start: int, unexpected: str) -> str | None:
    """Return a hint on a place where the parser failed, or None if there is none."""
    lowered = unexpected.lower()
    if unexpected != lowered and lowered in _WORDS:
        return f"keywords are in lower case: {lowered}"
    if unexpected[:1] == "'":
        return 'strings stand in double quotes: "text"'
    if unexpected[:1] == '"':
        return 'the string is not closed, or has an end of line; without escapes: """text"""'
    if unexpected == "with" and re.search(r"\bmaxspan\s*=\s*\w+\s*$", text[:start]):
        return None
    if text[start : start + 2] in _FOREIGN or lowered in _FOREIGN:
        return _FOREIGN.get(text[start : start + 2]) or _FOREIGN[lowered]
    close = nearest(unexpected, _WORDS) if unexpected.isalpha() else None
    return None if close is None or close == unexpected else f"did you mean {close!r}?"


SPAN_UNITS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600), "d": Fraction(86_400)}
"""Seconds in each unit of maxspan."""

MAX_RUNS = 100
"""Most runs of a step."""

_MAX_NESTING = 100


def parse_eql(text: str) -> e.EqlSyntax:
    """Parse a whole query.

    Raises
    ------
    QuerySyntaxError
        When the text is no query; it shows the place, what was expected there, and a hint.
    QueryTooLargeError
        When the query is nested too deeply.
    """
    try:
        query = _EqlBuilder(text).transform(eql_tree_parser().parse(text))
    except lark.exceptions.UnexpectedInput as error:
        raise eql_syntax_error(text, error) from None
    except lark.exceptions.VisitError as error:
        raise error.orig_exc from None
    _check_nesting(query, text)
    return query  # type: ignore[no-any-return]


def _check_nesting(query: e.EqlSyntax, text: str) -> None:
    def depth(node: Any, below: list[int]) -> int:
        level = 1 + max(below, default=0)
        if level > _MAX_NESTING:
            hint = "a chain of and, or of or, is one level, however long"
            raise QueryTooLargeError(
                f"the query is nested more than {_MAX_NESTING} levels deep", text, node.span[0], None, hint
            )
        return level

    for term in (*query.terms, *([] if query.until is None else [query.until])):
        fold(term, depth, children)


def _node(make: Any) -> Any:
    """Return a method that builds ``make(*children, span)`` from a rule."""
    return lark.v_args(meta=True)(lambda self, meta, parts: make(*parts, span=span_of(meta)))


class _EqlBuilder(Transformer_NonRecursive):  # type: ignore[type-arg]
    """Nodes of a parse tree, rule by rule."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def _eql_syntax_error(self, message: str, span: Span, hint: str | None = None) -> QuerySyntaxError:
        return QuerySyntaxError(message, self._text, *span, hint=hint)

    # ---- queries ------------------------------------------------------------------------------------------------

    def query(self, parts: list[Any]) -> e.EqlSyntax:
        pattern, *pipes = parts
        own: dict[str, Any] = pattern
        if isinstance(pattern, e.EventFilter):
            own = {"terms": (e.Term(pattern, span=pattern.span),), "kind": "event"}
        return e.EqlSyntax(text=self._text, pipes=tuple(pipes), **own)

    @lark.v_args(meta=True)
    def sequence(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        _, *parts = parts
        keys, maxspan, terms, until = self._sorted_out(parts)
        if sum(1 if term.absent else term.runs for term in terms) < 2:
            hint = "another step [category where condition] behind it, or with runs=2"
            raise self._eql_syntax_error("a sequence has two steps at least", terms[0].span, hint)
        if all(term.absent for term in terms):
            raise self._eql_syntax_error(
                "a sequence has a step without !", terms[0].span, "[category where condition] without !"
            )
        absent = next((term for term in terms if term.absent), None)
        if absent is not None and maxspan is None:
            hint = "sequence ... with maxspan=5m"
            raise self._eql_syntax_error("an event that must be missing needs a maxspan", absent.span, hint)
        return {"kind": "sequence", "terms": tuple(terms), "keys": keys, "maxspan": maxspan, "until": until}

    @lark.v_args(meta=True)
    def sample(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        word, *parts = parts
        keys, _, terms, _ = self._sorted_out([part for part in parts if part is not None])
        for term in terms:
            if term.absent or term.runs > 1:
                what = "events that must be missing" if term.absent else "runs"
                raise self._eql_syntax_error(f"a sample has no {what}", term.span, "they are for sequence")
        if not keys and not any(term.keys for term in terms):
            raise self._eql_syntax_error(
                "a sample needs the fields that its events share",
                _token_span(word),
                "sample by host.id [...] [...]",
            )
        if len(terms) < 2:
            raise self._eql_syntax_error("a sample has two events at least", terms[0].span)
        return {"kind": "sample", "terms": tuple(terms), "keys": keys}

    @lark.v_args(meta=True)
    def join(self, meta: Any, parts: list[Any]) -> dict[str, Any]:
        span = _token_span(parts[0])
        raise self._eql_syntax_error(
            "join is no part of Elasticsearch's EQL",
            span,
            "sample by finds events in any order, sequence in their order",
        )

    def _sorted_out(self, parts: list[Any]) -> tuple[tuple[e.Field, ...], s.Within | None, list[e.Term], e.Term | None]:
        """Return the keys, the maxspan, the terms, and that of until."""
        keys: tuple[e.Field, ...] = ()
        maxspan: s.Within | None = None
        until: e.Term | None = None
        terms: list[e.Term] = []
        for part in parts:
            match part:
                case e.Term():
                    terms.append(part)
                case s.Within():
                    if maxspan is not None:
                        raise self._eql_syntax_error("maxspan stands twice", part.span)
                    maxspan = part
                case ("until", e.Term() as term):
                    until = term
                case ("by", (fields, span)):
                    if keys:
                        raise self._eql_syntax_error("the fields that all steps share stand twice", span, "by a, b")
                    keys = fields
        if until is not None and (until.absent or until.runs > 1):
            raise self._eql_syntax_error(
                "the event of until has neither ! nor runs", until.span, "until [category where condition]"
            )
        return keys, maxspan, terms, until

    def until(self, parts: list[Any]) -> tuple[str, e.Term]:
        return "until", parts[0]

    @lark.v_args(meta=True)
    def maxspan(self, meta: Any, parts: list[Any]) -> s.Within:
        token = parts[0]
        span = _token_span(token)
        match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", str(token))
        assert match is not None
        number, unit = match.groups()
        if unit not in SPAN_UNITS:
            said = f"the unit {unit!r}" if unit else "no unit"
            hint = f"maxspan={number}s" if not unit else None
            raise self._eql_syntax_error(
                f"maxspan is a whole number of {', '.join(SPAN_UNITS)}, and has {said}", span, hint
            )
        if "." in number or int(number) == 0:
            raise self._eql_syntax_error(f"maxspan is a whole number of {', '.join(SPAN_UNITS)}, and more than 0", span)
        return s.Within("time", int(number) * SPAN_UNITS[unit], None, span_of(meta))

    @lark.v_args(meta=True)
    def by(self, meta: Any, parts: list[Any]) -> tuple[str, tuple[tuple[e.Field, ...], Span]]:
        return "by", (tuple(parts), span_of(meta))

    def runs(self, parts: list[Any]) -> tuple[str, int]:
        token = parts[0]
        if not str(token).isdigit() or not 1 <= int(token) <= MAX_RUNS:
            span = _token_span(token)
            raise self._eql_syntax_error(f"runs is a whole number from 1 to {MAX_RUNS}", span)
        return "runs", int(token)

    def as_name(self, parts: list[Any]) -> tuple[str, Any]:
        return "as", parts[0]

    @lark.v_args(meta=True)
    def term(self, meta: Any, parts: list[Any]) -> e.Term:
        absent, event, *clauses = parts
        own: dict[str, Any] = {}
        for kind, value in clauses:
            name = {"by": "keys", "runs": "runs", "as": "name"}[kind]
            if name in own:
                raise self._eql_syntax_error(f"{kind} stands twice at this step", span_of(meta))
            own[name] = value[0] if kind == "by" else str(value) if kind == "as" else value
        return e.Term(event, absent=absent is not None, span=span_of(meta), **own)

    @lark.v_args(meta=True)
    def event(self, meta: Any, parts: list[Any]) -> e.EventFilter:
        (name, category_span), condition = parts
        return e.EventFilter(None if name == e.ANY_CATEGORY else name, condition, span_of(meta), category_span)

    def category(self, parts: list[Any]) -> tuple[str, Span]:
        token = parts[0]
        return self._field_name(token), _token_span(token)

    def _field_name(self, token: Any) -> str:
        if token.type == "QUOTED_NAME":
            return str(token)[1:-1].replace("``", "`")
        return text_of(token, self._text) if token.type in ("STRING", "RAW") else str(token)

    @lark.v_args(meta=True)
    def pipe(self, meta: Any, parts: list[Any]) -> s.Pipe:
        token, *arguments = parts
        name, span = str(token), span_of(meta)
        if name not in ("head", "tail"):
            raise self._eql_syntax_error(f"the pipes are head and tail, and not {name!r}", _token_span(token))
        arguments = [each for each in arguments if each is not None]
        n = arguments[0] if len(arguments) == 1 else None
        if not isinstance(n, e.ConstantValue) or type(n.value) is not int:
            raise self._eql_syntax_error(f"{name} takes one whole number", span, f"| {name} 10")
        return s.Pipe(name, n.value, span)

    # ---- conditions and values ------------------------------------------------------------------------------------

    @lark.v_args(meta=True)
    def or_(self, meta: Any, parts: list[Any]) -> e.Or:
        return e.Or(_flat(e.Or, parts), span_of(meta))

    @lark.v_args(meta=True)
    def and_(self, meta: Any, parts: list[Any]) -> e.And:
        return e.And(_flat(e.And, parts), span_of(meta))

    not_ = lark.v_args(meta=True)(lambda self, meta, parts: e.NotCondition(parts[-1], span_of(meta)))

    @lark.v_args(meta=True)
    def compare(self, meta: Any, parts: list[Any]) -> e.Comparison:
        left, token, right = parts
        op = str(token)
        if op not in ("==", "!=", "<", "<=", ">", ">="):
            better = {"=": "==", "<>": "!=", "=~": ":", "!~": "not ... :", "!:": "not ... :"}[op]
            span = _token_span(token)
            raise self._eql_syntax_error(f"{op!r} is no operator of EQL", span, f"write {better}")
        return e.Comparison(op, left, right, span_of(meta))

    @lark.v_args(meta=True)
    def match(self, meta: Any, parts: list[Any]) -> e.EqlExpression:
        left, negated, token, right = parts
        values: tuple[Any, ...] = tuple(right.children) if isinstance(right, lark.Tree) else (right,)
        node = e.Match(str(token).rstrip("~"), str(token).endswith("~"), left, values, span_of(meta))
        return node if negated is None else e.NotCondition(node, span_of(meta))

    @lark.v_args(meta=True)
    def lineage(self, meta: Any, parts: list[Any]) -> e.Lineage:
        token, event = parts
        if str(token) != "descendant":
            span = _token_span(token)
            raise self._eql_syntax_error(
                f"{str(token)!r} of an event is not supported", span, "descendant of [process where ...]"
            )
        return e.Lineage(str(token), event, span_of(meta))

    arithmetic = lark.v_args(meta=True)(lambda self, meta, p: e.BinaryOperation(str(p[1]), p[0], p[2], span_of(meta)))

    @lark.v_args(meta=True)
    def signed(self, meta: Any, parts: list[Any]) -> e.EqlExpression:
        sign, operand = parts
        return operand if sign == "+" else e.Minus(operand, span_of(meta))

    @lark.v_args(meta=True)
    def number(self, meta: Any, parts: list[Any]) -> e.ConstantValue:
        text = str(parts[0])
        value: int | float = int(text) if text.isdigit() else float(text)
        if isinstance(value, float) and math.isinf(value):
            raise self._eql_syntax_error("expected a number less than 1.8e308", span_of(meta))
        return e.ConstantValue(value, text, span_of(meta))

    @lark.v_args(meta=True)
    def string(self, meta: Any, parts: list[Any]) -> e.ConstantValue:
        return e.ConstantValue(text_of(parts[0], self._text), span=span_of(meta))

    raw = string

    @lark.v_args(meta=True)
    def boolean(self, meta: Any, parts: list[Any]) -> e.ConstantValue:
        return e.ConstantValue(str(parts[0]) == "true", span=span_of(meta))

    @lark.v_args(meta=True)
    def null(self, meta: Any, parts: list[Any]) -> e.ConstantValue:
        return e.ConstantValue(None, span=span_of(meta))

    @lark.v_args(meta=True)
    def call(self, meta: Any, parts: list[Any]) -> e.FunctionCall:
        token, *operands = parts
        name = str(token)[:-1].rstrip()
        return e.FunctionCall(
            name.rstrip("~"), name.endswith("~"), tuple(p for p in operands if p is not None), span_of(meta)
        )

    @lark.v_args(meta=True)
    def field(self, meta: Any, parts: list[Any]) -> e.Field:
        optional, *names = parts
        word = str(names[0])
        if len(names) == 1 and names[0].type == "NAME" and word.lower() in KEYWORDS:
            raise self._eql_syntax_error(
                f"expected a field, found {word!r}", span_of(meta), f"keywords are in lower case: {word.lower()}"
            )
        return e.Field(tuple(self._field_name(each) for each in names), optional is not None, span_of(meta))


def _token_span(token: Any) -> Span:
    return token.start_pos, token.start_pos + len(token)


def _flat(kind: type[e._Flat], parts: list[Any]) -> tuple[Any, ...]:
    flat: list[Any] = []
    for part in parts:
        flat += part.operands if isinstance(part, kind) else [part]
    return tuple(flat)
