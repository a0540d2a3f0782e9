"""Messages on texts that are no query in EQL: the place, what was expected there, and a hint."""

from __future__ import annotations

import re

import lark

from cer_gpu.ceql.syntax_errors import shortened
from cer_gpu.errors import QuerySyntaxError, nearest

KEYWORDS = ("and", "false", "in", "like", "not", "null", "or", "regex", "true")
"""Keywords of conditions, which no field is called in other letters."""
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
"""Behind a value, where nearly everything may stand: what messages then say, and no more."""
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
_MOST = 8
"""Most things that a message says it expected."""


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
        start, found = token.start_pos or 0, str(token)
        found = re.match(r"\w*", found)[0] or found if token.type == "FUNCTION" else found  # type: ignore[index]
        message = f"expected {expected}, found {shortened(found)!r}"
        end = start + len(found)
    else:
        start = error.pos_in_stream or 0
        word = re.match(r"\w+|.", text[start:], re.DOTALL)
        found = word[0] if word else text[start]
        end = start + len(found)
        allowed = _described(set(getattr(error, "allowed", None) or ()))
        message = (
            f"expected {allowed}, found {shortened(found)!r}"
            if allowed
            else f"no part of a query begins with {found!r}"
        )
    return QuerySyntaxError(message, text, start, end, _hint(text, start, found))


def _described(terminals: set[str]) -> str:
    """Return the terminals of a message, each once."""
    said = sorted(
        {
            _TERMINALS.get(name, f"'{name.lower()}'")
            for name in terminals
            if name not in ("WS", "COMMENT", "BLOCK_COMMENT")
        }
    )
    if len(said) > _MOST:
        said = [each for each in said if each in _FEW] or said[:_MOST]
    return ", ".join(said[:-1]) + (" or " if len(said) > 1 else "") + said[-1] if said else ""


def _hint(text: str, start: int, found: str) -> str | None:
    """Return a hint on a place where the parser went wrong; None: there is none."""
    lowered = found.lower()
    if found != lowered and lowered in _WORDS:
        return f"keywords are in lower case: {lowered}"
    if found[:1] == "'":
        return 'strings stand in double quotes: "text"'
    if found[:1] == '"':
        return 'the string is not closed, or has an end of line; without escapes: """text"""'
    if found == "with" and re.search(r"\bmaxspan\s*=\s*\w+\s*$", text[:start]):
        return None
    if text[start : start + 2] in _FOREIGN or lowered in _FOREIGN:
        return _FOREIGN.get(text[start : start + 2]) or _FOREIGN[lowered]
    close = nearest(found, _WORDS) if found.isalpha() else None
    return None if close is None or close == found else f"did you mean {close!r}?"
