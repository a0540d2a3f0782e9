"""Random predicates over columns of every type, and random events, for all ways to evaluate predicates."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql.parser import parse
from cer_gpu.columnar.columns import Block
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates.guards import INTERPRETED, BoundGuards, GuardEvaluator
from cer_gpu.predicates.symbol_table import SymbolTable


def guard_words(guards, schema, type_column, text, stream_column=None, **options):
    """Bind guards to a schema, and return their evaluation."""
    return GuardEvaluator(BoundGuards(guards, schema, type_column, text, stream_column), **options)


INTEGERS = [pa.from_numpy_dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(6, 2), pa.decimal64(12, 2), pa.decimal128(6, 2), pa.decimal128(30, 2), pa.decimal256(10, 2)]
STRINGS = [pa.string(), pa.large_string(), pa.string_view()]
CODED = [pa.dictionary(index, pa.string()) for index in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64())]
TIMESTAMPS = [pa.timestamp("ms"), pa.timestamp("ns"), pa.date32(), pa.date64()]
DURATIONS = [pa.duration("s"), pa.duration("us")]
KINDS = {
    "number": [*INTEGERS, *FLOATS, pa.dictionary(pa.int8(), pa.int16()), *DECIMALS, *DURATIONS, pa.null()],
    "text": [*STRINGS, *CODED],
    "bool": [pa.bool_(), pa.bool_()],
    "moment": TIMESTAMPS,
}
COLUMNS = {kind: [f"{kind}{i}" for i in range(len(types))] for kind, types in KINDS.items()}
SCHEMA = pa.schema(
    [("type", pa.dictionary(pa.int32(), pa.string())), ("stream", pa.dictionary(pa.int8(), pa.string()))]
    + [field for kind, types in KINDS.items() for field in zip(COLUMNS[kind], types, strict=True)]
)
TEXTS = ["", "a", "ab", "b", "ö", "it's", "zz"]
MOMENTS = [dt.datetime(1970, 1, 1), dt.datetime(2013, 1, 31), dt.datetime(1969, 12, 31), dt.datetime(2200, 1, 1)]
EDGES = [0, 1, -1, 2, -2, 3, 7, 100, 2**15, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
LITERALS = ["0", "1", "2", "3", "7", "300", "0.5", "1.5", "1e300", "9007199254740993", "9223372036854775807"]
LITERALS += ["9223372036854775808", "18446744073709551615", "(-1)", "(-0.0)", "(-9223372036854775808)", "(-2)", "1 / 0"]
FLOAT_EDGES = [0.0, -0.0, 1.0, 1.5, -2.5, float("nan"), float("inf"), -float("inf"), 2.0**53, 5e-324, 1e-40]


def value_of(rng: random.Random, kind: pa.DataType):
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        return rng.choice([e for e in [*EDGES, info.min, info.max] if info.min <= e <= info.max])
    if pa.types.is_float16(kind):
        return np.float16(rng.choice(FLOAT_EDGES[:8]))
    if pa.types.is_floating(kind):
        return rng.choice(FLOAT_EDGES)
    if pa.types.is_decimal(kind):
        return Decimal(rng.choice([0, 100, -100, 150, 50, 700, -999_999, 999_999])).scaleb(-2)
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_duration(kind):
        return dt.timedelta(seconds=rng.choice([0, 1, -1, 2, 7]))
    return rng.choice(TEXTS) if kind in STRINGS else rng.choice(MOMENTS)


def column(rng: random.Random, kind: pa.DataType, n: int, nulls: float) -> pa.Array:
    """Return random values behind an offset; a dictionary has NULL among its values, and any code under a NULL."""
    if pa.types.is_null(kind):
        return pa.nulls(n)
    before = rng.randrange(12)

    def values(value_type: pa.DataType, n: int, nulls: float) -> pa.Array:
        drawn = [None if rng.random() < nulls else value_of(rng, value_type) for _ in range(n)]
        if pa.types.is_date(value_type):
            drawn = [v and v.date() for v in drawn]
        return pa.array(drawn, value_type)

    if not pa.types.is_dictionary(kind):
        return values(kind, before + n, nulls).slice(before)
    dictionary = values(kind.value_type, rng.randrange(1, 9), nulls)
    codes = np.array([rng.randrange(len(dictionary)) for _ in range(before + n)])
    missing = np.array([rng.random() < nulls for _ in range(before + n)], np.bool_)
    codes[missing] = [rng.choice([0, 100, 127]) for _ in range(missing.sum())]
    data = codes.astype(kind.index_type.to_pandas_dtype())
    bits = pa.py_buffer(np.packbits(~missing, bitorder="little")) if nulls else None
    if rng.random() < 0.5:
        data.flags.writeable = False
    indices = pa.Array.from_buffers(kind.index_type, before + n, [bits, pa.py_buffer(data)])
    return pa.DictionaryArray.from_arrays(indices, dictionary, safe=False).slice(before)


def batch_of(rng: random.Random, n: int, nulls: float) -> pa.RecordBatch:
    arrays = {field.name: column(rng, field.type, n, nulls) for field in SCHEMA}
    for name in ("type", "stream"):
        kind = SCHEMA.field(name).type
        letters = pa.array([*rng.sample("ABCD", 4), None])
        codes = pa.array([rng.randrange(5 if nulls else 4) for _ in range(n)], kind.index_type)
        arrays[name] = pa.DictionaryArray.from_arrays(codes, letters)
    return pa.record_batch(list(arrays.values()), schema=SCHEMA)


def number(rng: random.Random, depth: int = 2) -> str:
    drawn = rng.random()
    if drawn < 0.5 or not depth:
        return rng.choice(COLUMNS["number"])
    if drawn < 0.65:
        return rng.choice(LITERALS)
    if drawn < 0.75:
        return f"-({number(rng, depth - 1)})"
    return f"({number(rng, depth - 1)} {rng.choice('+-*/%')} {number(rng, depth - 1)})"


def predicate(rng: random.Random, depth: int = 2) -> str:
    drawn = rng.random()
    if depth and drawn < 0.35:
        left, right = predicate(rng, depth - 1), predicate(rng, depth - 1)
        return rng.choice([f"NOT ({left})", f"({left}) AND ({right})", f"({left}) OR ({right})"])
    op = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    text, moment = rng.choice(COLUMNS["text"]), rng.choice(COLUMNS["moment"])
    literals = ["'" + t.replace("'", "''") + "'" for t in rng.sample(TEXTS, 3)]
    return rng.choice(
        [
            *[f"{number(rng)} {op} {number(rng)}"] * 8,
            f"{rng.choice(COLUMNS['number'])} IN {{{rng.choice(LITERALS)}, {rng.choice(LITERALS)}, {number(rng, 1)}}}",
            f"{text} {op} {literals[0]}",
            f"{text} {op} {rng.choice(COLUMNS['text'])}",
            f"{text} {rng.choice(['', 'NOT'])} IN {{{', '.join(literals)}}}",
            f"{text} LIKE '{rng.choice(['^a', 'b$', '.', ''])}'",
            f"bool0 {rng.choice(['=', '<>'])} {rng.choice(['TRUE', 'bool1'])}",
            f"{moment} {op} {rng.choice(COLUMNS['moment'])}",
            f"{moment} {op} '{rng.choice([*MOMENTS, dt.datetime(9999, 1, 1)])}'",
            f"{rng.choice(COLUMNS['number'][-3:-1])} {op} {rng.choice(COLUMNS['number'][-3:-1])}",
        ]
    )


def tree(text: str):
    return parse(f"SELECT * FROM S WHERE S FILTER S[{text}]").formula.filter.predicate


def guards_of(rng: random.Random, n: int, streams: bool) -> tuple[Guard, ...]:
    """Return guards whose predicates fit the schema."""
    found: dict[Guard, None] = {}
    while len(found) < n:
        text = predicate(rng)
        guard = Guard(
            rng.choice("ABCD"), tree(text) if rng.random() < 0.9 else None, rng.choice("AB") if streams else None
        )
        try:
            guard_words((guard,), SCHEMA, "type", text)
        except cer_gpu.QueryTypeError:
            continue
        found[guard] = None
    return tuple(found)


class AsTheyAppear:
    """Stand-in for the symbols of an automaton: words are numbered, and that without a guard is quiet."""

    def __init__(self):
        self.symbols = {0: 0}

    def symbol(self, word: int) -> int:
        return self.symbols.setdefault(word, len(self.symbols))


def answers(words: GuardEvaluator, batches: list[pa.RecordBatch], how: str):
    table = AsTheyAppear()
    symbols = SymbolTable(table, words.bound.dtype, words.bound.n_guards)
    by_symbol, found, coders = {}, [], {}
    with tier(how):
        for batch in batches:
            symbols_of, rows = words.select(Block(batch, coders), symbols)
            assert words.tier == (how if batch.num_rows else INTERPRETED)
            by_symbol = {s: w for w, s in table.symbols.items()}
            found.append([(row, by_symbol[s]) for s, row in zip(symbols_of.tolist(), rows.tolist(), strict=True)])
    return found


@contextmanager
def tier(name: str | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predicates, "TIER", name)
        patch.setattr(predicates, "FEW_STRINGS", 0)
        yield


def events(n: int) -> pa.Table:
    rng = np.random.default_rng(0)
    types = pa.array(rng.choice(["A", "B", "C"], n)).dictionary_encode()
    return pa.table({"type": types, "x": rng.random(n)})
