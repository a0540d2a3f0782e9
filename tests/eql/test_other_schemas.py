"""A query that is compiled without a schema is evaluated as one over the schema of its events."""

import pyarrow as pa
import pytest

import cer_gpu

EVENTS = pa.table({"event.category": ["process"] * 3, "host.id": [1, 1, 2], "user.name": ["V", "v", "x"]})
TIMED = EVENTS.append_column("@timestamp", pa.array([1, 2, 3], pa.timestamp("s")))


@pytest.mark.parametrize(
    ("text", "events", "positions"),
    [
        ('process where user.name : "V"', EVENTS, [[0], [1]]),
        ("sequence by nosuch with maxspan=5s [process where true] [process where true]", TIMED, []),
        ("sequence [process where true] by nosuch [process where true] by host.id", TIMED, []),
        ("sequence by host.id [process where true] [process where true]", TIMED, [[0, 1]]),
        ("sequence by host.id, ?nosuch [process where true] [process where true]", TIMED, [[0, 1]]),
    ],
)
def test_the_plan_is_that_over_the_schema(text, events, positions):
    query = cer_gpu.compile(text, language="eql", missing_fields="null")
    assert query.evaluate(events)["positions"].to_pylist() == positions
    assert cer_gpu.QuerySet({"one": query}).evaluate(events)["one"]["positions"].to_pylist() == positions
    evaluator, found = query.evaluator(), []
    for batch in events.to_batches(max_chunksize=1):
        found += evaluator.push(batch)["positions"].to_pylist()
        evaluator = query.restore(evaluator.checkpoint())
    assert found + evaluator.finish()["positions"].to_pylist() == positions
