"""The compiled pass against the interpreter, and that no text of a query or of data reaches generated code.

The interpreter is held to plain Python in test_binding.py, and both to the definitions by the property tests.
"""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
from datetime import datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from strategies import EXAMPLES

import cer_gpu
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.generation import source_of
from cer_gpu.ceql.parser import parse
from cer_gpu.engine import predicates
from cer_gpu.engine.columns import Block
from cer_gpu.engine.predicates import COMPILED, INTERPRETED, GuardWords
from cer_gpu.engine.symbols import SymbolTable

INTEGERS = [0, 1, -1, 2, 3, 7, 100, 2**63 - 1, -(2**63), 2**53 + 1]
FLOATS = [0.0, -0.0, 1.0, 1.5, -2.5, 0.1, float("inf"), float("-inf"), float("nan"), 2.0**53]
TEXTS = ["", "a", "ab", "b", "é", "a%"]
START = datetime(2020, 1, 1)
VALUES = {
    "i": (pa.int64(), INTEGERS),
    "j": (pa.int64(), INTEGERS),
    "i8": (pa.int8(), [0, 1, -1, 127, -128]),
    "i16": (pa.int16(), [0, 1, -1, 300, -300]),
    "i32": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    "u8": (pa.uint8(), [0, 1, 255]),
    "u64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f": (pa.float64(), FLOATS),
    "g": (pa.float64(), FLOATS),
    "h": (pa.float32(), [0.0, 1.5, float("nan"), float("inf")]),
    "s": (pa.string(), TEXTS),
    "t": (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    "b": (pa.bool_(), [True, False]),
    "d": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-3.00"), Decimal("0.01")]),
    "m": (pa.timestamp("ms"), [START + timedelta(hours=k) for k in range(4)]),
}
QUERIES = {
    "numbers": ["i > 1", "j <= 2", "f < 1.5 AND NOT g = 0", "i8 = 1 OR i16 < 0", "i32 >= 0 AND u8 <> 1", "u64 > 5",
                "h > 1", "i = f", "u64 < i"],
    "arithmetic": ["i / j > 0", "i % j < 1", "i * j - 1 >= i + j", "f / g > 1", "f % g < 1", "-i < j", "i8 + f > 1",
                   "NOT i / j > 0"],
    "others": ["s = 'a'", "t <> 'ab'", "s LIKE 'a%' OR b = TRUE", "t IN {'a', 'b'}", "d > 1.2",
               "m >= '2020-01-01 02:00:00'", "s < t", "i IN {1, 2, 7}"],
    "more than 16 guards": [f"i {op} {k}" for op in ("<", "=") for k in range(9)],
}  # fmt: skip


class EachWord:
    """Gives every word a symbol of its own, from 1 on."""

    def __init__(self) -> None:
        self.words: list[int] = []

    def symbol(self, word: int) -> int:
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word) + 1


def guards_of(texts: list[str]) -> tuple[Guard, ...]:
    found = []
    for k, text in enumerate(texts):
        predicate = parse(f"SELECT * FROM S WHERE S FILTER S[{text}]").formula.filter.predicate
        found.append(Guard("AB"[k % 2], predicate))
    return (*found, Guard("A"), Guard(None))


def random_batch(rng: random.Random) -> pa.RecordBatch:
    """Return a slice of columns with NULLs, with none, or without any row."""
    n = rng.choice([0, 1, 7, 64, 1030, 3000])
    nulls = rng.choice([0.0, 0.0, 0.3])
    columns = {"type": pa.array(rng.choices("ABC", k=n))}
    if rng.random() < 0.5:
        columns["type"] = columns["type"].dictionary_encode()
    for name, (kind, values) in VALUES.items():
        chosen = [None if rng.random() < nulls else rng.choice(values) for _ in range(n)]
        if pa.types.is_dictionary(kind):
            columns[name] = pa.array(chosen, kind.value_type).dictionary_encode().cast(kind)
        else:
            columns[name] = pa.array(chosen, kind)
    batch = pa.record_batch(columns)
    begin = rng.randint(0, n)
    return batch.slice(begin, rng.randint(0, n - begin)) if rng.random() < 0.7 else batch


def selected(words: GuardWords, batch: pa.RecordBatch) -> list[tuple[int, int]]:
    table = EachWord()
    symbols, rows = words.select(Block(batch, {}), SymbolTable(table, words.dtype, words.n_guards))
    return [(int(row), table.words[symbol - 1]) for symbol, row in zip(symbols, rows, strict=True)]


@pytest.mark.parametrize("name", QUERIES)
def test_the_compiled_pass_is_the_interpreter(name, monkeypatch):
    rng = random.Random(name)
    for _ in range(max(EXAMPLES // 6, 20)):
        batch = random_batch(rng)
        words = GuardWords(guards_of(QUERIES[name]), batch.schema, "type", "")
        found = {}
        for tier in (INTERPRETED, COMPILED):
            monkeypatch.setattr(predicates, "TIER", tier)
            found[tier] = selected(words, batch)
            assert words.tier == (tier if batch.num_rows else INTERPRETED)
        assert found[COMPILED] == found[INTERPRETED]
        assert [row for row, _ in found[COMPILED]] == list(range(batch.num_rows))


@pytest.mark.parametrize("type_column", ["type", None])
def test_without_predicates(type_column, monkeypatch):
    monkeypatch.setattr(predicates, "TIER", COMPILED)
    query = cer_gpu.compile("SELECT * FROM S WHERE S ; S" if type_column is None else "SELECT * FROM S WHERE A ; B",
                            type_column=type_column)  # fmt: skip
    found = query.evaluate(pa.table({"type": ["A", "C", "B"]}))
    assert sorted(found["positions"].to_pylist()) == ([[0, 2]] if type_column else [[0, 1], [0, 2], [1, 2]])


def test_the_tier_is_chosen_by_what_pays(monkeypatch):
    monkeypatch.setattr(predicates, "TIER", None)
    # a shape that no other test has, so that it is not on disk
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B FILTER A[{' AND '.join(f'v <> {k}' for k in range(23))}]")
    table = pa.table({"type": np.resize(["A", "B", "C"], 1000), "v": np.arange(1000)})
    evaluator = query.evaluator()
    evaluator.push(table.to_batches()[0])
    assert evaluator._binding.guards.tier == INTERPRETED


# ---- no text reaches generated code ----------------------------------------------------------------------------

NAMES = """
from numpy import as float64 F int64 I uint8 B uint16 H uint64 U def run for r in range while if else return min
cer_gpu backend operations fmod prefetch quotient remainder shape n_rows bits integers naturals floats
types streams last_types last_streams table start symbols positions n_selected allowed words word symbol kept
begin m i
"""
NUMBERED = re.compile(r"(c|v|b|p|t|g|x|last_t|integers_|naturals_|floats_)\d+")
HOSTILE = ["a'); import os #", "x\n  y", '"""', "__import__('os')", "\\", "c0", "run", "é{}", "%s", "i = 0", " "]


def source(texts: list[str], rename: dict[str, str], literals: dict[str, str]) -> str:
    """The source for predicates over columns "n", "v" and "s" that have other names, with other constants."""
    quoted = {name: f"`{new}`" for name, new in rename.items()}
    spelled = [text.format(**quoted, **literals) for text in texts]
    schema = pa.schema([("type", pa.string()), (rename["n"], pa.int64()), (rename["v"], pa.float64()),
                        (rename["s"], pa.string())])  # fmt: skip
    words = GuardWords(guards_of(spelled), schema, "type", "")
    return source_of(words._code.program, True)


def random_predicate(rng: random.Random, depth: int = 2) -> str:
    if depth and rng.random() < 0.6:
        op = rng.choice([" AND ", " OR "])
        text = f"({random_predicate(rng, depth - 1)}{op}{random_predicate(rng, depth - 1)})"
        return f"NOT {text}" if rng.random() < 0.3 else text
    return rng.choice(["{n} > {one}", "{v} <= {two}", "{s} = {text}", "{s} LIKE {text}", "{s} IN {{{text}, 'z'}}",
                       "{n} + {n} * {one} < {v}", "-{v} <> {two}"])  # fmt: skip


@pytest.mark.parametrize("seed", range(max(EXAMPLES // 4, 30)))
def test_no_text_of_a_query_or_of_data_reaches_generated_code(seed):
    rng = random.Random(seed)
    texts = [random_predicate(rng) for _ in range(rng.randint(1, 4))]
    plain = source(texts, {"n": "n", "v": "v", "s": "s"}, {"one": "1", "two": "2.5", "text": "'a'"})
    names = rng.sample([name for name in HOSTILE if "\n" not in name and "`" not in name], 3)
    literal = rng.choice(["run", "import os", "c0]", '"', "a_b%"])
    others = {"one": str(rng.randint(2, 10**9)), "two": str(rng.random() + 3), "text": f"'{literal}'"}
    hostile = source(texts, dict(zip("nvs", names, strict=True)), others)
    assert hostile == plain
    for token in tokenize.generate_tokens(io.StringIO(plain).readline):
        assert token.type not in (tokenize.STRING, tokenize.COMMENT)
        if token.type == tokenize.NAME:
            assert token.string in NAMES.split() or NUMBERED.fullmatch(token.string), token.string
    kinds = {type(node).__name__ for node in ast.walk(ast.parse(plain))}
    assert not kinds & {"Lambda", "Try", "With", "Global", "ClassDef", "AsyncFunctionDef", "Yield", "JoinedStr"}
