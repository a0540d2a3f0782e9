"""Random patterns of SELECT RECENT, their text, and streams in which they find something."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import reference_recent as ref

TYPES = "AAABBBCCD*"
NUMBERS = ("k", "k", "k", "m", "u", "v")
TEXTS = ("s", "s", "t")
NAN = float("nan")


class Drawn:
    """A random query: a tree for the reference, and its text."""

    def __init__(self, rnd: random.Random, *, lengths: bool = True) -> None:
        self.rnd = rnd
        self.n_names = 0
        self.lengths = lengths
        keyed = rnd.random() < 0.6
        # most patterns share a key: each event is compared with the one before it
        keys = [("k", "k"), ("s", "s"), ("k", "m"), ("k", "v"), ("u", "k"), ("s", "t")]
        self.key = rnd.choice(keys) if keyed else None
        formula = self.chain(rnd.choice([1, 2, 2, 3, 3, 4]), [], 0)
        every = ref.variables_in(formula)
        selected = None if rnd.random() < 0.7 else tuple(rnd.sample(every, rnd.randint(0, min(2, len(every)))))
        partition = rnd.choice([(), (), ("g",), ("g", "s")])
        last = _ends(formula)[1]
        trailing = tuple(self.absent(every, last) for _ in range(rnd.choice([0, 0, 0, 1, 2])))
        lasts = self.length(8) if trailing and rnd.random() < 0.4 else None
        self.query = ref.Query(
            formula,
            selected,
            partition,
            self.length() if rnd.random() < 0.5 or (trailing and lasts is None) else None,
            self.length(4) if lengths and rnd.random() < 0.2 else None,
            rnd.choice(["NONE"] * 6 + ([] if trailing else ["ANY", "PARTITION"])),
            trailing,
            lasts,
        )

    # ---- patterns -----------------------------------------------------------------------------------------------

    def name(self) -> str:
        self.n_names += 1
        return f"x{self.n_names}"

    def length(self, longest: int = 12) -> tuple[str, int]:
        return self.rnd.choice(["events", "time", "attribute"]), self.rnd.randint(0, longest)

    def event(self) -> ref.Event:
        rnd = self.rnd
        test = (
            (rnd.choice(["m", "k"]), rnd.choice(["<", ">=", "<>"]), rnd.randint(0, 2)) if rnd.random() < 0.2 else None
        )
        return ref.Event(rnd.choice(TYPES), self.name(), test)

    def step(self, outer: list[str]) -> Any:
        draw = self.rnd.random()
        if draw < 0.04:
            return ref.Event(self.rnd.choice(TYPES), None)
        if draw < 0.8:
            return self.filtered(self.event(), outer)
        return ref.Choice(
            tuple(self.filtered(self.event(), outer) for _ in range(self.rnd.choice([2, 2, 3]))), self.name()
        )

    def filtered(self, event: ref.Event, outer: list[str]) -> ref.Event:
        """Return an event, at times with a filter of its own, which reads events before it and perhaps not it."""
        rnd = self.rnd
        if not outer or rnd.random() > 0.2:
            return event
        one = event.variable if rnd.random() < 0.4 else rnd.choice(outer)
        if rnd.random() < 0.5:
            own = ref.Filter(ref.Ref(one, "m"), rnd.choice(["<", ">=", "="]), rnd.randint(0, 2))
        else:
            own = self.between(ref.Ref(one, ""), ref.Ref(rnd.choice(outer), ""))
        return ref.Event(event.type, event.variable, event.test, (own,))

    def chain(self, n: int, outer: list[str], depth: int) -> Any:
        """Draw a chain of parts that sees some variables before it, with filters around."""
        rnd = self.rnd
        parts, absent, seen, joints = [], [], [], []
        last = None
        keys = []
        for i in range(n):
            bars = tuple(self.absent([*outer, *seen], last) for _ in range(rnd.choice([0, 0, 0, 1, 1, 2]) if i else 0))
            part = self.part([*outer, *seen], depth)
            names = ref.variables_in(part)
            first, final = _ends(part)
            if self.key is not None and None not in (first, last) and rnd.random() < 0.9:
                left, right = self.key if rnd.random() < 0.8 else rnd.sample(NUMBERS, 2)
                keys.append(ref.Filter(ref.Ref(first, left), "=", ref.Ref(last, right if rnd.random() < 0.5 else left)))
            last = final
            seen += names
            parts.append(part)
            single = isinstance(part, ref.Event | ref.Choice)
            joints.append(rnd.choice([";"] * 8 + ["->"] * single + ([] if bars else [":"])) if i else ";")
            absent.append(bars)
        made: Any = parts[0] if n == 1 else ref.Chain(tuple(parts), tuple(absent), tuple(joints))
        filters = [*keys, *(self.filter(seen, outer, made) for _ in range(rnd.choice([0, 0, 0, 1, 1, 2])))]
        filters = [each for each in filters if each is not None]
        if filters:
            made = ref.Filtered(made, tuple(filters))
        if self.lengths and n > 1 and rnd.random() < 0.1:
            made = ref.Local(made, self.length(8))
        return made

    def part(self, outer: list[str], depth: int) -> Any:
        rnd = self.rnd
        draw = rnd.random()
        if draw < 0.7 or depth == 2:
            return self.step(outer)
        if draw < 0.9:
            body = self.step(outer) if rnd.random() < 0.6 else self.chain(2, outer, depth + 1)
            until = tuple(self.absent([*outer, *ref.variables_in(body)], None) for _ in range(rnd.choice([0, 0, 1])))
            if self.key is not None and rnd.random() < 0.8:
                name = self.name()
                body = ref.Named(body, name)
                made: Any = ref.Times(body, rnd.choice([2, 2, 3]), until)
                same = ref.Filter(ref.Ref(name, self.key[0]), "=", ref.Ref(name, self.key[0], "PREV"))
                return ref.Filtered(made, (same,)) if ref.variables_in(made.body.body) else made
            return ref.Times(body, rnd.choice([2, 2, 3]), until)
        made = self.chain(2, outer, depth + 1)
        return made if draw < 0.96 else ref.Named(made, self.name())

    def absent(self, seen: list[str], last: str | None) -> ref.Absent:
        rnd = self.rnd
        event = self.event()
        filters = []
        if self.key is not None and last is not None and rnd.random() < 0.5:
            filters.append(ref.Filter(ref.Ref(event.variable, self.key[0]), "=", ref.Ref(last, self.key[0])))
        if seen and rnd.random() < 0.4:
            other = ref.Ref(rnd.choice(seen), "", "EACH")
            filters.append(self.between(ref.Ref(event.variable, ""), other))
        return ref.Absent(event, tuple(filters))

    def between(self, one: ref.Ref, other: ref.Ref) -> ref.Filter:
        rnd = self.rnd
        columns = rnd.choice([NUMBERS, NUMBERS, TEXTS])
        op = rnd.choice(["=", "=", "<", "<=", ">", "<>", ">="])
        if columns is TEXTS and rnd.random() < 0.5:
            op = rnd.choice(["contains", "contains", "startswith", "endswith"])
        left = ref.Ref(one.variable, rnd.choice(columns), one.event)
        right = ref.Ref(other.variable, rnd.choice(columns), other.event)
        plus = rnd.choice([0, 0, 0, 1, -1]) if columns is NUMBERS else 0
        return ref.Filter(left, op, right, plus)

    def filter(self, own: list[str], outer: list[str], body: Any) -> ref.Filter | None:
        rnd = self.rnd
        partial = _partial(body)
        if not own:
            return None
        one = rnd.choice(own)
        other = rnd.choice([*own, *own, *outer])
        kinds = ["EACH", "EACH", "EACH", "FIRST", "LAST", "PREV"]
        events = [rnd.choice(kinds) if name in own and name not in partial else "EACH" for name in (one, other)]
        refs = ref.Ref(one, "", events[0]), ref.Ref(other, "", events[1])
        if one == other and (events[0] == events[1] or "PREV" not in events):
            return None  # about one event, or refused nowhere but rarely of interest
        return self.between(*refs)


def _ends(part: Any) -> tuple[str | None, str | None]:
    """Return a variable of the first event of a part, and one of the last."""
    match part:
        case ref.Event() | ref.Choice():
            return part.variable, part.variable
        case ref.Chain():
            return _ends(part.parts[0])[0], _ends(part.parts[-1])[1]
        case ref.Named():
            return part.variable, part.variable
        case _:
            return _ends(part.body)


def _partial(node: Any) -> set[str]:
    """Return the variables that only some alternatives of a step are."""
    match node:
        case ref.Choice():
            return {event.variable for event in node.events}
        case ref.Chain():
            return set().union(*map(_partial, node.parts))
        case ref.Event():
            return set()
        case _:
            return _partial(node.body)


# ---------------------------------------------------------------------------------------------------------- text


Writers = dict[Any, Any]
"""Functions that write parts of further types: of a part, and of how parts and absences are written."""


def text_of(query: ref.Query, writers: Writers | None = None) -> str:
    """Return the text of a query."""
    items = "*" if query.selected is None else ", ".join(query.selected) or "NONE"
    lasts = "" if query.lasts is None else f" FOR {_length(query.lasts)}"
    behind = "".join(f" ; !{_absent(each)}{lasts}" for each in query.trailing)
    clauses = [f"SELECT RECENT {items} FROM S WHERE {_text(query.formula, writers or {})}{behind}"]
    if query.partition:
        clauses.append("PARTITION BY " + ", ".join(f"[{name}]" for name in query.partition))
    lengths = [] if query.within is None else [_length(query.within)]
    lengths += [] if query.each_step is None else [f"{_length(query.each_step)} EACH STEP"]
    if lengths:
        clauses.append("WITHIN " + ", ".join(lengths))
    if query.consume != "NONE":
        clauses.append(f"CONSUME BY {query.consume}")
    return " ".join(clauses)


def _text(node: Any, writers: Writers) -> str:
    def text_of_part(part: Any) -> str:
        return _text(part, writers)

    if node.__class__ in writers:
        return str(writers[node.__class__](node, text_of_part, _absent))
    match node:
        case ref.Event(type, None):
            return f"NOT({type})"
        case ref.Event():
            return _event(node, node.filters)
        case ref.Choice():
            return f"({' OR '.join(map(text_of_part, node.events))}) AS {node.variable}"
        case ref.Chain():
            text = ""
            for part, absent, joint in zip(node.parts, node.absent, node.joints, strict=True):
                bars = " ; ".join(f"!{_absent(each)}" for each in absent)
                if bars and len(text) % 3 == 0:
                    text = f"({text} ; {bars})"  # an absence may end a part in parentheses
                elif bars:
                    text += f" ; {bars}"
                if joint == ":" and text:
                    text = f"(({text}) : ({text_of_part(part)}))"
                else:
                    text += f"{f' {joint} ' if text else ''}({text_of_part(part)})"
            return f"({text})"
        case ref.Times():
            until = "".join(f" UNTIL {_absent(each)}" for each in node.until)
            return f"(({text_of_part(node.body)}){{{node.n}}}{until})"
        case ref.Named():
            return f"({text_of_part(node.body)}) AS {node.variable}"
        case ref.Filtered():
            return f"({text_of_part(node.body)} FILTER {' AND '.join(map(_filter, node.filters))})"
        case ref.Local():
            return f"({text_of_part(node.body)} WITHIN {_length(node.within)})"
    raise AssertionError(node)


def _absent(absent: ref.Absent) -> str:
    event = _event(absent.event, absent.filters)
    return event if event.startswith("(") else f"({event})"


def _event(event: ref.Event, filters: tuple[ref.Filter, ...]) -> str:
    name = f"{event.type} AS {event.variable}"
    tests = [] if event.test is None else [f"{event.variable}[{' '.join(map(str, event.test))}]"]
    tests += map(_filter, filters)
    return f"({name} FILTER {' AND '.join(tests)})" if tests else name


def _filter(each: ref.Filter) -> str:
    plus = f" {'+' if each.plus > 0 else '-'} {abs(each.plus)}" if each.plus else ""
    right = _ref(each.right) if isinstance(each.right, ref.Ref) else str(each.right)
    if each.op[0].isalpha():
        return f"{each.op}({_ref(each.left)}, {right})"
    return f"{_ref(each.left)} {each.op} {right}{plus}"


def _ref(each: ref.Ref) -> str:
    return f"{each.variable}.{each.column}" if each.event == "EACH" else f"{each.event}({each.variable}).{each.column}"


def _length(within: tuple[str, int]) -> str:
    kind, n = within
    return {"events": f"{n} EVENTS", "time": f"{n} SECONDS", "attribute": f"{n} [o]"}[kind]


# -------------------------------------------------------------------------------------------------------- streams

SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "ts": pa.int64(),
        "o": pa.int64(),
        "g": pa.int64(),
        "k": pa.int64(),
        "m": pa.int32(),
        "u": pa.uint64(),
        "v": pa.float64(),
        "s": pa.string(),
        "t": pa.dictionary(pa.int32(), pa.string()),
    }
)


def stream_of(rnd: random.Random, n: int) -> ref.Stream:
    """Return a stream of n events, whose columns have few values."""
    found: ref.Stream = []
    ts = o = 0
    rare = 0.04
    for _ in range(n):
        ts += rnd.choice([0, 0, 1, 1, 2])
        o += rnd.choice([0, 1, 3])
        event: dict[str, Any] = {"type": rnd.choice("AAABBBCCD"), "ts": ts, "o": o, "g": rnd.randint(0, 2)}
        event |= {name: rnd.randint(0, 2) for name in ("k", "m", "u")}
        event["v"] = rnd.choice([0.0, 1.0, 2.0, 1.0, 0.5, -0.0, NAN])
        event |= {name: rnd.choice(["a", "b", "c", "a", "b", "c", "ab", "cb"]) for name in ("s", "t")}
        for name in ("g", "k", "m", "u", "v", "s", "t"):
            if rnd.random() < rare:
                event[name] = None
        found.append(event)
    return found


def table_of(stream: ref.Stream) -> pa.Table:
    """Return a stream as a table."""
    return pa.Table.from_pylist(stream, SCHEMA)
