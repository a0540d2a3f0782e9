"""Events pushed as mappings are those of a batch, and what does not fit is an error that says where."""

from __future__ import annotations

import pyarrow as pa
import pytest

import cer_gpu

SCHEMA = pa.schema({"type": pa.string(), "x": pa.int32(), "name": pa.dictionary(pa.int32(), pa.string())})
ROWS = [{"type": "A", "x": 7, "name": "n"}, {"type": "B"}, {"name": None, "type": "A", "x": 7}]
QUERIES = {"ab": "SELECT * FROM S WHERE A ; B", "a": "SELECT * FROM S WHERE A AS a FILTER a[x = 7 AND name IS NULL]"}


def test_rows_are_events():
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    for rules in (cer_gpu.compile_all(QUERIES), cer_gpu.compile(QUERIES["ab"])):
        evaluators = [rules.evaluator(output="events") for _ in range(2)]
        evaluators[0].expect(SCHEMA)
        assert evaluators[0].push_rows(ROWS) == evaluators[1].push(batch)
        assert evaluators[1].push_rows(ROWS[1:]) == evaluators[0].push(batch.slice(1))
        assert evaluators[0].push_rows([]) == evaluators[1].push(batch.slice(0, 0))


def test_streams_of_rows():
    query = cer_gpu.compile("SELECT * FROM L, R WHERE L > A ; R > B")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"]}), "L")
    assert evaluator.push_rows([{"type": "B"}], "R").num_rows == 1


def test_what_is_wrong_says_where():
    evaluator = cer_gpu.compile_all(QUERIES).evaluator()
    with pytest.raises(cer_gpu.OptionError, match="not known yet"):
        evaluator.push_rows(ROWS)
    evaluator.expect(SCHEMA)
    for rows, told in (
        ([ROWS[0], {"typ": "A"}], "row 1: the events have no column 'typ'\nhint: did you mean 'type'"),
        ([ROWS[0], {"type": "A", "x": "seven"}], "row 1: 'seven' does not fit column 'x', which is int32"),
        ([{"x": 2**40}], "row 0: 1099511627776 does not fit column 'x'"),
        ([["A"]], "row 0: expected a mapping from names of columns to values, got list"),
    ):
        with pytest.raises(cer_gpu.EventsError) as caught:
            evaluator.push_rows(rows)
        assert told in str(caught.value)
    assert evaluator.push_rows(ROWS)["ab"].num_rows == 1
