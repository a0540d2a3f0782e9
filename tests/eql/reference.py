"""Reference of EQL: queries by brute force, from the sources of docs/reference/eql.md, without the engine.

Queries are trees of this module, which `text` prints as EQL; events are dicts of columns, in order, with a time in
milliseconds under `TIME` and a category under `CATEGORY`. A list is a field of several values.

Meaning:

- A *test* is a comparison, a match (``:``, ``like``, ``regex``, ``in``), or a value of its own. It holds if it is TRUE
  for some choice of one element of each list in it; a missing field, or one of no element, is one element, NULL. So
  NULL makes a test FALSE, and ``not`` makes that TRUE: above tests, logic has two values.
- ``x != y`` is ``not x == y``. ``x == null`` holds where the field has no value, or where the value of an expression is
  NULL for some choice.
- A sequence: see `sequence`. A sample: see `sample`.

Where Elasticsearch fails on one event (a division by zero, a text that is no number), the value is NULL.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Row = dict[str, Any]
TIME, CATEGORY = "ts", "event.category"

# ------------------------------------------------------------------------------------------------ queries as trees


@dataclass(frozen=True)
class Field:
    name: str
    optional: bool = False


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class Call:
    name: str
    operands: tuple[Any, ...]
    nocase: bool = False


@dataclass(frozen=True)
class Negative:
    operand: Any


@dataclass(frozen=True)
class Arithmetic:
    op: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Compare:
    op: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Match:
    """``left op value`` or ``left op (value, ...)``; `op` with its ``~``."""

    op: str
    left: Any
    values: tuple[Any, ...]
    listed: bool = True


@dataclass(frozen=True)
class Not:
    operand: Any


@dataclass(frozen=True)
class And:
    left: Any
    right: Any


@dataclass(frozen=True)
class Or:
    left: Any
    right: Any


@dataclass(frozen=True)
class Term:
    """``[category where condition] by keys with runs=n``; of `category` None, ``any``; ``![...]`` if `absent`."""

    category: str | None
    condition: Any
    keys: tuple[Field, ...] = ()
    runs: int = 1
    absent: bool = False


@dataclass(frozen=True)
class Query:
    """An event query of one term, a sequence or a sample; `maxspan` in milliseconds."""

    kind: str
    terms: tuple[Term, ...]
    keys: tuple[Field, ...] = ()
    maxspan: int | None = None
    until: Term | None = None
    pipes: tuple[tuple[str, int], ...] = field(default=())


# ------------------------------------------------------------------------------------------------ values of one event


def fields_of(node: Any) -> list[str]:
    """Return the names of the fields of an expression, each once."""
    match node:
        case Field():
            return [node.name]
        case Call():
            inner = node.operands
        case Match():
            inner = (node.left, *node.values)
        case Negative() | Not():
            inner = (node.operand,)
        case Constant():
            inner = ()
        case _:
            inner = (node.left, node.right)
    return list(dict.fromkeys(name for each in inner for name in fields_of(each)))


def elements(value: Any) -> list[Any]:
    found = [each for each in value if each is not None] if isinstance(value, list) else [value]
    return found or [None]


def choices(node: Any, row: Row) -> Iterator[Row]:
    """Yield a row with one element in place of each list that an expression reads, for each choice of them."""
    names = fields_of(node)
    for chosen in itertools.product(*(elements(row.get(name)) for name in names)):
        yield dict(zip(names, chosen, strict=True))


def holds(node: Any, row: Row) -> bool:
    """Return whether a condition holds for an event."""
    match node:
        case And():
            return holds(node.left, row) and holds(node.right, row)
        case Or():
            return holds(node.left, row) or holds(node.right, row)
        case Not():
            return not holds(node.operand, row)
        case Compare("!="):
            return not holds(replace(node, op="=="), row)
        case Match("not in" | "not in~"):
            return not holds(replace(node, op=node.op.removeprefix("not ")), row)
        case Compare("==", Constant(None), other) | Compare("==", other, Constant(None)):
            return any(value_of(other, chosen) is None for chosen in choices(other, row))
        case _:
            return any(value_of(node, chosen) is True for chosen in choices(node, row))


def value_of(node: Any, row: Row) -> Any:
    """Return the value of an expression over fields of one value each; that of a condition in it has three values."""
    match node:
        case Constant():
            return node.value
        case Field():
            return row[node.name]
        case Negative():
            return _counted("-", 0, value_of(node.operand, row))
        case Arithmetic():
            return _counted(node.op, value_of(node.left, row), value_of(node.right, row))
        case Call():
            return _called(node, [value_of(each, row) for each in node.operands])
        case Compare("==" | "!=", left, right) if _is_null(left) or _is_null(right):
            return (value_of(left if _is_null(right) else right, row) is None) == (node.op == "==")
        case Compare(op):
            return _compared(op, value_of(node.left, row), value_of(node.right, row))
        case Match(op):
            left = value_of(node.left, row)
            values = [value_of(each, row) for each in node.values]
            found = [_matched(op.removeprefix("not "), left, each) for each in values]
            inside = True if True in found else None if None in found else False
            return inside if not op.startswith("not") or inside is None else not inside
        case Not():
            inside = value_of(node.operand, row)
            return None if inside is None else not inside
        case And():
            both = [value_of(node.left, row), value_of(node.right, row)]
            return False if False in both else None if None in both else True
        case Or():
            both = [value_of(node.left, row), value_of(node.right, row)]
            return True if True in both else None if None in both else False
    raise AssertionError(node)


def _compared(op: str, x: Any, y: Any) -> bool | None:
    if x is None or y is None:
        return None
    return {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]


def folded(text: str) -> str:
    """Return a text without the case of its letters, a character for each."""
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _matched(op: str, x: Any, pattern: Any) -> bool | None:
    if x is None or pattern is None:
        return None
    if not isinstance(pattern, str):
        return x == pattern
    if op == ":" or op.endswith("~"):
        x = folded(x)
        pattern = folded(pattern) if not op.startswith("regex") else pattern.lower()
    if op.startswith("in"):
        return x == pattern
    if op.startswith("regex"):
        return re.fullmatch(pattern, x, re.DOTALL) is not None
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(each) or re.escape(each) for each in pattern), x, re.DOTALL) is not None


def _counted(op: str, x: Any, y: Any) -> Any:
    if x is None or y is None or (op in "/%" and y == 0):
        return None
    whole = isinstance(x, int) and isinstance(y, int)
    match op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "/":
            return (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1) if whole else x / y
        case "%":
            return (abs(x) % abs(y)) * (-1 if x < 0 else 1)
    raise AssertionError(op)


def written(value: Any) -> str:
    """Return the text of a value, as Java writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _called(call: Call, values: list[Any]) -> Any:
    name = call.name.lower()
    if name == "number":
        return _number(*values)
    if name in ("substring", "indexof") and len(values) == 3 and values[2] is None and _is_null(call.operands[2]):
        values = values[:2]  # the default of the last operand
    if None in values:
        return None
    texts = [folded(each) if call.nocase and isinstance(each, str) else each for each in values]
    match name:
        case "add" | "subtract" | "multiply" | "divide" | "modulo":
            ops = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%"}
            return _counted(ops[name], *values)
        case "concat":
            return "".join(map(written, values))
        case "string":
            return written(values[0])
        case "length":
            return len(values[0])
        case "startswith":
            return texts[0].startswith(texts[1])
        case "endswith":
            return texts[0].endswith(texts[1])
        case "stringcontains":
            return "" not in texts and texts[1] in texts[0]
        case "wildcard":
            return any(_matched("like~" if call.nocase else "like", values[0], each) for each in values[1:])
        case "indexof":
            start = max(values[2], 0) if len(values) > 2 else 0
            found = texts[0].find(texts[1], start) if start <= len(texts[0]) else -1
            return None if found < 0 else found
        case "substring":
            return values[0][values[1] : values[2] if len(values) > 2 else None]
        case "between":
            return _between(values[0], *texts[:3], greedy=len(values) > 3 and values[3])
        case "cidrmatch":
            return _in_network(values[0], values[1:])
    raise AssertionError(call)


def _is_null(node: Any) -> bool:
    return isinstance(node, Constant) and node.value is None


def _number(text: Any, base: int | None = None) -> int | float | None:
    if text is None:
        return None
    base = base or (16 if text.startswith("0x") else 10)
    text = text.removeprefix("0x") if base == 16 else text
    for made in (lambda: int(text, base), lambda: float(text) if base == 10 else None):
        try:
            return made()
        except ValueError:
            continue
    return None


def _between(text: str, seen: str, left: str, right: str, greedy: bool) -> str:
    if not text or not left or not right:
        return text
    at = seen.find(left)
    if at < 0:
        return ""
    start = at + len(left)
    end = seen.rfind(right) if greedy else seen.find(right, start)
    return text[start:end] if end >= start else ""


def _in_network(text: str, blocks: list[str]) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    networks = [ipaddress.ip_network(each, strict=False) for each in blocks]
    return any(each.version == address.version and address in each for each in networks)


# ------------------------------------------------------------------------------------------------ queries over events


def evaluate(query: Query, rows: list[Row], *, here: bool = False) -> list[tuple[int, ...]]:
    """Return the numbers of the rows of each answer, those of missing events left out, in the order of the answers.

    Missing events are Elasticsearch's (`disturbed`), or, with `here`, those of this library (`interrupted`).
    """
    match query.kind:
        case "event":
            found = [(i,) for i, row in enumerate(rows) if satisfies(query.terms[0], row)]
        case "sequence":
            found = sequence(query, rows, here)
            if here and query.terms[-1].absent:
                # in the order of the rows at which maxspan has passed, then of ends, then of starts
                found.sort(key=lambda answer: (_passed(query, answer, rows), answer[-1], answer[0]))
        case "sample":
            found = sample(query, rows)
    for name, n in query.pipes:
        found = found[:n] if name == "head" else found[max(len(found) - n, 0) :]
    return found


def _passed(query: Query, answer: tuple[int, ...], rows: list[Row]) -> int:
    """Return the first row beyond `maxspan` of the first event of an answer, or the number of rows if there is none."""
    last = rows[answer[0]][TIME] + query.maxspan
    return next((i for i, row in enumerate(rows) if row[TIME] > last), len(rows))


def satisfies(term: Term, row: Row) -> bool:
    return (term.category is None or term.category in elements(row.get(CATEGORY))) and holds(term.condition, row)


def keys_of(query: Query, term: Term, row: Row) -> list[tuple[Any, ...]]:
    """Return the keys of an event at a term: one for each choice of elements; none where a required one is missing."""
    columns = []
    for key in (*query.keys, *term.keys):
        values = list(dict.fromkeys(elements(row.get(key.name))))
        columns.append([each for each in values if each is not None or key.optional])
    return list(itertools.product(*columns))


def sequence(query: Query, rows: list[Row], here: bool = False) -> list[tuple[int, ...]]:
    """Return the sequences of a query, by one pending sequence for each step and key.

    At each event, from the last step to the second: where it satisfies the step, the sequence that waits for that step
    under a key of the event is taken. It is given up if it is longer than `maxspan` with the event, or if an event of
    ``until``, with that key, is among those from its last event to the one before this; else it moves on, in place of
    what waited there. An event of the first step takes the place of what waits there. Missing events are asked of what
    is complete alone; `here`, one between two steps drops what waits between them at once, and one before the first
    step is asked of the first event, unless others must be missing after the last step, too.
    """
    steps = [(k, term) for k, term in enumerate(query.terms) if not term.absent for _ in range(term.runs)]
    waiting: dict[tuple[Any, ...], dict[int, tuple[int, ...]]] = {}
    ended: dict[tuple[Any, ...], list[int]] = {}
    found = []
    for i, row in enumerate(rows):
        for k in range(len(steps) - 1, -1, -1):
            number, term = steps[k]
            for key in keys_of(query, term, row) if satisfies(term, row) else ():
                behind = waiting.setdefault(key, {})
                before = behind.pop(k - 1, None) if k else ()
                if before is None:
                    continue
                leading = query.terms[: steps[0][0]]
                both = bool(leading) and query.terms[-1].absent
                if here and not k and not both and interrupted(query, key, (i,), rows, leading):
                    continue
                moved = (*before, i)
                if query.maxspan is not None and row[TIME] - rows[moved[0]][TIME] > query.maxspan:
                    continue
                if any(before[-1] <= u < i for u in ended.get(key, []) if before):
                    continue
                if k < len(steps) - 1:
                    behind[k] = moved
                    continue
                after = query.terms[number + 1 :]
                of = [each for each, _ in steps]
                if not here:
                    is_broken = disturbed(query, key, moved, of, rows)
                elif both:
                    is_broken = enclosed(query, key, moved, rows, leading, after)
                else:
                    is_broken = interrupted(query, key, moved, rows, after)
                if not is_broken:
                    found.append(moved)
            for bar in query.terms[steps[k - 1][0] + 1 : number] if here and k else ():
                for key in keys_of(query, bar, row) if satisfies(bar, row) else ():
                    waiting.get(key, {}).pop(k - 1, None)
        if query.until is not None and satisfies(query.until, row):
            for key in keys_of(query, query.until, row):
                ended.setdefault(key, []).append(i)
    return found


def disturbed(query: Query, key: tuple[Any, ...], moved: tuple[int, ...], which: list[int], rows: list[Row]) -> bool:
    """Return whether events that must be missing are there, under the key of a sequence.

    Between two steps: one later than the first and earlier than the second. Before the first step alone: one earlier
    than it, at most `maxspan` before the last. After the last alone: one later, at most `maxspan` after the first.
    Before and after: one before and one after that lie at most `maxspan` apart.
    """
    at = {k: [i for i, of in zip(moved, which, strict=True) if of == k] for k in range(len(query.terms))}
    first, last = rows[moved[0]][TIME], rows[moved[-1]][TIME]
    leading, trailing = [], []
    for k, term in enumerate(query.terms):
        if not term.absent:
            continue
        there = [row[TIME] for row in rows if satisfies(term, row) and key in keys_of(query, term, row)]
        before = [i for j in range(k) for i in at[j]]
        after = [i for j in range(k + 1, len(query.terms)) for i in at[j]]
        if before and after:
            if any(rows[before[-1]][TIME] < t < rows[after[0]][TIME] for t in there):
                return True
        elif after:
            leading += [t for t in there if t < first]
        else:
            trailing += [t for t in there if t > last]
    starts_absent, ends_absent = query.terms[0].absent, query.terms[-1].absent
    if not starts_absent and not ends_absent:
        return False
    start = max(leading, default=None) if starts_absent else first
    end = min(trailing, default=None) if ends_absent else last
    return start is not None and end is not None and end - start <= query.maxspan


def interrupted(
    query: Query, key: tuple[Any, ...], moved: tuple[int, ...], rows: list[Row], absent: tuple[Term, ...]
) -> bool:
    """Return whether one of some terms is satisfied before the first event, or after the last, by the rule here.

    Terms of before all steps: by rows before the first event, at most `maxspan` before it. Terms of after all: by rows
    after the last event, at most `maxspan` after the first. Rows may be at one time.
    """
    first = rows[moved[0]][TIME]
    for term in absent:
        near = range(moved[0]) if absent[0] is query.terms[0] else range(moved[-1] + 1, len(rows))
        there = [rows[i][TIME] for i in near if satisfies(term, rows[i]) and key in keys_of(query, term, rows[i])]
        if any(abs(time - first) <= query.maxspan for time in there):
            return True
    return False


def enclosed(
    query: Query,
    key: tuple[Any, ...],
    moved: tuple[int, ...],
    rows: list[Row],
    leading: tuple[Term, ...],
    trailing: tuple[Term, ...],
) -> bool:
    """Return whether two events that must be missing, before the first row and after the last, are near each other."""

    def times(near: range, terms: tuple[Term, ...]) -> list[int]:
        own = [i for i in near if any(satisfies(t, rows[i]) and key in keys_of(query, t, rows[i]) for t in terms)]
        return [rows[i][TIME] for i in own]

    before, after = times(range(moved[0]), leading), times(range(moved[-1] + 1, len(rows)), trailing)
    return any(y - x <= query.maxspan for x in before for y in after)


def sample(query: Query, rows: list[Row]) -> list[tuple[int, ...]]:
    """Return one sample for each key that has different events for all terms, the first such, in the order of keys."""
    found = samples(query, rows)
    return [found[key][0] for key in sorted(found, key=lambda key: [(each is not None, each) for each in key])]


def samples(query: Query, rows: list[Row]) -> dict[tuple[Any, ...], list[tuple[int, ...]]]:
    """Return, for each key that has some, the different events for all terms: all choices, those of low rows first."""
    by_key: dict[tuple[Any, ...], list[list[int]]] = {}
    for k, term in enumerate(query.terms):
        for i, row in enumerate(rows):
            for key in keys_of(query, term, row) if satisfies(term, row) else ():
                by_key.setdefault(key, [[] for _ in query.terms])[k].append(i)
    found = {
        key: [each for each in itertools.product(*hits) if len(set(each)) == len(each)] for key, hits in by_key.items()
    }
    return {key: chosen for key, chosen in found.items() if chosen}


# ------------------------------------------------------------------------------------------------ text

_BINDING = {Or: 1, And: 2, Not: 3, Compare: 4, Match: 4, Negative: 7}


def text(query: Query, spell: Any = None) -> str:
    """Return the text of a query; `spell` writes a string, `quoted` by default."""
    spell = spell or quoted
    by = f" by {', '.join(map(_field, query.keys))}" if query.keys else ""
    span = f" with maxspan={length(query.maxspan)}" if query.maxspan is not None else ""
    if query.kind == "event":
        parts = [_filter(query.terms[0], spell)]
    else:
        parts = [f"{query.kind}{by}{span}", *(_term(each, spell) for each in query.terms)]
    if query.until is not None:
        parts.append(f"until {_term(query.until, spell)}")
    parts += [f"| {name} {n}" for name, n in query.pipes]
    return "\n  ".join(parts)


def _filter(term: Term, spell: Any) -> str:
    return f"{term.category or 'any'} where {condition(term.condition, spell)}"


def _term(term: Term, spell: Any) -> str:
    by = f" by {', '.join(map(_field, term.keys))}" if term.keys else ""
    runs = f" with runs={term.runs}" if term.runs > 1 else ""
    return f"{'!' if term.absent else ''}[{_filter(term, spell)}]{by}{runs}"


def _field(node: Field) -> str:
    parts = [part if re.fullmatch(r"[A-Za-z_]\w*", part) else f"`{part}`" for part in node.name.split(".")]
    return ("?" if node.optional else "") + ".".join(parts)


def quoted(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(each, each) for each in value) + '"'


def length(milliseconds: int) -> str:
    for unit, n in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % n == 0:
            return f"{milliseconds // n}{unit}"
    return f"{milliseconds}ms"


def condition(node: Any, spell: Any = quoted, above: int = 0) -> str:
    """Return the text of an expression, in parentheses where what is around it binds tighter."""
    binding = 5 + (node.op not in "+-") if isinstance(node, Arithmetic) else _BINDING.get(type(node), 8)
    match node:
        case Field():
            return _field(node)
        case Constant(str()):
            return spell(node.value)
        case Constant():
            return "null" if node.value is None else written(node.value)
        case Call():
            made = ", ".join(condition(each, spell) for each in node.operands)
            return f"{node.name}{'~' if node.nocase else ''}({made})"
        case Negative():
            made = f"-{condition(node.operand, spell, 8)}"
        case Not():
            made = f"not {condition(node.operand, spell, 3)}"
        case And() | Or():
            word = "and" if isinstance(node, And) else "or"
            made = f"{condition(node.left, spell, binding)} {word} {condition(node.right, spell, binding + 1)}"
        case Arithmetic():
            made = f"{condition(node.left, spell, binding)} {node.op} {condition(node.right, spell, binding + 1)}"
        case Compare():
            made = f"{condition(node.left, spell, 5)} {node.op} {condition(node.right, spell, 5)}"
        case Match():
            values = ", ".join(condition(each, spell) for each in node.values)
            values = f"({values})" if node.listed else values
            made = f"{condition(node.left, spell, 8)} {node.op} {values}"
    return f"({made})" if binding < above else made
