"""The kernels of sets find the rows that the interpreter finds: random guards over columns of every type and texts.

They run on the CPU, built by g++, with warps of one lane and of 32 lanes, and on a GPU if there is one.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from host_device import HostDevice
from random_predicates import SCHEMA, batch_of, tree
from set_guards import any_test, texts_of_any_layout
from sizes import seeds

import cer_gpu
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import string_sets
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates.cuda import guard_sets as staging
from cer_gpu.predicates.cuda import set_steps
from cer_gpu.predicates.cuda.guard_sets import CudaSets, SetInputs
from cer_gpu.predicates.cuda.set_steps import SetSteps

ROWS = (0, 1, 31, 32, 33, 300, 1025)


def found_by(sets: CudaSets, block: Block, types: np.ndarray | None) -> list[list[int]]:
    found = sets.collect(sets.submit((SetInputs(block.n_rows, block, types),), None))
    return [sets.apply_late_tests(k, rows, block).tolist() for k, rows in enumerate(found)]


def expected_rows(asked, schema: pa.Schema, block: Block, types: np.ndarray | None) -> list[list[int]]:
    expected = []
    for number, tested in asked:
        rows = np.ones(block.n_rows, np.bool_) if number is None else types == number
        if tested is not None:
            binder = Binder(schema, "")
            rows = rows & rows_of(binder.bind(tested), binder.inputs, block)
        expected.append(np.flatnonzero(rows).tolist())
    return expected


@pytest.mark.parametrize("seed", seeds(4))
def test_rows_equal_those_of_the_interpreter(device, seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(staging, "PIECE", rng.choice([1 << 8, 1 << 22]) * 16)
    asked = [(None, None), *((rng.choice([None, 0, 1]), tree(any_test(rng, rng.randint(0, 3)))) for _ in range(70))]
    steps = SetSteps.of(asked, SCHEMA)
    assert 0 < len(steps.late) < len(asked)
    sets = CudaSets(predicates.open_device(), steps)
    for n in rng.sample(ROWS[1:], 3):
        batch = batch_of(rng, n + 5, rng.choice([0.0, 0.3]))
        for part in (batch, batch.slice(3, n)):
            block = Block(part)
            types = read_only(np.array([rng.randrange(-1, 2) for _ in range(block.n_rows)], np.int32))
            assert found_by(sets, block, types) == expected_rows(asked, SCHEMA, block, types)
    sets.free()


def test_texts_of_any_layout_are_read(device, monkeypatch):
    monkeypatch.setattr(string_sets, "TOGETHER_FROM", 0)  # what is no UTF-8 matches nothing where texts are read alone
    asked, columns = texts_of_any_layout()
    for column in columns:
        schema = pa.schema({"t": column.type})
        block = Block(pa.record_batch([column], schema=schema))
        sets = CudaSets(predicates.open_device(), SetSteps.of(asked, schema))
        found = found_by(sets, block, None)
        assert found == expected_rows(asked, schema, block, None)
        assert sum(map(bool, found)) > 30


def test_a_device_without_room_for_a_block_gets_parts_of_it(build, use):
    rng = random.Random(3)
    batch = batch_of(rng, 20_000, 0.3)
    asked = [(None, tree(any_test(rng, 2))) for _ in range(30)]
    device = use(HostDevice(build, n_bytes=1_600_000))
    sets, block = CudaSets(device, SetSteps.of(asked, SCHEMA)), Block(batch)
    assert found_by(sets, block, None) == expected_rows(asked, SCHEMA, block, None)
    assert 4096 <= sets.max_rows < 20_000
    sets.free()
    little = CudaSets(use(HostDevice(build, n_bytes=1 << 18)), SetSteps.of(asked, SCHEMA))
    with pytest.raises(cer_gpu.DeviceError, match="no memory left"):
        little.submit((SetInputs(block.n_rows, block, None),), None)


def test_deep_tests_are_left_to_the_host(host, monkeypatch):
    rng = random.Random(4)
    monkeypatch.setattr(set_steps, "MAX_ON_STACK", 2)
    asked = [(None, tree(any_test(rng, 4))) for _ in range(20)]
    steps, block = SetSteps.of(asked, SCHEMA), Block(batch_of(rng, 500, 0.2))
    assert found_by(CudaSets(host, steps), block, None) == expected_rows(asked, SCHEMA, block, None)


def test_sets_give_the_tables_of_the_cpu(device):
    """Types, any type, streams of blocks, and a second evaluation that uses what the first one made."""
    rng = random.Random(6)
    names = ["A", "B", "C"]
    table = pa.table(
        {
            "type": rng.choices([*names, None], k=3000),
            "image": rng.choices(["C:\\Windows\\cmd.exe", "powershell.exe", "/bin/sh", None], k=3000),
            "pid": rng.choices([1, 2, 3, None], k=3000),
        }
    )
    tests = ["image GLOB '*\\CMD.exe' NOCASE", "image IS NULL", "pid = 2", "NOT pid IN {1, 2}", "image LIKE 'shell'"]
    queries = {
        f"{first} {k}": f"SELECT * FROM S WHERE {first} AS a ; B AS b FILTER a[{test}] AND b[{other}] WITHIN 4 EVENTS"
        for first in ("A", "C")
        for k, (test, other) in enumerate(zip(tests, rng.sample(tests, len(tests)), strict=True))
    }
    rules = cer_gpu.compile_all(queries)
    expected = rules.evaluate(table, device="cpu")
    assert sum(map(len, expected.values())) > 100
    for _ in range(2):
        assert rules.evaluate(table, device="cuda") == expected
