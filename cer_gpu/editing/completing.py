"""Completions: the words, columns, variables and functions that may come at a place of a query.

In CEQL and EQL the parser reports the words that it accepts there; after an error all of them are offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import lark
import pyarrow as pa

from cer_gpu.ceql.functions import AGGREGATES, EVENTS, LAG, OVER_NAMES, SCALAR, TRUTHS
from cer_gpu.ceql.grammar import tree_parser
from cer_gpu.compilation import language_named, language_of
from cer_gpu.editing.event_schema import EventSchema, fields_on_path
from cer_gpu.eql.parser import eql_tree_parser
from cer_gpu.explain.ceql_text import name_text

_CEQL, _EQL = "CEQL", "EQL"
_PARSERS: dict[str, Callable[[], lark.Lark]] = {_CEQL: tree_parser, _EQL: eql_tree_parser}
_HIDDEN = re.compile(
    r"(?:--|//)[^\n]*(?=\n)|/\*.*?\*/|'(?:[^']|'')*'|(?P<unfinished>(?:--|//)[^\n]*|/\*.*|'.*)", re.DOTALL
)
"""Comments and strings, in which signs mean nothing."""
_WORD = re.compile(r"[^\W\d]\w*\Z")
_PATH = re.compile(r"(?:(?:[^\W\d]\w*|`[^`]*`|\))\s*\.\s*)+\Z")
_CALLED = re.compile(r"\bAS\s+([^\W\d]\w*)", re.IGNORECASE)
_TYPED = re.compile(r"([^\W\d]\w*)(?:\s*(?:->|:)?[+*?])?\s+AS\s", re.IGNORECASE)
_LET = re.compile(r"(?:\bLET|,)\s*([^\W\d]\w*)\s*==?(?!=)", re.IGNORECASE)
_CLAUSE = re.compile(r"\b(SELECT|FROM|LET|WHERE|FILTER|PARTITION|WITHIN|HAVING|CONSUME|LIMIT)\b", re.IGNORECASE)
_NEW_NAME = re.compile(r"\b(?:AS|FROM)\s+\Z", re.IGNORECASE)
_COMPARED = re.compile(
    r"(?P<path>(?:(?:[^\W\d]\w*|`[^`]*`)\s*\.\s*)*(?:[^\W\d]\w*|`[^`]*`))\s*"
    r"(?:==?|!=|<>|<=?|>=?|:|\b(?:NOT\s+)?IN\s*\{(?:\s*'(?:[^']|'')*'\s*,)*)\s*\Z",
    re.IGNORECASE,
)
"""A column before a string with which it is compared."""
_UNITS = {"DAYS", "HOURS", "MINUTES", "SECONDS", "EVENTS"}


class CompletionKind(Enum):
    """Kind of a completion."""

    WORD = "keyword"
    COLUMN = "column"
    VARIABLE = "variable"
    TYPE = "event type"
    FUNCTION = "function"
    VALUE = "value"


@dataclass(frozen=True)
class Completion:
    """A completion of the word before the place.

    Attributes
    ----------
    text : str
        Text to insert.
    kind : CompletionKind
    detail : str
        The type of a column; "" for others.
    """

    text: str
    kind: CompletionKind
    detail: str = ""


def word_before(text: str, offset: int) -> int:
    """Return the offset at which the word before a place begins, or the contents of the string that it is in."""
    unfinished = next((match for match in _HIDDEN.finditer(text, 0, offset) if match["unfinished"]), None)
    if unfinished is not None and unfinished[0].startswith("'"):
        return unfinished.start() + 1
    match = _WORD.search(text, 0, offset)
    return match.start() if match else offset


def completions(text: str, offset: int, events: EventSchema, language: str | None = None) -> list[Completion]:
    """Return the completions of the word at a place of a query.

    Parameters
    ----------
    text
        The query, finished or not.
    offset
        The place in the text.
    known
        Columns and types of the events.
    language
        As of `cer_gpu.compile`, or None to detect it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from cer_gpu.editing.completing import completions
    >>> from cer_gpu.editing.event_schema import EventSchema
    >>> text = "SELECT * FROM S WHERE A AS a FILTER a.pr"
    >>> known = EventSchema(pa.schema({"type": pa.string(), "price": pa.float64()}))
    >>> [(each.text, each.detail) for each in completions(text, len(text), known)]
    [('price', 'double')]
    """
    start = word_before(text, offset)
    begun = text[start:offset].casefold()
    detected = (language_of(text) if language is None else language_named(language)).name
    unfinished = next((match for match in _HIDDEN.finditer(text, 0, offset) if match["unfinished"]), None)
    if unfinished is not None:
        return list(_values(text[: unfinished.start()], unfinished[0], events))
    before = _HIDDEN.sub(lambda match: "''" if match[0][0] == "'" else " ", text[:start])
    candidates = _ceql(text, before, events) if detected == _CEQL else _other(detected, before, events)
    unique = {each.text: each for each in reversed(list(candidates))}
    return [each for each in reversed(unique.values()) if each.text.strip("`").casefold().startswith(begun)]


def _values(before: str, begun: str, events: EventSchema) -> Iterator[Completion]:
    """Yield the values of the column with which a string that begins as `begun` is compared, without its quotes."""
    compared = _COMPARED.search(before)
    if compared is None or not begun.startswith("'"):
        return
    names = [name.strip().strip("`") for name in compared["path"].split(".")]
    for value in events.values.get(".".join(names)) or events.values.get(names[-1], ()):
        if value.casefold().startswith(begun[1:].casefold()) and "'" not in value:
            yield Completion(value, CompletionKind.VALUE)


def _ceql(text: str, before: str, events: EventSchema) -> Iterator[Completion]:
    """Yield completions in CEQL after the text `before`, without comments and the contents of strings."""
    clauses = _CLAUSE.findall(before)
    clause = clauses[-1].upper() if clauses else ""
    is_inside = before.rfind("[") > before.rfind("]")
    if (path := _PATH.search(before)) is not None:
        yield from _columns(events.schema, names := _names_of_path(path[0]), name_text)
        yield from _let_columns(text if len(names) < 2 else "")
        return
    if _NEW_NAME.search(before):
        return
    accepted = _accepted(_CEQL, before)
    if accepted is None or "NAME" in accepted:
        if is_inside or clause == "LET":
            yield from _columns(events.schema, [], name_text)
            yield from _let_columns(text)
        if clause in ("FILTER", "HAVING", "SELECT"):
            yield from (Completion(name, CompletionKind.VARIABLE) for name in _CALLED.findall(text))
        if clause in ("WHERE", "SELECT", "FILTER") and not is_inside:
            names = [*events.types, *_TYPED.findall(text)] if clause != "FILTER" else _TYPED.findall(text)
            yield from (Completion(name_text(name), CompletionKind.TYPE) for name in names)
        if (is_inside and clause in ("FILTER", "WHERE")) or clause in ("FILTER", "HAVING", "SELECT", "LET"):
            yield from (Completion(name, CompletionKind.FUNCTION) for name in _functions(clause))
    yield from _keyword_completions(_CEQL, accepted)


def _let_columns(text: str) -> Iterator[Completion]:
    """Yield the columns that the LET clause of a query names."""
    clause = re.search(r"\bLET\b(.*?)(?:\bWHERE\b|\Z)", text, re.IGNORECASE | re.DOTALL)
    if clause is not None:
        yield from (Completion(name, CompletionKind.COLUMN) for name in _LET.findall(clause[0]))


def _functions(clause: str) -> Iterable[str]:
    scalar = [*SCALAR, *TRUTHS, *EVENTS, LAG]
    return [*AGGREGATES, *scalar] if clause in ("SELECT", "HAVING") else [*scalar, *OVER_NAMES]


def _other(language: str, before: str, events: EventSchema) -> Iterator[Completion]:
    """Yield completions in languages other than CEQL: columns, wherever one may come, and words."""
    path = _PATH.search(before)
    yield from _columns(events.schema, [] if path is None else _names_of_path(path[0]), _is_plain_name)
    if path is None and language in _PARSERS:
        yield from _keyword_completions(language, _accepted(language, before))


def _is_plain_name(name: str) -> str:
    return name


def _keyword_completions(language: str, accepted: set[str] | None) -> Iterator[Completion]:
    """Yield keywords, those that are accepted or all; units last."""
    words = keywords(language)
    for name in sorted(words, key=lambda name: (name in _UNITS, name)):
        if accepted is None or name in accepted:
            yield Completion(words[name], CompletionKind.WORD)


def keywords(language: str) -> dict[str, str]:
    """Return the keywords of CEQL or EQL, as they are written, by the names of their terminals.

    Examples
    --------
    >>> from cer_gpu.editing.completing import keywords
    >>> {"SELECT", "FILTER", "COUNT DISTINCT"} <= {*keywords("CEQL").values()}
    True
    """
    by_terminal = {}
    for terminal in _PARSERS[language]().terminals:
        pattern = terminal.pattern.value
        if pattern[0].isalpha() and not terminal.name.startswith("__"):
            is_lower = language == _EQL
            by_terminal[terminal.name] = terminal.name.lower() if is_lower else terminal.name.replace("_", " ")
    return by_terminal


def _accepted(language: str, before: str) -> set[str] | None:
    """Return the terminals that may follow a text, or None if the text is wrong already."""
    with suppress(lark.exceptions.UnexpectedInput, KeyError):
        parsed = _PARSERS[language]().parse_interactive(before, start="query")
        parsed.exhaust_lexer()
        accepted: set[str] = parsed.accepts()  # type: ignore[no-untyped-call]
        return accepted
    return None


def _names_of_path(path: str) -> list[str]:
    """Return the names of a path such as ``x.st.``; ``)``, of ``FIRST(x).``, is one."""
    return [name.strip().strip("`") for name in path.rstrip().rstrip(".").split(".")]


def _columns(schema: pa.Schema | None, path: list[str], written: Callable[[str], str]) -> Iterator[Completion]:
    """Yield the columns, or the fields of the struct that a path names, with or without the variable before it."""
    if schema is None:
        return
    for names in (path, path[1:]):
        fields = fields_on_path(schema, names)
        if fields is not None:
            for field in fields:
                yield Completion(written(field.name), CompletionKind.COLUMN, str(field.type))
            return
