r"""Lucene's regular expressions, as ``regex`` of Elasticsearch has them, as those of RE2.

The grammar is that of Lucene's ``RegExp``: patterns match whole strings; ``^`` and ``$`` are plain characters, and so
is whatever follows a backslash, but for ``\d \s \w`` and ``\D \S \W``.  Beyond the usual operators there are ``@`` (any
string), ``#`` (no string), ``"..."`` (a literal string) and ``<1-31>`` (a whole number).  RE2 has neither intersections
(``&``) nor complements (``~``).
https://www.elastic.co/docs/reference/query-languages/query-dsl/regexp-syntax
"""

from __future__ import annotations

from cer_gpu.ceql.patterns import check_regex, re2_literal

_DIGITS = "0123456789"
_CLASSES = {"d": "0-9", "s": r"\t\n\r ", "w": "0-9A-Z_a-z"}
_COMPLEMENTS = {
    _CLASSES["d"]: r"\x{0}-/:-\x{10FFFF}",
    _CLASSES["s"]: r"\x{0}-\x{8}\x{B}\x{C}\x{E}-\x{1F}!-\x{10FFFF}",
    _CLASSES["w"]: r"\x{0}-/:-@\[-\^`\{-\x{10FFFF}",
}
"""Members of the complements of the classes."""
_MAX_REPEATED = 1000
"""Most times that RE2 repeats an expression."""
_MAX_NESTED = 200
_MAX_DIGITS = 18
"""Most digits of the numbers of ``<n-m>``."""


def re2_of(pattern: str) -> str:
    """Return the regular expression of RE2, without anchors, that matches the strings that one of Lucene matches.

    Raises
    ------
    ValueError
        With a sentence for the user, when the pattern is none, or RE2 has no such operator.
    """
    if not pattern:
        return "(?:)"
    reader = _Reader(pattern)
    regex = reader.union()
    if reader.place < len(pattern):
        raise ValueError(f"the regular expression has {reader.rest()!r} without an opening one before it")
    check_regex(regex)
    return regex


class _Reader:
    """Reader of a pattern by recursive descent; each method returns what it has read in the syntax of RE2."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.place, self.depth = pattern, 0, 0

    def rest(self, n: int = 12) -> str:
        return self.pattern[self.place : self.place + n]

    def peek(self, signs: str) -> bool:
        """Return True if the next character is one of some."""
        return self.place < len(self.pattern) and self.pattern[self.place] in signs

    def take(self, sign: str) -> bool:
        """Read a character if it is the next one."""
        is_next = self.peek(sign)
        self.place += is_next
        return is_next

    def next(self) -> str:
        if self.place == len(self.pattern):
            raise ValueError(f"the regular expression {self.pattern[-12:]!r} ends where a character is expected")
        self.place += 1
        return self.pattern[self.place - 1]

    def union(self) -> str:
        self.depth += 1
        if self.depth > _MAX_NESTED:
            raise ValueError(f"the regular expression is nested more than {_MAX_NESTED} levels deep")
        branches = [self.concatenation()]
        while self.peek("|&"):
            if self.take("&"):
                raise ValueError(r"RE2 has no intersections: '&' in a regular expression is written '\&' for itself")
            self.place += 1
            branches.append(self.concatenation())
        self.depth -= 1
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

    def concatenation(self) -> str:
        """Read repeated expressions; the first one may begin with any character, which is then literal."""
        parts = [self.repeated()]
        while self.place < len(self.pattern) and not self.peek(")|&"):
            parts.append(self.repeated())
        return "".join(parts)

    def repeated(self) -> str:
        regex = self.single()
        while self.peek("?*+{"):
            sign = self.next()
            regex = f"(?:{regex}){sign if sign != '{' else self.count()}"
        return regex

    def count(self) -> str:
        """Read how many times, after the brace."""
        n_min = self.digits()
        if not n_min:
            raise ValueError(f"a number is expected behind '{{' in the regular expression, and not {self.rest()!r}")
        n_max: str | None = n_min
        if self.take(","):
            n_max = self.digits() or None
        if not self.take("}"):
            raise ValueError(
                f"'}}' is expected behind a number of times in the regular expression, not {self.rest()!r}"
            )
        if n_max is not None and int(n_max) < int(n_min):
            raise ValueError(f"'{{{n_min},{n_max}}}' in a regular expression is never")
        if max(int(n_min), int(n_max or 0)) > _MAX_REPEATED:
            raise ValueError(f"RE2 repeats an expression at most {_MAX_REPEATED:,} times")
        return f"{{{int(n_min)},{'' if n_max is None else int(n_max)}}}"

    def digits(self) -> str:
        start = self.place
        while self.peek(_DIGITS):
            self.place += 1
        return self.pattern[start : self.place]

    def single(self) -> str:
        """Read one expression without an operator after it."""
        if self.peek("~"):
            raise ValueError(r"RE2 has no complements: '~' in a regular expression is written '\~' for itself")
        if self.take("["):
            return self.character_class()
        if self.take("."):
            return "(?s:.)"
        if self.take("#"):
            return r"[^\x{0}-\x{10FFFF}]"
        if self.take("@"):
            return "(?s:.*)"
        if self.take('"'):
            return self.glob_of_text()
        if self.take("("):
            if self.take(")"):
                return "(?:)"
            inside = self.union()
            if not self.take(")"):
                raise ValueError("a parenthesis of the regular expression is not closed")
            return f"(?:{inside})"
        if self.take("<"):
            return self.interval()
        return self.predefined() or re2_literal(self.character())

    def glob_of_text(self) -> str:
        end = self.pattern.find('"', self.place)
        if end < 0:
            raise ValueError("a text in quotes of the regular expression is not closed")
        text = self.pattern[self.place : end]
        self.place = end + 1
        return f"(?:{''.join(map(re2_literal, text))})"

    def interval(self) -> str:
        """Read ``<n-m>`` after its first sign."""
        end = self.pattern.find(">", self.place)
        if end < 0:
            raise ValueError("'<' of the regular expression is not closed by '>'")
        text = self.pattern[self.place : end]
        first, dash, last = text.partition("-")
        if not dash:
            raise ValueError(f"there is no automaton of the name <{text}>")
        if not all(part and set(part) <= set(_DIGITS) and len(part) <= _MAX_DIGITS for part in (first, last)):
            raise ValueError(f"<{text}> is no interval of whole numbers of at most {_MAX_DIGITS} digits: <1-31>")
        self.place = end + 1
        low, high = sorted((int(first), int(last)))
        if len(first) == len(last):
            return _interval_regex(low, high, len(first))
        by_length = []
        for n in range(len(str(low)), len(str(high)) + 1):
            by_length.append(_interval_regex(max(low, 10 ** (n - 1) if n > 1 else 0), min(high, 10**n - 1), n))
        return f"(?:0*(?:{'|'.join(by_length)}))"

    def predefined(self) -> str:
        r"""Read a class such as ``\d``, if there is one."""
        name = self.pattern[self.place + 1 : self.place + 2]
        if not self.peek("\\") or not name or name not in "dDsSwW":
            return ""
        self.place += 2
        return f"[{'^' * name.isupper()}{_CLASSES[name.lower()]}]"

    def character(self) -> str:
        self.take("\\")
        return self.next()

    def character_class(self) -> str:
        """Read a class after its bracket; a closing one in first place is a member."""
        negated = self.take("^")
        members = [self.member()]
        while self.place < len(self.pattern) and not self.peek("]"):
            members.append(self.member())
        if not self.take("]"):
            raise ValueError("a class of the regular expression is not closed by ']'")
        return f"[{'^' * negated}{''.join(members)}]"

    def member(self) -> str:
        named = self.predefined()
        if named:
            return _COMPLEMENTS[named[2:-1]] if named[1] == "^" else named[1:-1]
        first = self.character()
        if not self.take("-"):
            return re2_literal(first)
        last = self.character()
        if first > last:
            raise ValueError(f"the range '{first}-{last}' of the regular expression ends before it begins")
        return f"{re2_literal(first)}-{re2_literal(last)}"


def _interval_regex(low: int, high: int, n_digits: int) -> str:
    """Return the expression of the whole numbers of an interval, written with so many digits."""
    if n_digits == 0:
        return ""
    power = 10 ** (n_digits - 1)
    first, last = low // power, high // power
    if first == last:
        return f"{first}{_interval_regex(low % power, high % power, n_digits - 1)}"
    parts = []
    if low % power:
        parts.append(f"{first}{_interval_regex(low % power, power - 1, n_digits - 1)}")
        first += 1
    top = ""
    if high % power != power - 1:
        top = f"{last}{_interval_regex(0, high % power, n_digits - 1)}"
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}]" + "[0-9]" * (n_digits - 1))
    return f"(?:{'|'.join([*parts, *([top] if top else [])])})"
