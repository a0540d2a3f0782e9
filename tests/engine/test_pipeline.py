"""Stages of a query: their hook, and several pipelines behind one set of columns."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.columnar import dictionary_encoding
from cer_gpu.engine.blocks import Blocks
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.pipeline import Pipeline
from cer_gpu.predicates.guards import SeenEventTypes
from cer_gpu.stages import LISTING, LOOP, OUTPUT, PARTITIONS, PREDICATES, MeasuredStages, Stages

EVENTS = pa.record_batch(
    {
        "type": ["A", "B", "A", "C", "B", "C", "A", "B"],
        "t": [1, 2, 3, 4, 5, 6, 7, 8],
        "k": ["x", "x", "y", "x", "y", "y", "x", "x"],
    }
)
QUERIES = [
    ("SELECT * FROM S WHERE A ; B", "positions"),
    ("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 3 [t]", "positions"),
    ("SELECT NEXT * FROM S WHERE (A ; B)+ ; C WITHIN 5 [t]", "bindings"),
    ("SELECT * FROM S WHERE A ; C FILTER A[k = 'x']", "count"),
    ("SELECT * FROM S WHERE A : B PARTITION BY [k]", "events"),
]


def pipeline_of(text, output):
    query = cer_gpu.compile(text, time_column="t")
    physical = query.physical_plan(output)
    binding = query._bind(EVENTS.schema)
    return Pipeline(physical, binding, EvaluationOptions(device="cpu"), physical.table(), seen_types=SeenEventTypes(()))


@pytest.mark.parametrize("n_rows", [1, 3, 8])
def test_several_pipelines_behind_one_set_of_columns_find_what_each_finds_alone(n_rows, monkeypatch):
    encoded, encode = [], dictionary_encoding.DictionaryEncoder.encode
    monkeypatch.setattr(
        dictionary_encoding.DictionaryEncoder, "encode", lambda self, texts: (encoded.append(1), encode(self, texts))[1]
    )
    pipelines = [pipeline_of(*query) for query in QUERIES]
    blocks = Blocks(("t",), None, 0)
    batch = blocks.batch(EVENTS)
    found = [[] for _ in pipelines]
    n_blocks = 0
    for columns in blocks.cut(batch.events, n_rows):
        n_blocks += 1
        block = blocks.read(columns)
        for pipeline, rows in zip(pipelines, found, strict=True):
            rows += [pipeline.rows(each, batch) for each in pipeline.process(block, blocks.clocks)]
    for pipeline, rows in zip(pipelines, found, strict=True):
        rows += [pipeline.rows(each, batch) for each in pipeline.flush(batch)]
    assert len(encoded) == 2 * n_blocks  # the types and the one key that a filter reads, once for all queries
    for (text, output), rows in zip(QUERIES, found, strict=True):
        alone = cer_gpu.compile(text, time_column="t").evaluate(EVENTS, output=output)
        assert alone.num_rows
        assert pa.Table.from_batches(rows).to_pylist() == alone.to_pylist()


class Named(Stages):
    """Hook that records the stages that begin."""

    def __init__(self):
        self.begun = []

    def stage(self, name):
        self.begun.append(name)
        return super().stage(name)

    def each(self, name, items):
        self.begun.append(name)
        return super().each(name, items)


@pytest.mark.parametrize(
    ("number", "stages"),
    [
        (0, [PREDICATES, LOOP, LISTING, OUTPUT]),
        (1, [PREDICATES, PARTITIONS, LOOP, LISTING, OUTPUT]),
        (2, [PREDICATES, LOOP, LISTING, OUTPUT]),
        (3, [PREDICATES, LOOP, OUTPUT]),
        (4, [PREDICATES, PARTITIONS, LOOP, OUTPUT]),
    ],
)
def test_the_hook_sees_each_stage_in_order(number, stages):
    text, output = QUERIES[number]
    hook = Named()
    evaluator = cer_gpu.compile(text, time_column="t").evaluator(output=output, stages=hook)
    assert evaluator.push(EVENTS).num_rows
    assert list(dict.fromkeys(hook.begun)) == stages


def test_a_measured_evaluation_finds_the_same_rows():
    for text, output in QUERIES:
        query, stages = cer_gpu.compile(text, time_column="t"), MeasuredStages()
        measured = query.evaluator(output=output, stages=stages)
        assert measured.push(EVENTS).equals(query.evaluator(output=output).push(EVENTS))
        assert stages.seconds[LOOP] > 0
        assert stages.running is None
