"""Bindings: one for each schema, unchanged by evaluations."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.planning import binding as module

EVENTS = pa.table({"type": ["A", "B", "A", "B"], "t": [1, 2, 3, 4], "s": ["x", "y", "x", None], "k": [1, 1, 2, 2]})
QUERY = "SELECT * FROM S WHERE A ; B FILTER A[s = 'x'] PARTITION BY [k] WITHIN 2 [t]"


@pytest.fixture
def bound(monkeypatch):
    """Record the schemas that are bound."""
    schemas, bind = [], module.bind
    monkeypatch.setattr(
        module, "bind", lambda plan, schema, *rest: (schemas.append(schema), bind(plan, schema, *rest))[1]
    )
    return schemas


@pytest.mark.parametrize("options", [{}, {"output": "events"}, {"output": "count"}, {"threads": 2}])
def test_a_query_is_bound_once_for_a_schema(bound, options):
    query = cer_gpu.compile(QUERY, time_column="t")
    assert query.evaluate(EVENTS, **options).num_rows == 2
    assert query.evaluate(EVENTS, **options).num_rows == 2
    assert bound == [EVENTS.schema]
    query.evaluate(EVENTS.set_column(1, "t", EVENTS["t"].cast(pa.int32())))
    assert len(bound) == 2


def test_an_evaluation_does_not_change_its_binding():
    query = cer_gpu.compile(QUERY, time_column="t")
    binding = query._bind(EVENTS.schema)
    before = {name: repr(value) for name, value in vars(binding.guards).items() if name != "inputs"}
    query.evaluate(EVENTS)
    assert query._bind(EVENTS.schema) is binding
    assert {name: repr(value) for name, value in vars(binding.guards).items() if name != "inputs"} == before
    assert all(table._table is None for _, table in binding.guards.inputs.tables)
    assert len(binding.guards.inputs.tables) == 1


def test_two_evaluators_of_one_binding_keep_their_own_dictionaries():
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[s = 'x']")
    schema = pa.schema({"type": pa.string(), "s": pa.string()})
    left, right = query.evaluator(), query.evaluator()
    for evaluator, texts in ((left, ["x", "y"]), (right, ["y", "x"]), (left, ["y", "x"]), (right, ["z", "z"])):
        batch = pa.record_batch({"type": ["A", "A"], "s": texts}, schema)
        assert evaluator.push(batch).num_rows == texts.count("x")
    assert left.pipeline.binding is right.pipeline.binding
