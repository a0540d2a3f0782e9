"""The kernels of a query give the results of the interpreter and of the compiled pass.

They run on the CPU, built by g++, with warps of one lane and of 32 lanes, and on a GPU if there is one.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from host_device import GXX, HostDevice, has_compiler
from random_predicates import SCHEMA, AsTheyAppear, answers, batch_of, events, guard_words, guards_of, tree, value_of
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend import cupy_backend
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.columnar.columns import Block
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.side_columns import OrderKey, Raw, SideColumns, StringId, StringIds
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement, symbol_table
from cer_gpu.predicates.cuda import blocks as device_blocks
from cer_gpu.predicates.cuda import selection as cuda
from cer_gpu.predicates.cuda.selection import struct_of
from cer_gpu.predicates.guards import COMPILED, CUDA, INTERPRETED
from cer_gpu.predicates.symbol_table import SymbolTable

N_PROGRAMS = scaled(12.5, most=5)
N_BUILT_AT_ONCE = scaled(5, most=60)
QUERY = "SELECT * FROM S WHERE A ; B FILTER A[x > 0.5] AND B[x <= 0.25] WITHIN 10 EVENTS"


# ---- random predicates over columns of every type --------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(N_PROGRAMS))
def test_words_equal_those_of_the_interpreter_and_of_the_compiled_pass(device, seed):
    rng = random.Random(seed)
    stream = "stream" if seed % 2 else None
    guards = guards_of(rng, [8, 24, 16, 70, 5][seed % 5], stream is not None)
    on_device = guard_words(guards, SCHEMA, "type", "", stream, device=CUDA)
    words = guard_words(guards, SCHEMA, "type", "", stream)
    for nulls in (0.0, 0.3):
        batches = [batch_of(rng, rng.choice([0, 1, 7, 300, 2500]), nulls) for _ in range(4)]
        batches += [batches[-1].slice(i, 5) for i in (0, 1, 3)] + [batch_of(rng, 2100, nulls)]
        found = answers(on_device, batches, CUDA)
        assert found == answers(words, batches, INTERPRETED)
        assert found == answers(words, batches, COMPILED)


def test_every_pair_of_extremes_gives_equal_words(device):
    """As in `test_compiled`, with int64 and float64 at their ends in one kernel."""
    integers = [0, 1, -1, 2, -2, 7, 2**53 + 1, 2**63 - 1, -(2**63), -(2**62)]
    floats = [0.0, -0.0, 1.0, 1.5, -2.5, float("nan"), float("inf"), -float("inf"), 2.0**53, 5e-324, 1.7e308]
    pairs = [(a, b, x, y) for a in integers for b in integers for x, y in [random.Random(a ^ b).choices(floats, k=2)]]
    pairs += [(1, 1, x, y) for x in floats for y in floats]
    batch = pa.record_batch({name: pa.array([pair[k] for pair in pairs]) for k, name in enumerate("abxy")})
    texts = [f"a {op} b {c} {d}" for op in "+-*/%" for c in ("<", "=", ">") for d in ("a", "-b")]
    texts += [f"NOT x {op} y {c} -y" for op in "+-*/%" for c in ("<", "=", ">")]
    texts += ["a < x", "-a < 0 AND a < 0", "1 / (x * y) > 0", "a * x + b * y <> a * x"]
    guards = tuple(Guard(None, tree(text)) for text in texts)
    on_device = guard_words(guards, batch.schema, None, "", device=CUDA)
    assert answers(on_device, [batch], CUDA) == answers(guard_words(guards, batch.schema, None, ""), [batch], COMPILED)


@pytest.mark.long("builds kernels for many programs")
def test_words_of_many_random_programs_equal_those_of_the_interpreter(build):
    """All programs, with words of every width, are in one build: each build takes half a second."""
    rng = random.Random(7)
    of_guards = [guards_of(rng, rng.choice([3, 8, 12, 16, 20, 66]), True) for _ in range(N_BUILT_AT_ONCE)]
    made = [guard_words(guards, SCHEMA, "type", "", "stream") for guards in of_guards]
    pieces = [read_kernel_source("select.cuh")]
    for k, words in enumerate(made):
        pieces.append(
            f"namespace n{k} {{ {struct_of(words.bound.program)} }}\n"
            f"CER_KERNEL words{k}(const cer_u64* in, cer_i64 first, cer_i64 n, n{k}::cer_query::word* w) {{\n"
            f"  cer_words_of_rows<n{k}::cer_query>(in, first, n, w);\n}}\n"
        )
    source = "".join(pieces)

    class OneOfMany(HostDevice):
        """Device on which every kernel is the one that makes words."""

        def __init__(self, k: int) -> None:
            super().__init__(build)
            self.name = f"words{k}"

        def compile(self, _, names):
            return dict.fromkeys(names, super().compile(source, [self.name])[self.name])

    for k, words in enumerate(made):
        code = cuda.CudaPass(OneOfMany(k), words.bound.program)
        for nulls in (0.0, 0.3):
            block = Block(batch_of(rng, 300, nulls))
            slot, rows = code._slots[0], words.inputs_of(block)
            code._copy_inputs(slot, (rows,), 0, block.n_rows)
            np.testing.assert_array_equal(code._words_at(slot, 3, 290), words.words(block)[3:293])


# ---- sides of filters between events ---------------------------------------------------------------------------------


def side_batch(n):
    """Return columns with NULLs, NaN, -0.0 and the ends of their types."""
    rng = random.Random(1)
    kinds = {"i1": pa.int8(), "i4": pa.int32(), "i8": pa.int64(), "u8": pa.uint64(), "f4": pa.float32()}
    kinds |= {"f8": pa.float64(), "flag": pa.bool_(), "name": pa.string(), "wide": pa.decimal128(30, 2)}
    columns = {
        name: pa.array([None if rng.random() < 0.1 else value_of(rng, kind) for _ in range(n)], kind)
        for name, kind in kinds.items()
    }
    return pa.record_batch(columns)


@pytest.mark.parametrize("n_bytes", [None, pytest.param(200_000, marks=pytest.mark.long("the same in pieces"))])
def test_sides_equal_those_of_the_host(device, n_bytes, monkeypatch):
    """Raw and in order, beside one that the host computes; in pieces where the device has little room."""
    if n_bytes is not None:
        if not isinstance(device, HostDevice):
            pytest.skip("the memory of a GPU cannot be made small")
        monkeypatch.setattr(device_blocks, "MIN_ROWS", 256)
        device.n_free = n_bytes
    batch = side_batch(5000)
    inputs = Inputs(batch.schema)
    i1, i4, i8, u8, f4, f8, flag, wide = map(inputs.column, ["i1", "i4", "i8", "u8", "f4", "f8", "flag", "wide"])
    terms = [
        i1,
        u8,
        f4,
        f8,
        flag,
        wide,
        t.Apply("negative", (i8,)),
        t.ToFloat(u8),
        t.Apply("*", (f4, f8)),
    ]
    terms += [t.Apply(op, (i8, i4)) for op in "+*/%"] + [t.Apply("+", (i4, inputs.constant(7, t.I8)))]
    columns = [kind(term) for term in terms for kind in (Raw, OrderKey)]
    columns.insert(3, StringId("name"))
    on_host, on_device = (SideColumns(columns, inputs, StringIds()) for _ in range(2))
    guards = (Guard(None, tree("i4 > 0")), Guard(None, tree("f8 > 0")))
    words = guard_words(guards, batch.schema, None, "", device=CUDA, sides=on_device)
    table = SymbolTable(AsTheyAppear(), words.bound.dtype, 2)
    for piece in (batch, batch.slice(7, 1001), batch.slice(2, 9)):
        block = Block(piece)
        rows = words.select(block, table)[1]
        assert len(rows)
        for asked in (rows, rows[::3].copy(), np.arange(len(piece), dtype=np.int32)):
            expected, found = on_host.of(block, asked), on_device.of(block, asked)
            relevant = np.isin(asked, rows)
            np.testing.assert_array_equal(found[relevant, 0], expected[relevant, 0])
            for k, column in enumerate(columns, 1):
                valid = relevant & (expected[:, 0] >> (k - 1) & 1 == 1)
                as_is = isinstance(column, Raw) and column.term.dtype == t.F8  # a NaN may have any payload
                a, b = (each[valid, k].view(np.float64) if as_is else each[valid, k] for each in (found, expected))
                np.testing.assert_array_equal(a, b, err_msg=str(column))
    assert (words._pass.max_rows < 5000) == (n_bytes is not None)


@pytest.mark.long("builds kernels of its own")
def test_sides_are_those_of_the_rows_asked_for(host):
    """Where all rows are asked for but those without a key, which are as many as the relevant ones in some streams."""
    text = "SELECT * FROM S WHERE A AS a ; B AS b ; !C FILTER a.x < b.x PARTITION BY [k] WITHIN 5 EVENTS"
    query, rng = cer_gpu.compile(text), random.Random(0)
    for _ in range(60):
        n = rng.randint(3, 40)
        columns = {"type": rng.choices("AABBCD", k=n), "x": [rng.random() for _ in range(n)]}
        table = pa.table(columns | {"k": pa.array(rng.choices([None, 1, 1, 1, 1], k=n), pa.int64())})
        assert query.evaluate(table, device="cuda").equals(query.evaluate(table, device="cpu"))


# ---- the whole engine -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["positions", "events", "count"])
def test_results_are_identical_in_any_cut(device, output, monkeypatch):
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 300)
    table, query = events(5000), cer_gpu.compile(QUERY)
    expected = query.evaluate(table, device="cpu", output=output)
    for size in (5000, 4000, 700):
        cut = pa.Table.from_batches(table.to_batches(max_chunksize=size))
        assert query.evaluate(cut, device="cuda", output=output).equals(expected)
    assert len(expected)


RULES = {
    "falling": "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x > 0.5] AND a.x > b.x + 0.1 WITHIN 9 EVENTS",
    "twice": "SELECT * FROM S WHERE A ; A FILTER A[x > 0.5] WITHIN 9 EVENTS",
    "every": "SELECT * FROM S WHERE A ; B WITHIN 2 EVENTS",
    "absent": "SELECT * FROM S WHERE A ; !(B FILTER B[x < 0.5]) ; C WITHIN 9 EVENTS",
    "lag": "SELECT * FROM S WHERE A ; B FILTER B[x > LAG(x)] WITHIN 9 EVENTS",
    "part": "SELECT * FROM S WHERE (A ; B WITHIN 2 EVENTS) ; C WITHIN 9 EVENTS",
    "step": "SELECT * FROM S WHERE A ; B ; C WITHIN 9 EVENTS, 3 EVENTS EACH STEP",
    **{f"above {k}": f"SELECT * FROM S WHERE B ; B FILTER B[x > 0.{k}] WITHIN 5 EVENTS" for k in range(10, 80)},
}


@pytest.mark.long("eighty queries, each alone and together")
def test_query_sets_give_the_tables_of_the_cpu(device, monkeypatch):
    """With 74 guards, so that a word has two parts; also with a query that comes later, and in any cut."""
    monkeypatch.setattr("cer_gpu.engine.execution_group.SET_ROWS", 700)
    table, rules = events(1500), cer_gpu.compile_all(RULES)
    expected = rules.evaluate(table, device="cpu")
    assert all(map(len, expected.values()))
    assert rules.evaluate(table, device="cuda") == expected
    few = {name: RULES[name] for name in ("falling", "absent")}
    found = dict.fromkeys(few, 0)
    evaluator = cer_gpu.compile_all({"falling": RULES["falling"]}).evaluator(device="cuda")
    evaluator.add("absent", RULES["absent"])
    for k, batch in enumerate(table.to_batches(max_chunksize=311)):
        if k % 2:  # a column that no query reads
            batch = batch.append_column("more", pa.array(range(len(batch))))
        for name, rows in evaluator.push(batch).items():
            found[name] += len(rows)
    assert found == {name: len(expected[name]) for name in few}


@pytest.mark.long("builds the kernels of a set")
def test_guards_of_removed_queries_are_not_evaluated(host):
    texts = [f"SELECT * FROM S WHERE A ; B FILTER A[x > 0.{k}] WITHIN 9 EVENTS" for k in range(10, 20)]
    batch = events(500).to_batches()[0]
    evaluator = cer_gpu.compile_all({"first": texts[0]}).evaluator(device="cuda")
    for text in texts[1:]:
        evaluator.add("other", text)
        evaluator.push(batch)
        evaluator.remove("other")
        gc.collect()
    assert len(evaluator._group.shared._guards._on_device.places) <= 3
    evaluator.finish()
    assert host.n_free > (1 << 40) - 100  # the steps of guards stay for other evaluations
    del evaluator
    gc.collect()
    assert host.n_free == 1 << 40


def test_columns_of_removed_queries_are_not_read(host):
    texts = {name: f"SELECT * FROM S WHERE A ; B FILTER A[{name} > 0] WITHIN 9 EVENTS" for name in ("x", "n")}
    batch = events(500).append_column("n", pa.array([1, 0] * 250)).to_batches()[0]
    evaluator = cer_gpu.compile_all(texts).evaluator(device="cuda")
    found = evaluator.push(batch)["x"].num_rows
    evaluator.remove("n")
    gc.collect()
    found += evaluator.push(batch)["x"].num_rows
    twice = pa.concat_tables([pa.Table.from_batches([batch])] * 2)
    assert found == cer_gpu.compile(texts["x"]).evaluate(twice, device="cpu").num_rows > 0


ANOTHER_WIDTH = pytest.mark.long("a kernel for another width")
ROW_PATTERN = """SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(ts) AS a, LAST(ts) AS b
    PATTERN (A B+ C*{}) DEFINE {})"""


@pytest.mark.parametrize(
    "codes",
    [pa.int8(), *(pytest.param(each, marks=ANOTHER_WIDTH) for each in (pa.uint16(), pa.int32(), pa.int64()))],
    ids=str,
)
def test_row_patterns_read_codes_of_every_type(host, codes):
    table = events(500).append_column("ts", pa.array(range(500))).append_column("k", pa.array([1] * 500))
    types = table["type"].combine_chunks()
    table = table.set_column(0, "type", pa.DictionaryArray.from_arrays(types.indices.cast(codes), types.dictionary))
    statement = cer_gpu.compile(ROW_PATTERN.format("", "B AS type = 'B' OR PREV(type) = 'C', C AS type = 'A'"))
    expected = statement.evaluate(table, device="cpu")
    assert len(expected)
    assert statement.evaluate(table, device="cuda").equals(expected)


@pytest.mark.long("builds kernels of many conditions")
@pytest.mark.parametrize("n_conditions", [2, 12, 20])
def test_row_patterns_give_the_tables_of_the_cpu(device, n_conditions, monkeypatch):
    """Conditions on the row, on those before and after it and on others of the match, in words of each width."""
    from cer_gpu.row_patterns import conditions

    monkeypatch.setattr(conditions, "DEVICE_ROWS", 700)
    table = events(3000).append_column("ts", pa.array(range(3000))).append_column("k", pa.array([1, 2, 3] * 1000))
    defined = ["B AS x < PREV(x) OR type = 'A'", "C AS x > NEXT(x, 2) AND x > A.x"]
    defined += [f"V{i} AS x > 0.{i}" for i in range(10, 8 + n_conditions)]
    more = "".join(f" V{i}?" for i in range(10, 8 + n_conditions))
    statement = cer_gpu.compile(ROW_PATTERN.format(more, ", ".join(defined)))
    expected = statement.evaluate(table, device="cpu")
    assert len(expected)
    assert statement.evaluate(table, device="cuda").equals(expected)


def test_a_block_is_in_flight_while_the_one_before_is_evaluated(host, monkeypatch):
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 250)
    evaluator = cer_gpu.compile(QUERY).evaluator(device="cuda")
    begun = []
    evaluator.expect(events(0).schema)
    guards = evaluator.pipeline.guards
    select = guards.select
    monkeypatch.setattr(guards, "select", lambda *a: (begun.append(len(guards._pass._in_flight)), select(*a))[1])
    evaluator.push(events(5000).combine_chunks().to_batches()[0])
    assert begun == [2, 2, 2, 2, 1]
    assert guards.tier == CUDA
    assert evaluator.placement == ("cuda", "asked for")


def test_a_checkpoint_is_restored_on_another_device(host):
    query, batch = cer_gpu.compile(QUERY), events(2000).combine_chunks().to_batches()[0]
    evaluator = query.evaluator(device="cuda")
    first = evaluator.push(batch.slice(0, 1000))
    rest = query.restore(evaluator.checkpoint()).push(batch.slice(1000))
    assert pa.Table.from_batches([first, rest]).equals(query.evaluate(pa.table(batch), device="cpu"))


def test_complex_events_before_an_error_are_listed(host, monkeypatch):
    """As on the CPU: the error of a block in flight is raised only when it is its turn."""
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 100)
    monkeypatch.setattr("cer_gpu.runtime.matches.OUTPUT_ROWS", 3)
    good = events(400).combine_chunks()
    texts = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
    )
    types = pa.concat_arrays([good["type"].chunk(0).cast(pa.string()), texts])
    batch = pa.record_batch({"type": types, "x": pa.concat_arrays([good["x"].chunk(0), pa.array([0.0])])})
    monkeypatch.setattr("cer_gpu.engine.execution_group.SET_ROWS", 100)
    for make in (cer_gpu.compile(QUERY).evaluator, cer_gpu.compile_all({"only": QUERY}).evaluator):
        found = {}
        for name in ("cpu", "cuda"):
            evaluator, found[name] = make(device=name), []
            with pytest.raises(cer_gpu.EventsError, match="not UTF-8"):
                found[name].extend(evaluator.push_batches(batch))
        on_cpu, on_cuda = (
            sum(len(rows[1] if isinstance(rows, tuple) else rows) for rows in pieces) for pieces in found.values()
        )
        assert 0 < on_cuda == on_cpu


def test_an_evaluation_may_be_left_early(host):
    query = cer_gpu.compile(QUERY)
    reader = query.stream(events(5000), device="cuda")
    reader.read_next_batch()
    reader.close()
    assert len(query.evaluate(events(5000), device="cuda")) > 0


# ---- symbols ---------------------------------------------------------------------------------------------------------


def test_symbols_are_numbered_in_the_order_of_rows(device, monkeypatch):
    """Also if words are so many that they are forgotten, and if each row has another one."""
    texts = [f"x % {2 << k} >= {1 << k}" for k in range(20)]
    guards = tuple(Guard(None, tree(text)) for text in texts)
    batch = pa.record_batch({"x": np.random.default_rng(0).permutation(12_000)})
    for most_words in (3, 5000, 1 << 16):
        monkeypatch.setattr(symbol_table, "MAX_WORDS", most_words)
        on_device = guard_words(guards, batch.schema, None, "", device=CUDA)
        assert (
            answers(on_device, [batch, batch], CUDA)
            == [[(i, x) for i, x in enumerate(batch["x"].to_pylist()) if x]] * 2
        )
    numbered = AsTheyAppear()
    table = SymbolTable(numbered, np.uint64, 20)
    guard_words(guards, batch.schema, None, "", device=CUDA).select(Block(batch), table)
    assert list(numbered.symbols) == list(dict.fromkeys([0, *batch["x"].to_pylist()]))


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_a_device_without_room_gets_smaller_pieces(build, use, monkeypatch):
    monkeypatch.setattr(device_blocks, "MIN_ROWS", 256)
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 2000)
    table, query = events(9000), cer_gpu.compile(QUERY)
    expected = query.evaluate(table, device="cpu")
    small = use(HostDevice(build, n_bytes=200_000))
    evaluator = query.evaluator(device="cuda")
    found = [evaluator.push(batch) for batch in table.combine_chunks().to_batches()]
    assert pa.Table.from_batches(found).equals(expected)
    assert evaluator.pipeline.guards._pass.max_rows == 4000  # of 8,000 in a block
    evaluator.finish()
    assert small.n_free == 200_000
    use(HostDevice(build, n_bytes=5_000))
    with pytest.raises(cer_gpu.DeviceError, match=r"the host has no memory left .*\nhint: .*device='cpu'"):
        query.evaluate(table, device="cuda")


# ---- choice of the device --------------------------------------------------------------------------------------------


def test_without_a_gpu_cuda_is_refused_and_auto_takes_the_cpu(monkeypatch):
    monkeypatch.setattr(predicates, "TIER", None)
    monkeypatch.setattr(placement, "missing", lambda: "there is no driver\nhint: install it")
    query = cer_gpu.compile(QUERY)
    with pytest.raises(cer_gpu.DeviceError, match=r"device='cuda' needs a GPU.*there is no driver\nhint: install it"):
        query.evaluate(events(10), device="cuda")
    evaluator = query.evaluator()
    assert evaluator.placement == ("cpu", "there is no driver")
    evaluator.push(events(10).to_batches()[0])
    assert evaluator.placement == ("cpu", "there is no driver")
    assert evaluator.pipeline.guards.tier != CUDA


@pytest.mark.parametrize(
    ("driver", "cupy", "what"),
    [(False, False, "driver"), (False, True, "driver"), (True, False, "CuPy is not installed.*\n.*pip install")],
)
def test_the_error_names_the_missing_part(driver, cupy, what, monkeypatch):
    def load(_):
        if not driver:
            raise OSError

    monkeypatch.setattr(cupy_backend.ctypes, "CDLL", load)
    monkeypatch.setattr(cupy_backend.importlib.util, "find_spec", lambda _: cupy or None)
    message = cupy_backend.missing_cupy.__wrapped__()
    assert cer_gpu.DeviceError(message)
    assert "\nhint: " in message
    with pytest.raises(cer_gpu.DeviceError, match=what):
        raise cer_gpu.DeviceError(message)


def test_auto_measures_both_devices(host, monkeypatch):
    monkeypatch.setattr(predicates, "TIER", None)
    monkeypatch.setattr(placement, "ROWS_TO_TRY", 1000)
    monkeypatch.setattr(placement, "ROWS_TO_MEASURE", 1000)
    clock = iter(range(10**6))
    monkeypatch.setattr(predicates.time, "perf_counter", lambda: next(clock) * 1e-6)
    placement._costs.cache_clear()
    query, batches = cer_gpu.compile(QUERY), events(6000).combine_chunks().to_batches(max_chunksize=500)
    evaluator = query.evaluator()
    found, tiers, answers = [], [], []
    for batch in batches:
        answers.append(evaluator.push(batch))
        tiers.append(evaluator.pipeline.guards.tier)
        found.append(evaluator.placement)
    on_device = [tier == CUDA for tier in tiers]
    assert on_device[:7] == [False] * 4 + [True] * 3  # two to begin with, two measured; the first on CUDA is not
    assert found[1] == ("cpu", placement.TRIED_LATER)
    assert found[-1] == ("cpu", "2 ns for each event, and 2 on cuda, measured")
    assert pa.Table.from_batches(answers).equals(query.evaluate(events(6000), device="cpu"))
    monkeypatch.setattr(placement.Costs, "next", lambda self: ("cuda", "it is said"))
    again = query.evaluator()
    again.push(batches[0])
    assert again.placement == ("cuda", "it is said")
    placement._costs.cache_clear()


def test_a_block_is_read_whole_when_measuring_ends_before_the_next(host, monkeypatch):
    """The next one is then submitted before it."""
    monkeypatch.setattr(predicates, "TIER", None)
    monkeypatch.setattr("cer_gpu.engine.execution_group.BLOCK_ROWS", 500)
    monkeypatch.setattr("cer_gpu.row_patterns.conditions.CONDITION_ROWS", 500)
    monkeypatch.setattr("cer_gpu.row_patterns.conditions.DEVICE_ROWS", 500)
    monkeypatch.setattr(placement, "ROWS_TO_TRY", 1000)
    monkeypatch.setattr(placement, "ROWS_TO_MEASURE", 1000)
    took = placement.Costs.took
    seconds = {"cpu": 1e-3, "cuda": 1e-6}
    monkeypatch.setattr(placement.Costs, "took", lambda self, name, n, _: took(self, name, n, seconds[name]))
    table = events(12_000).append_column("ts", pa.array(range(12_000))).append_column("k", pa.array([1] * 12_000))
    for query in (cer_gpu.compile(QUERY), cer_gpu.compile(ROW_PATTERN.format("", "B AS x < PREV(x)"))):
        placement._costs.cache_clear()
        assert query.evaluate(table, device="auto").equals(query.evaluate(table, device="cpu"))
        assert host.n_launches
    placement._costs.cache_clear()


# ---- memory of others ------------------------------------------------------------------------------------------------

ASAN = """
import pathlib, random, sys
import random_predicates as r
from host_device import Build, HostDevice
from cer_gpu.predicates import placement
from cer_gpu.predicates import guards as predicates
device = HostDevice(Build(pathlib.Path(sys.argv[1]), "-fsanitize=address"))
placement.missing, predicates.open_device = lambda: None, lambda: device
for n_guards in (8, 16, 70):
    rng = random.Random(n_guards)
    guards = r.guards_of(rng, n_guards, True)
    words = r.guard_words(guards, r.SCHEMA, "type", "", "stream", device="cuda")
    r.answers(words, [r.batch_of(rng, n, nulls) for nulls in (0.0, 0.3) for n in (1, 255, 600)], predicates.CUDA)
print("done")
"""


@pytest.mark.long("builds the kernels with a sanitizer")
def test_kernels_read_and_write_only_their_memory(tmp_path):
    """Under the address sanitizer, in a process of its own."""
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the kernels for the host")
    library = subprocess.run([GXX[0], "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip("g++ has no address sanitizer")
    tests = os.path.dirname(os.path.dirname(__file__))
    paths = os.pathsep.join([tests, os.path.dirname(tests)])
    environment = {**os.environ, "PYTHONPATH": paths, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-c", ASAN, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-5000:]
