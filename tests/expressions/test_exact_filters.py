"""Filters on one event and between events, over columns of every type, agree with Python's exact numbers."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from exact_values import BOOLEAN, DECIMAL, FLOAT, INTEGER, LENGTH, TEXT, Oracle, column_of, events_of, kind_of, text_of
from host_device import Build, HostDevice, has_compiler
from hypothesis import strategies as st
from sizes import scaled
from strategies import property_test

import cer_gpu
from cer_gpu.predicates import guards, placement

COLUMNS = {
    **{f"i{bits}": pa.from_numpy_dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": pa.from_numpy_dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "code": pa.dictionary(pa.int8(), pa.int64()),
    "f32": pa.float32(),
    "f64": pa.float64(),
    **{f"d{scale}": pa.decimal128(18, scale) for scale in (0, 2, 9, 18)},
    "d6": pa.decimal128(6, 2),
    **{f"at_{unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "date": pa.date32(),
    "date64": pa.date64(),
    "zoned_s": pa.timestamp("s", "UTC"),
    "zoned_ns": pa.timestamp("ns", "Europe/Vienna"),
    "clock_s": pa.time32("s"),
    "clock_ns": pa.time64("ns"),
    **{f"for_{unit}": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
    "flag": pa.bool_(),
    "word": pa.string(),
    "long_word": pa.large_string(),
    "coded": pa.dictionary(pa.int8(), pa.string()),
}
NAMES = {
    kind: [n for n, d in COLUMNS.items() if kind_of(d) == kind] for kind in (INTEGER, FLOAT, DECIMAL, LENGTH, TEXT)
}
MOMENTS = [["at_s", "at_ms", "at_us", "at_ns", "date", "date64"], ["zoned_s", "zoned_ns"], ["clock_s", "clock_ns"]]
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]
LENGTHS = [("0 SECONDS", 0), ("1 DAY", 86_400), ("0.001 SECONDS", Fraction(1, 1000)), ("200000 DAYS", 200_000 * 86_400)]
LENGTHS += [("99999999999999 DAYS", 99_999_999_999_999 * 86_400), ("0.25 SECONDS", Fraction(1, 4))]
INTEGERS = [0, 1, -1, 2, 3, 7, 100, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**17, 10**17 + 1]
FLOATS = [0.0, -0.0, 1.0, 1.5, -2.5, float("nan"), float("inf"), -float("inf"), 2.0**53, 2.0**63, 2.0**64, 5e-324]
LITERALS = [("0", INTEGER, 0), ("1", INTEGER, 1), ("7", INTEGER, 7), ("9007199254740993", INTEGER, 2**53 + 1)]
LITERALS += [("0.5", FLOAT, 0.5), ("1.5", FLOAT, 1.5), ("-1", INTEGER, -1)]
WORDS = ["", "a", "ab", "b", "ö", "zz"]


# ---- draws -----------------------------------------------------------------------------------------------------------


def stored_value(rng: random.Random, name: str):
    """Draw a stored value; values are few, so that many are equal, or nearly."""
    data_type = COLUMNS[name]
    if rng.random() < 0.1:
        return None
    kind = kind_of(data_type)
    plain = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if kind == INTEGER:
        info = np.iinfo(plain.to_pandas_dtype())
        return rng.choice([x for x in [*INTEGERS, info.min, info.max] if info.min <= x <= info.max])
    if kind == FLOAT:
        return float(np.float32(rng.choice(FLOATS))) if name == "f32" else rng.choice(FLOATS)
    if kind == DECIMAL:
        digits = rng.choice([0, 1, -1, 10 ** (plain.precision - 1), 10 ** (plain.precision - 1) + 1, 7])
        return f"{digits}e-{plain.scale}"
    if kind == BOOLEAN:
        return rng.random() < 0.5
    if kind == TEXT:
        return rng.choice(WORDS)
    if name.startswith("clock"):
        return rng.choice([0, 1, 3600, 86_399]) * (10**9 if name == "clock_ns" else 1) + (name == "clock_ns")
    if name == "date":
        return rng.choice([0, 1, -1, 15_000, 182_500, 2**31 - 1, -(2**31)])
    if name == "date64":
        return 86_400_000 * rng.choice([0, 1, -1, 15_000, 182_500])
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[plain.unit]
    near = rng.choice([0, 1, -1, 86_400, 15_000 * 86_400]) * per_second + rng.choice([0, 0, 1, -1])
    return rng.choice([near, near, near, 2**63 - 1, -(2**63) + 1])


def number(rng: random.Random, events: str, depth: int):
    if depth and rng.random() < 0.5:
        if rng.random() < 0.15:
            return ("negative", number(rng, events, depth - 1))
        return (rng.choice("+-*/%"), number(rng, events, depth - 1), number(rng, events, depth - 1))
    if rng.random() < 0.2:
        return ("literal", *rng.choice(LITERALS))
    return column(rng, events, NAMES[INTEGER] if rng.random() < 0.7 else NAMES[FLOAT])


def column(rng: random.Random, events: str, names):
    return ("column", rng.choice(events), rng.choice(names))


def comparison(rng: random.Random, events: str):
    op, drawn = rng.choice(OPERATORS), rng.random()
    if drawn < 0.4:
        return ("compare", op, number(rng, events, 2), number(rng, events, 1))
    if drawn < 0.55:
        pair = [column(rng, events, NAMES[DECIMAL]), column(rng, events, NAMES[rng.choice([DECIMAL, INTEGER])])]
        rng.shuffle(pair)
        return ("compare", op, *pair)
    group = rng.choice(MOMENTS)
    if drawn < 0.65:
        return ("compare", op, column(rng, events, group), column(rng, events, group))
    if drawn < 0.85:
        distance = ("-", column(rng, events, group), column(rng, events, group))
        text, seconds = rng.choice(LENGTHS)
        other = rng.choice(
            [
                ("literal", text, LENGTH, Fraction(seconds)),
                ("-", column(rng, events, group), column(rng, events, group)),
                column(rng, events, NAMES[LENGTH]),
            ]
        )
        sides = [distance, other]
        rng.shuffle(sides)
        return ("compare", op, *sides)
    if drawn < 0.9:
        return ("compare", op, column(rng, events, NAMES[LENGTH]), column(rng, events, NAMES[LENGTH]))
    if drawn < 0.95:
        return ("compare", op, column(rng, events, NAMES[TEXT]), column(rng, events, NAMES[TEXT]))
    if drawn < 0.98:
        return ("is null", number(rng, events, 2))
    return ("compare", rng.choice("=="), column(rng, events, ["flag"]), column(rng, events, ["flag"]))


def band(rng: random.Random):
    """Draw bounds of a difference of values of two events, from both sides."""
    names = NAMES[rng.choice([INTEGER, INTEGER, FLOAT, DECIMAL])]
    one, other = (column(rng, event, names) for event in rng.choice(["ab", "ba"]))

    def side(value):
        if rng.random() < 0.5 or kind_of(COLUMNS[value[2]]) == DECIMAL:
            return value
        return (rng.choice("+-"), value, ("literal", *rng.choice(LITERALS)))

    if rng.random() < 0.3 and kind_of(COLUMNS[one[2]]) == kind_of(COLUMNS[other[2]]) != DECIMAL:
        difference, literals = ("-", side(one), side(other)), rng.sample(LITERALS, 2)
        return ("and", *(("compare", op, difference, ("literal", *x)) for op, x in zip("<>", literals, strict=True)))
    least, most = ("compare", rng.choice([">", ">="]), side(one), side(other)), rng.choice(["<", "<="])
    return ("and", least, ("compare", most, side(one), side(other)))


def predicate(rng: random.Random, events: str, depth: int):
    if depth and rng.random() < 0.5:
        if rng.random() < 0.3:
            return ("not", predicate(rng, events, depth - 1))
        return (rng.choice(["and", "or"]), predicate(rng, events, depth - 1), predicate(rng, events, depth - 1))
    tree = comparison(rng, events)
    while not any(events_of(tree)):  # a filter names its events
        tree = comparison(rng, events)
    return tree


def stream(rng: random.Random, n: int):
    """Return a batch of events, half of them of type A, and their stored values."""
    rows = [{name: stored_value(rng, name) for name in COLUMNS} for _ in range(n)]
    types = [rng.choice("AB") for _ in range(n)]
    columns = {name: column_of([row[name] for row in rows], data_type) for name, data_type in COLUMNS.items()}
    return pa.table({"type": types, **columns}), types, rows


ORACLE = Oracle(pa.schema(list(COLUMNS.items())))


def found(text: str, events: pa.Table) -> list[list[int]]:
    return sorted(cer_gpu.compile(text).evaluate(events)["positions"].to_pylist())


# ---- properties ------------------------------------------------------------------------------------------------------


@property_test(3)
def test_filters_between_events_are_exact(data):
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    check_between_events(rng, predicate(rng, "ab", 2))


@property_test(3)
def test_bands_between_events_are_exact(data):
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    check_between_events(rng, band(rng))


def check_between_events(rng: random.Random, tree) -> None:
    table, types, rows = stream(rng, 8)
    exact = [
        [i, k]
        for i in range(8)
        for k in range(i + 1, 8)
        if (types[i], types[k]) == ("A", "B") and ORACLE.truth(tree, {"a": rows[i], "b": rows[k]})
    ]
    for text in (text_of(tree), f"b[{text_of(tree, 'b')}]"):
        query = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {text}"
        try:
            assert found(query, table) == exact, query
        except cer_gpu.EventsError as error:  # refused in words, never a wrong match
            if not re.search("of an event is beyond int64|more than 128 bits", str(error)):
                raise


@pytest.mark.parametrize("tier", [guards.INTERPRETED, guards.COMPILED, guards.CUDA])
def test_filters_on_one_event_are_exact(tier, monkeypatch, tmp_path):
    """Many predicates are one query, so that machine code is made once; kernels run on the CPU."""
    monkeypatch.setattr(guards, "TIER", tier)
    if tier == guards.CUDA:
        if not has_compiler():
            pytest.skip("g++ is not installed: it builds the kernels for the host")
        device = HostDevice(Build(tmp_path))
        monkeypatch.setattr(placement, "missing", lambda: None)
        monkeypatch.setattr(guards, "open_device", lambda: device)
    for seed in range(1 if tier == guards.CUDA else scaled(7.5)):
        rng = random.Random(seed)
        trees = [predicate(rng, "a", 2) for _ in range(40)]
        table, _, rows = stream(rng, 60)
        table = table.set_column(0, "type", pa.array(["A"] * 60))
        for begin in range(0, 40, 8):
            some = trees[begin : begin + 8]
            formula = " OR ".join(f"(A AS x{k} FILTER x{k}[{text_of(tree, 'a')}])" for k, tree in enumerate(some))
            answer = cer_gpu.compile(f"SELECT * FROM S WHERE {formula}").evaluate(table, output="bindings")
            for k, tree in enumerate(some):
                exact = [i for i, row in enumerate(rows) if ORACLE.truth(tree, {"a": row})]
                held = sorted(row["start"] for row in answer.to_pylist() if row[f"x{k}"] is not None)
                assert held == exact, text_of(tree)


@property_test(1 / 3)
def test_conditions_of_having_are_exact(data):
    """A row of measures is one event to them."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    tree = predicate(rng, "b", 2)
    table, types, rows = stream(rng, 8)
    having = f"SELECT a.n AS first, b.n AS last FROM S WHERE A AS a ; B AS b HAVING {text_of(tree)}"
    answer = cer_gpu.compile(having).evaluate(table.append_column("n", pa.array(range(8)))).to_pylist()
    pairs = [(i, k) for i in range(8) for k in range(i + 1, 8) if (types[i], types[k]) == ("A", "B")]
    exact = [(i, k) for i, k in pairs if ORACLE.truth(tree, {"b": rows[k]})]
    assert sorted((row["first"], row["last"]) for row in answer) == exact, having


# ---- what was wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "predicate", "holds"),
    [
        ({"i64": -1}, {"u64": 2**64 - 1}, "b.u64 <> a.i64", True),
        ({"u64": 1, "f64": 0.0}, {"u64": 2**63 + 1, "f64": 1.0}, "b.u64 > a.u64 OR b.f64 < a.f64", True),
        ({"d2": "123456789012345678e-2"}, {"d2": "123456789012345679e-2"}, "b.d2 <> a.d2", True),
        ({"d2": "123456789012345678e-2"}, {"d2": "123456789012345679e-2"}, "b.d2 = a.d2 OR b.d2 < a.d2", False),
        ({"d18": "1e-18", "i64": 1}, {"d0": "1e-0", "u64": 1}, "b.d0 = a.i64 AND NOT b.d0 = a.d18", True),
        ({"at_ms": 0, "f64": 1.0}, {"at_ns": 2**63 - 1, "f64": 1.0}, "b.at_ns - a.at_ms <= 1 DAY OR b.f64 > 3", False),
        ({"at_s": -(2**62)}, {"at_s": 2**62, "f64": 0.0}, "b.at_s - a.at_s <= 1 DAY OR b.f64 > 3", False),
        ({"at_ms": 0}, {"at_ms": 1, "f64": 0.0}, "b.at_ms - a.at_ms <= 200000 DAYS OR b.f64 > 3", True),
        ({"at_ms": 0}, {"at_ms": 1}, "b.at_ms - a.at_ms <= 99999999999999999999 DAYS", True),
        ({"i64": 1}, {"u64": 0}, "a.i64 / b.u64 IS NOT NULL OR a.i64 % b.u64 = 0", False),
        ({"d2": "1e-2"}, {"d2": "1e-2"}, "a.d2 = b.d2 AND NOT (a.d2 <= 1 / 0 OR b.d2 > 1 % 0)", False),
        ({"at_s": 0}, {"at_ns": 86_400 * 10**9}, "b.at_ns - a.at_s IN {5 MINUTES, 1 DAY}", True),
        ({"i64": 1}, {"i64": 2}, "a.i64 + b.i64 > 2.5", True),
        ({"i64": 2**53}, {"i64": 1}, "a.i64 + b.i64 = 9007199254740992.0", False),
        ({"i64": 1}, {"f64": 2.0**53}, "a.i64 * b.f64 = 9007199254740993", False),
        ({"i64": 1}, {"f64": 2.0**53}, "a.i64 * b.f64 <> -18446744073709551615", True),
    ],
)
def test_filters_between_events_do_not_wrap_around(a, b, predicate, holds):
    rows = [{**dict.fromkeys(COLUMNS), **row} for row in (a, b)]
    columns = {name: column_of([row[name] for row in rows], data_type) for name, data_type in COLUMNS.items()}
    table = pa.table({"type": ["A", "B"], **columns})
    text = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {predicate}"
    assert found(text, table) == ([[0, 1]] if holds else [])


BEYOND = [("a.i64 + 1 > b.i64 - 1", True), ("a.i64 * a.i64 > b.i64 * b.i64", False), ("a.u64 + 1 = b.u64 + 1", True)]


def of_greatest(predicate: str) -> list[list[int]]:
    rows = [{**dict.fromkeys(COLUMNS), "i64": 2**63 - 1, "u64": 2**64 - 1, "f64": 0.0} for _ in "ab"]
    columns = {name: column_of([row[name] for row in rows], data_type) for name, data_type in COLUMNS.items()}
    text = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {predicate}"
    return found(text, pa.table({"type": ["A", "B"], **columns}))


@pytest.mark.parametrize("predicate", [predicate for predicate, _ in BEYOND])
def test_what_each_event_computes_fits_int64_or_is_an_error(predicate):
    with pytest.raises(cer_gpu.EventsError, match="of an event is beyond int64"):
        of_greatest(predicate)


@pytest.mark.parametrize(("predicate", "holds"), BEYOND)
def test_programs_compute_in_128_bits(predicate, holds):
    assert of_greatest(f"{predicate} OR b.f64 + a.f64 > 3") == ([[0, 1]] if holds else [])


@pytest.mark.parametrize("others", ["", " OR b.f64 + a.f64 > 3"])
def test_what_programs_compute_fits_128_bits_or_is_an_error(others):
    with pytest.raises(cer_gpu.EventsError, match="more than 128 bits"):
        of_greatest(f"a.i64 * b.i64 * a.i64 < 0{others}")
