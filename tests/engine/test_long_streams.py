"""Long streams under short windows, compared with brute force, with every ring, list and buffer made to overflow.

Brute force cannot read a long stream, but under WITHIN the complex events that end at an event depend on its window
alone, which is short enough.
"""

from __future__ import annotations

import random

import pyarrow as pa
import reference as ref
import strategies
from cases import by_automaton, rows_of
from hypothesis import assume
from hypothesis import strategies as st
from rendering import to_ceql
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.ceql.paths import path_of
from cer_gpu.columnar.fields import batch_of


@st.composite
def long_cases(draw):
    """Draw a query with a window of at most 6 events, a stream of up to 250 events, and a generator for its cuts."""
    formula = draw(strategies.formulas(depth=4, pluses=2, whole=True))
    variables = sorted(ref.defined_variables(formula))
    select = draw(st.sampled_from(["*", "*", tuple(variables[:1]) or "NONE"]))
    query = ref.Query(formula, select=select, within=("events", draw(st.integers(0, 6))))
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    return query, strategies.long_stream(query, rng), rng


@strategies.property_test(1 / 3)
def test_long_streams_give_the_reference_in_any_cut(data):
    query, stream, rng = data.draw(long_cases())
    try:
        expected = ref.evaluate_long(query, stream, 20_000)
    except ref.TooLarge:
        assume(False)
    names = [ref.TYPE, ref.TIME, *sorted(ref.attributes(query))]
    columns = {name: [ref.attribute(event, name) for event in stream] for name in names}
    paths = [path_of(name.split(".")) for name in names]
    events = batch_of(paths, [_array(name, values) for name, values in columns.items()])
    table = pa.Table.from_batches([events])
    with small_sizes():
        compiled = cer_gpu.compile(to_ceql(query, rng), time_column=ref.TIME)
        found = compiled.evaluate(table)
        pieces = stepwise(compiled, table, rng)
        automaton = by_automaton(compiled).evaluate(table)
    rows = rows_of(found)
    assert sorted(rows_of(automaton)) == expected
    assert sorted(rows) == expected
    assert [r[1] for r in rows] == sorted(r[1] for r in rows)
    times = columns[ref.TIME]
    assert found["start_time"].to_pylist() == [times[r[0]] for r in rows]
    assert found["end_time"].to_pylist() == [times[r[1]] for r in rows]
    assert pa.Table.from_batches(pieces, pieces[-1].schema).equals(found)


def stepwise(compiled, table, rng):
    """Return the results of an evaluator that is given up to 20 events at a time."""
    pieces, row = [], 0
    evaluator = compiled.evaluator()
    while row < table.num_rows:
        length = rng.randint(0, 20)
        for batch in table.slice(row, length).to_batches():
            pieces.append(evaluator.push(batch))
        row += length
    return [*pieces, evaluator.finish()]


def _array(name, values):
    for names, type_ in (
        ((ref.TYPE, *strategies.STRING_COLUMNS), pa.string()),
        (strategies.FLOAT_COLUMNS, pa.float64()),
        (strategies.BOOL_COLUMNS, pa.bool_()),
    ):
        if name in names:
            return pa.array(values, type_)
    return pa.array(values, pa.int64())
