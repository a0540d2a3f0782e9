"""``offset``: the first results are left out, whatever the output, the cut into batches, the threads and the query."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import scaled
from sliced_results import OUTPUTS, QUERIES, results_of, stream_of
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.errors import OptionError

TEXTS = (*QUERIES, "SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x = b.x WITHIN 8 EVENTS")
STATEMENT = "SELECT * FROM S MATCH_RECOGNIZE (MEASURES A.x AS x, A.g AS g PATTERN (A) DEFINE A AS A.x > 0)"


@settings(max_examples=scaled(80), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(TEXTS), st.sampled_from(OUTPUTS), st.integers(0, 12))
def test_an_offset_leaves_out_the_first_results(seed, text, output, offset):
    rnd = random.Random(seed)
    if "HAVING" in text and output not in ("bindings", "rows", "measures"):
        return
    if output == "measures" and "sum" not in text:
        return
    query, limit = cer_gpu.compile(text), rnd.choice([None, 0, 1, 5])
    table = stream_of(rnd, rnd.choice([5, 60]))
    options = {"output": output, "offset": offset, "limit": limit}
    every = results_of(query.evaluate(table, output=output), output)
    expected = every[offset:] if limit is None else every[offset : offset + limit]
    found = query.evaluate(table, **options)
    assert results_of(found, output) == expected
    with small_sizes():
        evaluator, pieces, begin = query.evaluator(**options), [], 0
        while begin < table.num_rows:
            n = rnd.randint(1, 12)
            pieces += [evaluator.push(batch) for batch in table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
            if rnd.random() < 0.3:
                evaluator = query.restore(evaluator.checkpoint())
        pieces.append(evaluator.finish())
        assert query.evaluate(table, threads=2, **options).equals(found)
    assert results_of(pa.Table.from_batches(pieces), output) == expected
    other = text if output == "measures" else TEXTS[0]
    together = cer_gpu.compile_all({"one": text, "other": other})
    for threads in (1, 2):
        assert together.evaluate(table, threads=threads, **options)["one"].equals(found)


def test_a_statement_over_a_whole_table_has_an_offset():
    table = stream_of(random.Random(3), 60)
    query = cer_gpu.compile(STATEMENT)
    rows = query.evaluate(table).to_pylist()
    assert len(rows) > 5
    assert query.evaluate(table, offset=3).to_pylist() == rows[3:]
    assert query.evaluate(table, offset=3, limit=2).to_pylist() == rows[3:5]


def test_a_query_that_is_removed_leaves_out_the_first_results_of_all():
    table = pa.table({"type": list("AABB")})
    evaluator = cer_gpu.compile_all({"one": "SELECT * FROM S WHERE A ; B"}).evaluator(offset=3)
    for batch in table.to_batches(max_chunksize=2):
        found = evaluator.push(batch)
    assert found["one"]["positions"].to_pylist() == [[0, 3]]
    evaluator.add("absent", "SELECT * FROM S WHERE A ; !B WITHIN 9 EVENTS")
    evaluator.push(pa.record_batch({"type": list("AAAAA")}))
    assert evaluator.remove("absent")["positions"].to_pylist() == [[7], [8]]


def test_nothing_is_read_after_the_last_result():
    read = []

    def batches():
        for batch in pa.table({"type": list("ABABABABAB")}).to_batches(max_chunksize=2):
            read.append(batch)
            yield batch

    reader = pa.RecordBatchReader.from_batches(pa.schema({"type": pa.string()}), batches())
    query = cer_gpu.compile("SELECT RECENT * FROM S WHERE A ; B")
    assert query.evaluate(reader, offset=1, limit=1)["positions"].to_pylist() == [[2, 3]]
    assert len(read) < 4


@pytest.mark.parametrize("output", ["count", "ends", "funnel"])
def test_outputs_that_list_no_matches_have_no_offset(output):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    with pytest.raises(OptionError, match=f"the output '{output}' does not list\nhint: output='positions'"):
        query.evaluate(pa.table({"type": ["A"]}), output=output, offset=1)
    assert query.evaluate(pa.table({"type": ["A"]}), output=output, offset=0).num_rows >= 0


@pytest.mark.parametrize("offset", [-1, 1.5, True, "2"])
def test_an_offset_is_a_number_from_0_on(offset):
    with pytest.raises(OptionError, match="offset must be a number from 0 on, got "):
        cer_gpu.EvaluationOptions(offset=offset)


def test_a_shard_and_a_count_have_no_offset():
    query, events = cer_gpu.compile("SELECT * FROM S WHERE A"), pa.table({"type": ["A"]})
    with pytest.raises(OptionError, match="a shard lists a part of them"):
        query.evaluate(events, shard=(0, 2), offset=1)
    with pytest.raises(OptionError, match="no option 'offset' here"):
        query.count(events, offset=1)
