"""Random rules of Sigma, as what YAML makes of them, and events for them.

Values are few, so that tests hold and fail alike: words in either case, with wildcards and without, in Base64 and as
UTF-16, numbers as numbers and as texts, columns of many types, lists, columns that are not there.
"""

from __future__ import annotations

import base64
import datetime as dt
import random
from typing import Any

import pyarrow as pa

WORDS = (
    "",
    "a",
    "A",
    "b",
    "ab",
    "aB",
    "abc",
    "a*c",
    "a?c",
    "[ab]",
    "É",
    "é",
    "c:\\a",
    "C:\\A\\b",
    "a\\*b",
    "it's",
    "x -a /b",
    "x /A \N{EN DASH}b",
    "a-b",
    "a\nb",
    "12",
    "-7",
    "true",
    "10.0.0.1",
    "x" + base64.b64encode(b"abc").decode() + "y",
    "--" + base64.b64encode(b"-abcd").decode(),
    base64.b64encode("..ab".encode("utf-16-le")).decode(),
    base64.b64encode("ab".encode("utf-16")).decode(),
    "a\0b\0",
)
PATTERNS = (
    *WORDS[:19],
    "*",
    "?",
    "a*",
    "*b",
    "?b",
    "a\\*c",
    "a\\?c",
    "c:\\\\*",
    "*\\a",
    "c:\\\\a",
    "*\\\\\\*b",
    "**",
    "?*",
    "a*\\",
    "a'b",
    "/a",
    " -b",
    "-a /b",
    "`*`",
    "{a}",
    "12",
    "true",
)
EXPRESSIONS = ("a", "^a", "b$", "a.b", "^a.*b$", "[ab]{2}", "(a|b)c?", "c:\\\\a", "a\\*c", "-[a-z]", "é", "^$", "'s")
ADDRESSES = ("10.0.0.1", "10.6.48.157", "192.168.0.7", "::1", "2001:db8::5", "none", "")
NETWORKS = ("10.0.0.0/8", "10.6.48.157/32", "192.168.0.0/16", "0.0.0.0/0", "::1/128", "2001:db8::/32", "10.0.0.0/30")
TIMES = ("2024-12-30T23:59:58", "2024-12-31 00:59:58", "2024-12-30", "2024", "a")
PLAIN_WORDS = ("a", "ab", "abc", "abcd", "é", "c:\\a")
START = dt.datetime(2024, 12, 30, 23, 59, 58)

SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us"),
        "Image": pa.string(),
        "CommandLine": pa.string(),
        "User": pa.dictionary(pa.int32(), pa.string()),
        "odd-name": pa.string(),
        "Large": pa.large_string(),
        "n": pa.int64(),
        "m": pa.uint8(),
        "v": pa.float64(),
        "flag": pa.bool_(),
        "Port": pa.string(),
        "Ip": pa.string(),
        "Tags": pa.list_(pa.string()),
        "Ports": pa.list_(pa.int64()),
    }
)
TEXTS = ("Image", "CommandLine", "User", "odd-name", "Large", "Tags", "no_such_field")
NUMBERS = ("n", "m", "v", "Port", "Ports", "n", "Image")
SINGLE = ("Image", "CommandLine", "User", "n", "m", "flag", "Port", "no_such_field")
DIGITS = ("1", "2", "3", "10", "-7", "01", "1.5", "", "a", " 1")


def events_of(rnd: random.Random, n: int, rare: float = 0.15) -> list[dict[str, Any]]:
    """Return events, with values missing at a rate."""
    found = []
    for _ in range(n):
        event: dict[str, Any] = {
            "ts": START + rnd.choice([0, 1, 61, 3600, 86400 * 3, 86400 * 40]) * dt.timedelta(seconds=1),
            "Image": rnd.choice(WORDS),
            "CommandLine": rnd.choice(WORDS),
            "User": rnd.choice(WORDS),
            "odd-name": rnd.choice(WORDS),
            "Large": rnd.choice(WORDS),
            "n": rnd.choice([-7, 0, 1, 2, 12, 2**53 + 1]),
            "m": rnd.choice([0, 1, 2, 12]),
            "v": rnd.choice([-7.0, 0.0, 0.5, 1.0, 1.5, 12.0]),
            "flag": rnd.random() < 0.5,
            "Port": rnd.choice(DIGITS),
            "Ip": rnd.choice(ADDRESSES),
            "Tags": [rnd.choice([*WORDS, None]) for _ in range(rnd.randint(0, 3))],
            "Ports": [rnd.choice([1, 2, 12, None]) for _ in range(rnd.randint(0, 3))],
        }
        found.append({name: None if rnd.random() < rare else value for name, value in event.items()})
    return found


class Draw:
    """Draws rules.

    Parameters
    ----------
    rnd
    """

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd

    def rule(self) -> dict[str, Any]:
        """Return a rule."""
        rnd = self.rnd
        names = rnd.sample(
            ["selection", "selection_a", "selection-b", "filter_1", "filter_main", "keywords", "_x", "not_it"],
            rnd.randint(1, 4),
        )
        if all(name.startswith("_") for name in names):
            names.append("selection")
        detection: dict[str, Any] = {name: self.selection() for name in names}
        conditions = [self.condition(names) for _ in range(rnd.choice([1, 1, 1, 2]))]
        detection["condition"] = conditions if len(conditions) > 1 else conditions[0]
        return {"title": "drawn", "logsource": {"product": "windows"}, "detection": detection}

    # ---- conditions -----------------------------------------------------------------------------------------------

    def condition(self, names: list[str], depth: int = 0) -> str:
        """Return a condition."""
        rnd = self.rnd
        draw = rnd.random()
        if depth > 2 or draw < 0.35:
            return self.leaf(names)
        if draw < 0.5:
            return f"not {self.grouped(names, depth)}"
        word = " and " if draw < 0.75 else " or "
        return word.join(self.grouped(names, depth) for _ in range(rnd.choice([2, 2, 3])))

    def grouped(self, names: list[str], depth: int) -> str:
        """Return a part of a condition, mostly in parentheses: precedence is met without them."""
        inner = self.condition(names, depth + 1)
        return f"({inner})" if self.rnd.random() < 0.6 else inner

    def leaf(self, names: list[str]) -> str:
        """Return a name, or a selector that names something."""
        rnd = self.rnd
        if rnd.random() < 0.6:
            return rnd.choice(names)
        patterns = [f"{name[:3]}*" for name in names if "-" not in name[:3]]
        patterns += ["them"] if any(not name.startswith("_") for name in names) else []
        return f"{rnd.choice(['1', 'all', 'any'])} of {rnd.choice(patterns)}"

    # ---- selections -----------------------------------------------------------------------------------------------

    def selection(self) -> Any:
        """Return a map, a list of maps, keywords, or a list of both."""
        rnd = self.rnd
        draw = rnd.random()
        if draw < 0.65:
            return self.map()
        if draw < 0.75:
            return [self.map() for _ in range(rnd.randint(1, 3))]
        if draw < 0.85:
            return [self.keyword() for _ in range(rnd.randint(1, 3))]
        if draw < 0.9:
            return self.keyword()
        if draw < 0.95:
            return {"|all": [self.keyword() for _ in range(rnd.randint(1, 3))]}
        return [self.keyword(), self.map()]

    def keyword(self) -> Any:
        """Return a keyword."""
        return self.rnd.choice([*PATTERNS[1:], 12, -7])

    def map(self) -> dict[str, Any]:
        """Return a map of fields, one of each key."""
        return dict(self.item() for _ in range(self.rnd.choice([1, 1, 2, 3])))

    def item(self) -> tuple[str, Any]:
        """Return a key, with its modifiers, and its value or values."""
        kinds = (self.of_text, self.of_text, self.of_text, self.of_number, self.of_other)
        field, modifiers, values = self.rnd.choice(kinds)()
        rnd = self.rnd
        value = values if len(values) > 1 or rnd.random() < 0.2 else values[0]
        modifiers = [*modifiers]
        if len(values) > 1 and rnd.random() < 0.3:
            modifiers.append("all")
        if "exists" not in modifiers and rnd.random() < 0.1:
            modifiers.append("neq")
        return "|".join([field, *modifiers]), value

    def several(self, draw: Any) -> list[Any]:
        """Return one value, or some."""
        return [draw() for _ in range(self.rnd.choice([1, 1, 1, 2, 3]))]

    def of_text(self) -> tuple[str, list[str], list[Any]]:
        """Return a test of texts, of any column."""
        rnd = self.rnd
        field = rnd.choice(TEXTS) if rnd.random() < 0.8 else rnd.choice(SCHEMA.names[1:])
        draw = rnd.random()
        if draw < 0.03:
            return "ts", [], self.several(lambda: rnd.choice(TIMES))
        if draw < 0.65:
            place = rnd.choice([[], ["contains"], ["startswith"], ["endswith"]])
            modifiers = rnd.choice([place, place, [*place, "cased"], ["windash", *place], [*place, "windash"]])
            return field, modifiers, self.several(lambda: rnd.choice(PATTERNS))
        if draw < 0.8:
            flags = rnd.choice([[], ["i"], ["m"], ["s"], ["i", "s"]])
            return field, ["re", *flags], self.several(lambda: rnd.choice(EXPRESSIONS))
        kind = rnd.choice(["wide", "utf16le", "utf16be", "utf16", ""])
        code = ["base64offset", "contains"] if rnd.random() < 0.6 else ["base64", *rnd.choice([[], ["contains"]])]
        among = PLAIN_WORDS if not kind else [word for word in PLAIN_WORDS if word.isascii()]
        return field, [*([kind] if kind else []), *code], self.several(lambda: rnd.choice(among))

    def of_number(self) -> tuple[str, list[str], list[Any]]:
        """Return a test of numbers, of columns of numbers and of texts."""
        rnd = self.rnd
        field, draw = rnd.choice(NUMBERS), rnd.random()
        if draw < 0.4:
            return field, [], self.several(lambda: rnd.choice([-7, 0, 1, 2, 12, 1.5, 2**53, 2**53 + 1]))
        if draw < 0.6:
            return field, [], self.several(lambda: rnd.choice(["1", "12", "-7", "1*", "0.5", "01", "*", 2, "1.0"]))
        if draw < 0.9:
            return field, [rnd.choice(["lt", "lte", "gt", "gte"])], self.several(lambda: rnd.choice([-7, 1, 1.5, 12]))
        part = rnd.choice(["minute", "hour", "day", "week", "month", "year"])
        compared = rnd.choice([[], [], ["lt"], ["gte"]])
        return "ts", [part, *compared], self.several(lambda: rnd.choice([0, 1, 2, 12, 23, 30, 31, 59, 2024, 2025]))

    def of_other(self) -> tuple[str, list[str], list[Any]]:
        """Return a test of presence, of a truth, an address, or two fields."""
        rnd = self.rnd
        draw = rnd.random()
        if draw < 0.2:
            return rnd.choice([*SCHEMA.names, "no_such_field"]), [], [None]
        if draw < 0.4:
            return rnd.choice([*SCHEMA.names, "no_such_field"]), ["exists"], [rnd.random() < 0.5]
        if draw < 0.55:
            return rnd.choice(["flag", "flag", "Image", "n"]), [], [rnd.choice([True, False, "true", "TRUE"])]
        if draw < 0.8:
            place = rnd.choice([[], [], ["startswith"], ["endswith"], ["contains"]])
            return rnd.choice(SINGLE), [*rnd.choice([[], ["cased"]]), "fieldref", *place], [rnd.choice(SINGLE)]
        return rnd.choice(["Ip", "Ip", "Ip", "Image", "n"]), ["cidr"], self.several(lambda: rnd.choice(NETWORKS))
