"""Reference of Sigma's detection rules: an event against a rule, by brute force, from YAML alone.

It follows Sigma's specification (github.com/SigmaHQ/sigma-specification) and imports neither pySigma nor the engine.  A
rule is what YAML makes of it, an event a dict in which a value that is missing is None or not there.

Meaning, where the specification is silent, by the choices of docs/reference/sigma.md:

- A test of a missing value does not hold, and its negation does.
- Everything is a text, of which letter case does not matter (Unicode's simple folding).  Beside a number, a text that
  writes a number is that number; beside a time, one that writes a time is that time.
- A list passes a test if one element does, and elements that are missing do not; a list, even an empty one, is a value.
- A keyword is a part of one value of the event that is a text.
- `windash` replaces ``-`` and ``/`` before a word and not behind one, as in pySigma.
- A text of digits, with blanks or zeros around, is compared by `lt` and its kin as a number.
- `re` searches.  Weeks are those of ISO 8601.
"""

from __future__ import annotations

import base64
import datetime as dt
import fnmatch
import ipaddress
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

Event = Mapping[str, Any]
BoundPredicate = Callable[[Event], bool]
ValueTest = Callable[[Any], bool]

ANY, ONE = object(), object()
"""Wildcards in texts, which are tuples of characters and these."""
Tokens = tuple[Any, ...]
DASHES = "-/\N{EN DASH}\N{EM DASH}\N{HORIZONTAL BAR}"
TIME_PARTS: dict[str, Callable[[dt.datetime], int]] = {
    "minute": lambda t: t.minute,
    "hour": lambda t: t.hour,
    "day": lambda t: t.day,
    "week": lambda t: t.isocalendar().week,
    "month": lambda t: t.month,
    "year": lambda t: t.year,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
}
ENCODINGS = {"wide": "utf-16-le", "utf16le": "utf-16-le", "utf16be": "utf-16-be", "utf16": "utf-16-le"}
FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
"""Numbers as they are written, beside a number; a text of other signs is none."""
_COMPARABLE = re.compile(r"\s*[-+]?\d+(\.\d+)?\s*")
"""Strings that are compared as numbers."""


class Unsupported(ValueError):
    """What the reference does not know."""


def matches(rule: Mapping[str, Any], event: Event, applies: Callable[[Any, Event], bool] | None = None) -> bool:
    """Return True if a rule finds an event; `applies` says whether an event is of a log source."""
    if applies is not None and not applies(rule.get("logsource"), event):
        return False
    return test_of(rule)(event)


def test_of(rule: Mapping[str, Any]) -> BoundPredicate:
    """Return the function that tells whether a rule finds an event, whatever its log source."""
    detection = dict(rule["detection"])
    conditions = detection.pop("condition")
    detection.pop("timeframe", None)
    names = {name: selection(definition) for name, definition in detection.items()}
    if not isinstance(conditions, list):
        conditions = [conditions]
    tests = [Condition(condition, names).parsed() for condition in conditions]
    return lambda event: any(test(event) for test in tests)


# ---------------------------------------------------------------------------------------------------- conditions


class Condition:
    """A condition, read by descent: or, and, not, `x of`, parentheses."""

    def __init__(self, text: str, names: Mapping[str, BoundPredicate]) -> None:
        self.words = re.findall(r"[()]|[^\s()]+", text)
        self.names = names
        self.at = 0

    def parsed(self) -> BoundPredicate:
        test = self.alternatives()
        if self.at < len(self.words):
            raise Unsupported(f"condition: {self.words[self.at :]} is left")
        return test

    def take(self, *words: str) -> bool:
        if self.at < len(self.words) and self.words[self.at].lower() in words:
            self.at += 1
            return True
        return False

    def alternatives(self) -> BoundPredicate:
        parts = [self.conjunction()]
        while self.take("or"):
            parts.append(self.conjunction())
        return lambda event: any(part(event) for part in parts)

    def conjunction(self) -> BoundPredicate:
        parts = [self.negation()]
        while self.take("and"):
            parts.append(self.negation())
        return lambda event: all(part(event) for part in parts)

    def negation(self) -> BoundPredicate:
        if self.take("not"):
            part = self.negation()
            return lambda event: not part(event)
        if self.take("("):
            part = self.alternatives()
            if not self.take(")"):
                raise Unsupported("condition: expected )")
            return part
        return self.selector()

    def selector(self) -> BoundPredicate:
        word = self.words[self.at]
        self.at += 1
        if word in ("1", "any", "all") and self.take("of"):
            pattern = self.words[self.at]
            self.at += 1
            chosen = [test for name, test in self.names.items() if self.is_meant(name, pattern)]
            if not chosen:
                raise Unsupported(f"condition: {pattern} names nothing")
            of = all if word == "all" else any
            return lambda event: of(test(event) for test in chosen)
        return self.names[word]

    @staticmethod
    def is_meant(name: str, pattern: str) -> bool:
        if name.startswith("_") and not pattern.startswith("_"):
            return False
        return pattern == "them" or fnmatch.fnmatchcase(name, pattern)


# ---------------------------------------------------------------------------------------------------- selections


def selection(definition: Any) -> BoundPredicate:
    """Return the test of a search identifier: a map, a list of maps, or keywords."""
    if isinstance(definition, Mapping):
        parts = [item(key, value) for key, value in definition.items()]
        return lambda event: all(part(event) for part in parts)
    if isinstance(definition, list):
        parts = [selection(each) for each in definition]
        return lambda event: any(part(event) for part in parts)
    return item("", definition)


def item(key: str, value: Any) -> BoundPredicate:
    """Return the test of a field, or of keywords, against values."""
    field, *modifiers = key.split("|")
    values = value if isinstance(value, list) else [value]
    if not values:
        values = [None]
    link = all if "all" in modifiers else any
    is_negated = "neq" in modifiers
    modifiers = [each for each in modifiers if each not in ("all", "neq")]
    tests = [one_value(field, modifiers, each) for each in values]
    return lambda event: link(test(event) for test in tests) != is_negated


def one_value(field: str, modifiers: list[str], value: Any) -> BoundPredicate:
    """Return the test of a field, or of a keyword, against one value."""
    if not field:
        return keyword(modifiers, value)
    if "exists" in modifiers:
        return lambda event: (event.get(field) is not None) == value
    if value is None:
        return lambda event: event.get(field) is None
    if "fieldref" in modifiers:
        return reference(field, modifiers, str(value))
    test = value_test(modifiers, value)
    return lambda event: passes(event.get(field), test)


def passes(value: Any, test: ValueTest) -> bool:
    """Return True if a value passes a test; one that is missing passes none, and of a list one element has to."""
    if isinstance(value, list):
        return any(each is not None and test(each) for each in value)
    return value is not None and test(value)


def keyword(modifiers: list[str], value: Any) -> BoundPredicate:
    """Return the test that a value stands within a text of the event."""
    if "re" not in modifiers:
        modifiers = [*modifiers, "contains"]
        value = value if isinstance(value, str) else text_of(value)
    test = value_test(modifiers, value)
    return lambda event: any(passes(each, lambda v: isinstance(v, str) and test(v)) for each in event.values())


def reference(field: str, modifiers: list[str], other: str) -> BoundPredicate:
    """Return the test of a field against another one."""
    begins, ends = "startswith" in modifiers, "endswith" in modifiers
    inside = "contains" in modifiers or (begins and ends)

    def test(event: Event) -> bool:
        values = event.get(field), event.get(other)
        if None in values:
            return False
        a, b = (text_of(each) if "cased" in modifiers else fold(text_of(each)) for each in values)
        return b in a if inside else a.startswith(b) if begins else a.endswith(b) if ends else a == b

    return test


def value_test(modifiers: list[str], value: Any) -> ValueTest:
    """Return the test of values that are there."""
    part = next((TIME_PARTS[each] for each in modifiers if each in TIME_PARTS), None)
    compared = next((COMPARISONS[each] for each in modifiers if each in COMPARISONS), None)
    if part is not None:
        compared = compared or (lambda a, b: a == b)
        return lambda v: isinstance(v, dt.datetime) and compared(part(v), int(value))
    if compared is not None:
        return lambda v: (number := number_of(v)) is not None and compared(number, value)
    if "cidr" in modifiers:
        network = ipaddress.ip_network(value)
        return lambda v: (address := address_of(v)) is not None and address in network
    if "re" in modifiers:
        expression = re.compile(value, sum(FLAGS[each] for each in modifiers if each in FLAGS))
        return lambda v: expression.search(text_of(v)) is not None
    if not modifiers and not isinstance(value, str):
        return lambda v: is_equal(v, value)
    tests = [string_test(tokens, "cased" in modifiers) for tokens in modified(modifiers, tokens_of(text_of(value)))]
    return lambda v: any(test(v) for test in tests)


# -------------------------------------------------------------------------------------------------------- texts


def tokens_of(text: str) -> Tokens:
    """Return the characters and wildcards of a text."""
    found: list[Any] = []
    characters = iter(text)
    for sign in characters:
        if sign == "\\":
            after = next(characters, None)
            if after is None:
                found.append("\\")
            elif after in "\\*?":
                found.append(after)
            else:
                found += ["\\", after]
        else:
            found.append({"*": ANY, "?": ONE}.get(sign, sign))
    return tuple(found)


def modified(modifiers: list[str], tokens: Tokens) -> list[Tokens]:
    """Return the texts that modifiers make of one, in their order."""
    texts, is_bytes = [tokens], False
    for modifier in modifiers:
        match modifier:
            case "contains":
                texts = [(ANY, *each, ANY) for each in texts]
            case "startswith":
                texts = [(*each, ANY) for each in texts]
            case "endswith":
                texts = [(ANY, *each) for each in texts]
            case "windash":
                texts = [made for each in texts for made in dashed(each)]
            case "wide" | "utf16le" | "utf16be" | "utf16":
                texts = [encoded(each, ENCODINGS[modifier]) for each in texts]
                if modifier == "utf16":
                    texts = [("\xff", "\xfe", *each) for each in texts]
                is_bytes = True
            case "base64":
                texts = [tuple(base64.b64encode(bytes_of(each, is_bytes)).decode()) for each in texts]
            case "base64offset":
                texts = [tuple(each) for text in texts for each in shifted(bytes_of(text, is_bytes))]
            case "cased":
                pass
            case _:
                raise Unsupported(f"modifier {modifier}")
    return texts


def dashed(tokens: Tokens) -> list[Tokens]:
    """Return a text with each kind of dash where one begins a word."""

    def is_of_word(at: int) -> bool:
        each = tokens[at] if 0 <= at < len(tokens) else None
        return isinstance(each, str) and re.fullmatch(r"\w", each) is not None

    choices = [
        DASHES if each in ("-", "/") and not is_of_word(at - 1) and is_of_word(at + 1) else (each,)
        for at, each in enumerate(tokens)
    ]
    return list(itertools.product(*choices))


def encoded(tokens: Tokens, encoding: str) -> Tokens:
    """Return the bytes of a text, each as one character."""
    return tuple(
        chr(byte) if isinstance(each, str) else each
        for each in tokens
        for byte in (each.encode(encoding) if isinstance(each, str) else (0,))
    )


def bytes_of(tokens: Tokens, is_bytes: bool) -> bytes:
    if ANY in tokens or ONE in tokens:
        raise Unsupported("base64 of wildcards")
    return "".join(tokens).encode("latin-1" if is_bytes else "utf-8")


def shifted(content: bytes) -> list[str]:
    """Return those characters of the encoding in Base64 that are made of a content alone, at its three places."""
    found = []
    for before in range(3):
        text = base64.b64encode(bytes(before) + content + bytes(3)).decode()
        first = -(-8 * before // 6)
        last = 8 * (before + len(content)) // 6
        found.append(text[first:last])
    return found


def string_test(tokens: Tokens, is_cased: bool) -> ValueTest:
    """Return the test of values against a text with wildcards."""
    plain = "".join(tokens) if ANY not in tokens and ONE not in tokens else None
    middle = tokens
    while middle and middle[0] is ANY:
        middle = middle[1:]
    while middle and middle[-1] is ANY:
        middle = middle[:-1]
    begins, ends = tokens[:1] != (ANY,), tokens[-1:] != (ANY,)
    kept = (lambda text: text) if is_cased else fold
    if ANY not in middle and ONE not in middle:
        part = kept("".join(middle))

        def test(text: str) -> bool:
            text = kept(text)
            if begins and ends:
                return text == part
            return text.startswith(part) if begins else text.endswith(part) if ends else part in text
    else:
        signs = (".*" if each is ANY else "." if each is ONE else re.escape(kept(each)) for each in tokens)
        expression = re.compile("".join(signs), re.DOTALL)

        def test(text: str) -> bool:
            return expression.fullmatch(kept(text)) is not None

    def holds(value: Any) -> bool:
        if isinstance(value, str):
            return test(value)
        if plain is not None and not isinstance(value, bool) and is_equal(value, plain):
            return True
        return test(text_of(value))

    return holds


_folded: dict[str, str] = {}


def fold(text: str) -> str:
    """Return a text in which letters that differ in case alone are one."""
    found = _folded.get(text)
    if found is None:
        found = text.lower() if text.isascii() else "".join(map(_fold_one, text))
        if len(_folded) < 2_000_000:
            _folded[text] = found
    return found


def _fold_one(sign: str) -> str:
    return next((made for made in (sign.casefold(), sign.lower()) if len(made) == 1), sign)


# ------------------------------------------------------------------------------------------------------- values


def text_of(value: Any) -> str:
    """Return a value as a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def number_of(value: Any) -> float | int | None:
    """Return a value as a number; None: it is none."""
    if isinstance(value, str):
        return float(value) if _COMPARABLE.fullmatch(value) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def address_of(value: Any) -> Any:
    """Return a value as an address; None: it is none."""
    try:
        return ipaddress.ip_address(value) if isinstance(value, str) else None
    except ValueError:
        return None


def is_equal(value: Any, other: Any) -> bool:
    """Return True if a value is another one, of a rule: as numbers beside a number, as times beside a time."""
    if isinstance(value, dt.datetime):
        try:
            return isinstance(other, str) and dt.datetime.fromisoformat(other) == value
        except ValueError:
            return False
    if isinstance(value, (str, bool)) or isinstance(other, bool):
        return fold(text_of(value)) == fold(text_of(other))
    if isinstance(other, str):
        return _NUMBER.fullmatch(other) is not None and float(other) == value
    return other == value
