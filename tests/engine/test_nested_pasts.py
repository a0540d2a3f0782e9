"""RISES, and aggregates over the past in the filters of others, compared with their definitions."""

from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu

SEEDS = st.integers(0, 2**32)
KEYS = ("k", "l")


class Draw:
    """Random predicates of an event, as (text, function of the events of its substream and a place among them)."""

    def __init__(self, rnd):
        self.rnd = rnd

    def plain(self):
        column, value = self.rnd.choice(["a", "b"]), self.rnd.randint(0, 2)
        op = self.rnd.choice(["=", "<=", ">"])
        test = {"=": int.__eq__, "<=": int.__le__, ">": int.__gt__}[op]
        return (
            f"{column} {op} {value}",
            lambda events, i: None if events[i][column] is None else test(events[i][column], value),
        )

    def over(self, depth):
        """Return a comparison of an aggregate over the past with a number."""
        such, n = self.predicate(depth - 1), self.rnd.randint(0, 3)
        function = self.rnd.choice(["COUNT", "COUNT", "COUNT DISTINCT", "SUM", "MAX"])
        of = "*" if function == "COUNT" else "*.a"
        extent, unit = self.rnd.choice([0, 1, 2, 4]), self.rnd.choice(["SECONDS", "EVENTS"])
        op = self.rnd.choice([">=", "<", "="])
        compare = {">=": lambda x: x >= n, "<": lambda x: x < n, "=": lambda x: x == n}[op]

        def value(events, i):
            found = []
            for j in range(i, -1, -1):
                away = i - j if unit == "EVENTS" else events[i]["ts"] - events[j]["ts"]
                if away <= extent and such[1](events, j):
                    found.append(events[j])
            if function == "COUNT":
                return len(found)
            values = [each["a"] for each in found if each["a"] is not None]
            if function == "COUNT DISTINCT":
                return len(set(values))
            return {"SUM": sum, "MAX": max}[function](values) if values else None

        def test(events, i):
            found = value(events, i)
            return None if found is None else compare(found)

        return f"{function}({of} FILTER ({such[0]})) OVER {extent} {unit} {op} {n}", test

    def rises(self, depth):
        condition, such = self.predicate(depth - 1), self.predicate(depth - 1)

        def test(events, i):
            if not (such[1](events, i) and condition[1](events, i)):
                return False
            before = next((j for j in range(i - 1, -1, -1) if such[1](events, j)), None)
            return before is None or not condition[1](events, before)

        return f"RISES({condition[0]}, {such[0]})", test

    def predicate(self, depth):
        kind = self.rnd.choice(["plain", "over", "over", "rises", "rises", "and", "or", "not"]) if depth else "plain"
        if kind == "plain":
            return self.plain()
        if kind in ("over", "rises"):
            return getattr(self, kind)(depth)
        one = self.predicate(depth - 1)
        if kind == "not":
            return f"NOT ({one[0]})", lambda events, i: _not(one[1](events, i))
        other = self.predicate(depth)
        join = {"and": _and, "or": _or}[kind]
        return f"(({one[0]}) {kind.upper()} ({other[0]}))", lambda events, i: join(
            one[1](events, i), other[1](events, i)
        )


def _not(value):
    return None if value is None else not value


def _and(one, other):
    if one is False or other is False:
        return False
    return None if None in (one, other) else True


def _or(one, other):
    return _not(_and(_not(one), _not(other)))


class NestedCase:
    """A random query of one event, compiled, with events and the places that it finds."""

    def __init__(self, seed, depth=3, n=30):
        self.rnd = rnd = random.Random(seed)
        draw = Draw(rnd)
        text, test = draw.rises(depth) if rnd.random() < 0.7 else draw.predicate(depth)
        self.keys = rnd.sample(KEYS, rnd.randint(0, 2))
        by = " PARTITION BY " + ", ".join(f"[{key}]" for key in self.keys) if self.keys else ""
        self.text = f"SELECT * FROM S WHERE * AS e FILTER e[{text}]{by}"
        note(self.text)
        time, self.rows = 0, []
        for _ in range(n):
            time += rnd.choice([0, 0, 1, 1, 2, 5])
            row = {"ts": time, "a": rnd.choice([0, 1, 2, 3, None]), "b": rnd.choice([0, 1, 2, 3])}
            row |= {"k": rnd.choice(["x", "y", None]), "l": rnd.randint(0, 1)}
            self.rows.append(row)
        types = [("ts", pa.timestamp("s")), ("a", pa.int64()), ("b", pa.int32()), ("k", pa.string()), ("l", pa.int64())]
        self.table = pa.Table.from_pylist(self.rows, pa.schema(types))
        self.expected = []
        substreams = {}
        for i, row in enumerate(self.rows):
            key = tuple(row[name] for name in self.keys)
            if None not in key:
                substreams.setdefault(key, []).append(i)
        for places in substreams.values():
            events = [self.rows[i] for i in places]
            self.expected += [places[j] for j in range(len(events)) if test(events, j)]
        self.expected.sort()
        self.compiled = cer_gpu.compile(self.text, time_column="ts")

    def pieces(self):
        begin = 0
        while begin < self.table.num_rows:
            n = self.rnd.randint(1, 7)
            yield from self.table.slice(begin, n).combine_chunks().to_batches()
            begin += n

    def pushed(self):
        evaluator, found = self.compiled.evaluator(), []
        for batch in self.pieces():
            found.append(evaluator.push(batch))
            if self.rnd.random() < 0.3:
                evaluator = self.compiled.restore(evaluator.checkpoint())
        found.append(evaluator.finish())
        return places(pa.Table.from_batches(found))


def places(found):
    return sorted(row["end"] for row in found.to_pylist())


@settings(max_examples=scaled(400), deadline=None)
@given(SEEDS)
def test_what_is_nested_is_as_defined(seed):
    case = NestedCase(seed)
    assert places(case.compiled.evaluate(case.table)) == case.expected


@settings(max_examples=scaled(150), deadline=None)
@given(SEEDS)
def test_any_cut_with_checkpoints_finds_the_same(seed):
    case = NestedCase(seed)
    with small_sizes():
        assert case.pushed() == case.expected


@settings(max_examples=scaled(100), deadline=None)
@given(SEEDS)
def test_sets_and_threads_find_the_same(seed):
    cases = [NestedCase(seed + i) for i in range(4)]
    table = cases[0].table
    texts = {str(i): case.text for i, case in enumerate(cases)}
    expected = {name: places(cer_gpu.compile(text, time_column="ts").evaluate(table)) for name, text in texts.items()}
    together = cer_gpu.compile_all(texts, time_column="ts")
    for options in ({}, {"threads": 2}):
        found = together.evaluate(table, **options)
        assert {name: places(found[name]) if name in found else [] for name in texts} == expected
    evaluator, pushed = together.evaluator(), dict.fromkeys(texts, ())
    for batch in cases[0].pieces():
        for name, rows in evaluator.push(batch).items():
            pushed[name] += tuple(places(rows))
    for name, rows in evaluator.finish().items():
        pushed[name] += tuple(places(rows))
    assert {name: sorted(found) for name, found in pushed.items()} == expected
