"""UUIDs: keys and texts like any others."""

from __future__ import annotations

import random
import uuid

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu
from cer_gpu.io.source import uuid_strings


def test_texts_are_those_of_python():
    rng = random.Random(3)
    values = [None if rng.random() < 0.2 else uuid.UUID(int=rng.getrandbits(128)) for _ in range(100)]
    array = pa.array(values, pa.uuid())
    for begin, n in ((0, 100), (7, 50), (99, 1), (5, 0)):
        wanted = [None if value is None else str(value) for value in values[begin : begin + n]]
        assert uuid_strings(array.slice(begin, n)).to_pylist() == wanted


def test_they_are_keys_and_are_compared(tmp_path):
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    rows = {"type": ["A", "A", "B", "B"], "id": [one, other, other, one]}
    table = pa.table({"type": rows["type"], "id": pa.array(rows["id"], pa.uuid())})
    pq.write_table(table, tmp_path / "e.parquet")
    query = cer_gpu.compile("SELECT * WHERE A AS a ; B AS b PARTITION BY [id]")
    joined = cer_gpu.compile("SELECT * WHERE A AS a ; B AS b FILTER b.id = a.id")
    literal = cer_gpu.compile(f"SELECT * WHERE A AS a FILTER a[id = '{one}']")
    evaluator = query.evaluator()
    assert evaluator.push(table.to_batches()[0])["id"].to_pylist() == [str(other), str(one)]
    evaluator = query.evaluator()
    evaluator.expect(table.schema)
    found = [evaluator.push_rows([row]).num_rows for row in table.to_pylist()]
    assert found == [0, 0, 1, 1]
    for events in (table, pd.DataFrame(rows), tmp_path / "e.parquet", iter(table.to_batches(max_chunksize=3))):
        if not hasattr(events, "__next__"):
            assert joined.evaluate(events)["positions"].to_pylist() == [[1, 2], [0, 3]]
            assert literal.evaluate(events)["start"].to_pylist() == [0]
        found = query.evaluate(events)
        assert found["positions"].to_pylist() == [[1, 2], [0, 3]]
        assert found["id"].to_pylist() == [str(other), str(one)]
    statement = "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY id MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS TRUE)"
    assert cer_gpu.compile(statement).evaluate(table)["n"].to_pylist() == [2, 2]
    assert query.evaluate(pl.DataFrame({"type": ["A", "B"], "id": [str(one)] * 2})).num_rows == 1
