"""Keys of PARTITION BY whose NULL is a value: the same as if another value stood in its place."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from changed_syntax import with_nullable
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.query_set import QuerySet

QUERIES = (
    "SELECT * FROM S WHERE A ; B PARTITION BY [g]",
    "SELECT RECENT * FROM S WHERE A AS a ; B AS b ; A AS c FILTER a.x = b.x AND b.x = c.x PARTITION BY [g], [s]",
    "SELECT RECENT * FROM S WHERE A ; B ; !C PARTITION BY [s] WITHIN 4 EVENTS",
    "SELECT NEXT * FROM S WHERE A ; B+ PARTITION BY [s] WITHIN 5 EVENTS",
    "SELECT * FROM S WHERE A AS a FILTER a[LAG(x, 1) > x] PARTITION BY [s], [g]",
    "SELECT * FROM S WHERE A AS a FILTER a[COUNT(*) OVER 3 EVENTS > 1] PARTITION BY [t]",
    "SELECT * FROM S WHERE A ; !C ; B PARTITION BY [g], [h] WITHIN 6 EVENTS LIMIT 1 EVERY 4 EVENTS",
    "SELECT * FROM S WHERE A ; B : C PARTITION BY [b]",
)
NAMES = ("g", "h", "s", "t", "b")


def stream_of(rnd, n):
    def drawn(values):
        return [rnd.choice([*values, None]) for _ in range(n)]

    return pa.table(
        {
            "type": [rnd.choice("ABC") for _ in range(n)],
            "x": [rnd.randint(0, 2) for _ in range(n)],
            "g": pa.array(drawn([1, 2]), rnd.choice([pa.int64(), pa.float64(), pa.timestamp("us")])),
            "h": pa.array(drawn([1]), pa.int8()),
            "s": pa.array(drawn(["", "a"]), pa.string()),
            "t": pa.array(drawn(["u", "v"]), pa.string()).dictionary_encode(),
            "b": pa.array(drawn([True]), pa.bool_()),
        }
    )


def filled(table, names):
    """The table with other values in the place of NULL."""
    for name in names:
        column = table[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        other = pa.array(["other" if pa.types.is_string(column.type) else 77]).cast(
            pa.int8() if pa.types.is_boolean(column.type) else column.type, safe=False
        )[0]
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        table = table.set_column(table.column_names.index(name), name, column.fill_null(other))
    return table


def rows_of(found):
    """Results without keys."""
    return found.select([name for name in found.column_names if name not in NAMES]).to_pylist()


@settings(max_examples=scaled(60), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(QUERIES), st.sampled_from(["positions", "count", "ends"]))
def test_null_is_a_value_like_any_other(seed, text, output):
    rnd = random.Random(seed)
    table = stream_of(rnd, rnd.choice([5, 60]))
    query, plain = with_nullable(text, *NAMES), cer_gpu.compile(text)
    expected = rows_of(plain.evaluate(filled(table, NAMES), output=output))
    found = query.evaluate(table, output=output)
    assert rows_of(found) == expected
    with small_sizes():
        evaluator, pieces, begin = query.evaluator(output=output), [], 0
        while begin < table.num_rows:
            n = rnd.randint(1, 12)
            pieces += [evaluator.push(batch) for batch in table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
            if rnd.random() < 0.3:
                evaluator = query.restore(evaluator.checkpoint())
        pieces.append(evaluator.finish())
    assert pa.Table.from_batches(pieces).to_pylist() == found.to_pylist()
    assert query.evaluate(table, output=output, threads=2).equals(found)


def test_keys_of_the_results_are_null():
    table = pa.table({"type": list("ABAB"), "g": [None, None, 1, None], "s": ["x", "x", None, None]})
    one = with_nullable("SELECT * FROM S WHERE A ; B PARTITION BY [g]", "g").evaluate(table)
    assert one.select(["g", "positions"]).to_pylist() == [
        {"g": None, "positions": [0, 1]},
        {"g": None, "positions": [0, 3]},
    ]
    other = with_nullable("SELECT * FROM S WHERE A ; B PARTITION BY [g], [s]", "g").evaluate(table)
    assert other.select(["g", "s", "positions"]).to_pylist() == [{"g": None, "s": "x", "positions": [0, 1]}]


@pytest.mark.parametrize("kind", [pa.null(), pa.decimal128(9, 2), pa.date32(), pa.binary(), pa.time64("us")])
def test_keys_of_any_type_may_be_null(kind):
    table = pa.table({"type": list("ABAB"), "g": pa.nulls(4, kind)})
    query = with_nullable("SELECT RECENT * FROM S WHERE A ; B PARTITION BY [g]", "g")
    assert query.evaluate(table)["positions"].to_pylist() == [[0, 1], [2, 3]]


def test_queries_of_a_set_that_take_null_and_that_do_not():
    table = pa.table({"type": list("ABAB"), "g": [None, None, 1, 1]})
    text = "SELECT RECENT * FROM S WHERE A ; B PARTITION BY [g]"
    found = QuerySet({"null": with_nullable(text, "g"), "plain": cer_gpu.compile(text)}).evaluate(table)
    assert found["null"]["positions"].to_pylist() == [[0, 1], [2, 3]]
    assert found["plain"]["positions"].to_pylist() == [[2, 3]]
    assert pc.sum(pc.is_null(found["null"]["g"])).as_py() == 1
