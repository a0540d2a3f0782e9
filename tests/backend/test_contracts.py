"""Each kernel has a contract, and holds it: in its source, and in calls by real queries."""

import functools
import importlib
import inspect
import sys
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from cases import by_automaton
from contracts import Array, Group, Mismatch, check_call, contract, fields_written, functions, group, written_by
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.expressions import string_sets

FOUND, KERNELS = functions()
MAX_ARGUMENTS = 24
kernels = pytest.mark.parametrize("key", sorted(KERNELS), ids=lambda key: f"{key[0].rpartition('.')[2]}.{key[1]}")


@kernels
def test_a_contract_names_the_arguments_in_their_order(key):
    stated = contract(*key)
    assert list(stated) == [argument.arg for argument in FOUND[key].args.args]
    assert len(stated) <= MAX_ARGUMENTS
    module = importlib.import_module(key[0])
    for made in stated.values():
        if isinstance(made, Group):
            assert list(made.fields) == list(group(made.name, module)._fields)
            assert len(made.fields) <= MAX_ARGUMENTS


@functools.cache
def all_writes():
    """Return what each kernel writes; it takes seconds to find."""
    return written_by(FOUND)


@kernels
def test_what_a_kernel_writes_is_what_its_contract_says(key):
    stated, writes = contract(*key), all_writes()[key]
    for name, made in stated.items():
        if isinstance(made, Array):
            assert ((name,) in writes) == made.written, name
        if isinstance(made, Group):
            fields = fields_written(writes, name, made)
            may = {field for field, inner in made.fields.items() if isinstance(inner, Array) and inner.written}
            assert fields <= (set() if made.read else may), name
            assert made.read or fields or not may, f"{name} is only read"


def test_every_field_that_may_be_written_is_written_by_some_kernel():
    may, are = set(), set()
    for key in KERNELS:
        for name, made in contract(*key).items():
            if isinstance(made, Group):
                may |= {
                    (made.name, f) for f, inner in made.fields.items() if isinstance(inner, Array) and inner.written
                }
                are |= {(made.name, field) for field in fields_written(all_writes()[key], name, made)}
    assert may == are


# ---- real calls -----------------------------------------------------------------------------------------------------


@contextmanager
def checked_calls():
    """Check all calls of kernels from Python; give the names of the kernels that were called."""
    called = set()

    def checking(made, key):
        stated, module, fitting = contract(*key), importlib.import_module(key[0]), set()

        def call(*arguments):
            called.add(key)
            arguments = [
                tuple(a) if isinstance(stated[n], Group) else a for n, a in zip(stated, arguments, strict=True)
            ]
            unwritten = check_call(module, stated, arguments, fitting)
            before = [(where, array, array.tobytes()) for where, array in unwritten]
            result = made(*arguments)
            for where, array, content in before:
                assert array.tobytes() == content, f"{key}: {where} was written"
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        wrapped = {id(getattr(importlib.import_module(m), n)): (m, n) for m, n in KERNELS}
        for name, module in list(sys.modules.items()):
            # kernels call one another by the names in the backend, which stay
            if name.startswith("cer_gpu.") and not name.startswith("cer_gpu.backend."):
                for attribute, value in list(vars(module).items()):
                    if id(value) in wrapped:
                        patch.setattr(module, attribute, checking(value, wrapped[id(value)]))
                    for inner, made in list(vars(value).items()) if inspect.isclass(value) else []:
                        kernel = getattr(made, "__func__", made)
                        if id(kernel) in wrapped:
                            patch.setattr(value, inner, staticmethod(checking(kernel, wrapped[id(kernel)])))
                    if inspect.ismodule(value) and value.__name__.startswith("cer_gpu.backend."):
                        copy = type(sys)(value.__name__)
                        copy.__dict__.update(vars(value))
                        for inner, kernel in list(vars(value).items()):
                            if id(kernel) in wrapped:
                                setattr(copy, inner, checking(kernel, wrapped[id(kernel)]))
                        patch.setattr(module, attribute, copy)
        yield called


def events(n, seed):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "type": rng.choice(list("ABCD"), n).tolist(),
            "t": np.sort(rng.integers(0, n, n)),
            "f": np.sort(rng.random(n) * n),
            "k": rng.integers(0, 5, n),
            "s": rng.choice(["x", "y", "z"], n).tolist(),
        }
    )


PATTERNS = ["A ; B ; C", "A ; B+ ; C", "(A ; B)+ ; C", "A : B", "A ; (B OR C)+ : D"]
PATTERNS += [
    "A AS a ; B AS b FILTER b.f > a.f + 3 AND b.k = a.k",
    "A AS a ; B+ AS b ; C AS c FILTER b.t < a.t + 9 AND b.k >= PREV(b).k AND c.s <= a.s AND c.t > 2 * b.t - LAST(b).t",
    "A AS a : (B OR A) AS b ; C AS c FILTER b.k <> a.k OR c.k * b.k = a.k + 1",
    "A ; B ; C FILTER A.k = B.k AND B.s = C.s",
    "A ALL B ALL C FILTER A.k = B.k AND B.k = C.k AND B.s = C.s",
    "(A ALL A AS b) ; C FILTER A.k = C.k AND b.s = C.s",
]
CLAUSES = [
    "",
    "WITHIN 9 EVENTS",
    "WITHIN 9 [t]",
    "WITHIN 9 [f]",
    "PARTITION BY [k]",
    "PARTITION BY [s] WITHIN 5 EVENTS",
    "PARTITION BY [k], [s] WITHIN 20 [t] CONSUME BY PARTITION",
]


@pytest.mark.long("checks every call of every kernel")
@pytest.mark.parametrize("output", ["positions", "bindings", "count"])
def test_real_calls_fit_their_contracts(output):
    table = events(60, 1)
    with small_sizes(), checked_calls() as called:
        for pattern in PATTERNS:
            for clauses in CLAUSES:
                for strategy in ("ALL", "NEXT", "MAX") if pattern == "A ; B ; C" else ("ALL",):
                    query = cer_gpu.compile(
                        f"SELECT {strategy} * FROM S WHERE {pattern} {clauses} LIMIT 20", time_column="t"
                    )
                    found = query.evaluate(table, output=output)
                    assert by_automaton(query).evaluate(table, output=output).num_rows == found.num_rows
                    query.evaluate(table[:30], output=output, shard=(0, 2))
    names = {name for _, name in called}
    assert {"window_lows", "assign_partitions", "update_events", "collect_products", "rehash"} <= names
    assert (
        {"count_events", "count_chain"} if output == "count" else {"evaluate_events", "push_events", "list_ends"}
    ) <= names


@pytest.mark.long("checks every call of every kernel")
@pytest.mark.parametrize("pattern", ["A ; B{2,3} -> C", "A ; !D ; B ; C", "A{2} ; B ->+ ; C"])
def test_real_calls_of_chains_with_counts_and_absences_fit_their_contracts(pattern):
    table = events(60, 1)
    with small_sizes(), checked_calls() as called:
        for clauses in ("", "WITHIN 9 EVENTS", "PARTITION BY [k]", "PARTITION BY [k] WITHIN 20 [t]"):
            query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern} {clauses} LIMIT 20", time_column="t")
            listed = query.evaluate(table)
            assert listed.num_rows > 0
            if "PARTITION" not in clauses:
                assert sum(query.evaluate(table, output="count")["count"].to_pylist()) == listed.num_rows
    names = {name for _, name in called}
    assert {"push_events", "list_ends", "count_chain", "drop_oldest"} <= names


REST = [
    "A{2,3} ; B? ; C",
    "A ; (B OR C)+ : D",
    "A AS a ; !(D FILTER D.k = a.k) ; B AS b FILTER b.k = a.k",
    "A AS a ; !(D FILTER D.t > a.t + 2) ; B AS b -> C FILTER b.f > a.f + 3",
    "A ; B ; !(D FILTER D.t > A.t + 2)",
    "A AS a ; B AS b ; !(D FILTER D.k = a.k) FILTER b.f > a.f",
]


@pytest.mark.long("checks every call of every kernel")
@pytest.mark.parametrize("output", ["bindings", "count", "ends"])
def test_real_calls_of_strategies_and_absences_fit_their_contracts(output):
    table = events(60, 1)
    with small_sizes(), checked_calls() as called:
        for pattern in REST:
            for clauses in ("WITHIN 9 EVENTS", "PARTITION BY [k] WITHIN 20 [t]"):
                for strategy in ("ALL", "NEXT", "MAX"):
                    query = cer_gpu.compile(f"SELECT {strategy} * FROM S WHERE {pattern} {clauses}", time_column="t")
                    assert query.evaluate(table, output=output).num_rows > 0
    chosen = set() if output == "ends" else {"find_ends", "evaluate_windows"}
    assert {"choose_at_ends"} | chosen <= {name for _, name in called}


@pytest.mark.parametrize("pattern", ["A AS a ; B AS b FILTER b.k = a.k", "A AS a ; !D ; B AS b"])
def test_real_calls_of_recent_fit_their_contracts(pattern):
    table = events(60, 1)
    with small_sizes(), checked_calls() as called:
        for behind in ("", " ; !(D AS d FILTER d.k = a.k)", " ; !C"):
            for clauses in ("WITHIN 9 EVENTS", "PARTITION BY [k] WITHIN 20 [t]"):
                query = cer_gpu.compile(f"SELECT RECENT * FROM S WHERE ({pattern}){behind} {clauses}", time_column="t")
                assert query.evaluate(table).num_rows > 0
    assert {"move_events", "drop_pending", "free_all"} <= {name for _, name in called}


def test_real_calls_of_sets_fit_their_contracts():
    texts = {
        "two": "SELECT * FROM S WHERE A AS a ; B FILTER a[f > 1] PARTITION BY [k] WITHIN 20 [t]",
        "three": "SELECT * FROM S WHERE A AS a ; B ; C FILTER a[s = 'x'] WITHIN 9 EVENTS",
    }
    with small_sizes(), checked_calls() as called:
        found = cer_gpu.compile_all(texts, time_column="t").evaluate(events(60, 1))
    assert found["two"].num_rows > 0
    of_sets = {"choose_triggers", "code_strings", "find_rows"}
    assert {"group_rows", "merge_rows", "gather", *of_sets} <= {name for _, name in called}


def test_real_calls_of_sets_of_patterns_fit_their_contracts():
    globs = ("x", "*y*", "?", "*[a-m]z", "x*Y*z", "*z")
    texts = {f"{k}": f"SELECT * FROM S WHERE A AS a FILTER a[s GLOB '{glob}' NOCASE]" for k, glob in enumerate(globs)}
    table = events(60, 1)
    coded = table["s"].combine_chunks().dictionary_encode()
    values = pa.concat_arrays([coded.dictionary, pa.nulls(1, coded.dictionary.type)])  # with NULL, tables are made
    place = table.column_names.index("s")
    other = table.set_column(place, "s", pa.DictionaryArray.from_arrays(coded.indices, values))
    with small_sizes(), pytest.MonkeyPatch.context() as patch, checked_calls() as called:
        patch.setattr(string_sets, "TOGETHER_FROM", 0)
        rules = cer_gpu.compile_all(texts, time_column="t")
        found = rules.evaluate(table)
        assert rules.evaluate(other) == found
        assert {name: rules[name].evaluate(table) for name in texts} == found
        assert {name: rules[name].evaluate(other) for name in texts} == found
    assert [len(each) > 0 for each in found.values()] == [True, True, True, False, False, True]
    assert {"lay_out", "find_globs", "group_rows", "mark_strings"} <= {name for _, name in called}


def test_real_calls_of_measures_fit_their_contracts():
    measures = "COUNT(x), SUM(x.k), AVG(x.f), MIN(x.t), MAX(x.s), LIST(x.k), LAST(x).k, y.t"
    with small_sizes(), checked_calls() as called:
        found = cer_gpu.compile(f"SELECT {measures} FROM S WHERE A+ AS x ; B AS y WITHIN 9 EVENTS").evaluate(
            events(60, 1)
        )
    assert found.num_rows > 0
    names = {name for _, name in called}
    assert {"count_bound", "extreme_bound", "find_bound_row", "gather_bound", "sum_bound"} <= names


@pytest.mark.long("checks every call of every kernel")
@pytest.mark.parametrize("window", ["", "WITHIN 9 EVENTS", "WITHIN 9 [t]", "WITHIN 9 [f]"])
def test_real_calls_of_aggregates_fit_their_contracts(window):
    with small_sizes(), checked_calls() as called:
        query = cer_gpu.compile(f"SELECT * FROM S WHERE A AS x ; B+ ; C AS y {window}")
        for aggregate in ("SUM(y.k - x.k)", "AVG(y.f)", "MAX(y.f - x.f)"):
            assert query.evaluate(events(60, 1), output="count", aggregate=aggregate).num_rows > 0
    assert "count_chain" in {name for _, name in called}


@pytest.mark.long("checks every call of every kernel")
@pytest.mark.parametrize("rows", ["ONE ROW PER MATCH", "ALL ROWS PER MATCH"])
def test_real_calls_of_row_patterns_fit_their_contracts(rows):
    measures = "LAST(t, 1) AS l, SUM(t) AS i, AVG(f) AS a, MAX(k) AS m, COUNT(s) AS c, ARRAY_AGG(k) AS g"
    with checked_calls() as called:
        for clause, gap in (("", "B*"), ("AFTER MATCH SKIP TO NEXT ROW", "B*"), ("", "B{0,300}")):
            query = cer_gpu.compile(
                f"SELECT * FROM S MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES {measures} {rows} {clause} "
                f"PATTERN (A {gap} {{- C -}}) DEFINE B AS f > PREV(f), C AS s = 'x')"
            )
            assert query.evaluate(events(60, 1)).num_rows > 0
        near = "PATTERN (A Z* B Z* C) DEFINE B AS f > A.f AND t <= A.t + 60000, C AS f < A.f"
        cer_gpu.compile(f"SELECT * FROM S MATCH_RECOGNIZE (ORDER BY t MEASURES {measures} {rows} {near})").evaluate(
            events(60, 1)
        )
    assert "search" in {name for _, name in called}
    rooms = ("cer_gpu.backend.row_patterns", "cer_gpu.backend.aggregates.segments")
    wanted = {name for module, name in KERNELS if module in rooms}
    assert wanted - {name for _, name in called} == ({"list_rows"} if "ONE" in rows else set())


def test_a_wrong_argument_is_seen():
    module = importlib.import_module("cer_gpu.backend.compaction")
    stated = contract("cer_gpu.backend.compaction", "select_relevant")
    words, symbols, rows = np.zeros(3, np.uint8), np.zeros(3, np.int32), np.zeros(3, np.int32)
    table = np.empty((0, 0), np.uint64), np.zeros(256, np.int32)
    unwritten = check_call(module, stated, (words, *table, 0, symbols, rows, 0))
    assert [where for where, _ in unwritten] == ["words", "keys", "values"]
    for wrong in (
        (words.astype(np.int64), *table, 0, symbols, rows, 0),
        (words, *table, 0.0, symbols, rows, 0),
        (words, *table, 0, symbols[:2], rows, 0),
        (words, *table, 0, symbols[:, np.newaxis], rows, 0),
    ):
        with pytest.raises(Mismatch):
            check_call(module, stated, wrong)
