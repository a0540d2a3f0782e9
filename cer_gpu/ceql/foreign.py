"""Words and signs of other languages (SQL, Flink, Esper, Siddhi, SASE, regular expressions), and the CEQL for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from cer_gpu.ceql.functions import AGGREGATES, OVER_NAMES
from cer_gpu.ceql.patterns import STRING_TESTS

PATTERN, TEST, WINDOW, KEYS, STREAMS, SELECTION, BEGINNING = (
    "WHERE", "FILTER", "WITHIN", "PARTITION", "FROM", "SELECT", "",
)  # fmt: skip
"""Places of a query, by the keyword before them."""

_SHAPE = "a query is SELECT * FROM S WHERE A AS a ; B AS b FILTER b.id = a.id WITHIN 5 MINUTES"
_TESTS = "WHERE holds the pattern, of event types; tests stand behind FILTER: WHERE A AS a FILTER a.price > 100"
_DISTINCT = r"\(\s*DISTINCT\b[^()]*\)?\s*$"
_ABSENT = "an absence stands between two events: A ; !B ; C; NOT(B) is one event that is no B"
_RECOGNIZE = "a clause of MATCH_RECOGNIZE, whose statements are read as a whole: docs/reference/match_recognize.md"
_TEXT = "LIKE 'x' searches for a regular expression (RE2), anywhere in the text; '(?i)x' ignores case, '^x' is a prefix"
_PLACES = "startswith(name, 'x'), endswith(name, 'x') and contains(name, 'x') are tests; " + _TEXT
_TIMES = "A{3} is three times A, A{2,5} two to five times, A+ one or more"
_LENGTH = "a length of time is a number and a unit, without quotes: WITHIN 5 MINUTES"
_TIME_AS_STRING = "times are compared with text: ts > '2024-01-31 12:00'"
_ONE_ROW = "limit=10 (--limit 10) stops after so many matches; LIMIT n is of those that end together"
_ONLY_OVER = [name for name in OVER_NAMES if name not in AGGREGATES]
_ALL = "events of both, in any order: A ALL B; within a filter: AND"


@dataclass(frozen=True)
class Word:
    """Line of the table.

    Attributes
    ----------
    places
        Places in which it is recognised; if empty, all.
    at
        Regular expression of the text from the place of the error on.
    hint
        With ``{0}`` for the group of `before`, and ``{1}``, ``{2}`` for those of `at`, in upper case.
    before
        Regular expression of the text before that.
    """

    places: tuple[str, ...]
    at: str
    hint: str
    before: str = ""


_WORDS = (
    # ---- whole statements
    Word((BEGINNING,), r"\w+", _SHAPE),
    Word((BEGINNING,), r".", _SHAPE, r"^\s*(?:PATTERN|SEQ)\s*\(.*"),
    Word((STREAMS,), r"(?:PATTERN|DEFINE|MEASURES|MATCH_RECOGNIZE|AFTER)\b", _SHAPE),
    Word((STREAMS,), r"(?:JOIN|INNER|LEFT|CROSS)\b", "several streams: FROM S, T WHERE S>A AS a ; T>B AS b"),
    Word((STREAMS,), r"AS\b", "a stream has no second name: the variables of its events stand in WHERE, A AS a"),
    Word((STREAMS,), r"[./'*]", "FROM names the stream, such as FROM S; its file stands outside the query"),
    Word(
        (),
        r".",
        "COUNT(x) counts events; DISTINCT is for OVER: x[COUNT(DISTINCT R.a) OVER 1 HOUR > 2]",
        _DISTINCT,
    ),
    Word((SELECTION,), r".", "results hold no duplicates: leave DISTINCT out", r"\bDISTINCT\s*$"),
    # ---- clauses after a pattern
    Word(
        (),
        r"GROUP\b",
        "matches within each key: PARTITION BY [key]; of one match: SELECT COUNT(x); group the result outside",
    ),
    Word(
        (),
        r"(?:ORDER|SORT)\b",
        "results come by their ends: sort them outside, by a measure; sort=True (--sort) puts events in order of time",
    ),
    Word((), r"SKIP\b|AFTER\s+MATCH\b", "CONSUME BY ANY forgets what a match used; SELECT MAX, NEXT and LAST choose"),
    Word((PATTERN,), r"(?:DEFINE|MEASURES|PATTERN|SUBSET|ONE\s+ROW|ALL\s+ROWS)\b", _RECOGNIZE),
    Word((), r"(?:TOP|OFFSET|FETCH)\b", _ONE_ROW),
    Word((PATTERN,), r"(?:JOIN|ON)\b", "two events with equal values: A AS a ; B AS b FILTER b.id = a.id"),
    Word((PATTERN,), r"WHERE\b", _TESTS),
    Word((KEYS,), r"\[", "write PARTITION BY [key]", r"\bPARTITION\s*$"),
    # ---- windows
    Word((), r"\(", "OVER takes a length, OVER 1 HOUR; keys are those of the query, PARTITION BY [key]", r"\bOVER\s*$"),
    Word((), r"-|[A-Za-z(]", "a length is 5 MINUTES, 10 EVENTS or 3 [attribute]", r"\b(?:OVER|FOR)\s*$"),
    Word((PATTERN,), r"FOR\b", "FOR stands behind an absence: A ; !B FOR 5 MINUTES"),
    Word((WINDOW,), r"INTERVAL\s+'?([0-9.]+)'?\s+([A-Za-z]+?)S?\b", "write WITHIN {1} {2}S", r"\bWITHIN\s*$"),
    Word((WINDOW,), r"->|[;:]", "the window of a part stands in its brackets: (A ; B WITHIN 5 MINUTES) ; C"),
    Word((WINDOW,), r"\(|INTERVAL\b|'", _LENGTH, r"\bWITHIN\s*$"),
    Word((WINDOW,), r"(?:m|min|mins)\b", "write WITHIN {0} MINUTES", r"([0-9.]+)\s*$"),
    Word((WINDOW,), r"(?:s|sec|secs)\b", "write WITHIN {0} SECONDS", r"([0-9.]+)\s*$"),
    Word((WINDOW,), r"(?:h|hr|hrs)\b", "write WITHIN {0} HOURS", r"([0-9.]+)\s*$"),
    Word((WINDOW,), r"d\b", "write WITHIN {0} DAYS", r"([0-9.]+)\s*$"),
    Word((WINDOW,), r"(?:ROWS?|TUPLES?)\b", "write WITHIN {0} EVENTS", r"([0-9]+)\s*$"),
    # ---- tests of events
    Word((), r"'", "IS is for NULL alone: write <> for IS NOT", r"\bIS\s+NOT\s*$"),
    Word((), r"['\d]", "IS is for NULL alone: write = for IS", r"\bIS\s*$"),
    Word((TEST,), r"(?:HAS|CONTAINS|STARTSWITH|ENDSWITH)\b", _PLACES),
    Word((TEST,), r"(?:I?LIKE|RLIKE|REGEXP|MATCHES|SIMILAR)\b", _TEXT),
    Word((TEST,), r"!?=?~", _TEXT),
    Word((TEST,), r"\[|\(", "a set stands in braces: IN {1, 2}", r"\bIN\s*$"),
    Word((TEST,), r"&", "write AND"),
    Word((TEST,), r"\|", "write OR"),
    Word((TEST,), r"!", "write NOT: x[NOT price > 100], x.price <> 100"),
    Word((TEST,), r",", "write BETWEEN 1 AND 3, or IN {1..3}", r"\bBETWEEN\s+\S+\s*$"),
    Word((TEST,), r"FROM\b", "write hour(ts), day(ts), year(ts)", r"\bEXTRACT\s*\(\s*\w+\s*$"),
    Word((), r"AS\b", "numbers of all types are compared as they are, without CAST", r"\bCAST\s*\([^()]*$"),
    Word((TEST,), r"::", "numbers of all types are compared as they are, without ::"),
    Word((TEST,), r"WHEN\b|\w", "there is no CASE: write the cases with OR and AND", r"\bCASE\s*$"),
    Word((TEST,), r"\w|\(", _ABSENT, r"\bEXISTS\s*$"),
    Word((TEST,), r"'", _TIME_AS_STRING, r"\b(?:DATE|TIMESTAMP|TIME|DATETIME)\s*$"),
    Word((TEST,), r"'", "a length of time is 5 MINUTES: b.ts - a.ts <= 5 MINUTES", r"\bINTERVAL\s*$"),
    Word((TEST,), r"\*", "write price * price", r"\*\s*$"),
    Word((TEST,), r"\^", "write price * price"),
    Word((TEST,), r"=", "write =", r"=\s*$"),
    Word(
        (TEST,), r"\)", "there is no current time: a query reads the times of events", r"\b(?:NOW|CURRENT_\w+)\s*\(\s*$"
    ),
    Word(
        (TEST,),
        r"['0-9.]",
        "one of several values: a.name IN {'x', 'y'}",
        r"=\s*('[^']*'|[0-9.]+)\s+OR\s*$",
    ),
    # ---- patterns
    Word(
        (PATTERN,),
        r"'\w+'",
        "names of types stand without quotes: A ; B; odd ones in backquotes: `my type`",
        r"(?:WHERE|;|:|>|OR|ALL|\()\s*$",
    ),
    Word((PATTERN,), r"\w|AND\s+NOT\b", _ABSENT, r"\bNOT\s*$"),
    Word((PATTERN,), r"AND\s+NOT\b", _ABSENT),
    Word((PATTERN,), r".", "write no EVERY: matches are found from every event", r"\bEVERY\s*\(?\s*$"),
    Word((PATTERN,), r"UNTIL\b", "UNTIL stands behind a quantifier: A+ UNTIL (B)"),
    Word((PATTERN,), r"EACH\b", "gaps are those of WITHIN: WITHIN 5 MINUTES EACH STEP"),
    Word((PATTERN,), r"EVERY\b", "LIMIT 1 EVERY 5 MINUTES; matches are found from every event"),
    Word((PATTERN,), r"&", _ALL),
    Word((PATTERN,), r"\|", "one of them: A OR B"),
    Word((PATTERN,), r"~", "write A ; B (any later B) or A -> B (the next B)"),
    Word((PATTERN,), r">", "write A ; B (any later B) or A -> B (the next B)", r"[>=-]\s*$"),
    Word((PATTERN,), r"\(", "a sequence is A ; B (any later B), or A -> B (the next B)", r"\bSEQ\s*$"),
    Word((PATTERN,), r"<\s*\d|\[\s*\d+\s*\]|TIMES\b", _TIMES),
    Word((PATTERN,), r"[\^$]", "a pattern has no anchors: it is found anywhere"),
    Word((PATTERN,), r"\[|\(", "a test stands behind FILTER: A AS a FILTER a[price > 100]", r"[A-Za-z_]\w*\s*$"),
    Word((PATTERN,), r"\.", _TESTS, r"[A-Za-z_]\w*$"),
    Word((PATTERN,), r"(?:==?|<>|!=|<=?|>=?)\s*(?:'|[0-9.-])", _TESTS),
    Word((PATTERN,), r"'|[0-9.]", _TESTS, r"[<>=]\s*$"),
    Word((PATTERN,), r"=\s*\w", "the variable stands behind: A AS {0}", r"([A-Za-z_]\w*)\s*$"),
)

FUNCTIONS = {
    **dict.fromkeys(("NEXT", "LEAD"), "a later event is one of the pattern: A AS a ; B AS b FILTER b.price > a.price"),
    "REGEXP_LIKE": _TEXT,
    **dict.fromkeys(
        ("SUBSTR", "LEFT", "RIGHT", "MID"),
        "substring(name, 0, 3) has the first three characters, substring(name, -3) the last three",
    ),
    **dict.fromkeys(("STARTS_WITH", "PREFIX"), "startswith(name, 'ab')"),
    **dict.fromkeys(("ENDS_WITH", "SUFFIX"), "endswith(name, 'ab')"),
    **dict.fromkeys(
        ("STRPOS", "INSTR", "POSITION", "LOCATE", "CHARINDEX"), "indexof(name, 'ab'), from 0; NULL if it is not there"
    ),
    **dict.fromkeys(("STRINGCONTAINS", "STRING_CONTAINS", "HAS"), "contains(name, 'ab')"),
    **dict.fromkeys(("LEN", "CHAR_LENGTH", "CHARACTER_LENGTH"), "length(name)"),
    **dict.fromkeys(("LCASE", "TOLOWER"), "lower(name)"),
    **dict.fromkeys(("UCASE", "TOUPPER"), "upper(name)"),
    **dict.fromkeys(("CONCAT_WS", "TEXTJOIN"), "concat(user, '@', domain)"),
    **dict.fromkeys(("TO_CHAR", "TOSTRING", "TO_STRING", "STR"), "string(price)"),
    **dict.fromkeys(("TO_NUMBER", "PARSEINT", "TOINT", "TO_INT"), "number(text), number(text, 16)"),
    **dict.fromkeys(("CIDRMATCH", "IPV4_IS_IN_RANGE", "INET_CONTAINS"), STRING_TESTS["CIDR"].call),
    **dict.fromkeys(("ARRAY_CONTAINS", "LIST_CONTAINS", "ALL", "EXISTS"), "one element of a list: ANY(tags) = 'x'"),
    **dict.fromkeys(
        ("DATEDIFF", "TIMESTAMPDIFF", "DATE_DIFF", "AGE"), "the time between two events: b.ts - a.ts <= 5 MINUTES"
    ),
    **dict.fromkeys(("TIMESTAMP", "TO_TIMESTAMP", "TO_DATE"), _TIME_AS_STRING),
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP"), "there is no current time: a query reads the times of events"),
    **dict.fromkeys(("ROW_NUMBER", "RANK"), "results come by their ends; SELECT MAX, NEXT and LAST choose among them"),
    **dict.fromkeys(("COALESCE", "IFNULL", "NVL", "ISNULL"), "write price IS NULL OR price > 100"),
    **dict.fromkeys(("POWER", "POW", "SQUARE"), "write price * price"),
    "SQRT": "compare the squares: price * price > 9",
    "FLOOR": "compare the value itself: price >= 3 for floor(price) >= 3; round(price) is the nearest whole number",
    **dict.fromkeys(
        ("CEIL", "CEILING"),
        "compare the value itself: price > 2 for ceil(price) >= 3; round(price) is the nearest whole number",
    ),
    **dict.fromkeys(("SECOND", "QUARTER"), "of times there are minute, hour, day, weekday, week, month and year"),
    **dict.fromkeys(
        (*_ONLY_OVER, "MEDIAN", "STDEV", "VAR_SAMP"),
        f"aggregates are {', '.join(AGGREGATES[:-1])} and {AGGREGATES[-1]}; OVER the events before also "
        f"{' and '.join(_ONLY_OVER)}: x[STDDEV(R.a) OVER 1 HOUR > 2]",
    ),
}
"""Hints on functions of other languages, by their names in upper case."""

_CLAUSES = re.compile(
    r"'(?:[^']|'')*'|\b(SELECT|FROM|WHERE|FILTER|PARTITION|WITHIN|HAVING|CONSUME|LIMIT)\b", re.IGNORECASE
)


def foreign_hint(text: str, start: int) -> str | None:
    """Return the CEQL for the text at the place of an error if it is of another language, else None."""
    word = line_of(text, start)
    if word is None:
        return None
    hint, before = word.hint, _compile_pattern(word.before).search(text[:start])
    if before and before.groups():
        hint = hint.replace("{0}", before[1])
    at = _compile_pattern(word.at).match(text[start:])
    for number, group in enumerate(at.groups() if at else (), 1):
        hint = hint.replace(f"{{{number}}}", group.upper())
    return hint


def line_of(text: str, start: int) -> Word | None:
    """Return the line of the table for the text at the place of an error, or None."""
    before, after = text[:start], text[start:]
    place = _clause_before(before)
    for word in _WORDS:
        applies = not word.places or place in word.places
        if applies and _compile_pattern(word.at).match(after) and _compile_pattern(word.before).search(before):
            return word
    return None


def _clause_before(before: str) -> str:
    """Return the place that follows a text: the last keyword of a clause in it; HAVING holds tests, too."""
    words = [word.upper() for word in _CLAUSES.findall(before) if word]
    if not words:
        return BEGINNING
    inside = before.rfind("[") > before.rfind("]") and words[-1] == PATTERN  # as if it were a filter
    return TEST if words[-1] == "HAVING" or inside else words[-1]


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)
