"""Long streams under short windows, held to brute force, with every ring, list and buffer made to overflow.

Brute force cannot read a long stream, but under ``WITHIN n EVENTS`` the complex events that end at an event depend on
the n events before it alone: each such piece is short enough.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest
import reference as ref
import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rendering import to_ceql

import cer_gpu
from cer_gpu.engine import evaluator, run

EXAMPLES = max(10, int(os.environ.get("CER_GPU_EXAMPLES", "300")) // 3)


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch):
    """Make everything that grows, moves or is flushed do so many times in a short stream."""
    monkeypatch.setattr(run, "INITIAL_SIZE", 4)
    monkeypatch.setattr(run, "REBASE_POSITION", 16)
    monkeypatch.setattr(run, "REBASE_NODE", 600)
    monkeypatch.setattr(run, "OUTPUT_ROWS", 3)
    monkeypatch.setattr(evaluator, "BLOCK_ROWS", 7)


@st.composite
def long_cases(draw):
    """A query with a window of at most 6 events, a stream of up to 250 events, and a cut into batches."""
    formula = draw(strategies.formulas(depth=4, pluses=2, whole=True))
    variables = sorted(ref.defined_variables(formula))
    select = draw(st.sampled_from(["*", "*", tuple(variables[:1]) or "NONE"]))
    query = ref.Query(formula, select=select, within=("events", draw(st.integers(0, 6))))
    names = sorted({n.name for n in ref.descendants(formula) if isinstance(n, ref.EventType | ref.Not)})
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    length = rng.randint(1, 250)
    pool = names * draw(st.integers(1, 3)) + ["none of them"] * draw(st.integers(0, 6))
    columns = {ref.TYPE: rng.choices(pool, k=length), ref.TIME: sorted(rng.choices(range(length + 1), k=length))}
    for name in sorted(ref.attributes(query)):
        columns[name] = rng.choices([*pool_of(name), None], k=length)
    stream = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return query, stream, columns, rng


def by_pieces(query, stream):
    """Evaluate each window by itself and keep what ends at its last event."""
    _, length = query.within
    rows = []
    for end in range(len(stream)):
        first = max(0, end - length)
        piece = stream[first : end + 1]
        for start, last, positions in ref.evaluate(ref.replace(query, within=None), piece, 20_000):
            if first + last == end:
                rows.append((start + first, end, tuple(p + first for p in positions)))
    return sorted(rows)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(long_cases())
def test_long_streams(case):
    query, stream, columns, rng = case
    try:
        expected = by_pieces(query, stream)
    except ref.TooLarge:
        return
    table = pa.table({name: _array(name, values) for name, values in columns.items()})
    compiled = cer_gpu.compile(to_ceql(query, rng), time_column=ref.TIME)
    found = compiled.evaluate(table)
    rows = [(r["start"], r["end"], tuple(r["positions"])) for r in found.to_pylist()]
    assert sorted(rows) == expected
    assert [r[1] for r in rows] == sorted(r[1] for r in rows)
    times = columns[ref.TIME]
    assert found["start_time"].to_pylist() == [times[r[0]] for r in rows]
    assert found["end_time"].to_pylist() == [times[r[1]] for r in rows]

    pieces, row = [], 0
    stepwise = compiled.evaluator()
    while row < table.num_rows:
        length = rng.randint(0, 20)
        for batch in table.slice(row, length).to_batches():
            pieces.append(stepwise.push(batch))
        row += length
    pieces.append(stepwise.finish())
    assert pa.Table.from_batches(pieces, pieces[-1].schema).equals(found)


def pool_of(name):
    """What a column of the strategies may hold."""
    if name in strategies.FLOAT_COLUMNS:
        return strategies.FLOATS
    if name in strategies.STRING_COLUMNS:
        return strategies.STRINGS
    return (False, True) if name in strategies.BOOL_COLUMNS else strategies.INTS


def _array(name, values):
    for names, type_ in (
        ((ref.TYPE, *strategies.STRING_COLUMNS), pa.string()),
        (strategies.FLOAT_COLUMNS, pa.float64()),
        (strategies.BOOL_COLUMNS, pa.bool_()),
    ):
        if name in names:
            return pa.array(values, type_)
    return pa.array(values, pa.int64())
