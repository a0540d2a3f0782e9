"""Random EQL queries, as trees of `reference`, and events for them.

Values are few, so that tests hold and fail alike, keys meet and times tie: words in either case, wildcard signs, texts
that begin, end and contain others, NULL, lists with NULL, empty lists, numbers of both signs and zero.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from tests.eql import reference as ref

CATEGORIES = ("process", "file", "network")
WORDS = (
    "",
    "a",
    "A",
    "b",
    "ab",
    "aB",
    "Ab",
    "abc",
    "a*c",
    "a?c",
    "b*",
    "C:\\a",
    "c:\\A\\b",
    'q"',
    "a\nb",
    "12",
    "0x1F",
    "-7",
)
PATTERNS = (*WORDS, "*", "?", "a*", "*b", "*B*", "?b", "a?c", "*\\*", "c:\\*", "**", "?*")
EXPRESSIONS = ("a", "a.*", ".*b", "[ab]+", "(a|b)c?", "A[a-z]*", "a?b?c?", ".{2}", "c:\\\\.*", "a\\*c")
ADDRESSES = ("10.0.0.1", "10.6.48.157", "192.168.0.7", "::1", "2001:db8::5", "none")
NETWORKS = ("10.0.0.0/8", "10.6.48.157/8", "192.168.0.0/16", "0.0.0.0/0", "::1/128", "2001:db8::/32")
SECOND = 1000

SCHEMA = pa.schema(
    {
        ref.TIME: pa.timestamp("ms"),
        ref.CATEGORY: pa.string(),
        "process.name": pa.string(),
        "process.parent.name": pa.string(),
        "process.args": pa.list_(pa.string()),
        "n": pa.int64(),
        "m": pa.int32(),
        "v": pa.float64(),
        "ports": pa.list_(pa.int64()),
        "flag": pa.bool_(),
        "odd-name": pa.string(),
        "ip": pa.string(),
        "user.id": pa.string(),
        "host.id": pa.int64(),
        "user.target.id": pa.string(),
    }
)
TEXTS = ("process.name", "process.name", "process.parent.name", "odd-name")
NUMBERS = ("n", "n", "m")
MISSING = "no.such.field"
LISTS = {"ports", "process.args"}


def rows_of(rnd: random.Random, n: int, rare: float = 0.15) -> list[ref.Row]:
    """Return n events whose times do not decrease, with values missing at a rate, and at times several categories."""
    found = []
    listed = rnd.random() < 0.2
    time = 0
    for _ in range(n):
        time += rnd.choice([0, 0, 1, 1, 1, 2, 5]) * SECOND
        row: ref.Row = {
            ref.TIME: time,
            ref.CATEGORY: rnd.sample(CATEGORIES, rnd.randint(0, 2)) if listed else rnd.choice(CATEGORIES),
            "process.name": rnd.choice(WORDS),
            "process.parent.name": rnd.choice(WORDS),
            "process.args": [rnd.choice([*WORDS, None]) for _ in range(rnd.randint(0, 3))],
            "n": rnd.randint(-3, 3),
            "m": rnd.randint(-3, 3),
            "v": rnd.choice([-1.5, 0.0, 0.5, 1.0, 2.0]),
            "ports": [rnd.choice([1, 2, 3, None]) for _ in range(rnd.randint(0, 3))],
            "flag": rnd.random() < 0.5,
            "odd-name": rnd.choice(WORDS),
            "ip": rnd.choice(ADDRESSES),
            "user.id": rnd.choice("aA"),
            "host.id": rnd.randint(1, 2),
            "user.target.id": rnd.choice("aA"),
        }
        for name in row:
            if name != ref.TIME and rnd.random() < (rare if name != ref.CATEGORY else rare / 4):
                row[name] = None
        found.append(row)
    return found


def table_of(rows: list[ref.Row], nested: bool = False) -> pa.Table:
    """Return events as a table: a column for each name, or structs where names have dots."""
    schema = SCHEMA
    if any(isinstance(row[ref.CATEGORY], list) for row in rows):
        schema = schema.set(1, pa.field(ref.CATEGORY, pa.list_(pa.string())))
    if not nested:
        return pa.Table.from_pylist(rows, schema)
    trees: list[dict[str, Any]] = [{} for _ in rows]
    for tree, row in zip(trees, rows, strict=True):
        for name, value in row.items():
            *path, last = name.split(".")
            inside = tree
            for part in path:
                inside = inside.setdefault(part, {})
            inside[last] = value
    return pa.Table.from_pylist(trees, _nested(schema))


def _nested(schema: pa.Schema) -> pa.Schema:
    tree: dict[str, Any] = {}
    for each in schema:
        *path, last = each.name.split(".")
        inside = tree
        for part in path:
            inside = inside.setdefault(part, {})
        inside[last] = each.type
    return pa.schema(_types(tree))


def _types(tree: dict[str, Any]) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.struct(_types(made)) if isinstance(made, dict) else made) for name, made in tree.items()]


class Draw:
    """Draws conditions, and queries of each kind."""

    def __init__(self, rnd: random.Random, *, missing: bool = True) -> None:
        self.rnd = rnd
        self.missing = missing
        self.list: str | None = None  # the one that the test that is drawn reads

    # ---- values -----------------------------------------------------------------------------------------------------

    def text_field(self) -> ref.Field:
        rnd = self.rnd
        if self.missing and rnd.random() < 0.04:
            return ref.Field(MISSING, optional=True)
        name = self.one_list("process.args") if rnd.random() < 0.2 else rnd.choice(TEXTS)
        return ref.Field(name, optional=rnd.random() < 0.1)

    def one_list(self, name: str) -> str:
        """Return a list, or a column of its type where the test reads another list already."""
        if self.list not in (None, name):
            return {"process.args": "process.name", "ports": "n"}[name]
        self.list = name
        return name

    def text(self, depth: int = 0) -> Any:
        rnd = self.rnd
        if depth > 1 or rnd.random() < 0.7:
            return self.text_field()
        n, words = self.position, self.word
        match rnd.randrange(5):
            case 0:
                return ref.Call("substring", (self.text(depth + 1), n(), n())[: rnd.choice([2, 3])])
            case 1:
                operands = (self.text(depth + 1), words(), words(), ref.Constant(rnd.random() < 0.5))
                return ref.Call("between", operands[: rnd.choice([3, 4])], rnd.random() < 0.4)
            case 2:
                parts = [self.text(depth + 1), *rnd.sample([words(), self.number(2)], rnd.randint(0, 2))]
                return ref.Call(rnd.choice(["concat", "CONCAT"]), tuple(rnd.sample(parts, len(parts))))
            case 3:
                return ref.Call("string", (rnd.choice([ref.Field("n"), ref.Field("flag"), ref.Field("v")]),))
            case _:
                return ref.Call("concat", (self.text(depth + 1), words()))

    def word(self) -> ref.Constant:
        return ref.Constant(self.rnd.choice(WORDS))

    def position(self) -> ref.Constant:
        return ref.Constant(self.rnd.randint(-4, 5))

    def number(self, depth: int = 0) -> Any:
        rnd = self.rnd
        draw = rnd.random()
        if depth > 1 or draw < 0.5:
            name = rnd.choice([*NUMBERS, "ports"]) if rnd.random() < 0.85 else "v"
            return ref.Field(self.one_list(name) if name == "ports" else name)
        if draw < 0.6:
            return ref.Constant(rnd.randint(1, 3))
        if draw < 0.65:
            return ref.Negative(self.number(depth + 1))
        if draw < 0.8:
            op, whole = rnd.choice("+-*/%"), (self.whole(depth + 1), self.whole(depth + 1))
            return ref.Arithmetic(op, *whole)
        if draw < 0.85:
            name = rnd.choice(["add", "subtract", "multiply", "divide", "modulo"])
            return ref.Call(name, (self.whole(depth + 1), self.whole(depth + 1)))
        if draw < 0.9:
            return ref.Call("length", (self.text(1),))
        if draw < 0.95:
            operands = (self.text(1), self.word(), self.position())
            return ref.Call("indexOf", operands[: rnd.choice([2, 3])], rnd.random() < 0.5)
        return ref.Call("number", (self.text_field(), ref.Constant(rnd.choice([10, 16])))[: rnd.choice([1, 2])])

    def whole(self, depth: int) -> Any:
        rnd = self.rnd
        if depth > 1 or rnd.random() < 0.6:
            return ref.Field(rnd.choice(NUMBERS)) if rnd.random() < 0.6 else ref.Constant(rnd.randint(0, 3))
        return ref.Arithmetic(rnd.choice("+-*/%"), self.whole(depth + 1), self.whole(depth + 1))

    # ---- conditions -------------------------------------------------------------------------------------------------

    def test(self) -> Any:
        """Draw a test that reads a field, and one list at most; now and then a constant."""
        if self.rnd.random() < 0.02:
            return ref.Constant(self.rnd.random() < 0.8)
        while True:
            self.list = None
            drawn = self.any_test()
            if ref.fields_of(drawn):
                return drawn

    def any_test(self) -> Any:
        rnd = self.rnd
        draw = rnd.random()
        if draw < 0.2:
            return ref.Compare(rnd.choice(["==", "==", "!=", "<", "<=", ">", ">="]), self.text(), self.word())
        if draw < 0.35:
            constant = ref.Constant(rnd.choice([rnd.randint(-3, 3), rnd.randint(-3, 3), 0.5, 1.0]))
            sides = (self.number(), constant if rnd.random() < 0.9 else self.number(1))
            op = rnd.choice(["==", "!=", "<", "<=", ">", ">="])
            return ref.Compare(op, *(sides if rnd.random() < 0.85 else sides[::-1]))
        if draw < 0.6:
            op = rnd.choice([":", ":", ":", "like", "like~", "regex", "regex~"])
            among = EXPRESSIONS if op.startswith("regex") else PATTERNS
            values = tuple(ref.Constant(rnd.choice(among)) for _ in range(rnd.choice([1, 1, 2, 3])))
            return ref.Match(op, self.text(), values, len(values) > 1 or rnd.random() < 0.3)
        if draw < 0.72:
            op = rnd.choice(["in", "in~", "not in", "not in~"])
            if not op.endswith("~") and rnd.random() < 0.4:
                return ref.Match(op, self.number(), tuple(ref.Constant(rnd.randint(-3, 3)) for _ in range(2)))
            return ref.Match(op, self.text(), tuple(self.word() for _ in range(rnd.randint(1, 3))))
        if draw < 0.82:
            name = rnd.choice(["startsWith", "endsWith", "stringContains", "startswith", "wildcard"])
            value = ref.Constant(rnd.choice(PATTERNS)) if name == "wildcard" else self.word()
            call = ref.Call(name, (self.text(), value), rnd.random() < 0.5)
            return (
                call
                if rnd.random() < 0.8
                else ref.Compare(rnd.choice(["==", "!="]), call, ref.Constant(rnd.random() < 0.5))
            )
        if draw < 0.87:
            blocks = tuple(ref.Constant(each) for each in rnd.sample(NETWORKS, rnd.randint(1, 2)))
            return ref.Call("cidrMatch", (ref.Field("ip"), *blocks))
        if draw < 0.94:
            whose = rnd.choice([self.text, self.number, lambda: ref.Field("flag")])()
            sides = (whose, ref.Constant(None))
            return ref.Compare(rnd.choice(["==", "!="]), *(sides if rnd.random() < 0.8 else sides[::-1]))
        flag = ref.Field("flag")
        return flag if rnd.random() < 0.5 else ref.Compare("==", flag, ref.Constant(rnd.random() < 0.5))

    def condition(self, depth: int = 0) -> Any:
        rnd = self.rnd
        draw = rnd.random()
        if depth > 2 or draw < 0.55:
            return self.test()
        if draw < 0.7:
            return ref.Not(self.condition(depth + 1))
        kind = ref.And if draw < 0.85 else ref.Or
        return kind(self.condition(depth + 1), self.condition(depth + 1))

    # ---- queries ----------------------------------------------------------------------------------------------------

    def pipes(self) -> tuple[tuple[str, int], ...]:
        rnd = self.rnd
        n = rnd.choice([0, 0, 0, 0, 0, 1, 1, 2])
        return tuple((rnd.choice(["head", "tail"]), rnd.randint(1, 4)) for _ in range(n))

    def category(self) -> str | None:
        return self.rnd.choice([None, *CATEGORIES])

    def event(self) -> ref.Query:
        return ref.Query("event", (ref.Term(self.category(), self.condition()),), pipes=self.pipes())

    def easy(self) -> Any:
        """Draw a condition that holds often."""
        rnd = self.rnd
        return ref.Constant(True) if rnd.random() < 0.4 else self.condition(2)

    def condition_as_value(self) -> Any:
        """Draw a comparison of a condition with null, or of its text."""
        rnd = self.rnd
        inner = self.condition(rnd.choice([1, 1, 2]))
        while LISTS & set(ref.fields_of(inner)) or isinstance(inner, ref.Constant):  # refused
            inner = self.condition(rnd.choice([1, 1, 2]))
        shown, null = ref.Call("string", (inner,)), ref.Constant(None)
        return rnd.choice(
            [
                ref.Compare("==", null, inner),
                ref.Compare("!=", inner, null),
                ref.Match(":", shown, (ref.Constant(rnd.choice(["TRUE", "false", "t*"])),), False),
                ref.Compare("!=", shown, ref.Constant(rnd.choice(["true", "false"]))),
                ref.Match("not in", shown, (ref.Constant("true"),)),
                ref.Compare(rnd.choice(["==", "!="]), shown, null),
            ]
        )

    def keys(self) -> tuple[tuple[ref.Field, ...], list[list[str]]]:
        """Draw keys before the terms, and for each key of the terms the columns among which each term has its own."""
        rnd = self.rnd
        plain = [(), (), ("user.id",), ("host.id",), ("host.id", "user.id"), ("process.name",)]
        names = rnd.choice([*plain, ("ports",), ("process.args", "user.id"), (MISSING,)])
        unlike = [["user.id", "user.target.id"]], [["host.id", "n"], ["user.id"]], [["user.id", MISSING]]
        columns = rnd.choice([[], [], [], *unlike, [["n", "ports"]], [["process.args", "process.name"]]])
        return tuple(self.key(name, 0.3) for name in names), columns

    def key(self, name: str, optional: float) -> ref.Field:
        return ref.Field(name, name == MISSING or self.rnd.random() < optional)

    def own(self, columns: list[list[str]]) -> tuple[ref.Field, ...]:
        return tuple(self.key(self.rnd.choice(among), 0.4) for among in columns)

    def sequence(self, absent: bool = False) -> ref.Query:
        rnd = self.rnd
        shared, columns = self.keys()
        n = rnd.choice([2, 2, 3, 4])
        terms = [ref.Term(self.category(), self.easy(), self.own(columns)) for _ in range(n)]
        terms = [self.repeated(term) if rnd.random() < 0.15 else term for term in terms]
        span = rnd.choice([None, 1, 2, 3, 6, 12]) if not absent else rnd.choice([1, 2, 3, 6, 12])
        if absent:
            # before the first step all terms have the same keys, and no lists
            places = range(1 if columns or LISTS & {key.name for key in shared} else 0, n + 1)
            for place in sorted(rnd.sample(places, rnd.choice([1, 1, 1, 2])), reverse=True):
                terms.insert(place, ref.Term(self.category(), self.easy(), self.own(columns), absent=True))
        until = ref.Term(self.category(), self.condition(2), self.own(columns)) if rnd.random() < 0.3 else None
        until = None if any(LISTS & set(among) for among in columns) else until  # refused
        span = None if span is None else span * SECOND
        return ref.Query("sequence", tuple(terms), shared, span, until, self.pipes())

    def repeated(self, term: ref.Term) -> ref.Term:
        return ref.Term(term.category, term.condition, term.keys, self.rnd.choice([2, 2, 3]))

    def sample(self) -> ref.Query:
        """Draw a sample, which has keys."""
        rnd = self.rnd
        shared, columns = self.keys()
        shared = shared if shared or columns else (self.key("host.id", 0.3),)
        terms = (ref.Term(self.category(), self.easy(), self.own(columns)) for _ in range(rnd.choice([2, 2, 3])))
        return ref.Query("sample", tuple(terms), shared, None, None, self.pipes())


def spelling(rnd: random.Random) -> Any:
    """Return a writer of strings that picks among the ways to write one."""

    def code(each: str) -> str:
        return "\\u{" + format(ord(each), rnd.choice(["02x", "04x", "08X"])) + "}"

    def write(value: str) -> str:
        if rnd.random() < 0.2 and '"' not in value and "\n" not in value:
            return f'"""{value}"""'
        if rnd.random() < 0.2:
            return '"' + "".join(map(code, value)) + '"'
        return ref.quoted(value)

    return write
