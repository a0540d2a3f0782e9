r"""Regular expressions of Lucene in RE2, against a plain matcher of Lucene's syntax."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st
from strategies import property_test

from cer_gpu.eql.regexes import re2_of

# ---- a plain matcher: a pattern is a function of a text and the places where it may begin, which returns its ends ----


def chars(accepts):
    return lambda text, at: {i + 1 for i in at if i < len(text) and accepts(text[i])}


def empty(text, at):
    return at


def after(one, other):
    return lambda text, at: other(text, one(text, at))


def either(one, other):
    return lambda text, at: one(text, at) | other(text, at)


def times(one, least, most):
    def ends(text, at):
        for _ in range(least):
            at = one(text, at)
        found, n = set(at), least
        while at and (most is None or n < most):
            at = one(text, at) - (found if most is None else set())
            found |= at
            n += 1
        return found

    return ends


def numbers_between(low, high):
    first, last = sorted((int(low), int(high)))
    width = len(low) if len(low) == len(high) else None

    def ends(text, at):
        found = set()
        for i in at:
            j = i
            while j < len(text) and text[j] in "0123456789":
                j += 1
                if first <= int(text[i:j]) <= last and width in (None, j - i):
                    found.add(j)
        return found

    return ends


WORD = set("0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
NAMED = {"d": set("0123456789"), "s": set(" \t\n\r"), "w": WORD}


class Plain:
    """Lucene's grammar, as its documentation has it."""

    def __init__(self, pattern):
        self.left = list(pattern)

    def whole(self):
        found = self.union() if self.left else empty
        assert not self.left
        return found

    def union(self):
        found = self.row()
        while self.left[:1] == ["|"]:
            self.left.pop(0)
            found = either(found, self.row())
        return found

    def row(self):
        found = self.repeated()
        while self.left and self.left[0] not in ")|":
            found = after(found, self.repeated())
        return found

    def repeated(self):
        found = self.one()
        while self.left and self.left[0] in "?*+{":
            sign = self.left.pop(0)
            least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(sign, (0, 0))
            if sign == "{":
                inside = ""
                while (sign := self.left.pop(0)) != "}":
                    inside += sign
                least, *more = inside.split(",")
                most = int(least) if not more else int(more[0]) if more[0] else None
            found = times(found, int(least), most)
        return found

    def named(self):
        """Return the class of a name such as \\d, or None."""
        if self.left[0] != "\\" or len(self.left) < 2 or self.left[1].lower() not in NAMED:
            return None
        name = self.left[1]
        del self.left[:2]
        return lambda c: (c in NAMED[name.lower()]) == name.islower()

    def character(self):
        if self.left[0] == "\\":
            self.left.pop(0)
        return self.left.pop(0)

    def one(self):
        named = self.named()
        if named is not None:
            return chars(named)
        sign = self.left.pop(0)
        if sign == ".":
            return chars(lambda c: True)
        if sign == "#":
            return lambda text, at: set()
        if sign == "@":
            return lambda text, at: {j for i in at for j in range(i, len(text) + 1)}
        if sign == '"':
            end = self.left.index('"')
            text = self.left[:end]
            del self.left[: end + 1]
            found = empty
            for letter in text:
                found = after(found, chars(lambda c, letter=letter: c == letter))
            return found
        if sign == "(":
            if self.left[0] == ")":
                self.left.pop(0)
                return empty
            found = self.union()
            assert self.left.pop(0) == ")"
            return found
        if sign == "<":
            end = self.left.index(">")
            low, high = "".join(self.left[:end]).split("-")
            del self.left[: end + 1]
            return numbers_between(low, high)
        if sign == "[":
            return self.members()
        if sign == "\\":
            sign = self.left.pop(0)
        return chars(lambda c: c == sign)

    def members(self):
        negated = self.left[0] == "^"
        if negated:
            self.left.pop(0)
        found = []
        while not found or self.left[0] != "]":
            named = self.named()
            if named is not None:
                found.append(named)
                continue
            first = last = self.character()
            if self.left[0] == "-":
                self.left.pop(0)
                last = self.character()
            found.append(lambda c, first=first, last=last: first <= c <= last)
        self.left.pop(0)
        return chars(lambda c: any(accepts(c) for accepts in found) != negated)


def matches(pattern, text):
    return len(text) in Plain(pattern).whole()(text, {0})


def re2_matches(pattern, texts):
    whole = rf"(?s)\A(?:{re2_of(pattern)})\z"
    return pc.match_substring_regex(pa.array(texts, pa.string()), whole).to_pylist()


# ---- tests -----------------------------------------------------------------------------------------------------------

LETTERS = "ab1 _^$-é\n\\.*"
atoms = st.one_of(
    st.sampled_from(
        ["a", "b", "1", "^", "$", "-", "é", ".", "@", "()", r"\.", r"\\", r"\*", r"\n", r"\d", r"\S", r"\W"]
    ),
    st.sampled_from(
        ['"a*"', '""', "[ab]", "[^ab]", "[]a]", "[^]1]", r"[\]\-]", r"[\d_]", r"[^\s\D]", "[a-c-]", "[ -b]"]
    ),
    st.sampled_from(["<1-11>", "<01-11>", "<9-120>", "<1-1>", "#"]),
)
counts = st.sampled_from(["?", "*", "+", "{2}", "{1,}", "{0,2}", "{1,3}"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds("({}){}".format, inner, counts),
        st.builds("{}{}{}".format, atoms, counts, st.sampled_from(["", "?"])),
    ),
    max_leaves=6,
)
texts = st.text(st.sampled_from(LETTERS), max_size=6)


@property_test(10)
def test_patterns_match_as_their_grammar_says(data):
    pattern = data.draw(patterns, label="pattern")
    drawn = data.draw(st.lists(texts, min_size=1, max_size=8), label="texts")
    assert re2_matches(pattern, drawn) == [matches(pattern, text) for text in drawn]


@pytest.mark.parametrize(
    "interval", ["<0-0>", "<0-255>", "<1-31>", "<7-1200>", "<007-120>", "<199-201>", "<20-3>", "<8-10>"]
)
def test_intervals_hold_their_numbers_alone(interval):
    written = [str(n).zfill(width) for n in range(1300) for width in range(1, 6)]
    assert re2_matches(interval, written) == [matches(interval, text) for text in written]


@pytest.mark.long("tries every character")
@pytest.mark.parametrize("name", "dDsSwW")
def test_named_classes_hold_their_characters_alone(name):
    every = [chr(code) for code in [*range(1, 0xD800), 0x10FFFF]]
    for pattern in (rf"\{name}", rf"[\{name}]", rf"[^\{name}]"):
        assert re2_matches(pattern, every) == [matches(pattern, text) for text in every]


FACTS = [
    ("", "", True),
    ("", "a", False),
    ("net\\.exe", "net.exe", True),
    ("net", "net.exe", False),
    (".*?", "a\nb", True),
    ("^a$", "a", False),
    ("^a$", "^a$", True),
    (r"\n", "n", True),
    (r"\n", "\n", False),
    ("|a", "|a", True),
    ("*a", "*a", True),
    ("a]}", "a]}", True),
    ("(?i)a", "?ia", True),
    ("[a-z&&b]", "&", True),
    ("a{1000}", "a" * 1000, True),
    ('"a|b"', "a|b", True),
    (r"\&\~", "&~", True),
    ("C:\\\\Program Files( \\(x86\\))?\\\\.+", "C:\\Program Files (x86)\\x", True),
]


@pytest.mark.parametrize(("pattern", "text", "holds"), FACTS)
def test_patterns_are_read_as_lucene_reads_them(pattern, text, holds):
    assert re2_matches(pattern, [text]) == [holds]


REFUSED = {
    "a~b": "RE2 has no complements",
    "a&b": "RE2 has no intersections",
    "a{1001}": "at most 1,000 times",
    "a{3,2}": "is never",
    "a{": "a number is expected",
    "a{2": "'}' is expected",
    "(a": "is not closed",
    "a)": "without an opening one",
    "[a": "is not closed",
    "[b-a]": "ends before it begins",
    '"a': "is not closed",
    "a\\": "ends where a character is expected",
    "a|": "ends where a character is expected",
    "((a{900}){900}){900}": "not a regular expression (RE2)",
    "<name>": "there is no automaton",
    "<1-": "is not closed",
    "<1-b>": "no interval",
    "<-3>": "no interval",
    "(" * 201 + ")" * 201: "nested more than",
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_re2_cannot_say_is_refused_by_name(pattern):
    with pytest.raises(ValueError, match=re.escape(REFUSED[pattern])):
        re2_of(pattern)
