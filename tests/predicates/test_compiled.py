"""The compiled pass over a block gives the results of the interpreter, and of the definitions."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading

import numba
import numpy as np
import pyarrow as pa
import pytest
import reference as ref
import strategies
from cases import Case, CaseOfStreams, pushed, rows_of
from random_predicates import (
    EDGES,
    FLOAT_EDGES,
    SCHEMA,
    answers,
    batch_of,
    events,
    guard_words,
    guards_of,
    tier,
    tree,
)
from sizes import EXAMPLES, seeds
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.predicates import generated as backend
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates.guards import COMPILED, INTERPRETED

N_PROGRAMS = 1 if EXAMPLES < 12 else max(3, EXAMPLES // 75)


# ---- random predicates over columns of every type --------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(N_PROGRAMS))
def test_compiled_and_interpreted_words_are_equal(seed):
    rng = random.Random(seed)
    n_guards = [8, 24, 16, 70, 5][seed % 5]
    stream = "stream" if seed % 2 else None
    guards = guards_of(rng, n_guards, stream is not None)
    while (words := guard_words(guards, SCHEMA, "type", "", stream)).bound.code is None:
        guards = guards[:-1]  # those of some seeds have more terms than are compiled
    for nulls in (0.0, 0.3):
        batches = [batch_of(rng, rng.choice([0, 1, 7, 300, 2500]), nulls) for _ in range(6)]
        batches += [batches[-1].slice(i, 5) for i in (0, 1, 3)] + [batch_of(rng, 2100, nulls)]
        assert answers(words, batches, COMPILED) == answers(words, batches, INTERPRETED)


@pytest.mark.parametrize("op", "+-*/%")
def test_every_pair_of_extremes_gives_equal_words(op):
    numbers = [(a, b) for a in EDGES for b in EDGES if max(a, b) < 2**63]
    rng = random.Random(1)
    pairs = [(rng.choice(FLOAT_EDGES), rng.choice(FLOAT_EDGES)) for _ in numbers]
    columns = {name: pa.array([pair[i] for pair in numbers]) for i, name in enumerate("ab")}
    columns |= {name: pa.array([pair[i] for pair in pairs]) for i, name in enumerate("xy")}
    texts = [f"a {op} b {c} -b" for c in ("<", "=", ">")] + [f"NOT x {op} y {c} -y" for c in ("<", "=", ">")]
    texts += [f"a {op} b {c} {d}" for c in ("<", ">=") for d in "ab"] + ["-a < 0 AND a < 0"]  # these wrap around
    texts += [f"x {op} y <> x {op} y", f"1 / (x {op} y) > 0"]
    guards = tuple(Guard(None, tree(text)) for text in texts)
    batch = pa.record_batch(columns)
    words = guard_words(guards, batch.schema, None, "")
    assert answers(words, [batch], COMPILED) == answers(words, [batch], INTERPRETED)


def test_codes_outside_the_dictionary_have_no_type():
    codes = pa.array([0, 1, 1 << 30, -5, 0, 2], pa.int32())
    types = pa.DictionaryArray.from_arrays(codes, pa.array(["A", "B"]), safe=False)
    batch = pa.record_batch({"type": types, "x": pa.array([1.0] * 6)})
    words = guard_words((Guard("A", tree("x > 0")), Guard("B")), batch.schema, "type", "")
    assert answers(words, [batch], COMPILED) == [[(0, 1), (1, 2), (4, 1)]]


def test_columns_may_lie_in_unaligned_memory():
    data = pa.py_buffer(b"\0" + np.arange(5.0).tobytes()).slice(1)
    batch = pa.record_batch({"x": pa.Array.from_buffers(pa.float64(), 5, [None, data])})
    words = guard_words((Guard(None, tree("x > 2")),), batch.schema, None, "")
    assert answers(words, [batch], COMPILED) == [[(3, 1), (4, 1)]]


# ---- the whole engine ----------------------------------------------------------------------------------------------


@strategies.property_test(0.04)
def test_predicates_match_the_definitions(data):
    case = Case(data, strategies.predicate_cases())
    with tier(COMPILED):
        assert rows_of(pushed(case.compiled, case.batches)) == case.expected()


@strategies.property_test(0.04)
def test_arithmetic_matches_the_definitions(data):
    case = Case(data, strategies.arithmetic_cases())
    with tier(COMPILED):
        assert rows_of(pushed(case.compiled, case.batches)) == case.expected()


@strategies.property_test(0.06)
def test_queries_match_the_definitions(data):
    case = Case(data, strategies.cases())
    expected = case.expected()
    with tier(COMPILED), small_sizes():
        assert sorted(rows_of(pushed(case.compiled, case.batches))) == expected


@strategies.property_test(0.03)
def test_queries_over_several_streams_match_the_definitions(data):
    case = CaseOfStreams(data, strategies.cases_of_several_streams())
    candidates = case.candidates()
    with tier(COMPILED):
        answer = case.compiled.evaluate(case.tables)
    found = rows_of(answer)
    assert ref.is_choice(case.query, candidates, rows_of(case.in_order(answer)))
    with tier(INTERPRETED):
        assert found == rows_of(case.compiled.evaluate(case.tables))


# ---- choice of the tier --------------------------------------------------------------------------------------------

QUERY = "SELECT * FROM S WHERE A ; B FILTER A[x > 0.5] AND B[x <= 0.25] WITHIN 10 EVENTS"


@pytest.fixture
def nothing_kept(tmp_path, monkeypatch):
    """Start without compiled code, in memory and on disk."""
    monkeypatch.setattr(backend, "source_folder", lambda: tmp_path)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(predicates, "TIER", None)
    backend._shared.cache_clear()
    yield tmp_path
    backend._shared.cache_clear()


def tiers(table: pa.Table, rows: int) -> list[str]:
    evaluator = cer_gpu.compile(QUERY).evaluator()
    found = []
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        evaluator.push(batch)
        found.append(evaluator.pipeline.guards.tier)
    return found


def test_predicates_are_compiled_after_enough_rows(nothing_kept, monkeypatch):
    monkeypatch.setattr(backend, "ROWS_TO_LOAD", 200)
    monkeypatch.setattr(backend, "ROWS_TO_COMPILE", 500)
    assert tiers(events(700), 100) == [INTERPRETED] * 4 + [COMPILED] * 3
    assert tiers(events(300), 100) == [COMPILED] * 3  # already in memory
    backend._shared.cache_clear()
    assert tiers(events(300), 100) == [INTERPRETED] + [COMPILED] * 2  # and then on disk
    (source,) = nothing_kept.glob("run_*.py")
    assert "def run(" in source.read_text()


def test_code_is_compiled_without_a_writable_folder(nothing_kept, monkeypatch):
    def refuse():
        raise PermissionError("no")

    monkeypatch.setattr(backend, "source_folder", refuse)
    with tier(COMPILED):
        assert set(tiers(events(300), 100)) == {COMPILED}
    assert not list(nothing_kept.glob("run_*.py"))


def test_threads_share_compiled_code(nothing_kept):
    table, found = events(3000), []
    with tier(INTERPRETED):
        expected = cer_gpu.compile(QUERY).evaluate(table)

    def evaluate():
        found.append(cer_gpu.compile(QUERY).evaluate(table))

    with tier(COMPILED):
        threads = [threading.Thread(target=evaluate) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 6
    assert all(answer.equals(expected) for answer in found)
    assert backend._shared.cache_info().currsize == 1


CODE = """
import os, pathlib
import test_compiled as t
t.backend.source_folder = lambda: pathlib.Path(os.environ["SOURCES"])
with t.tier(t.COMPILED):
    print(t.tiers(t.events(300), 100), len(t.cer_gpu.compile(t.QUERY).evaluate(t.events(3000))))
    more = t.cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x > 0.5]").evaluate(t.events(3000))
    other = t.cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[x < 0.5]").evaluate(t.events(3000))
    print(len(more), len(other))
"""


@pytest.mark.long("compiles loops in processes of their own")
def test_processes_share_the_code_on_disk(tmp_path):
    """Two processes that write at once and one that reads give the same answers."""
    here = os.path.dirname(__file__)
    paths = os.pathsep.join([here, os.path.dirname(here), os.path.dirname(os.path.dirname(here))])
    environment = {**os.environ, "PYTHONPATH": paths, "SOURCES": str(tmp_path)}
    start = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    found = [subprocess.Popen([sys.executable, "-c", CODE], **start) for _ in range(2)]
    answers = {process.communicate()[0] for process in found}
    assert {process.returncode for process in found} == {0}
    n_sources = len(list(tmp_path.glob("run_*.py")))
    answers.add(subprocess.run([sys.executable, "-c", CODE], **start, check=True).stdout)
    assert len(answers) == 1
    assert n_sources == len([path for path in tmp_path.iterdir() if path.is_file()]) == 3


def test_a_query_that_is_too_large_to_compile_is_interpreted(monkeypatch):
    monkeypatch.setattr(backend, "MAX_TERMS", 3)
    with tier(COMPILED):
        assert set(tiers(events(300), 100)) == {INTERPRETED}
