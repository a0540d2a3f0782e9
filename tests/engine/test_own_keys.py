"""Keys of its own of what is OVER, and of RISES, nested in one another, compared with their definitions."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu

SEEDS = st.integers(0, 2**32)
KEYS = ("k", "l", "m")
OPERATORS = {"=": lambda x, y: x == y, "<=": lambda x, y: x <= y, ">": lambda x, y: x > y, ">=": lambda x, y: x >= y}


class Draw:
    """Random predicates of an event, as pairs: the text, and the function of its place in `rows`."""

    def __init__(self, rnd, rows, group):
        self.rnd, self.rows, self.group = rnd, rows, group

    def plain(self):
        column, value, op = self.rnd.choice(["a", "b"]), self.rnd.randint(0, 2), self.rnd.choice(["=", "<=", ">"])

        def test(i):
            found = self.rows[i][column]
            return None if found is None else OPERATORS[op](found, value)

        return f"{column} {op} {value}", test

    def keys(self, depth):
        """Return keys of its own, or none, and the function from a place to the group there."""
        if self.rnd.random() < 0.4:
            return "", self.group
        texts, functions = [], []
        for name in self.rnd.sample(KEYS[:2], self.rnd.randint(0, 2)):
            parts = [(name, self.predicate(depth - 1) if self.rnd.random() < 0.5 else None)]
            if name == "k" and self.rnd.random() < 0.6:
                parts.append(("m", self.plain() if self.rnd.random() < 0.5 else None))
            texts.append(", ".join(each + ("" if such is None else f" FILTER {such[0]}") for each, such in parts))
            functions.append(lambda i, parts=parts: self._first(parts, i))

        def group(i):
            found = tuple(function(i) for function in functions)
            return None if None in found else found

        return " PARTITION BY " + (", ".join(f"[{text}]" for text in texts) or "[]"), group

    def _first(self, parts, i):
        having = (self.rows[i][name] for name, such in parts if such is None or such[1](i))
        return next((value for value in having if value is not None), None)

    def over(self, depth):
        """Return a comparison of an OVER aggregate with a number."""
        such, n, op = self.predicate(depth - 1), self.rnd.randint(0, 3), self.rnd.choice([*OPERATORS])
        function = self.rnd.choice(["COUNT", "COUNT", "COUNT DISTINCT", "SUM", "MAX"])
        extent, unit = self.rnd.choice([0, 1, 2, 4]), self.rnd.choice(["SECONDS", "EVENTS"])
        keys, group = self.keys(depth)

        def values(i):
            if group(i) is None:
                return
            members = [j for j in range(i, -1, -1) if group(j) == group(i)]
            for steps, j in enumerate(members):
                away = steps if unit == "EVENTS" else self.rows[i]["ts"] - self.rows[j]["ts"]
                if away <= extent and such[1](j):
                    yield j

        def test(i, itself=True):
            found = [j for j in values(i) if itself or j != i]
            if function == "COUNT":
                return OPERATORS[op](len(found), n)
            known = [self.rows[j]["a"] for j in found if self.rows[j]["a"] is not None]
            if function == "COUNT DISTINCT":
                return OPERATORS[op](len(set(known)), n)
            return OPERATORS[op](sum(known) if function == "SUM" else max(known), n) if known else None

        of = "*" if function == "COUNT" else "*.a"
        return f"{function}({of} FILTER ({such[0]})) OVER {extent} {unit}{keys} {op} {n}", test

    def rises(self, depth):
        condition, such = self.predicate(depth - 1), self.predicate(depth - 1)
        keys, group = self.keys(depth)

        def test(i):
            if group(i) is None or not (such[1](i) and condition[1](i)):
                return False
            return not condition[1](i, itself=False)

        return f"RISES({condition[0]}, {such[0]}{keys})", test

    def predicate(self, depth):
        """Return a predicate that reads the past so many times by itself at most."""
        kind = self.rnd.choice(["plain", "over", "over", "rises", "and", "not"]) if depth > 0 else "plain"
        if kind in ("plain", "over", "rises"):
            text, test = self.plain() if kind == "plain" else getattr(self, kind)(depth)
            return text, test if kind == "over" else lambda i, itself=True: test(i)
        one = self.predicate(depth - 1)
        if kind == "not":
            return f"NOT ({one[0]})", lambda i, itself=True: _not(one[1](i, itself))
        other = self.predicate(depth)
        return f"(({one[0]}) AND ({other[0]}))", lambda i, itself=True: _and(one[1](i, itself), other[1](i, itself))


def _not(value):
    return None if value is None else not value


def _and(one, other):
    if one is False or other is False:
        return False
    return None if None in (one, other) else True


class OwnKeysCase:
    """A random query of one event, compiled, with events and the places that it finds."""

    def __init__(self, seed, depth=2, n=24):
        self.rnd = rnd = random.Random(seed)
        time, self.rows = 0, []
        for _ in range(n):
            time += rnd.choice([0, 0, 1, 1, 2, 5])
            row = {"ts": time, "a": rnd.choice([0, 1, 2, 3, None]), "b": rnd.choice([0, 1, 2, 3])}
            row |= {"k": rnd.choice(["x", "y", None]), "l": rnd.randint(0, 1), "m": rnd.choice(["x", "y", "z"])}
            self.rows.append(row)
        by = rnd.sample(KEYS, rnd.randint(0, 2))

        def group(i):
            found = tuple(self.rows[i][name] for name in by)
            return None if None in found else found

        draw = Draw(rnd, self.rows, group)
        text, test = draw.rises(depth) if rnd.random() < 0.5 else draw.over(depth)
        clause = " PARTITION BY " + ", ".join(f"[{key}]" for key in by) if by else ""
        self.text = f"SELECT * FROM S WHERE * AS e FILTER e[{text}]{clause}"
        note(self.text)
        types = [("ts", pa.timestamp("s")), ("a", pa.int64()), ("b", pa.int32()), ("k", pa.string())]
        self.table = pa.Table.from_pylist(self.rows, pa.schema([*types, ("l", pa.int64()), ("m", pa.string())]))
        self.expected = [i for i in range(n) if group(i) is not None and test(i)]
        self.compiled = cer_gpu.compile(self.text, time_column="ts")

    def pushed(self):
        """The places that an evaluator finds that is given random pieces, and put down and taken up in between."""
        evaluator, found, begin = self.compiled.evaluator(), [], 0
        while begin < self.table.num_rows:
            n = self.rnd.randint(1, 7)
            found += [evaluator.push(each) for each in self.table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
            if self.rnd.random() < 0.3:
                evaluator = self.compiled.restore(evaluator.checkpoint())
        found.append(evaluator.finish())
        return places(pa.Table.from_batches(found))


def places(found):
    return sorted(row["end"] for row in found.to_pylist())


@settings(max_examples=scaled(300), deadline=None)
@given(SEEDS)
def test_what_has_keys_of_its_own_is_as_defined(seed):
    case = OwnKeysCase(seed)
    assert places(case.compiled.evaluate(case.table)) == case.expected


@settings(max_examples=scaled(100), deadline=None)
@given(SEEDS)
def test_any_cut_with_checkpoints_finds_the_same(seed):
    case = OwnKeysCase(seed)
    with small_sizes():
        assert case.pushed() == case.expected


@settings(max_examples=scaled(40), deadline=None)
@given(SEEDS)
def test_sets_and_threads_find_the_same(seed):
    case = OwnKeysCase(seed)
    texts = {str(i): OwnKeysCase(seed + i).text for i in range(3)}
    found = cer_gpu.compile_all(texts, time_column="ts").evaluate(case.table, threads=2)
    assert places(found["0"]) == case.expected
    assert places(case.compiled.evaluate(case.table, threads=2)) == case.expected


def test_explain_names_the_keys():
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE * AS e FILTER e[COUNT(*) OVER 5 EVENTS PARTITION BY [a FILTER b = 1, c] > 3]"
    )
    assert "with the same [a FILTER b = 1, c]" in str(query.explain())


@pytest.mark.parametrize("keys", ["[], [a]", "[LAG(a)]", "[a FILTER LAG(b) = 1]", "a"])
def test_keys_that_are_none_are_refused(keys):
    with pytest.raises(cer_gpu.QueryError):
        cer_gpu.compile(f"SELECT * FROM S WHERE * AS e FILTER e[COUNT(*) OVER 5 EVENTS PARTITION BY {keys} > 3]")
