"""Pipes: the first and the last of all results, whatever the output, the cut into batches and the query."""

import random

import pyarrow as pa
import pytest
from changed_syntax import with_pipes
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled
from sliced_results import OUTPUTS, QUERIES, results_of, stream_of
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import OptionError
from cer_gpu.query_set import QuerySet


def left_of(rows, pipes):
    for kind, n in pipes:
        rows = rows[:n] if kind == "head" else rows[max(len(rows) - n, 0) :]
    return rows


PIPES = st.lists(st.tuples(st.sampled_from(["head", "tail"]), st.integers(0, 9)), min_size=1, max_size=3)


@settings(max_examples=scaled(80), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(QUERIES), st.sampled_from(OUTPUTS), PIPES)
def test_pipes_leave_the_first_and_the_last(seed, text, output, pipes):
    rnd = random.Random(seed)
    query, plain = with_pipes(text, *pipes), cer_gpu.compile(text)
    if "HAVING" in text and output not in ("bindings", "rows", "measures"):
        return
    if output == "measures" and "sum" not in text:
        return
    table = stream_of(rnd, rnd.choice([5, 60]))
    every = results_of(plain.evaluate(table, output=output), output)
    expected = left_of(every, pipes)
    found = query.evaluate(table, output=output)
    assert results_of(found, output) == expected
    with small_sizes():
        evaluator, pieces, begin = query.evaluator(output=output), [], 0
        while begin < table.num_rows:
            n = rnd.randint(1, 12)
            pieces += [evaluator.push(batch) for batch in table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
            if rnd.random() < 0.3:
                evaluator = query.restore(evaluator.checkpoint())
        pieces.append(evaluator.finish())
    assert results_of(pa.Table.from_batches(pieces), output) == expected
    assert query.evaluate(table, output=output, threads=2).equals(found)
    limit = rnd.randint(0, 5)
    assert results_of(query.evaluate(table, output=output, limit=limit), output) == expected[:limit]
    one = QuerySet({"one": query, "other": plain}).evaluate(table, output=output)
    assert one["one"].equals(found)
    shares = [results_of(query.evaluate(table, output=output, shard=(k, 3)), output) for k in range(3)]
    assert sorted((row for share in shares for row in share), key=repr) == sorted(expected, key=repr)


def test_nothing_is_read_behind_the_last_result():
    table = pa.table({"type": list("ABABABAB")})
    read = []

    def batches():
        for batch in table.to_batches(max_chunksize=2):
            read.append(batch)
            yield batch

    query = with_pipes("SELECT RECENT * FROM S WHERE A ; B", ("head", 2), ("tail", 1))
    reader = pa.RecordBatchReader.from_batches(table.schema, batches())
    assert query.evaluate(reader)["positions"].to_pylist() == [[2, 3]]
    assert len(read) < 4


def test_outputs_that_list_no_complex_events_have_no_pipes():
    table = pa.table({"type": list("AB")})
    query = with_pipes("SELECT RECENT * FROM S WHERE A ; B", ("tail", 2))
    for output in ("count", "ends", "funnel"):
        with pytest.raises(OptionError, match="tail chooses among matches"):
            query.evaluate(table, output=output)
    assert "Of all results, only the last 2 are reported (tail)." in str(query.explain())
    assert query.distribution.threads == "one"
    assert query.distribution.tasks["key"] is not None
