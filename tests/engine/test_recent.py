"""SELECT RECENT against its reference: random patterns and streams, every output, any cut into batches."""

import random

import pyarrow as pa
import recent_strategies as drawn
import reference_recent as ref
from hypothesis import given, note, settings
from hypothesis import strategies as st
from sizes import scaled

import cer_gpu

SEEDS = st.integers(0, 2**32)
LENGTHS = False


def compiled(query: ref.Query) -> cer_gpu.Query:
    text = drawn.text_of(query)
    note(text)
    return cer_gpu.compile(text, time_column="ts", time_unit="s")


def rows_of(table: pa.Table, variables: list[str]) -> list[ref.Row]:
    """Return the rows of "bindings" as the reference writes them."""
    found = []
    for row in table.to_pylist():
        held = tuple((name, _positions(row[name])) for name in variables)
        found.append((row["start"], row["end"], tuple(row["positions"]), held))
    return found


def _positions(held) -> tuple[int, ...]:
    return () if held is None else (held,) if isinstance(held, int) else tuple(held)


def pushed(query: cer_gpu.Query, table: pa.Table, rnd: random.Random, output: str) -> pa.Table:
    """Return the results of an evaluator that is given random pieces, and put down and taken up in between."""
    evaluator = query.evaluator(output=output)
    answers, begin = [], 0
    while begin < table.num_rows:
        end = min(table.num_rows, begin + rnd.randint(1, 12))
        for batch in table.slice(begin, end - begin).combine_chunks().to_batches():
            answers.append(evaluator.push(batch))
        begin = end
        if rnd.random() < 0.3:
            evaluator = query.restore(evaluator.checkpoint())
    answers.append(evaluator.finish())
    return pa.Table.from_batches(answers)


def case(seed: int, n: int) -> tuple[ref.Query, cer_gpu.Query, ref.Stream, pa.Table]:
    rnd = random.Random(seed)
    query = drawn.Drawn(rnd, lengths=LENGTHS).query
    stream = drawn.stream_of(rnd, n)
    return query, compiled(query), stream, drawn.table_of(stream)


@settings(max_examples=scaled(400), deadline=None)
@given(SEEDS)
def test_engine_finds_what_the_definition_says(seed):
    query, made, stream, table = case(seed, 50)
    variables = list(made.variables)
    expected = ref.rows(query, stream, variables)
    assert rows_of(made.evaluate(table, output="bindings"), variables) == expected
    positions = made.evaluate(table)
    assert [tuple(row.values()) for row in positions.select(["start", "end"]).to_pylist()] == [r[:2] for r in expected]
    assert [tuple(held) for held in positions["positions"].to_pylist()] == [row[2] for row in expected]
